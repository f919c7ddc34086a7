"""Matrix products by cuBLAS, on strided operands, in every floating dtype (bf16 and f16 accumulate in f32)."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from cupy_backends.cuda.libs import cublas

Array = Any

# dtype -> (cudaDataType, cublasComputeType, dtype of alpha and beta)
_KINDS = {
    "float32": (0, 68, np.float32), "float64": (1, 70, np.float64), "float16": (2, 68, np.float32), "bfloat16": (14, 68, np.float32),
}
_TF32 = 77
_DEFAULT_ALGORITHM = -1


class Precision:
    """Whether f32 products may round their operands to TF32 (torch.set_float32_matmul_precision)."""

    tf32 = False


def _constants(kind: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.ones(1, kind), np.zeros(1, kind)


_ONE_ZERO = {kind: _constants(kind) for kind in (np.float32, np.float64)}


def _matrix(a: Array) -> tuple[Array, bool, int]:
    """(`a`, is it row-major, its leading stride); copied where neither of the last two dimensions is contiguous."""
    rows, columns = a.strides[-2] // a.itemsize, a.strides[-1] // a.itemsize
    if (columns == 1 or a.shape[-1] == 1) and (rows >= a.shape[-1] or a.shape[-2] == 1):
        return a, True, max(rows, a.shape[-1], 1)
    if (rows == 1 or a.shape[-2] == 1) and (columns >= a.shape[-2] or a.shape[-1] == 1):
        return a, False, max(columns, a.shape[-2], 1)
    return cupy.ascontiguousarray(a), True, max(a.shape[-1], 1)


def _batch_stride(a: Array) -> int | None:
    """The one stride (in elements) that goes through all batch dimensions in order; None if there is none."""
    stride = 0
    total = 1
    for size, step in zip(reversed(a.shape[:-2]), reversed(a.strides[:-2])):
        if size == 1:
            continue
        if total == 1:
            stride = step // a.itemsize
        elif step // a.itemsize != stride * total:
            return None
        total *= size
    return stride


def _compute(name: str) -> int:
    return _TF32 if name == "float32" and Precision.tf32 else _KINDS[name][1]


def matmul(a: Array, b: Array, out: Array | None = None) -> Array:
    """(*batch, n, k) x (*batch, k, m) -> (*batch, n, m), into `out` if it is given (contiguous)."""
    shape = (*a.shape[:-1], b.shape[-1])
    if out is None:
        out = cupy.empty(shape, a.dtype)
    if out.size == 0:
        return out
    if a.dtype.name not in _KINDS or a.shape[-1] == 0:
        out[...] = cupy.matmul(a, b)
        return out
    batch = int(np.prod(shape[:-2], dtype=np.int64))
    a, a_rows, lda = _matrix(a)
    b, b_rows, ldb = _matrix(b)
    stride_a, stride_b = _batch_stride(a), _batch_stride(b)
    if stride_a is None:
        a, a_rows, lda = cupy.ascontiguousarray(a), True, max(a.shape[-1], 1)
        stride_a = a.shape[-1] * a.shape[-2]
    if stride_b is None:
        b, b_rows, ldb = cupy.ascontiguousarray(b), True, max(b.shape[-1], 1)
        stride_b = b.shape[-1] * b.shape[-2]
    _gemm(a, a_rows, lda, stride_a, b, b_rows, ldb, stride_b, out, batch)
    return out


def _gemm(a: Array, a_rows: bool, lda: int, stride_a: int, b: Array, b_rows: bool, ldb: int, stride_b: int, out: Array,
          batch: int) -> None:
    """cuBLAS thinks in columns: out^T = b^T a^T."""
    name = a.dtype.name
    data, _, scalar = _KINDS[name]
    one, zero = _ONE_ZERO[scalar]
    n, m, k = out.shape[-2], out.shape[-1], a.shape[-1]
    handle = cupy.cuda.device.get_cublas_handle()
    cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
    trans_b = cublas.CUBLAS_OP_N if b_rows else cublas.CUBLAS_OP_T
    trans_a = cublas.CUBLAS_OP_N if a_rows else cublas.CUBLAS_OP_T
    if batch == 1:
        cublas.gemmEx(handle, trans_b, trans_a, m, n, k, one.ctypes.data, b.data.ptr, data, ldb, a.data.ptr, data, lda,
                      zero.ctypes.data, out.data.ptr, data, m, _compute(name), _DEFAULT_ALGORITHM)
        return
    cublas.gemmStridedBatchedEx(handle, trans_b, trans_a, m, n, k, one.ctypes.data, b.data.ptr, data, ldb, stride_b, a.data.ptr,
                                data, lda, stride_a, zero.ctypes.data, out.data.ptr, data, m, n * m, batch, _compute(name),
                                _DEFAULT_ALGORITHM)


def mm(a: Array, b: Array) -> Array:
    """The product of two matrices, or of batches of them with the same batch dimensions."""
    return matmul(a, b)

