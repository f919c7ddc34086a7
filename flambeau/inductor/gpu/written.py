"""Calls of compiled graphs on a GPU written down for `_C.GpuProgram`, which runs them natively.

A program's sizes are numbers, so that a graph with symbolic sizes has one for each set of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flambeau import _C
from flambeau.backends.cuda import programs
from flambeau.backends.cuda.programs import Place, new_array
from flambeau.core.device import device
from flambeau.core.expr import Expr, evaluate, free_variables, is_var
from flambeau.core.size import contiguous_strides
from flambeau.core.tensor import Layout
from flambeau.inductor.call import Await, ByAddress, ByArrays, Call, Keep, Launch, Look, Make, Primitive, Step, Take
from flambeau.inductor.loop.ir import ALL_OUTPUTS

ARRAYS = 64     # of a program of an operator (max_bases in csrc/gpu_program.cpp)


class KnownLate(Exception):
    """A call computes with a number that is known only when it runs, which no program does."""


class Writer:
    """Writes a call down. Arrays are numbered: those of `kept`, the inputs and constants (or `arrays`), then what is made.

    `scope`: what the names in the call mean, as in the printed function; `sizes`: its symbols, `Place`s for numbers that are known at
    the call only (KnownLate where it computes with them); `tensors`: how many of the first results are tensors, the others being
    saved; `arrays`: which of the inputs are the arrays that a call is given which takes arrays.
    """

    def __init__(self, call: Call, scope: Mapping[str, Any], sizes: Mapping[str, int | Place], tensors: int = ALL_OUTPUTS,
                 arrays: range = range(0)):
        self.call, self.scope, self.sizes, self.tensors, self.arrays = call, scope, sizes, tensors, arrays
        self.known = {name: n for name, n in sizes.items() if not isinstance(n, Place)}
        self.sources: list[tuple] = []
        self.made: list[tuple | None] = []
        self.steps: list[programs.Launch] = []
        self.bases: dict[str, int] = {}
        self.layouts: dict[str, tuple[tuple | None, tuple | None]] = {}     # shapes and strides of whole arrays, where they are known
        for keep in call.of(Keep):
            self._take_kept(keep)
        for step in call.steps:
            if (write := _WRITE.get(type(step))) is not None:
                write(self, step)
        self.outputs = tuple([self._output(k, r) for k, r in enumerate(call.results)])

    def of_graph(self, where: device) -> _C.GpuProgram | None:
        """The program of a graph on this GPU; None where it launches nothing."""
        if not self.steps or not self.outputs:
            return None
        return _C.GpuProgram(len(self.sources), tuple(self.made), tuple(self.steps), self.outputs, True, tuple(self.sources),
                             self.scope["fit"], where)

    def of_operator(self, several: bool) -> _C.GpuProgram | None:
        """The program of an operator with `several` results or one; None where it gives back an argument, or makes too many arrays."""
        count = len(self.arrays)
        if not all(isinstance(r, Look) and self.bases[r.buffer] >= count for r in self.call.results) or count + len(self.made) > ARRAYS:
            return None
        return _C.GpuProgram(count, tuple(self.made), tuple(self.steps), self.outputs, several)

    def _take_kept(self, keep: Keep) -> None:
        for name in keep.buffers:
            self._name(name, len(self.sources), None, None)
            self.sources.append((~len(self.sources), (), ()))

    def _take(self, step: Take) -> None:
        """An array among the inputs, or a constant; strides go by elements and by bytes."""
        if self.arrays and step.position is not None:
            return self._name(step.buffer, self.arrays.index(step.position), None, None)
        assert not self.made, "inputs are numbered before what is made"
        where = step.position if step.position is not None else self.scope["constants"][step.buffer]
        strides = None if step.strides is None else self._numbers(step.strides)
        self._name(step.buffer, len(self.sources), self._numbers(step.shape), strides)
        self.sources.append((where, tuple([s // step.dtype.itemsize for s in strides or ()]), strides))

    def _make(self, step: Make) -> None:
        shape = self._numbers(step.shape)
        self._name(step.buffer, self._new(new_array(shape, step.dtype.numpy)), shape, None)

    def _launch(self, step: Launch) -> None:
        noted = [self.scope["strays"][step.indexing]] if step.indexing else []
        parameters = (*self._places(step.pointers), *noted, *(self.sizes[s] for s in step.symbols))
        self.steps.append(programs.Launch(self.scope[step.kernel], self._number(step.grid), parameters))

    def _by_address(self, step: ByAddress) -> None:
        self.steps.append(programs.Launch(self.scope[step.name], 0, self._places(step.pointers)))

    def _by_arrays(self, step: ByArrays) -> None:
        known = [None if isinstance(a, Look) else a for a in step.arguments]
        places = [k for k, a in enumerate(step.arguments) if isinstance(a, Look)]
        looks = tuple([self._look(step.arguments[k]) for k in places])
        self.steps.append(programs.Launch(functools.partial(_call_with, self.scope[step.function], known, places), 0, looks))

    def _primitive(self, step: Primitive) -> None:
        for name, _ in step.results:
            self._name(name, self._new(None), None, None)
        strides = [None if layout is None else self._numbers(layout) for _, layout in step.results]
        late = {name: n for name, n in self.sizes.items() if name not in self.known}
        call = functools.partial(self.scope["begin"], step.number) if step.step.begins else self.scope["extern"]
        bound = functools.partial(_call_extern, call, step.step, strides, self.known, tuple(late))
        parameters = (*map(self._look, step.inputs), *late.values())
        self.steps.append(programs.Launch(bound, 0, parameters, tuple([self.bases[name] for name, _ in step.results])))

    def _await(self, step: Await) -> None:
        self.steps.append(programs.Launch(functools.partial(self.scope["end"], step.number), 0, ()))

    def _name(self, buffer: str, base: int, shape: tuple | None, strides: tuple | None) -> None:
        self.bases[buffer], self.layouts[buffer] = base, (shape, strides)

    def _new(self, made: tuple | None) -> int:
        self.made.append(made)
        return len(self.arrays or self.sources) + len(self.made) - 1

    def _number(self, x: Any) -> Any:
        if not isinstance(x, Expr):
            return x
        if is_var(x):
            return self.sizes[str(x)]
        if not free_variables(x) <= self.known.keys():
            raise KnownLate(str(x))
        return evaluate(x, self.known)

    def _numbers(self, items: Sequence[Any]) -> tuple[int, ...]:
        return tuple([self._number(x) for x in items])

    def _places(self, pointers: Sequence[tuple[str, Any]]) -> tuple[Place, ...]:
        return tuple([Place(False, self.bases[name], self._number(offset)) for name, offset in pointers])

    def _look(self, at: Look) -> tuple:
        """An array as `GpuProgram` takes it: its number, the offset in bytes, the shape, and the strides in bytes."""
        if at.strides is None:
            return self.bases[at.buffer], 0, *self.layouts[at.buffer]
        return self.bases[at.buffer], self._number(at.offset), self._numbers(at.shape), self._numbers(at.strides)

    def _output(self, k: int, result: Any) -> Any:
        """A tensor as (look, dtype, layout, whether it is saved for another program), or a number."""
        if not isinstance(result, Look):
            return self._number(result)
        seen, size = self._look(result), result.dtype.itemsize
        shape, strides = seen[2:]
        if shape is None:
            return seen, result.dtype, None, k >= self.tensors
        layout = Layout(shape, contiguous_strides(shape) if strides is None else tuple([s // size for s in strides]), 0)
        return seen, result.dtype, layout, k >= self.tensors


# What the others do (letting go of memory) is seen from the steps themselves.
_WRITE: dict[type[Step], Callable[[Writer, Any], None]] = {
    Take: Writer._take, Make: Writer._make, Launch: Writer._launch, ByAddress: Writer._by_address, ByArrays: Writer._by_arrays,
    Primitive: Writer._primitive, Await: Writer._await,
}


def _call_with(call: Callable, known: list, places: Sequence[int], *arrays: Any) -> None:
    args = list(known)
    for k, array in zip(places, arrays):
        args[k] = array
    call(*args)


def _call_extern(call: Callable, step: Any, strides: Sequence[tuple | None], sizes: dict[str, Any], names: tuple, *args: Any) -> list:
    """`args`: the arrays, then the sizes of these names."""
    count = len(args) - len(names)
    return call(step, args[:count], strides, {**sizes, **dict(zip(names, args[count:]))})


UNSEEN, SEEN = "unseen", "seen once"
MOST = 64       # sets of sizes of one graph whose programs are kept


class Written:
    """A compiled graph's call, run as native programs: one for each set of its symbolic sizes.

    Sizes that are seen for the first time run as the printed function, for they may not come again. `tensors`: how many of the first
    results are for users; others go to the backward graph.
    """

    def __init__(self, call: Call, scope: Mapping[str, Any], tensors: int, where: device):
        self.call, self.scope, self.tensors, self.device = call, scope, tensors, where
        self.function: Callable[..., list] = scope[call.name]
        self.symbols = [s for s in call.symbols if not s.is_float]
        self.programs: dict[tuple, _C.GpuProgram | str | None] = {}

    def __call__(self, inputs: list, *kept: tuple) -> list:
        program = self._program(inputs)
        made = program(inputs, *kept) if isinstance(program, _C.GpuProgram) else NotImplemented
        return self.function(inputs, *kept) if made is NotImplemented else made

    def _program(self, inputs: list) -> _C.GpuProgram | str | None:
        sizes = tuple([inputs[s.position].shape[s.dim] if s.dim >= 0 else int(inputs[s.position]) for s in self.symbols])
        found = self.programs.get(sizes, UNSEEN)
        if isinstance(found, str):
            if len(self.programs) >= MOST:
                self.programs.clear()
            ready = found is SEEN or not self.symbols
            found = self.programs[sizes] = self._write(sizes) if ready else SEEN
        return found

    def _write(self, sizes: tuple[int, ...]) -> _C.GpuProgram | None:
        """The program for these sizes; None where there is nothing to launch, or too little is known."""
        known: dict[str, int | Place] = {s.name: Place(True, s.position) for s in self.call.symbols}
        known |= {s.name: n for s, n in zip(self.symbols, sizes)}
        try:
            return Writer(self.call, self.scope, known, self.tensors).of_graph(self.device)
        except KnownLate:
            return None
