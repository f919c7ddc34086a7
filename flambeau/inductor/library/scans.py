"""Loops over a sequence (`ops.higher_order.scan`) in generated code: the step is a program of its own, printed as one function that a
loop calls with other addresses.

What is carried lies where the step before left it: among the stacked results, if it is one of them, else in two places in turn, of which
the last round writes the one that is the loop's result.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flambeau.core.expr import Index, to_cpp
from flambeau.core.size import contiguous_strides
from flambeau.inductor.library.record import LibraryCall, Pointer
from flambeau.inductor.loop.boxes import Box, boxes_in, index_of, origin_of, template
from flambeau.inductor.loop.ir import Extern, Program, Scanned, View

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering


def _lower(lowering: Lowering, node: Any, scan: Any, args: list) -> Any:
    """A loop whose step is a program of its own, where generated code can run all of it."""
    if scan.body is None:
        return None
    body = type(lowering)(lowering.target).run(scan.body)
    places, results = scan.places[:scan.count], scan.places[scan.count:]
    stacked = tuple(dict.fromkeys(results))
    in_turn = [k for k in places if k not in stacked]
    if not is_plain(body, lowering.program.symbols) or len(set(in_turn)) < len(in_turn):
        return lowering.fallback(node, args)
    step = Scanned(body, places, stacked, scan.inputs, scan.reverse)
    views = [_as_taken(box, body.buffers[name].strides) for box, name in zip(boxes_in(args), step.taken, strict=True)]
    outs = []
    for val in [*node.meta["val"][:scan.count], *[node.meta["val"][scan.count + results.index(k)] for k in stacked]]:
        shape = index_of(tuple(val._layout.shape))
        outs.append(lowering.new_buffer(val.dtype, shape, contiguous_strides(shape)))
    lowering.add(Extern("scan", tuple(views), tuple(outs), scan, template(args), (origin_of(node),), body=step))
    boxes = [lowering.strided(out) for out in outs]
    return boxes[:scan.count] + [boxes[scan.count + stacked.index(k)] for k in results]


def _as_taken(box: Box, strides: Sequence[Index]) -> View:
    """The box in memory whose last dimensions have these strides."""
    view = box.realize()
    outer = len(view.strides) - len(strides)
    if view.strides[outer:] == tuple(strides):
        return view
    whole = strides if not outer else contiguous_strides(view.shape)
    return box.copied(whole).realize()


def is_plain(body: Program, symbols: Collection[str]) -> bool:
    """Whether a step can be a function of generated code: nothing in it runs in Python or is a tensor of its own, its sizes are known
    outside, and it makes each result whole, in memory of its own."""
    results = [v.buffer for v in body.outputs if isinstance(v, View) and body.buffers[v.buffer].kind == "output" and _is_whole(v, body)]
    return (not body.constants and len(results) == len(body.outputs) == len(set(results)) and set(body.symbols) <= set(symbols)
            and not any(isinstance(step, Extern) and step.in_python for step in body.steps))


def _is_whole(view: View, body: Program) -> bool:
    buffer = body.buffers[view.buffer]
    return view.offset == 0 and tuple(view.strides) == tuple(buffer.strides) == tuple(contiguous_strides(view.shape))


@dataclass
class StepFunction:
    """The function of a step: its name, the buffers that it takes in order, and the bytes of the arena that follows them."""

    name: str
    arguments: list[str]
    arena: Index


def print_scan(step: Extern, function: StepFunction, pointer: Pointer) -> list[str]:
    """The loop that calls the step's function."""
    body = step.body
    assert body is not None
    return _Loop(step, body, function, pointer).lines()


class _Loop:
    def __init__(self, step: Extern, body: Scanned, function: StepFunction, pointer: Pointer):
        self.step, self.body, self.function = step, body, function
        carried, results = body.carried, step.outputs[body.carried:]
        self.length = step.inputs[carried].shape[0]
        self.given = [pointer(v.buffer, v.offset) for v in step.inputs]
        self.finals = [pointer(v.buffer, v.offset) for v in step.outputs[:carried]]
        self.made = [pointer(v.buffer, v.offset) for v in results]
        self.stacked = {k: j for j, k in enumerate(body.stacked)}      # the step's result -> the loop's
        self.memory = [(f"spare{k}", self._bytes(k)) for k, place in enumerate(body.places) if place not in self.stacked]
        if function.arena != 0:
            self.memory.append(("arena", to_cpp(function.arena)))

    def lines(self) -> list[str]:
        """A block of C++."""
        order = ("count - 1 - round", "at + 1") if self.body.reverse else ("round", "at - 1")
        last = "0" if self.body.reverse else "count - 1"
        finals = [f"__builtin_memcpy({self.finals[k]}, {self._stacked(place, last)}, {self._bytes(k)});"
                  for k, place in enumerate(self.body.places) if place in self.stacked]
        return ["{", f"    const int64_t count = {to_cpp(self.length)};", "    int failed = 0;",
                *[f"    char* const {name} = (char*)rt->alloc({size});" for name, size in self.memory],
                *[f'    if ({name} == nullptr) return rt->fail(rt, "out of memory");' for name, _ in self.memory],
                "    for (int64_t round = 0; round < count && !failed; round++) {",
                f"        const int64_t at = {order[0]}, before = {order[1]};", "        (void)before;",
                f"        void* args[] = {{{', '.join(f'(void*)({a})' for a in self._arguments())}}};",
                f"        failed = {self.function.name}(args, scalars, rt);", "    }",
                *[f"    {line}" for line in finals], *[f"    rt->free({name});" for name, _ in self.memory],
                "    if (failed) return 1;", "}"]

    def _arguments(self) -> list[str]:
        """The addresses that the step's function takes, by the number of the round."""
        program, carried = self.body.program, self.body.carried
        places: dict[str, str] = {}
        for k, name in enumerate(self.body.taken):
            places[name] = self._carried(k) if k < carried else self._input(k)
        for k, out in enumerate(program.outputs):
            assert isinstance(out, View)
            places[out.buffer] = self._stacked(k, "at") if k in self.stacked else self._in_turn(self.body.places.index(k), "round + 1")
        return [*[places[name] for name in self.function.arguments], *[name for name, _ in self.memory if name == "arena"]]

    def _bytes(self, k: int) -> str:
        view = self.step.outputs[k]
        return to_cpp(math.prod(view.shape) * view.dtype.itemsize)

    def _carried(self, k: int) -> str:
        source = self.body.places[k]
        later = self._stacked(source, "before") if source in self.stacked else self._in_turn(k, "round")
        return f"round == 0 ? (char*){self.given[k]} : {later}"

    def _stacked(self, k: int, place: str) -> str:
        """Where a result of the step lies among what is stacked."""
        j = self.stacked[k]
        return f"(char*){self.made[j]} + ({place}) * ({_row(self.step.outputs[self.body.carried + j])})"

    def _in_turn(self, k: int, time: str) -> str:
        """Where what is carried lies at a time: at the end in the loop's result."""
        return f"((count - ({time})) & 1 ? spare{k} : (char*){self.finals[k]})"

    def _input(self, k: int) -> str:
        view = self.step.inputs[k]
        moves = k < self.body.carried + self.body.inputs
        return f"(char*){self.given[k]} + at * ({_row(view)})" if moves else self.given[k]


def _row(view: View) -> str:
    """The bytes from one place to the next."""
    return to_cpp(view.strides[0] * view.dtype.itemsize)


def _wrongs(step: Extern) -> Iterator[str]:
    """A loop's operands are what its step takes, at one place of the sequence or whole, and its results what the step makes."""
    body = step.body
    assert body is not None
    count, program = body.carried, body.program
    rows = range(count, count + body.inputs)
    made = [program.outputs[k] for k in (*body.places, *body.stacked)]
    pairs = [(view, program.buffers[name], k in rows) for k, (view, name) in enumerate(zip(step.inputs, body.taken))]
    pairs += [(view, program.buffers[out.buffer], k >= count)
              for k, (view, out) in enumerate(zip(step.outputs, made)) if isinstance(out, View)]
    if len(pairs) != len(step.inputs) + len(step.outputs) or len(body.taken) != len(step.inputs) or len(made) != len(step.outputs):
        yield f"it has {len(step.inputs)} operands and {len(step.outputs)} results, its step {len(body.taken)} and {len(made)}"
    for view, buffer, moves in pairs:
        shape, strides = view.shape[moves:], view.strides[moves:]
        if (shape, strides, view.dtype) != (buffer.shape, buffer.strides, buffer.dtype):
            yield (f"{view.buffer} is {view.dtype.name}{list(shape)} with strides {list(strides)} at each step, which takes "
                   f"{buffer.dtype.name}{list(buffer.shape)} with strides {list(buffer.strides)} as {buffer.name}")
    if len({view.shape[0] for view in step.inputs[count:count + body.inputs]} | {v.shape[0] for v in step.outputs[count:]}) != 1:
        yield "what it goes over differs in length"


SCAN = LibraryCall({"cpu": _lower}, wrongs=_wrongs)
