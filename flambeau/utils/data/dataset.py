"""Datasets: things with `__getitem__` and `__len__`, or things that can be iterated over."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from ...core.tensor import Tensor
from ...ops.random import randperm

__all__ = ["ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset", "random_split"]

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """A map from index to sample. Subclasses define `__getitem__` and usually `__len__`.

    A `__getitems__(indices)` that gives a list of samples is used instead where it is defined.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """A stream of samples: subclasses define `__iter__`.

    With several workers each one runs through the whole stream; `get_worker_info()` tells it which part to take.
    """

    def __add__(self, other: Dataset) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Samples are the rows of several tensors, which have as many rows as each other."""

    def __init__(self, *tensors: Tensor) -> None:
        if any(t.shape[:1] != tensors[0].shape[:1] for t in tensors):
            sizes = [list(t.shape[:1]) for t in tensors]
            raise AssertionError(f"Size mismatch between tensors: their first sizes are {sizes}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


def _several(dataset: Any, indices: list[int]) -> list[Any]:
    """The samples at `indices`, at once where the dataset knows how; ValueError where those are not as many."""
    several = getattr(dataset, "__getitems__", None)
    if not callable(several):
        return [dataset[i] for i in indices]
    found = several(indices)
    if len(found) != len(indices):
        raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(found)}")
    return found


class StackDataset(Dataset[Any]):
    """Several datasets side by side: samples are tuples of theirs, or dicts where they were given by name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("Supported either `tuple`- (via `args`) or `dict`- (via `kwargs`) like input/output, but "
                             "both or none are given.")
        self.datasets: Any = args or kwargs
        parts = list(args or kwargs.values())
        if any(len(part) != len(parts[0]) for part in parts):
            raise ValueError(f"Size mismatch between datasets: {[len(part) for part in parts]}")
        self._length = len(parts[0])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: part[index] for name, part in self.datasets.items()}
        return tuple(part[index] for part in self.datasets)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples at `indices`, of each dataset at once where it has a `__getitems__`."""
        names = list(self.datasets) if isinstance(self.datasets, dict) else None
        parts = [_several(part, indices) for part in (self.datasets.values() if names else self.datasets)]
        return [dict(zip(names, sample)) if names else sample for sample in zip(*parts)]

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """Several datasets one after the other."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset; use ChainDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """The sizes of all up to each."""
        return list(itertools.accumulate(map(len, sequence)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        if -index > len(self):
            raise ValueError(f"absolute value of index should not exceed dataset length: {index} for {len(self)} samples")
        if index >= len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        index %= len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - before]


class ChainDataset(IterableDataset[T_co]):
    """Several iterable datasets one after the other."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield from dataset

    def __len__(self) -> int:
        return sum(map(len, self.datasets))  # type: ignore[arg-type]


class Subset(Dataset[T_co]):
    """The samples of `dataset` at `indices`."""

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return _several(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Dataset[T_co], lengths: Sequence[int | float], generator: Any = None) -> list[Subset[T_co]]:
    """Split `dataset` at random into parts of these lengths, or of these fractions where they sum up to one.

    What fractions leave over by rounding goes to the first parts, one sample each.
    """
    total = len(dataset)  # type: ignore[arg-type]
    sizes: list[int]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9:
        if any(not 0 <= fraction <= 1 for fraction in lengths):
            raise ValueError(f"each fraction has to lie between 0 and 1, got {list(lengths)}")
        sizes = [math.floor(total * fraction) for fraction in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
        for i, size in enumerate(sizes):
            if not size:
                warnings.warn(f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=2)
    else:
        sizes = [int(length) for length in lengths]
    if sum(sizes) != total:
        raise ValueError(f"Sum of input lengths does not equal the length of the input dataset: {sum(sizes)} and {total}")
    order = randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(sizes)
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
