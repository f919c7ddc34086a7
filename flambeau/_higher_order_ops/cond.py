"""The choice between two functions by a value: `torch.cond`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.symbolic import SymBool
from ..core.tensor import Tensor, is_example
from ..func.higher_order import capturing
from ..ops.registry import OPERATORS
from ..utils._pytree import tree_flatten, tree_leaves, tree_unflatten


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Any = ()) -> Any:
    """true_fn(*operands) if `pred` (a bool, or a tensor of one element) holds, else false_fn(*operands).

    The branch that isn't taken does not run. `operands` is a tuple of tensors, or of nested containers of them. Where a
    tensor decides, compiled code holds both branches; they give new tensors of the same shapes and dtypes, and change nothing else.
    So they do within vmap where `pred` differs between examples: there both branches run.
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
    if capturing.by is not None and isinstance(pred, (Tensor, SymBool)):
        return capturing.by.cond(pred, true_fn, false_fn, operands)
    if isinstance(pred, Tensor) and is_example(pred):
        return chosen(pred, true_fn(*operands), false_fn(*operands))
    return true_fn(*operands) if pred else false_fn(*operands)


def chosen(pred: Tensor, yes: Any, no: Any) -> Any:
    """Within vmap, where the examples differ: both results, of each example the one that it wants."""
    leaves, spec = tree_flatten(yes)
    others, other_spec = tree_flatten(no)
    if spec != other_spec:
        raise RuntimeError(f"torch.cond: within vmap both branches give the same structure, got {spec} and {other_spec}")
    which = pred.reshape(())
    return tree_unflatten([_one(which != 0, a, b) for a, b in zip(leaves, others)], spec)


def _one(which: Tensor, a: Any, b: Any) -> Any:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        if a is not b and a != b:
            raise RuntimeError(f"torch.cond: within vmap both branches give tensors, or the same value, got {a} and {b}")
        return a
    if a.shape != b.shape or a.dtype is not b.dtype:
        raise RuntimeError(f"torch.cond: both branches give tensors alike, got {list(a.shape)} of {a.dtype} and {list(b.shape)} of "
                           f"{b.dtype}")
    return OPERATORS["where"](which, a, b)


__all__ = ["chosen", "cond"]
