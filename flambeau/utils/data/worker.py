"""What runs in a DataLoader's worker process, and how batches and errors travel from it.

A worker reads tasks from a queue and answers each with one message on a pipe. Tensors travel beside the pickle as raw
bytes (pickle protocol 5), so they are copied once into the pipe and once out of it.
"""

from __future__ import annotations

import io
import multiprocessing as mp
import pickle
import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ... import _C
from ...core.dtypes import dtype
from ...core.tensor import Tensor, from_array
from ...ops.random import manual_seed

PARENT_CHECK_SECONDS = 5.0


@dataclass(frozen=True)
class WorkerInfo:
    """What `get_worker_info()` tells a worker about itself."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process: its id, how many workers there are, its seed and its copy of the dataset. Elsewhere None."""
    return _worker_info


# -- batches on the wire ---------------------------------------------------------------------------------------
def _tensor_of_bytes(data: Any, kind: dtype, shape: tuple[int, ...], requires_grad: bool) -> Tensor:
    array = np.frombuffer(data, kind.numpy).reshape(shape)
    tensor = from_array(array if array.flags.writeable else array.copy())
    tensor.requires_grad = requires_grad
    return tensor


class _BatchPickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not Tensor:
            return NotImplemented
        flat = np.ascontiguousarray(obj.detach()._data).reshape(-1).view(np.uint8)
        return _tensor_of_bytes, (pickle.PickleBuffer(flat.data), obj.dtype, tuple(obj.shape), obj.requires_grad)


def encode(message: Any) -> list[Any]:
    """`message` as a list of byte strings: its pickle and the tensors' bytes."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = io.BytesIO()
    _BatchPickler(pickled, protocol=5, buffer_callback=buffers.append).dump(message)
    return [pickled.getvalue(), *(buffer.raw() for buffer in buffers)]


def send(connection: Connection, parts: list[Any]) -> None:
    """Send what `encode` made."""
    connection.send([len(part) for part in parts])
    for part in parts:
        connection.send_bytes(part)


def receive(connection: Connection) -> Any:
    """Read one message that `send` sent."""
    buffers = [bytearray(length) for length in connection.recv()]
    for buffer in buffers:
        connection.recv_bytes_into(buffer) if buffer else connection.recv_bytes()
    return pickle.loads(buffers[0], buffers=buffers[1:])


# -- errors ----------------------------------------------------------------------------------------------------
class _Verbatim(str):
    """A message that shows as it is: KeyError shows the repr of its argument, which would hide the line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class WorkerError:
    """An exception on its way out of a worker."""

    def __init__(self, error: BaseException, worker: int) -> None:
        self.kind = type(error)
        self.text = (f"Caught {self.kind.__name__} in DataLoader worker process {worker}.\n"
                     f"Original {''.join(traceback.format_exception(error))}")

    def reraise(self) -> None:
        """Raise the exception again, of the same type, with the worker's traceback as its message."""
        try:
            error = self.kind(_Verbatim(self.text) if issubclass(self.kind, KeyError) else self.text)
        except Exception:  # its constructor wants something else
            error = RuntimeError(self.text)
        raise error from None


class EndOfStream:
    """A worker's answer once its share of an iterable dataset is at its end."""


# -- the process -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class WorkerPlan:
    """What a worker is told when it starts. `make_fetcher(dataset)` gives the function from indices to batch."""

    id: int
    num_workers: int
    dataset: Any
    make_fetcher: Callable[[Any], Callable[[Any], Any]]
    init_fn: Callable[[int], Any] | None


@dataclass(frozen=True)
class Restart:
    """The task that begins an epoch."""

    base_seed: int


def _seed(plan: WorkerPlan, base_seed: int) -> None:
    global _worker_info
    seed = (base_seed + plan.id) % (1 << 63)
    random.seed(seed)
    manual_seed(seed)
    np.random.seed(np.random.SeedSequence(seed).generate_state(4))  # noqa: NPY002 - users' datasets draw from this one
    _worker_info = WorkerInfo(plan.id, plan.num_workers, seed, plan.dataset)


def _tasks(source: Any) -> Iterator[Any]:
    """The tasks until None comes or the process that gives them is gone."""
    parent = mp.parent_process()
    while True:
        try:
            task = source.get(timeout=PARENT_CHECK_SECONDS)
        except queue.Empty:
            if parent is not None and not parent.is_alive():
                return
            continue
        if task is None:
            return
        yield task


def _answers(plan: WorkerPlan, tasks: Iterator[Any]) -> Iterator[list[Any]]:
    """The message for each task; an error becomes the answer to the task that met it."""
    fetch: Callable[[Any], Any] | None = None
    failed: WorkerError | None = None
    started = False
    for task in tasks:
        if isinstance(task, Restart):
            failed = None
            try:
                _seed(plan, task.base_seed)
                if not started and plan.init_fn is not None:
                    plan.init_fn(plan.id)
                started = True
                fetch = plan.make_fetcher(plan.dataset)
            except Exception as error:
                failed = WorkerError(error, plan.id)
            continue
        number, indices = task
        try:
            answer: Any = failed
            if failed is None and fetch is not None:
                answer = fetch(indices)
            yield encode((number, answer))
        except StopIteration:
            yield encode((number, EndOfStream()))
        except Exception as error:
            yield _encode_error(number, WorkerError(error, plan.id))


def _encode_error(number: int, error: WorkerError) -> list[Any]:
    try:
        return encode((number, error))
    except Exception:  # the exception's class cannot be pickled
        error.kind = RuntimeError
        return encode((number, error))


def _send_all(connection: Connection, outbox: queue.SimpleQueue[list[Any] | None]) -> None:
    try:
        while (parts := outbox.get()) is not None:
            send(connection, parts)
    except (BrokenPipeError, ConnectionResetError):
        pass  # nobody listens any more


def run_worker(plan: WorkerPlan, source: Any, connection: Connection) -> None:
    """The worker's main function. A thread sends, so that the next batch is made while the last one is on its way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which then stops its workers
    _C.set_num_threads(1)
    outbox: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
    sender = threading.Thread(target=_send_all, args=(connection, outbox), daemon=True)
    sender.start()
    for parts in _answers(plan, _tasks(source)):
        outbox.put(parts)
    outbox.put(None)
    sender.join()
    connection.close()
