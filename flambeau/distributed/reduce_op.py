"""ReduceOp: how a reduction combines what the processes bring."""

from __future__ import annotations

import enum
from typing import Any


class _Kind(enum.Enum):
    """The kinds of reductions."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, UNUSED = range(10)

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"

    def __repr__(self) -> str:
        return f"<RedOpType.{self.name}: {self.value}>"


RedOpType = _Kind
RedOpType.__name__ = RedOpType.__qualname__ = "RedOpType"


class ReduceOp:
    """A kind of reduction (`ReduceOp.SUM`), as an object: `ReduceOp(ReduceOp.SUM)`; with a factor for PREMUL_SUM."""

    RedOpType = _Kind
    SUM, AVG, PRODUCT, MIN, MAX = _Kind.SUM, _Kind.AVG, _Kind.PRODUCT, _Kind.MIN, _Kind.MAX
    BAND, BOR, BXOR, PREMUL_SUM = _Kind.BAND, _Kind.BOR, _Kind.BXOR, _Kind.PREMUL_SUM

    def __init__(self, op: _Kind = _Kind.SUM, factor: Any = None) -> None:
        if not isinstance(op, _Kind):
            raise TypeError(f"ReduceOp() takes a kind such as ReduceOp.SUM, not {op!r}")
        self.op, self.factor = op, factor

    def __eq__(self, other: object) -> bool:
        return self.op is other if isinstance(other, _Kind) else isinstance(other, ReduceOp) and (
            (self.op, self.factor) == (other.op, other.factor))

    def __hash__(self) -> int:
        return hash(self.op)

    def __repr__(self) -> str:
        return f"<torch.distributed.distributed_c10d.ReduceOp {self.op}>"


class _Reduce:
    """The old spelling, `torch.distributed.reduce_op.SUM`."""

    SUM, PRODUCT, MAX, MIN = RedOpType.SUM, RedOpType.PRODUCT, RedOpType.MAX, RedOpType.MIN


reduce_op = _Reduce()


def supports_complex(reduceOp: Any) -> bool:
    """Whether complex numbers can be reduced so: they add up, and have no order."""
    kind = reduceOp.op if isinstance(reduceOp, ReduceOp) else reduceOp
    return kind in (RedOpType.SUM, RedOpType.AVG, RedOpType.PREMUL_SUM, RedOpType.UNUSED)


def premul_sum(factor: Any) -> ReduceOp:
    """A sum in which each process's part is multiplied by its `factor` (a number or a tensor of one element) first."""
    return ReduceOp(RedOpType.PREMUL_SUM, factor)


def kind_of(op: Any) -> RedOpType:
    """The kind of a ReduceOp or kind; TypeError for what is none."""
    if isinstance(op, RedOpType):
        return op
    if isinstance(op, ReduceOp):
        return op.op
    raise TypeError(f"op must be a ReduceOp such as ReduceOp.SUM, not {op!r}")
