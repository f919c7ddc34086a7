"""Lowering for CPUs: products and convolutions by oneDNN, attention by native code, sequences as loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.backends.cpu import onednn
from flambeau.backends.cpu.blas import is_long
from flambeau.core.dtypes import bfloat16, bool_, dtype, float16, float32, float64, int32, int64
from flambeau.core.size import contiguous_strides, permuted_strides
from flambeau.core.windows import ROLES, W
from flambeau.inductor.cpu import scans
from flambeau.inductor.cpu.cpp import MEMORY_TYPES
from flambeau.inductor.cpu.externs import ATTENTION, DRAWS, EXTERNS, RUNNING, WHOLE, choose_layouts, runs_fast
from flambeau.inductor.loop.boxes import CHEAP, Box, boxes_in, index_of, origin_of, template
from flambeau.inductor.loop.ir import Extern, Value
from flambeau.inductor.loop.products import product_calls
from flambeau.inductor.loop.views import is_matrix
from flambeau.ops.higher_order import Scan
from flambeau.ops.registry import Primitive

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering

DRAWN_FROM = 1 << 12    # random numbers from which drawing four at a time is worth a pass over memory


class OnCpu:
    """The `Target` for CPUs."""

    device = "cpu"
    rounds = True
    stores_narrow = False

    def call(self, lowering: Lowering, node: Any, prim: Any, args: list) -> Any:
        """Attention, loops over sequences, running sums, and random numbers."""
        name = getattr(prim, "lowering", None)
        if name in ATTENTION and boxes_in(args)[0].dtype is float32:
            return _attention(lowering, node, name, args)
        if isinstance(prim, Scan) and prim.body is not None:
            return scans.lower(lowering, node, prim, args)
        if getattr(prim, "name", None) in RUNNING and node.meta["val"].dtype in (float32, float64, int32, int64):
            return lowering.call(node, prim.name, args, tuple(map(lowering.contiguous, boxes_in(args))))
        if getattr(prim, "name", None) in WHOLE and _is_native(prim.name, boxes_in(args)):
            return lowering.call(node, prim.name, args, tuple(map(lowering.contiguous, boxes_in(args))), contiguous=True)
        if getattr(prim, "name", None) in DRAWS and _worth_a_call(lowering, node.meta["val"].dtype, args[2]):
            return lowering.call(node, prim.name, args)
        return None

    def library(self, lowering: Lowering, node: Any, prim: Primitive, args: list) -> Box | None:
        """oneDNN's call, if it has a fast one."""
        if prim.name not in EXTERNS or node.meta["val"].dtype not in (float32, bfloat16, float16) or not onednn.available():
            return None
        return (_convolution if prim.name in ROLES else _product)(lowering, node, args)

    def scatters(self, mode: str, kind: dtype) -> bool:
        """All of it, but for truths and complex numbers."""
        return mode in ("add", "set") or (kind is not bool_ and not kind.is_complex)

    def prepare(self, lowering: Lowering, node: Any, box: Box) -> None:
        """As it comes."""

    def worth_storing(self, lowering: Lowering, node: Any, box: Box, cost: int, loads: Sequence[Value]) -> bool:
        """What costs arithmetic or reads several tensors."""
        return cost > CHEAP or len(loads) > 1


def _is_native(name: str, given: Sequence[Box]) -> bool:
    """Whether generated code has the operation for these operands."""
    if name == "grouped_mm":
        return given[0].dtype is float32 and [len(box.shape) for box in given] == [2, 3, 1] and onednn.available()
    return given[0].dtype.name in MEMORY_TYPES


def _worth_a_call(lowering: Lowering, kind: dtype, shape: Sequence[Any]) -> bool:
    return kind.itemsize >= 4 and lowering.program.hint(math.prod(shape)) >= DRAWN_FROM


def _attention(lowering: Lowering, node: Any, op: str, args: list) -> Any:
    """Attention or its gradient, over operands whose last dimension is contiguous."""
    places = [lowering.where_copied(b) for b in boxes_in(args)]
    views = tuple([p.view if p is not None and not p.split and p.view.strides[-1] == 1 else
                   b.realize() if b.settled() and b.realize().strides[-1] == 1 else lowering.contiguous(b)
                   for p, b in zip(places, boxes_in(args), strict=True)])
    return lowering.call(node, op, args, views)


def _product(lowering: Lowering, node: Any, args: list) -> Box | None:
    val = node.meta["val"]
    rows, columns = args[0].shape[-2:], args[1].shape[-1]
    if is_long(rows[0], lowering.program.hint(rows[1]), columns, val.dtype.numpy):
        return None
    out = lowering.new_buffer(val.dtype, index_of(tuple(val._layout.shape)), index_of(tuple(val._layout.strides)))
    for step in product_calls(lowering, node, args, out):
        if all(map(is_matrix, step.inputs)) and runs_fast(step):
            break
    else:
        step.op = "eager"
        lowering.fallbacks.append(node.target.name)
    return lowering.product(node, step, out)


def _convolution(lowering: Lowering, node: Any, args: list) -> Box | None:
    """A convolution or one of its gradients, on images in channels-last order, which oneDNN is fastest with; only a result that
    is not worked on further is made as it is wanted."""
    val, op = node.meta["val"], node.target.name
    shape = index_of(tuple(val._layout.shape))
    first, second = (a.realize() for a in args[:2])
    known = (*shape[1:], *first.shape[1:], *second.shape[1:])     # batches may vary
    if not all(isinstance(n, int) for n in known) or 0 in shape or len(shape) < 3:
        return None
    order = (0, *range(2, len(shape)), 1)
    as_given = first.strides == tuple(contiguous_strides(first.shape)) and lowering.becomes_result(node)
    plain = ROLES[op][2] == W or as_given
    out = lowering.new_buffer(val.dtype, shape, contiguous_strides(shape) if plain else permuted_strides(shape, order))
    step = Extern(op, (first, second), (out,), node.target, template(args), (origin_of(node),))
    if not choose_layouts(step):
        lowering.program.buffers.pop(out.buffer)
        return None
    return lowering.product(node, step, out, image=True)
