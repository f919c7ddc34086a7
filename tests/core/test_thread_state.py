"""What a thread switches on is its own: no other thread sees it, and none leaves it changed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import flambeau as fl
from flambeau.core import dispatch
from tests.threads import in_threads

X = fl.arange(16.0).reshape(4, 4)


class _Counts(fl.overrides.TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        type(self).calls += 1
        return func(*args, **(kwargs or {}))


class _Own(fl.Tensor):
    pass


SCOPES: dict[str, Callable] = {
    "autocast": lambda: fl.autocast("cpu"),
    "function mode": _Counts,
    "classes off": fl.overrides.DisableTorchFunctionSubclass,
    "device": lambda: fl.device("meta"),
    "no_grad": fl.no_grad,
    "inference_mode": fl.inference_mode,
    "saved_tensors_hooks": lambda: fl.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t),
}


def _look() -> tuple:
    """What the scopes change, as a program sees it."""
    x = X.clone().requires_grad_()
    calls = _Counts.calls
    y = (x * x).sum()
    if y.requires_grad:
        y.backward()
    state = dispatch.state
    return (X @ X).dtype, type(X.as_subclass(_Own) + 1), y.requires_grad, x.grad is not None and x.grad.sum().item(), \
        _Counts.calls - calls, fl.empty(1).device, state.function_modes, state.autocast, state.overrides, state.saved_hooks, state.recording


@pytest.mark.parametrize("name", SCOPES)
def test_a_scope_is_its_thread_s(name: str) -> None:
    plain, seen, entered, done = _look(), [], threading.Event(), threading.Event()

    def other() -> None:
        with SCOPES[name]():
            seen.append(_look())
            entered.set()
            done.wait(20)
            seen.append(_look())
        seen.append(_look())

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(20)
    before = _look()
    with SCOPES[name]():
        inside = _look()
        done.set()
        thread.join(20)
        assert _look() == inside or name == "function mode"
    assert before == _look() == seen[2] == plain
    assert seen[0][:6] != plain[:6] and seen[0][:6] == inside[:6]


def test_autocast_turned_on_without_a_block() -> None:
    compiled = fl.compile(lambda x: x @ x)
    assert compiled(X).dtype is fl.float32
    fl.set_autocast_enabled("cpu", True)
    try:
        assert (X @ X).dtype is compiled(X).dtype is fl.bfloat16
        with fl.autocast("cpu", enabled=False):
            assert (X @ X).dtype is compiled(X).dtype is fl.float32
        assert (X @ X).dtype is fl.bfloat16
    finally:
        fl.set_autocast_enabled("cpu", False)
    assert (X @ X).dtype is compiled(X).dtype is fl.float32 and dispatch.state.autocast is None


def test_in_place_operations_of_two_threads_keep_what_is_overwritten() -> None:
    """Each keeps a copy of its own target for backward."""
    wrong = []

    def work() -> None:
        for _ in range(300):
            x = X.clone().requires_grad_()
            y = x * 1
            y.pow_(2)
            y.sum().backward()
            if not fl.equal(x.grad, 2 * X):
                wrong.append(x.grad)

    in_threads(*[work] * 4)
    assert not wrong


def test_modes_may_be_left_out_of_order() -> None:
    def block():
        with _Counts():
            yield

    first, second = block(), block()
    next(first), next(second), list(first)
    assert len(dispatch.state.function_modes) == 1
    list(second)
    assert not dispatch.state.function_modes and not dispatch.state.overrides


@pytest.mark.parametrize("name", ["autocast", "function mode"])
def test_a_scope_is_left_where_it_was_entered(name: str) -> None:
    scope, said = SCOPES[name](), []

    def other() -> None:
        try:
            scope.__exit__(None, None, None)
        except RuntimeError as error:
            said.append(str(error))

    with scope:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(said) == 1 and "another thread" in said[0]
    assert not dispatch.state.overrides and dispatch.state.autocast is None
