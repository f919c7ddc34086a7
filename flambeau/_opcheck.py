"""torch.library.opcheck: is an operator of one's own what it says it is?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import testing
from .autograd import grad
from .core import dispatch
from .core.tensor import Tensor, fake
from .dynamo import api
from .ops.custom import CustomOperator
from .utils import _pytree as pytree


class OpCheckError(Exception):
    """An operator failed one of the checks."""


def _own(values: Any) -> Any:
    """Arguments of their own memory, with the same need of gradients."""
    return pytree.tree_map(lambda v: v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, Tensor) else v, values)


def _tensors(values: Any) -> list[Tensor]:
    return [v for v in pytree.tree_leaves(values) if isinstance(v, Tensor)]


def _check_schema(op: CustomOperator, args: tuple, kwargs: dict) -> None:
    """Nothing is written but what the operator says, and no result is an argument's memory."""
    args, kwargs = _own((args, kwargs))
    bound = op.signature.bind(*args, **kwargs).arguments
    before = {name: [t.detach().clone() for t in _tensors(value)] for name, value in bound.items()}
    out = op(*args, **kwargs)
    for name, value in bound.items():
        if name not in op.mutates and not all(same.equal(t.detach()) for same, t in zip(before[name], _tensors(value))):
            raise OpCheckError(f"{op.qualname} wrote to its argument {name!r}; name it in mutates_args")
    held = {t.untyped_storage().data_ptr() for t in _tensors((args, kwargs)) if t.numel()}
    if any(t.numel() and t.untyped_storage().data_ptr() in held for t in _tensors(out)):
        raise OpCheckError(f"{op.qualname} gave back memory of an argument; return a clone of it")


def _check_autograd(op: CustomOperator, args: tuple, kwargs: dict) -> None:
    """Gradients come from a registered formula, where they come at all."""
    if op.mutates or not any(t.requires_grad for t in _tensors((args, kwargs))):
        return
    out = _tensors(op(*_own(args), **_own(kwargs)))
    recorded = op.primitive.derivative is not None or op.differentiated or "implicit" in op.kernels
    if any(t.requires_grad for t in out) and not recorded:
        raise OpCheckError(f"{op.qualname} gave results with gradients, and has no formula for them; use register_autograd")


def _facts(values: Any) -> list[tuple]:
    return [(tuple(t.shape), t.dtype, t.device.type, t.stride()) for t in _tensors(values)]


def _check_fake(op: CustomOperator, args: tuple, kwargs: dict) -> None:
    """The function of shapes tells shapes, strides, dtypes and devices as the kernel gives them."""
    def without_data(v: Any) -> Any:
        return fake(tuple(v.shape), v.dtype, v.device, v.stride()) if isinstance(v, Tensor) else v

    real = _facts(op(*_own(args), **_own(kwargs)))
    with dispatch.grad_enabled(False):
        try:
            told = _facts(op(*pytree.tree_map(without_data, args), **pytree.tree_map(without_data, kwargs)))
        except Exception as error:
            raise OpCheckError(f"{op.qualname} on tensors without data: {error}") from error
    if real != told:
        raise OpCheckError(f"{op.qualname}: its function of shapes tells (shape, dtype, device, strides) {told}, the kernel gives {real}")


def _gradients(fn: Callable, args: tuple, kwargs: dict) -> tuple[list[Tensor], list[Tensor | None]]:
    args, kwargs = _own((args, kwargs))
    out = _tensors(fn(*args, **kwargs))
    leaves = [t for t in _tensors((args, kwargs)) if t.requires_grad]
    roots = [t for t in out if t.requires_grad]
    return out, list(grad([t.sum() for t in roots], leaves, allow_unused=True)) if roots and leaves else []


def _caller(op: CustomOperator) -> Callable:
    """A function that calls it. It is no code of this package, whose frames are not captured."""
    names: dict[str, Any] = {"op": op}
    exec(compile("def call(*args, **kwargs):\n    return op(*args, **kwargs)", "<opcheck>", "exec"), names)
    return names["call"]


def _check_compiled(op: CustomOperator, args: tuple, kwargs: dict, **tolerances: Any) -> None:
    """Compiled with sizes that vary it gives the values and gradients of the eager call."""
    compiled = api.compile(_caller(op), backend="aot_eager", fullgraph=True, dynamic=True)
    try:
        testing.assert_close(_gradients(compiled, args, kwargs), _gradients(op, args, kwargs), **tolerances)
    except Exception as error:
        raise OpCheckError(f"{op.qualname}, compiled with sizes that vary: {error}") from error


CHECKS: dict[str, Callable] = {
    "test_schema": _check_schema, "test_autograd_registration": _check_autograd, "test_faketensor": _check_fake,
    "test_aot_dispatch_dynamic": _check_compiled,
}


def opcheck(op: Any, args: tuple, kwargs: dict | None = None, *, test_utils: str | Sequence[str] = tuple(CHECKS),
            raise_exception: bool = True, atol: float | None = None, rtol: float | None = None) -> dict[str, Any]:
    """Run the checks named by `test_utils` on a call of a custom operator: {check: "SUCCESS"}, or an OpCheckError with what failed (with
    `raise_exception=False` what was raised is the value). ValueError for a check that does not exist, TypeError for what is no custom
    operator."""
    operator = getattr(op, "_opoverload", op)
    if not isinstance(operator, CustomOperator):
        raise TypeError(f"opcheck(op, ...): expected an operator made by torch.library, got {type(op).__name__}")
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise ValueError(f"opcheck(test_utils={names}): there are no checks {unknown}, only {list(CHECKS)}")
    tolerances = {name: value for name, value in (("atol", atol), ("rtol", rtol)) if value is not None}
    results: dict[str, Any] = {}
    for name in names:
        try:
            CHECKS[name](operator, tuple(args), dict(kwargs or {}), **(tolerances if name == "test_aot_dispatch_dynamic" else {}))
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error}") from error
            results[name] = error
    return results
