"""Matrix products by cuBLAS, on strided operands, in every floating dtype (bf16 and f16 accumulate in f32)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
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
        self.streams: dict[int, int] = {}       # what each handle was last told
        int_, void, long = ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong
        head = [void, int_, int_, int_, int_, int_, void]
        self.lib.cublasGemmEx.argtypes = [*head, void, int_, int_, void, int_, int_, void, void, int_, int_, int_, int_]
        self.lib.cublasGemmStridedBatchedEx.argtypes = [
            *head, void, int_, int_, long, void, int_, int_, long, void, void, int_, int_, long, int_, int_, int_]
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
        stream = cupy.cuda.get_current_stream().ptr
        if self.streams.get(device) != stream:
            self.check(self.lib.cublasSetStream_v2(handle, ctypes.c_void_p(stream)), "cublasSetStream")
            self.check(self.lib.cublasSetWorkspace_v2(handle, ctypes.c_void_p(workspace.ptr), ctypes.c_size_t(self.WORKSPACE)),
                       "cublasSetWorkspace")
            self.streams[device] = stream
        return handle


_library: list[_Library] = []


def _cublas() -> _Library:
    if not _library:
        _library.append(_Library())
    return _library[0]


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
    if out is None:
        out = cupy.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    key = (a.shape, b.shape, a.strides, b.strides, out.strides, a.dtype)
    call = _calls.get(key)
    if call is None:
        call = _calls[key] = _prepare(a, b, out)
    call(a, b, out)
    return out


_calls: dict[tuple, Callable[[Array, Array, Array], None]] = {}      # by layout: a model's products are always the same


def _prepare(a: Array, b: Array, out: Array) -> Callable[[Array, Array, Array], None]:
    """What computes products of these layouts."""
    if out.size == 0:
        return lambda a, b, out: None
    if a.dtype.name not in _KINDS or a.shape[-1] == 0:
        def by_cupy(a: Array, b: Array, out: Array) -> None:
            out[...] = cupy.matmul(a, b)
        return by_cupy
    layouts = [_layout(x) for x in (a, b, out)]
    if None not in layouts and layouts[2][0]:       # type: ignore[index]
        return _gemm(a, b, out, *layouts)       # type: ignore[arg-type]
    first, second = (layout is None for layout in layouts[:2])

    def by_copies(a: Array, b: Array, out: Array) -> None:
        out[...] = matmul(cupy.ascontiguousarray(a) if first else a, cupy.ascontiguousarray(b) if second else b)
    return by_copies


Layout = tuple[bool, int, int]


def _layout(a: Array) -> Layout | None:
    """(is it row-major, its leading stride, its stride through the batch), in elements; None where cuBLAS has no way to say it."""
    rows, columns = a.strides[-2] // a.itemsize, a.strides[-1] // a.itemsize
    batch = _batch_stride(a)
    if batch is None:
        return None
    if (columns == 1 or a.shape[-1] == 1) and (rows >= a.shape[-1] or a.shape[-2] == 1):
        return True, max(rows, a.shape[-1], 1), batch
    if (rows == 1 or a.shape[-2] == 1) and (columns >= a.shape[-2] or a.shape[-1] == 1):
        return False, max(columns, a.shape[-2], 1), batch
    return None


def _gemm(a: Array, b: Array, out: Array, of_a: Layout, of_b: Layout, of_out: Layout) -> Callable[[Array, Array, Array], None]:
    """The call for these layouts. cuBLAS thinks in columns: out^T = b^T a^T."""
    name = a.dtype.name
    data, _, scalar = _KINDS[name]
    library = _cublas()
    one, zero = ctypes.addressof(library.one[scalar]), ctypes.addressof(library.zero[scalar])
    n, m, k = out.shape[-2], out.shape[-1], a.shape[-1]
    batch = int(np.prod(out.shape[:-2], dtype=np.int64))
    (a_rows, lda, stride_a), (b_rows, ldb, stride_b), (_, ldc, stride_c) = of_a, of_b, of_out
    turned = int(not b_rows), int(not a_rows)
    single, batched = library.lib.cublasGemmEx, library.lib.cublasGemmStridedBatchedEx

    def call(a: Array, b: Array, out: Array) -> None:
        x, y, z = b.data.ptr, a.data.ptr, out.data.ptr
        if batch == 1:
            status = single(library.handle(), *turned, m, n, k, one, x, data, ldb, y, data, lda, zero, z, data, ldc, _compute(name),
                            _DEFAULT_ALGORITHM)
        else:
            status = batched(library.handle(), *turned, m, n, k, one, x, data, ldb, stride_b, y, data, lda, stride_a, zero, z, data,
                             ldc, stride_c, batch, _compute(name), _DEFAULT_ALGORITHM)
        if status:
            library.check(status, f"the product of {a.shape} and {b.shape} ({name})")
    return call


def mm(a: Array, b: Array) -> Array:
    """The product of two matrices, or of batches of them with the same batch dimensions."""
    return matmul(a, b)

