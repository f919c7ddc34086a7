"""Attention on the GPU by the kernels of `attention_kernels.py`: forward and backward, for arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from . import attention_kernels as kernels
from . import matmul
from .cubins import Kernel

Array = Any
DTYPES = ("bfloat16", "float16", "float32")     # the last with operands rounded to TF32
FEW = 132                           # programs that leave multiprocessors idle
SMALLEST, LARGEST = 16, 128         # head dimensions
_forward, _products = Kernel(kernels.forward), Kernel(kernels.products)
_backward_keys, _backward_rows = Kernel(kernels.backward_keys), Kernel(kernels.backward_rows)

# (is f32, head dimension up to 64) -> for each kernel (rows M, columns N, warps, stages)
TILES: dict[tuple[bool, bool], dict[str, tuple[int, int, int, int]]] = {
    (False, True): {"forward": (128, 64, 4, 3), "forward_few": (64, 64, 4, 3), "keys": (32, 64, 4, 3), "rows": (64, 64, 4, 3)},
    (False, False): {"forward": (128, 64, 8, 2), "keys": (32, 64, 8, 2), "rows": (64, 64, 8, 2)},
    (True, True): {"forward": (64, 64, 4, 2), "keys": (32, 64, 4, 1), "rows": (64, 32, 4, 1)},
    (True, False): {"forward": (64, 32, 4, 2), "keys": (32, 32, 4, 1), "rows": (32, 32, 4, 1)},
}


def supported(q: Array, k: Array, v: Array) -> bool:
    """Whether the kernels take these (batch, heads, rows, E) arrays."""
    if not q.ndim == k.ndim == 4 or k.shape != v.shape or not q.dtype == k.dtype == v.dtype or not q.size or not k.size:
        return False
    if q.dtype.name not in DTYPES or (q.dtype == np.float32 and not matmul.allow_tf32):
        return False
    return q.shape[0] == k.shape[0] and q.shape[1] % k.shape[1] == 0 and q.shape[3] == k.shape[3] and SMALLEST <= q.shape[3] <= LARGEST


def _inner(x: Array) -> Array:
    """`x`, copied where its last dimension is not contiguous."""
    return x if x.strides[-1] == x.itemsize else cupy.ascontiguousarray(x)


def _strides(x: Array) -> tuple[int, ...]:
    return tuple([s // x.itemsize for s in x.strides[:3]])


def _tiles(x: Array, name: str) -> tuple[dict[str, Any], dict[str, int]]:
    """(the constants of a kernel, its options)."""
    e = x.shape[-1]
    m, n, warps, stages = TILES[x.dtype == np.float32, e <= 64][name]
    constants = {"E": e, "D": 1 << (e - 1).bit_length(), "M": m, "N": n}
    return constants, {"num_warps": warps, "num_stages": stages}


def _factor(scale: float) -> np.float32:
    return np.float32(scale * math.log2(math.e))


def _key(is_causal: bool, scale: float, *arrays: Array) -> tuple:
    """What a prepared call depends on."""
    return (is_causal, scale, matmul.allow_tf32, arrays[0].data.device_id,
            *[(x.shape, x.strides, x.dtype, x.data.ptr % 16) for x in arrays])


_calls: dict[tuple, Callable[..., Any]] = {}


def forward(q: Array, k: Array, v: Array, is_causal: bool, scale: float) -> Any:
    """(out (batch, rows, heads, E), log of the sums (batch, heads, rows) in f32), or NotImplemented."""
    if not supported(q, k, v):
        return NotImplemented
    q, k, v = _inner(q), _inner(k), _inner(v)
    key = _key(is_causal, scale, q, k, v)
    call = _calls.get(key)
    if call is None:
        call = _calls[key] = _prepare_forward(q, k, v, is_causal, scale)
    return call(q, k, v)


def _prepare_forward(q: Array, k: Array, v: Array, is_causal: bool, scale: float) -> Callable[..., Any]:
    batch, heads, rows, e = q.shape
    kind, shapes = q.dtype, ((batch, rows, heads, e), (batch, heads, rows))
    few = -(-rows // 128) * batch * heads < FEW
    constants, options = _tiles(q, "forward_few" if few and e <= 64 and kind != np.float32 else "forward")
    grid = (-(-rows // constants["M"]) * batch * heads,)
    out, lse = cupy.empty(shapes[0], kind), cupy.empty(shapes[1], np.float32)
    launch = _forward.bind(
        (q, k, v, out, lse, *_strides(q), *_strides(k), *_strides(v), heads, heads // k.shape[1], rows, k.shape[2], _factor(scale)),
        {**constants, "CAUSAL": bool(is_causal), "PRECISION": "tf32"}, **options)

    def call(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        out, lse = cupy.empty(shapes[0], kind), cupy.empty(shapes[1], np.float32)
        launch(grid, (q.data.ptr, k.data.ptr, v.data.ptr, out.data.ptr, lse.data.ptr))
        return out, lse
    return call


def backward(g: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, is_causal: bool, scale: float) -> Any:
    """Gradients of q, k and v, laid out as (batch, rows, heads, E); or NotImplemented. `g` and `out` are (batch, rows, heads, E)."""
    if not supported(q, k, v):
        return NotImplemented
    q, k, v, g = _inner(q), _inner(k), _inner(v), _inner(g)
    out = cupy.ascontiguousarray(out)
    key = _key(is_causal, scale, q, k, v, g)
    call = _calls.get(key)
    if call is None:
        call = _calls[key] = _prepare_backward(g, q, k, v, out, lse, is_causal, scale)
    return call(g, q, k, v, out, lse)


def _prepare_backward(g: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, is_causal: bool,
                      scale: float) -> Callable[..., Any]:
    batch, heads, rows, e = q.shape
    key_heads, columns = k.shape[1:3]
    kind, of_rows, of_keys, of_delta = q.dtype, (batch, rows, heads, e), (batch, columns, key_heads, e), (batch, heads, rows)
    delta, gq, gk = cupy.empty(of_delta, np.float32), cupy.empty(of_rows, kind), cupy.empty(of_keys, kind)
    tile = {"E": e, "D": 1 << (e - 1).bit_length(), "M": 64}
    products = _products.bind((out, g, delta, *_strides(g), heads, rows), tile, num_warps=4)
    numbers = (*_strides(q), *_strides(k), *_strides(v), *_strides(g), heads, heads // key_heads, rows, columns, _factor(scale),
               np.float32(scale))
    more = {"CAUSAL": bool(is_causal), "PRECISION": "tf32"}
    for_keys, options = _tiles(q, "keys")
    of_k = _backward_keys.bind((q, k, v, g, lse, delta, gk, gk, *numbers), {**for_keys, **more}, **options)
    for_rows, options = _tiles(q, "rows")
    of_q = _backward_rows.bind((q, k, v, g, lse, delta, gq, *numbers), {**for_rows, **more}, **options)
    grids = [(-(-rows // 64) * batch * heads,), (-(-columns // for_keys["N"]) * batch * key_heads,),
             (-(-rows // for_rows["M"]) * batch * heads,)]

    def call(g: Array, q: Array, k: Array, v: Array, out: Array, lse: Array) -> tuple[Array, Array, Array]:
        delta, gq = cupy.empty(of_delta, np.float32), cupy.empty(of_rows, kind)
        gk, gv = cupy.empty(of_keys, kind), cupy.empty(of_keys, kind)
        products(grids[0], (out.data.ptr, g.data.ptr, delta.data.ptr))
        read = (q.data.ptr, k.data.ptr, v.data.ptr, g.data.ptr, lse.data.ptr, delta.data.ptr)
        of_k(grids[1], (*read, gk.data.ptr, gv.data.ptr))
        of_q(grids[2], (*read, gq.data.ptr))
        return gq, gk, gv
    return call


def install(composites: dict[str, Any]) -> None:
    """Fill in the CUDA column of the attention operators."""
    composites["flash_attention"].kernels["cuda"] = forward
    composites["flash_attention_backward"].kernels["cuda"] = backward
