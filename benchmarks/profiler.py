"""What a profile costs: microseconds an eager event, and the share of a compiled training step.

    python -m benchmarks.profiler

With and without a profile are measured in turns, by processor time on one thread (the machine may be busy), as the least of several rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.profiler import profile

ROUNDS = 15
OPTIONS: dict[str, dict[str, bool]] = {
    "names and times": {}, "record_shapes": {"record_shapes": True}, "with_stack": {"with_stack": True},
    "profile_memory": {"profile_memory": True}, "all of `python -m flambeau profile`": dict.fromkeys(
        ("record_shapes", "with_stack", "with_modules", "with_flops", "profile_memory"), True)}


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class CharGPT(nn.Module):
    def __init__(self, width: int = 128, depth: int = 4, heads: int = 4, length: int = 64, letters: int = 96) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Parameter(torch.zeros(length, width))
        self.blocks, self.norm = nn.Sequential(*[Block(width, heads) for _ in range(depth)]), nn.LayerNorm(width)
        self.head = nn.Linear(width, letters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.letter(text) + self.place)))


def training_step(compiled: bool) -> Callable[[], Any]:
    torch.manual_seed(0)
    net, text = CharGPT(), torch.randint(0, 96, (8, 65))
    optimizer, model = torch.optim.AdamW(net.parameters()), torch.compile(net) if compiled else net

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()
    return step


def measure(work: Callable[[], Any], repeat: int, options: dict[str, bool]) -> tuple[float, float, int]:
    """Microseconds of a call without a profile and with it, and how many events it has."""
    plain, watched, events = [], [], 0
    for _ in range(ROUNDS):
        plain.append(_timed(work, repeat))
        with profile(**options) as taken:
            watched.append(_timed(work, repeat))
        events = len(taken.recorder) + sum(len(laps) // 8 for _, _, laps, *_ in taken.recorder.calls)
    return min(plain), min(watched), events // repeat


def _timed(work: Callable[[], Any], repeat: int) -> float:
    start = time.process_time_ns()
    for _ in range(repeat):
        work()
    return (time.process_time_ns() - start) / 1e3 / repeat


def main() -> None:
    torch.set_num_threads(1)
    small = torch.ones(4)
    works = {"small add, eager": (lambda: small + small, 2000), "char-GPT step, eager": (training_step(False), 1),
             "char-GPT step, compiled": (training_step(True), 1)}
    print("| what | recorded | without | with | events | an event | share |\n|---|---|---|---|---|---|---|")
    for name, (work, repeat) in works.items():
        for _ in range(3):
            work()
        for told, options in OPTIONS.items():
            plain, watched, events = measure(work, repeat, options)
            print(f"| {name} | {told} | {plain:.2f} us | {watched:.2f} us | {events} | {(watched - plain) / max(events, 1):.2f} us | "
                  f"{(watched - plain) / plain:.1%} |", flush=True)


if __name__ == "__main__":
    main()
