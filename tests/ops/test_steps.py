"""What a TorchDispatchMode sees of a step: an overload of ATen's that computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.ops import aten
from flambeau.ops.aten import Overload
from flambeau.ops.registry import PRIMITIVES
from flambeau.utils._python_dispatch import TorchDispatchMode


class Seen(TorchDispatchMode):
    """Writes down what is called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.calls.append((func, args, kwargs))
        return func(*args, **(kwargs or {}))


def _argument(a: Any) -> Any:
    if isinstance(a, np.ndarray):
        return torch.from_numpy(a.copy())
    if isinstance(a, (list, tuple)) and any(isinstance(v, np.ndarray) for v in a):
        return type(a)(_argument(v) for v in a)
    return a


def _samples(prim: Any) -> list[tuple]:
    rng = np.random.default_rng(0)
    if prim.samples:
        return [tuple(map(_argument, sample)) for sample in prim.samples(rng)]
    return [tuple(torch.from_numpy(rng.uniform(0.1, 0.9, (2, 3))) for _ in prim.params)] if len(prim.params) == prim.tensors else []


@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of")     # by the names of overloads
@pytest.mark.parametrize("name", [name for name, prim in PRIMITIVES.items() if getattr(prim, "owner", None) is None])
def test_the_overload_of_a_step_computes_the_same(name: str) -> None:
    prim = PRIMITIVES[name]
    for args in _samples(prim):
        found = aten.step_target(aten.name_of(prim, args), prim, args)
        if found is None:
            continue
        func, given, named = found
        wanted, got = prim(*args), func(*given, **named)
        for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (wanted, got)), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
            if "random" not in prim.tags and not name.startswith("empty"):
                np.testing.assert_array_equal(a.resolve_conj().numpy(), b.resolve_conj().numpy())


def test_most_steps_are_overloads() -> None:
    """The others are compositions in ATen, or have no name there."""
    own = [prim for prim in PRIMITIVES.values() if getattr(prim, "owner", None) is None]
    told = [prim.name for prim in own if any(aten.step_target(aten.name_of(prim, args), prim, args) for args in _samples(prim))]
    assert len(told) > 0.6 * len(own)


@pytest.mark.parametrize(("function", "wanted"), [
    (lambda x: x + x, [torch.ops.aten.add.Tensor]), (lambda x: x.sum(0), [torch.ops.aten.sum.dim_IntList]),
    (lambda x: x.view(-1), [torch.ops.aten.view.default]), (lambda x: x @ x, [torch.ops.aten.mm.default]),
    (lambda x: x.exp().to(torch.float64), [torch.ops.aten.exp.default, torch.ops.aten._to_copy.default]),
    (lambda x: x > 0.5, [torch.ops.aten.gt.Scalar]), (lambda x: torch.full((2,), 3.0), [torch.ops.aten.full.default]),
    (lambda x: x.int().sum(), [torch.ops.aten._to_copy.default, torch.ops.aten.sum.dim_IntList])])
def test_a_mode_sees_overloads(function: Any, wanted: list) -> None:
    x = torch.rand(3, 3)
    expected = function(x)
    with Seen() as seen:
        got = function(x)
    assert torch.equal(got, expected) and got.dtype == expected.dtype
    assert [func for func, _, _ in seen.calls] == wanted and all(any(func is w for w in wanted) for func, _, _ in seen.calls)
    for func, _, _ in seen.calls:
        assert isinstance(func, Overload) and func.namespace == "aten" and func.overloadpacket == func and str(func._schema)


def test_what_stands_above_is_off_within() -> None:
    """Gradients are recorded once, and what a step is called by isn't cast again."""
    w = torch.rand(3, 3, requires_grad=True)
    with Seen() as seen, torch.autocast("cpu", dtype=torch.bfloat16):
        y = w @ w
    assert y.dtype == torch.bfloat16 and y.grad_fn is not None and len(seen.calls) >= 2
    y.float().sum().backward()
    plain = w.detach().clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (plain @ plain).float().sum().backward()
    assert torch.equal(w.grad, plain.grad)


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/"])
def test_a_tensor_and_a_number_are_told_as_two_tensors(symbol: str) -> None:
    x = torch.arange(3.0)
    with Seen() as seen:
        got = eval(f"x {symbol} 2", {"x": x})
    (func, args, _), = seen.calls
    assert got.tolist() == eval(f"x {symbol} 2", {"x": x}).tolist() and args[1] == 2
    assert func == getattr(torch.ops.aten, {"+": "add", "-": "sub", "*": "mul", "/": "div"}[symbol]).Tensor
    packet = f"aten::{func.overloadpacket.__name__}"
    assert func.name() == f"{packet}.Tensor" and func.overloadpacket.name() == packet


_ATEN = torch.ops.aten


@pytest.mark.parametrize(("function", "wanted"), [
    (lambda x, w: torch.nn.functional.linear(x, w, w[:, 0]), [_ATEN.t.default, _ATEN.addmm.default]),
    (torch.nn.functional.linear, [_ATEN.t.default, _ATEN.mm.default]),
    (lambda x, w: torch.nn.functional.linear(x[None], w), [_ATEN.view.default, _ATEN.t.default, _ATEN.mm.default, _ATEN.view.default]),
    (lambda x, w: torch.nn.functional.layer_norm(x, (3,)), [_ATEN.native_layer_norm.default, *[_ATEN.view.default] * 2])])
def test_an_operator_of_several_steps_is_told_as_these(function: Any, wanted: list) -> None:
    """To modes, and to classes, which may give tensors of their own for each."""
    x, w = torch.rand(2, 3), torch.rand(4, 3)
    expected = function(x, w)
    with Seen() as seen:
        got = function(x, w)
    torch.testing.assert_close(got, expected)
    told = [func for func, _, _ in seen.calls if func is not _ATEN.select.int and func is not _ATEN.unsqueeze.default]
    assert told == wanted and all(isinstance(func, Overload) for func in told)
    Doubled.told = []
    got = function(Doubled(x), w)
    assert isinstance(got, Doubled) and [func for func in Doubled.told if func is not _ATEN.unsqueeze.default] == [
        func for func in wanted if func is not _ATEN.t.default]      # which takes the plain tensor alone
    torch.testing.assert_close(got.inner, function(x, w))


class Doubled(torch.Tensor):
    """Computes with what it wraps."""

    told: list = []

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Doubled:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        cls.told.append(func)
        plain = [a.inner if isinstance(a, Doubled) else a for a in args]
        out = func(*plain, **(kwargs or {}))
        return tuple(map(cls, out)) if isinstance(out, tuple) else cls(out)
