"""Queues of work on a GPU, marks in them, and recordings of them that are replayed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..backends.cuda import strays
from ..backends.cuda.recording import Recording
from ..core.storage import unseen_writes
from ..ops.generators import default_gpu_generator
from .library import cupy, device_count, index_of


class Stream:
    """A queue of work on a GPU, independent of the default one."""

    def __init__(self, device: Any = None, priority: int = 0, *, _stream: Any = None) -> None:
        library = cupy(type(self).__name__)
        if _stream is None:
            with library.cuda.Device(index_of(device)):
                _stream = library.cuda.Stream(non_blocking=True, priority=priority)
        self._stream, self.device_index = _stream, index_of(device)

    @property
    def cuda_stream(self) -> int:
        """The driver's handle."""
        return int(self._stream.ptr)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.cuda_stream == other.cuda_stream and self.device_index == other.device_index

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device_index))

    def query(self) -> bool:
        """Whether all work queued so far is done."""
        return bool(self._stream.done)

    def synchronize(self) -> None:
        """Wait until all work queued so far is done."""
        self._stream.synchronize()
        strays.check()

    def record_event(self, event: Event | None = None) -> Event:
        """Put a mark behind the work queued so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let what is queued from now on wait for a mark."""
        self._stream.wait_event(event._event)

    def wait_stream(self, stream: Stream) -> None:
        """Let what is queued from now on wait for the other queue's work so far."""
        self.wait_event(stream.record_event())


class ExternalStream(Stream):
    """A stream that another library made, by the driver's handle."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        super().__init__(device, _stream=cupy("ExternalStream").cuda.ExternalStream(stream_ptr, index_of(device)))


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """A stream that another library made, by the driver's handle; whoever made it keeps it alive."""
    return ExternalStream(data_ptr, device)


class GreenContext:
    """A part of a GPU's multiprocessors for one's own kernels: not implemented, `create` raises."""

    @staticmethod
    def create(num_sms: int | None = None, device_id: int | None = None, **options: Any) -> GreenContext:
        """NotImplementedError: kernels run on the whole GPU; streams order them."""
        raise NotImplementedError(f"GreenContext.create(num_sms={num_sms}, device_id={device_id}, {options}) is not implemented: kernels "
                                  "run on the whole GPU; torch.cuda.Stream(priority=...) orders them")


class Event:
    """A mark in a stream. Times between marks need `enable_timing`."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False) -> None:
        if external:
            raise NotImplementedError("Event(external=True): marks in a recording order the streams of that recording; record on the host")
        if interprocess:
            raise NotImplementedError("Event(interprocess=True): events of this process alone; synchronise through the host")
        self._event = cupy("Event").cuda.Event(block=blocking, disable_timing=not enable_timing)

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark behind the work queued so far."""
        self._event.record(None if stream is None else stream._stream)

    def query(self) -> bool:
        """Whether the work before the mark is done."""
        return bool(self._event.done)

    def synchronize(self) -> None:
        """Wait until the work before the mark is done."""
        self._event.synchronize()
        strays.check()

    def wait(self, stream: Stream | None = None) -> None:
        """Let what is queued from now on wait for the mark."""
        (current_stream() if stream is None else stream).wait_event(self)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to another."""
        return float(cupy("Event").cuda.get_elapsed_time(self._event, end_event._event))


def current_stream(device: Any = None) -> Stream:
    """The queue that work goes to now."""
    return Stream(device, _stream=cupy("current_stream").cuda.get_current_stream())


def default_stream(device: Any = None) -> Stream:
    """The queue that work goes to at first."""
    return Stream(device, _stream=cupy("default_stream").cuda.Stream.null)


def set_stream(stream: Stream) -> None:
    """Queue the work of this thread on `stream` from now on."""
    cupy("set_stream")
    stream._stream.use()


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Queue the block's work on `stream`; None means no change."""
    if stream is None:
        yield
        return
    cupy("stream")
    with stream._stream:
        yield


StreamContext = stream


def is_current_stream_capturing() -> bool:
    """Whether the current stream's work is being recorded."""
    return bool(device_count()) and bool(cupy("stream").cuda.get_current_stream().is_capturing())


class CUDAGraph:
    """A recorded sequence of kernel launches. It reads and writes the memory that it was recorded with."""

    def __init__(self, keep_graph: bool = False) -> None:
        if keep_graph:
            raise NotImplementedError("CUDAGraph(keep_graph=True) is not implemented: a recording is instantiated at once; leave it out")
        self._cupy = cupy("CUDAGraph")
        self._pool: Any = None
        self._graph: Any = None
        self._blocks: Any = None
        self._recording: Any = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin to record the current stream, which must not be the default one. Memory comes from a pool of the graph's own."""
        stream = self._cupy.cuda.get_current_stream()
        if stream.ptr == 0:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream: use torch.cuda.graph(g), or torch.cuda.stream")
        self._pool = pool or self._cupy.cuda.MemoryPool()
        self._blocks, self._recording = ExitStack(), Recording(self._cupy.cuda.runtime.getDevice())
        self._blocks.enter_context(self._recording)
        self._blocks.enter_context(self._cupy.cuda.using_allocator(self._pool.malloc))
        stream.begin_capture(self._cupy.cuda.runtime.streamCaptureModeRelaxed)

    def capture_end(self) -> None:
        """End recording."""
        if self._blocks is None:
            raise RuntimeError("capture_end() without capture_begin()")
        blocks, self._blocks = self._blocks, None
        with blocks:
            self._graph = self._cupy.cuda.get_current_stream().end_capture()

    def replay(self) -> None:
        """Queue the recorded work on the current stream."""
        if self._graph is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        unseen_writes[0] += 1
        self._recording.begin(default_gpu_generator)
        self._graph.launch(self._cupy.cuda.get_current_stream())

    def reset(self) -> None:
        """Forget the recording and its memory."""
        self._graph = self._pool = self._recording = None

    def pool(self) -> Any:
        """The pool that the recording's memory is from; another capture may share it."""
        return self._pool


@contextmanager
def graph(cuda_graph: CUDAGraph, pool: Any = None, stream: Stream | None = None, capture_error_mode: str = "global",
          enable_annotations: bool = False, check_input_liveness: bool = False) -> Iterator[None]:
    """Record the block's launches into `cuda_graph`, on a stream of its own. What it reads must live as long as it is replayed."""
    if enable_annotations or check_input_liveness:
        raise NotImplementedError(f"graph(enable_annotations={enable_annotations}, check_input_liveness={check_input_liveness}) is not "
                                  "implemented; leave both out, and keep the tensors that the block reads")
    cupy("graph").cuda.Device().synchronize()
    with (stream or Stream())._stream:
        cuda_graph.capture_begin(pool, capture_error_mode)
        try:
            yield
        finally:
            cuda_graph.capture_end()


def graph_pool_handle() -> Any:
    """A pool for several recordings to share."""
    return cupy("graph_pool_handle").cuda.MemoryPool()
