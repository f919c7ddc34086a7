"""How a tensor lies over the processes of a mesh's dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Placement:
    """What each process of a dimension has of a tensor."""

    _flambeau_fact = "value"    # by which a captured graph knows it

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it has a part along `dim` (or any)."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether it has all."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether what it has is to be combined with the others' (by `reduce_op`)."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """A part along `dim`: as many rows as `chunk` gives."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: Any) -> tuple[int, int]:
        """(size, offset) of the part of process `rank` of `curr_local_size` rows in `num_chunks` parts."""
        full = -(-curr_local_size // num_chunks)
        offset = min(rank * full, curr_local_size)
        return min(full, curr_local_size - offset), offset


@dataclass(frozen=True)
class _StridedShard(Shard):
    """A part along `dim` of each of `split_factor` groups of rows."""

    split_factor: int = 1


@dataclass(frozen=True)
class Replicate(Placement):
    """All of it."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """A summand: `reduce_op` of all is the tensor."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


__all__ = ["Partial", "Placement", "Replicate", "Shard"]
