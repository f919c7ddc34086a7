"""Memory that processes share: a storage moves into an anonymous file (memfd), which other processes map by its descriptor.

Nothing has a name, so a killed process leaves nothing behind: the kernel frees a file with the last mapping or descriptor of it.
How descriptors travel is the business of `flambeau.multiprocessing` and of the DataLoader.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import sys
import weakref
from typing import Any

import numpy as np

from flambeau import _C

from .storage import Aside, Storage, shared, view_of
from .tensor import Tensor


class Segment:
    """An anonymous file and this process's mapping of it; `key` says which file it is. The last reference closes both."""

    __slots__ = ("__weakref__", "array", "file", "key")

    def __init__(self, file: int, size: int) -> None:
        self.file = file
        self.array: np.ndarray = _C.map_shared(file, size)
        about = os.fstat(file)
        self.key = about.st_dev, about.st_ino

    def __del__(self) -> None:
        if hasattr(self, "file"):
            os.close(self.file)


# Where the shared storages lie: (segment, offset). And what is mapped here already, so that what comes twice is one storage.
_places: weakref.WeakKeyDictionary[Storage, tuple[Segment, int]] = weakref.WeakKeyDictionary()
_storages: weakref.WeakValueDictionary[tuple, Storage] = weakref.WeakValueDictionary()


def told_of_first() -> None:
    """A slot: called when there is shared memory, so that multiprocessing learns to send it."""


def _more_files() -> bool:
    """Raise the limit on open files as far as the system lets us; False if that is done already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return True


def create(nbytes: int) -> Segment:
    """A fresh segment of zeros. RuntimeError where there is too little memory, or too many files are open."""
    size = max(1, nbytes)
    if size >= 1 << 26 and size > _C.free_memory():
        raise RuntimeError(f"unable to allocate shared memory: {size} bytes asked for, {_C.free_memory()} bytes are free")
    try:
        file = os.memfd_create("flambeau", os.MFD_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EMFILE and _more_files():
            return create(nbytes)
        raise RuntimeError(f"unable to make shared memory of {size} bytes: {error.strerror}. Each shared storage is an open file: see "
                           "`ulimit -n`") from error
    os.ftruncate(file, size)
    return Segment(file, size)


def place_of(storage: Storage) -> tuple[Segment, int] | None:
    """The segment that a shared storage lies in, and where; None for one of this process's own."""
    return _places.get(storage)


def attach(segment: Segment, offset: int, nbytes: int) -> Storage:
    """The storage of `nbytes` that lies in `segment` at `offset`: the same one each time."""
    key = (segment.key, offset, nbytes)
    found = _storages.get(key)
    if found is None:
        if not 0 <= offset <= offset + nbytes <= segment.array.nbytes:
            raise RuntimeError(f"a storage of {nbytes} bytes at {offset} is not in its segment of {segment.array.nbytes}")
        found = Storage(segment.array[offset : offset + nbytes], nbytes)
        _register(found, segment, offset)
    return found


def _is_to_move(storage: Storage) -> bool:
    if storage.device.type not in ("cpu", "cuda"):
        raise RuntimeError(f"share_memory_(): only available on CPU, and without effect on GPUs; this memory is on {storage.device}")
    return storage.device.type == "cpu" and storage not in _places


def share(storage: Storage) -> None:
    """Move a storage on the CPU into shared memory, unless it is there. All tensors over it follow; NumPy arrays do not."""
    storage = storage.memory
    if _is_to_move(storage):
        asides = [a for a in gc.get_referrers(storage) if type(a) is Aside]
        found = gc.get_referrers(storage, *asides)
        _move(storage, [t for t in found if isinstance(t, Tensor) and isinstance(t._store, Storage) and t._store.memory is storage])
        for aside in asides:
            aside.buffer = storage.buffer


def share_tensor(tensor: Tensor) -> None:
    """`share` for the storage of a tensor, without a search for others over it where there can be none."""
    storage = tensor._storage.memory
    if sys.getrefcount(storage) > 3:  # the tensor's reference, this one and the argument
        share(storage)
    elif _is_to_move(storage):
        _move(storage, [tensor])


def _move(storage: Storage, tensors: list[Tensor]) -> None:
    if storage.buffer is None:
        raise RuntimeError("share_memory_(): a tensor without elements (a fake one) has no memory that could be shared")
    layouts, segment = [t._layout for t in tensors], create(storage.nbytes)
    place = segment.array[: storage.nbytes]
    place[:] = storage.buffer
    storage.buffer = place
    for tensor, layout in zip(tensors, layouts, strict=True):
        tensor._data = view_of(place, tensor.dtype.numpy, layout.shape, layout.strides, layout.offset)
    _register(storage, segment, 0)


def _register(storage: Storage, segment: Segment, offset: int) -> None:
    _places[storage] = segment, offset
    _storages[segment.key, offset, storage.nbytes] = storage
    shared.add(storage)  # versions cannot tell what others write
    told_of_first()


def is_shared(storage: Any) -> bool:
    """Whether other processes can see what is written to this storage. A GPU's always are."""
    return storage.device.type == "cuda" or storage in _places
