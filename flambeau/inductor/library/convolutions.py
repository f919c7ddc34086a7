"""Convolutions and their gradients: by oneDNN on a CPU, by cuDNN on a GPU, on images with their channels innermost.

On a GPU an operand that is yet to be stored is stored so; what lies otherwise already (images, weights that nothing is done to) is
copied once a call. Narrow floats get their channels filled up to whole words of 16 bytes, without which cuDNN's kernels are
slow, and images with few channels that a kernel strides over are taken in blocks of pixels (blocks.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flambeau.backends.cpu import onednn
from flambeau.backends.cuda.dnn_library import describe, laid_out
from flambeau.core.dtypes import bfloat16, float16, float32
from flambeau.core.expr import Expr, Index
from flambeau.core.size import contiguous_strides, permuted_strides
from flambeau.core.windows import ROLES, W, Y, by_role, window_count
from flambeau.inductor import call as calls
from flambeau.inductor.library.blocks import Blocks, blocks_for
from flambeau.inductor.library.onednn import REFUSED, call, ends_of, goes_along, is_exact, is_slow, made, operand
from flambeau.inductor.library.record import LibraryCall, Pointer
from flambeau.inductor.loop.boxes import Box, index_of, origin_of, template
from flambeau.inductor.loop.ir import Extern, Program, Value, View

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering

KINDS = (float32, bfloat16, float16)
WORD = 8            # channels of 16 bits
LAYOUTS = ("given", "free")


# -- on a CPU ------------------------------------------------------------------------------------------------
def _for_cpu(lowering: Lowering, node: Any, prim: Any, args: list) -> Box | None:
    """A call on images in channels-last order, which oneDNN is fastest with; only a result that is not worked on further is made as
    it is wanted."""
    val, op = node.meta["val"], prim.name
    shape = index_of(tuple(val._layout.shape))
    if val.dtype not in KINDS or not onednn.available():
        return None
    first, second = (a.realize() for a in args[:2])
    known = (*shape[1:], *first.shape[1:], *second.shape[1:])     # batches may vary
    if not all(isinstance(n, int) for n in known) or 0 in shape or len(shape) < 3:
        return None
    order = (0, *range(2, len(shape)), 1)
    as_given = first.strides == tuple(contiguous_strides(first.shape)) and lowering.becomes_result(node)
    plain = ROLES[op][2] == W or as_given
    out = lowering.new_buffer(val.dtype, shape, contiguous_strides(shape) if plain else permuted_strides(shape, order))
    step = Extern(op, (first, second), (out,), prim, template(args), (origin_of(node),))
    if not _choose_layouts(step):
        lowering.program.buffers.pop(out.buffer)
        return None
    return lowering.product(node, step, out, image=True)


def _cpp(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    words, views = _described(_keeping(step, program))
    return call(words, views, pointer, step.outputs[0])


def _keeping(step: Extern, program: Program) -> Extern:
    """With a weight that is reordered once and for all, where it may be."""
    image, weight, result = step.layouts
    if program.assumed.frozen and weight == "free" and program.buffers[step.inputs[1].buffer].kind == "constant":
        return replace(step, layouts=(image, "constant", result))
    return step


def _described(step: Extern) -> tuple[tuple[int, ...], list[View]]:
    """oneDNN's description of a convolution or of one of its gradients, and the tensors in oneDNN's order."""
    *_, stride, padding, dilation, groups = step.args
    bias, posts, read = ends_of(step, step.inputs[2:], 1)
    if bias:
        bias = bias._replace(shape=bias.shape[1:2], strides=bias.strides[1:2])
    views, order = _roles(step), onednn.ORDER[step.op]
    words = onednn.conv_words(step.op, [operand(views[role], step.layouts[role]) for role in order], operand(bias) if bias else None,
                              stride=stride, padding=padding, dilation=dilation, groups=groups, post=posts)
    return words, [*(views[role] for role in order), *([bias] if bias else []), *read]


def _choose_layouts(step: Extern) -> bool:
    """Find layouts of the operands (x, w, y) that oneDNN has a fast kernel for; False where there are none."""
    likely = _likely_layouts(step)
    for layouts in (likely, ("given", "free", "given"), ("free", "free", "given"), ("given", "free", "free"), ("free",) * 3):
        step.layouts = layouts
        try:
            made(_described(step)[0])
            return True
        except REFUSED:
            continue
    return False


def _likely_layouts(step: Extern) -> tuple[str, str, str]:
    """Images that lie with their channels innermost stay so; others are better reordered in the call, but for windows of one
    element, which are matrix products, and where each channel is a group of its own and the other image stays."""
    x, w, y = _roles(step)
    lies_last = [image.shape[1] != 1 and image.strides[1] == 1 for image in (x, y)]
    if all(n == 1 for n in w.shape[2:]) or (w.shape[1] == 1 and any(lies_last)):
        return "given", "free", "given"
    first, second = ("free" if image.shape[1] != 1 and not last else "given" for image, last in zip((x, y), lies_last, strict=True))
    return first, "free", second


def _roles(step: Extern) -> list[View]:
    """The image, the weight and the result of a convolution among the operands of it or of its gradient."""
    return by_role(step.op, step.inputs[:2], step.outputs[0])


def _is_fast(step: Extern) -> bool:
    *_, read = ends_of(step, step.inputs[2:], 1)
    by_channel = any(goes_along(view, 1) for view in read)      # slow beside planes, which is not to be seen from outside
    return not is_slow(step) and is_exact(step) and not (by_channel and step.outputs[0].strides[1] != 1) and _choose_layouts(step)


# -- on a GPU ------------------------------------------------------------------------------------------------
def _for_gpu(lowering: Lowering, node: Any, prim: Any, args: list) -> Box | None:
    """cuDNN's call."""
    op, boxes, (*window, groups) = prim.name, args[:2], args[-4:]
    shape = index_of(tuple(node.meta["val"]._layout.shape))
    if node.meta["val"].dtype not in KINDS or 0 in (*shape, *args[0].shape, *args[1].shape) or len(shape) < 3:
        return None
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
    out = lowering.new_buffer(dtype, full, laid_out(full, len(shape) > 3))
    shapes = by_role(op, [v.shape for v in views], out.shape)
    conv = None
    if all(isinstance(n, int) for numbers in (*shapes, *window) for n in numbers):
        conv = describe(op, dtype.name, shapes, len(shape) > 3, *window)
    lowering.add(Extern(op, views, (out,), prim, template(args), (origin_of(node),), window=tuple(map(tuple, window)), convolution=conv))
    result = lowering.strided(out._replace(shape=shape))
    if blocks is None or ROLES[op][2] == Y:
        return result
    return Box(lowering, asked, dtype, fn=blocks.joined(ROLES[op][2], result))


def _cuda(calling: Any, k: int, step: Extern) -> calls.Step:
    """By addresses where all sizes are known, else through arrays."""
    conv, views = step.convolution, _roles(step)
    if conv is None:
        return calls.ByArrays("convolve", (step.op, *map(calling.look, views), len(views[0].shape) > 3, *step.window))
    return calls.ByAddress(f"c{k}", "dnn", (conv,), calls.places(views))


def _cut(lowering: Lowering, box: Box, blocks: Blocks, role: int) -> Box:
    """An operand by blocks of pixels."""
    if role == Y:
        return box
    key = (box, blocks, role)
    if key not in lowering.cut:
        lowering.cut[key] = Box(lowering, blocks.shapes[role], box.dtype, fn=blocks.cut(role, lowering.tracer, box), origins=box.origins)
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
    return Box(lowering, full, box.dtype, strides, fn=element, origins=box.origins)


# -- on both -------------------------------------------------------------------------------------------------
def _wrongs(step: Extern) -> Iterator[str]:
    """Convolutions on CPUs say how each of x, w, y lies; those of cuDNN have the shapes that their window makes."""
    x, w, y = _roles(step)
    if step.window:
        if any(isinstance(n, Expr) for v in (x, w, y) for n in v.shape):
            return
        sizes = tuple(map(window_count, x.shape[2:], w.shape[2:], *step.window))
        if x.shape[1] != w.shape[1] * step.args[-1] or y.shape != (x.shape[0], w.shape[0], *sizes):
            yield f"a convolution of {list(x.shape)} with {list(w.shape)} gives {[x.shape[0], w.shape[0], *sizes]}, not {list(y.shape)}"
        return
    if len(step.layouts) != 3 or any(name not in LAYOUTS for name in step.layouts):
        yield f"the layouts of x, w and y are {step.layouts!r}; each is one of {', '.join(LAYOUTS)}"
    if any(v.dtype is not step.outputs[0].dtype for v in step.inputs[:2]):
        yield f"it convolves {', '.join(v.dtype.name for v in step.inputs[:2])} to {step.outputs[0].dtype.name}"


CONVOLUTION = LibraryCall({"cpu": _for_cpu, "cuda": _for_gpu}, _cpp, _cuda, _wrongs, _is_fast)
