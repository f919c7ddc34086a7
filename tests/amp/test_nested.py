"""Autocast blocks in one another, on and off, with and without the cache of weights, left by exceptions: beside torch, and compiled."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as fl

ARRAYS = np.random.default_rng(0).standard_normal((3, 4, 4)).astype(np.float32)
STEPS = {
    "product": lambda lib, x, w, v: lib.mm(x, w),
    "layer": lambda lib, x, w, v: lib.nn.functional.linear(x, v).relu(),
    "loss": lambda lib, x, w, v: lib.nn.functional.mse_loss(lib.mm(x, w).softmax(-1), x),
    "ask": lambda lib, x, w, v: (lib.is_autocast_enabled("cpu"), lib.is_autocast_cache_enabled()),
    "on": lambda lib, x, w, v: lib.set_autocast_enabled("cpu", True),
    "off": lambda lib, x, w, v: lib.set_autocast_enabled("cpu", False),
    "clear": lambda lib, x, w, v: lib.clear_autocast_cache(),
}


def program(rng: random.Random, depth: int = 0) -> list:
    """Names of steps, and blocks: (arguments, whether it ends in an exception, whether without gradients, its program)."""
    steps: list = []
    for _ in range(rng.randint(1, 4)):
        if depth < 4 and rng.random() < 0.55:
            block = {"enabled": rng.random() < 0.7, "cache_enabled": rng.choice([None, True, False])}
            steps.append((block, rng.random() < 0.1, rng.random() < 0.15, program(rng, depth + 1)))
        else:
            steps.append(rng.choices(list(STEPS), [6, 2, 2, 2, 1, 1, 1])[0])
    return steps


def play(lib: Any, steps: list, kind: str, tensors: tuple) -> Iterator[Any]:
    for step in steps:
        if isinstance(step, str):
            yield STEPS[step](lib, *tensors)
            continue
        block, fails, without, inner = step
        try:
            with lib.autocast("cpu", dtype=getattr(lib, kind), **block), lib.set_grad_enabled(lib.is_grad_enabled() and not without):
                yield from play(lib, inner, kind, tensors)
                if fails:
                    raise ValueError
        except ValueError:
            pass


def outcome(lib: Any, steps: list, kind: str, backend: str | None = None) -> list:
    def f(*tensors: Any) -> list:
        return list(play(lib, steps, kind, tensors))

    inputs = [lib.from_numpy(a.copy()).requires_grad_() for a in ARRAYS]
    with lib.autocast("cpu", dtype=getattr(lib, kind), enabled=False):      # what steps set ends with it
        found = [r for r in (lib.compile(f, backend=backend) if backend else f)(*inputs) if r is not None]
    made = [r for r in found if not isinstance(r, tuple)]
    sum((r.double().sum() for r in made if r.requires_grad), lib.zeros((), dtype=lib.float64, requires_grad=True)).backward()
    asked = [r for r in found if isinstance(r, tuple)]
    kinds = [(str(r.dtype).split(".")[-1], r.requires_grad) for r in made]
    grads = [lib.zeros(4, 4) if t.grad is None else t.grad for t in inputs]
    return [asked, kinds, lib.is_autocast_enabled("cpu"), *(t.detach().double().numpy() for t in (*made, *grads))]


def check(mine: list, theirs: list, tolerance: float) -> None:
    assert mine[:3] == theirs[:3]
    for a, b in zip(mine[3:], theirs[3:], strict=True):
        np.testing.assert_allclose(a, b, tolerance, tolerance * (1 + np.abs(b).max()))


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_blocks_in_blocks_as_torch(kind: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    for seed in range(40):
        steps = program(random.Random(seed))
        check(outcome(fl, steps, kind), outcome(torch, steps, kind), 0.02)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_blocks_in_blocks_compiled(backend: str) -> None:
    for seed in range(100, 112):
        steps = program(random.Random(seed))
        fl.compiler.reset()
        check(outcome(fl, steps, "bfloat16", backend), outcome(fl, steps, "bfloat16"), 1e-2)


def test_each_dtype_has_its_casts() -> None:
    """A block in a block with another dtype takes no cast of the other's."""
    x, w, _ = (fl.from_numpy(a.copy()).requires_grad_() for a in ARRAYS)
    with fl.autocast("cpu", dtype=fl.bfloat16):
        kinds = [fl.mm(x, w).dtype]
        with fl.autocast("cpu", dtype=fl.float16):
            kinds.append(fl.mm(x, w).dtype)
        kinds.append(fl.mm(x, w).dtype)
    assert kinds == [fl.bfloat16, fl.float16, fl.bfloat16]


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_a_weight_that_changes_within_a_block(backend: str | None) -> None:
    """Its cast is made again, though the block lasts: an optimizer's step counts at once."""
    def f(x: Any, w: Any) -> tuple:
        with fl.autocast("cpu", dtype=fl.bfloat16):
            first = fl.mm(x, w)
            with fl.no_grad():
                w.mul_(2)
            return first, fl.mm(x, w)

    x, w, _ = (fl.from_numpy(a.copy()).requires_grad_() for a in ARRAYS)
    first, second = (fl.compile(f, backend=backend) if backend else f)(x, w)
    assert fl.equal(first * 2, second)


def test_the_cache_can_be_turned_off() -> None:
    with fl.autocast("cpu", enabled=False):
        before = fl.is_autocast_cache_enabled()
        fl.set_autocast_cache_enabled(not before)
        assert fl.is_autocast_cache_enabled() is not before
    assert fl.is_autocast_cache_enabled() is before
