"""A model whose tensors go to eight bits and back, computed in eight bits: an operation between DEQUANTIZE and QUANTIZE reads and gives
the quantised tensors themselves where NNAPI has it for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .codes import STEPPED, Fuse, Operation, Type
from .model import ARRAYS, Model, Operand, Step


class Grid(NamedTuple):
    """The numbers that a constant's elements are multiples of: one scale, or one for each place of the dimension `channel`."""

    scales: np.ndarray
    zero_point: int
    channel: int


def in_eight_bits(model: Model, grids: Mapping[int, Grid]) -> Model:
    """The model with operations on quantised tensors; `grids` tells which constants are filters of eight bits."""
    return _pruned(_Pass(_early(model), grids).run())


def _same(x: Operand, out: Operand) -> bool:
    return (x.type, x.scale, x.zero_point) == (out.type, out.scale, out.zero_point)


def _of_unit(scale: float, least: int) -> Callable[[Operand, Operand], bool]:
    """Whether a result has this scale and, unsigned, this zero point."""
    return lambda x, out: (out.scale, out.zero_point) == (scale, least - (0 if out.type is Type.TENSOR_QUANT8_ASYMM else 128))


def _any(x: Operand, out: Operand) -> bool:
    return True


# code -> which scales and zero points NNAPI takes of the first input and the result
COMPUTED: dict[Operation, Callable[[Operand, Operand], bool]] = {
    **dict.fromkeys((Operation.ADD, Operation.SUB, Operation.MUL, Operation.CONCATENATION, Operation.HARD_SWISH, Operation.ELU), _any),
    **dict.fromkeys((Operation.MEAN, Operation.AVERAGE_POOL_2D, Operation.RESIZE_BILINEAR, Operation.RELU1, Operation.RELU6), _same),
    Operation.LOGISTIC: _of_unit(1 / 256, 0), Operation.SOFTMAX: _of_unit(1 / 256, 0), Operation.TANH: _of_unit(1 / 128, 128)}
WEIGHTED = (Operation.CONV_2D, Operation.DEPTHWISE_CONV_2D, Operation.GROUPED_CONV_2D, Operation.TRANSPOSE_CONV_2D, Operation.FULLY_CONNECTED)
# what gives elements of its input, or zero: as well before DEQUANTIZE as after it
MOVES = (Operation.RESHAPE, Operation.TRANSPOSE, Operation.SQUEEZE, Operation.EXPAND_DIMS, Operation.STRIDED_SLICE, Operation.SPLIT,
         Operation.TILE, Operation.CHANNEL_SHUFFLE, Operation.PAD, Operation.MAX_POOL_2D, Operation.RELU, Operation.RESIZE_NEAREST_NEIGHBOR)


def _moves(step: Step, operands: Sequence[Operand]) -> bool:
    """Whether elements are only moved; a window's greatest is one of them, but not what an activation makes of it."""
    if step.code is not Operation.MAX_POOL_2D:
        return step.code in MOVES
    fuse = operands[step.inputs[9]].value
    return fuse is not None and int(fuse) == Fuse.NONE


def _early(model: Model) -> Model:
    """QUANTIZE before what only moves elements, so that it stands where they were computed."""
    operands, steps = list(model.operands), list(model.steps)
    reads = Counter(i for step in steps for i in step.inputs) + Counter(model.outputs)
    made = {step.outputs[0]: k for k, step in enumerate(steps) if len(step.outputs) == 1}
    for k in reversed(range(len(steps))):
        place = k
        while steps[place].code is Operation.QUANTIZE:
            (x,), (out,) = steps[place].inputs, steps[place].outputs
            before = made.get(x, -1)
            if before < 0 or reads[x] > 1 or not _moves(steps[before], operands):
                break
            mover = steps[before]
            operands.append(operands[out]._replace(shape=operands[mover.inputs[0]].shape))
            small = len(operands) - 1
            steps[before] = Step(Operation.QUANTIZE, mover.inputs[:1], (small,))
            steps[place] = Step(mover.code, (small, *mover.inputs[1:]), (out,))
            place = before
    return model._replace(operands=operands, steps=steps)


class _Pass:
    def __init__(self, model: Model, grids: Mapping[int, Grid]) -> None:
        self.model, self.grids = model, grids
        self.operands, self.steps = list(model.operands), list[Step]()
        self.quantised: dict[int, int] = {}         # a tensor of floats -> the one of eight bits that it comes from
        self.renamed: dict[int, int] = {}           # a result of QUANTIZE -> what is the same
        self.reads = Counter(i for step in model.steps for i in step.inputs) + Counter(model.outputs)
        self.quantise = {step.inputs[0]: step.outputs[0] for step in model.steps if step.code is Operation.QUANTIZE}
        self.written: set[int] = set()

    def run(self) -> Model:
        for step in self.model.steps:
            step = step._replace(inputs=tuple([self.renamed.get(i, i) for i in step.inputs]))
            if step.code is Operation.QUANTIZE and step.outputs[0] in self.written:
                continue
            if not (self._again(step) or self._moved(step) or self._computed(step)):
                self.steps.append(step)
            if step.code is Operation.DEQUANTIZE and self.operands[step.inputs[0]].type in STEPPED:
                self.quantised[step.outputs[0]] = step.inputs[0]
        outputs = tuple([self.renamed.get(i, i) for i in self.model.outputs])
        return self.model._replace(operands=self.operands, steps=self.steps, outputs=outputs)

    def _again(self, step: Step) -> bool:
        """Quantised as it was: the same tensor."""
        source = self.quantised.get(step.inputs[0]) if step.code is Operation.QUANTIZE else None
        if source is None or not _same(self.operands[source], self.operands[step.outputs[0]]):
            return False
        self.renamed[step.outputs[0]] = source
        return True

    def _moved(self, step: Step) -> bool:
        source = self.quantised.get(step.inputs[0])
        if source is None or not _moves(step, self.operands):
            return False
        like, made = self.operands[source], []
        for out in step.outputs:
            made.append(self._operand(like._replace(shape=self.operands[out].shape)))
            self.quantised[out] = made[-1]
        self.steps.append(Step(step.code, tuple([self.quantised.get(i, i) for i in step.inputs]), tuple(made)))
        self.steps += [Step(Operation.DEQUANTIZE, (small,), (out,)) for small, out in zip(made, step.outputs)]
        return True

    def _computed(self, step: Step) -> bool:
        out = self.quantise.get(step.outputs[0])
        tensors = [i for i in step.inputs if self.operands[i].type is Type.TENSOR_FLOAT32]
        weights = step.inputs[1:3] if step.code in WEIGHTED else ()
        sources = [self.quantised.get(i) for i in tensors if i not in weights]
        if out is None or self.reads[step.outputs[0]] > 1 or not sources or None in sources:
            return False
        x, result = self.operands[sources[0]], self.operands[out]    # type: ignore[index]
        kinds = {result.type, *(self.operands[i].type for i in sources)}     # type: ignore[index]
        fits = len(kinds) == 1 and (bool(weights) or COMPUTED.get(step.code, lambda *_: False)(x, result))
        small = self._weights(step, x, weights) if fits and weights else {}
        if not fits or small is None:
            return False
        self.steps.append(Step(step.code, tuple([small.get(i, self.quantised.get(i, i)) for i in step.inputs]), (out,)))
        self.written.add(out)
        return True

    def _weights(self, step: Step, x: Operand, weights: tuple[int, ...]) -> dict[int, int] | None:
        """The filter in eight bits, and the bias in steps of the product of both scales; None where NNAPI has no such filter."""
        grid = self.grids.get(weights[0])
        if grid is None:
            return None
        filter_ = _filter(self.operands[weights[0]], grid, x.type)
        if filter_ is None or (filter_.scales and step.code is Operation.FULLY_CONNECTED):
            return None
        bias, by = self.operands[weights[1]], x.scale * np.asarray(filter_.scales or filter_.scale, np.float64)
        assert bias.value is not None
        value = np.clip(np.rint(bias.value / by), -2**31, 2**31 - 1).astype(np.int32)
        scale = 0.0 if filter_.scales else float(by)
        return {weights[0]: self._operand(filter_), weights[1]: self._operand(Operand(Type.TENSOR_INT32, bias.shape, scale, value=value))}

    def _operand(self, operand: Operand) -> int:
        self.operands.append(operand)
        return len(self.operands) - 1


def _filter(operand: Operand, grid: Grid, kind: Type) -> Operand | None:
    """A filter as NNAPI takes it beside inputs of a type: signed with a scale for each channel, or of that type with one."""
    assert operand.value is not None
    along = [1] * len(operand.shape)
    along[grid.channel] = -1
    steps = np.rint(operand.value / grid.scales.reshape(along)).astype(np.int64) + grid.zero_point
    if grid.scales.size > 1:
        fits = grid.zero_point == 0 and steps.min() >= -128 and steps.max() <= 127
        return operand._replace(type=Type.TENSOR_QUANT8_SYMM_PER_CHANNEL, value=steps.astype(np.int8), channel=grid.channel,
                                scales=tuple(grid.scales.tolist())) if fits else None
    info = np.iinfo(ARRAYS[kind])
    for shift in (0, 128, -128):
        least, most = min(steps.min(), grid.zero_point) + shift, max(steps.max(), grid.zero_point) + shift
        if info.min <= least and most <= info.max:
            return operand._replace(type=kind, scale=grid.scales.item(), zero_point=grid.zero_point + shift,
                                    value=(steps + shift).astype(ARRAYS[kind]))
    return None


def _pruned(model: Model) -> Model:
    """Without steps whose results nobody reads, and operands that nothing names."""
    wanted, steps = set(model.outputs), []
    for step in reversed(model.steps):
        if wanted.intersection(step.outputs):
            wanted.update(step.inputs)
            steps.append(step)
    named = sorted({*wanted, *model.inputs, *(i for step in steps for i in step.outputs)})
    place = {i: k for k, i in enumerate(named)}

    def moved(indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([place[i] for i in indices])

    return Model([model.operands[i] for i in named], [Step(s.code, moved(s.inputs), moved(s.outputs)) for s in reversed(steps)],
                 moved(model.inputs), moved(model.outputs))
