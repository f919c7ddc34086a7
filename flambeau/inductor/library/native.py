"""Native code of ours on a CPU: attention, arrays of random numbers, running sums, orders, histograms (csrc/, cpu/sorting.h)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flambeau.backends.cpu import onednn
from flambeau.core.dtypes import float32, float64, int32, int64
from flambeau.core.expr import to_cpp
from flambeau.core.scalar import FOLDS
from flambeau.core.size import contiguous_strides
from flambeau.inductor.library.cpp import MEMORY_TYPES, constant_text
from flambeau.inductor.library.onednn import addresses
from flambeau.inductor.library.record import LibraryCall, Pointer
from flambeau.inductor.loop.boxes import boxes_in
from flambeau.inductor.loop.ir import Extern, Program, View

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering

WORTH_FROM = 1 << 12    # random numbers from which drawing four at a time is worth a pass over memory
KINDS = ("philox_uniform", "philox_normal")     # as csrc/philox.cpp numbers them
FOLDED = {"cumsum": FOLDS["sum"], "cumprod": FOLDS["prod"]}


# -- attention -----------------------------------------------------------------------------------------------
def _attention(lowering: Lowering, node: Any, prim: Any, args: list) -> Any:
    """A call over operands whose last dimension is contiguous."""
    boxes = boxes_in(args)
    if boxes[0].dtype is not float32:
        return None
    places = list(map(lowering.where_copied, boxes))
    views = tuple([p.view if p is not None and not p.split and p.view.strides[-1] == 1 else
                   b.realize() if b.settled() and b.realize().strides[-1] == 1 else lowering.contiguous(b)
                   for p, b in zip(places, boxes, strict=True)])
    return lowering.call(node, prim.name, args, views)


def _attention_cpp(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    *_, is_causal, scale = step.args
    if len(step.inputs) == 3:
        (q, k, v), (out, lse) = step.inputs, step.outputs
        rest: list[View] = []
    else:
        g, q, k, v, out, lse = step.inputs
        rest = [_heads_first(view) for view in (g, *step.outputs)]
    views = [q, k, v, _heads_first(out), lse, *rest]
    words = [*q.shape[:2], k.shape[1], q.shape[2], k.shape[2], q.shape[3], int(is_causal), onednn.float_bits(scale)]
    words += [stride for view in views if view is not lse for stride in view.strides[:3]]
    return ["{", f"    const int64_t words[] = {{{', '.join(map(to_cpp, words))}}};",
            f"    void* const operands[] = {{{addresses(views, pointer)}}};",
            f"    if (fl::attention(rt, words, operands, {len(views)})) return 1;", "}"]


def _heads_first(view: View) -> View:
    """(batch, rows, heads, E) as (batch, heads, rows, E)."""
    (b, r, h, e), (sb, sr, sh, se) = view.shape, view.strides
    return view._replace(shape=(b, h, r, e), strides=(sb, sh, sr, se))


def _heads(step: Extern) -> Iterator[str]:
    """Attention takes float32 in four dimensions, of which the last is contiguous."""
    for view in (*step.inputs, *step.outputs):
        if view.dtype is not float32:
            yield f"{view.buffer} is {view.dtype.name}, not float32"
        if len(view.shape) == 4 and view.strides[-1] != 1 and view.shape[-1] != 1:
            yield f"the last dimension of {view.buffer} is not contiguous: strides {list(view.strides)}"


# -- random numbers ------------------------------------------------------------------------------------------
def _draw(lowering: Lowering, node: Any, prim: Any, args: list) -> Any:
    worth = node.meta["val"].dtype.itemsize >= 4 and lowering.program.hint(math.prod(args[2])) >= WORTH_FROM
    return lowering.call(node, prim.name, args) if worth else None


def _draw_cpp(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    _, increment, shape, kind = step.args
    words = ", ".join(map(to_cpp, (KINDS.index(step.op), kind.itemsize, math.prod(shape), increment)))
    state, out = step.inputs[0], step.outputs[0]
    pointers = f"(const int64_t*){pointer(state.buffer, state.offset)}, {pointer(out.buffer, out.offset)}"
    return ["{", f"    const int64_t words[] = {{{words}}};", f"    if (fl::draw(rt, words, {pointers})) return 1;", "}"]


def _drawn(step: Extern) -> Iterator[str]:
    """A draw takes the state (seed, offset) and fills contiguous memory."""
    state, out = step.inputs[0], step.outputs[0]
    if state.dtype is not int64 or list(state.shape) != [2] or list(state.strides) != [1]:
        yield f"its state {state.buffer} is {state.dtype.name}{list(state.shape)}, not a contiguous int64[2]"
    want: Any = 1
    for n, s in reversed(list(zip(out.shape, out.strides))):
        if s is not want and s != want and n != 1:
            yield f"the memory of {out.buffer} that it fills is not contiguous: strides {list(out.strides)}"
            return
        want = want * n


# -- along a dimension ---------------------------------------------------------------------------------------
def _running(lowering: Lowering, node: Any, prim: Any, args: list) -> Any:
    known = node.meta["val"].dtype in (float32, float64, int32, int64)
    return lowering.call(node, prim.name, args, tuple(map(lowering.contiguous, boxes_in(args)))) if known else None


def _whole(lowering: Lowering, node: Any, prim: Any, args: list) -> Any:
    """A call from contiguous tensors to contiguous ones."""
    boxes = boxes_in(args)
    known = boxes[0].dtype.name in MEMORY_TYPES
    return lowering.call(node, prim.name, args, tuple(map(lowering.contiguous, boxes)), contiguous=True) if known else None


def _running_cpp(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    """Floats add up in float64, as in eager."""
    x, out = step.inputs[0], step.outputs[0]
    _, dim, *reverse = step.args
    sizes = _around(x, dim)
    memory, fold = MEMORY_TYPES[x.dtype.name], FOLDED[step.op]
    number = "double" if x.dtype.is_floating_point else memory
    given = f"({memory}*){pointer(x.buffer, x.offset)}, ({memory}*){pointer(out.buffer, out.offset)}"
    arguments = f"{', '.join(map(to_cpp, sizes))}, {'true' if any(reverse) else 'false'}, {number}({fold.empty})"
    return [f"fl::run_along(rt, {given}, {arguments}, []({number} a, {number} b) {{ return {fold.combine.cpp.format('a', 'b')}; }});"]


def _order_cpp(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    """The first elements along a dimension in order, all of them or `k`, and where they were."""
    x, (values, places) = step.inputs[0], step.outputs
    *_, dim, descending, _ = step.args
    outer, n, inner = _around(x, dim)
    memory = MEMORY_TYPES[x.dtype.name]
    given = [f"({kind}*){pointer(view.buffer, view.offset)}" for kind, view in ((memory, x), (memory, values), ("int64_t", places))]
    sizes = map(to_cpp, (outer, n, inner, values.shape[dim] if x.shape else 1))
    return [f"if (fl::order_along(rt, {', '.join((*given, *sizes))}, {'true' if descending else 'false'})) return 1;"]


def _around(x: View, dim: int) -> tuple:
    """The elements before a dimension, in it and after it."""
    return (math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1:])) if x.shape else (1, 1, 1)


def _counts_cpp(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    """A histogram."""
    x, out = step.inputs[0], step.outputs[0]
    _, bins, low, high = step.args
    memory = MEMORY_TYPES[x.dtype.name]
    given = ", ".join(f"({memory}*){pointer(view.buffer, view.offset)}" for view in (x, out))
    edges = ", ".join(constant_text(edge, float64) for edge in (low, high))
    return [f"if (fl::count_in_bins(rt, {given}, {to_cpp(math.prod(x.shape))}, {to_cpp(bins)}, {edges})) return 1;"]


def _contiguous(step: Extern) -> Iterator[str]:
    """They go over contiguous memory."""
    for view in (*step.inputs, *step.outputs):
        if list(view.strides) != list(contiguous_strides(view.shape)):
            yield f"{view.buffer} is not contiguous: strides {list(view.strides)}"


ATTENTION = LibraryCall({"cpu": _attention}, _attention_cpp, wrongs=_heads)
DRAW = LibraryCall({"cpu": _draw}, _draw_cpp, wrongs=_drawn)
RUNNING = LibraryCall({"cpu": _running}, _running_cpp, wrongs=_contiguous)
ORDER = LibraryCall({"cpu": _whole}, _order_cpp, wrongs=_contiguous)
COUNTS = LibraryCall({"cpu": _whole}, _counts_cpp, wrongs=_contiguous)
