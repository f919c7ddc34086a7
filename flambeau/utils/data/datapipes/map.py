"""The common steps of mappings (torch.utils.data.datapipes.map)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from .datapipe import MapDataPipe, functional_datapipe


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

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Callable = list) -> None:
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = datapipe, batch_size, drop_last, wrapper_class

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        end = min((index + 1) * self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[i] for i in range(index * self.batch_size, end)])

    def __len__(self) -> int:
        whole, rest = divmod(len(self.datapipe), self.batch_size)
        return whole + bool(rest and not self.drop_last)


__all__ = ["Batcher", "Mapper", "SequenceWrapper"]
