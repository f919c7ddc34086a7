"""Runs an NNAPI model on the host: each operation by its kernel, whose results are checked against the operands that the model tells of."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .codes import STEPPED, NnapiError, Operation, Type
from .integers import in_integers
from .kernels import KERNELS
from .model import ARRAYS, Model, Operand


def run(model: Model, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a model; NnapiError for inputs that do not fit, and for an operation that cannot be."""
    if len(inputs) != len(model.inputs):
        raise NnapiError(f"the NNAPI model takes {len(model.inputs)} inputs, got {len(inputs)}")
    values: dict[int, Any] = {i: _constant(op) for i, op in enumerate(model.operands) if op.value is not None}
    for i, given in zip(model.inputs, inputs):
        _fits(model.operands[i], given, f"input {model.inputs.index(i)}")
        values[i] = given
    for step in model.steps:
        ins, outs = ([model.operands[i] for i in places] for places in (step.inputs, step.outputs))
        try:
            made = _kernel(step.code, ins, outs)(*[values[i] for i in step.inputs])
        except Exception as error:
            shapes = [getattr(values[i], "shape", values[i]) for i in step.inputs]
            raise NnapiError(f"{step.code.name} of {shapes}: {type(error).__name__}: {error}") from error
        made = made if isinstance(made, (tuple, list)) else [made]
        if len(made) != len(outs):
            raise NnapiError(f"{step.code.name} gives {len(made)} results, and the model has {len(outs)}")
        for i, operand, value in zip(step.outputs, outs, made):
            value = np.ascontiguousarray(value, ARRAYS[operand.type]).reshape(np.shape(value))
            _fits(operand, value, f"a result of {step.code.name}")
            values[i] = value
    return [values[i] for i in model.outputs]


def _constant(operand: Operand) -> Any:
    """A scalar as Python's number, a tensor as its array."""
    assert operand.value is not None
    return operand.value.item() if operand.type in (Type.FLOAT32, Type.INT32, Type.BOOL) and not operand.shape else operand.value


def _fits(operand: Operand, array: np.ndarray, what: str) -> None:
    shape = operand.shape
    if array.dtype != ARRAYS[operand.type] or array.ndim != len(shape) or any(n and n != m for n, m in zip(shape, array.shape)):
        raise NnapiError(f"{what} is to be {operand.type.name} of shape {list(shape)} (0: any size), got {array.dtype} of "
                         f"{list(array.shape)}")


def _kernel(code: Operation, ins: Sequence[Operand], outs: Sequence[Operand]) -> Callable[..., Any]:
    """How an operation is computed on such operands: in integers where its first one has eight bits."""
    if ins and ins[0].type in STEPPED and code is not Operation.DEQUANTIZE:
        return in_integers(code, ins, outs)
    if code not in KERNELS:
        raise NnapiError(f"the host has no {code.name}")
    about: dict[Operation, Callable[[], dict[str, Any]]] = {
        Operation.QUANTIZE: lambda: {"to": outs[0]}, Operation.DEQUANTIZE: lambda: {"of": ins[0]},
        Operation.CAST: lambda: {"kind": outs[0].type}}
    return functools.partial(KERNELS[code], **about[code]()) if code in about else KERNELS[code]



