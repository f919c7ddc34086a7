"""Graphs on a CPU as they run: the call around a generated library, and what it calls through Python."""

from __future__ import annotations

import functools
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flambeau.core import dispatch
from flambeau.core.dtypes import DTYPES, uint8
from flambeau.core.expr import Index, evaluate
from flambeau.core.size import extent
from flambeau.core.tensor import Tensor, from_array, laid_out
from flambeau.core.watching import unwatched
from flambeau.inductor import call as calls
from flambeau.inductor.loop import post_ops
from flambeau.inductor.loop.ir import Extern, View
from flambeau.ops.registry import PRIMITIVES

if TYPE_CHECKING:   # what is read from the disk cache runs without what made it
    from flambeau.inductor.cpu.unit import Segment, Unit
    from flambeau.inductor.loop.ir import Program
    from flambeau.inductor.loop.scheduler import Node

LONGEST_NAME = 60


# -- the call of a unit ---------------------------------------------------------------------------------------------


def call_of(program: Program, unit: Unit, arrays: bool) -> calls.Call:
    """What a call of a printed unit does; `arrays`: it takes and gives arrays."""
    return _Calling(program, unit, arrays).call()


class _Calling:
    def __init__(self, program: Program, unit: Unit, arrays: bool):
        self.program, self.unit, self.arrays = program, unit, arrays
        self.steps: list[calls.Step] = []

    def call(self) -> calls.Call:
        program, unit = self.program, self.unit
        used = set(unit.arguments) | {v.buffer for v in program.outputs if isinstance(v, View)}
        self.steps += [self._take(name, k) for k, name in enumerate(program.inputs) if name is not None and name in used]
        if not self.arrays:
            self.steps.append(calls.Clear())
        self.steps += [self._take(name, None) for name in program.constants]
        if unit.arena != 0:
            self.steps.append(calls.Make("arena", uint8, (unit.arena,)))
        born = {name for segment in unit.segments for name in segment.born}
        self._make(name for name in unit.arguments if program.buffers[name].kind in ("temp", "output") and name not in born)
        for segment in unit.segments:
            self._segment(segment)
            if segment.dead and segment is not unit.segments[-1]:
                self.steps.append(calls.Drop(tuple(segment.dead)))
        return calls.Call(calls.symbols_of(program), calls.overlapped(self.steps), [self._result(v) for v in program.outputs],
                          takes_arrays=self.arrays, gives_arrays=self.arrays)

    def _take(self, name: str, position: int | None) -> calls.Take:
        buffer = self.program.buffers[name]
        strides = None if position is None else calls.in_bytes(buffer.strides, buffer.dtype)
        return calls.Take(name, buffer.dtype, position, buffer.shape, strides)

    def _make(self, names: Iterable[str]) -> None:
        for name in names:
            buffer = self.program.buffers[name]
            strides = None if calls.is_contiguous(buffer) else calls.in_bytes(buffer.strides, buffer.dtype)
            self.steps.append(calls.Make(name, buffer.dtype, buffer.shape, strides))

    def _segment(self, segment: Segment) -> None:
        """The memory for it, and its call."""
        call = segment.run
        if isinstance(call, int):
            self._make(segment.born)
            arena = "arena" if self.unit.arena != 0 else None
            self.steps.append(calls.Run(call, (*segment.arguments, arena), tuple(self.unit.symbols)))
            return
        made = [v.buffer for v in call.outputs if self._is_whole(v)]
        self._make(name for name in segment.born if name not in made)
        results = [(v.buffer, calls.in_bytes(v.strides, v.dtype)) if v.buffer in made else (f"part{k}", None)
                   for k, v in enumerate(call.outputs)]
        inputs = tuple([calls.look(v, self._is_whole(v)) for v in call.inputs])
        number = sum(isinstance(s, calls.Primitive) for s in self.steps)
        self.steps.append(calls.Primitive(number, replace(call, origins=()), inputs, tuple(results)))
        self.steps += [calls.Store(calls.look(view, False), name)
                       for (name, _), view in zip(results, call.outputs, strict=True) if name != view.buffer]

    def _is_whole(self, view: View) -> bool:
        return calls.is_whole(view, self.program.buffers[view.buffer])

    def _result(self, out: View | Index | None) -> calls.Look | Index | None:
        return calls.look(out, self._is_whole(out) and not calls.tells_more(out.shape, out.strides)) if isinstance(out, View) else out


# -- running --------------------------------------------------------------------------------------------------------


@dataclass
class NativeCode:
    """All that a call needs beside the library: plain enough to be kept in the cache."""

    call: calls.Call
    constants: dict[str, Tensor]
    kernels: list[tuple[str, tuple[int, ...]]]  # what runs, in order: its name, and the numbers of the captured graph's nodes
    spans: list[tuple[int, int]]                # the first kernel of each function, and their number
    in_python: list[int]                        # the kernels that Python calls, in order

    captured: ClassVar[Any] = None      # the captured graph of this process, set where it is known, and what the code is of it
    stage: ClassVar[str] = ""

    @property
    def functions(self) -> dict[str, int]:
        """The library's functions that it calls, and how many arrays each takes; without any there is no library."""
        return {run.name: len(run.buffers) for run in self.call.of(calls.Run)}

    def text(self) -> str:
        """The call as Python."""
        return calls.print_call(self.call)

    def link(self, runs: Sequence[Any]) -> Callable[[list], list]:
        """The function from inputs to outputs, given the library's."""
        for run, (first, count) in zip(runs, self.spans, strict=True):
            run.describe((self, first), count)
        scope: dict[str, Any] = {
            "__name__": __name__, **DTYPES,
            "empty": np.empty, "empty_strided": empty_strided, "fit": fit, "strided": strided_view, "tensor": from_array,
            "laid_out": laid_out,
            "extern": self._extern, "begin": functools.partial(_begin, under_way := calls.UnderWay()), "end": under_way.end,
            "constants": self.constants, "steps": [(s.step, k) for s, k in zip(self.call.of(calls.Primitive), self.in_python, strict=True)],
        }
        scope |= dict(zip(self.functions, runs, strict=True))
        exec(compile(self.text(), "<inductor wrapper>", "exec"), scope)
        scope["call"].code = self
        return scope["call"]

    def _extern(self, called: tuple[Extern, int], views: Sequence[np.ndarray], strides: Sequence[tuple[int, ...] | None],
                sizes: dict[str, int]) -> list[np.ndarray]:
        """A step that Python calls, told to who watches."""
        step, number = called
        watchers = dispatch.state.watchers
        if not watchers:
            return _extern(step, views, strides, sizes)
        start = time.perf_counter_ns()
        with unwatched():
            results = _extern(step, views, strides, sizes)
        for watcher in watchers:
            watcher.ran((self, number), start, struct.pack("q", time.perf_counter_ns()))
        return results


class Stopwatch:
    """A watcher that adds up the seconds of each of so many kernels."""

    def __init__(self, kernels: int) -> None:
        self.seconds = np.zeros(kernels)

    def begin(self, name: str, args: Sequence[Any] = (), kind: int = 0, sequence: int = -1) -> None:
        """Operators are not looked at."""

    def end(self, event: Any) -> None:
        """Operators are not looked at."""

    def ran(self, what: tuple[NativeCode, int], start: int, laps: bytes) -> None:
        """Add them up."""
        times = np.diff(np.frombuffer(laps, np.int64).astype(np.float64), prepend=float(start))
        self.seconds[what[1]:what[1] + len(times)] += 1e-9 * times


def kernels_of(unit: Unit) -> tuple[list[tuple[str, tuple[int, ...]]], list[tuple[int, int]], list[int]]:
    """`NativeCode`'s kernels, spans and in_python."""
    kernels = names_of_kernels(unit.nodes)
    spans = [(s.nodes.start, len(s.nodes)) for s in unit.segments if isinstance(s.run, int)]
    return kernels, spans, [s.nodes.start for s in unit.segments if not isinstance(s.run, int)]


def names_of_kernels(nodes: Iterable[Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Of each its name, and the numbers of the captured graph's nodes that it computes."""
    return [(name_of_kernel(node), _places(node)) for node in nodes]


def _steps(node: Any) -> list[Any]:
    return [node] if isinstance(node, Extern) else [member.step for member in node.members]


def _places(node: Node) -> tuple[int, ...]:
    places = dict.fromkeys(origin.place for step in _steps(node) for origin in step.origins)
    return tuple(place for place in places if place >= 0)


def name_of_kernel(node: Node) -> str:
    """What a profile calls it: a library call by its operator, a kernel by those that it computes."""
    ops = list(dict.fromkeys(origin.op for step in _steps(node) for origin in step.origins))
    ops = [op for op in ops if op not in PRIMITIVES or "view" not in PRIMITIVES[op].tags] or ops
    if isinstance(node, Extern):
        own = getattr(node.target, "name", node.op)
        return "_".join([own, *(op for op in ops if op != own)])[:LONGEST_NAME]
    return "_".join(["fused" if len(ops) > 1 else "kernel", *ops])[:LONGEST_NAME]


def fit(array: np.ndarray, strides: tuple[int, ...]) -> np.ndarray:
    """`array` with the strides (in bytes) that the code was compiled for; copied unless only dimensions of size 1 differ."""
    if array.size == 0 or all(n == 1 or a == b for n, a, b in zip(array.shape, array.strides, strides, strict=True)):
        return array
    out = empty_strided(array.shape, strides, array.dtype)
    out[...] = array
    return out


def empty_strided(shape: tuple[int, ...], strides: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    """New memory with these strides, in bytes."""
    room = np.empty(extent(shape, [s // kind.itemsize for s in strides]), kind)
    return np.lib.stride_tricks.as_strided(room, shape, strides)


def strided_view(array: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> np.ndarray:
    """The elements of `array`'s memory at `offset` with other strides (in bytes)."""
    if 0 in shape:
        return np.empty(shape, array.dtype)
    size = array.itemsize
    count = extent(array.shape, [s // size for s in array.strides])
    flat = np.ndarray((count,), array.dtype, array, 0, (size,)) if array.flags.c_contiguous else \
        np.lib.stride_tricks.as_strided(array, (count,), (size,))
    return np.lib.stride_tricks.as_strided(flat[offset // size :], shape, strides)


def _extern(step: Extern, views: Sequence[np.ndarray], strides: Sequence[tuple[int, ...] | None],
            sizes: dict[str, int]) -> list[np.ndarray]:
    """The results of a step in memory of their own, with these strides."""
    results = run_eager(step, views, sizes)
    return [result if layout is None else fit(result, layout) for result, layout in zip(results, strides, strict=True)]


def _begin(under_way: calls.UnderWay, number: int, called: tuple[Extern, int], views: Sequence[np.ndarray],
           strides: Sequence[tuple[int, ...] | None], sizes: dict[str, int]) -> list[np.ndarray]:
    """Begin a step; its results will be in these arrays."""
    step, _ = called
    tensors = [from_array(v, view.dtype) for v, view in zip(views, step.inputs, strict=True)]
    return under_way.begin(number, step.target.begin(*calls.fill(step.args, tensors, sizes)), strides, fit)


def run_eager(step: Extern, views: Sequence[np.ndarray], sizes: dict[str, int]) -> list[np.ndarray]:
    """The results of a primitive, or of an operator's kernel, on arrays: in memory of their own, in any layout."""
    if step.op == "kernel":
        results = step.target.kernels["cpu"](*calls.fill(step.args, views, sizes))
        arrays = list(results) if isinstance(results, tuple) else [results]
    else:
        tensors = [from_array(v, view.dtype) for v, view in zip(views, step.inputs, strict=True)]
        if step.op == "bmm" and views[0].ndim == 4:  # one batch dimension written as two
            tensors = [from_array(v.reshape(-1, *v.shape[2:])) for v in views]
        arrays = [post_ops.finish(step.epilogue, result._data.reshape([evaluate(n, sizes) for n in out.shape]), views)
                  for out, result in zip(step.outputs, call_primitive(step, tensors, sizes), strict=True)]
    return [a.copy() if any(np.may_share_memory(a, v) for v in views) else a for a in arrays]


def call_primitive(step: Extern, tensors: Sequence[Tensor], sizes: dict[str, int]) -> tuple[Tensor, ...]:
    """The results of a step's primitive on tensors."""
    results = step.target(*calls.fill(step.args, tensors, sizes))
    return results if isinstance(results, tuple) else (results,)
