"""An interrupt anywhere leaves nothing switched on: modes, levels of vmap, gradient and inference mode, fake tensors."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

import flambeau as fl
from flambeau.aot.trace import make_fx
from flambeau.core import dispatch
from flambeau.core.settings import fingerprint

X = fl.arange(6.0).reshape(3, 2)


def _modes():
    for _ in range(50):
        with fl.no_grad(), fl.inference_mode():
            fl.ones(2) @ fl.ones(2)
        with fl.enable_grad():
            X.sum()


def _checkpoint():
    x = X.clone().requires_grad_()
    fl.utils.checkpoint.checkpoint(lambda x: x.sin(), x, use_reentrant=False).sum().backward()


def _saved_tensors():
    x = X.clone().requires_grad_()
    with fl.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), fl.autograd.graph.save_on_cpu():
        x.exp().sum().backward()


class _Mode(fl.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _Own(fl.Tensor):
    """A subclass: its operators run with classes out of action."""


def _overrides():
    for _ in range(20):
        with fl.autocast("cpu"), _Mode(), fl.device("meta"), fl.device("cpu"), fl.autocast("cpu", enabled=False):
            X.T @ X
        X.as_subclass(_Own) + 1


WORKS = {
    "vmap": lambda: fl.func.vmap(fl.func.vmap(lambda x: x.sin() * 2))(X),
    "grad": lambda: fl.func.grad(lambda x: (x * x).sum())(X),
    "jacobian": lambda: fl.func.jacrev(lambda x: x.sin())(X[0]),
    "jvp": lambda: fl.func.jvp(lambda x: x.sin(), (X,), (X,)),
    "tracing": lambda: make_fx(lambda x: x.sin() + 1)(X),
    "modes": _modes,
    "checkpoint": _checkpoint,
    "saved tensors": _saved_tensors,
    "overrides": _overrides,
}


def _state() -> tuple:
    state = dispatch.state
    return state.word, state.modes, state.fake, state.recording, state.saved_hooks, state.function_modes, state.autocast, state.overrides, \
        state.classes_off, fingerprint()


class _Interrupt(Exception):
    """Comes as Ctrl-C does, wherever the interpreter looks for signals."""


def _raise(*_: object) -> None:
    raise _Interrupt


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")   # it may come in a callback of a weak reference
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="a block is entered by a call there, after which an interrupt may come")
@pytest.mark.parametrize("name", WORKS)
def test_an_interrupt_anywhere_leaves_nothing_on(name):
    work, random = WORKS[name], np.random.default_rng(0)
    work()
    before, hit = _state(), 0
    seconds = min(_seconds(work) for _ in range(5))
    previous = signal.signal(signal.SIGALRM, _raise)
    try:
        for attempt in range(10_000):  # how many hit depends on how busy the machine is
            if hit > 30 and attempt >= 300:
                break
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1.2 * seconds))
                work()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except _Interrupt:
                hit += 1
            assert _state() == before
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert hit > 30
    work()
