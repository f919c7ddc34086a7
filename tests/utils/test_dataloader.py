"""DataLoader: the same batches however many workers there are, and what happens when something goes wrong."""

from __future__ import annotations

import collections
import contextlib
import errno
import gc
import itertools
import multiprocessing
import os
import pickle
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, dataloader, default_collate, get_worker_info, random_split
from flambeau.utils.data.collate import pinned
from flambeau.utils.data.dataloader import _WorkerPool


class Rows(Dataset):
    """Row i holds i; a wish decides what else happens when it is read."""

    def __init__(self, count: int, wish: str = "", at: int = 5) -> None:
        self.count, self.wish, self.at = count, wish, at

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        if i == self.at:
            if self.wish == "raise":
                raise KeyError("no such row")
            if self.wish == "strange":
                raise Strange(1, 2)
            if self.wish == "stop":
                raise StopIteration
            if self.wish == "exit":
                os._exit(3)
            if self.wish == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.wish == "sleep":
                time.sleep(60)
        return torch.tensor([i, i])


class Strange(Exception):
    """Cannot be made from a message."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)


class Stream(IterableDataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(start, self.count, step))


class Seeds(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Any:
        info = get_worker_info()
        assert info is not None and info.dataset is self
        return [info.id, info.seed, torch.randint(1 << 30, ()).item(), random.random(), float(np.random.rand())]  # noqa: NPY002 - as users do


def firsts(batches: Any) -> list[list[int]]:
    return [batch[:, 0].tolist() for batch in batches]


def flat(lists: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))


def children() -> int:
    gc.collect()
    return len(multiprocessing.active_children())


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_order_and_last_batch(workers: int) -> None:
    loader = DataLoader(Rows(10), batch_size=4, num_workers=workers)
    assert len(loader) == 3
    assert firsts(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] == firsts(loader)
    dropping = DataLoader(Rows(10), batch_size=4, drop_last=True, num_workers=workers)
    assert len(dropping) == 2 and firsts(dropping) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert children() == 0


def test_shuffling_does_not_depend_on_workers() -> None:
    def epochs(workers: int) -> list:
        generator = torch.Generator().manual_seed(3)
        loader = DataLoader(Rows(20), batch_size=3, shuffle=True, num_workers=workers, generator=generator)
        return [firsts(loader), firsts(loader)]

    first, second = epochs(0)
    assert sorted(flat(first)) == list(range(20)) and first != second
    assert epochs(2) == [first, second]


@pytest.mark.parametrize("workers", [0, 2])
def test_without_batches(workers: int) -> None:
    loader = DataLoader(Rows(3), batch_size=None, num_workers=workers)
    assert [row.tolist() for row in loader] == [[0, 0], [1, 1], [2, 2]] and len(loader) == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_own_samplers_and_collation(workers: int) -> None:
    assert firsts(DataLoader(Rows(9), batch_size=2, sampler=[4, 2, 8], num_workers=workers)) == [[4, 2], [8]]
    by_batch = DataLoader(Rows(9), batch_sampler=[[1], [2, 3]], num_workers=workers, collate_fn=len)
    assert list(by_batch) == [1, 2] and len(by_batch) == 2


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams(workers: int) -> None:
    batches = [batch.tolist() for batch in DataLoader(Stream(11), batch_size=2, num_workers=workers)]
    assert sorted(flat(batches)) == list(range(11))
    if workers == 0:
        assert batches[-1] == [10]
    dropping = [batch.tolist() for batch in DataLoader(Stream(11), 2, num_workers=workers, drop_last=True)]
    assert all(len(batch) == 2 for batch in dropping)


def test_large_batches_and_many_dtypes() -> None:
    """More than a pipe holds, in both directions, and every dtype on the wire."""
    images = torch.arange(300_000, dtype=torch.float32).reshape(300, 1000)
    halves = images.to(torch.bfloat16)
    loader = DataLoader(TensorDataset(images, halves, images[:, 0] > 5), batch_size=100, num_workers=2)
    whole = [torch.cat(column) for column in zip(*loader, strict=True)]
    assert torch.equal(whole[0], images) and torch.equal(whole[1], halves) and whole[2].dtype is torch.bool
    whole[0][0, 0] = 1  # what arrives can be written to


def test_seeds() -> None:
    def run() -> list:
        loader = DataLoader(Seeds(), batch_size=None, num_workers=2, generator=torch.Generator().manual_seed(0))
        return list(loader)

    first, second = run(), run()
    assert first == second
    assert {row[0] for row in first} == {0, 1} and first[1][1] == first[0][1] + 1
    for column in (2, 3, 4):
        assert len({row[column] for row in first}) == 8


def test_worker_init_fn_and_context() -> None:
    def init(worker: int) -> None:
        os.environ["BENCH_WORKER"] = str(worker)

    class Reads(Dataset):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> int:
            return int(os.environ["BENCH_WORKER"])

    loader = DataLoader(Reads(), num_workers=2, worker_init_fn=init, multiprocessing_context="fork")
    assert [batch.item() for batch in loader] == [0, 1]
    assert get_worker_info() is None


def test_spawned_workers() -> None:
    loader = DataLoader(Rows(4), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    assert firsts(loader) == [[0, 1], [2, 3]]


class Pids(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        return os.getpid()


def test_persistent_workers() -> None:
    loader = DataLoader(Pids(), num_workers=2, persistent_workers=True)
    pids = [{int(p) for p in loader} for _ in range(3)]
    assert pids[0] == pids[1] == pids[2] and len(pids[0]) == 2
    half_way = iter(loader)
    next(half_way)
    assert len(list(loader)) == 4  # the pass that was left in the middle does not disturb the next
    assert next(half_way, None) is None
    del loader, half_way
    assert children() == 0
    assert {int(p) for p in DataLoader(Pids(), num_workers=1)} != {os.getpid()}


def test_leaving_in_the_middle_stops_the_workers() -> None:
    iterator = iter(DataLoader(Rows(100), num_workers=2))
    next(iterator)
    del iterator
    assert children() == 0


# -- trouble ------------------------------------------------------------------------------------------------------------
class Interrupt:
    """Ctrl-C at a moment: before the line of that number, counted over what this process runs in some functions."""

    def __init__(self, functions: tuple[str, ...], at: int) -> None:
        self.functions, self.left, self.owner = functions, at, os.getpid()

    def __enter__(self) -> Interrupt:
        sys.settrace(self._call)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _call(self, frame: Any, event: str, arg: Any) -> Any:
        if "utils/data/" not in frame.f_code.co_filename or os.getpid() != self.owner:
            return None
        return self._line if frame.f_code.co_name in self.functions else None

    def _line(self, frame: Any, event: str, arg: Any) -> Any:
        self.left -= event == "line"
        if self.left == 0 and os.getpid() == self.owner:
            self.left -= 1
            raise KeyboardInterrupt
        return self._line


@pytest.mark.usefixtures("only_new_objects_collected")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("functions, moments", [
    (("_start",), range(1, 12, 2)), (("__init__", "_give_task"), range(5, 70, 9)),
    (("__next__", "_answer", "_wait", "_received"), range(3, 60, 8)),
    (("receive",), range(1, 14, 2)), (("_stop",), range(4, 25, 4)),
])  # fmt: skip
def test_an_interrupt_at_any_moment(functions: tuple[str, ...], moments: range, persistent: bool) -> None:
    """No process stays behind, and the next pass is whole."""
    for moment in moments:
        loader = DataLoader(Rows(12), batch_size=2, num_workers=2, persistent_workers=persistent)
        with contextlib.suppress(KeyboardInterrupt), Interrupt(functions, moment):
            for _ in loader:
                pass
        assert firsts(loader) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
        del loader
        gc.collect()
        assert children() == 0, moment


def test_ctrl_c_in_the_middle_of_a_pass() -> None:
    loader = DataLoader(Rows(10, "sleep"), batch_size=1, num_workers=2)
    timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(loader)
    timer.join()
    gc.collect()
    assert children() == 0
    loader.dataset.wish = ""
    assert len(list(loader)) == 10


def test_an_exception_keeps_its_type_and_traceback() -> None:
    with pytest.raises(KeyError, match=r"(?s)Caught KeyError in DataLoader worker process \d.*__getitem__.*no such row"):
        list(DataLoader(Rows(10, "raise"), num_workers=2))
    with pytest.raises(KeyError, match="no such row"):
        list(DataLoader(Rows(10, "raise")))
    with pytest.raises(RuntimeError, match=r"(?s)Caught Strange in DataLoader worker process 0"):
        list(DataLoader(Rows(10, "strange"), num_workers=1))
    assert children() == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_before_and_after_the_exception_arrive(workers: int) -> None:
    batches = iter(DataLoader(Rows(10, "raise"), num_workers=workers))
    assert [next(batches)[0, 0].item() for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError):
        next(batches)
    assert [batch[0, 0].item() for batch in batches] == [6, 7, 8, 9]
    del batches
    assert children() == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Rows(10, "stop"), Stream(10)], ids=["map", "stream"])
def test_the_end_of_something_else_is_not_the_end_of_the_data(workers: int, dataset: Any) -> None:
    """PyTorch leaves out the rest in silence."""
    def collate(batch: list) -> Any:
        return next(iter(())) if isinstance(dataset, Stream) else batch

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(dataset, batch_size=2, num_workers=workers, collate_fn=collate))


class Told(Stream):
    def __len__(self) -> int:
        return 7


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (3, 0), (None, 0), (3, 2)])
def test_a_stream_longer_than_it_said_is_told_of(batch_size: int | None, workers: int) -> None:
    for count, warned in ((7, False), (20, True)):
        loader = DataLoader(Told(count), batch_size=batch_size, num_workers=workers)
        assert len(loader) == (3 if batch_size == 3 else 7)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert sum(torch.as_tensor(batch).numel() for batch in loader) == count
        batches = count if batch_size in (1, None) else -(-count // 3)
        more = batches - 7 if workers == 0 else None     # as many as are fetched beyond that number
        assert all("reported to be 7" in str(w.message) for w in seen)
        assert len(seen) == max(0, more) if more is not None else bool(seen) == warned


def test_what_other_attributes_follow_from_stays() -> None:
    loader = DataLoader(Rows(3))
    for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set"):
            setattr(loader, name, 1)
    loader.num_workers = 0


def test_what_cannot_be_sent() -> None:
    with pytest.raises(Exception, match=r"(?s)worker process 0.*pickle"):
        list(DataLoader(Rows(2), num_workers=1, collate_fn=lambda batch: lambda: batch))


@pytest.mark.parametrize(("wish", "says"), [("exit", "exit code 3"), ("kill", "killed by signal: Killed")])
def test_a_dead_worker_is_named(wish: str, says: str) -> None:
    with pytest.raises(RuntimeError, match=rf"DataLoader worker 1 \(pid \d+\).*{says}"):
        list(DataLoader(Rows(10, wish), num_workers=2))
    assert children() == 0


def test_where_one_worker_cannot_start_none_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    start = _WorkerPool._start

    def second_fails(pool: _WorkerPool, context: Any, loader: DataLoader, number: int) -> None:
        if number:
            raise OSError(errno.ENOSPC, "No space left on device")
        start(pool, context, loader, number)

    monkeypatch.setattr(_WorkerPool, "_start", second_fails)
    with pytest.raises(OSError, match=r"No space left on device.*/dev/shm"):
        list(DataLoader(Rows(3), num_workers=2))
    assert children() == 0


def test_a_persistent_loader_recovers() -> None:
    loader = DataLoader(Rows(10, "exit"), num_workers=1, persistent_workers=True)
    with pytest.raises(RuntimeError, match="exit code 3"):
        list(loader)
    loader.dataset.wish = ""
    assert len(list(loader)) == 10


def test_timeout() -> None:
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"timed out after 0\.5 seconds"):
        list(DataLoader(Rows(10, "sleep", at=0), num_workers=1, timeout=0.5))
    assert time.monotonic() - start < 30
    assert children() == 0


@pytest.mark.parametrize(("options", "says"), [
    ({"num_workers": -1}, "non-negative"),
    ({"timeout": -1}, "timeout option should be non-negative"),
    ({"prefetch_factor": 2}, "prefetch_factor option could only be specified in multiprocessing"),
    ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
    ({"sampler": [0], "shuffle": True}, "mutually exclusive with shuffle"),
    ({"batch_sampler": [[0]], "batch_size": 3}, "mutually exclusive with batch_size"),
    ({"batch_size": None, "drop_last": True}, "mutually exclusive with drop_last"),
    ({"batch_size": 0}, "batch_size=0"),
    ({"multiprocessing_context": "fork"}, "can only be used with multi-process loading"),
    ({"multiprocessing_context": "spoon", "num_workers": 1}, "valid start method"),
])
def test_options_that_do_not_go_together(options: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DataLoader(Rows(3), **options)
    with pytest.raises(ValueError, match="expected unspecified shuffle option, but got shuffle=True"):
        DataLoader(Stream(3), shuffle=True)


class Mixed(Dataset):
    """Large and small, of every kind that travels."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Any:
        whole = torch.full((200, 200), float(i))
        return {"large": whole, "again": whole, "small": torch.tensor(i), "empty": torch.empty(0), "text": str(i),
                "array": np.full((100, 90), i)}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches_come_through_shared_memory_and_go(method: str) -> None:
    def files() -> int:
        gc.collect()
        links = (f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd"))
        return sum("memfd:flambeau" in os.readlink(link) for link in links if os.path.islink(link))

    before = files()
    loader = DataLoader(Mixed(), batch_size=None, num_workers=2, multiprocessing_context=method, collate_fn=_as_it_is)
    held = list(loader)
    for i, batch in enumerate(held):
        assert batch["large"].is_shared() and batch["large"] is batch["again"] and batch["large"].sum() == 40_000 * i
        assert batch["small"].item() == i and batch["empty"].shape == (0,) and batch["text"] == str(i)
        assert (batch["array"] == i).all() and batch["array"].flags.writeable
        batch["large"] += 1
    assert files() >= before + 6
    kept = held[3]["large"]
    del held, batch, loader
    assert files() == before + 1
    assert (kept == 4).all()
    del kept
    assert files() == before


def _as_it_is(sample: Any) -> Any:
    return sample


def test_small_batches_take_no_descriptor() -> None:
    batches = list(DataLoader([torch.ones(3) * i for i in range(4)], batch_size=2, num_workers=1))
    assert [b.sum().item() for b in batches] == [3, 15] and not any(b.is_shared() for b in batches)


def test_pinned_batches(monkeypatch):
    """As a GPU would have it: every tensor of a batch is pinned, whatever holds it."""
    loader = DataLoader([{"x": torch.ones(2), "name": "a"}], batch_size=1, pin_memory=True)
    assert next(iter(loader))["x"].tolist() == [[1, 1]]      # without one, nothing
    monkeypatch.setattr("flambeau.utils.data.dataloader.device_count", lambda: 1)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self + 1)
    batch = next(iter(loader))
    assert batch["x"].tolist() == [[2, 2]] and batch["name"] == ["a"]
    assert pinned([torch.zeros(1), (torch.zeros(1), 3)]) == [torch.ones(1), (torch.ones(1), 3)]


@pytest.mark.parametrize("workers", [0, 1])
def test_classes_begin_passes_of_their_own(workers: int) -> None:
    class Endless(DataLoader):
        def __iter__(self) -> Any:
            self.kept = getattr(self, "kept", None) or self._get_iterator()
            yield from (next(self.kept) for _ in range(2))

    loader = Endless(Rows(10), batch_size=2, num_workers=workers)
    passes = [[batch.tolist() for batch in loader] for _ in range(2)]
    assert passes[0] + passes[1] == [batch.tolist() for batch in DataLoader(Rows(10), batch_size=2)][:4]


class Foreign(IterableDataset):
    """A loader that is none: it has the attributes that iterators read."""

    _dataset_kind, _auto_collation, drop_last = dataloader._DatasetKind.Iterable, False, False
    generator, worker_init_fn, prefetch_factor, timeout, persistent_workers, multiprocessing_context = None, None, 2, 0, False, None

    def __init__(self, num_workers: int) -> None:
        self.num_workers, self.dataset, self._index_sampler = num_workers, self, range(100)

    def collate_fn(self, sample: Any) -> Any:
        return sample

    def __iter__(self) -> Any:
        return iter([3, 1, 2])


@pytest.mark.parametrize("workers", [0, 1])
def test_iterators_of_loaders_that_are_others(workers: int) -> None:
    kind = dataloader._MultiProcessingDataLoaderIter if workers else dataloader._SingleProcessDataLoaderIter
    assert list(kind(Foreign(workers))) == [3, 1, 2]


def described(library: Any, name: str) -> Any:
    """What a loader or its parts say of themselves."""
    data = library.utils.data
    loader = data.DataLoader(range(5), batch_size=2)
    several = data.DataLoader(range(4), num_workers=1, multiprocessing_context="fork", persistent_workers=True, prefetch_factor=1)
    calls = {
        "length": lambda: len(iter(loader)), "pickled": lambda: pickle.dumps(iter(loader)), "prefetch": lambda: data.DataLoader(
            range(2), num_workers=1, prefetch_factor=-1), "timeout": lambda: next(iter(data.DataLoader(range(2), timeout=1))),
        "context": lambda: several.multiprocessing_context.get_start_method(),
        "same iterator": lambda: iter(several) is iter(several), "workers": lambda: len(iter(several)._workers),
        "sampler": lambda: type(data.DataLoader(data.ChainDataset([])).sampler).__name__,
        "fetcher": lambda: data._DatasetKind.create_fetcher(0, range(9), True, list, False).fetch([4, 5]),
        "group": lambda: data.DistributedSampler(range(4)),
        "stacked": lambda: data.StackDataset(data.Subset(range(4), [3, 2]), range(2)).__getitems__([0, 1]),
        "named": lambda: data.StackDataset(a=range(2), b=range(2)).__getitems__([1]),
        "before": lambda: data.ConcatDataset([range(3)])[-4], "behind": lambda: data.ConcatDataset([range(3)])[3],
        "no tensors": lambda: data.TensorDataset().tensors, "abstract": lambda: data.IterableDataset(),
        "sparse": lambda: data.default_collate([library.eye(2).to_sparse()]),
    }
    try:
        return calls[name]()
    except Exception as error:
        return type(error)
    finally:
        if several._iterator is not None:
            several._iterator._shutdown_workers()


@pytest.mark.filterwarnings("ignore")     # of forks of processes with threads
@pytest.mark.parametrize("name", ["length", "pickled", "prefetch", "timeout", "context", "same iterator", "workers", "sampler", "fetcher",
                                  "group", "stacked", "named", "before", "behind", "no tensors", "abstract", "sparse"])
def test_what_loaders_and_datasets_say(name: str) -> None:
    oracle = pytest.importorskip("torch")
    assert described(torch, name) == described(oracle, name)


class Kept(collections.UserDict):
    """A mapping with something beside its items."""

    note = "kept"


def test_batches_are_of_the_samples_classes() -> None:
    samples = collections.defaultdict(list, a=1), collections.defaultdict(list, a=2)
    batch = default_collate(samples)
    assert type(batch) is collections.defaultdict and batch.default_factory is list and batch["a"].tolist() == [1, 2]
    assert type(default_collate([Kept(a=1)])) is Kept
    assert [x.tolist() for x in default_collate([range(2), range(2)])] == [[0, 0], [1, 1]]
    assert [x.tolist() for x in default_collate([bytearray(b"ab"), bytearray(b"cd")])] == [[97, 99], [98, 100]]
    assert default_collate([np.str_("a")]) == ["a"]


class Seeded(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple:
        info = get_worker_info()
        assert info is not None
        return info.seed, torch.rand(1).item(), float(np.random.rand())  # noqa: NPY002


def test_kept_workers_go_on_drawing() -> None:
    """They are seeded once: a second pass draws on."""
    torch.manual_seed(0)
    loader = DataLoader(Seeded(), num_workers=2, collate_fn=tuple, persistent_workers=True)
    first, second = list(loader), list(loader)
    assert [sample[0][0] for sample in first] == [sample[0][0] for sample in second]
    assert len({sample[0][1] for sample in first + second}) == 8


def test_parts_that_are_empty_are_told_of() -> None:
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        random_split(range(2), [0.1, 0.1, 0.8])  # type: ignore[arg-type]


def test_an_iterator_that_begins_anew_when_asked_again_is_asked_once() -> None:
    class Restarts(IterableDataset):
        def __iter__(self) -> Restarts:
            self.numbers = iter(range(7))
            return self

        def __next__(self) -> int:
            return next(self.numbers)

    assert [int(n) for n in DataLoader(Restarts(), batch_size=None)] == list(range(7))
    assert [b.tolist() for b in DataLoader(Restarts(), batch_size=3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [b.tolist() for b in DataLoader(Restarts(), batch_size=3, drop_last=True)] == [[0, 1, 2], [3, 4, 5]]
    assert [b.tolist() for b in DataLoader(Restarts(), batch_size=4, num_workers=1)] == [[0, 1, 2, 3], [4, 5, 6]]
    assert list(torch.utils.data.BatchSampler(Restarts(), 3, drop_last=False)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(torch.utils.data.datapipes.iter.IterableWrapper(Restarts(), deepcopy=False).batch(4)) == [[0, 1, 2, 3], [4, 5, 6]]
