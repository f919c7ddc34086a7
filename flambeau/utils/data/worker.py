"""What runs in a DataLoader's worker process, and how batches and errors travel from it.

A worker reads tasks from a queue and answers each with one message on a socket. The bytes of tensors and arrays travel beside the
pickle, those of one message together: where they are many, in a segment of shared memory, whose descriptor is sent. So they are
copied once, and the memory is free when the last tensor of the batch is.
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
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ... import _C
from ...core.shared import Segment, attach, create
from ...core.size import contiguous_strides
from ...core.tensor import Layout, Tensor, from_array
from ...core.unresolved import resolved
from ...ops.generators import manual_seed

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
SHARED_FROM = 1 << 16  # bytes of a message; fewer go through the socket
_ALIGNMENT = 64


class _BatchPickler(pickle.Pickler):
    """Pickles a message; the bytes of its tensors and arrays are gathered in `parts`, each with its place among them."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5, buffer_callback=lambda buffer: self.places.append(self._place(buffer.raw())))
        self.parts: list[tuple[int, Any]] = []
        self.places: list[tuple[int, int]] = []  # of the arrays, in order
        self.size = 0
        self._tensors: dict[int, tuple] = {}

    def _place(self, data: Any) -> tuple[int, int]:
        begin = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        self.parts.append((begin, data))
        self.size = begin + data.nbytes
        return begin, data.nbytes

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is not Tensor or obj.device.type != "cpu" or obj.is_fake:
            return None
        if id(obj) not in self._tensors:
            flat = np.ascontiguousarray(resolved(obj.detach()._data)).reshape(-1).view(np.uint8)
            self._tensors[id(obj)] = (*self._place(flat), obj.dtype, tuple(obj.shape), obj.requires_grad, len(self._tensors))
        return self._tensors[id(obj)]


class _BatchUnpickler(pickle.Unpickler):
    def __init__(self, pickled: bytearray, memory: np.ndarray, segment: Segment | None, places: list[tuple[int, int]]) -> None:
        super().__init__(io.BytesIO(pickled), buffers=[memory[begin : begin + nbytes] for begin, nbytes in places])
        self.memory, self.segment = memory, segment
        self.tensors: dict[int, Tensor] = {}

    def persistent_load(self, pid: Any) -> Tensor:
        begin, nbytes, kind, shape, requires_grad, number = pid
        if number not in self.tensors:
            data = self.memory[begin : begin + nbytes]
            tensor = from_array(data.view(kind.numpy).reshape(shape))
            if self.segment is not None:
                tensor._lay, tensor._store = Layout(shape, contiguous_strides(shape)), attach(self.segment, begin, nbytes)
            tensor.requires_grad = requires_grad
            self.tensors[number] = tensor
        return self.tensors[number]


@dataclass(frozen=True)
class Message:
    """A message on its way: its pickle, where its arrays lie, and the memory of arrays and tensors, shared or not."""

    pickled: bytes
    places: list[tuple[int, int]]
    memory: np.ndarray
    segment: Segment | None


def encode(message: Any) -> Message:
    """`message`, which holds tensors and arrays in any nesting, ready to be sent."""
    pickled = io.BytesIO()
    pickler = _BatchPickler(pickled)
    pickler.dump(message)
    segment = create(pickler.size) if pickler.size >= SHARED_FROM else None
    memory = np.zeros(pickler.size, np.uint8) if segment is None else segment.array
    for begin, data in pickler.parts:
        memory[begin : begin + data.nbytes] = data
    return Message(pickled.getvalue(), pickler.places, memory, segment)


def send(connection: Connection, message: Message) -> None:
    """Send what `encode` made over a two-way connection."""
    connection.send((len(message.pickled), message.places, message.memory.nbytes, message.segment is not None))
    connection.send_bytes(message.pickled)
    if message.segment is not None:
        reduction.send_handle(connection, message.segment.file, None)
    elif message.memory.nbytes:
        connection.send_bytes(message.memory.data)


def receive(connection: Connection) -> pickle.Unpickler:
    """Read one message that `send` sent: what loads it."""
    length, places, size, is_shared = connection.recv()
    pickled = bytearray(length)
    connection.recv_bytes_into(pickled)
    segment = Segment(reduction.recv_handle(connection), size) if is_shared else None
    memory = np.empty(size, np.uint8) if segment is None else segment.array
    if segment is None and size:
        connection.recv_bytes_into(memory)
    return _BatchUnpickler(pickled, memory, segment, places)


# -- errors ----------------------------------------------------------------------------------------------------
class _Verbatim(str):
    """A message that shows as it is: KeyError shows the repr of its argument, which would hide the line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class WorkerError:
    """An exception on its way out of a worker."""

    def __init__(self, error: BaseException, worker: int) -> None:
        self.kind = RuntimeError if isinstance(error, StopIteration) else type(error)  # it must not look like the end of the data
        self.text = (f"Caught {type(error).__name__} in DataLoader worker process {worker}.\n"
                     f"Original {''.join(traceback.format_exception(error))}")

    def reraise(self) -> None:
        """Raise the exception again, of the same type, with the worker's traceback as its message."""
        try:
            error = self.kind(_Verbatim(self.text) if issubclass(self.kind, KeyError) else self.text)
        except Exception:  # its constructor wants something else
            error = RuntimeError(self.text)
        raise error from None


class StreamEnded(Exception):
    """An iterable dataset has nothing more to give."""


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


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four numbers to seed NumPy's generator of a worker with."""
    return np.random.SeedSequence((worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0)).generate_state(4).tolist()


def _seed(plan: WorkerPlan, base_seed: int) -> None:
    global _worker_info
    seed = (base_seed + plan.id) % (1 << 63)
    random.seed(seed)
    manual_seed(seed)
    words = np.random.SeedSequence([plan.id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]).generate_state(4)
    np.random.seed(words)  # noqa: NPY002 - users' datasets draw from this one
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


def _answers(plan: WorkerPlan, tasks: Iterator[Any]) -> Iterator[Message]:
    """The message for each task; an error becomes the answer to the task that met it."""
    fetch: Callable[[Any], Any] | None = None
    failed: WorkerError | None = None
    started = False
    for task in tasks:
        if isinstance(task, Restart):
            failed = None
            try:
                if not started:
                    _seed(plan, task.base_seed)
                    if plan.init_fn is not None:
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
        except StreamEnded:
            yield encode((number, EndOfStream()))
        except Exception as error:
            yield _encode_error(number, WorkerError(error, plan.id))


def _encode_error(number: int, error: WorkerError) -> Message:
    try:
        return encode((number, error))
    except Exception:  # the exception's class cannot be pickled
        error.kind = RuntimeError
        return encode((number, error))


def _send_all(connection: Connection, outbox: queue.SimpleQueue[Message | None]) -> None:
    try:
        while (message := outbox.get()) is not None:
            send(connection, message)
            del message  # its memory is the receiver's now
    except (BrokenPipeError, ConnectionResetError):
        pass  # nobody listens any more


def run_worker(plan: WorkerPlan, source: Any, connection: Connection) -> None:
    """The worker's main function. A thread sends, so that the next batch is made while the last one is on its way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which then stops its workers
    _C.set_num_threads(1)
    outbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
    sender = threading.Thread(target=_send_all, args=(connection, outbox), daemon=True)
    sender.start()
    for message in _answers(plan, _tasks(source)):
        outbox.put(message)
        del message
    outbox.put(None)
    sender.join()
    connection.close()
