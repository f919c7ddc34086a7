"""Lowering for NVIDIA GPUs: what is stored is weighed against memory's bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.core.dtypes import dtype
from flambeau.inductor.library import lowered_on
from flambeau.inductor.library.products import aligned_strides
from flambeau.inductor.loop.boxes import Box
from flambeau.inductor.loop.ir import Value

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering

WORTH_A_BYTE = 4        # cost of arithmetic that a GPU does while it moves a byte: storing costs a write, and a read for each consumer


class OnGpu:
    """The `Target` for NVIDIA GPUs."""

    device = "cuda"
    calls = lowered_on(device)
    rounds = False
    stores_narrow = True

    def scatters(self, mode: str, kind: dtype) -> bool:
        """Triton's atomic operations are sums, of no narrow integers; what is set goes by the last writer."""
        return mode == "set" or (mode == "add" and (kind.is_floating_point or kind.itemsize >= 4))

    def prepare(self, lowering: Lowering, node: Any, box: Box) -> None:
        """Operands of products get rows that tensor cores can read."""
        if _feeds_product(node) and not lowering.is_exact(node):
            _align_rows(box)

    def worth_storing(self, lowering: Lowering, node: Any, box: Box, cost: int, loads: Sequence[Value]) -> bool:
        """What is sooner read than made once more."""
        read = sum(lowering.program.buffers[v.attr.buffer].dtype.itemsize for v in loads)
        users, size, again = lowering.readings(node), box.dtype.itemsize, read + cost / WORTH_A_BYTE
        return users * again >= again + size + users * size


def _align_rows(box: Box) -> None:
    """Choose the layout of an operand that is yet to be stored."""
    while box.view is None and box.source is not None:
        box = box.source[0]
    if box.view is None:
        box.strides = aligned_strides(box.shape, box.strides, box.dtype)


def _feeds_product(node: Any) -> bool:
    """Whether a node, or a view of it, is an operand of a matrix product."""
    return any(getattr(user.target, "library", "") == "product" or ("view" in getattr(user.target, "tags", ()) and _feeds_product(user))
               for user in node.users)
