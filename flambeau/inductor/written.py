"""What a printed function around GPU kernels does, written down for `_C.GpuProgram`, which runs it natively.

The function (cuda.py's wrapper) runs once with stand-ins for arrays, CuPy, the kernels and the libraries' calls; what it makes,
launches and returns is noted. All of its sizes are numbers then, so that a graph with symbolic sizes has a program for each set.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flambeau import _C
from flambeau.backends.cuda.programs import Launch, Place, StandIn, new_array
from flambeau.core.device import device
from flambeau.core.tensor import Tensor
from flambeau.inductor.ir import ALL_OUTPUTS


class _Input:
    """A tensor that the function is given, or what was saved: an input by its position, or a constant."""

    def __init__(self, where: int | Tensor, tensor: Tensor | _C.SavedArray):
        self.where, self.kind, self.shape, self._data = where, tensor.dtype.numpy, tensor.shape, self


class Writer:
    """Notes what a printed function does. `arrays`: how many arrays it is given, numbered from 0; `tensors`: how many of the
    first results are tensors, the others being saved."""

    def __init__(self, arrays: int = 0, tensors: int = ALL_OUTPUTS):
        self.tensors = tensors
        self.sources: list[tuple] = [(~k, (), ()) for k in range(arrays)]
        self.made: list[tuple | None] = []
        self.steps: list[Launch] = []

    def results(self, function: Any, kernels: Mapping[str, Callable], calls: Mapping[str, Callable], *args: Any) -> list:
        """What the function returns for stand-ins; `kernels` and `calls` (of addresses) are noted under their names.

        TypeError where it computes with numbers that are known at the call only.
        """
        scope = {**function.__globals__, "current_stream": lambda: None, "float": lambda x: x, "empty": self._empty, "fit": self._fit,
                 "strided": _strided, "tensor": StandIn.result}
        scope |= {name: self._launching(kernel) for name, kernel in kernels.items()}
        scope |= {name: self._calling(call) for name, call in calls.items()}
        scope |= {name: self._of_arrays(scope[name]) for name in ("product", "convolve")}
        scope["extern"] = self._extern(scope["extern"])
        scope["constants"] = {name: _Input(tensor, tensor) for name, tensor in scope["constants"].items()}
        results = types.FunctionType(function.__code__, scope)(*args)
        return [r if k < self.tensors else _saved(r) for k, r in enumerate(results)]

    def _new(self, made: tuple | None) -> int:
        self.made.append(made)
        return len(self.sources) + len(self.made) - 1

    def _empty(self, shape: Any, kind: Any) -> StandIn:
        sizes = (shape,) if isinstance(shape, int) else shape
        return StandIn(self._new(new_array(sizes, kind)), sizes, kind)

    def _fit(self, given: _Input, strides: tuple) -> StandIn:
        assert not self.made, "inputs are numbered before what is made"
        self.sources.append((given.where, tuple([s // given.kind.itemsize for s in strides]), strides))
        return StandIn(len(self.sources) - 1, given.shape, given.kind, strides)

    def _launching(self, kernel: Callable) -> Callable[..., None]:
        return lambda stream, grid, *parameters: self.steps.append(Launch(kernel, grid, parameters))

    def _calling(self, call: Callable) -> Callable[..., None]:
        return lambda *places: self.steps.append(Launch(call, 0, places))

    def _of_arrays(self, call: Callable) -> Callable[..., None]:
        """A function of arrays among what is known by now."""
        def note(*args: Any) -> None:
            places = [k for k, a in enumerate(args) if isinstance(a, StandIn)]
            known = [None if k in places else a for k, a in enumerate(args)]
            looks = tuple([args[k].look() for k in places])
            self.steps.append(Launch(functools.partial(_call_with, call, known, places), 0, looks))
        return note

    def _extern(self, call: Callable) -> Callable[..., list[StandIn]]:
        def extern(step: Any, views: Sequence[StandIn], strides: Sequence[tuple], sizes: dict[str, Any]) -> list[StandIn]:
            results = [self._new(None) for _ in strides]
            numbers = {name: n for name, n in sizes.items() if isinstance(n, Place)}
            bound = functools.partial(_call_extern, call, step, strides, sizes, tuple(numbers))
            self.steps.append(Launch(bound, 0, (*[v.look() for v in views], *numbers.values()), tuple(results)))
            return [StandIn(base) for base in results]
        return extern


def _call_with(call: Callable, known: list, places: Sequence[int], *arrays: Any) -> None:
    args = list(known)
    for k, array in zip(places, arrays):
        args[k] = array
    call(*args)


def _call_extern(call: Callable, step: Any, strides: Sequence[tuple], sizes: dict[str, Any], names: tuple, *args: Any) -> list:
    """`args`: the arrays, then the sizes of these names."""
    count = len(args) - len(names)
    return call(step, args[:count], strides, {**sizes, **dict(zip(names, args[count:]))})


def _stand_in(position: int, given: Any) -> Any:
    """For an input: sizes are numbers, other numbers are known at the call only."""
    if isinstance(given, (Tensor, _C.SavedArray)):
        return _Input(position, given)
    return Place(True, position) if isinstance(given, float) else given


def _saved(result: Any) -> Any:
    """A tensor as what is saved instead; numbers stay."""
    return (*result[:3], True) if isinstance(result, tuple) and not isinstance(result, Place) else result


def _strided(array: StandIn, shape: tuple, strides: tuple, offset: int) -> StandIn:
    return StandIn(array.base, shape, array.kind, strides, offset)


UNSEEN, SEEN = "unseen", "seen once"
MOST = 64       # sets of sizes of one graph whose programs are kept


class Written:
    """A compiled graph's printed function, run as native programs: one for each set of its symbolic sizes.

    Sizes that are seen for the first time run as Python, for they may not come again.
    """

    def __init__(self, function: Callable[..., list], kernels: Mapping[str, Callable], calls: Mapping[str, Callable],
                 symbols: Sequence[tuple[int, int]], tensors: int, where: device):
        self.function, self.kernels, self.calls, self.symbols, self.device = function, kernels, calls, symbols, where
        self.tensors = tensors      # how many of the first results are for users; others go to the backward graph
        self.programs: dict[tuple, _C.GpuProgram | str | None] = {}

    def __call__(self, inputs: list, *kept: tuple) -> list:
        program = self._program(inputs, *kept)
        made = program(inputs, *kept) if isinstance(program, _C.GpuProgram) else NotImplemented
        return self.function(inputs, *kept) if made is NotImplemented else made

    def _program(self, inputs: list, kept: tuple = ()) -> _C.GpuProgram | str | None:
        sizes = tuple([inputs[k].shape[dim] if dim >= 0 else int(inputs[k]) for k, dim in self.symbols])
        found = self.programs.get(sizes, UNSEEN)
        if isinstance(found, str):
            if len(self.programs) >= MOST:
                self.programs.clear()
            ready = found is SEEN or not self.symbols
            found = self.programs[sizes] = self._write(inputs, kept) if ready else SEEN
        return found

    def _write(self, inputs: list, kept: tuple) -> _C.GpuProgram | None:
        """The program for these sizes; None where the function does what none can."""
        writer = Writer(len(kept), self.tensors)
        given = [_stand_in(k, x) for k, x in enumerate(inputs)]
        stand_ins = [tuple([StandIn(k) for k in range(len(kept))])] if kept else []
        try:
            outputs = writer.results(self.function, self.kernels, self.calls, given, *stand_ins)
        except TypeError:   # it computes with a number that is known at the call only
            return None
        if not writer.steps or not outputs:
            return None
        fit = self.function.__globals__["fit"]
        return _C.GpuProgram(len(writer.sources), tuple(writer.made), tuple(writer.steps), tuple(outputs), True, tuple(writer.sources),
                             fit, self.device)


__all__ = ["Writer", "Written"]
