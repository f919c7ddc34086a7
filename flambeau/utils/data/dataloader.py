"""`DataLoader`: batches from a dataset, made in this process or by worker processes ahead of time."""

from __future__ import annotations

import errno
import itertools
import math
import multiprocessing as mp
import os
import queue
import signal
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from types import GenericAlias
from typing import Any, Self

from ..._absent import absent
from ...core import dispatch
from ...core.watching import watched
from ...cuda.library import device_count
from ...ops.generators import random_seed
from .collate import default_collate, default_convert, pinned
from .datapipes.datapipe import IterDataPipe, apply_shuffle_settings
from .dataset import Dataset as Dataset
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, following
from .worker import EndOfStream, Restart, StreamEnded, WorkerError, WorkerPlan, receive, run_worker
from .worker import get_worker_info as get_worker_info

JOIN_SECONDS = 5.0


class _InfiniteConstantSampler(Sampler[None]):
    """The sampler of iterable datasets: they alone know when they end."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


# -- from indices to a batch -----------------------------------------------------------------------------------
def _map_fetcher(dataset: Any, collate: Callable[[Any], Any], batched: bool) -> Callable[[Any], Any]:
    several = getattr(dataset, "__getitems__", None)

    def fetch(indices: Any) -> Any:
        if not batched:
            return collate(dataset[indices])
        return collate(several(indices) if callable(several) else [dataset[i] for i in indices])

    return fetch


def _stream_fetcher(dataset: Any, collate: Callable[[Any], Any], batched: bool, drop_last: bool
                    ) -> Callable[[Any], Any]:
    samples = iter(dataset)

    def fetch(indices: Any) -> Any:
        wanted = len(indices) if batched else 1
        batch = following(samples, wanted)
        if not batch or (drop_last and len(batch) < wanted):
            raise StreamEnded
        return collate(batch if batched else batch[0])

    return fetch


class DataLoader:
    """Iterate over `dataset` in batches.

    `num_workers` processes make `prefetch_factor` batches each ahead of time; 0 makes them here. The order is the
    sampler's whatever the number of workers. `generator` seeds both the order and the workers; worker `i` draws from
    the seed `base + i`, NumPy's and Python's random numbers included. `pin_memory` puts batches where a GPU reads them by
    itself; without a GPU it has no effect.

    A worker's exception is raised here with its type and the worker's traceback, after which the next batch can be asked for;
    RuntimeError if a worker dies or if
    no batch comes within `timeout` seconds.
    """

    __class_getitem__: Any = classmethod(GenericAlias)     # DataLoader[T], for annotations and base classes

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None, sampler: Any = None,
                 batch_sampler: Any = None, num_workers: int = 0, collate_fn: Callable[[Any], Any] | None = None,
                 pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable[[int], Any] | None = None, multiprocessing_context: Any = None,
                 generator: Any = None, *, prefetch_factor: int | None = None, persistent_workers: bool = False,
                 pin_memory_device: str = "", in_order: bool = True) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset, self.num_workers, self.timeout, self.generator = dataset, num_workers, timeout, generator
        self.pin_memory, self.pin_memory_device, self.in_order = pin_memory, pin_memory_device, in_order
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.persistent_workers, self.worker_init_fn = persistent_workers, worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self._streams = isinstance(dataset, IterableDataset)
        if self._streams:
            if isinstance(dataset, IterDataPipe):       # whose shuffling steps are told
                apply_shuffle_settings(dataset, shuffle)
                shuffle = None
            _check_stream(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        self.sampler = sampler if sampler is not None else self._default_sampler(bool(shuffle))
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        self.batch_size, self.batch_sampler, self.drop_last = batch_size, batch_sampler, drop_last
        self._batched = batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if self._batched else default_convert)
        self._iterator: _BaseDataLoaderIter | None = None      # the one whose workers are kept
        self._IterableDataset_len_called: int | None = None     # the length that an iterable dataset gave
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and self.__dict__.get("_made"):
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """The context that workers are started in, or None for the usual one."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        _check_context(context, self.num_workers)
        self._context = mp.get_context(context) if isinstance(context, str) else context

    def _default_sampler(self, shuffle: bool) -> Sampler:
        if self._streams:
            return _InfiniteConstantSampler()
        return RandomSampler(self.dataset, generator=self.generator) if shuffle else SequentialSampler(self.dataset)

    def __len__(self) -> int:
        """How many batches one pass gives; of an iterable dataset that has a length, how many there should be."""
        if not self._streams:
            order: Any = self.batch_sampler if self._batched else self.sampler
            return len(order)
        count = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is not None:
            count = count // self.batch_size if self.drop_last else math.ceil(count / self.batch_size)
        return count

    def __iter__(self) -> Iterator[Any]:
        if not self.persistent_workers or not self.num_workers:
            return self._get_iterator()
        if self._iterator is None or self._iterator.closed:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def _get_iterator(self) -> _BaseDataLoaderIter:
        """A pass of its own over the data; classes with another `__iter__` begin one here, as in torch."""
        return _MultiProcessingDataLoaderIter(self) if self.num_workers else _SingleProcessDataLoaderIter(self)

    @property
    def _dataset_kind(self) -> int:
        return _DatasetKind.Iterable if self._streams else _DatasetKind.Map

    @property
    def _auto_collation(self) -> bool:
        return self._batched

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._batched else self.sampler


def _fetcher(loader: Any) -> Callable[[Any], Callable[[Any], Any]]:
    """What makes the function from indices to a batch, of the dataset. Loaders of others have torch's attributes."""
    if loader._dataset_kind == _DatasetKind.Iterable:
        return partial(_stream_fetcher, collate=loader.collate_fn, batched=loader._auto_collation, drop_last=loader.drop_last)
    return partial(_map_fetcher, collate=loader.collate_fn, batched=loader._auto_collation)


_FIXED = frozenset(("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"))
"""What other attributes follow from, or the workers hold."""


def _check_context(context: Any, num_workers: int) -> None:
    if context is None:
        return
    if num_workers == 0:
        raise ValueError("multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got num_workers=0")
    methods = mp.get_all_start_methods()
    if isinstance(context, str) and context not in methods:
        raise ValueError(f"multiprocessing_context option should specify a valid start method in {methods}, but got "
                         f"multiprocessing_context={context!r}")
    if not isinstance(context, (str, mp.context.BaseContext)):
        raise TypeError(f"multiprocessing_context option should be a valid context object or a string specifying the start method, but "
                        f"got multiprocessing_context={context!r}")


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError("prefetch_factor option could only be specified in multiprocessing. let num_workers > 0 to "
                         "enable multiprocessing, otherwise set prefetch_factor to None.")
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError(f"prefetch_factor option should be non-negative, got {prefetch_factor}")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle: bool | None, sampler: Any, batch_sampler: Any) -> None:
    if shuffle:
        raise ValueError(f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}")
    for name, given in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if given is not None:
            raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={given}")


class _BaseDataLoaderIter:
    """One pass over the data: what `iter(loader)` gives. Loaders of others have torch's attributes."""

    closed = False

    def __init__(self, loader: Any) -> None:
        self._dataset, self._index_sampler, self._num_workers = loader.dataset, loader._index_sampler, loader.num_workers
        self._pin_memory = bool(getattr(loader, "pin_memory", False)) and device_count() > 0
        self._reset(loader)

    def _reset(self, loader: Any) -> None:
        """Begin a pass."""
        self._base_seed = random_seed(loader.generator)     # drawn as it is for workers: the order does not depend on their number
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded, self._IterableDataset_len_called = 0, getattr(loader, "_IterableDataset_len_called", None)

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled: pickle the DataLoader")

    def __next__(self) -> Any:
        if dispatch.state.watchers:
            batch = watched(f"enumerate(DataLoader)#{type(self).__name__}.__next__", self._next_data, (), None, 7)
        else:
            batch = self._next_data()
        self._num_yielded += 1
        if self._IterableDataset_len_called is not None and self._num_yielded > self._IterableDataset_len_called:
            self._warn_of_more(self._IterableDataset_len_called)
        return pinned(batch) if self._pin_memory else batch

    def _warn_of_more(self, told: int) -> None:
        """An iterable dataset gives more than its length says."""
        hint = (" For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset replica at each "
                "worker: torch.utils.data.get_worker_info() tells which share is its own.") * bool(self._num_workers)
        warnings.warn(f"Length of IterableDataset {self._dataset} was reported to be {told} (when accessing len(dataloader)), but "
                      f"{self._num_yielded} samples have been fetched.{hint}", stacklevel=3)

    def _next_data(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define _next_data")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """One pass in this process. Whoever catches an error may go on with the next batch."""

    def __init__(self, loader: Any) -> None:
        if loader.timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0: nobody else makes batches that one could wait for")
        super().__init__(loader)
        self._fetch = _fetcher(loader)(loader.dataset)

    def _next_data(self) -> Any:
        indices = next(self._sampler_iter)
        try:
            return self._fetch(indices)
        except StreamEnded:
            self._sampler_iter = iter(())
            raise StopIteration from None
        except StopIteration as error:    # the end of something else: it must not look like the end of the data
            raise RuntimeError(f"the dataset or collate_fn of a DataLoader raised StopIteration for {indices!r}") from error


# -- worker processes ------------------------------------------------------------------------------------------
@dataclass
class _Worker:
    process: Any
    tasks: Any              # a multiprocessing queue
    answers: Connection
    exhausted: bool = False


class _WorkerPool:
    """The worker processes of a DataLoader. They end with `close`, or when nothing refers to the pool any more."""

    def __init__(self, loader: DataLoader) -> None:
        context = loader.multiprocessing_context or mp.get_context()
        self.prefetch = loader.prefetch_factor or 2
        self.workers: list[_Worker] = []
        self._finalizer = weakref.finalize(self, _stop, self.workers, os.getpid())  # before any is there: Ctrl-C may come at any time
        try:
            for i in range(loader.num_workers):
                self._start(context, loader, i)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise OSError(error.errno, f"{error.strerror}: the queues of a DataLoader's workers need some in /dev/shm") from error
            raise
        self.numbers = itertools.count()  # of tasks, never used twice: so an answer to an older pass is recognised

    def _start(self, context: Any, loader: DataLoader, number: int) -> None:
        plan = WorkerPlan(number, loader.num_workers, loader.dataset, _fetcher(loader), loader.worker_init_fn)
        tasks = context.Queue()
        answers, theirs = context.Pipe()  # a socket, for descriptors
        process = context.Process(target=run_worker, args=(plan, tasks, theirs), daemon=True)
        self.workers.append(_Worker(process, tasks, answers))
        process.start()
        theirs.close()  # so that the end of the process is the end of the pipe

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        """Stop all workers; again is harmless."""
        self._finalizer()


def _stop(workers: Sequence[_Worker], owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked copy of the pool has no workers
    started = [worker for worker in workers if worker.process.pid is not None]
    try:
        for worker in started:
            worker.answers.close()
            if worker.process.is_alive():
                _take_back(worker.tasks)
                worker.tasks.put(None)
        for worker in started:
            worker.process.join(JOIN_SECONDS)
    finally:        # also of an impatient user's second Ctrl-C
        for worker in started:
            worker.process.terminate()
        for worker in workers:
            worker.tasks.cancel_join_thread()
            worker.tasks.close()
        for worker in started:
            worker.process.join()


def _take_back(tasks: Any) -> None:
    """Empty a queue of the tasks that nobody waits for any more."""
    try:
        while True:
            tasks.get_nowait()
    except (queue.Empty, OSError):
        pass


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """One pass over the data by a pool. Each task goes to one worker; its answer is waited for when its turn comes."""

    def __init__(self, loader: Any) -> None:
        self.timeout, self.keep = loader.timeout, loader.persistent_workers
        super().__init__(loader)

    def _reset(self, loader: Any) -> None:
        super()._reset(loader)
        pool = self.pool = getattr(self, "pool", None) or _WorkerPool(loader)
        self.waiting: deque[tuple[int, _Worker]] = deque()  # the tasks under way, oldest first
        self.finished = False
        self._turns = itertools.cycle(pool.workers)
        for worker in pool.workers:
            worker.exhausted = False
            worker.tasks.put(Restart(self._base_seed))
        for _ in range(pool.prefetch * len(pool.workers)):
            self._give_task()

    closed = property(lambda self: self.pool.closed)
    _workers = property(lambda self: [worker.process for worker in self.pool.workers])

    def _shutdown_workers(self) -> None:
        """Stop them; again is harmless."""
        self._finish(keep=False)

    def _give_task(self) -> None:
        worker = next((w for w in itertools.islice(self._turns, len(self.pool.workers)) if not w.exhausted), None)
        if worker is None:
            return
        try:
            indices = next(self._sampler_iter)
        except StopIteration:
            return
        number = next(self.pool.numbers)
        worker.tasks.put((number, indices))
        self.waiting.append((number, worker))

    def _next_data(self) -> Any:
        while self.waiting and not self.finished:
            number, worker = self.waiting.popleft()
            answer = self._answer(number, worker)
            if isinstance(answer, EndOfStream):
                worker.exhausted = True
                self._give_task()
                continue
            self._give_task()
            if isinstance(answer, WorkerError):
                answer.reraise()
            return answer
        self._finish(self.keep)
        raise StopIteration

    def _answer(self, number: int, worker: _Worker) -> Any:
        while True:
            try:
                self._wait(worker)
                found, answer = self._received(worker)
            except (EOFError, ConnectionResetError):
                self._died(worker)
            if found == number:
                return answer

    def _received(self, worker: _Worker) -> Any:
        try:
            message = receive(worker.answers)
        except (EOFError, ConnectionResetError):
            raise
        except BaseException:   # Ctrl-C in the middle of a message: nobody knows where the next one begins
            self._finish(keep=False)
            raise
        return message.load()

    def _wait(self, worker: _Worker) -> None:
        ready = wait([worker.answers, worker.process.sentinel], self.timeout or None)
        if not ready:
            self._fail(f"DataLoader timed out after {self.timeout} seconds")
        if worker.answers not in ready and not worker.answers.poll():
            self._died(worker)

    def _died(self, worker: _Worker) -> None:
        worker.process.join(JOIN_SECONDS)
        code = worker.process.exitcode
        if code is not None and code < 0:
            reason = f"is killed by signal: {signal.strsignal(-code)}"
            hint = " It was perhaps out of memory." if -code == signal.SIGKILL else ""
        else:
            reason, hint = f"exited unexpectedly with exit code {code}", ""
        number = self.pool.workers.index(worker)
        self._fail(f"DataLoader worker {number} (pid {worker.process.pid}) {reason}.{hint} Details are lost due to "
                   "multiprocessing. Rerunning with num_workers=0 may give better error trace.")

    def _fail(self, message: str) -> None:
        self.finished = True
        for worker in self.pool.workers:
            worker.process.terminate()
        self.pool.close()
        raise RuntimeError(message)

    def _finish(self, keep: bool) -> None:
        self.finished = True
        if not keep:
            self.pool.close()


_collate_fn_t = Callable[[list[Any]], Any]
_worker_init_fn_t = Callable[[int], None]
_sharding_worker_init_fn = absent("torch.utils.data.dataloader._sharding_worker_init_fn", "write an IterableDataset")


class _DatasetKind:
    """Datasets asked by index, and streams."""

    Map, Iterable = 0, 1

    @staticmethod
    def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> _Fetcher:
        """What makes batches of a dataset: `fetch(indices)`."""
        made = (_map_fetcher(dataset, collate_fn, auto_collation) if kind == _DatasetKind.Map
                else _stream_fetcher(dataset, collate_fn, auto_collation, drop_last))
        return _Fetcher(made)


@dataclass
class _Fetcher:
    """A function from indices to a batch as torch's object of one method."""

    fetch: Callable[[Any], Any]


_MapDatasetFetcher = partial(_DatasetKind.create_fetcher, _DatasetKind.Map)
_IterableDatasetFetcher = partial(_DatasetKind.create_fetcher, _DatasetKind.Iterable)
