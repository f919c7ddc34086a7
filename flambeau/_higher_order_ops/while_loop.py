"""A loop whose end tensors decide: `torch.while_loop`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor


def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: Any) -> Any:
    """What becomes of `carried_inputs`, a tuple, by `carried = body_fn(*carried)` for as long as `cond_fn(*carried)` holds.

    The tensors of `carried` keep their shapes and dtypes. Raises RuntimeError where they don't, and for arguments of other kinds.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple, but got {type(carried_inputs).__name__}.")
    carried = tuple(carried_inputs)
    while cond_fn(*carried):
        after = body_fn(*carried)
        if not isinstance(after, (tuple, list)) or len(after) != len(carried):
            raise RuntimeError(f"body_fn should return a tuple of {len(carried)} values, as carried_inputs has, but got {after}.")
        for before, now in zip(carried, after):
            if isinstance(before, Tensor) and (before.shape != now.shape or before.dtype is not now.dtype):
                raise RuntimeError(f"Expected body_fn_output and carried_inputs to have same metadata but found {list(now.shape)} of "
                                   f"{now.dtype} and {list(before.shape)} of {before.dtype}.")
        carried = tuple(after)
    return carried


__all__ = ["while_loop"]
