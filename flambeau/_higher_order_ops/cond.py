"""The choice between two functions by a value: `torch.cond`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.symbolic import SymBool
from ..core.tensor import Tensor
from ..utils._pytree import tree_leaves


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Any = ()) -> Any:
    """true_fn(*operands) if `pred` (a bool, or a tensor of one element) holds, else false_fn(*operands).

    The branch that isn't taken does not run. `operands` is a tuple of tensors, or of nested containers of them. Where a
    tensor decides, compiled code holds both branches; they give new tensors of the same shapes and dtypes, and change nothing else.
    """
    if not isinstance(pred, (bool, int, float, SymBool, Tensor)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or not all(isinstance(x, Tensor) for x in tree_leaves(operands)):
        raise RuntimeError("Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got "
                           f"{operands}.")
    return true_fn(*operands) if pred else false_fn(*operands)


__all__ = ["cond"]
