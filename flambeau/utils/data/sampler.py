"""Samplers: the order in which a DataLoader asks for samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from ...core.dtypes import float64, int64
from ...distributed.groups import get_rank, get_world_size
from ...ops.creation import as_tensor
from ...ops.generators import Generator, random_seed
from ...ops.random import multinomial, randint, randperm

T_co = TypeVar("T_co", covariant=True)
_CHUNK = 32  # how many random numbers are drawn at once


def following(iterator: Iterator, count: int) -> list:
    """The next `count` of an iterator, or as many as there are. It is asked for these alone: one that is its own iterable may begin anew where
    it is asked for an iterator, as itertools do."""
    found: list = []
    while len(found) < count and (one := next(iterator, _END)) is not _END:
        found.append(one)
    return found


_END: Any = object()


class Sampler(Generic[T_co]):
    """An iterable over indices (or lists of them); subclasses define `__iter__` and usually `__len__`."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")
    return value


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Every sample once in random order, or `num_samples` draws; with `replacement` each draw is independent.

    Without a generator of its own each pass is seeded from the default one, so `torch.manual_seed` fixes the order.
    """

    def __init__(self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Any = None) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples
        _positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many indices one pass gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        population, left = len(self.data_source), self.num_samples
        generator = self.generator or Generator().manual_seed(random_seed())
        while self.replacement and left > 0:
            yield from randint(population, (min(_CHUNK, left),), dtype=int64, generator=generator).tolist()
            left -= _CHUNK
        if not self.replacement:
            for _ in range(left // population if population else 0):
                yield from randperm(population, generator=generator).tolist()
            yield from randperm(population, generator=generator).tolist()[: left % population if population else 0]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        return (self.indices[i] for i in randperm(len(self.indices), generator=self.generator).tolist())

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` indices, each drawn with a chance proportional to its weight."""

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None) -> None:
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = as_tensor(weights, dtype=float64)
        if self.weights.dim() != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}")
        self.num_samples = _positive("num_samples", num_samples)
        self.replacement, self.generator = replacement, generator

    def __iter__(self) -> Iterator[int]:
        return iter(multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices from `sampler`; `drop_last` leaves out a last one that is shorter."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        self.sampler, self.batch_size = sampler, _positive("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := following(indices, self.batch_size):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)  # type: ignore[arg-type]
        return whole + (rest > 0 and not self.drop_last)


class DistributedSampler(Sampler[int]):
    """The part of the dataset that belongs to process `rank` of `num_replicas` (by default this one, of the process group);
    `set_epoch` changes the order.

    The last samples are given out twice (or, with `drop_last`, left out) so that every process gets equally many.
    """

    def __init__(self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False) -> None:
        num_replicas = get_world_size() if num_replicas is None else num_replicas
        rank = get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank, self.epoch = dataset, num_replicas, rank, 0
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        share = len(dataset) / num_replicas
        self.num_samples = math.floor(share) if drop_last else math.ceil(share)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            indices = randperm(len(indices), generator=Generator().manual_seed(self.seed + self.epoch)).tolist()
        everyone = list(itertools.islice(itertools.cycle(indices), self.total_size))
        return iter(everyone[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Have the next pass use another order, the same one in all processes."""
        self.epoch = epoch
