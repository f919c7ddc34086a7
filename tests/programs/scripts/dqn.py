"""Deep Q-learning on a toy environment: replay memory, epsilon-greedy, a target network moved softly, smooth L1 loss."""

import copy
import math
import random
from collections import deque, namedtuple
from itertools import count

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
random.seed(3)
torch.manual_seed(3)


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super(DQN, self).__init__()
        self.layer1 = nn.Linear(n_observations, 24)
        self.value, self.advantage = nn.Linear(24, 1), nn.Linear(24, n_actions)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        a = self.advantage(x)
        return self.value(x) + a - a.mean(dim=-1, keepdim=True)


def env_step(state, action):
    position, speed = state
    speed = 0.9 * speed + (0.2 if action == 1 else -0.2)
    position = position + speed
    return [position, speed], 1.0 - abs(position), abs(position) > 2


policy_net, target_net = DQN(2, 2), DQN(2, 2)
target_net.load_state_dict(policy_net.state_dict())
frozen = copy.deepcopy(policy_net).requires_grad_(False).eval()
optimizer = optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=True)
memory, steps_done = ReplayMemory(200), 0


def select_action(state):
    global steps_done
    eps = 0.05 + 0.85 * math.exp(-1.0 * steps_done / 50)
    steps_done += 1
    if random.random() > eps:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(2)]], dtype=torch.long)


def optimize_model():
    if len(memory) < 16:
        return None
    batch = Transition(*zip(*memory.sample(16)))
    non_final_mask = torch.tensor(tuple(map(lambda s: s is not None, batch.next_state)), dtype=torch.bool)
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch, action_batch, reward_batch = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
    state_action_values = policy_net(state_batch).gather(1, action_batch)
    next_state_values = torch.zeros(16)
    with torch.no_grad():
        next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
    expected = (next_state_values * 0.95) + reward_batch
    loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.item()


for episode in range(8):
    raw = [random.uniform(-1, 1), 0.0]
    state, loss = torch.tensor(raw, dtype=torch.float32).unsqueeze(0), None
    for t in count():
        action = select_action(state)
        raw, reward, terminated = env_step(raw, action.item())
        next_state = None if terminated else torch.tensor(raw, dtype=torch.float32).unsqueeze(0)
        memory.push(state, action, next_state, torch.tensor([reward]))
        state = next_state
        loss = optimize_model()
        target_dict, policy_dict = target_net.state_dict(), policy_net.state_dict()
        for key in policy_dict:
            target_dict[key] = policy_dict[key] * 0.05 + target_dict[key] * (1 - 0.05)
        target_net.load_state_dict(target_dict)
        if terminated or t >= 20:
            break
    print("episode", episode, "length", t + 1, "loss", loss)
with torch.no_grad():
    for mine, old in zip(target_net.parameters(), frozen.parameters()):
        old.lerp_(mine, 0.5)
        print(tuple(old.shape), old.norm().item())
