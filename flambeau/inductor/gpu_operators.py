"""Generated kernels for eager execution on a GPU: the compiler run on one operator's own graph, printed as Triton.

What `operators.py` is for NumPy's arrays, for CuPy's. Pointwise primitives on contiguous arrays run over one flat range of
symbolic length; other layouts have symbolic sizes and strides. Operators that fold are compiled for the sizes of all but their
first dimension (of more than one element), since a row of known length is kept in registers.

What a call with arguments of certain layouts comes to (arrays to make, launches) is written down once as a `_C.GpuProgram`, which
runs natively from then on (csrc/gpu_program.cpp): a call of a known kind costs a look-up, CuPy's allocation, and the launch.
"""

from __future__ import annotations

import importlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from flambeau import _C
from flambeau.backends.cuda.programs import Launch, Place, program
from flambeau.core.device import device
from flambeau.core.dtypes import dtype_of_numpy
from flambeau.core.symbolic import DataDependentFloat, ShapeEnv, SymFloat, SymInt
from flambeau.core.tensor import Tensor, fake
from flambeau.fx import GraphModule
from flambeau.inductor.gpu.triton import TritonKernel
from flambeau.inductor.gpu.written import Writer
from flambeau.inductor.graph import CompiledGraph, compile_graph
from flambeau.inductor.loop.ir import Assumed, View
from flambeau.inductor.operators import trace_call
from flambeau.ops.primitives import generated

FROM = 1 << 8       # elements of the largest array; below, compiling what folds for such sizes isn't worth its while
MANY = 1 << 17      # elements that fill the device
LARGE = 1 << 31     # elements that 32 bits do not count
MOST = 64           # kernels of one operator; beyond, something varies that should not
TOGETHER = 16       # arrays of one call

class Variant(NamedTuple):
    """A compiled graph (None: there is none), for which arguments of its kind it is right (None: for all), and what it takes:
    sizes and strides, then the floats' and the arrays' positions."""

    holds: Callable[[Sequence[Any]], bool] | None
    graph: CompiledGraph | None
    sources: tuple[SizeSource, ...] = ()
    floats: tuple[int, ...] = ()
    several: bool = False


class Flat(NamedTuple):
    """A kernel over one flat range: for each of its pointers the argument (None: the result), and its numbers (None: the length)."""

    kernel: Callable[..., None]
    tile: int
    pointers: tuple[int | None, ...]
    numbers: tuple[int | None, ...]
    kind: np.dtype


class SizeSource(NamedTuple):
    """A symbol and where its value is found: an argument's size, or its stride in elements."""

    symbol: Any
    position: int
    dim: int
    itemsize: int = 0       # of a stride

    def text(self) -> str:
        """It as Python over `args`."""
        if self.itemsize:
            return f"args[{self.position}].strides[{self.dim}] // {self.itemsize}"
        return f"args[{self.position}].shape[{self.dim}]"

    def value(self, args: Sequence[Any]) -> int:
        """Its value for these arguments."""
        array = args[self.position]
        return array.strides[self.dim] // self.itemsize if self.itemsize else array.shape[self.dim]


def _holds_tensors(a: Any) -> bool:
    return type(a) in (list, tuple) and any(isinstance(item, Tensor) for item in a)


def _opened(args: Sequence[Any], groups: Sequence[int]) -> Iterator[Any]:
    """The arguments, with what lists of tensors hold in their place, as native code counts them; `groups`: how many each holds, or 0."""
    for a, count in zip(args, groups, strict=True):
        yield from a if count else (a,)


def _grouped(leaves: Sequence[Any], groups: Sequence[int]) -> list[Any]:
    """The arguments again."""
    rest = iter(leaves)
    return [list(itertools.islice(rest, count)) if count else next(rest) for count in groups]


def _leading(shape: tuple) -> int:
    """The dimension whose size is a parameter where an operator folds: the first of several elements that is not the last."""
    return next((d for d, n in enumerate(shape[:-1]) if n > 1), 0)


class Family:
    """The kernels of one primitive or operator, by the kind of its arguments."""

    def __init__(self, record: Any):
        self.record, self.name, self.pointwise = record, record.name, record.kind == "pointwise"
        self.is_operator = record.kind == "operator"
        self.moves = record.kind == "general" and "reduction" not in record.tags
        self.scatters = getattr(record, "loop", None) == "scatter"
        self.fn: Callable = record.fn if self.is_operator else record
        self.array_type = importlib.import_module("cupy").ndarray
        self.flat: dict[tuple, Flat | None] = {}
        self.made: dict[tuple, list[Variant]] = {}
        self.fixed: set[int] = set()    # the floats that `fn` looks at: they are part of the key, the others are parameters

    def program(self, args: Sequence[Any]) -> _C.GpuProgram | None:
        """What calls with tensors of these layouts on the current GPU come to; None where there are no kernels for them."""
        if not self.is_operator:
            self.record.shape(*args)    # refuses what is wrong
        groups = tuple([len(a) if _holds_tensors(a) else 0 for a in args])
        args = [a._data if isinstance(a, Tensor) else a for a in _opened(args, groups)]
        arrays = [a for a in args if type(a) is self.array_type]
        largest = max([a.size for a in arrays], default=0)
        if not largest or len(arrays) > TOGETHER or (self.scatters and arrays[0].itemsize < 4):     # narrow sums are taken in wider numbers
            return None
        if any(groups):
            self._fix([k for k, a in enumerate(args) if type(a) is float])
        if self.pointwise and all(a.shape == arrays[0].shape for a in arrays):
            key = self._flat_key(args, largest)
            if key is not None:
                if key not in self.flat:
                    self.flat[key] = self._make(self._build_flat, args) if len(self.flat) < MOST else None
                found = self.flat[key]
                return None if found is None else self._flat_program(found, args, arrays[0].shape, largest)
        variant = self._find(args, groups, largest)
        if variant.graph is None:
            return None
        numbers = [*(source.value(args) for source in variant.sources), *(Place(True, k) for k in variant.floats)]
        call, places = variant.graph.cuda.code.call, range(len(numbers), len(numbers) + len(arrays))
        writer = Writer(call, variant.graph.cuda.scope, {s.name: numbers[s.position] for s in call.symbols}, arrays=places)
        return writer.of_operator(variant.several)

    def _fix(self, positions: Sequence[int]) -> None:
        """The floats at these positions are part of the key from now on."""
        for position in set(positions) - self.fixed:
            self.fixed.add(position)
            self.record.eager.gpu.look_at(position)

    def _varies(self, largest: int) -> bool:
        """Are all sizes and strides symbols?"""
        return self.pointwise or self.moves or largest < FROM

    def _flat_program(self, flat: Flat, args: Sequence[Any], shape: tuple, n: int) -> _C.GpuProgram:
        positions = [k for k, a in enumerate(args) if type(a) is self.array_type]
        count = len(positions)
        pointers = [Place(False, count if k is None else positions.index(k)) for k in flat.pointers]
        numbers = [n if k is None else Place(True, k) for k in flat.numbers]
        return program(count, [(shape, flat.kind)], [Launch(flat.kernel, -(-n // flat.tile), (*pointers, *numbers))])

    def _find(self, args: Sequence[Any], groups: tuple[int, ...], largest: int) -> Variant:
        """The kernels for arguments like these, made if they are not there yet."""
        variants = self.made.setdefault((groups, *self._key(args, largest)), [])
        for variant in variants:
            if variant.holds is None or variant.holds(args):
                return variant
        full = len(self.made) > MOST or len(variants) > MOST
        variants.append(Variant(None, None) if full else self._make(self._build, args, groups, largest) or Variant(None, None))
        return variants[-1]

    # -- what a kernel depends on --

    def _flat_key(self, args: Sequence[Any], n: int) -> tuple | None:
        """For arrays that are all contiguous; None for others."""
        key: list[Any] = []
        bits = where = 0
        for position, a in enumerate(args):
            if type(a) is self.array_type:
                if not a._c_contiguous:
                    return None
                bits |= a.data.ptr
                where = a.data.device_id
                key.append(a.dtype)
            else:
                key += self._plain(a, position)
        key.append((bits & 15 == 0, n & 15 == 0, n < LARGE, n >= MANY, where))
        return tuple(key)

    def _plain(self, a: Any, position: int) -> tuple:
        if type(a) is float and position not in self.fixed:
            return (float,)
        return (a if a.__hash__ is not None and not isinstance(a, (list, dict)) else repr(a), type(a))

    def _key(self, args: Sequence[Any], n: int) -> tuple:
        sizes: dict[int, int] = {0: 0, 1: 1}
        varies = self._varies(n)
        key: list[Any] = [n < LARGE, varies]
        for position, a in enumerate(args):
            if type(a) is not self.array_type:
                key += self._plain(a, position)
                continue
            shape, size = a.shape, a.itemsize
            strides = None if a._c_contiguous else tuple([s // size for s in a.strides])
            if varies:
                numbers = shape if strides is None else shape + strides
                layout: Any = tuple([sizes.setdefault(m, len(sizes)) for m in numbers])
            else:
                d = _leading(shape)
                first = shape[d] if shape else 1
                layout = (d, first if first < 2 else first.bit_length() // 3, shape[d + 1:], strides, sizes.setdefault(first, len(sizes)))
            key += (a.dtype, layout, strides is None, a.data.ptr & 15 == 0, a.data.device_id)
        if varies:
            key += [m & 15 == 0 for m in sizes]
        return tuple(key)

    # -- making one --

    def _make(self, build: Callable[..., Any], *given: Any) -> Any:
        while True:
            try:
                return build(*given)
            except DataDependentFloat as looked_at:
                self._fix([int(looked_at.args[0][1:])])
            except Exception as error:
                if hasattr(error, "told_late"):     # an earlier call's
                    raise
                warnings.warn(f"no kernel could be generated for {self.name} on the GPU, so that it runs as several of CuPy's: "
                              f"{type(error).__name__}: {error}", stacklevel=6)
                return None

    def _trace(self, args: Sequence[Any], groups: Sequence[int], made: list[Any], varies: bool, env: ShapeEnv,
               symbols: dict[str, SizeSource]) -> Any:
        """(the compiled graph, the floats' positions, whether there are several results); None where it has no kernels alone."""
        floats = [k for k, a in enumerate(args) if type(a) is float and k not in self.fixed]
        for k in floats:
            made[k] = SymFloat.variable(f"f{k}", env)
        sizes = [(f"size{k}", source.symbol) for k, source in enumerate(symbols.values())]
        sizes += [(f"number{k}", made[k]) for k in floats]
        mode, answer = trace_call(lambda *leaves: self.fn(*_grouped(leaves, groups)), made, sizes)
        if mode.constants:
            return None
        arrays = [k for k, a in enumerate(made) if isinstance(a, Tensor)]
        assumed = Assumed(
            small=all(args[k].size < LARGE for k in arrays),
            multiples=frozenset(n for n in symbols if varies and env.hints[n] % 16 == 0),
            unaligned=frozenset(f"arg{len(sizes) + j}" for j, k in enumerate(arrays) if args[k].data.ptr & 15))
        graph = compile_graph(GraphModule({}, mode.graph), arrays=True, assumed=assumed)
        if graph.fallbacks or not all(isinstance(step, TritonKernel) for step, _ in graph.cuda.steps):
            return None
        return graph, floats, isinstance(answer, tuple)

    def _build(self, args: Sequence[Any], groups: Sequence[int], largest: int) -> Variant:
        env = ShapeEnv()
        symbols: dict[str, SizeSource] = {}
        varies = self._varies(largest)
        made = [self._stand_in(a, position, varies, env, symbols) for position, a in enumerate(args)]
        found = self._trace(args, groups, made, varies, env, symbols)
        text = " and ".join(env.text(guard.relation, {n: s.text() for n, s in symbols.items()}) for guard in env.guards)
        holds = eval(f"lambda args: {text}") if text else None
        if found is None:
            return Variant(holds, None)
        graph, floats, several = found
        return Variant(holds, graph, tuple(symbols.values()), tuple(floats), several)

    def _stand_in(self, a: Any, position: int, varies: bool, env: ShapeEnv, symbols: dict[str, SizeSource]) -> Any:
        if type(a) is not self.array_type:
            return a
        size, leading = a.itemsize, _leading(a.shape)

        def number(n: int, dim: int, itemsize: int) -> Any:
            if not varies and (dim != leading or itemsize):
                return n
            symbol = env.create_symint(n, f"args[{position}]")
            if isinstance(symbol, SymInt):
                symbols.setdefault(str(symbol), SizeSource(symbol, position, dim, itemsize))
            return symbol
        shape = tuple([number(n, d, 0) for d, n in enumerate(a.shape)])
        strides = None if a._c_contiguous else tuple([number(s // size, d, size) for d, s in enumerate(a.strides)])
        return fake(shape, dtype_of_numpy(a.dtype), device("cuda", a.data.device_id), strides)

    def _build_flat(self, args: Sequence[Any]) -> Flat | None:
        env = ShapeEnv()
        first = next(a for a in args if type(a) is self.array_type)
        n = env.create_symint(max(first.size, 2), "n")
        where = device("cuda", first.data.device_id)
        made = [fake((n,), dtype_of_numpy(a.dtype), where) if type(a) is self.array_type else a for a in args]
        found = self._trace(args, [0] * len(args), made, True, env, {str(n): SizeSource(n, 0, 0)})
        if found is None or env.guards:
            return None
        graph, floats, several = found
        results = graph.program.outputs
        if several or len(graph.cuda.steps) != 1 or not isinstance(results[0], View):
            return None
        step = graph.cuda.steps[0][0]
        arrays = [k for k, a in enumerate(args) if type(a) is self.array_type]
        places: dict[str, int | None] = {f"arg{1 + len(floats) + j}": k for j, k in enumerate(arrays)}
        places[results[0].buffer] = None
        if any(name not in places or offset != 0 for name, offset in step.pointers) or results[0].buffer not in dict(step.pointers):
            return None
        numbers = [None if name == str(n) else int(name[1:]) for name in step.symbols]
        return Flat(graph.cuda.scope[step.name], step.tile, tuple([places[name] for name, _ in step.pointers]), tuple(numbers),
                    results[0].dtype.numpy)


_families: dict[Any, Family] = {}


def generated_gpu(record: Any, args: Sequence[Any]) -> _C.GpuProgram | None:
    """A primitive or fused operator on CuPy's arrays as a program, if there is one. The slot of `ops/primitives.py`."""
    family = _families.get(record)
    if family is None:
        family = _families[record] = Family(record)
    return family.program(args)


def install() -> None:
    """Serve eager execution on GPUs."""
    generated.gpu = generated_gpu
