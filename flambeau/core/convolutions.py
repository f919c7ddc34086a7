"""A convolution x * w -> y and its gradients by x and w, for all libraries: each makes one of the three from the other two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# By the names of their primitives: which of x, w and y the two operands and the result are.
ROLES = {"convolution": (0, 1, 2), "convolution_input_grad": (2, 1, 0), "convolution_weight_grad": (2, 0, 1)}


def by_role(kind: str, operands: Sequence[Any], result: Any) -> list[Any]:
    """x, w and y among the operands and the result of one of the three."""
    found = dict(zip(ROLES[kind], (*operands, result), strict=True))
    return [found[role] for role in range(3)]
