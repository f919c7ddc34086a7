"""Running sums and products of rows on a GPU: a block of threads for each row, a tile after the other (Merrill and Garland 2016,
"Single-pass parallel prefix scan"). Totals of float32 are kept in float64, as on the CPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import cupy

from ... import _C
from . import cubins
from .programs import Launch, places, program

Array = Any
THREADS = 256
FEW_ROWS, LONG = 32, 1 << 16    # few long rows leave most of the device idle
WORDS = {"float32": ("float", "double"), "float64": ("double", "double"), "int64": ("long long", "long long")}
COMBINE = {"cumsum": ("0", "+"), "cumprod": ("1", "*")}

_CODE = """
extern "C" __global__ void scan_rows(const WORD* x, WORD* out, long long n, long long backwards) {
    __shared__ TOTAL totals[THREADS / 32];
    x += blockIdx.x * n, out += blockIdx.x * n;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    TOTAL carry = NOTHING;
    for (long long start = 0; start < n; start += THREADS * 4) {
        TOTAL v[4], mine = NOTHING;
        long long first = start + threadIdx.x * 4;
        for (int k = 0; k < 4; k++) {
            long long i = first + k;
            mine = mine OP (i < n ? (TOTAL)x[backwards ? n - 1 - i : i] : (TOTAL)NOTHING);
            v[k] = mine;
        }
        for (int d = 1; d < 32; d *= 2) {
            TOTAL other = __shfl_up_sync(0xffffffffu, mine, d);
            if (lane >= d) mine = other OP mine;
        }
        if (lane == 31) totals[warp] = mine;
        __syncthreads();
        TOTAL before = carry, others = __shfl_up_sync(0xffffffffu, mine, 1);
        for (int w = 0; w < warp; w++) before = before OP totals[w];
        if (lane > 0) before = before OP others;
        for (int k = 0; k < 4; k++)
            if (first + k < n) out[backwards ? n - 1 - first - k : first + k] = (WORD)(before OP v[k]);
        for (int w = 0; w < THREADS / 32; w++) carry = carry OP totals[w];
        __syncthreads();
    }
}
"""


@functools.cache
def _kernel(name: str, kind: str, device: int) -> Any:
    """The kernel of `cumsum` or `cumprod` for a dtype, on the current GPU."""
    (word, total), (nothing, op) = WORDS[kind], COMBINE[name]
    code = _CODE
    for mark, text in (("THREADS", str(THREADS)), ("NOTHING", nothing), ("WORD", word), ("TOTAL", total), (" OP ", f" {op} ")):
        code = code.replace(mark, text)
    return cubins.launcher(cupy.RawKernel(code, "scan_rows").kernel, "ppll", THREADS)


def _suits(x: Array, dim: int) -> bool:
    if not x.ndim or x.dtype.name not in WORDS or not x.size:
        return False
    n = x.shape[dim]
    return n < LONG or x.size // n >= FEW_ROWS


def scanner(name: str, otherwise: Callable) -> Callable:
    """The kernel of the primitive; `otherwise` computes what its rows do not suit."""
    def kernel(x: Array, dim: int, reverse: bool = False) -> Array:
        if not _suits(x, dim):
            return otherwise(x, dim, reverse)
        lying = cupy.ascontiguousarray(cupy.moveaxis(x, dim, -1))
        out, n = cupy.empty(lying.shape, x.dtype), lying.shape[-1]
        launch = _kernel(name, x.dtype.name, cupy.cuda.runtime.getDevice())
        launch(cubins.stream_pointer()(), x.size // n, lying.data.ptr, out.data.ptr, n, int(reverse))
        return cupy.ascontiguousarray(cupy.moveaxis(out, -1, dim))
    return kernel


def scan_program(record: Any, args: Sequence[Any]) -> _C.GpuProgram | None:
    """What a call of the primitive comes to where rows lie one after the other; None where they don't, or do not suit."""
    x, dim, reverse = args[0]._data, args[1], bool(args[2]) if len(args) > 2 else False
    if not _suits(x, dim) or dim != x.ndim - 1 or not x._c_contiguous:
        return None
    kernel = _kernel(record.name, x.dtype.name, cupy.cuda.runtime.getDevice())
    launch = Launch(kernel, math.prod(x.shape[:-1]), (*places(2), x.shape[-1], int(reverse)))
    return program(1, [(x.shape, x.dtype)], [launch])
