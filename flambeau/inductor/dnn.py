"""Convolutions of compiled graphs on a GPU: cuDNN on operands with their channels innermost, which tensor cores want.

An operand that is yet to be stored is stored so; what lies otherwise already (images, weights that nothing is done to) is
copied once a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.backends.cuda.dnn_library import describe, laid_out
from flambeau.inductor.ir import View

if TYPE_CHECKING:
    from flambeau.inductor.lowering import Box, Lowering

CONVOLUTIONS = {"convolution": "forward", "convolution_input_grad": "input_grad", "convolution_weight_grad": "weight_grad"}
# for each kind: where its two operands and its result stand among x, w and y
ROLES = {"forward": (0, 1, 2), "input_grad": (2, 1, 0), "weight_grad": (2, 0, 1)}
DTYPES = ("float32", "float16", "bfloat16")


def operands(lowering: Lowering, boxes: list[Box]) -> list[View]:
    """Views of the boxes with their channels innermost; one spatial axis stays as it is."""
    return [_placed(lowering, box) for box in boxes]


def _placed(lowering: Lowering, box: Box) -> View:
    want = laid_out(box.shape, len(box.shape) > 3)      # type: ignore[arg-type]
    if not box.settled() and box.source is None:
        box.strides = want
    view = box.realize()
    if all(s == t or n == 1 for s, t, n in zip(view.strides, want, view.shape)) and view.offset == 0:
        return view._replace(strides=want)
    found = lowering.relaid.get(view)
    if found is None:
        found = lowering.relaid[view] = box.copied(want).realize()
    return found


def description(op: str, shapes: list[tuple], dtype: str, window: tuple) -> Any:
    """What cuDNN is told: `shapes` are those of the two operands and of the result."""
    kind = CONVOLUTIONS[op]
    placed = dict(zip(ROLES[kind], shapes))
    return describe(kind, dtype, [placed[k] for k in range(3)], len(shapes[0]) > 3, *window)
