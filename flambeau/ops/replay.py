"""Operators on small tensors: the scalar operations that a body comes to, written down once and replayed natively.

An operator like softmax is ten primitives; on a small tensor their calls cost a hundred times their arithmetic. The first
call with certain dtypes, layouts and other arguments runs the body on fake tensors and writes down what it computes: scalar
operations and reductions over strided buffers. Later calls run that program (csrc/replay.cpp) in one go. A body that does
something else (a scan, a sort, complex numbers) is left as it is. Large tensors have generated kernels: inductor/operators.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau import _C

from ..core import dispatch
from ..core.dtypes import BOOL, bool_, dtype, int64
from ..core.scalar import TABLE, compute_dtype, result_dtype
from ..core.size import contiguous_strides, plain_numbers
from ..core.tensor import Tensor, fake

SMALL = 1 << 14    # elements of a tensor; beyond, inductor/operators.py
WIDEST = 1 << 18   # elements of what lies between; a loop over all of it at once is worth compiling
PROGRAMS = 1 << 7  # kept for one operator; then it is forgotten what they were

KINDS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")  # as in csrc/kinds.h
_KIND = {name: code for code, name in enumerate(KINDS)}
_ALIGNMENT = 64


class Unsupported(Exception):
    """The body does something that a program has no step for."""


class Memory:
    """Memory of a program. `base`: its number among the inputs and outputs, then scratch memory and constants."""

    __slots__ = ("base", "nbytes", "offset", "region")

    def __init__(self, nbytes: int, region: str, base: int = 0, offset: int = 0):
        self.nbytes, self.region, self.base, self.offset = nbytes, region, base, offset


class Elements:
    """Elements of `kind` in a buffer; offset and strides in elements."""

    __slots__ = ("buffer", "kind", "offset", "strides")

    def __init__(self, buffer: Memory, kind: dtype, strides: Sequence[int], offset: int = 0):
        self.buffer, self.kind, self.strides, self.offset = buffer, kind, tuple(strides), offset


class ProgramWriter:
    """The dispatch mode that writes a program down, and the handler that bodies of pointwise primitives are read with."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, dtype, tuple, list[Elements], tuple[int, int]]] = []
        self.buffers: list[Memory] = []
        self.constants = bytearray()
        self.owners: dict[int, tuple[Any, Memory]] = {}  # id of a storage -> (the storage, its buffer)
        self.shape: tuple = ()  # of the primitive whose body is being read

    # -- memory
    def own(self, tensor: Tensor, buffer: Memory) -> None:
        """`buffer` is the memory of a fake tensor."""
        self.owners[id(tensor._storage)] = tensor._storage, buffer

    def value(self, tensor: Tensor) -> Elements:
        """A fake tensor's elements."""
        found = self.owners.get(id(tensor._storage))
        if found is None:
            raise Unsupported("a tensor from outside")
        lay = tensor._layout
        return Elements(found[1], tensor.dtype, lay.strides, lay.offset)

    def scratch(self, kind: dtype, shape: Sequence[int]) -> Elements:
        """Fresh memory for elements of this shape."""
        size = int(np.prod(shape, dtype=np.int64))
        if size > WIDEST:
            raise Unsupported("much larger tensors in between")
        buffer = Memory(size * kind.itemsize, "scratch")
        self.buffers.append(buffer)
        return Elements(buffer, kind, contiguous_strides(shape))

    def constant_array(self, array: np.ndarray, kind: dtype, strides: Sequence[int]) -> Elements:
        """Elements that are part of the program."""
        self.constants.extend(b"\0" * (-len(self.constants) % _ALIGNMENT))
        buffer = Memory(array.nbytes, "constants", 0, len(self.constants))
        self.constants.extend(array.tobytes())
        self.buffers.append(buffer)
        return Elements(buffer, kind, strides)

    def number(self, number: Any, kind: dtype, rank: int) -> Elements:
        """A number as an element of `kind`, repeated."""
        with np.errstate(over="ignore"):
            return self.constant_array(np.asarray(number).astype(kind.numpy), kind, (0,) * rank)

    # -- steps
    def step(self, operation: str, kind: dtype, shape: tuple, values: list[Elements], along: tuple[int, int] = (0, 0)) -> None:
        """Note a step; its result stands first."""
        if any(v.kind.name not in _KIND for v in values):
            raise Unsupported(f"{values[0].kind} has no native loops")
        self.steps.append((operation, kind, shape, values, along))

    def converted(self, value: Elements, kind: dtype, shape: tuple) -> Elements:
        """`value` as another dtype."""
        if value.kind is kind:
            return value
        made = self.scratch(kind, shape)
        self.step("convert", value.kind, shape, [made, value])
        return made

    def store(self, out: Elements, value: Elements, shape: tuple) -> None:
        """Put `value` where `out` says: by the step that makes it, if that was the last one."""
        if self.steps and value.buffer.region == "scratch" and value.kind is out.kind and self.steps[-1][3][0] is value:
            self.steps[-1][3][0] = out
            self.buffers.remove(value.buffer)
        else:
            self.step("convert", value.kind, shape, [out, value])

    # -- primitives
    def handle(self, prim: Any, args: tuple) -> Any:
        """Called by dispatch for every primitive that the body calls."""
        if prim.kind == "operator":
            with dispatch.push_mode(self):
                return prim.fn(*args)
        out = prim.run(args)
        if prim.kind == "view":
            return out
        write = _WRITERS.get(prim.name) or (
            _pointwise if prim.kind == "pointwise" else _fold if prim.fold else None)
        if write is None or not isinstance(out, Tensor):
            raise Unsupported(prim.name)
        buffer = Memory(out.numel() * out.dtype.itemsize, "scratch")
        self.buffers.append(buffer)
        self.own(out, buffer)
        write(self, prim, args, out, self.value(out))
        return out

    # -- the scalar operations, as in core/scalar.py
    def operation(self, name: str, *operands: Any) -> Elements:
        """One scalar operation on values and numbers."""
        own = next((v.kind for v in operands[name == "where":] if isinstance(v, Elements)), None)
        if own is None:
            raise Unsupported(f"{name} of numbers alone")
        rank = len(self.shape)
        values = [v if isinstance(v, Elements) else self.number(v, own, rank) for v in operands]
        made = self.scratch(result_dtype(TABLE[name], [v.kind for v in values]), self.shape)
        self.step(name, own, self.shape, [made, *values])
        return made

    def __getattr__(self, name: str) -> Callable[..., Elements]:
        if name not in TABLE:
            raise AttributeError(name)
        return lambda *operands: self.operation(name, *operands)

    def constant(self, value: Any, kind: dtype) -> Elements:
        return self.number(value, kind, len(self.shape))

    def to_dtype(self, x: Elements, kind: dtype) -> Elements:
        return self.converted(x, kind, self.shape)

    def bitcast(self, x: Elements, kind: dtype) -> Elements:
        raise Unsupported("bitcast")

    # -- the end
    def program(self, args: tuple, results: tuple, several: bool) -> Any:
        """The native program with these results."""
        inputs, outputs = len(_tensors_of(args)), []
        taken: set[int] = set()
        for i, result in enumerate(results):
            found = self.value(result)
            lay = result._layout
            whole = found.buffer.nbytes == result.numel() * result.dtype.itemsize and result._view is None
            if found.buffer.region != "scratch" or not whole or id(found.buffer) in taken:
                buffer = Memory(0, "outputs")
                self.step("convert", found.kind, lay.shape, [Elements(buffer, found.kind, contiguous_strides(lay.shape)), found])
                strides = None
            else:
                buffer, strides = found.buffer, lay.strides
                buffer.region = "outputs"
            taken.add(id(buffer))
            buffer.base = inputs + i
            size = result.dtype.itemsize
            if strides is not None:
                strides = None if strides == contiguous_strides(lay.shape) else tuple([s * size for s in strides])
            outputs.append((result.dtype.numpy, lay.shape, strides))
        scratch = 0
        for buffer in self.buffers:
            if buffer.region == "scratch":
                buffer.base, buffer.offset = inputs + len(outputs), scratch
                scratch += -(-buffer.nbytes // _ALIGNMENT) * _ALIGNMENT
            elif buffer.region == "constants":
                buffer.base = inputs + len(outputs) + 1
        steps = tuple([_native(step) for step in self.steps])
        return _C.Replay(inputs, tuple(outputs), steps, bytes(self.constants), scratch, several)


def _native(step: tuple) -> tuple:
    operation, kind, shape, values, along = step
    places = []
    for v in values:
        size = v.kind.itemsize
        places.append((v.buffer.base, v.buffer.offset + v.offset * size, tuple([s * size for s in v.strides])))
    return operation, _KIND[kind.name], _KIND[values[0].kind.name], tuple(shape), tuple(places), *along


# -- how the kinds of primitive are written down: (recorder, primitive, arguments, result, where it goes) ---------------------
def _pointwise(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    r.shape = shape = tuple(out._layout.shape)
    operands = []
    for a in args:
        if isinstance(a, Tensor):
            value = r.value(a)
            a = r.converted(value, compute_dtype(value.kind), shape)
        operands.append(a)
    result = prim.loop(r, *operands)
    if not isinstance(result, Elements):
        result = r.number(result, compute_dtype(out.dtype), len(shape))
    r.store(place, result, shape)


def _fold(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    x, dims = args
    shape, value = tuple(x._layout.shape), r.value(x)
    kind, fold = compute_dtype(value.kind), prim.fold
    if (kind is bool_) != fold.of_truths:
        raise Unsupported(f"{fold.name} of {kind}")
    value = r.converted(value, kind, shape)
    wide = fold.total(kind)
    total = place if wide is out.dtype else r.scratch(wide, out._layout.shape)
    rest = tuple(out._layout.shape)
    r.step("convert", wide, rest, [total, r.number(fold.nothing(kind), wide, len(rest))])
    strides = iter(total.strides)
    spread = [0 if d in dims else next(strides) for d in range(len(shape))]
    r.step(prim.loop, kind, shape, [Elements(total.buffer, wide, spread, total.offset), value])
    if total is not place:
        r.step("convert", wide, rest, [place, total])


def _gather(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    x, dim, index = args
    value, at = r.value(x), r.value(index)
    if at.kind is not int64 or not x.ndim:
        raise Unsupported("an index that is not int64, or into a number")
    fixed = [0 if d == dim else s for d, s in enumerate(value.strides)]
    source = Elements(value.buffer, value.kind, fixed, value.offset)
    along = (x._layout.shape[dim], value.strides[dim] * value.kind.itemsize)
    r.step("gather", value.kind, tuple(out._layout.shape), [place, source, at], along)


def _index(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    """One index tensor, whose negative numbers count from the end."""
    x, indices = args
    given = [d for d, index in enumerate(indices) if index is not None]
    if len(given) != 1:
        raise Unsupported("several index tensors")
    _index_select(r, prim, (x, given[0], indices[given[0]]), out, place, "index")


def _index_select(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements, operation: str = "gather") -> None:
    x, dim, index = args
    value, at, rank = r.value(x), r.value(index), index.ndim
    if at.kind is not int64 or not x.ndim:
        raise Unsupported("an index that is not int64, or into a number")
    after = x.ndim - dim - 1
    source = Elements(value.buffer, value.kind, (*value.strides[:dim], *(0,) * rank, *value.strides[dim + 1:]), value.offset)
    which = Elements(at.buffer, at.kind, (*(0,) * dim, *at.strides, *(0,) * after), at.offset)
    along = (x._layout.shape[dim], value.strides[dim] * value.kind.itemsize)
    r.step(operation, value.kind, tuple(out._layout.shape), [place, source, which], along)


def _scattered(r: ProgramWriter, x: Tensor, dim: int, index: Elements, src: Elements, shape: tuple, place: Elements, out: Tensor,
               operation: str) -> None:
    """A copy of `x` into which `src` goes, element by element in rows' order: each to where `index`, both over `shape`, says along `dim`."""
    if operation.endswith("add") and (x.dtype.category == BOOL or x.dtype.itemsize < 4):
        raise Unsupported("sums of narrow numbers, which are kept wide")
    r.step("convert", out.dtype, tuple(out._layout.shape), [place, r.value(x)])
    along = (x._layout.shape[dim], place.strides[dim] * place.kind.itemsize)
    rank = len(shape) - x.ndim + 1      # of the index
    fixed = Elements(place.buffer, place.kind, (*place.strides[:dim], *(0,) * rank, *place.strides[dim + 1:]), place.offset)
    r.step(operation, place.kind, shape, [fixed, src, index], along)


def _scatter(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    x, dim, index, src, reduce = args
    at, value = r.value(index), r.value(src)
    if at.kind is not int64 or not x.ndim or not index.ndim:
        raise Unsupported("an index that is not int64, or into a number")
    _scattered(r, x, dim, at, value, tuple(index._layout.shape), place, out, "scatter" if reduce == "set" else "scatter add")


def _index_add(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    x, dim, index, src = args
    if not x.ndim or index.ndim != 1:
        raise Unsupported("an index that is no vector, or into a number")
    _put(r, x, dim, index, src, place, out, "scatter add")


def _index_put(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    x, indices, values, accumulate = args
    given = [d for d, index in enumerate(indices) if index is not None]
    if len(given) != 1:
        raise Unsupported("several index tensors")
    _put(r, x, given[0], indices[given[0]], values, place, out, "put add" if accumulate else "put")


def _put(r: ProgramWriter, x: Tensor, dim: int, index: Tensor, src: Tensor, place: Elements, out: Tensor, operation: str) -> None:
    """Whole slices of `src`, which is of the shape of what would be read, or broadcast to it."""
    at, value = r.value(index), r.value(src)
    sizes = x._layout.shape
    shape = (*sizes[:dim], *index._layout.shape, *sizes[dim + 1:])
    if at.kind is not int64 or not x.ndim:
        raise Unsupported("an index that is not int64")
    missing = len(shape) - src.ndim
    strides = [0] * missing + [0 if n == 1 else s for n, s in zip(src._layout.shape, value.strides)]
    which = Elements(at.buffer, at.kind, (*(0,) * dim, *at.strides, *(0,) * (x.ndim - dim - 1)), at.offset)
    _scattered(r, x, dim, which, Elements(value.buffer, value.kind, strides, value.offset), shape, place, out, operation)


def _full(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    r.step("convert", out.dtype, tuple(out._layout.shape), [place, r.number(args[1], out.dtype, out.ndim)])


def _iota(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    size, start, step = args[:3]
    numbers = (np.arange(size) * step + start).astype(out.dtype.numpy)
    r.step("convert", out.dtype, (size,), [place, r.constant_array(numbers, out.dtype, (1,))])


def _clone(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    r.step("convert", out.dtype, tuple(out._layout.shape), [place, r.value(args[0])])


def _flip(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    x, dims = args
    value, shape = r.value(x), tuple(x._layout.shape)
    last = value.offset + sum((shape[d] - 1) * value.strides[d] for d in dims)
    back = [-s if d in dims else s for d, s in enumerate(value.strides)]
    r.step("convert", out.dtype, shape, [place, Elements(value.buffer, value.kind, back, last)])


def _pad_zeros(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    x, low, high, inner = args
    if min((*low, *high), default=0) < 0 or any(inner):
        raise Unsupported("padding that crops or spreads")
    shape = tuple(x._layout.shape)
    r.step("convert", out.dtype, tuple(out._layout.shape), [place, r.number(0, out.dtype, out.ndim)])
    inside = place.offset + sum(lo * s for lo, s in zip(low, place.strides))
    r.step("convert", out.dtype, shape, [Elements(place.buffer, place.kind, place.strides, inside), r.value(x)])


def _cat(r: ProgramWriter, prim: Any, args: tuple, out: Tensor, place: Elements) -> None:
    tensors, dim = args
    start = place.offset
    for t in tensors:
        shape = tuple(t._layout.shape)
        r.step("convert", out.dtype, shape, [Elements(place.buffer, place.kind, place.strides, start), r.value(t)])
        start += shape[dim] * place.strides[dim]


_WRITERS: dict[str, Callable] = {
    "cat": _cat, "clone": _clone, "flip": _flip, "full": _full, "gather": _gather, "index": _index, "index_add": _index_add,
    "index_put": _index_put, "index_select": _index_select, "iota": _iota, "pad_zeros": _pad_zeros, "scatter": _scatter,
}


_COPIES = frozenset({"cat", "gather", "index", "index_add", "index_put", "index_select", "clone", "pad_zeros", "scatter"})


def may_be_replayed(prim: Any) -> bool:
    """Whether a primitive is of a kind that programs are made of, and takes a tensor."""
    return prim.kind == "pointwise" or prim.fold is not None or prim.name in _COPIES


# -- use --------------------------------------------------------------------------------------------------------
def record(fn: Callable, args: tuple) -> Any:
    """The native program of `fn` on arguments like these; None where there can be none."""
    recorder = ProgramWriter()
    known: list[Tensor] = []

    def stand_in(a: Any) -> Any:
        if type(a) in (list, tuple) and a and isinstance(a[0], Tensor):
            return [stand_in(item) for item in a]
        if not isinstance(a, Tensor):
            return a
        lay = a._layout
        made = fake(lay.shape, a.dtype, a.device, lay.strides)
        recorder.own(made, Memory(0, "inputs", len(known)))
        known.append(made)
        return made

    stand_ins = [stand_in(a) for a in plain_numbers(args)]
    try:
        with dispatch.push_mode(recorder), dispatch.grad_enabled(False):
            results = fn(*stand_ins)
        several = type(results) is tuple
        results = results if several else (results,)
        if not all(isinstance(r, Tensor) for r in results):
            return None
        return recorder.program(args, results, several)
    except (Unsupported, NotImplementedError):
        return None


def replayed(fn: Callable) -> _C.Replays:
    """The programs of `fn`: call it with the tuple of arguments; NotImplemented where there is none for them.

    Whether a call is replayed never depends on earlier calls where that would show in its bits: only mere copies wait for
    a second look before they are written down.
    """
    return _C.Replays(functools.partial(record, fn), SMALL, PROGRAMS, getattr(fn, "name", "") in _COPIES)


def _tensors_of(args: Sequence) -> list[Tensor]:
    """The tensors among the arguments, those in lists too."""
    return [t for a in args for t in (a if type(a) in (list, tuple) else (a,)) if isinstance(t, Tensor)]
