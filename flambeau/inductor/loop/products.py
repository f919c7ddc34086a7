"""Matrix products as library calls: operands may be strided, also where a batch dimension stands for two of the memory's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flambeau.inductor.loop.boxes import Box, Place, Slot, origin_of
from flambeau.inductor.loop.ir import Extern, View
from flambeau.inductor.loop.views import split_batch, with_one_matrix
from flambeau.ops import prims

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering


def product_calls(lowering: Lowering, node: Any, args: list[Box], out: View) -> Iterator[Extern]:
    """The calls that make a product, the best first; the last takes operands in row-major order."""
    views, split = _operands(lowering, args)
    if not split and (rows := with_one_matrix(views[0], views[1], out)) is not None:
        yield Extern("mm", rows[:2], rows[2:], prims.mm, (Slot(0), Slot(1)), (origin_of(node),))
    yield _as_asked(node, tuple(views), split_batch(out, split) if split else out)
    yield _as_asked(node, tuple([lowering.contiguous(a) for a in args]), out)


def _as_asked(node: Any, views: tuple[View, ...], out: View) -> Extern:
    return Extern(node.target.name, views, (out,), node.target, (Slot(0), Slot(1)), (origin_of(node),))


def _operands(lowering: Lowering, args: list[Box]) -> tuple[list[View], int]:
    """The operands where they lie, and the size of the second of two batch dimensions if they have these."""
    places = [lowering.where_copied(a) or Place(a.realize()) for a in args]
    split = next((p.split for p in places if p.split), 0)
    if any(p.split not in (0, split) for p in places):
        return [a.realize() for a in args], 0
    return [p.view if p.split == split else split_batch(p.view, split) for p in places], split
