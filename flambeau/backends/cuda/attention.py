"""Attention on the GPU by the kernels of `attention_kernels.py`: forward and backward, for arrays."""

from __future__ import annotations

import math
import types
from collections.abc import Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np

from ... import _C
from . import attention_kernels as kernels
from . import matmul
from .cubins import Kernel, stream_pointer
from .programs import REMEMBERED, Launch, Place, places, program

Array = Any
DTYPES = ("bfloat16", "float16", "float32")     # the last with operands rounded to TF32
FEW = 132                           # programs that leave multiprocessors idle
SMALLEST, LARGEST = 16, 128         # head dimensions
_forward, _products = Kernel(kernels.forward), Kernel(kernels.products)
_current_stream = stream_pointer()
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
    return constants, {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}


def _factor(scale: float) -> np.float32:
    return np.float32(scale * math.log2(math.e))


def _forward_launch(q: Array, k: Array, v: Array, is_causal: bool, scale: float) -> tuple[list[tuple], Any, int, tuple]:
    """(shapes and dtypes of the results, the kernel, its grid, its numbers)."""
    batch, heads, rows, e = q.shape
    results = [((batch, rows, heads, e), q.dtype), ((batch, heads, rows), np.dtype(np.float32))]
    few = -(-rows // 128) * batch * heads < FEW
    constants, options = _tiles(q, "forward_few" if few and e <= 64 and q.dtype != np.float32 else "forward")
    kernel, numbers = _forward.prepared(
        (q, k, v, *[_Aligned(kind) for _, kind in results], *_strides(q), *_strides(k), *_strides(v), heads, heads // k.shape[1], rows,
         k.shape[2], _factor(scale)),
        {**constants, "CAUSAL": bool(is_causal), "PRECISION": "tf32"}, **options)
    return results, kernel, -(-rows // constants["M"]) * batch * heads, numbers


def forward(q: Array, k: Array, v: Array, is_causal: bool, scale: float) -> Any:
    """(out (batch, rows, heads, E), log of the sums (batch, heads, rows) in f32), or NotImplemented."""
    if not supported(q, k, v):
        return NotImplemented
    q, k, v = _inner(q), _inner(k), _inner(v)
    results, kernel, grid, numbers = _forward_launch(q, k, v, is_causal, scale)
    out, lse = (cupy.empty(shape, kind) for shape, kind in results)
    kernel(_current_stream(), grid, *[a.data.ptr for a in (q, k, v, out, lse)], *numbers)
    return out, lse


def _forward_program(args: Sequence[Any]) -> _C.GpuProgram | None:
    """What such calls come to; None where operands are copied first, or where it depends on a setting."""
    q, k, v = [t._data for t in args[:3]]
    if not supported(q, k, v) or q.dtype == np.float32 or any(_inner(x) is not x for x in (q, k, v)):
        return None
    results, kernel, grid, numbers = _forward_launch(q, k, v, *args[3:])
    return program(3, results, [Launch(kernel, grid, (*places(5), *numbers))], True)


def _backward_launches(g: Array, q: Array, k: Array, v: Array, is_causal: bool, scale: float) -> tuple[list[tuple], list[tuple]]:
    """(shapes and dtypes of the results and of the temporary, (kernel, grid, arrays, numbers) of each launch).

    The arrays are numbered: g, q, k, v, out, lse, the gradients of q, k and v, then the products of g and out.
    """
    batch, heads, rows, e = q.shape
    key_heads, columns = k.shape[1:3]
    kind, single = q.dtype, np.dtype(np.float32)
    made = [((batch, rows, heads, e), kind), *[((batch, columns, key_heads, e), kind)] * 2, ((batch, heads, rows), single)]
    like, narrow = _Aligned(kind), _Aligned(single)
    tile = {"E": e, "D": 1 << (e - 1).bit_length(), "M": 64}
    numbers = (*_strides(q), *_strides(k), *_strides(v), *_strides(g), heads, heads // key_heads, rows, columns, _factor(scale),
               np.float32(scale))
    more = {"CAUSAL": bool(is_causal), "PRECISION": "tf32"}
    (for_keys, of_keys), (for_rows, of_rows) = _tiles(q, "keys"), _tiles(q, "rows")
    launches = [
        (_products.prepared((like, g, narrow, *_strides(g), heads, rows), tile, num_warps=4), -(-rows // 64) * batch * heads, (4, 0, 9)),
        (_backward_keys.prepared((q, k, v, g, narrow, narrow, like, like, *numbers), {**for_keys, **more}, **of_keys),
         -(-columns // for_keys["N"]) * batch * key_heads, (1, 2, 3, 0, 5, 9, 7, 8)),
        (_backward_rows.prepared((q, k, v, g, narrow, narrow, like, *numbers), {**for_rows, **more}, **of_rows),
         -(-rows // for_rows["M"]) * batch * heads, (1, 2, 3, 0, 5, 9, 6)),
    ]
    return made, [(kernel, grid, arrays, given) for (kernel, given), grid, arrays in launches]


def backward(g: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, is_causal: bool, scale: float) -> Any:
    """Gradients of q, k and v, laid out as (batch, rows, heads, E); or NotImplemented. `g` and `out` are (batch, rows, heads, E)."""
    if not supported(q, k, v):
        return NotImplemented
    q, k, v, g = _inner(q), _inner(k), _inner(v), _inner(g)
    made, launches = _backward_launches(g, q, k, v, is_causal, scale)
    arrays = [g, q, k, v, cupy.ascontiguousarray(out), lse, *[cupy.empty(shape, kind) for shape, kind in made]]
    for kernel, grid, which, numbers in launches:
        kernel(_current_stream(), grid, *[arrays[n].data.ptr for n in which], *numbers)
    return tuple(arrays[6:9])


def _backward_program(args: Sequence[Any]) -> _C.GpuProgram | None:
    """What such calls come to; None where operands are copied first, or where it depends on a setting."""
    g, q, k, v, out, lse = [t._data for t in args[:6]]
    if not supported(q, k, v) or q.dtype == np.float32 or any(_inner(x) is not x for x in (q, k, v, g)):
        return None
    if not out._c_contiguous or not lse._c_contiguous or any(x.data.ptr % 16 for x in (out, lse)):
        return None
    made, launches = _backward_launches(g, q, k, v, *args[6:])
    steps = [Launch(kernel, grid, (*[Place(False, n) for n in which], *numbers)) for kernel, grid, which, numbers in launches]
    return program(6, made[:3], steps, True, made[3:])


class _Aligned(NamedTuple):
    """What a kernel is compiled for: elements of a dtype at an aligned address."""

    dtype: Any
    data: Any = types.SimpleNamespace(ptr=0)


def install(composites: dict[str, Any]) -> None:
    """Fill in the CUDA column of the attention operators."""
    composites["flash_attention"].kernels["cuda"] = forward
    composites["flash_attention_backward"].kernels["cuda"] = backward
    composites["flash_attention"].eager.gpu = _C.GpuPrograms(_forward_program, REMEMBERED)
    composites["flash_attention_backward"].eager.gpu = _C.GpuPrograms(_backward_program, REMEMBERED)
