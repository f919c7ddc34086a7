"""Generated kernels for eager mode: the compiler run on one operator at a time.

A large pointwise primitive, or an operator marked `fused`, gets a kernel made from its own one-operator graph. Kernels are
kept by operator, attributes and memory layout. The first two shapes are compiled as they are; a third makes one kernel with
symbolic sizes that serves all further ones. What was compiled stays in the disk cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..aot.trace import make_fx
from ..core import dispatch
from ..core.device import CPU
from ..core.dtypes import dtype
from ..core.symbolic import ShapeEnv, SymInt
from ..core.tensor import Tensor, fake, from_array
from ..ops import prims, registry
from .compile import have_compiler
from .graph import compile_graph

Shapes = tuple[tuple[int, ...], ...]
FROM = 1 << 14
"""Elements from which a generated kernel beats NumPy's passes and the call's overhead."""
STATIC_SHAPES = 2
LAYOUTS = 64
"""How many shapes of one operator with unusual strides are compiled before NumPy takes over."""


class Signature(NamedTuple):
    """What a kernel is made for, sizes apart."""

    name: str
    kinds: tuple                # per argument: (dtype, rank) of a tensor, "number", or ("attr", value)
    strides: tuple              # per tensor: None if contiguous


class Family:
    """The kernels of one signature."""

    def __init__(self, build: Callable[[Sequence[Tensor]], Callable[[list], list]], contiguous: bool):
        self.build, self.contiguous = build, contiguous
        self.by_shape: dict[Shapes, Callable[[list], list] | None] = {}
        self.symbolic: list[tuple[Callable[[Shapes], bool], Callable[[list], list]]] = []

    def kernel(self, tensors: Sequence[Tensor]) -> Callable[[list], list] | None:
        """The kernel for tensors of these shapes; None if NumPy should do it."""
        shapes = tuple([t._data.shape for t in tensors])
        if shapes in self.by_shape:
            return self.by_shape[shapes]
        with _lock:
            self.by_shape[shapes] = found = self._find(tensors, shapes)
        return found

    def _find(self, tensors: Sequence[Tensor], shapes: Shapes) -> Callable[[list], list] | None:
        if not self.contiguous:
            return self._static(tensors) if len(self.by_shape) < LAYOUTS else None
        if len(self.by_shape) < STATIC_SHAPES:
            return self._static(tensors)
        for holds, kernel in self.symbolic:
            if holds(shapes):
                return kernel
        holds, kernel = self._with_symbols(tensors, shapes)
        self.symbolic.append((holds, kernel))
        return kernel

    def _static(self, tensors: Sequence[Tensor]) -> Callable[[list], list]:
        return self.build([fake(t._data.shape, t.dtype, CPU, t._layout.strides) for t in tensors])

    def _with_symbols(self, tensors: Sequence[Tensor], shapes: Shapes) -> tuple[Callable, Callable[[list], list]]:
        """A kernel whose sizes are symbols (equal sizes share one; 0 and 1 stay), and the condition under which it holds."""
        env = ShapeEnv()
        stand_ins, fixed = [], []
        first: dict[int, str] = {}
        for k, (t, shape) in enumerate(zip(tensors, shapes)):
            sizes = []
            for d, n in enumerate(shape):
                source = f"shapes[{k}][{d}]"
                sizes.append(env.create_symint(n, source))
                if n in first:
                    fixed.append(f"{source} == {first[n]}")
                elif n > 1:
                    first[n] = source
                fixed.append(f"{source} > 1" if n > 1 else f"{source} == {n}")
            stand_ins.append(fake(tuple(sizes), t.dtype, CPU))
        kernel = self.build(stand_ins)
        condition = " and ".join(f"({c})" for c in (*fixed, *env.guard_expressions())) or "True"
        return eval(f"lambda shapes: {condition}"), kernel


_families: dict[Signature, Family] = {}
_lock = threading.RLock()


def _signature(name: str, args: Sequence[Any], numbers: bool) -> tuple[Signature, list[Tensor]] | None:
    kinds: list[Any] = []
    strides: list[Any] = []
    tensors: list[Tensor] = []
    for a in args:
        if isinstance(a, Tensor):
            kinds.append((a.dtype, a._data.ndim))
            strides.append(None if a._data.flags.c_contiguous else a._data.strides)
            tensors.append(a)
        elif numbers and type(a) in (int, float):
            kinds.append("number")
        else:
            kinds.append(("attr", a, type(a)))
    signature = Signature(name, tuple(kinds), tuple(strides))
    try:
        hash(signature)
    except TypeError:
        return None
    return signature, tensors


def _graph_builder(call: Callable[[list[Tensor]], Any]) -> Callable[[Sequence[Tensor]], Callable[[list], list]]:
    """compile_graph of `call` over stand-ins of its tensors; symbolic sizes are inputs of the graph behind them."""
    def build(stand_ins: Sequence[Tensor]) -> Callable[[list], list]:
        places: dict[str, tuple[int, int]] = {}
        sizes = []
        for k, t in enumerate(stand_ins):
            for d, n in enumerate(t._layout.shape):
                if isinstance(n, SymInt) and str(n) not in places:
                    places[str(n)] = (k, d)
                    sizes.append(n)
        with dispatch.grad_enabled(False):
            gm = make_fx(lambda *given: call(list(given[:len(stand_ins)])))(*stand_ins, *sizes)
        graph = compile_graph(gm, [*stand_ins, *sizes])
        if not places:
            return graph.call or graph
        where = tuple(places.values())
        return lambda tensors: graph([*tensors, *[tensors[k]._data.shape[d] for k, d in where]])
    return build


def generated_operator(record: Any, args: tuple) -> Any:
    """The outputs of a fused operator from its generated kernel; NotImplemented if NumPy should do it."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    if not tensors or max(t._data.size for t in tensors) < FROM or not have_compiler():
        return NotImplemented
    made = _signature(record.name, args, numbers=False)
    if made is None:
        return NotImplemented
    signature, tensors = made
    family = _families.get(signature)
    if family is None:
        attrs = list(args)
        for i, a in enumerate(attrs):
            if isinstance(a, Tensor):
                attrs[i] = _HOLE
        family = _families[signature] = Family(_graph_builder(lambda given: record.fn(*_filled(attrs, given))),
                                               all(s is None for s in signature.strides))
    kernel = family.kernel(tensors)
    if kernel is None:
        return NotImplemented
    outs = kernel(list(tensors))
    return tuple(outs) if len(outs) != 1 else outs[0]


_HOLE = object()


def _filled(template: list, given: Sequence[Tensor]) -> list:
    rest = iter(given)
    return [next(rest) if a is _HOLE else a for a in template]


def generated_pointwise(prim: Any, args: Sequence[Any]) -> Any:
    """The output array of a large pointwise primitive; NotImplemented if NumPy should do it.

    Numbers among the operands become 0-dim inputs, so that another number is no other kernel (but for pow's exponent).
    """
    if not have_compiler() or prim.name in _NUMPY_IS_FINE:
        return NotImplemented
    made = _signature(prim.name, args, numbers=prim.name != "pow")
    if made is None or any(s is not None and 0 in s for s in made[0].strides):
        return NotImplemented
    signature, tensors = made
    if any(t.dtype.is_complex for t in tensors):
        return NotImplemented
    kind = next(t.dtype for t in reversed(tensors) if t._data is not None)
    scalars = [_zero_dim(a, kind) for a, k in zip(args, signature.kinds) if k == "number"]
    family = _families.get(signature)
    if family is None:
        family = _families[signature] = Family(_graph_builder(_pointwise_call(prim, signature, args)),
                                               all(s is None for s in signature.strides))
    kernel = family.kernel([*tensors, *scalars])
    return NotImplemented if kernel is None else kernel([*tensors, *scalars])[0]._data


_NUMPY_IS_FINE = frozenset({"conj", "real", "imag", "complex"})


def _zero_dim(value: Any, kind: dtype) -> Tensor:
    return from_array(np.asarray(value, kind.numpy), kind)


def _pointwise_call(prim: Any, signature: Signature, args: Sequence[Any]) -> Callable[[list[Tensor]], Any]:
    """`prim` over tensors and then the numbers, each expanded to the tensors' shape."""
    count = sum(isinstance(a, Tensor) for a in args)

    def call(given: list[Tensor]) -> Any:
        tensors, numbers = iter(given[:count]), iter(given[count:])
        shape = tuple(given[0]._layout.shape)
        operands = []
        for a, kind in zip(args, signature.kinds):
            if isinstance(a, Tensor):
                operands.append(next(tensors))
            elif kind == "number":
                operands.append(prims.expand(next(numbers), shape))
            else:
                operands.append(a)
        return prim(*operands)

    return call


def install() -> None:
    """Let eager mode ask for generated kernels."""
    registry.generated_operator = generated_operator
    registry.generated_pointwise = generated_pointwise

