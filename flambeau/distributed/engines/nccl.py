"""Collectives between GPUs: NVIDIA's NCCL, by CuPy's bindings.

An operation is queued on a stream of its communicator, behind what the current stream holds when it begins; who waits for it lets the
current stream wait, not the host. So it overlaps with what is queued meanwhile. One thread of the process looks after what is under way.

Memory. CuPy gives freed memory out again in the order of the stream that it was made on. What an operation reads and writes is kept
until the stream that began it has waited, or it is over. Whatever runs on a communicator's stream runs after what the current one held
before: so memory that is made there is given out again after its last use, too.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np

from ...backends.cuda import recording, strays
from ...core.device import current_cuda
from ...core.device import device as Device
from ...core.settings import told
from ...cuda.library import device_count
from ...futures import Future
from .. import arrays
from ..errors import DistBackendError
from ..reduce_op import RedOpType
from ..stores import Store
from ..work import Work, _until
from .base import Posted

_INSTALL = ("Distributed package doesn't have NCCL built in: backend \"nccl\" needs an NVIDIA GPU, CuPy and NVIDIA's library "
            "(pip install 'flambeau[cuda]' nvidia-nccl-cu13); use \"gloo\" on CPUs")


class Libraries:
    """CuPy's `cuda` module (streams, events) and its bindings of NCCL."""

    @staticmethod
    def cuda() -> Any:
        """Streams, events, devices."""
        return importlib.import_module("cupy").cuda

    @staticmethod
    def nccl() -> Any:
        """Communicators."""
        return importlib.import_module("cupy.cuda.nccl")


def available() -> bool:
    """Whether there are a GPU, CuPy and NCCL."""
    return device_count() > 0 and bool(Libraries.nccl().available)


def require() -> None:
    """RuntimeError that says what to install, where something lacks."""
    if not available():
        raise RuntimeError(_INSTALL)


def _within(seconds: float, what: str, step: Callable[[], Any]) -> Any:
    """`step()`, in a thread, so that it can be given up: DistBackendError."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(step())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="flambeau-nccl-begin", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise DistBackendError(f"{what} failed: {failed[0]}") from failed[0]
    if not found:
        raise DistBackendError(f"{what} did not end within {seconds:g} s: another process has ended, hangs, or does something else")
    return found[0]


# -- what an operation is to the program ---------------------------------------------------------------------------------------------
class StreamWork(Work):
    """An operation on a communicator's stream. `wait` lets the current stream wait for it."""

    _new_lock = staticmethod(lambda: None)  # the GPU moves it on

    def __init__(self, request: _Queued, what: object, results: list, timeout: float, finish: Callable[[], None] | None = None,
                 late: Callable[[Any, float], Exception] | None = None) -> None:
        super().__init__(request, what, results, timeout, finish, late)
        self.begun, self._queued = time.monotonic(), request
        self._waiting = False  # `wait` was called before there was anything to wait for
        if request.together is None:
            self.close()
        else:
            request.together.append(self)

    def close(self) -> None:
        """All of it is queued: what follows on its stream, and the mark that says that it is over."""
        self._queued.close(self._finish)
        self._finish = None
        if not recording.under_way:  # a mark in a recording can't be asked
            self._queued.channel.fly(self)
        if self._waiting:
            self.wait()

    def poll(self) -> bool:
        """Whether it is over."""
        if not self._done:
            try:
                if self._queued.Test():
                    self._done, self._queued.kept = True, None
            except Exception as error:
                self._fail(DistBackendError(f"{self._what} failed: {error}"))
        return self._done

    def give_up(self, seconds: float) -> None:
        """It takes too long: its communicator ends, and all that is under way there."""
        text = f"{self._what} timed out after {seconds:g} s"
        self._queued.channel.fail(DistBackendError(text) if self._late is None else self._late(self._what, seconds))

    def wait(self, timeout: Any = None) -> bool:
        """Let the current stream wait for it. With a `timeout`, a barrier, or TORCH_NCCL_BLOCKING_WAIT=1, the host waits."""
        queued = self._queued
        if queued.event is None and not self._done:  # begun together with others, of which some may follow
            self._waiting = True
            return True
        if queued.host or timeout is not None:
            seconds = self._timeout if timeout is None else timeout.total_seconds()
            if not _until(self.poll, seconds):
                self.give_up(seconds)
        if self._error is not None:
            raise self._error
        if not self._done:
            queued.wait()
        return True

    def watch(self) -> None:
        """Its communicator's thread does already."""

    def joined(self, works: Sequence[Work]) -> Work:
        """The last of those begun together, which ends when all do, and lets go what all of them keep."""
        self._results = [t for work in works for t in work.result()]
        others = [work._queued for work in works if isinstance(work, StreamWork) and work is not self]
        self._queued.kept = [self._queued.kept, *[queued.kept for queued in others]]
        for queued in others:
            queued.kept = None
        return self

    def get_future(self) -> Future:
        """A future of the tensors, complete at once for the host: what goes on with them is queued behind them."""
        return StreamFuture(self._results, self)

    def after(self, step: Callable[[], Any]) -> Future:
        """A future of `step()`, which is queued on the communicator's stream."""
        channel = self._queued.channel
        with channel.here():
            request = channel.queue(())
            with channel.stream:
                value = step()
        work = StreamWork(request, f"what follows {self._what}", [value], self._timeout, None, self._late)
        return StreamFuture(value, work)


class StreamFuture(Future):
    """A value whose tensors are computed on a communicator's stream."""

    def __init__(self, value: Any, work: StreamWork) -> None:
        super().__init__()
        self._work = work
        self.set_result(value)

    def wait(self) -> Any:
        """The value; the current stream waits for it."""
        self._work.wait()
        return self.value()

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of `callback(this)`, whose work is queued behind this one's."""
        try:
            return self._work.after(lambda: callback(self))
        except Exception as error:
            failed: Future = Future()
            failed.set_exception(error)
            return failed


# -- streams ---------------------------------------------------------------------------------------------------------------------
_HERE: AbstractContextManager = nullcontext()


class _Queued:
    """An operation's place on a channel's stream."""

    __slots__ = ("begun_on", "channel", "event", "host", "kept", "together")

    def __init__(self, channel: _Channel, kept: Any, begun_on: int, together: list[StreamWork] | None, host: bool) -> None:
        self.channel, self.kept, self.begun_on, self.together, self.host = channel, kept, begun_on, together, host
        self.event: Any = None

    def Test(self) -> bool:
        """Whether it is over."""
        event = self.event
        return event is not None and bool(event.done)

    def close(self, finish: Callable[[], None] | None) -> None:
        """Queue what puts results into their places, and the mark behind it."""
        channel = self.channel
        with channel.here():
            if finish is not None:
                with channel.stream:
                    finish()
            event = channel.event()
            event.record(channel.stream)
        self.event = event

    def wait(self) -> None:
        """The current stream waits."""
        event = self.event
        with self.channel.here():
            current = self.channel.cuda.get_current_stream()
            if event is not None:  # it is over meanwhile
                current.wait_event(event)
        if current.ptr == self.begun_on:
            self.kept = None


class _Channel:
    """A communicator on one GPU, and its stream."""

    def __init__(self, index: int, make: Callable[[], Any]) -> None:
        self.cuda = Libraries.cuda()
        self.index, self.device, self.comm = index, self.cuda.Device(index), make()
        with self.device:
            self.stream = self.cuda.Stream(non_blocking=True, priority=-1)  # communication goes first: others wait for it
            self._before = self.cuda.Event(disable_timing=True)
        self.flying: deque[StreamWork] = deque()
        self._events: list[Any] = []  # whose work is over
        self.token: Any = None  # what a barrier reduces
        self._dead = False
        _WATCH.add(self)

    def here(self) -> AbstractContextManager:
        """Its GPU is the current one."""
        return _HERE if self.cuda.runtime.getDevice() == self.index else self.device

    def event(self) -> Any:
        """A mark to be set."""
        return self._events.pop() if self._events else self.cuda.Event(disable_timing=True)

    def queue(self, kept: Any, together: list[StreamWork] | None = None, host: bool = False) -> _Queued:
        """The place of what is queued on this stream next, behind what the current one holds. Its GPU is the current one."""
        current = self.cuda.get_current_stream()
        self._before.record(current)
        self.stream.wait_event(self._before)
        return _Queued(self, kept, current.ptr, together, host)

    def fly(self, work: StreamWork) -> None:
        """Look after `work` until it is over."""
        self.flying.append(work)

    def look(self, asks: bool) -> None:
        """Let go what is over, and end what takes too long or (looked for if `asks`) has failed."""
        with self.cuda.Device(self.index):     # an object of this thread's own: it remembers which GPU was current
            while self.flying and self.flying[0].poll():
                self._land(self.flying.popleft()._queued)
            if not self.flying or self._dead:
                return
            first = self.flying[0]
            if time.monotonic() - first.begun > first._timeout:
                first.give_up(first._timeout)
            elif asks:
                try:
                    self.comm.check_async_error()
                except Exception as error:
                    self.fail(DistBackendError(f"{first._what} failed: {error}"))

    def _land(self, queued: _Queued) -> None:
        """It is over: its mark can be another's."""
        event, queued.event = queued.event, None
        self._events.append(event)

    def fail(self, error: Exception) -> None:
        """End the communicator, and with `error` what is under way and the program's next synchronisation."""
        if self._dead:
            return
        self._dead = True
        strays.fail(error)
        while self.flying:
            work = self.flying.popleft()
            if not work._done:
                work._fail(error)
        self.comm.abort()

    def close(self, seconds: float) -> None:
        """End the communicator: in order, if what is under way ends in that time."""
        if self._dead:
            return
        _WATCH.channels.remove(self)
        ended = _until(lambda: all(work.poll() for work in list(self.flying)), seconds)
        self._dead = True
        with suppress(DistBackendError):
            if ended:
                _within(seconds, "ending an NCCL communicator", self._destroy)
                return
        self.comm.abort()

    def _destroy(self) -> bool:
        with self.device:
            self.comm.destroy()
        return True

    def forget(self) -> None:
        """At the end of the process: nobody waits any more."""
        if not self._dead:
            self._dead = True
            self.comm.abort()


class _Watch:
    """The thread that looks after all channels."""

    EVERY, ASKS = 0.05, 20  # seconds between looks; at every so many NCCL is asked whether something went wrong

    def __init__(self) -> None:
        self.channels: list[_Channel] = []
        self._thread: threading.Thread | None = None
        atexit.register(self._end)

    def add(self, channel: _Channel) -> None:
        """One more."""
        self.channels.append(channel)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="flambeau-nccl", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        turn = 0
        while True:
            time.sleep(self.EVERY)
            turn = (turn + 1) % self.ASKS
            for channel in list(self.channels):
                channel.look(not turn)

    def _end(self) -> None:
        for channel in self.channels:
            channel.forget()


_WATCH = _Watch()

# -- what NCCL calls dtypes and reductions --------------------------------------------------------------------------------------------
_BYTES = 1  # uint8
_TYPES = {"int8": 0, "uint8": 1, "bool": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8,
          "bfloat16": 9, "float8_e4m3fn": 10, "float8_e5m2": 11, "complex64": 7, "complex128": 8}
_WIDER = {"int16": "int32", "uint16": "uint32"}
_OPS = {RedOpType.SUM: 0, RedOpType.PRODUCT: 1, RedOpType.MAX: 2, RedOpType.MIN: 3, RedOpType.AVG: 4}
_OF_BOOLS = {RedOpType.SUM: 2, RedOpType.MAX: 2, RedOpType.PRODUCT: 3, RedOpType.MIN: 3}
_HOST_SCALAR = 1  # ncclScalarHostImmediate


_name_of = functools.cache(lambda dtype: dtype.name)  # NumPy puts it together anew each time


def _numbers(array: Any) -> int:
    """How many numbers the elements are: complex ones are two."""
    return array.size * (2 if array.dtype.kind == "c" else 1)


def _pointer(array: Any) -> int:
    return int(array.data.ptr)


def _gpu_of(array: Any) -> int:
    return int(array.device.id)


class _Product:
    """A sum of what is multiplied by a factor first, as an operation of one communicator."""

    def __init__(self, comm: Any, dtype: np.dtype, factor: Any) -> None:
        self._library, self._comm = ctypes.CDLL("libnccl.so.2"), ctypes.c_void_p(comm.comm)  # loaded already
        real = np.dtype({"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype))
        scalar, code = np.array(factor, real), ctypes.c_int()
        status = self._library.ncclRedOpCreatePreMulSum(ctypes.byref(code), ctypes.c_void_p(scalar.ctypes.data), _TYPES[dtype.name],
                                                        _HOST_SCALAR, self._comm)
        if status:
            raise DistBackendError(f"NCCL has no PREMUL_SUM of {dtype} by {factor} (status {status})")
        self.code = code.value

    def close(self) -> None:
        self._library.ncclRedOpDestroy(ctypes.c_int(self.code), self._comm)


class NCCLEngine:
    """The operations of one group. Communicators are made when they are needed: one for collectives, and one for each pair and
    direction in which something is sent, so that a send waits for nothing but its receive."""

    work = StreamWork

    def __init__(self, rank: int, size: int, store: Store, timeout: float, gpu: int | None = None) -> None:
        """`gpu`: the one to use where tensors don't say it."""
        self.rank, self.size, self._store, self._timeout = rank, size, store, timeout
        self._channels: dict[tuple, _Channel] = {}
        self._together: list[StreamWork] | None = None
        self._grouped = False  # NCCL knows of it
        self._bound, self._blocking = gpu, told("TORCH_NCCL_BLOCKING_WAIT") == "1"

    # -- where ------------------------------------------------------------------------------------------------------------------------
    def device(self) -> Device:
        """The GPU that was bound, or used, or is the current one; if none was chosen, that of this process's number on its machine."""
        if self._bound is not None:
            return Device("cuda", self._bound)
        for key in self._channels:
            return Device("cuda", key[0])
        number = int(told("LOCAL_RANK") or self.rank) % max(device_count(), 1)
        return Device("cuda", current_cuda[0] or number)

    def beside(self, array: Any, out: Any) -> Any:
        """`array`: NCCL takes this process's part of a larger one in its place. A copy, if it lies elsewhere in the memory of `out`."""
        if not arrays.overlap(out, array):
            return array
        whole, part = (out, array) if out.size >= array.size else (array, out)
        return array if _pointer(part) == _pointer(whole) + self.rank * part.nbytes else array.copy()

    def _channel(self, index: int, pair: tuple[int, int] | None = None) -> _Channel:
        """The communicator of all, or of (sender, receiver), on a GPU."""
        key = (index, pair)
        if key not in self._channels:
            require()
            number = sum(known == pair for _, known in self._channels)
            who, rank, size = ("all", self.rank, self.size) if pair is None else (f"{pair[0]}-{pair[1]}", pair.index(self.rank), 2)
            self._channels[key] = _Channel(index, lambda: self._meet(f"nccl/{who}/{number}", index, rank, size))
        return self._channels[key]

    def _meet(self, name: str, index: int, rank: int, size: int) -> Any:
        nccl = Libraries.nccl()
        if rank == 0:
            self._store.set(name, nccl.get_unique_id())
        identity = self._store.get(name)

        def begin() -> Any:
            with Libraries.cuda().Device(index):
                return nccl.NcclCommunicator(size, identity, rank)

        return _within(self._timeout, f"making the NCCL communicator {name} (rank {rank} of {size}, GPU {index})", begin)

    def meet(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Communicators for these (sender, receiver), in an order that all processes have."""
        for pair in sorted(set(pairs)):
            self._channel(int(self.device().index or 0), pair)

    # -- how ------------------------------------------------------------------------------------------------------------------------
    def together(self) -> AbstractContextManager:
        """What is begun in the block is one operation to NCCL."""
        return self._group()

    @contextmanager
    def _group(self) -> Iterator[None]:
        if self._together is not None:
            yield
            return
        self._together = works = list[StreamWork]()
        try:
            yield
        finally:
            self._together = None
            if self._grouped:
                self._grouped = False
                Libraries.nccl().groupEnd()
            for work in works:
                work.close()

    def _post(self, channel: _Channel, kept: Sequence[Any], launch: Callable[..., Any], *args: Any,
              finish: Callable[[], None] | None = None, host: bool = False) -> Posted:
        """Queue `launch(*args, stream)`."""
        if self._together is not None and not self._grouped:
            self._grouped = True
            Libraries.nccl().groupStart()
        with channel.here():
            request = channel.queue(kept, self._together, host or self._blocking)
            launch(*args, channel.stream.ptr)
        return Posted(request, finish)

    def _reduction(self, method: str, array: Any, out: Any, op: RedOpType, factor: Any, *root: int) -> Posted:
        """Post a communicator's `method`, which reads `array` and writes `out`."""
        name = _name_of(array.dtype)
        if op not in _OPS and op is not RedOpType.PREMUL_SUM:
            raise ValueError(f"Cannot use ReduceOp.{op.name} with NCCL; use a group of \"gloo\" between CPUs")
        if name in _WIDER:
            wide = array.astype(_WIDER[name])
            found = wide if out is array else out.astype(_WIDER[name])
            return self._reduction(method, wide, found, op, factor, *root)._replace(finish=lambda: arrays.copy(out, found))
        channel = self._channel(_gpu_of(array))
        product = _Product(channel.comm, array.dtype, factor) if op is RedOpType.PREMUL_SUM else None
        code = product.code if product is not None else (_OF_BOOLS if name == "bool" else _OPS)[op]
        posted = self._post(channel, (array, out), getattr(channel.comm, method), _pointer(array), _pointer(out), _numbers(out),
                            _TYPES[name], code, *root)
        if product is not None:
            product.close()
        return posted

    def _moved(self, method: str, array: Any, out: Any, *root: int) -> Posted:
        """Post a communicator's `method`, which moves bytes of `array` to `out`."""
        channel = self._channel(_gpu_of(array))
        return self._post(channel, (array, out), getattr(channel.comm, method), _pointer(array), _pointer(out), array.nbytes, _BYTES, *root)

    # -- reductions -------------------------------------------------------------------------------------------------------------------
    def all_reduce(self, array: Any, op: RedOpType, factor: Any = None) -> Posted:
        """Everyone's `array` combined, into everyone's."""
        return self._reduction("allReduce", array, array, op, factor)

    def reduce(self, array: Any, dst: int, op: RedOpType, factor: Any = None) -> Posted:
        """Everyone's `array` combined, into that of `dst`."""
        return self._reduction("reduce", array, array, op, factor, dst)

    def reduce_scatter(self, out: Any, array: Any, op: RedOpType, factor: Any = None) -> Posted:
        """Everyone's `array` combined, a part for each rank, into its `out`."""
        return self._reduction("reduceScatter", array, out, op, factor)

    # -- bytes from here to there -------------------------------------------------------------------------------------------------------
    def broadcast(self, array: Any, src: int) -> Posted:
        """`array` of `src` into everyone's."""
        return self._moved("broadcast", array, array, src)

    def all_gather(self, out: Any, array: Any) -> Posted:
        """Everyone's `array`, one after another, into everyone's `out`."""
        return self._moved("allGather", array, out)

    def gather(self, out: Any | None, array: Any, dst: int) -> Posted:
        """Everyone's `array`, one after another, into `out` of `dst`."""
        received = [array.nbytes if self.rank == dst else 0] * self.size
        sent = [array.nbytes if r == dst else 0 for r in range(self.size)]
        return self._exchange(array if out is None else out, array, received, sent)

    def scatter(self, out: Any, array: Any | None, src: int) -> Posted:
        """The parts of `array` of `src`, one for each rank, into everyone's `out`."""
        received = [out.nbytes if r == src else 0 for r in range(self.size)]
        sent = [out.nbytes if self.rank == src else 0] * self.size
        return self._exchange(out, out if array is None else array, received, sent)

    def all_to_all(self, out: Any, array: Any, received: Sequence[int], sent: Sequence[int]) -> Posted:
        """`sent[r]` elements of `array` to each rank r, and `received[r]` from it into `out`."""
        width = array.dtype.itemsize
        return self._exchange(out, array, [n * width for n in received], [n * width for n in sent])

    def _exchange(self, out: Any, array: Any, received: Sequence[int], sent: Sequence[int]) -> Posted:
        """So many bytes to each rank and from each, one after another in `array` and `out`."""
        def launch(comm: Any, stream: int) -> None:
            nccl, source, target = Libraries.nccl(), _pointer(array), _pointer(out)
            nccl.groupStart()
            try:
                for r in range(self.size):
                    if sent[r]:
                        comm.send(source, sent[r], _BYTES, r, stream)
                    if received[r]:
                        comm.recv(target, received[r], _BYTES, r, stream)
                    source, target = source + sent[r], target + received[r]
            finally:
                nccl.groupEnd()

        channel = self._channel(_gpu_of(array))
        return self._post(channel, (out, array), launch, channel.comm)

    def barrier(self) -> Posted:
        """Done when all ranks have come here; the host waits for it."""
        channel = self._channel(int(self.device().index or 0))
        if channel.token is None:
            with channel.device:
                channel.token = importlib.import_module("cupy").zeros(1, np.uint8)
        at = _pointer(channel.token)
        return self._post(channel, (), channel.comm.allReduce, at, at, 1, _BYTES, _OPS[RedOpType.MAX], host=True)

    def send(self, array: Any, dst: int, tag: int) -> Posted:
        """`array` to `dst`. NCCL has no tags: what is sent arrives in its order."""
        del tag
        channel = self._channel(_gpu_of(array), (self.rank, dst))
        return self._post(channel, (array,), channel.comm.send, _pointer(array), array.nbytes, _BYTES, 1)

    def recv(self, array: Any, src: int | None, tag: int, came: Callable[[int], None]) -> Posted:
        """Into `array` from `src`."""
        del tag
        if src is None:
            raise NotImplementedError("recv from anyone is not implemented between GPUs: NCCL needs to know from whom; say src=")
        channel = self._channel(_gpu_of(array), (src, self.rank))
        came(src)
        return self._post(channel, (array,), channel.comm.recv, _pointer(array), array.nbytes, _BYTES, 0)

    def close(self) -> None:
        """End the communicators."""
        for channel in self._channels.values():
            channel.close(min(self._timeout, 10.0))
        self._channels = {}
