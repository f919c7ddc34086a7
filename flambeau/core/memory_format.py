"""Memory formats and layouts: the names torch gives to orders of elements in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from .size import channels_last_strides, is_contiguous


class memory_format:
    """A named order of elements: contiguous, channels-last, or that of the source."""

    __slots__ = ("name", "rank")

    def __init__(self, name: str, rank: int | None = None):
        self.name, self.rank = name, rank

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple:
        return memory_format_named, (self.name,)

    def matches(self, shape: Sequence[int], strides: Sequence[int]) -> bool:
        """Whether these strides are in this format."""
        if self.rank is None:
            return is_contiguous(shape, strides)
        if len(shape) != self.rank:
            return False
        return all(a == b or n == 1 for a, b, n in zip(strides, channels_last_strides(shape), shape))

    def strides(self, shape: Sequence[int]) -> tuple | None:
        """The strides of `shape` in this format; None means row-major."""
        if self.rank is None:
            return None
        if len(shape) != self.rank:
            raise RuntimeError(f"required rank {self.rank} tensor to use {self.name} format, got shape {list(shape)}")
        return channels_last_strides(shape)


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last", 4)
channels_last_3d = memory_format("channels_last_3d", 5)


def memory_format_named(name: str) -> memory_format:
    """The format called `name`."""
    return {f.name: f for f in (contiguous_format, preserve_format, channels_last, channels_last_3d)}[name]


class layout:
    """How a tensor's elements are organised: in one array (`strided`), or only some of them with their places (sparse)."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple:
        return layout_named, (repr(self),)


strided = layout("strided")
sparse_coo, sparse_csr, sparse_csc = layout("sparse_coo"), layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc = layout("sparse_bsr"), layout("sparse_bsc")
jagged = layout("jagged")  # a name: no tensor has it


def layout_named(name: str) -> layout:
    """The layout that prints as `name`."""
    return {repr(kind): kind for kind in (strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged)}[name]


def refuse_layout(given: object) -> NoReturn:
    """Raise for a factory's `layout=` that is not `strided`."""
    if not isinstance(given, layout):
        raise TypeError(f"argument 'layout' must be torch.layout, not {type(given).__name__}")
    raise NotImplementedError(f"layout={given} is not implemented here: what this makes is torch.strided; leave layout out, and use "
                              "to_sparse(), or torch.sparse_coo_tensor(indices, values, size)")
