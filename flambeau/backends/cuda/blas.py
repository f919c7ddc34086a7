"""Matrix products by cuBLAS, on strided operands, in every floating dtype (bf16 and f16 accumulate in f32)."""

from __future__ import annotations

import ctypes
import importlib.util
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np

from ... import _C
from ...core.lazy import LazyModule
from ...core.size import contiguous_strides
from . import matmul as precision
from .cubins import Kernel, stream_pointer
from .layouts import MatrixLayout, layout
from .programs import Launch, places, program

Array = Any

# dtype -> (cudaDataType, cublasComputeType, dtype of alpha and beta)
KINDS = {
    "float32": (0, 68, np.float32), "float64": (1, 70, np.float64),
    "float16": (2, 68, np.float32), "bfloat16": (14, 68, np.float32),
}
TF32 = 77
_DEFAULT_ALGORITHM = -1
_kernels = LazyModule("flambeau.backends.cuda.copy_kernels")


class _Library:
    """cuBLAS by ctypes: CuPy's own binding refuses to be recorded into a CUDA graph."""

    NAMES = ("libcublas.so.13", "libcublas.so.12", "libcublas.so")
    WORKSPACE = 32 << 20

    def __init__(self) -> None:
        cupy.cuda.device.get_cublas_handle()  # CuPy finds and loads the library
        self.lib = next(lib for lib in map(self._open, self.NAMES) if lib is not None)
        self.handles: dict[int, tuple[ctypes.c_void_p, Any]] = {}
        self.streams: dict[int, int] = {}       # what each handle was last told
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

    def handle(self, device: int) -> int:
        """A device's handle, with a workspace of its own (a recorded graph keeps it)."""
        found = self.handles.get(device)
        if found is None:
            made = ctypes.c_void_p()
            self.check(self.lib.cublasCreate_v2(ctypes.byref(made)), "cublasCreate")
            found = self.handles[device] = made, cupy.cuda.alloc(self.WORKSPACE)
        return found[0].value or 0

    def follow(self, device: int, stream: int) -> None:
        """Let a device's handle queue its work on `stream`."""
        handle, workspace = self.handles[device]
        self.check(self.lib.cublasSetStream_v2(handle, ctypes.c_void_p(stream)), "cublasSetStream")
        self.check(self.lib.cublasSetWorkspace_v2(handle, ctypes.c_void_p(workspace.ptr), ctypes.c_size_t(self.WORKSPACE)),
                   "cublasSetWorkspace")
        self.streams[device] = stream

    def prepared(self, name: str, words: tuple[int | None, ...]) -> Callable[..., int]:
        """A function of the library with some of its arguments."""
        return _C.PreparedCall(ctypes.cast(getattr(self.lib, name), ctypes.c_void_p).value or 0, words, self)


_library: list[_Library] = []


def _cublas() -> _Library:
    if not _library:
        _library.append(_Library())
    return _library[0]


def _compute(name: str) -> int:
    return TF32 if name == "float32" and precision.allow_tf32 else KINDS[name][1]


def matmul(a: Array, b: Array, out: Array | None = None) -> Array:
    """(*batch, n, k) x (*batch, k, m) -> (*batch, n, m), into `out` if it is given."""
    if out is None:
        out = cupy.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    key = (a.shape, b.shape, a.strides, b.strides, out.strides, a.dtype, out.dtype)
    call = _calls.get(key)
    if call is None:
        call = _calls[key] = _prepare(a, b, out)
    call(a, b, out)
    return out


_calls: dict[tuple, Callable[[Array, Array, Array], None]] = {}      # by layout: a model's products are always the same


def _layout_of(x: Array) -> MatrixLayout | None:
    return layout(x.shape, [s // x.itemsize for s in x.strides])


def product_program(record: Any, args: Sequence[Any]) -> _C.GpuProgram | None:
    """What calls of a product with tensors of these layouts come to; None where it is no call of cuBLAS alone."""
    shape, (a, b) = record.shape(*args).shape, [t._data for t in args]
    call = by_address(a.dtype, shape, a.shape[-1], _layout_of(a), _layout_of(b), layout(shape, contiguous_strides(shape)))
    return None if call is None else program(2, [(shape, a.dtype)], [Launch(call, 0, places(3))])


def _prepare(a: Array, b: Array, out: Array) -> Callable[[Array, Array, Array], None]:
    """What computes products of these layouts."""
    if out.size == 0:
        return lambda a, b, out: None
    if a.dtype.name not in KINDS or a.shape[-1] == 0:
        def by_cupy(a: Array, b: Array, out: Array) -> None:
            out[...] = cupy.matmul(a, b)
        return by_cupy
    layouts = [_layout_of(x) for x in (a, b, out)]
    found = by_address(a.dtype, out.shape, a.shape[-1], *layouts, result=out.dtype.name)
    if found is not None:
        call = found
        return lambda a, b, out: call(a.data.ptr, b.data.ptr, out.data.ptr)
    first, second = (x is None for x in layouts[:2])

    def by_copies(a: Array, b: Array, out: Array) -> None:
        made = cupy.empty(out.shape, out.dtype)
        out[...] = matmul(cupy.ascontiguousarray(a) if first else a, cupy.ascontiguousarray(b) if second else b, made)
    return by_copies


def by_address(kind: Any, shape: Sequence[int], k: int, of_a: MatrixLayout | None, of_b: MatrixLayout | None,
               of_out: MatrixLayout | None, *, result: str = "") -> Callable[[int, int, int], None] | None:
    """The product into (*batch, n, m) `shape` over `k`, of matrices laid out so, as a function of their addresses; `result`: its dtype,
    where it is another.

    None where cuBLAS cannot do it. cuBLAS thinks in columns: out^T = b^T a^T. Its fast kernels want rows, `k` and `m` in whole
    words of 16 bytes, so that other rows are copied, and the rest of long odd sizes is left to a second call.
    """
    name = kind.name
    if name not in KINDS or of_a is None or of_b is None or of_out is None or not of_out.rows or k == 0 or 0 in shape:
        return None
    m = shape[-1]
    if kind.itemsize != 2 or len(shape) > 2 or (result or name) != name:
        return _gemm(name, shape, k, of_a, of_b, of_out, False, result)
    if _is_worth_padding(shape[0], m, k, (of_a, of_b, of_out)):
        return _padded(kind, shape, k, of_a, of_b, of_out)
    if m % _WORD and m >= _LONG and of_out.leading % _WORD == 0:
        cut = m // _WORD * _WORD
        parts = [by_address(kind, (shape[0], n), k, of_a, of_b, of_out) for n in (cut, m - cut)]
        return _in_turn(parts, 0, cut * (1 if of_b.rows else of_b.leading) * kind.itemsize, cut * kind.itemsize)
    if k % _WORD and k >= _LONG:
        cut = k // _WORD * _WORD
        parts = [_gemm(name, shape, n, of_a, of_b, of_out, add) for n, add in ((cut, False), (k - cut, True))]
        return _in_turn(parts, cut * (1 if of_a.rows else of_a.leading) * kind.itemsize,
                        cut * (of_b.leading if of_b.rows else 1) * kind.itemsize, 0)
    return _gemm(name, shape, k, of_a, of_b, of_out, False)


def _in_turn(parts: Sequence[Any], skip_a: int, skip_b: int, skip_out: int) -> Callable[[int, int, int], None]:
    """Two products, the second so many bytes further on."""
    first, second = parts

    def both(a: int, b: int, out: int) -> None:
        first(a, b, out)
        second(a + skip_a, b + skip_b, out + skip_out)
    return both


_WORD, _LONG = 8, 4096
_WORTH = 64     # multiplications for an element that is copied
_COPIED = 4096  # elements that a program copies


def _memory(of: MatrixLayout, rows: int, columns: int) -> tuple[int, int]:
    """The rows of a matrix as they lie in memory, and their length."""
    return (rows, columns) if of.rows else (columns, rows)


def _is_worth_padding(n: int, m: int, k: int, layouts: Sequence[MatrixLayout]) -> bool:
    """Whether rows that are no whole words of 16 bytes cost more than copies of those matrices do."""
    odd = [size for of, size in zip(layouts, (n * k, k * m, n * m)) if of.leading % _WORD]
    return bool(odd) and n * m * k > _WORTH * sum(odd) and n * m * k > 1 << 24 and importlib.util.find_spec("triton") is not None


def _padded(kind: Any, shape: Sequence[int], k: int, of_a: MatrixLayout, of_b: MatrixLayout,
            of_out: MatrixLayout) -> Callable[[int, int, int], None] | None:
    """The product on copies of the matrices whose rows are no whole words: cuBLAS' fast kernels want them so."""
    (n, m), whole, pads = shape, [], []
    for of, sizes in ((of_a, (n, k)), (of_b, (k, m)), (of_out, (n, m))):
        rows, columns = _memory(of, *sizes)
        leading = -(-columns // _WORD) * _WORD if of.leading % _WORD else 0
        pads.append((rows, columns, of.leading, leading))
        whole.append(MatrixLayout(of.rows, leading or of.leading, of.batch))
    call = by_address(kind, shape, k, *whole)
    copies = [_copy(*pad) if pad[3] else None for pad in pads[:2]]
    back = _copy(pads[2][0], pads[2][1], pads[2][3], pads[2][2]) if pads[2][3] else None
    if call is None:
        return None

    def run(a: int, b: int, out: int) -> None:
        kept, places = [], [a, b, out]      # the copies live until all is launched
        for position, (rows, _, _, leading) in enumerate(pads):
            if leading:
                kept.append(cupy.cuda.alloc(rows * leading * kind.itemsize))
                places[position] = kept[-1].ptr
        for copy, source, target in zip(copies, (a, b), places):
            if copy is not None:
                copy(source, target)
        call(*places)
        if back is not None:
            back(places[2], out)
    return run


class _Words(NamedTuple):
    """What a kernel is compiled for: 16-bit words at an address."""

    data: Any
    dtype: Any = np.dtype(np.uint16)


def _copy(rows: int, columns: int, source_step: int, target_step: int) -> Callable[[int, int], None]:
    """Copies 16-bit matrices between rows of different lengths, by their addresses."""
    blocks = -(-columns // _COPIED)
    anywhere = _Words(types.SimpleNamespace(ptr=2))
    launch = Kernel(_kernels.copy_rows).bind((anywhere, anywhere, columns, blocks, source_step, target_step),
                                            {"BLOCK": _COPIED}, num_warps=4)
    return lambda source, target: launch((rows * blocks,), (source, target))


def _gemm(name: str, shape: Sequence[int], k: int, of_a: MatrixLayout, of_b: MatrixLayout, of_out: MatrixLayout,
          add: bool, result: str = "") -> Callable[[int, int, int], None]:
    data, _, scalar = KINDS[name]
    library = _cublas()
    one, zero = ctypes.addressof(library.one[scalar]), ctypes.addressof(library.zero[scalar])
    beta = one if add else zero
    n, m = shape[-2:]
    batch = int(np.prod(shape[:-2], dtype=np.int64))
    device = cupy.cuda.runtime.getDevice()
    head = (library.handle(device), int(not of_b.rows), int(not of_a.rows), m, n, k, one, None, data, of_b.leading)
    second, target = (None, data, of_a.leading), (None, KINDS[result or name][0], of_out.leading)
    if batch == 1:
        run = library.prepared("cublasGemmEx", (*head, *second, beta, *target, None, _DEFAULT_ALGORITHM))
    else:
        run = library.prepared("cublasGemmStridedBatchedEx", (*head, of_b.batch, *second, of_a.batch, beta, *target, of_out.batch, batch,
                                                              None, _DEFAULT_ALGORITHM))
    current, streams = stream_pointer(), library.streams

    def call(a: int, b: int, out: int) -> None:
        stream = current()
        if streams.get(device) != stream:
            library.follow(device, stream)
        status = run(b, a, out, _compute(name))
        if status:
            library.check(status, f"a product into {tuple(shape)} over {k} ({name})")
    return call


def wide_bmm(a: Array, b: Array) -> Array:
    """(batch, n, k) times (batch, k, m) of bf16 or f16, with the result in f32, as it was accumulated."""
    return matmul(a, b, cupy.empty((*a.shape[:-1], b.shape[-1]), np.float32))


def mm(a: Array, b: Array) -> Array:
    """The product of two matrices, or of batches of them with the same batch dimensions."""
    return matmul(a, b)

