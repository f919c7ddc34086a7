"""Operations on tensors of eight bits, in integers: an element q is the number scale * (q - zero_point), sums are integers of 32 bits, and
come to another scale by a fixed-point factor (Jacob et al. 2017, "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", section 2)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .codes import Fuse, NnapiError, Operation
from .kernels import BOUNDS, KERNELS
from .model import ARRAYS, Operand

Integers = Callable[..., Any]     # (operands of the inputs, that of the result, values) -> the result's elements
ROOM = 20   # by how many bits terms are widened before they come to one scale


def in_integers(code: Operation, ins: Sequence[Operand], outs: Sequence[Operand]) -> Callable[..., Any]:
    """The kernel of an operation for such operands; NnapiError where there is none, or a scale is not positive."""
    if code not in INTEGERS:
        raise NnapiError(f"the host has no {code.name} of {ins[0].type.name}")
    about = [op for op in (*ins, *outs) if op.type in (ins[0].type, outs[0].type)]
    if not all(op.scale > 0 for op in about) or outs[0].type is not ins[0].type:
        raise NnapiError(f"{code.name} of {ins[0].type.name} gives {outs[0].type.name}, with scales {[op.scale for op in about]}: "
                         "they are to be positive, and the result of the same type")
    return functools.partial(INTEGERS[code], ins, outs[0])


def rescaled(sums: np.ndarray, factor: Any) -> np.ndarray:
    """Integers times a positive factor (one, or some that broadcast), to the nearest: a product with 31 bits of it, and a shift."""
    mantissa, exponent = np.frexp(np.asarray(factor, np.float64))
    fixed, shift = np.rint(mantissa * 2.0**31).astype(np.int64), np.clip(31 - exponent.astype(np.int64), 1, 62)
    return (sums.astype(np.int64) * fixed + (np.int64(1) << (shift - 1))) >> shift


def limits(out: Operand, fuse: int = Fuse.NONE) -> tuple[int, int]:
    """The least and the greatest element, of those that an activation leaves."""
    info = np.iinfo(ARRAYS[out.type])
    low, high = [end if bound is None else int(np.clip(out.zero_point + round(bound / out.scale), info.min, info.max))
                 for bound, end in zip(BOUNDS[Fuse(fuse)], (info.min, info.max))]
    return low, high


def _bounded(steps: np.ndarray, out: Operand, fuse: int = Fuse.NONE) -> np.ndarray:
    """So many steps of a result's scale from its zero as its elements."""
    return np.clip(steps + out.zero_point, *limits(out, fuse))


def _centred(x: np.ndarray, of: Operand) -> np.ndarray:
    return x.astype(np.int64) - of.zero_point


# -- what is computed in integers -------------------------------------------------------------------------------------------------------
def _weighted(code: Operation, activation: int) -> Integers:
    """Convolutions and products; `activation`: where it is among what comes after the bias, the NCHW flag after it."""
    def kernel(ins: Sequence[Operand], out: Operand, x: Any, w: Any, b: Any, *how: Any) -> np.ndarray:
        plain = *how[:activation], int(Fuse.NONE), *how[activation + 1:]
        doubles = _centred(x, ins[0]), _centred(w, ins[1]), b       # sums of these integers are exact in float64
        sums = KERNELS[code](*[a.astype(np.float64) for a in doubles], *plain)
        factor = np.asarray(ins[1].scales or ins[1].scale, np.float64) * ins[0].scale / out.scale
        images = how[activation + 1:activation + 2] == (1,)
        return _bounded(rescaled(np.rint(sums), factor.reshape(-1, 1, 1) if images else factor), out, how[activation])

    return kernel


def _sum(sign: int) -> Integers:
    def kernel(ins: Sequence[Operand], out: Operand, x: Any, y: Any, fuse: int = 0) -> np.ndarray:
        common = 2 * max(ins[0].scale, ins[1].scale)
        a, b = (rescaled(_centred(v, op) << ROOM, op.scale / common) for v, op in zip((x, y), ins))
        return _bounded(rescaled(a + sign * b, common / (out.scale * 2**ROOM)), out, fuse)

    return kernel


def _product(ins: Sequence[Operand], out: Operand, x: Any, y: Any, fuse: int = 0) -> np.ndarray:
    return _bounded(rescaled(_centred(x, ins[0]) * _centred(y, ins[1]), ins[0].scale * ins[1].scale / out.scale), out, fuse)


def _mean(code: Operation, activation: int | None = None) -> Integers:
    """Means of elements, halves upwards; the scale stays."""
    def kernel(ins: Sequence[Operand], out: Operand, x: Any, *how: Any) -> np.ndarray:
        fuse = Fuse.NONE if activation is None else how[activation]
        plain = how if activation is None else (*how[:activation], int(Fuse.NONE), *how[activation + 1:])
        made = KERNELS[code](_centred(x, ins[0]).astype(np.float64), *plain)
        return _bounded(np.floor(made + 0.5 + 1e-9), out, fuse)     # a half may have been divided into a little less

    return kernel


def _joined(ins: Sequence[Operand], out: Operand, *args: Any) -> np.ndarray:
    parts = [x if (op.scale, op.zero_point) == (out.scale, out.zero_point) else _bounded(rescaled(_centred(x, op), op.scale / out.scale), out)
             for x, op in zip(args[:-1], ins)]
    return np.concatenate(parts, args[-1])


# -- what looks an element up, and what moves elements -----------------------------------------------------------------------------------
def _by_numbers(code: Operation) -> Integers:
    """Functions of the numbers that elements are: what a table of 256 results gives."""
    def kernel(ins: Sequence[Operand], out: Operand, x: Any, *how: Any) -> np.ndarray:
        numbers = _centred(x, ins[0]).astype(np.float32) * np.float32(ins[0].scale)
        return _bounded(np.rint(KERNELS[code](numbers, *how) / np.float32(out.scale)), out)

    return kernel


def _clipped(fuse: Fuse) -> Integers:
    return lambda ins, out, x: np.clip(x, *limits(out, fuse))


def _moved(code: Operation) -> Integers:
    return lambda ins, out, *values: KERNELS[code](*values)


def _greatest(ins: Sequence[Operand], out: Operand, x: Any, *how: Any) -> np.ndarray:
    """Elements of images, as floats: their padding is the least of those."""
    return np.clip(KERNELS[Operation.MAX_POOL_2D](x.astype(np.float32), *how[:8], int(Fuse.NONE), *how[9:]), *limits(out, how[8]))


INTEGERS: dict[Operation, Integers] = {
    **{code: _weighted(code, activation) for code, activation in (
        (Operation.CONV_2D, 6), (Operation.DEPTHWISE_CONV_2D, 7), (Operation.GROUPED_CONV_2D, 7), (Operation.TRANSPOSE_CONV_2D, 6),
        (Operation.FULLY_CONNECTED, 0))},
    Operation.ADD: _sum(1), Operation.SUB: _sum(-1), Operation.MUL: _product, Operation.CONCATENATION: _joined,
    Operation.MEAN: _mean(Operation.MEAN), Operation.AVERAGE_POOL_2D: _mean(Operation.AVERAGE_POOL_2D, 8),
    Operation.RELU: _clipped(Fuse.RELU), Operation.RELU1: _clipped(Fuse.RELU1), Operation.RELU6: _clipped(Fuse.RELU6),
    **{code: _by_numbers(code) for code in (Operation.LOGISTIC, Operation.TANH, Operation.SOFTMAX, Operation.HARD_SWISH, Operation.ELU,
                                            Operation.RESIZE_BILINEAR)},
    **{code: _moved(code) for code in (Operation.RESHAPE, Operation.TRANSPOSE, Operation.SQUEEZE, Operation.EXPAND_DIMS, Operation.SPLIT,
                                       Operation.STRIDED_SLICE, Operation.TILE, Operation.CHANNEL_SHUFFLE)},
    Operation.MAX_POOL_2D: _greatest,
    Operation.PAD: lambda ins, out, x, pads: KERNELS[Operation.PAD_V2](x, pads, ins[0].zero_point),
    Operation.RESIZE_NEAREST_NEIGHBOR: lambda ins, out, x, *how: KERNELS[Operation.RESIZE_NEAREST_NEIGHBOR](x.astype(np.float32), *how),
}
