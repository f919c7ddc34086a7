"""CuPy kernels for the primitives: the column "cuda" of the op table. Importing this module fills it in.

Pointwise primitives are their loop bodies read by CuPy; the others a library call each. Large arrays get generated kernels
(see `inductor`), which make one pass where these make several.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupyx.scipy import special

from ... import _C
from ...core.dtypes import DTYPES, INT, bool_, dtype, int32, uint64
from ...core.scalar import SCATTERED_BY, Fold, ScalarOp
from ...core.scalar import TABLE as SCALARS
from ...core.size import extent
from ..cpu.blas import grouped_mm
from ..cpu.conv import FROM_LAST, TO_LAST, is_channels_last
from . import blas, cubins, library, sorting, strays
from .programs import REMEMBERED, Launch, Place, program

Array = Any
_NARROW = frozenset(d.numpy for d in DTYPES.values() if d.is_floating_point and d.itemsize < 4)


def _to_integer(x: Array, kind: dtype) -> Array:
    """A float towards zero as an integer, defined for every float as in `flambeau/include/convert.h`."""
    bits = 31 if kind.itemsize < 4 or kind is int32 else 63
    word, limit = np.dtype(f"i{(bits + 1) // 8}"), 2.0 ** bits
    high = x >= limit if kind is uint64 else None
    x = x if high is None else cupy.where(high, x - limit, x)
    fits = (x >= -limit) & (x < limit)
    made = cupy.where(fits, cupy.where(fits, x, 0).astype(word), np.iinfo(word).min).astype(kind.numpy)
    return made if high is None else cupy.where(high, made ^ np.uint64(1 << 63), made)


def _distance(x: Any, n: Any) -> tuple[Any, Any]:
    """How far to shift `x`, and whether it can be shifted so far, both of one dtype: the machine takes the lowest bits of it alone."""
    n = x.dtype.type(n) if isinstance(n, int) else n
    return n, ((n >= 0) & (n < 8 * x.dtype.itemsize)).astype(n.dtype)


# -- the scalar operations, read by CuPy -------------------------------------------------------------------
class CupyScalars:
    """The loop-body handler that computes on CuPy arrays."""

    @staticmethod
    def constant(value: Any, kind: dtype) -> Any:
        return np.asarray(value).astype(kind.numpy)[()]

    @staticmethod
    def to_dtype(x: Any, kind: dtype) -> Any:
        if x.dtype.kind == "c" and not kind.is_complex and kind is not bool_:
            x = x.real.copy()
        if kind.category == INT and (x.dtype.kind == "f" or x.dtype in _NARROW):
            return _to_integer(_wide(x), kind)
        return x.astype(kind.numpy, copy=False)

    @staticmethod
    def bitcast(x: Any, kind: dtype) -> Any:
        return x.view(kind.numpy)

    @staticmethod
    def real(x: Any) -> Any:
        return x.real.copy()

    @staticmethod
    def imag(x: Any) -> Any:
        return x.imag.copy()

    @staticmethod
    def logical_not(x: Any) -> Any:
        return x == 0    # CuPy's knows no complex numbers

    @staticmethod
    def logical_and(x: Any, y: Any) -> Any:
        return (x != 0) & (y != 0)

    @staticmethod
    def logical_or(x: Any, y: Any) -> Any:
        return (x != 0) | (y != 0)

    @staticmethod
    def logical_xor(x: Any, y: Any) -> Any:
        return (x != 0) ^ (y != 0)

    @staticmethod
    def shl(x: Any, n: Any) -> Any:
        n, fits = _distance(x, n)
        return cupy.left_shift(x, n * fits) * fits

    @staticmethod
    def shr(x: Any, n: Any) -> Any:
        n, fits = _distance(x, n)
        return cupy.right_shift(x, n * fits + (1 - fits) * n.dtype.type(8 * x.dtype.itemsize - 1))

    @staticmethod
    def remainder(x: Any, y: Any) -> Any:
        if x.dtype.kind != "f":
            return cupy.remainder(x, y)
        rest = cupy.fmod(x, y)
        return cupy.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _reading(op: ScalarOp) -> Callable:
    """CuPy's function: the one with the name of NumPy's; what is made of several, NumPy hands on to CuPy one by one."""
    if op.cupy:
        real = getattr(special, op.cupy)
        return lambda *operands: (op.numpy if operands[0].dtype.kind == "c" else real)(*operands)
    return getattr(cupy, op.numpy.__name__) if isinstance(op.numpy, np.ufunc) else op.numpy


for _op in SCALARS.values():
    if not hasattr(CupyScalars, _op.name):
        setattr(CupyScalars, _op.name, staticmethod(_reading(_op)))
_HANDLER = CupyScalars()


def pointwise_kernel(loop: Callable) -> Callable:
    """A kernel that reads `loop` with CuPy; narrow floats compute in f32 and round once."""
    def kernel(*args: Any) -> Array:
        narrow = None
        wide = []
        for a in args:
            if isinstance(a, cupy.ndarray) and a.dtype in _NARROW:
                narrow = a.dtype
                a = a.astype(np.float32)
            wide.append(a)
        out = loop(_HANDLER, *wide)
        return out.astype(narrow) if narrow is not None and out.dtype == np.float32 else out
    return kernel


# -- reductions, scans, sorting ------------------------------------------------------------------------------
def _accumulator(x: Array) -> Any:
    return np.float32 if x.dtype in _NARROW else x.dtype


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype in _NARROW else x


def _folds(fold: Fold) -> Callable:
    """CuPy's fold of that name; what rounds on the way widens each element when it takes it in."""
    fn = getattr(cupy, fold.name)
    if fold.of_truths or fold.combine.exact:
        return lambda x, dims: fn(_wide(x), axis=tuple(dims)).astype(x.dtype, copy=False)
    return lambda x, dims: fn(x, axis=tuple(dims), dtype=_accumulator(x)).astype(x.dtype, copy=False)


def _argsort(x: Array, dim: int, descending: bool) -> Array:
    if (short := sorting.rows(x, dim, descending, x.shape[dim])) is not None:
        return short[1]
    keys = _wide(x)
    if not descending:
        return cupy.argsort(keys, axis=dim)
    return keys.shape[dim] - 1 - cupy.flip(cupy.argsort(cupy.flip(keys, dim), axis=dim), dim)


def _sort(x: Array, dim: int, descending: bool, stable: bool) -> tuple:
    if not x.ndim:
        return x.copy(), cupy.zeros((), np.int64)
    if (short := sorting.rows(x, dim, descending, x.shape[dim])) is not None:
        return short
    order = _argsort(x, dim, descending)
    return cupy.take_along_axis(x, order, dim), order.astype(np.int64)


def _topk(x: Array, k: int, dim: int, largest: bool, sorted_: bool) -> tuple:
    if (short := sorting.rows(x, dim, largest, k)) is not None:
        return short
    values, order = _sort(x, dim, largest, True)
    if not x.ndim:
        return values, order
    cut = tuple(slice(0, k) if d == dim else slice(None) for d in range(x.ndim))
    return cupy.ascontiguousarray(values[cut]), cupy.ascontiguousarray(order[cut])


def _nth(x: Array, place: Array, dim: int) -> Array:
    if not x.ndim:
        return cupy.zeros((), np.int64)
    order = cupy.take_along_axis(_argsort(x, dim, False), cupy.expand_dims(place, dim), dim)
    return cupy.squeeze(order, dim).astype(np.int64)


# -- indexing ------------------------------------------------------------------------------------------------
_NOTING = cupy.ElementwiseKernel(
    "T index, int64 size, int64 low, uint64 place", "int64 position",
    """long long given = (long long)index;
    bool fits = given >= low && given < size;
    if (!fits) { ((long long*)place)[0] = given; ((long long*)place)[1] = size + 1; }
    position = !fits ? 0 : given < 0 ? given + size : given;""", "flambeau_positions")


def _positions(name: str, index: Array, size: int, wraps: bool = False) -> Array:
    """`index` as places among so many elements, 0 for those out of range, which `strays` are told of; `wraps`: -1 is the last."""
    if not index.size:
        return index
    made = _NOTING(index, size, -size if wraps else 0, np.uint64(strays.place(name)))
    if not size:    # there is no element 0 to go on with
        cupy.cuda.get_current_stream().synchronize()
        strays.check()
    return made


def _advanced(name: str, x: Array, indices: Sequence) -> tuple:
    return tuple(slice(None) if i is None else _positions(name, i, n, True) for i, n in zip(indices, x.shape))


def _index_select(x: Array, dim: int, index: Array) -> Array:
    return cupy.take(x, _positions("index_select", index, x.shape[dim] if x.ndim else 1), axis=dim if x.ndim else None)


def _gather(x: Array, dim: int, index: Array) -> Array:
    index = _positions("gather", index, x.shape[dim] if x.ndim else 1)
    if not x.ndim or not index.ndim:
        return cupy.broadcast_to(x.reshape(-1)[0], index.shape).copy()
    crop = x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]
    return cupy.take_along_axis(crop, index, dim)


def _combining(name: str, expression: str) -> Any:
    """A kernel that sets `out` at positions, which may repeat, to an expression of what is there, a, and a value b. The atomic functions
    that there are know no product, no NaN and no float64: this compares and swaps until nobody came between."""
    return cupy.ElementwiseKernel(
        "T value, int64 position", "raw T out",
        f"""if (sizeof(T) == 4) flambeau_{name}_at<unsigned int>(&out[position], value);
        else flambeau_{name}_at<unsigned long long>(&out[position], value);""", f"flambeau_{name}",
        preamble=f"""template <typename Word, typename T> __device__ void flambeau_{name}_at(T* place, T b) {{
            Word seen = *(Word*)place, before;
            do {{
                before = seen;
                T a = *(T*)&before, made = {expression};
                seen = atomicCAS((Word*)place, before, *(Word*)&made);
            }} while (seen != before);
        }}""")


def _combine_at(kernel: Any) -> Callable:
    """`out[where] = kernel(out[where], values)` for contiguous `out`; positions may repeat."""
    def combine(out: Array, where: tuple, values: Array) -> None:
        if out.dtype.itemsize > 8 or out.dtype.kind == "c":
            raise NotImplementedError("products and extrema of complex numbers at places have no CUDA kernel; use the CPU")
        wide = out.astype(np.int64) if out.dtype.itemsize < 4 else out
        kernel(values.astype(wide.dtype), cupy.ravel_multi_index(where, wide.shape), wide)
        if wide is not out:
            out[...] = wide     # modulo the narrow type's size
    return combine


_SCATTERS: dict[str, Callable] = {
    name: _combine_at(_combining(fold.op, fold.meet)) if fold.meet else cupy.add.at for name, fold in SCATTERED_BY.items()}


def _meet_at(reduce: str, out: Array, where: tuple, src: Array) -> Array:
    """`out` with `src` taken in at places that may repeat, in a dtype that there are atomic operations for."""
    if out.dtype.kind == "c" and reduce == "add":
        real, imag = (_meet_at(reduce, cupy.ascontiguousarray(mine), where, theirs) for mine, theirs in
                      ((out.real, src.real), (out.imag, src.imag)))
        return (real + 1j * imag).astype(out.dtype, copy=False)
    kind = np.int32 if out.dtype.kind in "biu" and out.dtype.itemsize < 4 and reduce == "add" else out.dtype
    met = out.astype(kind, copy=False)
    _SCATTERS[reduce](met, where, src.astype(kind, copy=False))
    return met.astype(out.dtype, copy=False)


def _scatter(x: Array, dim: int, index: Array, src: Array, reduce: str) -> Array:
    out = _wide(x).copy(order="C")
    index = _positions("scatter", index, x.shape[dim] if x.ndim else 1)
    flat = out.reshape(1) if not x.ndim else out
    if not x.ndim:
        index, src = index.reshape(-1), src.reshape(-1)
    grids = cupy.ogrid[tuple(slice(n) for n in index.shape)]
    grids = grids if isinstance(grids, (list, tuple)) else [grids]
    where = tuple(index if d == dim else g for d, g in enumerate(grids))
    src = _wide(src[tuple(slice(n) for n in index.shape)])
    if reduce == "set":
        flat[where] = src
    elif reduce in _SCATTERS:
        out = _meet_at(reduce, flat, tuple(cupy.broadcast_to(w, index.shape) for w in where), src).reshape(x.shape)
    else:
        raise NotImplementedError(f"scatter with reduce={reduce!r} has no CUDA kernel; use 'sum', 'prod', 'amax' or 'amin', or the CPU")
    return out.astype(x.dtype, copy=False)


def _index_add(x: Array, dim: int, index: Array, src: Array) -> Array:
    out = _wide(x).copy()
    index = _positions("index_add", index, x.shape[dim])
    flat = src.reshape(src.shape[:dim] + (index.size,) + src.shape[dim + index.ndim:])
    return _meet_at("add", out, (slice(None),) * dim + (index.reshape(-1),), _wide(flat)).astype(x.dtype, copy=False)


def _index(x: Array, indices: Sequence) -> Array:
    found = cupy.ascontiguousarray(x[_advanced("index", x, indices)])
    if any(i is not None and i.ndim for i in indices):
        return found
    return found.reshape([n for d, n in enumerate(x.shape) if d >= len(indices) or indices[d] is None])   # numbers leave no dimension


def _nonzero(x: Array) -> Array:
    if not x.ndim:
        return cupy.zeros((int(x != 0), 0), np.int64)
    return cupy.stack(cupy.nonzero(x)).astype(np.int64, copy=False).T     # a dimension's indices side by side, as on the CPU


def _index_put(x: Array, indices: Sequence, values: Array, accumulate: bool) -> Array:
    out = _wide(x).copy() if accumulate else x.copy()
    if accumulate:
        return _meet_at("add", out, _advanced("index_put", x, indices), _wide(values)).astype(x.dtype, copy=False)
    out[_advanced("index_put", x, indices)] = values
    return out


def _pad(x: Array, low: Sequence[int], high: Sequence[int], inner: Sequence[int]) -> Array:
    if is_channels_last(x):
        last = TO_LAST[x.ndim]
        moved = ([sizes[d] for d in last] for sizes in (low, high, inner))
        return _pad(x.transpose(last), *moved).transpose(FROM_LAST[x.ndim])
    shape = [lo + n + hi + max(n - 1, 0) * gap for n, lo, hi, gap in zip(x.shape, low, high, inner)]
    out = cupy.zeros(shape, x.dtype)
    source = [slice(max(-lo, 0) if not gap else 0, n - max(-hi, 0)) for n, lo, hi, gap in zip(x.shape, low, high, inner)]
    target = [slice(max(lo, 0), size - max(hi, 0), gap + 1) for size, lo, hi, gap in zip(shape, low, high, inner)]
    out[tuple(target)] = x[tuple(source)]
    return out


def _cat(arrays: Sequence[Array], dim: int) -> Array:
    rank = arrays[0].ndim
    if all(map(is_channels_last, arrays)):
        last = TO_LAST[rank]
        return cupy.concatenate([a.transpose(last) for a in arrays], axis=last.index(dim)).transpose(FROM_LAST[rank])
    return cupy.concatenate(arrays, axis=dim)


def _keeps_rows(x: Array, format: Any) -> bool:
    return type(format) is not tuple and x.flags.c_contiguous and format.rank is None


def _copied(target: int, source: int, size: int) -> None:
    cupy.cuda.runtime.memcpyAsync(target, source, size, cupy.cuda.runtime.memcpyDeviceToDevice, cupy.cuda.get_current_stream().ptr)


def _clone_program(generated: Callable, prim: Any, args: Sequence[Any]) -> _C.GpuProgram | None:
    """A copy of rows by the driver, of anything else by a kernel."""
    x, format = args[0]._data, args[1]
    if not _keeps_rows(x, format) or not x.size:
        return generated(prim, args)
    return program(1, [(x.shape, x.dtype)], [Launch(_copied, 0, (Place(False, 1), Place(False, 0), x.nbytes))])


def _clone(x: Array, format: Any) -> Array:
    if type(format) is tuple:
        return cupy.array(x.transpose(format), order="C", copy=True).transpose(tuple(np.argsort(format)))
    if _keeps_rows(x, format):
        out = cupy.empty(x.shape, x.dtype)
        out.data.copy_from_device_async(x.data, x.nbytes, cupy.cuda.get_current_stream())
        return out
    strides = format.strides(x.shape) if format.name != "preserve_format" else None
    if strides is None:
        return cupy.array(x, order="C" if format.name == "contiguous_format" else "K", copy=True)
    order = (0, *range(2, x.ndim), 1)
    dense = cupy.array(x.transpose(order), order="C", copy=True)
    return dense.transpose((0, x.ndim - 1, *range(1, x.ndim - 1)))


# -- random numbers ------------------------------------------------------------------------------------------
_PHILOX = (Path(__file__).parents[2] / "include" / "philox_rounds.h").read_text() + r"""
__device__ unsigned int philox_word(unsigned long long seed, unsigned long long block, int lane) {
    unsigned int c0 = block, c1 = block >> 32, c2 = 0, c3 = 0;
    philox_rounds(c0, c1, c2, c3, seed, seed >> 32);
    return lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3;
}
__device__ unsigned int bits32(unsigned long long seed, unsigned long long start, long long i) {
    return philox_word(seed, start + i / 4, i % 4);
}
__device__ unsigned long long bits64(unsigned long long seed, unsigned long long start, long long i) {
    int lane = i % 2 * 2;
    return philox_word(seed, start + i / 2, lane) | (unsigned long long)philox_word(seed, start + i / 2, lane + 1) << 32;
}
"""


_THREADS = 256


class Draw:
    """A kernel that fills an array from a stream of random numbers: `body` sets `out`, the element `i`, by the state, an increment and
    further int64 `numbers`."""

    def __init__(self, name: str, result: str, body: str, numbers: Sequence[str] = ()):
        names = ["increment", *numbers, "n"]
        self.kinds = "p" + "l" * len(names[:-1]) + "pl"
        self.code = f"""{_PHILOX}
extern "C" __global__ void {name}(const long long* state, {"".join(f"long long {n}, " for n in names[:-1])}{result}* filled, long long n) {{
    long long i = blockIdx.x * {_THREADS}LL + threadIdx.x;
    if (i >= n) return;
    {result} out;
    {body}
    filled[i] = out;
}}"""
        self.kernel = cupy.RawKernel(self.code, name)
        self.loaded: dict[int, Any] = {}    # by devices

    def launch(self) -> Any:
        """It as programs take kernels, on the current GPU."""
        where = cupy.cuda.runtime.getDevice()
        if where not in self.loaded:
            self.loaded[where] = cubins.launcher(self.kernel.kernel, self.kinds, _THREADS)
        return self.loaded[where]

    def __call__(self, state: Array, numbers: Sequence[int], out: Array) -> Array:
        if out.size:
            self.launch()(cupy.cuda.get_current_stream().ptr, blocks_of(out.size), state.data.ptr, *numbers, out.data.ptr, out.size)
        return out


def blocks_of(count: int) -> int:
    """Blocks of threads for so many elements."""
    return -(-count // _THREADS)


_SEED = "unsigned long long seed = state[0], start = state[1] + increment;"
_UNIFORM = {
    4: Draw("philox_uniform_f32", "float", _SEED + "out = (bits32(seed, start, i) >> 8) * 0x1p-24f;"),
    8: Draw("philox_uniform_f64", "double", _SEED + "out = (bits64(seed, start, i) >> 11) * 0x1p-53;"),
}
_NORMAL = {
    4: Draw("philox_normal_f32", "float", _SEED + """
        long long even = i / 2 * 2;
        float u = (float)((bits32(seed, start, even) + 0.5) * 0x1p-32), v = (bits32(seed, start, even + 1) >> 8) * 0x1p-24f;
        float radius = sqrtf(-2.0f * logf(u));
        out = radius * (i % 2 ? sinpif(2.0f * v) : cospif(2.0f * v));"""),
    8: Draw("philox_normal_f64", "double", _SEED + """
        long long even = i / 2 * 2;
        double u = ((bits64(seed, start, even) >> 11) + 0.5) * 0x1p-53, v = (bits64(seed, start, even + 1) >> 11) * 0x1p-53;
        double radius = sqrt(-2.0 * log(u));
        out = radius * (i % 2 ? sinpi(2.0 * v) : cospi(2.0 * v));"""),
}
_INTEGERS = Draw("philox_integers", "long long", _SEED + "out = (long long)(bits64(seed, start, i) % (unsigned long long)span) + low;",
                 ("low", "span"))


def _random(table: dict) -> Callable:
    def kernel(state: Array, increment: int, shape: Sequence[int], kind: dtype) -> Array:
        size = 8 if kind.itemsize == 8 else 4
        return table[size](state, (increment,), cupy.empty(tuple(shape), f"f{size}")).astype(kind.numpy, copy=False)
    return kernel


def _integers(state: Array, increment: int, shape: Sequence[int], low: int, high: int) -> Array:
    return _INTEGERS(state, (increment, low, high - low), cupy.empty(tuple(shape), np.int64))


def _draw_program(table: dict, args: Sequence[Any]) -> _C.GpuProgram | None:
    """A draw of floats, whose increment varies from call to call."""
    _, increment, shape, kind = args
    if kind.numpy not in (np.float32, np.float64) or 0 in shape or type(increment) is not int:
        return None
    count = math.prod(shape)
    launch = Launch(table[kind.itemsize].launch(), blocks_of(count), (Place(False, 0), Place(True, 1), Place(False, 1), count))
    return program(1, [(tuple(shape), kind.numpy)], [launch])


# -- moving bits ---------------------------------------------------------------------------------------------
_WORDS = {1: np.uint8, 2: np.uint16}


def _by_bits(kernel: Callable) -> Callable:
    """A kernel that only moves elements, on any dtype: those that CuPy's kernels do not know travel as unsigned words."""
    def view(a: Any, kind: Any) -> Any:
        if isinstance(a, (list, tuple)):
            return type(a)(view(item, kind) for item in a)
        return a.view(kind) if isinstance(a, cupy.ndarray) and a.dtype in _NARROW and a.dtype != np.float16 else a

    def moved(*args: Any) -> Array:
        first = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
        if first.dtype not in _NARROW or first.dtype == np.float16:
            return kernel(*args)
        return kernel(*(view(a, _WORDS[first.dtype.itemsize]) for a in args)).view(first.dtype)
    return moved


# -- the column ----------------------------------------------------------------------------------------------
def _on(where: Any) -> Any:
    return cupy.cuda.Device(where.index or 0)


def _full(shape: Sequence[int], value: Any, kind: dtype, where: Any) -> Array:
    with _on(where):
        if not any(np.asarray(value).astype(kind.numpy).tobytes()):     # memory can be cleared faster than it is written
            return cupy.zeros(tuple(shape), kind.numpy)
        return cupy.full(tuple(shape), value, kind.numpy)


def _empty(shape: Sequence[int], kind: dtype, where: Any) -> Array:
    with _on(where):
        return cupy.empty(tuple(shape), kind.numpy)


def _empty_strided(shape: Sequence[int], strides: Sequence[int], kind: dtype, where: Any) -> Array:
    size = kind.itemsize
    with _on(where):
        memory = cupy.empty(extent(shape, strides) * size, np.uint8)
    return cupy.ndarray(tuple(shape), kind.numpy, memory.data, strides=tuple(s * size for s in strides))


def _iota(n: int, start: Any, step: Any, kind: dtype, where: Any) -> Array:
    with _on(where):
        return (cupy.arange(n) * step + start).astype(kind.numpy)


def _scan(fn: Callable) -> Callable:
    def kernel(x: Array, dim: int, reverse: bool = False) -> Array:
        if not x.ndim:
            return x.copy()
        out = fn(cupy.flip(x, dim) if reverse else x, axis=dim, dtype=_accumulator(x)).astype(x.dtype)
        return cupy.flip(out, dim).copy() if reverse else out
    return kernel


TABLE: dict[str, Callable] = {
    "argmax": lambda x, dim: cupy.argmax(_wide(x), axis=dim).astype(np.int64),
    "argmin": lambda x, dim: cupy.argmin(_wide(x), axis=dim).astype(np.int64),
    "cumsum": _scan(cupy.cumsum), "cumprod": _scan(cupy.cumprod),
    "sort": _sort, "topk": _topk, "nth": _nth,
    "cat": _by_bits(_cat), "flip": _by_bits(lambda x, dims: cupy.flip(x, dims).copy()),
    "gather": _by_bits(_gather), "scatter": _scatter, "scatter_reduce": _scatter, "index_select": _by_bits(_index_select),
    "index_add": _index_add, "index": _by_bits(_index), "index_put": _index_put,
    "nonzero": _nonzero, "pad_zeros": _by_bits(_pad), "clone": _by_bits(_clone),
    "convert": lambda x, kind: CupyScalars.to_dtype(x, kind) if x.dtype != kind.numpy else x.copy(),
    "mm": blas.mm, "bmm": blas.mm,
    "grouped_mm": lambda a, b, ends: grouped_mm(a, b, cupy.asnumpy(ends), blas.mm, cupy.empty),
    "full": _full, "empty": _empty, "empty_strided": _empty_strided, "iota": _iota,
    "philox_uniform": _random(_UNIFORM), "philox_normal": _random(_NORMAL), "philox_integers": _integers,
}


def _as_it_is(kernel: Callable) -> Callable:
    return kernel


def install(primitives: dict[str, Any], movers: dict[tuple[str, str], Callable], arrays: Any) -> None:
    """Fill in the column "cuda" of the op table and the copies between memories."""
    for name, prim in primitives.items():
        host = prim.kernels.get("cpu")
        if name in TABLE:
            prim.kernels["cuda"] = TABLE[name]
        elif prim.fold:
            prim.kernels["cuda"] = _folds(prim.fold)
        elif name in library.TABLE:
            prim.kernels["cuda"] = getattr(host, "failing_alike", _as_it_is)(library.TABLE[name])
        elif prim.kind == "pointwise":
            prim.kernels["cuda"] = pointwise_kernel(prim.loop)
        elif prim.kind == "general" and "custom" not in prim.tags and host is not None:
            prim.kernels["cuda"] = library.on_host(host)
    for name in ("mm", "bmm"):
        primitives[name].eager.gpu = _C.GpuPrograms(functools.partial(blas.product_program, primitives[name]), REMEMBERED)
    for name, write in (("sort", sorting.sort_program), ("topk", sorting.topk_program)):
        primitives[name].eager.gpu = _C.GpuPrograms(functools.partial(write, primitives[name]), REMEMBERED)
    for name, table in (("philox_uniform", _UNIFORM), ("philox_normal", _NORMAL)):
        primitives[name].eager.gpu = _C.GpuPrograms(functools.partial(_draw_program, table), REMEMBERED, 1 << 1)
    movers["cpu", "cuda"], movers["others", "cuda"] = arrays.to_gpu, arrays.of_others
    movers["cuda", "cpu"] = arrays.to_host
    movers["cuda", "cuda"] = arrays.between_gpus
    movers["cpu", "pinned"], movers["pinned", "cpu"] = arrays.pin, arrays.is_pinned


def prefer_generated(primitives: dict[str, Any], composites: dict[str, Any], generated: Callable) -> None:
    """Ask for generated kernels first: of primitives that are loops, and of operators that are several of them."""
    whole = [p for p in primitives.values() if p.kind in ("pointwise", "general") and p.loop is not None and "random" not in p.tags]
    for record in (*whole, *[c for c in composites.values() if c.fused and "cuda" not in c.kernels]):
        record.eager.gpu = _C.GpuPrograms(functools.partial(generated, record), REMEMBERED)
    primitives["clone"].eager.gpu = _C.GpuPrograms(functools.partial(_clone_program, generated, primitives["clone"]), REMEMBERED)
