"""Rows sorted on a GPU: short ones by a block of threads each, in shared memory (Batcher 1968, "Sorting networks and their
applications"); of others CuPy sorts the places.

An element and its place make one number of 64 bits, whose upper half lies in the order of the elements (NaN above all, zeros alike),
so that equal elements stay in theirs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from ... import _C
from . import cubins
from .programs import Launch, places, program

Array = Any
LONGEST = 4096      # elements of a row: 32 KB of shared memory
THREADS = 1024

_FLOAT = "unsigned size = bits & {below}u; return size > {infinity}u ? 0x7fffffff : bits > {below}u ? -(int)size : (int)size;"
# by dtypes: the word that an element is, and the body of a function that gives its rank as an int
WORDS: dict[str, tuple[str, str]] = {
    "float32": ("unsigned", _FLOAT.format(below=0x7FFFFFFF, infinity=0x7F800000)),
    "float16": ("unsigned short", _FLOAT.format(below=0x7FFF, infinity=0x7C00)),
    "bfloat16": ("unsigned short", _FLOAT.format(below=0x7FFF, infinity=0x7F80)),
    "bool": ("unsigned char", "return bits;"), "uint8": ("unsigned char", "return bits;"), "int8": ("signed char", "return bits;"),
    "int16": ("short", "return bits;"), "uint16": ("unsigned short", "return bits;"), "int32": ("int", "return bits;"),
    "uint32": ("unsigned", "return (int)(bits ^ 0x80000000u);"),
}
_CODE = """
__device__ int rank(WORD bits) { RANK }

extern "C" __global__ void sort_rows(const WORD* x, WORD* values, long long* order, long long n, long long padded, long long kept,
                                     long long down) {
    __shared__ long long keys[LONGEST];
    x += blockIdx.x * n, values += blockIdx.x * kept, order += blockIdx.x * kept;
    for (int i = threadIdx.x; i < padded; i += blockDim.x)
        keys[i] = i < n ? (long long)(down ? ~rank(x[i]) : rank(x[i])) * 4294967296LL + i : 0x7fffffffffffffffLL;
    for (int size = 2; size <= padded; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int t = threadIdx.x; t < padded / 2; t += blockDim.x) {
                int a = 2 * t - (t & (step - 1)), b = a + step;
                long long first = keys[a], second = keys[b];
                if ((first > second) == ((a & size) == 0)) keys[a] = second, keys[b] = first;
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < kept; i += blockDim.x) {
        int at = (int)(keys[i] & 0xffffffffLL);
        order[i] = at, values[i] = x[at];
    }
}
"""


@functools.cache
def _kernel(name: str, threads: int, device: int) -> Any:
    """The kernel for a dtype, on the current GPU."""
    word, body = WORDS[name]
    code = _CODE.replace("LONGEST", str(LONGEST)).replace("RANK", body).replace("WORD", word)
    return cubins.launcher(cupy.RawKernel(code, "sort_rows").kernel, "pppllll", threads)


def _launch(x: Array, kept: int, descending: bool) -> tuple[Any, int, tuple[int, ...]]:
    """(the kernel for contiguous rows, its grid, its numbers)."""
    n = x.shape[-1]
    padded = max(2, 1 << (n - 1).bit_length())
    kernel = _kernel(x.dtype.name, min(THREADS, max(32, padded // 2)), cupy.cuda.runtime.getDevice())
    return kernel, math.prod(x.shape[:-1]), (n, padded, kept, int(descending))


def _are_short(x: Array, dim: int, kept: int) -> bool:
    return x.dtype.name in WORDS and x.size > 0 and kept > 0 and x.shape[dim] <= LONGEST


def rows(x: Array, dim: int, descending: bool, kept: int) -> tuple[Array, Array] | None:
    """(the first `kept` elements in order along `dim`, their places), contiguous; None where rows are long or elements wide."""
    if not x.ndim or not _are_short(x, dim, kept):
        return None
    lying = cupy.ascontiguousarray(cupy.moveaxis(x, dim, -1))
    values, order = (cupy.empty((*lying.shape[:-1], kept), kind) for kind in (x.dtype, np.int64))
    kernel, grid, numbers = _launch(lying, kept, descending)
    kernel(cubins.stream_pointer()(), grid, lying.data.ptr, values.data.ptr, order.data.ptr, *numbers)
    back = [cupy.ascontiguousarray(cupy.moveaxis(out, -1, dim)) for out in (values, order)]
    return back[0], back[1]


def rows_program(x: Array, dim: int, descending: bool, kept: int) -> _C.GpuProgram | None:
    """What such a call comes to where rows lie one after the other; None where they don't, or are sorted otherwise."""
    if not x.ndim or dim != x.ndim - 1 or not x._c_contiguous or not _are_short(x, dim, kept):
        return None
    kernel, grid, numbers = _launch(x, kept, descending)
    shape = (*x.shape[:-1], kept)
    return program(1, [(shape, x.dtype), (shape, np.dtype(np.int64))], [Launch(kernel, grid, (*places(3), *numbers))], several=True)


def sort_program(record: Any, args: Sequence[Any]) -> _C.GpuProgram | None:
    """Of the primitive `sort`."""
    tensor, dim, descending, _ = args
    x = tensor._data
    return rows_program(x, dim, descending, x.shape[dim] if x.ndim else 0)


def topk_program(record: Any, args: Sequence[Any]) -> _C.GpuProgram | None:
    """Of the primitive `topk`."""
    record.shape(*args)     # refuses what is wrong
    tensor, k, dim, largest, _ = args
    return rows_program(tensor._data, dim, largest, k)
