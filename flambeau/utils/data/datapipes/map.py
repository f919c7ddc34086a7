"""The common steps of mappings (torch.utils.data.datapipes.map)."""

from __future__ import annotations

import bisect
import copy
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from ....ops.generators import random_seed
from .checks import DataChunk
from .datapipe import IterDataPipe, MapDataPipe, functional_datapipe, named_after


class SequenceWrapper(MapDataPipe):
    """A sequence or mapping, by default a copy of it."""

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class Mapper(MapDataPipe):
    """`fn` of each element."""

    def __init__(self, datapipe: Any, fn: Callable) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class Batcher(MapDataPipe):
    """Lists of `batch_size` elements."""

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Callable = DataChunk) -> None:
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = datapipe, batch_size, drop_last, wrapper_class

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        end = min((index + 1) * self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[i] for i in range(index * self.batch_size, end)])

    def __len__(self) -> int:
        whole, rest = divmod(len(self.datapipe), self.batch_size)
        return whole + bool(rest and not self.drop_last)


@functional_datapipe("zip")
class Zipper(MapDataPipe):
    """Tuples of the mappings' elements."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        if not all(isinstance(pipe, MapDataPipe) for pipe in datapipes):
            raise TypeError(f"Expected all inputs to be `MapDataPipe`, got {[type(pipe).__name__ for pipe in datapipes]}")
        self.datapipes = datapipes

    def __getitem__(self, index: Any) -> tuple:
        try:
            return tuple(pipe[index] for pipe in self.datapipes)
        except IndexError as error:
            raise IndexError(f"Index {index} is out of range for one of the input MapDataPipes.") from error

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


@functional_datapipe("concat")
class Concater(Zipper):
    """One mapping after the other."""

    def __getitem__(self, index: int) -> Any:
        ends = list(itertools.accumulate(map(len, self.datapipes)))
        if not 0 <= index < ends[-1]:
            raise IndexError(f"Index {index} is out of range.")
        which = bisect.bisect_right(ends, index)
        return self.datapipes[which][index - (ends[which - 1] if which else 0)]

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


class Shuffler(IterDataPipe):
    """A stream of the elements, at `indices` or else all, in another order."""

    def __init__(self, datapipe: Any, *, indices: list | None = None) -> None:
        self.datapipe, self.indices = datapipe, list(range(len(datapipe))) if indices is None else indices
        self.seed: int | None = None
        self.on = True

    def set_seed(self, seed: int) -> Shuffler:
        """Draw by this seed the next time."""
        self.seed = seed
        return self

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        """Whether the order changes."""
        self.on = shuffle
        return self

    def __iter__(self) -> Iterator[Any]:
        order = list(self.indices)
        if self.on:
            seed, self.seed = self.seed, None
            order = random.Random(random_seed(None) if seed is None else seed).sample(order, len(order))[::-1]
        return (self.datapipe[i] for i in order)

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", Shuffler)     # a step of mappings, though it makes a stream
__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]
named_after([name for name in __all__ if name != "Shuffler"], globals(), MapDataPipe)
named_after(["Shuffler"], globals(), IterDataPipe)
