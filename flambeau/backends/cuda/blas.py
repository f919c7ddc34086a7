"""Matrix products by cuBLAS, on strided operands, in every floating dtype (bf16 and f16 accumulate in f32)."""

from __future__ import annotations

import ctypes
from typing import Any

import cupy
import numpy as np

from . import matmul as precision

Array = Any

# dtype -> (cudaDataType, cublasComputeType, dtype of alpha and beta)
_KINDS = {
    "float32": (0, 68, np.float32), "float64": (1, 70, np.float64),
    "float16": (2, 68, np.float32), "bfloat16": (14, 68, np.float32),
}
_TF32 = 77
_DEFAULT_ALGORITHM = -1


class _Library:
    """cuBLAS by ctypes: CuPy's own binding refuses to be recorded into a CUDA graph."""

    NAMES = ("libcublas.so.13", "libcublas.so.12", "libcublas.so")
    WORKSPACE = 32 << 20

    def __init__(self) -> None:
        cupy.cuda.device.get_cublas_handle()  # CuPy finds and loads the library
        self.lib = next(lib for lib in map(self._open, self.NAMES) if lib is not None)
        self.handles: dict[int, tuple[ctypes.c_void_p, Any]] = {}
        self.one = {np.float32: ctypes.c_float(1), np.float64: ctypes.c_double(1)}
        self.zero = {np.float32: ctypes.c_float(0), np.float64: ctypes.c_double(0)}

    @staticmethod
    def _open(name: str) -> Any:
        try:
            return ctypes.CDLL(name)
        except OSError:
            return None

    def check(self, status: int, call: str) -> None:
        if status:
            raise RuntimeError(f"{call} failed with cuBLAS status {status}")

    def handle(self) -> ctypes.c_void_p:
        """The current device's handle, on the current stream, with a workspace of its own (a recorded graph keeps it)."""
        device = cupy.cuda.runtime.getDevice()
        found = self.handles.get(device)
        if found is None:
            made = ctypes.c_void_p()
            self.check(self.lib.cublasCreate_v2(ctypes.byref(made)), "cublasCreate")
            found = self.handles[device] = made, cupy.cuda.alloc(self.WORKSPACE)
        handle, workspace = found
        self.check(self.lib.cublasSetStream_v2(handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)), "cublasSetStream")
        self.check(self.lib.cublasSetWorkspace_v2(handle, ctypes.c_void_p(workspace.ptr), ctypes.c_size_t(self.WORKSPACE)),
                   "cublasSetWorkspace")
        return handle


_library: list[_Library] = []


def _cublas() -> _Library:
    if not _library:
        _library.append(_Library())
    return _library[0]


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
    return _TF32 if name == "float32" and precision.allow_tf32 else _KINDS[name][1]


def matmul(a: Array, b: Array, out: Array | None = None) -> Array:
    """(*batch, n, k) x (*batch, k, m) -> (*batch, n, m), into `out` if it is given."""
    shape = (*a.shape[:-1], b.shape[-1])
    if out is None:
        out = cupy.empty(shape, a.dtype)
    if out.size == 0:
        return out
    target, rows, ldc = _matrix(out)
    stride_c = _batch_stride(target)
    if a.dtype.name not in _KINDS or a.shape[-1] == 0 or target is not out or not rows or stride_c is None:
        out[...] = cupy.matmul(a, b) if a.dtype.name not in _KINDS or a.shape[-1] == 0 else matmul(a, b)
        return out
    a, a_rows, lda, stride_a = _operand(a)
    b, b_rows, ldb, stride_b = _operand(b)
    batch = int(np.prod(shape[:-2], dtype=np.int64))
    _gemm(a, a_rows, lda, stride_a, b, b_rows, ldb, stride_b, out, ldc, stride_c, batch)
    return out


def _operand(a: Array) -> tuple[Array, bool, int, int]:
    """(`a` or a copy, is it row-major, its leading stride, its stride through the batch)."""
    a, rows, leading = _matrix(a)
    stride = _batch_stride(a)
    if stride is None:
        a, rows, leading, stride = cupy.ascontiguousarray(a), True, max(a.shape[-1], 1), a.shape[-1] * a.shape[-2]
    return a, rows, leading, stride


def _gemm(a: Array, a_rows: bool, lda: int, stride_a: int, b: Array, b_rows: bool, ldb: int, stride_b: int, out: Array, ldc: int,
          stride_c: int, batch: int) -> None:
    """cuBLAS thinks in columns: out^T = b^T a^T."""
    name = a.dtype.name
    data, _, scalar = _KINDS[name]
    library = _cublas()
    one, zero = ctypes.byref(library.one[scalar]), ctypes.byref(library.zero[scalar])
    n, m, k = out.shape[-2], out.shape[-1], a.shape[-1]
    x, y, z = (ctypes.c_void_p(array.data.ptr) for array in (b, a, out))
    long = ctypes.c_longlong
    first = (library.handle(), int(not b_rows), int(not a_rows), m, n, k, one)
    if batch == 1:
        status = library.lib.cublasGemmEx(*first, x, data, ldb, y, data, lda, zero, z, data, ldc, _compute(name), _DEFAULT_ALGORITHM)
    else:
        status = library.lib.cublasGemmStridedBatchedEx(
            *first, x, data, ldb, long(stride_b), y, data, lda, long(stride_a), zero, z, data, ldc, long(stride_c), batch,
            _compute(name), _DEFAULT_ALGORITHM)
    library.check(status, f"the product of {a.shape} and {b.shape} ({name})")


def mm(a: Array, b: Array) -> Array:
    """The product of two matrices, or of batches of them with the same batch dimensions."""
    return matmul(a, b)

