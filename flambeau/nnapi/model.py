"""An NNAPI model: operands and operations, as bytes and back.

The bytes are little-endian words of 32 bits: `MAGIC`, the version, how many operands, operations, inputs, outputs and bytes of weights
there are; each operand (type, rank, sizes, scale, zero point, where its value is, at which byte and how many of them; of one with a scale
for each channel also that dimension, and the scales); each operation
(code, how many inputs, their operands, how many outputs, theirs); the inputs' and the outputs' operands. A size of 0 is one that is not
known before the model runs, as in NNAPI. Values of constants lie in a buffer of weights, which travels beside the words.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .codes import NnapiError, Operation, Type

MAGIC, VERSION = 0x4E4E4C46, 1
ARRAYS: dict[Type, Any] = {
    Type.FLOAT32: np.float32, Type.INT32: np.int32, Type.BOOL: np.uint8, Type.TENSOR_FLOAT32: np.float32, Type.TENSOR_INT32: np.int32,
    Type.TENSOR_QUANT8_ASYMM: np.uint8, Type.TENSOR_BOOL8: np.uint8, Type.TENSOR_QUANT8_ASYMM_SIGNED: np.int8,
    Type.TENSOR_QUANT16_SYMM: np.int16, Type.TENSOR_QUANT8_SYMM_PER_CHANNEL: np.int8}
"""The arrays that hold operands of the types that are used."""
SCALARS = (Type.FLOAT32, Type.INT32, Type.BOOL)
MOST_ELEMENTS = 2**31


class Operand(NamedTuple):
    """One operand; `value` is what a constant holds, `scales` those along the dimension `channel` of one that has several."""

    type: Type
    shape: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0
    value: np.ndarray | None = None
    channel: int = 0
    scales: tuple[float, ...] = ()


class Step(NamedTuple):
    """One operation."""

    code: Operation
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Model(NamedTuple):
    """All of it."""

    operands: list[Operand]
    steps: list[Step]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def to_bytes(model: Model) -> tuple[bytes, bytes]:
    """The words and the weights of a model."""
    words: list[bytes] = []
    weights = bytearray()

    def put(*numbers: int) -> None:
        words.append(struct.pack(f"<{len(numbers)}i", *numbers))

    for operand in model.operands:
        put(operand.type, len(operand.shape), *operand.shape)
        words.append(struct.pack("<f", operand.scale))
        if operand.value is None:
            put(operand.zero_point, 0, 0, 0)
        else:
            weights += b"\0" * (-len(weights) % 16)
            data = np.ascontiguousarray(operand.value).tobytes()
            put(operand.zero_point, 1, len(weights), len(data))
            weights += data
        if operand.type is Type.TENSOR_QUANT8_SYMM_PER_CHANNEL:
            put(operand.channel, len(operand.scales))
            words.append(struct.pack(f"<{len(operand.scales)}f", *operand.scales))
    for step in model.steps:
        put(step.code, len(step.inputs), *step.inputs, len(step.outputs), *step.outputs)
    put(*model.inputs, *model.outputs)
    counts = len(model.operands), len(model.steps), len(model.inputs), len(model.outputs), len(weights)
    head = struct.pack("<Iiiiiii", MAGIC, VERSION, *counts)
    return head + b"".join(words), bytes(weights)


class _Words:
    """Reads words, and refuses to read past their end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def some(self, count: int, what: str, form: str = "i") -> tuple:
        if not 0 <= count <= (len(self.data) - self.at) // 4:
            raise NnapiError(f"the NNAPI model ends within {what} ({len(self.data)} bytes)")
        found = struct.unpack_from(f"<{count}{form}", self.data, self.at)
        self.at += 4 * count
        return found

    def one(self, what: str) -> int:
        return self.some(1, what)[0]


def from_bytes(words: bytes, weights: bytes) -> Model:
    """The model in bytes; NnapiError for what is none."""
    reader = _Words(words)
    magic, = reader.some(1, "its head", "I")
    if magic != MAGIC:
        raise NnapiError(f"these are not the words of an NNAPI model: they begin with {magic:#010x}")
    version, *counts, size = reader.some(6, "its head")
    if version != VERSION:
        raise NnapiError(f"the NNAPI model is of version {version}, and this reads version {VERSION}")
    if size != len(weights):
        raise NnapiError(f"the NNAPI model has {size} bytes of weights, and {len(weights)} were given")
    if any(not 0 <= n <= len(words) for n in counts):
        raise NnapiError(f"the NNAPI model tells of {counts} operands, operations, inputs and outputs in {len(words)} bytes")
    operands = [_operand(reader, weights) for _ in range(counts[0])]
    steps = [_step(reader, operands) for _ in range(counts[1])]
    inputs, outputs = (_indices(reader, n, operands, what) for n, what in zip(counts[2:], ("inputs", "outputs")))
    if reader.at != len(words):
        raise NnapiError(f"the NNAPI model has {len(words) - reader.at} bytes after its end")
    _check_order(operands, steps, inputs, outputs)
    return Model(operands, steps, inputs, outputs)


def _operand(reader: _Words, weights: bytes) -> Operand:
    code, rank = reader.some(2, "an operand")
    if code not in Type.__members__.values() or Type(code) not in ARRAYS:
        raise NnapiError(f"the NNAPI model has an operand of type {code}, which is not used here")
    if not 0 <= rank <= 8:
        raise NnapiError(f"the NNAPI model has an operand of {rank} dimensions")
    shape = reader.some(rank, "an operand's sizes")
    scale, = reader.some(1, "an operand", "f")
    zero, kind, at, count = reader.some(4, "an operand")
    if any(n < 0 for n in shape) or math.prod(n for n in shape if n) > MOST_ELEMENTS or not math.isfinite(scale) or kind not in (0, 1):
        raise NnapiError(f"the NNAPI model has an operand of shape {list(shape)}, scale {scale} and kind {kind}")
    channel, scales = _channels(reader, shape) if code == Type.TENSOR_QUANT8_SYMM_PER_CHANNEL else (0, ())
    if kind == 0:
        return Operand(Type(code), shape, scale, zero, None, channel, scales)
    kept = np.dtype(ARRAYS[Type(code)])
    if not 0 <= at <= at + count <= len(weights) or count != math.prod(shape) * kept.itemsize:
        raise NnapiError(f"the NNAPI model has a constant of shape {list(shape)} in the bytes {at} to {at + count} of {len(weights)}")
    return Operand(Type(code), shape, scale, zero, np.frombuffer(weights, kept, math.prod(shape), at).reshape(shape), channel, scales)


def _channels(reader: _Words, shape: tuple[int, ...]) -> tuple[int, tuple[float, ...]]:
    channel, count = reader.some(2, "an operand")
    scales = reader.some(count, "an operand's scales", "f")
    if not 0 <= channel < len(shape) or count != shape[channel]:
        raise NnapiError(f"the NNAPI model has {count} scales along dimension {channel} of an operand of shape {list(shape)}")
    return channel, scales


def _indices(reader: _Words, count: int, operands: Sequence[Operand], what: str) -> tuple[int, ...]:
    found = reader.some(count, what)
    if any(not 0 <= i < len(operands) for i in found):
        raise NnapiError(f"the NNAPI model names operands {list(found)} as {what}, and has {len(operands)}")
    return found


def _step(reader: _Words, operands: Sequence[Operand]) -> Step:
    code = reader.one("an operation")
    if code not in Operation.__members__.values():
        raise NnapiError(f"the NNAPI model has an operation {code}, which NNAPI has not")
    inputs = _indices(reader, reader.one("an operation"), operands, f"inputs of {Operation(code).name}")
    return Step(Operation(code), inputs, _indices(reader, reader.one("an operation"), operands, f"outputs of {Operation(code).name}"))


def _check_order(operands: Sequence[Operand], steps: Sequence[Step], inputs: tuple, outputs: tuple) -> None:
    """Operations come after what they read; nothing is written twice."""
    known = {i for i, operand in enumerate(operands) if operand.value is not None}
    parts = ((inputs, (), "the inputs"), *((s.outputs, s.inputs, s.code.name) for s in steps), ((), outputs, "the outputs"))
    for made, reads, what in parts:
        early = [i for i in reads if i not in known]
        if early or known & set(made) or len(set(made)) < len(made):
            raise NnapiError(f"the NNAPI model's {what} reads operands before they are made ({early}) or makes some twice")
        known |= set(made)
