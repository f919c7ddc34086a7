"""How cuBLAS is told of strided matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class MatrixLayout(NamedTuple):
    """A batch of matrices: row-major or column-major, the leading stride, the stride through the batch, in elements."""

    rows: bool
    leading: int
    batch: int


def _batch_stride(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The one stride that goes through all batch dimensions in order; None if there is none."""
    stride, total = 0, 1
    for size, step in zip(reversed(shape), reversed(strides)):
        if size == 1:
            continue
        if total == 1:
            stride = step
        elif step != stride * total:
            return None
        total *= size
    return stride


def layout(shape: Sequence[int], strides: Sequence[int]) -> MatrixLayout | None:
    """The layout of (*batch, n, m) with these strides in elements; None where cuBLAS has no way to say it."""
    rows, columns = strides[-2:]
    batch = _batch_stride(shape[:-2], strides[:-2])
    if batch is None:
        return None
    if (columns == 1 or shape[-1] == 1) and (rows >= shape[-1] or shape[-2] == 1):
        return MatrixLayout(True, max(rows, shape[-1], 1), batch)
    if (rows == 1 or shape[-2] == 1) and (columns >= shape[-2] or shape[-1] == 1):
        return MatrixLayout(False, max(columns, shape[-2], 1), batch)
    return None
