"""Compiled programs on a GPU, kept between processes: a hit gives what a miss gave, and Triton is not asked."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.aot import cache as programs
from flambeau.aot import compile as aot_compile

F = nn.functional


@pytest.fixture(autouse=True)
def directory(own_cache: Path) -> Path:
    return own_cache


def data(*shape: int, seed: int = 0, grad: bool = False, dtype: Any = None) -> torch.Tensor:
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(array).to("cuda").to(dtype or torch.float32).requires_grad_(grad)


def observe(f: Callable, inputs: tuple, **settings: Any) -> list[np.ndarray]:
    torch._dynamo.reset()
    torch.manual_seed(5)
    inputs = tuple(t.detach().clone().requires_grad_(t.requires_grad) for t in inputs)
    compiled = torch.compile(f, **settings)
    seen = []
    for _ in range(4 if settings else 1):  # CUDA graphs are recorded at the third call
        out = compiled(*inputs)
        seen.append(out.detach().float().cpu().numpy().copy())
    leaves = [t for t in inputs if t.requires_grad]
    if leaves:
        (out * out).sum().backward()
        seen += [t.grad.float().cpu().numpy().copy() for t in leaves]
    return seen


PROGRAMS: dict[str, tuple[Callable, tuple, dict]] = {
    "pointwise": (lambda x, y: torch.tanh(x) * y + 1, (lambda: data(50, 70), lambda: data(50, 70, seed=1)), {}),
    "a product": (lambda x, w: F.gelu(x @ w), (lambda: data(64, 96, grad=True), lambda: data(96, 48, seed=1, grad=True)), {}),
    "norm and softmax": (lambda x: F.softmax(F.layer_norm(x, (64,)), -1), (lambda: data(32, 64, grad=True),), {}),
    "a convolution": (lambda x, w: F.conv2d(x, w, padding=1).relu(),
                      (lambda: data(2, 8, 16, 16, grad=True), lambda: data(8, 8, 3, 3, seed=1, grad=True)), {}),
    "random numbers": (lambda x: F.dropout(x, 0.5), (lambda: data(40, 40, grad=True),), {}),
    "eager kernels in between": (lambda x: torch.sort(x * 2, 1)[0] + 1, (lambda: data(20, 30),), {}),
    "symbolic sizes": (lambda x: F.softmax(x * 2, -1), (lambda: data(20, 30, grad=True),), {"dynamic": True}),
    "CUDA graphs": (lambda x: F.softmax(x * 2, -1).cumsum(0), (lambda: data(20, 30),), {"mode": "reduce-overhead"}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hit_gives_what_a_miss_gave(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, makers, settings = PROGRAMS[name]
    inputs = tuple(make() for make in makers)
    first = observe(f, inputs, **settings)
    assert programs.stats == {"miss": 1}
    monkeypatch.setattr(aot_compile, "trace", lambda *args: pytest.fail("it was traced again"))
    second = observe(f, inputs, **settings)
    assert programs.stats == {"miss": 1, "hit": 1}
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


TRAINING = textwrap.dedent("""
    import sys, numpy as np, flambeau as torch
    from flambeau.aot import cache as programs
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 16)).cuda()
    compiled = torch.compile(model)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((48, 32)).astype(np.float32)).cuda()
    for step in range(3):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(x).float().square().mean()
        model.zero_grad()
        loss.backward()
    total = sum(float(p.grad.abs().sum()) for p in model.parameters())
    print(repr(loss.item()), repr(total), programs.stats["hit"], programs.stats["miss"])
""")


def test_a_second_process_starts_warm(directory: Path) -> None:
    def answer() -> list[str]:
        env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(directory)}
        done = subprocess.run([sys.executable, "-c", TRAINING], env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    cold, warm = answer(), answer()
    assert cold[2:] == ["0", "1"] and warm == [*cold[:2], "1", "0"]
