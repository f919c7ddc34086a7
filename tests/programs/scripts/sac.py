"""Soft actor-critic on a pendulum of our own: squashed normal policy, two critics with slow copies, learned temperature."""

import copy
import math
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class Pendulum:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.angle, self.speed, self.t = self.rng.uniform(-math.pi, math.pi), self.rng.uniform(-1, 1), 0
        return self.observe()

    def observe(self):
        return np.array([math.cos(self.angle), math.sin(self.angle), self.speed], dtype=np.float32)

    def step(self, action):
        push = float(np.clip(action, -2, 2))
        angle = (self.angle + math.pi) % (2 * math.pi) - math.pi
        cost = angle**2 + 0.1 * self.speed**2 + 0.001 * push**2
        self.speed = float(np.clip(self.speed + (15 * math.sin(self.angle) + 3 * push) * 0.05, -8, 8))
        self.angle += self.speed * 0.05
        self.t += 1
        return self.observe(), -cost, self.t >= 40


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(4, 32), nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, x, a):
        x = F.relu(self.fc1(torch.cat([x, a], 1)))
        return self.fc3(F.relu(self.fc2(x)))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.mean, self.log_std = nn.Linear(32, 1), nn.Linear(32, 1)
        self.register_buffer("scale", torch.tensor(2.0))

    def act(self, x):
        h = self.body(x)
        log_std = -5 + 0.5 * 7 * (torch.tanh(self.log_std(h)) + 1)
        normal = torch.distributions.Normal(self.mean(h), log_std.exp())
        u = normal.rsample()
        y = torch.tanh(u)
        log_prob = normal.log_prob(u) - torch.log(self.scale * (1 - y.pow(2)) + 1e-6)
        return y * self.scale, log_prob.sum(1, keepdim=True)


SEED = 5
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
env = Pendulum(SEED)
actor, q1, q2 = Actor(), Critic(), Critic()
t1, t2 = copy.deepcopy(q1), copy.deepcopy(q2)
q_optimizer = optim.Adam([*q1.parameters(), *q2.parameters()], lr=1e-3)
actor_optimizer = optim.Adam(actor.parameters(), lr=3e-4)
log_alpha = torch.zeros(1, requires_grad=True)
alpha_optimizer = optim.Adam([log_alpha], lr=1e-3)
memory, alpha, returns = deque(maxlen=1000), 1.0, 0.0
obs = env.reset()
for step in range(240):
    if step < 60:
        action = np.random.uniform(-2, 2, 1).astype(np.float32)
    else:
        with torch.no_grad():
            action = actor.act(torch.from_numpy(obs)[None])[0][0].cpu().numpy()
    after, reward, done = env.step(action[0])
    memory.append((obs, action, reward, after, float(done)))
    returns += reward
    obs = after
    if done:
        print(f"step {step} return {returns:.3f}")
        obs, returns = env.reset(), 0.0
    if step < 60:
        continue
    o, a, r, n, d = (torch.as_tensor(np.array(column, dtype=np.float32)) for column in zip(*random.sample(memory, 32)))
    with torch.no_grad():
        na, nlp = actor.act(n)
        target = r + (1 - d) * 0.99 * (torch.min(t1(n, na), t2(n, na)) - alpha * nlp).view(-1)
    q_loss = F.mse_loss(q1(o, a).view(-1), target) + F.mse_loss(q2(o, a).view(-1), target)
    q_optimizer.zero_grad()
    q_loss.backward()
    q_optimizer.step()
    if step % 2 == 0:
        pi, lp = actor.act(o)
        actor_loss = (alpha * lp - torch.min(q1(o, pi), q2(o, pi))).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        with torch.no_grad():
            _, lp = actor.act(o)
        alpha_loss = (-log_alpha.exp() * (lp - 1.0)).mean()
        alpha_optimizer.zero_grad()
        alpha_loss.backward()
        alpha_optimizer.step()
        alpha = log_alpha.exp().item()
    with torch.no_grad():
        for slow, fast in ((t1, q1), (t2, q2)):
            for p, q in zip(slow.parameters(), fast.parameters()):
                p.data.copy_(0.005 * q.data + (1 - 0.005) * p.data)
    if step % 30 == 0:
        print(f"q {q_loss.item():.4f} actor {actor_loss.item():.4f} alpha {alpha:.5f}")
