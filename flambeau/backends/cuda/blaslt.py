"""cuBLASLt by ctypes: matrix products that end in a bias, prepared once for each layout."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import cupy

from ... import _C
from . import matmul as precision
from .blas import KINDS, TF32, matmul
from .blas import by_address as plain_product
from .cubins import stream_pointer
from .layouts import MatrixLayout, layout
from .programs import REMEMBERED, Launch, Place, program

Array = Any
WORKSPACE = 32 << 20
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8     # attributes of a product
_ENDS = {"": 4, "relu": 6, "gelu_tanh": 36}                 # epilogues: the bias, and an activation after it
_MAX_WORKSPACE = 1                                          # an attribute of preferences
_FORMAT = {0: 0, 1: 1, 2: 0, 14: 0}                         # cudaDataType -> that of alpha and beta


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
                ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


@functools.cache
def _library() -> Any:
    """The library, loaded beside cuBLAS; None where there is none."""
    cupy.cuda.device.get_cublas_handle()
    for name in ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _check(status: int, call: str) -> None:
    if status:
        raise RuntimeError(f"{call} failed with cuBLAS status {status}")


@functools.cache
def _handle(device: int) -> tuple[ctypes.c_void_p, Any]:
    """(the device's handle, a workspace)."""
    made = ctypes.c_void_p()
    _check(_library().cublasLtCreate(ctypes.byref(made)), "cublasLtCreate")
    return made, cupy.cuda.alloc(WORKSPACE)


def _matrix(kind: int, rows: int, columns: int, leading: int) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    _check(_library().cublasLtMatrixLayoutCreate(ctypes.byref(made), kind, ctypes.c_uint64(rows), ctypes.c_uint64(columns),
                                                 ctypes.c_int64(leading)), "cublasLtMatrixLayoutCreate")
    return made


class BiasedProduct:
    """(n, k) x (k, m) + (m,) for matrices laid out so, as a function of their addresses; RuntimeError where cuBLASLt has none.

    `activation`: "relu" or "gelu_tanh" is done to the result. cuBLAS thinks in columns: out^T = b^T a^T, and the
    bias goes along its rows.
    """

    def __init__(self, name: str, n: int, m: int, k: int, of_a: MatrixLayout, of_b: MatrixLayout, of_out: MatrixLayout, activation: str = ""):
        library = _library()
        data, compute, _ = KINDS[name]
        scale = _FORMAT[data]
        self.handle, self.workspace = _handle(cupy.cuda.runtime.getDevice())
        self.product = ctypes.c_void_p()
        compute = TF32 if name == "float32" and precision.allow_tf32 else compute
        _check(library.cublasLtMatmulDescCreate(ctypes.byref(self.product), compute, scale), "cublasLtMatmulDescCreate")
        for attribute, value in ((_TRANSA, int(not of_b.rows)), (_TRANSB, int(not of_a.rows)), (_EPILOGUE, _ENDS[activation])):
            self._set(attribute, ctypes.c_int32(value))
        self.first = _matrix(data, *((m, k) if of_b.rows else (k, m)), of_b.leading)
        self.second = _matrix(data, *((k, n) if of_a.rows else (n, k)), of_a.leading)
        self.result = _matrix(data, m, n, of_out.leading)
        number = ctypes.c_double if scale else ctypes.c_float
        self.one, self.zero = number(1), number(0)
        self.bias = ctypes.c_uint64(0)
        self.algorithm = self._choose()
        one, zero = ctypes.addressof(self.one), ctypes.addressof(self.zero)
        self.run = _C.PreparedCall(
            ctypes.cast(library.cublasLtMatmul, ctypes.c_void_p).value or 0,
            (self.handle.value, self.product.value, one, None, self.first.value, None, self.second.value, zero, None, self.result.value,
             None, self.result.value, ctypes.addressof(self.algorithm), self.workspace.ptr, WORKSPACE, None), library)
        self.take_bias = _C.PreparedCall(
            ctypes.cast(library.cublasLtMatmulDescSetAttribute, ctypes.c_void_p).value or 0,
            (self.product.value, _BIAS_POINTER, ctypes.addressof(self.bias), ctypes.sizeof(self.bias)), library)
        self.stream = stream_pointer()

    def _set(self, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        _check(_library().cublasLtMatmulDescSetAttribute(self.product, attribute, ctypes.byref(value), size),
               "cublasLtMatmulDescSetAttribute")

    def _choose(self) -> _Heuristic:
        library, preference = _library(), ctypes.c_void_p()
        _check(library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "cublasLtMatmulPreferenceCreate")
        size = ctypes.c_uint64(WORKSPACE)
        library.cublasLtMatmulPreferenceSetAttribute(preference, _MAX_WORKSPACE, ctypes.byref(size), ctypes.c_size_t(8))
        found, count = (_Heuristic * 1)(), ctypes.c_int(0)
        status = library.cublasLtMatmulAlgoGetHeuristic(self.handle, self.product, self.first, self.second, self.result, self.result,
                                                        preference, 1, found, ctypes.byref(count))
        library.cublasLtMatmulPreferenceDestroy(preference)
        if status or not count.value:
            raise RuntimeError(f"cuBLASLt has no product of these layouts with a bias (status {status})")
        return found[0]

    def __call__(self, a: int, b: int, out: int, bias: int) -> None:
        if bias != self.bias.value:
            self.bias.value = bias
            _check(self.take_bias(), "cublasLtMatmulDescSetAttribute")
        status = self.run(b, a, out, out, self.stream())
        if status:
            _check(status, "cublasLtMatmul")


def by_address(name: str, n: int, m: int, k: int, of_a: MatrixLayout, of_b: MatrixLayout, of_out: MatrixLayout,
               activation: str) -> BiasedProduct:
    """A product in 16 bits that ends in a bias and an activation. RuntimeError where there is no cuBLASLt, or it has none."""
    if _library() is None:
        raise RuntimeError("products that end in a bias need libcublasLt, which comes with cuBLAS: pip install nvidia-cublas")
    return BiasedProduct(name, n, m, k, of_a, of_b, of_out, activation)


_products: dict[tuple, Callable[[int, int, int, int], None] | None] = {}


def linear(x: Array, w: Array, bias: Array | None) -> Any:
    """x w^T + bias: (..., k) with (n, k) -> (..., n) in one call; NotImplemented where that cannot be."""
    if x.dtype.name not in KINDS or not x.size or not w.size or x.ndim < 2:
        return NotImplemented
    if not x._c_contiguous:
        if x.ndim > 2:
            return NotImplemented
    elif x.ndim > 2:
        x = x.reshape(-1, x.shape[-1])
    shape = x.shape[:-1]
    key = (x.shape, x.strides, w.shape, w.strides, x.dtype, x.data.device_id, precision.allow_tf32)
    out = cupy.ndarray((*shape, w.shape[0]), x.dtype)
    if bias is None:
        return matmul(x, w.T, out)
    if key not in _products:
        _products[key] = _prepare(x, w, out)
    call = _products[key]
    if call is None or not bias._c_contiguous or bias.ndim != 1:
        return NotImplemented
    call(x.data.ptr, w.data.ptr, out.data.ptr, bias.data.ptr)
    return out


def _linear_program(args: Sequence[Any]) -> _C.GpuProgram | None:
    """What linear maps of tensors of these layouts come to; None where they are no call of cuBLAS alone."""
    x, w = (t._data for t in args[:2])
    bias = None if args[2] is None else args[2]._data
    if x.ndim < 2 or w.ndim != 2 or x.shape[-1] != w.shape[1] or x.dtype != w.dtype or x.dtype.name not in KINDS:
        return None
    if not x._c_contiguous and x.ndim > 2:
        return None
    flat = x.reshape(-1, x.shape[-1])
    shape = (*x.shape[:-1], w.shape[0])
    out = cupy.ndarray((flat.shape[0], w.shape[0]), x.dtype)
    call: Callable | None
    if bias is None:
        call = plain_product(x.dtype, out.shape, flat.shape[1], *_layouts(flat, w.T, out))
        order: tuple[int, ...] = (0, 1, 2)
    elif bias.shape != w.shape[:1] or bias.dtype != x.dtype or not bias._c_contiguous:
        return None
    else:
        call = _prepare(flat, w, out) if x.dtype.name != "float32" else _of_precision(flat, w, out)
        order = (0, 1, 3, 2)
    if call is None:
        return None
    return program(len(order) - 1, [(shape, x.dtype)], [Launch(call, 0, tuple([Place(False, k) for k in order]))])


def _of_precision(x: Array, w: Array, out: Array) -> Callable[..., None] | None:
    """The product in f32, which rounds to TF32 where that is allowed at the time of the call."""
    made: dict[bool, Any] = {precision.allow_tf32: _prepare(x, w, out)}

    def call(a: int, b: int, out: int, bias: int) -> None:
        found = made.get(precision.allow_tf32)
        if found is None:
            found = made[precision.allow_tf32] = BiasedProduct(*facts)
        found(a, b, out, bias)
    facts = ("float32", out.shape[0], out.shape[1], x.shape[1], *_layouts(x, w.T, out))
    return None if made[precision.allow_tf32] is None else call


def _layouts(*arrays: Array) -> list[Any]:
    return [layout(a.shape, [s // a.itemsize for s in a.strides]) for a in arrays]


def _prepare(x: Array, w: Array, out: Array) -> Callable[[int, int, int, int], None] | None:
    layouts = _layouts(x, w.T, out)
    if any(of is None or (x.itemsize == 2 and of.leading % 8) for of in layouts) or _library() is None:
        return None
    try:
        return BiasedProduct(x.dtype.name, out.shape[0], out.shape[1], x.shape[1], *layouts)
    except RuntimeError:
        return None


def install(composites: dict[str, Any]) -> None:
    """Fill in the CUDA column of the linear map."""
    def kernel(x: Array, w: Array, bias: Array | None) -> Any:
        out = linear(x, w, bias)
        return out if out is NotImplemented else out.reshape(*x.shape[:-1], w.shape[0])
    composites["_linear"].kernels["cuda"] = kernel
    composites["_linear"].eager.gpu = _C.GpuPrograms(_linear_program, REMEMBERED)
