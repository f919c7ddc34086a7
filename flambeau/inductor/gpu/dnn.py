"""Convolutions of compiled graphs on a GPU: cuDNN on operands with their channels innermost, which tensor cores want.

An operand that is yet to be stored is stored so; what lies otherwise already (images, weights that nothing is done to) is
copied once a call. Narrow floats get their channels filled up to whole words of 16 bytes, without which cuDNN's kernels are
slow, and images with few channels that a kernel strides over are taken in blocks of pixels (blocks.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.backends.cuda.dnn_library import describe, laid_out
from flambeau.core.expr import Index
from flambeau.core.windows import ROLES, Y, by_role
from flambeau.inductor.gpu.blocks import Blocks, blocks_for
from flambeau.inductor.loop.ir import Value, View

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Box, Lowering

DTYPES = ("float32", "float16", "bfloat16")
WORD = 8            # channels of 16 bits


def lower(lowering: Lowering, op: str, boxes: Sequence[Box], shape: tuple,
          args: Sequence[Any]) -> tuple[tuple[View, ...], View, Box, tuple[tuple[int, ...], ...], Any]:
    """(operands, the result's whole buffer, the result in it, the window, cuDNN's description if all sizes are known) of a convolution."""
    *window, groups = args[-4:]
    dtype, asked = boxes[0].dtype, shape
    shapes = by_role(op, [box.shape for box in boxes], shape)
    known = isinstance(shapes[0][1], int) and isinstance(shapes[1][1], int)      # the channels, of both or of none
    fill = groups == 1 and dtype.itemsize == 2 and len(shape) > 3 and known
    blocks = blocks_for(shapes, *window) if fill else None
    if blocks is not None:
        boxes = [_cut(lowering, box, blocks, role) for box, role in zip(boxes, ROLES[op])]
        shape, window = blocks.shapes[ROLES[op][2]], [(1, 1), (0, 0), (1, 1)]
    views = tuple(_placed(lowering, box, fill and role != Y) for box, role in zip(boxes, ROLES[op]))
    full = _filled(shape) if fill and ROLES[op][2] != Y else shape
    strides = laid_out(full, len(shape) > 3)
    out = lowering.new_buffer(dtype, full, strides)
    shapes = by_role(op, [v.shape for v in views], out.shape)
    conv = None
    if all(isinstance(n, int) for numbers in (*shapes, *window) for n in numbers):
        conv = describe(op, dtype.name, shapes, len(shape) > 3, *window)
    result = lowering.strided(out._replace(shape=shape))
    if blocks is not None and ROLES[op][2] != Y:
        result = type(result)(lowering, asked, dtype, fn=blocks.joined(ROLES[op][2], result))
    return views, out, result, tuple(tuple(w) for w in window), conv


def _cut(lowering: Lowering, box: Box, blocks: Blocks, role: int) -> Box:
    """An operand by blocks of pixels."""
    if role == Y:
        return box
    key = (box, blocks, role)
    if key not in lowering.cut:
        lowering.cut[key] = type(box)(lowering, blocks.shapes[role], box.dtype, fn=blocks.cut(role, lowering.tracer, box),
                                      origins=box.origins)
    return lowering.cut[key]


def _filled(shape: Sequence[Index]) -> tuple[Index, ...]:
    """The shape with a whole number of words of channels."""
    channels = shape[1]
    return (shape[0], -(-channels // WORD) * WORD, *shape[2:]) if isinstance(channels, int) else tuple(shape)


def _placed(lowering: Lowering, box: Box, fill: bool) -> View:
    """The box in memory with its channels innermost, filled up with zeros if `fill`; one spatial axis stays as it is."""
    last = len(box.shape) > 3
    full = _filled(box.shape) if fill else box.shape
    want = laid_out(full, last)
    if full != box.shape:
        key = (box, "filled")
        if key not in lowering.relaid:
            lowering.relaid[key] = _with_zeros(lowering, box, full, want).realize()
        return lowering.relaid[key]
    if not box.settled() and box.source is None:
        box.strides = want
    view = box.realize()
    if all(s == t or n == 1 for s, t, n in zip(view.strides, want, view.shape)) and view.offset == 0:
        return view._replace(strides=want)
    if view not in lowering.relaid:
        lowering.relaid[view] = box.copied(want).realize()
    return lowering.relaid[view]


def _with_zeros(lowering: Lowering, box: Box, full: tuple[Index, ...], strides: tuple[Index, ...]) -> Box:
    o, channels = lowering.tracer, box.shape[1]

    def element(idx: Sequence[Index]) -> Value:
        return o.masked(o.index_lt(idx[1], channels), lambda: box(idx), 0)
    return type(box)(lowering, full, box.dtype, strides, fn=element, origins=box.origins)
