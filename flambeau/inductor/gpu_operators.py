"""Generated kernels for eager execution on a GPU: the compiler run on one operator's own graph, printed as Triton.

What `operators.py` is for NumPy's arrays, for CuPy's. Pointwise primitives on contiguous arrays run over one flat range of
symbolic length; other layouts have symbolic sizes and strides. Operators that fold are compiled for the sizes of all but their
first dimension, since a row of known length is kept in registers. A call of a known kind costs a dictionary look-up, the
allocation of its results, and the launch.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau.backends.cuda import cubins
from flambeau.core.device import device
from flambeau.core.dtypes import dtype_of_numpy
from flambeau.core.symbolic import DataDependentFloat, ShapeEnv, SymFloat, SymInt
from flambeau.core.tensor import Tensor, fake
from flambeau.fx import GraphModule
from flambeau.inductor.graph import compile_graph
from flambeau.inductor.ir import View
from flambeau.inductor.operators import trace_call
from flambeau.inductor.triton import TritonKernel
from flambeau.ops import registry

FROM = 1 << 8       # elements of the largest array; below, compiling isn't worth its while
MANY = 1 << 17      # elements that fill the device
LARGE = 1 << 31     # elements that 32 bits do not count
MOST = 64           # kernels of one operator; beyond, something varies that should not
REMEMBERED = 512    # exact layouts of an operator's arguments whose kernel is known at once

Run = Callable[[Sequence[Any]], Any]


class Variant(NamedTuple):
    """A compiled kernel (None: there is none), and for which arguments of its kind it is right (None: for all)."""

    holds: Callable[[Sequence[Any]], bool] | None
    run: Run | None


class Source(NamedTuple):
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


class Family:
    """The kernels of one primitive or operator, by the kind of its arguments. Answers NotImplemented where it has none."""

    def __init__(self, fn: Callable, name: str, pointwise: bool):
        self.fn, self.name, self.pointwise = fn, name, pointwise
        cupy = importlib.import_module("cupy")
        self.array_type, self.current_device = cupy.ndarray, cupy.cuda.runtime.getDevice
        self.flat: dict[tuple, Callable[[Sequence[Any], int], Any] | None] = {}
        self.made: dict[tuple, list[Variant]] = {}
        self.exact: dict[tuple, Run] = {}
        self.fixed: set[int] = set()    # the floats that `fn` looks at: they are part of the key, the others are parameters

    def __call__(self, args: Sequence[Any]) -> Any:
        array_type = self.array_type
        arrays = [a for a in args if type(a) is array_type]
        largest = max([a.size for a in arrays], default=0)
        if largest < FROM or arrays[0].data.device_id != self.current_device():
            return NotImplemented
        if self.pointwise:
            key = self._flat_key(args, largest)
            if key is not None:
                if key not in self.flat:
                    self.flat[key] = self._make(args, self._build_flat) if len(self.flat) < MOST else None
                run = self.flat[key]
                return NotImplemented if run is None else run(args, largest)
        exact = self._exact_key(args)
        found = self.exact.get(exact)
        if found is None:
            made = self._find(args, largest)
            if made is None:
                return NotImplemented
            if len(self.exact) >= REMEMBERED:
                self.exact.clear()
            found = self.exact[self._exact_key(args)] = made
        return found(args)

    def _find(self, args: Sequence[Any], largest: int) -> Run | None:
        """The kernel for arguments like these, made if it is not there yet."""
        variants = self.made.setdefault(self._key(args, largest), [])
        for holds, found in variants:
            if holds is None or holds(args):
                return found
        full = len(self.made) > MOST or len(variants) > MOST
        variants.append(Variant(None, None) if full else self._make(args, self._build) or Variant(None, None))
        return variants[-1].run

    # -- what a kernel depends on --

    def _flat_key(self, args: Sequence[Any], n: int) -> tuple | None:
        """For arrays that are all contiguous; None for others."""
        key: list[Any] = []
        bits = where = 0
        for position, a in enumerate(args):
            if type(a) is self.array_type:
                if not a._c_contiguous:
                    return None
                memory = a.data
                bits |= memory.ptr
                where = memory.device_id
                key.append(a.dtype)
            else:
                key += self._plain(a, position)
        key.append((bits & 15 == 0, n & 15 == 0, n < LARGE, n >= MANY, where))
        return tuple(key)

    def _exact_key(self, args: Sequence[Any]) -> tuple:
        """The layouts of all arrays, and the other arguments."""
        key: list[Any] = []
        for position, a in enumerate(args):
            if type(a) is self.array_type:
                memory = a.data
                key += (a.dtype, a.shape, a.strides, memory.ptr & 15 == 0, memory.device_id)
            elif type(a) is float and position not in self.fixed:
                key.append(float)
            else:
                key += self._plain(a, position)
        return tuple(key)

    def _plain(self, a: Any, position: int) -> tuple:
        if type(a) is float and position not in self.fixed:
            return (float,)
        return (a if a.__hash__ is not None and not isinstance(a, (list, dict)) else repr(a), type(a))

    def _key(self, args: Sequence[Any], n: int) -> tuple:
        sizes: dict[int, int] = {0: 0, 1: 1}
        key: list[Any] = [n < LARGE]
        for position, a in enumerate(args):
            if type(a) is not self.array_type:
                key += self._plain(a, position)
                continue
            shape, size = a.shape, a.itemsize
            strides = None if a._c_contiguous else tuple([s // size for s in a.strides])
            if self.pointwise:
                numbers = shape if strides is None else shape + strides
                layout: Any = tuple([sizes.setdefault(m, len(sizes)) for m in numbers])
            else:
                first = shape[0] if shape else 1
                layout = (first if first < 2 else first.bit_length() // 3, shape[1:], strides, sizes.setdefault(first, len(sizes)))
            key += (a.dtype, layout, strides is None, a.data.ptr & 15 == 0, a.data.device_id)
        if self.pointwise:
            key += [m & 15 == 0 for m in sizes]
        return tuple(key)

    # -- making one --

    def _make(self, args: Sequence[Any], build: Callable[[Sequence[Any]], Any]) -> Any:
        while True:
            try:
                return build(args)
            except DataDependentFloat as looked_at:
                self.fixed.add(int(looked_at.args[0][1:]))
            except Exception as error:
                warnings.warn(f"no kernel could be generated for {self.name} on the GPU, so that it runs as several of CuPy's: "
                              f"{type(error).__name__}: {error}", stacklevel=6)
                return None

    def _trace(self, args: Sequence[Any], made: list[Any], env: ShapeEnv, symbols: dict[str, Source]) -> Any:
        """(the compiled graph, the floats' positions, whether there are several results); None where it has no kernels alone."""
        floats = [k for k, a in enumerate(args) if type(a) is float and k not in self.fixed]
        for k in floats:
            made[k] = SymFloat.variable(f"f{k}", env)
        sizes = [(f"size{k}", source.symbol) for k, source in enumerate(symbols.values())]
        sizes += [(f"number{k}", made[k]) for k in floats]
        mode, answer = trace_call(self.fn, made, sizes)
        if mode.constants:
            return None
        arrays = [k for k, a in enumerate(made) if isinstance(a, Tensor)]
        mode.graph.meta |= {
            "small": all(args[k].size < LARGE for k in arrays),
            "multiples": frozenset(n for n in symbols if self.pointwise and env.hints[n] % 16 == 0),
            "unaligned": frozenset(f"arg{len(sizes) + j}" for j, k in enumerate(arrays) if args[k].data.ptr & 15),
        }
        graph = compile_graph(GraphModule({}, mode.graph), arrays=True)
        if graph.fallbacks or not all(isinstance(step, TritonKernel) for step, _ in graph.cuda.steps):
            return None
        return graph, floats, isinstance(answer, tuple)

    def _build(self, args: Sequence[Any]) -> Variant:
        env = ShapeEnv()
        symbols: dict[str, Source] = {}
        made = [self._stand_in(a, position, env, symbols) for position, a in enumerate(args)]
        found = self._trace(args, made, env, symbols)
        text = " and ".join(env.text(guard.relation, {n: s.text() for n, s in symbols.items()}) for guard in env.guards)
        holds = eval(f"lambda args: {text}") if text else None
        if found is None:
            return Variant(holds, None)
        graph, floats, several = found
        arrays = [k for k, a in enumerate(made) if isinstance(a, Tensor)]
        given = ", ".join([*(s.text() for s in symbols.values()), *(f"args[{k}]" for k in (*floats, *arrays))])
        return Variant(holds, eval(f"lambda args: {'tuple' if several else ''}(call([{given}])){'' if several else '[0]'}",
                                   {"call": graph.call}))

    def _stand_in(self, a: Any, position: int, env: ShapeEnv, symbols: dict[str, Source]) -> Any:
        if type(a) is not self.array_type:
            return a
        size = a.itemsize

        def number(n: int, dim: int, itemsize: int) -> Any:
            if not self.pointwise and (dim or itemsize):
                return n
            symbol = env.create_symint(n, f"args[{position}]")
            if isinstance(symbol, SymInt):
                symbols.setdefault(str(symbol), Source(symbol, position, dim, itemsize))
            return symbol
        shape = tuple([number(n, d, 0) for d, n in enumerate(a.shape)])
        strides = None if a._c_contiguous else tuple([number(s // size, d, size) for d, s in enumerate(a.strides)])
        return fake(shape, dtype_of_numpy(a.dtype), device("cuda", a.data.device_id), strides)

    def _build_flat(self, args: Sequence[Any]) -> Callable[[Sequence[Any], int], Any] | None:
        """The function of the arguments and the number of elements, over one flat range."""
        env = ShapeEnv()
        first = next(a for a in args if type(a) is self.array_type)
        n = env.create_symint(first.size, "n")
        where = device("cuda", first.data.device_id)
        made = [fake((n,), dtype_of_numpy(a.dtype), where) if type(a) is self.array_type else a for a in args]
        found = self._trace(args, made, env, {str(n): Source(n, 0, 0)})
        if found is None or env.guards:
            return None
        graph, floats, several = found
        results = graph.program.outputs
        if several or len(graph.cuda.steps) != 1 or not isinstance(results[0], View):
            return None
        step = graph.cuda.steps[0][0]
        arrays = [k for k, a in enumerate(args) if type(a) is self.array_type]
        places = {f"arg{1 + len(floats) + j}": f"args[{k}]" for j, k in enumerate(arrays)} | {results[0].buffer: "out"}
        if any(name not in places or offset != 0 for name, offset in step.pointers) or results[0].buffer not in dict(step.pointers):
            return None
        pointers = [f"{places[name]}.data.ptr" for name, _ in step.pointers]
        numbers = ["n" if name == str(n) else f"args[{name[1:]}]" for name in step.symbols]
        text = (f"def run(args, n):\n    out = empty(args[{arrays[0]}].shape, kind)\n"
                f"    kernel(stream(), (n + {step.tile - 1}) // {step.tile}, {', '.join([*pointers, *numbers])})\n    return out\n")
        scope = {"empty": self.array_type, "kind": results[0].dtype.numpy, "stream": cubins.stream_pointer(),
                 "kernel": graph.cuda.loaded[step.name]}
        exec(compile(text, "<generated operator>", "exec"), scope)
        return scope["run"]


_families: dict[Any, Family] = {}


def generated_gpu(record: Any, args: Sequence[Any]) -> Any:
    """A primitive or fused operator on CuPy arrays: an array or a tuple, or NotImplemented. The slot of `ops/registry.py`."""
    family = _families.get(record)
    if family is None:
        pointwise = getattr(record, "kind", "") == "pointwise"
        family = _families[record] = Family(record if record.kind != "operator" else record.fn, record.name, pointwise)
    return family(args)


def install() -> None:
    """Serve eager execution on GPUs."""
    registry.generated_gpu = generated_gpu


__all__ = ["Family", "generated_gpu", "install"]
