"""The two formats that PyTorch wrote before version 1.6.

Since 0.1.10, one pickle after the other in a plain file: a magic number, a version, facts of the machine, the object with references to
storages, the list of their keys; then each storage as a count of elements and its bytes. Before that, a tar archive of `storages`,
`tensors` and `pickle`, in which the object refers to tensors by number.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import reprlib
import struct
import sys
import tarfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from ..core.dtypes import uint8
from ..core.sparse import SparseTensor
from ..core.storage import Storage
from ..core.tensor import Tensor, from_array
from ..ops.storages import UntypedStorage
from .errors import LoadError
from .locations import MAP_LOCATION, restored, wants_meta
from .names import LoadedStorage, StorageType, check_sparse, rebuild_tensor

MAGIC_NUMBER, PROTOCOL_VERSION = 0x1950A86A20F9469CFC6C, 1001
SHORT_SIZE, INT_SIZE, LONG_SIZE = 2, 4, 4
START = b"\x80\x02\x8a\x0a"  # a pickled ten-byte integer: the magic number
_FACTS = {"protocol_version": PROTOCOL_VERSION, "little_endian": sys.byteorder == "little",
          "type_sizes": {"short": SHORT_SIZE, "int": INT_SIZE, "long": LONG_SIZE}}
_DAMAGE = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, EOFError, struct.error,
           pickle.UnpicklingError, tarfile.TarError)

Unpickle = Callable[..., Any]
"""(bytes, refer, sparse=None) -> the object of a pickle, given what its references to storages stand for; in the list `sparse` are
entered the sparse tensors that are still to be checked."""


def write(file: IO[bytes], pickled: memoryview, storages: dict[str, tuple[Storage, int]]) -> None:
    """A file of the later format; each storage comes with the size of its elements."""
    for fact in (MAGIC_NUMBER, PROTOCOL_VERSION, _FACTS):
        pickle.dump(fact, file, protocol=2)
    file.write(pickled)
    keys = sorted(storages)
    pickle.dump(keys, file, protocol=2)
    for key in keys:
        storage, itemsize = storages[key]
        file.write(struct.pack("<q", storage.nbytes // itemsize))
        file.write(memoryview(_on_host(storage)))


def _on_host(storage: Storage) -> Any:
    return UntypedStorage(storage).cpu()._storage.buffer


class _Storages:
    """Storages that are described before their bytes are read."""

    def __init__(self, source: str, length: int, map_location: MAP_LOCATION) -> None:
        self.source, self.left, self.map_location = source, length, map_location
        self.made: dict[str, tuple[LoadedStorage, np.ndarray | None]] = {}

    def refer(self, reference: Any) -> Any:
        """What a pickle refers to as ('storage', type, key, location, number of elements, part of another), or ('module', class, ...)."""
        if isinstance(reference, tuple) and len(reference) == 4 and reference[0] == "module":
            return reference[1]  # the class comes with its source text, which is not compared
        if not isinstance(reference, tuple) or len(reference) != 6 or reference[0] != "storage":
            raise LoadError(f"{self.source} refers to something other than a storage: {reprlib.repr(reference)}")
        _, kind, key, location, count, part = reference
        if not (isinstance(kind, StorageType) and isinstance(key, str) and isinstance(location, str) and type(count) is int and count >= 0):
            raise LoadError(f"{self.source} describes a storage wrongly: {reprlib.repr(reference)}")
        if part is not None:
            raise LoadError(f"{self.source} has a storage that is part of another, as PyTorch 0.1 wrote: write it again with PyTorch")
        if key not in self.made:
            self.made[key] = self.make(kind, count, location)
        found = self.made[key][0]
        if found.kind != kind or found.length != count * kind.itemsize:
            raise LoadError(f"{self.source} describes storage {key} in two ways")
        return found

    def make(self, kind: StorageType, count: int, location: str) -> tuple[LoadedStorage, np.ndarray | None]:
        """An empty storage, and the array that its bytes are to be read into."""
        nbytes = count * kind.itemsize
        self.left -= nbytes
        if self.left < 0:
            raise LoadError(f"{self.source} is truncated: it describes more than it can hold")
        if wants_meta(location, self.map_location):
            return LoadedStorage(kind, None, nbytes), None
        array = np.zeros(nbytes, np.uint8)    # whatever the pickle does before the bytes are read sees nobody's memory
        owner = from_array(array)
        placed = restored(UntypedStorage(owner._storage), location, self.map_location)
        if placed._storage is not owner._storage:
            owner = placed.elements(uint8)
        return LoadedStorage(kind, owner, nbytes), array

    def fill_all(self, keys: Any, file: IO[bytes]) -> None:
        """Read the bytes of all storages, in this order; LoadError where some have none."""
        for key in keys:
            self.fill(key, file)
        missing = self.made.keys() - set(keys)
        if missing:
            raise LoadError(f"{self.source} has no bytes for the storages {reprlib.repr(sorted(missing))}")

    def fill(self, key: Any, file: IO[bytes]) -> None:
        """Read the bytes of a storage."""
        if key not in self.made:
            raise LoadError(f"{self.source} has a storage {reprlib.repr(key)} that nothing refers to")
        storage, array = self.made[key]
        (count,) = struct.unpack("<q", file.read(8))
        if count * storage.kind.itemsize != storage.length:
            raise LoadError(f"{self.source} describes storage {key} in two ways")
        data = file.read(storage.length)
        if len(data) != storage.length:
            raise LoadError(f"{self.source} is truncated: storage {key} ends early")
        if array is not None:
            array[:] = np.frombuffer(data, np.uint8)
            if storage.owner is not None and storage.owner.device.type != "cpu":
                storage.owner.copy_(from_array(array))


def next_pickle(file: IO[bytes]) -> bytes:
    """The bytes of the pickle that begins here; the file is left behind it."""
    begin = file.tell()
    for _ in pickletools.genops(file):
        pass
    end = file.tell()
    file.seek(begin)
    return file.read(end - begin)


def _plain(file: IO[bytes], unpickle: Unpickle) -> Any:
    def refuse(reference: Any) -> Any:
        raise LoadError(f"the checkpoint refers to {reprlib.repr(reference)} where only plain data may be")
    return unpickle(next_pickle(file), refuse)


def read(file: IO[bytes], source: str, map_location: MAP_LOCATION, unpickle: Unpickle) -> Any:
    """The object of a file of the later format, which is left behind it."""
    whole = io.BytesIO(file.read())
    start = file.tell() - len(whole.getbuffer())
    try:
        if _plain(whole, unpickle) != MAGIC_NUMBER or _plain(whole, unpickle) != PROTOCOL_VERSION:
            raise LoadError(f"{source} is not a checkpoint that torch.save wrote: its magic number or version is another")
        facts = _plain(whole, unpickle)
        if facts["little_endian"] is not (sys.byteorder == "little"):
            raise LoadError(f"{source} holds numbers of another byte order: write it again on a machine like this one")
        storages = _Storages(source, len(whole.getbuffer()), map_location)
        sparse: list[SparseTensor] = []
        made = unpickle(next_pickle(whole), storages.refer, sparse)
        storages.fill_all(_plain(whole, unpickle), whole)
        check_sparse(sparse)
    except _DAMAGE as error:
        what = "" if isinstance(error, LoadError) else f"it is truncated or damaged: {type(error).__name__}: "
        raise LoadError(f"{source}, of the format that PyTorch wrote before version 1.6: {what}{error}") from error
    file.seek(start + whole.tell())
    return made


def opening_object(file: IO[bytes]) -> bytes:
    """The pickle of the object in a file of the later format."""
    for _ in range(3):
        next_pickle(file)
    return next_pickle(file)


# -- tar ---------------------------------------------------------------------------------------------------------
def is_tar(start: bytes) -> bool:
    """Whether a file that begins so, with 512 bytes, is a tar archive."""
    return start[257:262] == b"ustar"


def read_tar(file: IO[bytes], source: str, map_location: MAP_LOCATION, unpickle: Unpickle) -> Any:
    """The object of a tar archive."""
    length = file.seek(0, io.SEEK_END)
    file.seek(0)
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            parts = {name: io.BytesIO(archive.extractfile(name).read())  # type: ignore[union-attr]
                     for name in ("storages", "tensors", "pickle")}
        storages = _tar_storages(parts["storages"], _Storages(source, length, map_location), unpickle)
        tensors = _tar_tensors(parts["tensors"], storages, unpickle)
        return unpickle(parts["pickle"].getvalue(), lambda key: key[1] if isinstance(key, tuple) else tensors[int(key)])
    except _DAMAGE as error:
        if isinstance(error, LoadError):
            raise
        raise LoadError(f"{source}, a tar archive, is no checkpoint or a damaged one ({type(error).__name__}: {error})") from error


def _tar_storages(file: IO[bytes], storages: _Storages, unpickle: Unpickle) -> dict[Any, LoadedStorage]:
    by_key: dict[Any, LoadedStorage] = {}
    for _ in range(_plain(file, unpickle)):
        key, location, kind = _plain(file, unpickle)
        count, = struct.unpack("<q", file.read(8))
        file.seek(-8, io.SEEK_CUR)
        by_key[key] = storages.refer(("storage", kind, str(key), location, count, None))
        storages.fill(str(key), file)
    for key, whole, offset, count in _plain(file, unpickle):
        by_key[key] = _part(by_key[whole], offset, count)
    return by_key


def _part(whole: LoadedStorage, offset: int, count: int) -> LoadedStorage:
    if whole.owner is None or not 0 <= offset <= offset + count <= whole.length // whole.kind.itemsize:
        raise LoadError(f"{count} elements from {offset} on are no part of a storage of {whole.length} bytes")
    begin, end = offset * whole.kind.itemsize, (offset + count) * whole.kind.itemsize
    owner = UntypedStorage(whole.owner._storage)[begin:end].elements(uint8)
    return LoadedStorage(whole.kind, owner, end - begin)


def _tar_tensors(file: IO[bytes], storages: dict[Any, LoadedStorage], unpickle: Unpickle) -> dict[int, Tensor]:
    made: dict[int, Tensor] = {}
    for _ in range(_plain(file, unpickle)):
        key, storage, _ = _plain(file, unpickle)
        dims, _ = struct.unpack("<ii", file.read(8))
        numbers = struct.unpack(f"<{2 * dims + 1}q", file.read(8 * (2 * dims + 1)))
        made[int(key)] = rebuild_tensor(storages[storage], numbers[-1], numbers[:dims], numbers[dims:2 * dims])
    return made


