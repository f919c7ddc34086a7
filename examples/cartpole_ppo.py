"""Learn to balance a pole on a cart by proximal policy optimization (Schulman et al. 2017). The cart is here too: no simulator is needed.

    python -m flambeau run examples/cartpole_ppo.py          on Flambeau; `python examples/cartpole_ppo.py` on PyTorch
    ... --compile                                            the update through torch.compile

A reward of 1 for each step that the pole stands; an episode ends when it falls, when the cart leaves its track, or after 500 steps.
Leaves `return.svg`, the mean return of the episodes that each iteration ended, and `cartpole.pt`, the policy, in `--out`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from show import Progress, write_loss_plot
from torch import Tensor, nn
from torch.distributions import Categorical

LONGEST = 500


class CartPoles:
    """Many carts side by side (Barto, Sutton and Anderson 1983). A state is position, velocity, angle and angular velocity."""

    GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
    TRACK, FALLEN = 2.4, math.radians(12)

    def __init__(self, number: int, random: torch.Generator) -> None:
        self.random = random
        self.states = self._fresh(number)
        self.ages = torch.zeros(number)
        self.lengths: list[float] = []

    def _fresh(self, number: int) -> Tensor:
        return torch.rand(number, 4, generator=self.random) * 0.1 - 0.05

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Push each cart left (0) or right (1). Gives the states that came of it, which episodes failed and which ended.

        Those that ended begin anew: `states` is where the next step starts from, `lengths` how long they were.
        """
        speed, angle, turning = self.states[:, 1:].unbind(1)
        mass = self.CART + self.POLE
        push = (2 * actions - 1) * self.FORCE
        shared = (push + self.POLE * self.HALF_LENGTH * turning.square() * angle.sin()) / mass
        inertia = self.HALF_LENGTH * (4 / 3 - self.POLE * angle.cos().square() / mass)
        spin = (self.GRAVITY * angle.sin() - angle.cos() * shared) / inertia
        gain = shared - self.POLE * self.HALF_LENGTH * spin * angle.cos() / mass
        after = self.states + self.SECONDS * torch.stack([speed, gain, turning, spin], 1)
        self.ages += 1
        failed = (after[:, 0].abs() > self.TRACK) | (after[:, 2].abs() > self.FALLEN)
        ended = failed | (self.ages >= LONGEST)
        self.lengths = self.ages[ended].tolist()
        self.states = torch.where(ended[:, None], self._fresh(len(after)), after)
        self.ages = self.ages.masked_fill(ended, 0)
        return after, failed, ended


class ActorCritic(nn.Module):
    """From states to the logits of both actions, and to the return that is to be expected."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
        self.critic = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        with torch.no_grad():
            self.actor[-1].weight.mul_(0.01)  # begins with both actions equally likely

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(states), self.critic(states).squeeze(-1)


@torch.no_grad()
def play(model: ActorCritic, carts: CartPoles, steps: int, discount: float, trace: float) -> tuple[list[Tensor], list[float]]:
    """`steps` steps of each cart: what to learn from (states, actions, log-probabilities, advantages, returns) and episodes' returns."""
    records, lengths = [], []
    for _ in range(steps):
        states = carts.states
        logits, values = model(states)
        policy = Categorical(logits=logits)
        actions = policy.sample()
        after, failed, ended = carts.step(actions)
        following = model(after)[1].masked_fill(failed, 0.0)  # an episode that only ran out of time would have gone on
        records.append((states, actions, policy.log_prob(actions), values, following, ended))
        lengths += carts.lengths
    advantages, advantage = [], torch.zeros(len(carts.states))
    for *_, values, following, ended in reversed(records):  # generalized advantage estimation (Schulman et al. 2016)
        surprise = 1.0 + discount * following - values
        advantage = surprise + discount * trace * advantage.masked_fill(ended, 0.0)
        advantages.append(advantage)
    advantages.reverse()
    states, actions, chances, values = (torch.cat([record[i] for record in records]) for i in range(4))
    gained = torch.cat(advantages)
    return [states, actions, chances, gained, gained + values], lengths


def objective(model: nn.Module, states: Tensor, actions: Tensor, chances: Tensor, advantages: Tensor, returns: Tensor) -> Tensor:
    """The clipped surrogate, the error of the critic, and a little entropy."""
    logits, values = model(states)
    logs = logits.log_softmax(-1)
    ratio = (logs.gather(1, actions[:, None]).squeeze(1) - chances).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
    entropy = -(logs.exp() * logs).sum(-1).mean()
    return 0.005 * F.mse_loss(values, returns) - surrogate - 0.01 * entropy  # returns are up to a hundred, advantages about 1


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--carts", type=int, default=32)
    parser.add_argument("--steps", type=int, default=128, help="of each cart in an iteration")
    parser.add_argument("--epochs", type=int, default=6, help="how often an iteration's steps are learnt from")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="the update through torch.compile")
    parser.add_argument("--out", type=Path, default=Path("out/cartpole_ppo"))
    parser.add_argument("--smoke", action="store_true", help="few short iterations: does it run at all?")
    args = parser.parse_args()
    if args.smoke:
        vars(args).update(iterations=4, carts=8, steps=32, batch=64, epochs=2, width=16)
    return args


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    random = torch.Generator().manual_seed(args.seed)
    model, carts = ActorCritic(args.width), CartPoles(args.carts, random)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    update = torch.compile(objective) if args.compile else objective
    means: list[float] = []
    progress = Progress(args.iterations, "iterations")
    for iteration in progress:
        optimizer.param_groups[0]["lr"] = args.lr * (1 - iteration / args.iterations)
        data, lengths = play(model, carts, args.steps, discount=0.99, trace=0.95)
        for _ in range(args.epochs):
            for rows in torch.randperm(len(data[0]), generator=random).split(args.batch):
                loss = update(model, *(part[rows] for part in data))
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
        if lengths:
            means.append(sum(lengths) / len(lengths))
            progress.note = f"mean return {means[-1]:.0f}"
    args.out.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), args.out / "cartpole.pt")
    write_loss_plot(args.out / "return.svg", {"mean return": means}, "PPO on CartPole: steps that the pole stood", across="iteration")
    print(f"{torch.__package__}: mean return {means[0]:.1f} at first, {means[-1]:.1f} at last; wrote {args.out / 'return.svg'}")


if __name__ == "__main__":
    main()
