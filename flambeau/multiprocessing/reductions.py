"""How tensors travel to other processes: as handles of shared memory, so that both sides see the same elements.

Python's multiprocessing pickles with its ForkingPickler, which is told here how to take tensors and storages. What it cannot pickle
is a file's descriptor: a process that is being started inherits it, any other fetches it from the sender (`resource_sharer`: a
thread that answers on a socket). A sender that ends in good order leaves what nobody fetched yet in named files, of which its
parent process removes those that are never asked for.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from multiprocessing import context, parent_process, reduction, resource_sharer, util
from pathlib import Path
from typing import Any

from ..core import shared
from ..core.dtypes import dtype
from ..core.locks import lock
from ..core.shared import Segment
from ..core.storage import Storage
from ..core.tensor import Layout, Tensor, from_array, view_tensor
from ..nn.parameter import Parameter
from ..ops.storages import TypedStorage, UntypedStorage

_AT_EXIT = -50  # after multiprocessing's queues have sent what they hold (-5)


# -- segments on their way ----------------------------------------------------------------------------------------------
class _Process:
    """What this process has sent and what it inherited; a fork starts with nothing."""

    def __init__(self) -> None:
        self.pid = 0
        self.renew()
        util.register_after_fork(self, _Process.renew)

    def renew(self) -> None:
        self.pending: dict[str, Segment] = {}  # sent and not fetched
        self.handing_over = lock()  # a segment is fetched or left, not both
        self.numbers = count()
        self.inherited: weakref.WeakValueDictionary[int, Segment] = weakref.WeakValueDictionary()
        self.starting: weakref.WeakKeyDictionary[Any, dict[tuple, Any]] = weakref.WeakKeyDictionary()

    def token(self, segment: Segment) -> str:
        """A new name for `segment`, which is kept until somebody fetches it by that name."""
        if self.pid != os.getpid():
            self.pid = os.getpid()
            util.Finalize(self, _leave, exitpriority=_AT_EXIT)
        token = f"{self.pid}-{next(self.numbers)}"
        self.pending[token] = segment
        return token


_here = _Process()


class _Fetched:
    """The way to a segment of a process that runs: its token, and where the sender's thread answers."""

    def __init__(self, segment: Segment) -> None:
        self.token = _here.token(segment)
        here, token, file = _here, self.token, segment.file

        def send(connection: Any, pid: int) -> None:
            with here.handing_over:
                reduction.send_handle(connection, file, pid)
                here.pending.pop(token, None)

        self.address = resource_sharer._resource_sharer.register(send, lambda: None)  # type: ignore[attr-defined]

    def open(self) -> Segment:
        """The segment. RuntimeError if the sender was killed before."""
        try:
            with resource_sharer._resource_sharer.get_connection(self.address) as connection:  # type: ignore[attr-defined]
                file = reduction.recv_handle(connection)
        except (OSError, EOFError):
            file = _take_left(self.token)
        return Segment(file, os.fstat(file).st_size)


class _Inherited:
    """The way to a segment of the process that starts this one."""

    def __init__(self, segment: Segment, starting: Any) -> None:
        handles = _here.starting.setdefault(starting, {})
        if segment.key not in handles:  # a descriptor may be passed on only once
            handles[segment.key] = reduction.DupFd(segment.file)
        self.handle = handles[segment.key]

    def open(self) -> Segment:
        """The segment."""
        file = self.handle.detach()
        segment = _here.inherited.get(file)
        if segment is None:
            segment = _here.inherited[file] = Segment(file, os.fstat(file).st_size)
        return segment


def _way_to(segment: Segment) -> _Fetched | _Inherited:
    starting = context.get_spawning_popen()
    return _Fetched(segment) if starting is None else _Inherited(segment, starting)


# -- what a process leaves behind ---------------------------------------------------------------------------------------
def _folder() -> Path:
    return Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())


def _prefix(pid: int | None) -> str:
    """The names of what children of process `pid` leave; process ids are told apart by their namespace."""
    return f"flambeau-{os.getuid()}-{os.stat('/proc/self/ns/pid').st_ino}-{pid}-"


def _leave() -> None:
    """At the end: write what was sent and not fetched to files, one name for each time it was sent. The first process's own end is
    the end of those that could fetch it: it removes what its children left."""
    parent = parent_process()
    if parent is None:
        for left in _folder().glob(_prefix(os.getpid()) + "*"):
            left.unlink(missing_ok=True)
        return
    with _here.handing_over:
        pending = list(_here.pending.items())
    written: dict[tuple, Path] = {}
    for token, segment in pending:
        path = _folder() / (_prefix(parent.pid) + token)
        with suppress(OSError):  # a full disk: the receiver is told that it is lost
            if segment.key in written:
                path.hardlink_to(written[segment.key])
            else:
                aside = path.with_name(path.name + ".part")
                aside.touch(0o600)
                segment.array.tofile(aside)
                aside.rename(path)
                written[segment.key] = path


def _owners() -> Iterator[int | None]:
    """The processes whose children may have left something for this one."""
    yield os.getpid()
    parent = parent_process()
    yield None if parent is None else parent.pid


def _take_left(token: str) -> int:
    """The file that a process left under this token when it ended."""
    for owner in _owners():
        path = _folder() / (_prefix(owner) + token)
        with suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            path.unlink()
            return file
    raise RuntimeError("a tensor was received from a process that was killed before its memory was fetched: a process that sends tensors "
                       "has to live until they are received, or to end in good order")


def _sweep() -> None:
    """Remove what was left for processes that were killed themselves."""
    start = _prefix(None).removesuffix("None-")
    for left in _folder().glob(start + "*"):
        owner = left.name.removeprefix(start).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            left.unlink(missing_ok=True)


# -- tensors and storages -----------------------------------------------------------------------------------------------
def _rebuild_storage(way: _Fetched | _Inherited, offset: int, nbytes: int) -> Storage:
    return shared.attach(way.open(), offset, nbytes)


def reduce_storage(storage: Storage) -> tuple[Callable, tuple]:
    """A storage as a handle; it moves into shared memory first, if it is not there."""
    shared.share(storage)
    segment, offset = shared.place_of(storage)  # type: ignore[misc]
    return _rebuild_storage, (_way_to(segment), offset, storage.nbytes)


def _rebuild_wrapper(kind: type, storage: Storage, *element: dtype) -> UntypedStorage:
    bytes_ = UntypedStorage(storage)
    return kind(wrap_storage=bytes_, dtype=element[0]) if element else bytes_


def _reduce_wrapper(wrapper: UntypedStorage) -> tuple[Callable, tuple]:
    element = (wrapper.dtype,) if isinstance(wrapper, TypedStorage) else ()
    return _rebuild_wrapper, (type(wrapper), wrapper._storage, *element)


def rebuild_tensor(kind: type, storage: Storage, element: dtype, layout: Layout, requires_grad: bool, state: dict) -> Tensor:
    """The tensor over a storage that came here."""
    over = from_array(storage.buffer)
    over._store = storage
    made = view_tensor(over, element, layout)
    if kind is not Tensor:
        made = made._as_subclass(kind)
    made.requires_grad = requires_grad
    made.__dict__.update(state)
    return made


def reduce_tensor(tensor: Tensor) -> tuple[Callable, tuple]:
    """A tensor on the CPU as a handle of its memory, which becomes shared; others by value. RuntimeError for one that was computed with
    gradients: the tape stays here."""
    if not tensor.is_leaf and tensor.requires_grad:
        raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing "
                           "process boundaries. If you just want to transfer the data, call detach() on the tensor before serializing "
                           "(e.g., putting it on the queue).")
    if tensor.is_fake or tensor.device.type != "cpu":
        return tensor.__reduce_ex__(2)  # type: ignore[return-value]
    shared.share_tensor(tensor)
    layout = Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())
    return rebuild_tensor, (type(tensor), tensor._storage.memory, tensor.dtype, layout, tensor.requires_grad, dict(tensor.__dict__))


def init_reductions() -> None:
    """Tell multiprocessing's pickler how tensors travel."""
    for kind, reduce in ((Tensor, reduce_tensor), (Parameter, reduce_tensor), (Storage, reduce_storage), (UntypedStorage, _reduce_wrapper),
                         (TypedStorage, _reduce_wrapper)):
        reduction.ForkingPickler.register(kind, reduce)
    _sweep()


init_reductions()
