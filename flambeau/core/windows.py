"""Windows that slide over images: how many there are, and which of x, w and y a convolution x * w -> y and its gradients take and give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def window_count(n: Any, k: Any, stride: Any, padding: Any, dilation: Any = 1, ceil_mode: bool = False) -> Any:
    """How many windows of `k` taps there are along `n` elements, padded at both ends. With `ceil_mode` the last may reach past the end, but
    must start inside."""
    span = n + 2 * padding - dilation * (k - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    out = -(-span // stride) + 1
    return out - 1 if (out - 1) * stride >= n + padding else out


def unwound(n: Any, k: Any, stride: Any, padding: Any, dilation: Any = 1) -> Any:
    """The least number of elements along which there are `n` such windows: the size that a transposed convolution gives."""
    return (n - 1) * stride - 2 * padding + dilation * (k - 1) + 1


X, W, Y = range(3)
# By the names of their primitives: which of x, w and y the two operands and the result are.
ROLES = {"convolution": (X, W, Y), "convolution_input_grad": (Y, W, X), "convolution_weight_grad": (Y, X, W)}


def by_role(kind: str, operands: Sequence[Any], result: Any) -> list[Any]:
    """x, w and y among the operands and the result of one of the three."""
    found = dict(zip(ROLES[kind], (*operands, result), strict=True))
    return [found[role] for role in range(3)]
