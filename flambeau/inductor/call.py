"""What one call of a compiled graph does, as data: typed steps in order, of the same kinds on every device.

Shapes and grids may hold the graph's sizes (`Index`); strides and offsets are in bytes. `print_call` writes the steps as a Python
function, for reading and for `exec`; on a GPU `written.py` turns them into native programs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flambeau.core.dtypes import dtype
from flambeau.core.expr import Expr, Index, evaluate, to_python, to_tuple
from flambeau.core.size import contiguous_strides
from flambeau.core.symbolic import SymFloat
from flambeau.inductor.loop.boxes import Slot
from flambeau.inductor.loop.ir import Buffer, Extern, Program, View

listening: list[Callable[[Any], None]] = []  # called with every graph that was compiled (graph.CompiledGraph)
Sizes = tuple[Index, ...]


class Look(NamedTuple):
    """At a buffer's memory; without strides: the array as it was made."""

    buffer: str
    dtype: dtype
    shape: Sizes
    strides: Sizes | None = None
    offset: Index = 0


class Symbol(NamedTuple):
    """A size (or a number) by its name, and where it is found: an input's dimension, or (-1) the input itself."""

    name: str
    position: int
    dim: int

    @property
    def is_float(self) -> bool:
        """Whether it is no integer."""
        return self.name[0] == "f"


class Take(NamedTuple):
    """A buffer is the array of an input, or of the constant of its name (None): copied if its strides differ from these, or its
    address is not a multiple of `alignment` bytes; without strides as it is."""

    buffer: str
    dtype: dtype
    position: int | None
    shape: Sizes
    strides: Sizes | None
    alignment: int = 1


class Make(NamedTuple):
    """New memory with arbitrary contents; without strides contiguous."""

    buffer: str
    dtype: dtype
    shape: Sizes
    strides: Sizes | None = None


class Keep(NamedTuple):
    """Buffers are the arrays of `kept`; made first where there are none yet, and they can be made here."""

    buffers: tuple[str, ...]
    made: tuple[Make, ...] = ()


class Clear(NamedTuple):
    """The caller's list of inputs is emptied, so that memory goes after its last use."""


class Drop(NamedTuple):
    """Nobody needs these buffers any more."""

    buffers: tuple[str, ...]


class Run(NamedTuple):
    """A function of the library that was generated for the graph; None stands for no memory."""

    number: int
    buffers: tuple[str | None, ...]
    symbols: tuple[str, ...]

    @property
    def name(self) -> str:
        """The function's."""
        return f"run_{self.number}"


class Launch(NamedTuple):
    """A kernel on a GPU over addresses (buffers and offsets) and numbers; `indexing`: who notes indices that are out of bounds."""

    kernel: str
    grid: Index
    pointers: tuple[tuple[str, Index], ...]
    symbols: tuple[str, ...]
    indexing: str = ""


class ByAddress(NamedTuple):
    """A call of one of NVIDIA's libraries that is prepared from `facts` (its module's `by_address`), on addresses."""

    name: str
    library: str
    facts: tuple[Any, ...]
    pointers: tuple[tuple[str, int], ...]


class ByArrays(NamedTuple):
    """A function of arrays and plain values that writes into one of them."""

    function: str
    arguments: tuple[Any, ...]


class Primitive(NamedTuple):
    """The kernel of a primitive, through Python; each result is a new buffer with these strides (None: any)."""

    number: int
    step: Extern
    inputs: tuple[Look, ...]
    results: tuple[tuple[str, Sizes | None], ...]


class Await(NamedTuple):
    """The results of a primitive that was begun are needed."""

    number: int


class Store(NamedTuple):
    """Part of a buffer gets the elements of another."""

    part: Look
    source: str


Step = Take | Make | Keep | Clear | Drop | Run | Launch | ByAddress | ByArrays | Primitive | Await | Store


@dataclass
class Call:
    """A call: the sizes that it finds, its steps in order, and what it returns. Plain enough to be kept in the cache."""

    symbols: tuple[Symbol, ...]
    steps: list[Step]
    results: list[Look | Index | None]
    name: str = "call"
    takes_arrays: bool = False      # instead of tensors
    gives_arrays: bool = False

    def of(self, *kinds: type) -> list[Any]:
        """The steps of some kinds."""
        return [s for s in self.steps if isinstance(s, kinds)]


CLASSES = (Look, Symbol, Take, Make, Keep, Clear, Drop, Run, Launch, ByAddress, ByArrays, Primitive, Await, Store, Call)

NEEDS: dict[type[Step], Callable[[Any], Iterable[str]]] = {
    Drop: lambda s: s.buffers, Run: lambda s: [b for b in s.buffers if b is not None], Launch: lambda s: [b for b, _ in s.pointers],
    ByAddress: lambda s: [b for b, _ in s.pointers], ByArrays: lambda s: [a.buffer for a in s.arguments if isinstance(a, Look)],
    Primitive: lambda s: [a.buffer for a in s.inputs], Store: lambda s: [s.part.buffer, s.source],
}
"""The buffers that each kind of step needs to be there."""


# -- from programs --------------------------------------------------------------------------------------------------


def symbols_of(program: Program) -> tuple[Symbol, ...]:
    """Where the program's sizes are found."""
    return tuple([Symbol(name, *place) for name, place in program.symbols.items()])


def in_bytes(strides: Iterable[Index], kind: dtype) -> Sizes:
    """Strides of elements in bytes."""
    return tuple([s * kind.itemsize for s in strides])


def is_whole(view: View, buffer: Buffer) -> bool:
    """Whether a view is all of its buffer, as it lies."""
    return view.shape == buffer.shape and view.strides == buffer.strides and view.offset == 0


def places(views: Sequence[View]) -> tuple[tuple[str, int], ...]:
    """The addresses of views whose offsets are known."""
    return tuple([(v.buffer, v.offset * v.dtype.itemsize) for v in views])


def look(view: View, whole: bool) -> Look:
    """At the memory of a view; `whole`: at the array as it is."""
    if whole:
        return Look(view.buffer, view.dtype, tuple(view.shape))
    return Look(view.buffer, view.dtype, tuple(view.shape), in_bytes(view.strides, view.dtype), view.offset * view.dtype.itemsize)


def tells_more(shape: Sizes, strides: Sizes) -> bool:
    """Whether strides say more of an array than is seen in memory: one known to be of no elements, or of one along a dimension."""
    return any(type(n) is int and n == 0 for n in shape) or (1 in shape and tuple(strides) != contiguous_strides(shape))


def is_contiguous(buffer: Buffer) -> bool:
    """Whether a buffer's elements lie one after the other in their order."""
    return tuple(buffer.strides) == tuple(contiguous_strides(buffer.shape))


# -- primitives ------------------------------------------------------------------------------------------------------


def fill(template: Any, tensors: Sequence[Any], sizes: Mapping[str, Any]) -> Any:
    """A step's arguments: the tensors in their places, sizes worked out."""
    if isinstance(template, Slot):
        return tensors[template]
    if isinstance(template, Expr):
        return evaluate(template, sizes)
    if isinstance(template, SymFloat):
        return template.value(sizes)
    if isinstance(template, (tuple, list)):
        return type(template)(fill(t, tensors, sizes) for t in template)
    return template


# -- what is begun -------------------------------------------------------------------------------------------------


def overlapped(steps: Sequence[Step]) -> list[Step]:
    """The steps, where primitives that can be begun are waited for as late as can be: before a step needs their results, or at the end."""
    made: list[Step] = []
    under_way: dict[str, int] = {}      # by the names of results
    for step in steps:
        for number in dict.fromkeys(under_way[name] for name in NEEDS.get(type(step), lambda s: ())(step) if name in under_way):
            made.append(Await(number))
            under_way = {name: n for name, n in under_way.items() if n != number}
        made.append(step)
        if isinstance(step, Primitive) and step.step.begins:
            under_way |= dict.fromkeys([name for name, _ in step.results], step.number)
    return made + [Await(number) for number in dict.fromkeys(under_way.values())]


class UnderWay:
    """What was begun in a call, by thread, until it is waited for."""

    def __init__(self) -> None:
        self._waits: dict[tuple[int, int], Callable[[], Any]] = {}

    def begin(self, number: int, begun: tuple[Any, Callable[[], Any]], strides: Sequence[Any], fit: Callable) -> list:
        """The arrays of what primitive `number` began (results, what waits); it is over at once if they are to lie in another way."""
        results, wait = begun
        arrays = [r._data for r in (results if isinstance(results, tuple) else (results,))]
        if any(layout is not None and array.strides != layout for array, layout in zip(arrays, strides, strict=True)):
            wait()
            arrays = [array if layout is None else fit(array, layout) for array, layout in zip(arrays, strides, strict=True)]
        else:
            self._waits[threading.get_ident(), number] = wait
        return arrays

    def end(self, number: int) -> None:
        """Wait for primitive `number`."""
        if (wait := self._waits.pop((threading.get_ident(), number), None)) is not None:
            wait()


# -- printing -------------------------------------------------------------------------------------------------------


def print_call(call: Call) -> str:
    """The call as a Python function `call(inputs)`, or `call(inputs, kept)`."""
    lines = [f"{symbol.name} = {_found(symbol)}" for symbol in call.symbols]
    if call.of(Launch):
        lines.append("stream = current_stream()")
    for step in call.steps:
        lines += _PRINT[type(step)](step, call)
    results = [_text(r) if call.gives_arrays or not isinstance(r, Look) else _tensor(r) for r in call.results]
    lines.append(f"return [{', '.join(results)}]")
    given = "inputs, kept" if call.of(Keep) else "inputs"
    return "\n    ".join([f"def {call.name}({given}):", *lines]) + "\n"


def _found(symbol: Symbol) -> str:
    if symbol.dim >= 0:
        return f"inputs[{symbol.position}].shape[{symbol.dim}]"
    return f"{'float' if symbol.is_float else 'int'}(inputs[{symbol.position}])"


def _text(value: Any) -> str:
    """A look at memory, a number or a plain value."""
    if isinstance(value, Expr):
        return to_python(value)
    if not isinstance(value, Look):
        return repr(value)
    if value.strides is None:
        return value.buffer
    return f"strided({value.buffer}, {to_tuple(value.shape)}, {to_tuple(value.strides)}, {to_python(value.offset)})"


def _tensor(result: Look) -> str:
    """A tensor around a look at memory."""
    strides = [s // result.dtype.itemsize for s in result.strides or ()]
    if result.strides is None or not tells_more(result.shape, tuple(strides)):
        return f"tensor({_text(result)}, {result.dtype.name})"
    return f"laid_out({_text(result)}, {result.dtype.name}, {to_tuple(strides)})"


def _tuple(items: Iterable[str]) -> str:
    return f"({''.join(f'{item}, ' for item in items)})"


def _take(step: Take, call: Call) -> list[str]:
    given = f"constants[{step.buffer!r}]" if step.position is None else f"inputs[{step.position}]"
    if step.position is None or not call.takes_arrays:
        given += "._data"
    if not step.strides:
        return [f"{step.buffer} = {given}"]
    strides = to_tuple(step.strides)
    if step.alignment > 1:
        return [f"{step.buffer} = fit({given}, {strides})"]
    return [f"{step.buffer} = {given}", f"if {step.buffer}.strides != {strides}: {step.buffer} = fit({step.buffer}, {strides})"]


def _empty(step: Make) -> str:
    if step.strides is None:
        return f"empty({to_tuple(step.shape)}, {step.dtype.name}.numpy)"
    return f"empty_strided({to_tuple(step.shape)}, {to_tuple(step.strides)}, {step.dtype.name}.numpy)"


def _addresses(pointers: Sequence[tuple[str, Index]]) -> list[str]:
    return [f"{buffer}.data.ptr" + ("" if isinstance(offset, int) and offset == 0 else f" + {to_python(offset)}")
            for buffer, offset in pointers]


def _launch(step: Launch, call: Call) -> list[str]:
    noted = [f"strays[{step.indexing!r}]"] if step.indexing else []
    arguments = ["stream", to_python(step.grid), *_addresses(step.pointers), *noted, *step.symbols]
    return [f"{step.kernel}({', '.join(arguments)})"]


def _primitive(step: Primitive, call: Call) -> list[str]:
    names = "".join(f"{name}, " for name, _ in step.results)
    strides = _tuple("None" if layout is None else to_tuple(layout) for _, layout in step.results)
    sizes = "{" + ", ".join(f"{s.name!r}: {s.name}" for s in call.symbols) + "}"
    called = f"begin({step.number}, " if step.step.begins else "extern("
    return [f"{names}= {called}steps[{step.number}], {_tuple(map(_text, step.inputs))}, {strides}, {sizes})"]


_PRINT: dict[type[Step], Callable[..., list[str]]] = {
    Take: _take, Launch: _launch, Primitive: _primitive,
    Make: lambda step, call: [f"{step.buffer} = {_empty(step)}"],
    Keep: lambda step, call: [f"{_tuple(step.buffers)} = kept" + (f" or {_tuple(map(_empty, step.made))}" if step.made else "")],
    Clear: lambda step, call: ["inputs.clear()"],
    Drop: lambda step, call: [f"{' = '.join(step.buffers)} = None"],
    Run: lambda step, call: [f"{step.name}({_tuple(map(str, step.buffers))}, {_tuple(step.symbols)})"],
    ByAddress: lambda step, call: [f"{step.name}({', '.join(_addresses(step.pointers))})"],
    ByArrays: lambda step, call: [f"{step.function}({', '.join(map(_text, step.arguments))})"],
    Await: lambda step, call: [f"end({step.number})"],
    Store: lambda step, call: [f"{_text(step.part)}[...] = {step.source}"],
}
"""The Python statements of a step."""
