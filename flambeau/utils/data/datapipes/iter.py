"""The common steps of streams (torch.utils.data.datapipes.iter)."""

from __future__ import annotations

import copy
import fnmatch
import itertools
import os
import random
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sized
from typing import Any

from ....ops.generators import random_seed
from ..collate import default_collate
from ..sampler import SequentialSampler, following
from ..worker import get_worker_info
from .checks import DataChunk
from .datapipe import IterDataPipe, functional_datapipe, named_after


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
        for column in sorted(input_col[1:], reverse=True) if columns else ():     # what went into the result is gone
            del made[column]
    elif output_col == -1:
        made.append(result)
    else:
        made[output_col] = result
    return tuple(made) if isinstance(data, tuple) else made


@functional_datapipe("map")
class Mapper(IterDataPipe):
    """`fn` of each element, or of columns of it."""

    def __init__(self, datapipe: Iterable[Any], fn: Callable, input_col: Any = None, output_col: Any = None) -> None:
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
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
        for data in self.datapipe:
            column = self.input_col
            if column is None:
                kept = self.filter_fn(data)
            else:
                kept = self.filter_fn(*(data[c] for c in column)) if isinstance(column, (list, tuple)) else self.filter_fn(data[column])
            if not isinstance(kept, bool):
                raise ValueError(f"Boolean output is required for `filter_fn` of FilterIterDataPipe, got {type(kept)}")
            if kept:
                yield data


@functional_datapipe("batch")
class Batcher(IterDataPipe):
    """Lists of `batch_size` elements, each as `wrapper_class` makes it."""

    def __init__(self, datapipe: Iterable[Any], batch_size: int, drop_last: bool = False, wrapper_class: Callable = DataChunk) -> None:
        if batch_size < 1:
            raise AssertionError(f"Batch size is required to be larger than 0, got {batch_size}")
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
        if buffer_size < 1:
            raise AssertionError(f"buffer_size should be larger than 0, got {buffer_size}")
        self.datapipe = UnBatcher(datapipe, unbatch_level) if unbatch_level else datapipe
        self.buffer_size, self.seed, self.on, self.passes = buffer_size, None, True, 0

    def set_seed(self, seed: int) -> Shuffler:
        """Draw by this seed the next time."""
        self.seed = seed     # type: ignore[assignment]
        return self

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        """Whether the order changes."""
        self.on = shuffle
        return self

    def _next_seed(self) -> int:
        """What was set, once; the workers of a loader draw alike, so that each may take its share of one order."""
        seed, self.seed = self.seed, None
        worker, self.passes = get_worker_info(), self.passes + 1
        if seed is not None:
            return seed
        return random_seed(None) if worker is None else worker.seed - worker.id + self.passes

    def __iter__(self) -> Iterator[Any]:
        if not self.on:
            yield from self.datapipe
            return
        draw = random.Random(self._next_seed())
        buffer: list[Any] = []
        for data in self.datapipe:
            if len(buffer) == self.buffer_size:
                at = draw.randint(0, len(buffer) - 1)
                buffer[at], data = data, buffer[at]
                yield data
            else:
                buffer.append(data)
        while buffer:
            yield buffer.pop(draw.randint(0, len(buffer) - 1))

    def __len__(self) -> int:
        return len(self.datapipe)     # type: ignore[arg-type]


@functional_datapipe("zip")
class Zipper(IterDataPipe):
    """Tuples of the streams' elements."""

    def __init__(self, *datapipes: Iterable[Any]) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError(f"All inputs are required to be `IterDataPipe` for `{type(self).__name__}`.")
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


@functional_datapipe("mux")
class Multiplexer(Zipper):
    """An element of each stream in turn, until one of them ends."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(zip(*self.datapipes))

    def __len__(self) -> int:
        return super().__len__() * len(self.datapipes)


@functional_datapipe("unbatch")
class UnBatcher(IterDataPipe):
    """The elements of `unbatch_level` levels of lists one by one; -1: of all."""

    def __init__(self, datapipe: Iterable[Any], unbatch_level: int = 1) -> None:
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        if self.unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        for data in self.datapipe:
            yield from self._parts(data, self.unbatch_level)

    def _parts(self, data: Any, level: int) -> Iterator[Any]:
        if level == 0 or (level == -1 and not isinstance(data, list)):
            yield data
            return
        if not isinstance(data, list):
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")
        for part in data:
            yield from self._parts(part, max(level - 1, -1) if level > 0 else -1)


@functional_datapipe("groupby")
class Grouper(IterDataPipe):
    """Groups of elements of one key, of `group_size` at most; what does not fit into a buffer of `buffer_size` is given on, the largest
    group first, if it has `guaranteed_group_size`."""

    def __init__(self, datapipe: Iterable[Any], group_key_fn: Callable[[Any], Any], *, keep_key: bool = False, buffer_size: int = 10000,
                 group_size: int | None = None, guaranteed_group_size: int | None = None, drop_remaining: bool = False) -> None:
        self.datapipe, self.group_key_fn, self.keep_key, self.buffer_size = datapipe, group_key_fn, keep_key, buffer_size
        self.group_size, self.drop_remaining = group_size, drop_remaining
        self.guaranteed_group_size = guaranteed_group_size if guaranteed_group_size is not None else (
            min(group_size, buffer_size) if group_size is not None and buffer_size is not None else None)
        if not (self.guaranteed_group_size is None or (group_size is not None and 0 < self.guaranteed_group_size <= group_size)):
            raise AssertionError(f"guaranteed_group_size should be > 0 and <= group_size, got {guaranteed_group_size} and {group_size}")

    def _made(self, key: Any, group: list) -> Any:
        return (key, DataChunk(group)) if self.keep_key else DataChunk(group)

    def __iter__(self) -> Iterator[Any]:
        groups: dict[Hashable, list] = {}
        count = 0
        for data in self.datapipe:
            key = self.group_key_fn(data)
            groups.setdefault(key, []).append(data)
            count += 1
            if self.group_size is not None and len(groups[key]) == self.group_size:
                count -= self.group_size
                yield self._made(key, groups.pop(key))
            if count == self.buffer_size:
                largest = max(groups, key=lambda k: len(groups[k]))
                group = groups.pop(largest)
                count -= len(group)
                if self.guaranteed_group_size is not None and len(group) < self.guaranteed_group_size and not self.drop_remaining:
                    raise RuntimeError(f"Failed to group items: the largest group of the buffer has {len(group)} elements, "
                                       f"{self.guaranteed_group_size} are guaranteed; use a larger buffer_size or drop_remaining=True")
                if self.guaranteed_group_size is None or len(group) >= self.guaranteed_group_size:
                    yield self._made(largest, group)
        for key, group in groups.items():
            yield self._made(key, group)


class _Branch(IterDataPipe):
    """One of several streams that a step makes of one."""

    def __init__(self, source: _Shared, number: int) -> None:
        self.source, self.number = source, number

    def __iter__(self) -> Iterator[Any]:
        return self.source.stream(self.number)

    def __len__(self) -> int:
        return len(self.source.datapipe)     # type: ignore[arg-type]


class _Shared(IterDataPipe):
    """A stream that branches read at their own pace: what one has not read yet waits in its buffer, `buffer_size` in all (-1: any
    number). A branch that begins again begins the stream again."""

    def __init__(self, datapipe: Iterable[Any], num_instances: int, buffer_size: int, branches_of: Callable[[Any], Iterable[int]]) -> None:
        self.datapipe, self.buffer_size, self.branches_of = datapipe, buffer_size, branches_of
        self.waiting: list[deque] = [deque() for _ in range(num_instances)]
        self.elements: Iterator[Any] | None = None
        self.begun: set[int] = set()

    def stream(self, number: int) -> Iterator[Any]:
        """The elements of a branch."""
        if self.elements is None or number in self.begun:
            self.elements, self.begun = iter(self.datapipe), set()
            for queue in self.waiting:
                queue.clear()
        self.begun.add(number)
        own, elements = self.waiting[number], self.elements
        while self.elements is elements:
            while not own:
                try:
                    data = next(elements)
                except StopIteration:
                    return
                for branch in self.branches_of(data):
                    self.waiting[branch].append(data)
                if 0 <= self.buffer_size < sum(map(len, self.waiting)) - bool(own):
                    raise BufferError(f"buffer overflow, buffer size {self.buffer_size} is insufficient: read the branches side by side.")
            yield own.popleft()


def _branches(datapipe: Iterable[Any], num_instances: int, buffer_size: int, branches_of: Callable[[Any], Iterable[int]]) -> list[_Branch]:
    if num_instances < 1:
        raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")
    if buffer_size < 0:
        warnings.warn("Unlimited buffer size is set, please be aware of OOM risks", UserWarning, stacklevel=4)
    shared = _Shared(datapipe, num_instances, buffer_size, branches_of)
    return [_Branch(shared, i) for i in range(num_instances)]


@functional_datapipe("fork")
class Forker(IterDataPipe):
    """Several streams of the same elements, copies of them with copy="shallow" or "deep"."""

    def __new__(cls, datapipe: Iterable[Any], num_instances: int, buffer_size: int = 1000, copy: str | None = None) -> Any:
        if copy not in (None, "shallow", "deep"):
            raise ValueError(f"Unknown copy method {copy}: None, 'shallow' and 'deep' are known")
        if num_instances == 1:
            return datapipe
        found = _branches(datapipe, num_instances, buffer_size, lambda data: range(num_instances))
        return found if copy is None else [Mapper(branch, _COPIES[copy]) for branch in found]


_COPIES = {"shallow": copy.copy, "deep": copy.deepcopy}


@functional_datapipe("demux")
class Demultiplexer(IterDataPipe):
    """Several streams: each element goes to that of the number that `classifier_fn` gives; None drops it with `drop_none`."""

    def __new__(cls, datapipe: Iterable[Any], num_instances: int, classifier_fn: Callable[[Any], int | None], drop_none: bool = False,
                buffer_size: int = 1000) -> Any:
        def branch(data: Any) -> tuple[int, ...]:
            number = classifier_fn(data)
            if number is None and drop_none:
                return ()
            if number is None or not 0 <= number < num_instances:
                raise ValueError(f"Output of the classification fn should be between 0 and {num_instances - 1}. {number} is returned.")
            return (int(number),)

        return _branches(datapipe, num_instances, buffer_size, branch)


@functional_datapipe("sharding_filter")
class ShardingFilter(IterDataPipe):
    """Each n-th element: in a loader's worker the share of that worker, unless `apply_sharding` has said another."""

    def __init__(self, source_datapipe: Iterable[Any], sharding_group_filter: Any = None) -> None:
        if sharding_group_filter is not None:
            raise NotImplementedError("sharding_filter(sharding_group_filter=) is not implemented; leave it out")
        self.source_datapipe, self.share = source_datapipe, (1, 0)

    def apply_sharding(self, num_of_instances: int, instance_id: int) -> None:
        """Take the elements of this number among so many."""
        if instance_id >= num_of_instances:
            raise ValueError(f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})")
        self.share = (num_of_instances, instance_id)

    def _current(self) -> tuple[int, int]:
        worker = get_worker_info()
        return self.share if worker is None or self.share != (1, 0) else (worker.num_workers, worker.id)

    def __iter__(self) -> Iterator[Any]:
        count, number = self._current()
        return itertools.islice(self.source_datapipe, number, None, count)

    def __len__(self) -> int:
        count, number = self._current()
        return max(0, -(-(len(self.source_datapipe) - number) // count))     # type: ignore[arg-type]


class Sampler(IterDataPipe):
    """The indices that a sampler of `datapipe` gives."""

    def __init__(self, datapipe: Sized, sampler: Callable = SequentialSampler, sampler_args: tuple | None = None,
                 sampler_kwargs: dict | None = None) -> None:
        self.datapipe = datapipe
        self.sampler = sampler(*(sampler_args or ()), **{"data_source": datapipe, **(sampler_kwargs or {})})

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


@functional_datapipe("list_files")
class FileLister(IterDataPipe):
    """The paths of the files in folders whose names fit one of `masks`."""

    def __init__(self, root: Any = ".", masks: Any = "", *, recursive: bool = False, abspath: bool = False, non_deterministic: bool = False,
                 length: int = -1) -> None:
        self.root = [root] if isinstance(root, str) else root
        self.masks = [masks] if isinstance(masks, str) else list(masks)
        self.recursive, self.abspath, self.non_deterministic, self.length = recursive, abspath, non_deterministic, length

    def __iter__(self) -> Iterator[str]:
        for root in self.root:
            for folder, folders, files in os.walk(os.path.abspath(root) if self.abspath else root):
                folders[:] = sorted(folders) if self.recursive else []
                for name in files if self.non_deterministic else sorted(files):
                    if any(not mask or fnmatch.fnmatch(name, mask) for mask in self.masks or [""]):
                        yield os.path.join(folder, name)

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


@functional_datapipe("open_files")
class FileOpener(IterDataPipe):
    """Pairs of each path and its open file."""

    def __init__(self, datapipe: Iterable[str], mode: str = "r", encoding: str | None = None, length: int = -1) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"Invalid mode {mode}")
        if "b" in mode and encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        self.datapipe, self.mode, self.encoding, self.length = datapipe, mode if "r" in mode else f"r{mode}", encoding, length

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((path, open(path, self.mode, encoding=self.encoding)) for path in self.datapipe)

    __len__ = FileLister.__len__


@functional_datapipe("read_from_stream")
class StreamReader(IterDataPipe):
    """Pairs of a name and what its open file holds, in pieces of `chunk`."""

    def __init__(self, datapipe: Iterable[tuple[str, Any]], chunk: int | None = None) -> None:
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name, stream in self.datapipe:
            while piece := stream.read(*(() if self.chunk is None else (self.chunk,))):
                yield name, piece


__all__ = ["Batcher", "Collator", "Concater", "Demultiplexer", "FileLister", "FileOpener", "Filter", "Forker", "Grouper", "IterableWrapper",
           "Mapper", "Multiplexer", "Sampler", "ShardingFilter", "Shuffler", "StreamReader", "UnBatcher", "Zipper"]
named_after(__all__, globals(), IterDataPipe)
