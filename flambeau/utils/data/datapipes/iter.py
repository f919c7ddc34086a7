"""The common steps of streams (torch.utils.data.datapipes.iter)."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..collate import default_collate
from ..sampler import following
from .datapipe import IterDataPipe, functional_datapipe


class IterableWrapper(IterDataPipe):
    """The elements of an iterable, by default of a copy of it."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        yield from copy.deepcopy(self.iterable) if self.deepcopy else self.iterable

    def __len__(self) -> int:
        return len(self.iterable)     # type: ignore[arg-type]


def _applied(fn: Callable, data: Any, input_col: Any, output_col: Any) -> Any:
    """`fn` of the whole, or of columns with the result put into a column."""
    if input_col is None:
        return fn(data)
    columns = isinstance(input_col, (list, tuple))
    result = fn(*(data[c] for c in input_col)) if columns else fn(data[input_col])
    made = list(data) if isinstance(data, tuple) else copy.copy(data)
    if output_col is None:
        made[input_col[0] if columns else input_col] = result
    elif output_col == -1:
        made.append(result)
    else:
        made[output_col] = result
    return tuple(made) if isinstance(data, tuple) else made


@functional_datapipe("map")
class Mapper(IterDataPipe):
    """`fn` of each element, or of columns of it."""

    def __init__(self, datapipe: Iterable[Any], fn: Callable, input_col: Any = None, output_col: Any = None) -> None:
        self.datapipe, self.fn, self.input_col, self.output_col = datapipe, fn, input_col, output_col

    def __iter__(self) -> Iterator[Any]:
        return (_applied(self.fn, data, self.input_col, self.output_col) for data in self.datapipe)

    def __len__(self) -> int:
        return len(self.datapipe)     # type: ignore[arg-type]


@functional_datapipe("collate")
class Collator(Mapper):
    """Each batch joined by `collate_fn`."""

    def __init__(self, datapipe: Iterable[Any], collate_fn: Callable = default_collate) -> None:
        super().__init__(datapipe, collate_fn)


@functional_datapipe("filter")
class Filter(IterDataPipe):
    """The elements for which `filter_fn` holds."""

    def __init__(self, datapipe: Iterable[Any], filter_fn: Callable[..., bool], input_col: Any = None) -> None:
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def __iter__(self) -> Iterator[Any]:
        return (data for data in self.datapipe if self.filter_fn(data if self.input_col is None else data[self.input_col]))


@functional_datapipe("batch")
class Batcher(IterDataPipe):
    """Lists of `batch_size` elements, each as `wrapper_class` makes it."""

    def __init__(self, datapipe: Iterable[Any], batch_size: int, drop_last: bool = False, wrapper_class: Callable = list) -> None:
        if batch_size < 1:
            raise ValueError(f"Batch size is required to be larger than 0, got {batch_size}")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = datapipe, batch_size, drop_last, wrapper_class

    def __iter__(self) -> Iterator[Any]:
        elements = iter(self.datapipe)
        while batch := following(elements, self.batch_size):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.wrapper_class(batch)

    def __len__(self) -> int:
        whole, rest = divmod(len(self.datapipe), self.batch_size)     # type: ignore[arg-type]
        return whole + bool(rest and not self.drop_last)


@functional_datapipe("shuffle")
class Shuffler(IterDataPipe):
    """The elements in another order, drawn from a buffer of `buffer_size`."""

    def __init__(self, datapipe: Iterable[Any], *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if unbatch_level:
            raise NotImplementedError("Shuffler(unbatch_level=...) is not implemented; shuffle before batching")
        self.datapipe, self.buffer_size, self.seed = datapipe, buffer_size, None

    def set_seed(self, seed: int) -> Shuffler:
        """Draw by this seed the next time."""
        self.seed = seed     # type: ignore[assignment]
        return self

    def __iter__(self) -> Iterator[Any]:
        draw = random.Random(self.seed)
        buffer: list[Any] = []
        for data in self.datapipe:
            if len(buffer) == self.buffer_size:
                at = draw.randrange(len(buffer))
                buffer[at], data = data, buffer[at]
                yield data
            else:
                buffer.append(data)
        draw.shuffle(buffer)
        yield from buffer

    def __len__(self) -> int:
        return len(self.datapipe)     # type: ignore[arg-type]


@functional_datapipe("zip")
class Zipper(IterDataPipe):
    """Tuples of the streams' elements."""

    def __init__(self, *datapipes: Iterable[Any]) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        return zip(*self.datapipes)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)     # type: ignore[arg-type]


@functional_datapipe("concat")
class Concater(Zipper):
    """One stream after the other."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain(*self.datapipes)

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))     # type: ignore[arg-type]


__all__ = ["Batcher", "Collator", "Concater", "Filter", "IterableWrapper", "Mapper", "Shuffler", "Zipper"]
