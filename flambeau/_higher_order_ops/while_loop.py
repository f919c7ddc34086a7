"""A loop whose end tensors decide: `torch.while_loop`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.batched import stripped
from ..core.tensor import Tensor, is_example
from ..func.higher_order import capturing
from .cond import chosen


def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: Any) -> Any:
    """What becomes of `carried_inputs`, a tuple, by `carried = body_fn(*carried)` for as long as `cond_fn(*carried)` holds.

    The tensors of `carried` keep their shapes and dtypes. Raises RuntimeError where they don't, and for arguments of other kinds. Within
    vmap it goes on while the condition holds for any example; those that are done keep what they have.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple, but got {type(carried_inputs).__name__}.")
    carried = tuple(carried_inputs)
    if carried and all(isinstance(x, Tensor) for x in carried) and capturing.by is not None:
        return capturing.by.while_loop(cond_fn, body_fn, carried)
    while _goes_on(running := cond_fn(*carried)):
        after = body_fn(*carried)
        if not isinstance(after, (tuple, list)) or len(after) != len(carried):
            raise RuntimeError(f"body_fn should return a tuple of {len(carried)} values, as carried_inputs has, but got {after}.")
        for before, now in zip(carried, after):
            if isinstance(before, Tensor) and (before.shape != now.shape or before.dtype is not now.dtype):
                raise RuntimeError(f"Expected body_fn_output and carried_inputs to have same metadata but found {list(now.shape)} of "
                                   f"{now.dtype} and {list(before.shape)} of {before.dtype}.")
        carried = chosen(running, tuple(after), carried) if _differs(running) else tuple(after)
    return carried


def _differs(running: Any) -> bool:
    return isinstance(running, Tensor) and is_example(running)


def _goes_on(running: Any) -> bool:
    """Whether the condition holds; within vmap, of any example."""
    return bool((stripped(running)[0] != 0).any() if _differs(running) else running)


__all__ = ["while_loop"]
