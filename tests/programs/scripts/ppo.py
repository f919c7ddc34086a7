"""Proximal policy optimisation on a toy environment: rollouts in tensors, generalised advantages, clipped value loss, annealing."""

import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions.categorical import Categorical
from torch.distributions.normal import Normal


class ToyEnv:
    """Points on a line that are to be kept near zero."""

    def __init__(self, n, seed):
        self.rng, self.n = np.random.default_rng(seed), n

    def reset(self):
        self.state, self.age = self.rng.normal(size=(self.n, 3)).astype(np.float32), np.zeros(self.n, dtype=int)
        return self.state.copy()

    def step(self, action):
        self.state[:, 0] += 0.3 * (action - 1) + 0.1 * self.state[:, 1]
        self.state[:, 1:] *= 0.95
        self.age += 1
        reward = -np.abs(self.state[:, 0])
        done = (self.age >= 12) | (reward < -3)
        for i in np.nonzero(done)[0]:
            self.state[i], self.age[i] = self.rng.normal(size=3), 0
        return self.state.copy(), reward, done


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(3, 16)), nn.Tanh(), layer_init(nn.Linear(16, 1), std=1.0))
        self.actor = nn.Sequential(layer_init(nn.Linear(3, 16)), nn.Tanh(), layer_init(nn.Linear(16, 3), std=0.01))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


seed, num_envs, num_steps, gamma, lam, clip = 1, 4, 16, 0.99, 0.95, 0.2
random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)
torch.backends.cudnn.deterministic = True
device = torch.device("cpu")
envs = ToyEnv(num_envs, seed)
agent = Agent().to(device)
optimizer = optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
obs = torch.zeros((num_steps, num_envs) + (3,)).to(device)
actions = torch.zeros((num_steps, num_envs)).to(device)
logprobs, rewards, dones, values = (torch.zeros((num_steps, num_envs)).to(device) for _ in range(4))
next_obs, next_done = torch.Tensor(envs.reset()).to(device), torch.zeros(num_envs).to(device)
for update in range(1, 6):
    optimizer.param_groups[0]["lr"] = (1.0 - (update - 1.0) / 5) * 2.5e-3
    for step in range(num_steps):
        obs[step], dones[step] = next_obs, next_done
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(next_obs)
            values[step] = value.flatten()
        actions[step], logprobs[step] = action, logprob
        next_obs, reward, done = envs.step(action.cpu().numpy())
        rewards[step] = torch.tensor(reward).to(device).view(-1)
        next_obs, next_done = torch.Tensor(next_obs).to(device), torch.Tensor(done).to(device)
    with torch.no_grad():
        next_value = agent.get_value(next_obs).reshape(1, -1)
        advantages, lastgaelam = torch.zeros_like(rewards).to(device), 0
        for t in reversed(range(num_steps)):
            nonterminal = 1.0 - (next_done if t == num_steps - 1 else dones[t + 1])
            nextvalues = next_value if t == num_steps - 1 else values[t + 1]
            delta = rewards[t] + gamma * nextvalues * nonterminal - values[t]
            advantages[t] = lastgaelam = delta + gamma * lam * nonterminal * lastgaelam
        returns = advantages + values
    b_obs, b_logprobs, b_actions = obs.reshape((-1, 3)), logprobs.reshape(-1), actions.reshape((-1,))
    b_advantages, b_returns, b_values = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
    b_inds, clipfracs = np.arange(num_envs * num_steps), []
    for _epoch in range(2):
        np.random.shuffle(b_inds)
        for start in range(0, len(b_inds), 16):
            mb = b_inds[start : start + 16]
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb], b_actions.long()[mb])
            logratio = newlogprob - b_logprobs[mb]
            ratio = logratio.exp()
            with torch.no_grad():
                approx_kl = ((ratio - 1) - logratio).mean()
                clipfracs += [((ratio - 1.0).abs() > clip).float().mean().item()]
            mb_adv = b_advantages[mb]
            mb_adv = (mb_adv - mb_adv.mean()) / (mb_adv.std() + 1e-8)
            pg_loss = torch.max(-mb_adv * ratio, -mb_adv * torch.clamp(ratio, 1 - clip, 1 + clip)).mean()
            newvalue = newvalue.view(-1)
            v_clipped = b_values[mb] + torch.clamp(newvalue - b_values[mb], -clip, clip)
            v_loss = 0.5 * torch.max((newvalue - b_returns[mb]) ** 2, (v_clipped - b_returns[mb]) ** 2).mean()
            loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    y_pred, y_true = b_values.cpu().numpy(), b_returns.cpu().numpy()
    explained = 1 - np.var(y_true - y_pred) / np.var(y_true)
    print(update, loss.item(), pg_loss.item(), v_loss.item(), round(float(explained), 4), round(np.mean(clipfracs), 4))
    print("kl above zero", approx_kl.item() > -1e-6, "reward", rewards.sum(0).mean().item())

mean, logstd = nn.Linear(3, 2), nn.Parameter(torch.zeros(1, 2))
policy = Normal(mean(next_obs), torch.exp(logstd.expand(num_envs, 2)))
sampled = policy.rsample()
(policy.log_prob(sampled).sum(1) + policy.entropy().sum(1)).mean().backward()
print(logstd.grad, mean.weight.grad.abs().sum().item())
