"""Lowering for the device that a graph runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.core.dtypes import bool_
from flambeau.core.tensor import Tensor
from flambeau.inductor.library import lowered_on
from flambeau.inductor.library.products import aligned_strides
from flambeau.inductor.loop.boxes import CHEAP, Box
from flambeau.inductor.loop.ir import Program, Value
from flambeau.inductor.loop.lowering import Lowering
from flambeau.inductor.loop.target import Target

WORTH_A_BYTE = 4        # cost of arithmetic that a GPU does while it moves a byte: storing costs a write, and a read for each consumer


def _sooner_read(lowering: Lowering, node: Any, box: Box, cost: int, loads: Sequence[Value]) -> bool:
    """What memory's bandwidth gives sooner than it is made once more."""
    read = sum(lowering.program.buffers[v.attr.buffer].dtype.itemsize for v in loads)
    users, size, again = lowering.readings(node), box.dtype.itemsize, read + cost / WORTH_A_BYTE
    return users * again >= again + size + users * size


def _align_rows(lowering: Lowering, node: Any, box: Box) -> None:
    """Give an operand of a product that is yet to be stored rows that tensor cores can read."""
    if not _feeds_product(node) or lowering.is_exact(node):
        return
    while box.view is None and box.source is not None:
        box = box.source[0]
    if box.view is None:
        box.strides = aligned_strides(box.shape, box.strides, box.dtype)


def _feeds_product(node: Any) -> bool:
    """Whether a node, or a view of it, is an operand of a matrix product."""
    return any(getattr(user.target, "library", "") == "product" or ("view" in getattr(user.target, "tags", ()) and _feeds_product(user))
               for user in node.users)


# A CPU stores what costs arithmetic or reads several tensors, and combines all but truths and complex numbers at computed positions; a GPU
# what is sooner read than made. Triton's atomic operations are sums, of no narrow integers; what is set goes by the last writer.
ON_CPU = Target("cpu", lowered_on("cpu"), lambda mode, kind: mode in ("add", "set") or (kind is not bool_ and not kind.is_complex),
                lambda lowering, node, box, cost, loads: cost > CHEAP or len(loads) > 1)
ON_GPU = Target("cuda", lowered_on("cuda"), lambda mode, kind: mode == "set" or (mode == "add" and (
    kind.is_floating_point or kind.itemsize >= 4)), _sooner_read, _align_rows, rounds=False, stores_narrow=True)


def target_of(gm: Any) -> Target:
    """The device of a graph: a GPU, if it has any tensor there."""
    tensors = (val for n in gm.graph.nodes if isinstance(val := n.meta.get("val"), Tensor))
    return ON_GPU if any(t.device.type == ON_GPU.device for t in tensors) else ON_CPU


def lower(gm: Any) -> tuple[Program, list[str]]:
    """The loop IR of `gm`, a graph of primitives over fake tensors, and the names of primitives that run eagerly."""
    lowering = Lowering(target_of(gm))
    return lowering.run(gm), lowering.fallbacks
