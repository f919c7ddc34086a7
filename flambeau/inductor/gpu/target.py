"""Lowering for NVIDIA GPUs: products by cuBLAS, convolutions by cuDNN; what is stored is weighed against memory's bandwidth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.core.dtypes import dtype
from flambeau.core.expr import Index
from flambeau.core.size import contiguous_strides
from flambeau.inductor.gpu import dnn
from flambeau.inductor.loop.boxes import Box, index_of, origin_of, template
from flambeau.inductor.loop.ir import Extern, Value
from flambeau.inductor.loop.products import product_calls
from flambeau.ops.registry import Primitive

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering

WORTH_A_BYTE = 4        # cost of arithmetic that a GPU does while it moves a byte: storing costs a write, and a read for each consumer
PADDED_FROM = 1 << 20   # elements of a matrix whose rows are worth aligning
PRODUCTS = ("mm", "bmm")


class OnGpu:
    """The `Target` for NVIDIA GPUs."""

    device = "cuda"
    rounds = False
    stores_narrow = True

    def call(self, lowering: Lowering, node: Any, prim: Any, args: list) -> Any:
        """None: kernels of whole operators are found as the devices' own."""
        return None

    def library(self, lowering: Lowering, node: Any, prim: Primitive, args: list) -> Box | None:
        """cuBLAS's or cuDNN's call."""
        if prim.name in PRODUCTS:
            return _product(lowering, node, args)
        return _convolution(lowering, node, args) if prim.name in dnn.CONVOLUTIONS else None

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


def _product(lowering: Lowering, node: Any, args: list) -> Box:
    val = node.meta["val"]
    shape, strides = index_of(tuple(val._layout.shape)), index_of(tuple(val._layout.strides))
    out = lowering.new_buffer(val.dtype, shape, strides if lowering.is_exact(node) else aligned_strides(shape, strides, val.dtype))
    return lowering.product(node, next(product_calls(lowering, node, args, out)), out)


def _convolution(lowering: Lowering, node: Any, args: list) -> Box | None:
    op, val = node.target.name, node.meta["val"]
    shape = index_of(tuple(val._layout.shape))
    if val.dtype.name not in dnn.DTYPES or 0 in (*shape, *args[0].shape, *args[1].shape) or len(shape) < 3:
        return None
    views, out, result, window, convolution = dnn.lower(lowering, op, args[:2], shape, args)
    lowering.add(Extern(op, views, (out,), node.target, template(args), (origin_of(node),), window=window, convolution=convolution))
    return result


def aligned_strides(shape: Sequence[Index], strides: Sequence[Index], kind: dtype) -> tuple[Index, ...]:
    """Rows padded to 16 bytes where a large matrix's are not: the tensor cores' fast kernels need them so."""
    words = 16 // kind.itemsize
    if len(shape) < 2 or not all(isinstance(n, int) for n in shape) or tuple(strides) != tuple(contiguous_strides(shape)):
        return tuple(strides)
    sizes = [int(n) for n in shape]  # type: ignore[arg-type]
    if kind.itemsize > 2 or sizes[-1] % words == 0 or math.prod(sizes) < PADDED_FROM:
        return tuple(strides)
    return tuple(contiguous_strides((*shape[:-1], -(-shape[-1] // words) * words)))


def _align_rows(box: Box) -> None:
    """Choose the layout of an operand that is yet to be stored."""
    while box.view is None and box.source is not None:
        box = box.source[0]
    if box.view is None:
        box.strides = aligned_strides(box.shape, box.strides, box.dtype)


def _feeds_product(node: Any) -> bool:
    """Whether a node, or a view of it, is an operand of a matrix product."""
    return any(getattr(user.target, "name", "") in PRODUCTS or ("view" in getattr(user.target, "tags", ()) and _feeds_product(user))
               for user in node.users)
