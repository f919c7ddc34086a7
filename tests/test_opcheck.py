"""torch.library.opcheck, and what operators of one's own tell of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import library
from flambeau._opcheck import CHECKS, OpCheckError


def _made(name: str, fn: Callable, mutates: tuple[str, ...] = (), fake: Callable | None = None, backward: Callable | None = None) -> Any:
    op = library.custom_op(f"opcheck::{name}", fn, mutates_args=mutates)
    if fake is not None:
        op.register_fake(fake)
    if backward is not None:
        op.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
    return op


def _square(x: torch.Tensor) -> torch.Tensor:
    return x * x


def _slope(ctx: Any, g: torch.Tensor) -> torch.Tensor:
    return 2 * g * ctx.saved_tensors[0]


def _fill(x: torch.Tensor, n: int) -> None:
    x.fill_(n)


def _writes(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def _aliases(x: torch.Tensor) -> torch.Tensor:
    return x


def test_a_right_operator_passes() -> None:
    op = _made("square", _square, fake=torch.empty_like, backward=_slope)
    x = torch.rand(3, 2, requires_grad=True)
    assert library.opcheck(op, (x,)) == library.opcheck(torch.ops.opcheck.square.default, (x,)) == dict.fromkeys(CHECKS, "SUCCESS")
    assert library.opcheck(_made("fill", _fill, ("x",), fake=lambda x, n: None), (torch.zeros(2), 3), test_utils="test_schema") == {
        "test_schema": "SUCCESS"}


@pytest.mark.parametrize(("name", "make", "check"), [
    ("writes", lambda: _made("writes", _writes, fake=torch.empty_like), "test_schema"),
    ("aliases", lambda: _made("aliases", _aliases, fake=torch.empty_like), "test_schema"),
    ("shape", lambda: _made("shape", _square, fake=lambda x: x.new_empty(7)), "test_faketensor"),
    ("dtype", lambda: _made("dtype", _square, fake=lambda x: torch.empty_like(x, dtype=torch.float64)), "test_faketensor"),
    ("no_shape", lambda: _made("no_shape", _square), "test_faketensor")])
def test_a_wrong_operator_is_told_what_is_wrong(name: str, make: Callable, check: str) -> None:
    op, x = make(), torch.rand(3, 2)
    with pytest.raises(OpCheckError, match=check):
        library.opcheck(op, (x,))
    found = library.opcheck(op, (x,), raise_exception=False, test_utils=(check,))
    assert isinstance(found[check], RuntimeError if name == "aliases" else OpCheckError)


def test_bad_use() -> None:
    with pytest.raises(ValueError, match="no checks"):
        library.opcheck(_made("again", _square), (torch.ones(1),), test_utils="test_nothing")
    with pytest.raises(TypeError, match=r"made by torch\.library"):
        library.opcheck(torch.sin, (torch.ones(1),))
    with pytest.raises(NotImplementedError, match="keep their kernels"):
        library.Library("aten", "IMPL").impl("neg", lambda x: x, "CPU")


def test_schemas_and_names() -> None:
    def scale(x: torch.Tensor, k: float = 2.0, n: int = 1, out: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        return x * k, x * n

    library.custom_op("opcheck::scale", scale, mutates_args=())
    op = torch.ops.opcheck.scale.default
    assert str(op._schema) == "opcheck::scale(Tensor x, float k=2., SymInt n=1, Tensor? out=None) -> (Tensor, Tensor)"
    assert str(op) == "opcheck.scale.default" and op.name() == "opcheck::scale" and op.overloads() == ["default"]
    assert [(a.name, a.has_default_value()) for a in op._schema.arguments] == [("x", False), ("k", True), ("n", True), ("out", True)]
    written = library.custom_op("opcheck::written", _fill, mutates_args=("x",))
    assert str(written._opoverload._schema) == "opcheck::written(Tensor(a0!) x, SymInt n) -> ()"
    with pytest.raises(ValueError, match="type annotation"):
        library.custom_op("opcheck::untyped", lambda x: x, mutates_args=())


def test_a_library_takes_back_what_it_defined() -> None:
    mine = library.Library("opcheck_gone", "DEF")
    mine.define("one(Tensor x) -> Tensor")
    mine.impl("one", lambda x: x + 1, "CPU")
    assert torch.ops.opcheck_gone.one(torch.zeros(1)).item() == 1
    mine._destroy()
    assert not hasattr(torch.ops.opcheck_gone, "one")
