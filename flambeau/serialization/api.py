"""What users call: save, load, and the list of classes that a weights-only file may name."""

from __future__ import annotations

import io
import os
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from mmap import MAP_SHARED
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeAlias

import numpy as np

from ..core.device import device
from ..core.dtypes import uint8
from ..core.settings import told
from ..core.storage import Storage
from ..core.tensor import Tensor, from_array
from ..core.warned import warn
from ..ops.storages import UntypedStorage
from . import legacy
from .archive import ArchiveReader, ArchiveWriter, peek, replacing
from .errors import LoadError, PlacingError
from .locations import MAP_LOCATION, restored, wants_meta
from .names import LoadedStorage, StorageType
from .options import loading, saving, skipping
from .pickler import pickler_of
from .unpickler import TrustingUnpickler, refused, restricted_load, trusting, unsafe_globals

FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]


# -- saving ----------------------------------------------------------------------------------------------------
def save(obj: object, f: FileLike, pickle_module: Any = None, pickle_protocol: int = 2,
         _use_new_zipfile_serialization: bool = True, _disable_byteorder_record: bool = False) -> None:
    """Write `obj` (tensors in any nesting of Python data; modules too) to a path or a binary file object.

    Tensors that share storage still share it after loading. A file under a path is replaced only once the new one is
    complete on disk, so a crash never leaves half a checkpoint. PyTorch reads the result. Without `_use_new_zipfile_serialization` it is
    of the format of before PyTorch 1.6. What is no tensor is pickled as `pickle_module`'s Pickler does, where that is one in Python.
    """
    if not isinstance(f, (str, os.PathLike)) and not hasattr(f, "write"):
        raise AttributeError(f"expected 'f' to be a string, path, or a file-like object with a 'write' attribute, got {type(f).__name__}")
    pickled = io.BytesIO()
    pickler = pickler_of(pickle_module)(pickled, legacy=not _use_new_zipfile_serialization, protocol=pickle_protocol)
    pickler.dump(obj)
    is_path = isinstance(f, (str, os.PathLike))
    name = Path(f).stem if is_path else "archive"  # type: ignore[arg-type]
    opened: Any = replacing(f) if is_path else nullcontext(f)  # type: ignore[arg-type]
    with opened as file:
        if _use_new_zipfile_serialization:
            _write(file, name, pickled.getbuffer(), pickler.storages, not _disable_byteorder_record)
        else:
            legacy.write(file, pickled.getbuffer(), {key: (storage, pickler.itemsizes[key]) for key, storage in pickler.storages.items()})


def _write(file: IO[bytes], name: str, pickled: memoryview, storages: dict[str, Storage], tell_order: bool) -> None:
    with ArchiveWriter(file, name, checksums=saving.compute_crc32) as archive:
        archive.write("data.pkl", pickled)
        archive.write(".format_version", b"1")
        archive.write(".storage_alignment", str(saving.storage_alignment).encode())
        if tell_order:
            archive.write("byteorder", sys.byteorder.encode())
        for key, storage in storages.items():
            if skipping.on:
                archive.leave_room(f"data/{key}", storage.nbytes)
            else:
                archive.write(f"data/{key}", memoryview(UntypedStorage(storage).cpu()._storage.buffer))
        archive.write("version", b"3\n")
        archive.write_id()


# -- loading ---------------------------------------------------------------------------------------------------
def load(f: FileLike, map_location: MAP_LOCATION = None, pickle_module: Any = None, *, weights_only: bool | None = None,
         mmap: bool | None = None, **pickle_load_args: Any) -> Any:
    """Read what `save` (or PyTorch's torch.save) wrote to a path or a seekable binary file object.

    `weights_only` (the default) admits tensors and plain data alone and refuses anything else, naming it; False runs
    whatever code the file contains, and so does a `pickle_module`, whose Unpickler is asked for names. `map_location` puts
    tensors on other devices than those they were saved from: a device, a dict of device names, or a function of (storage,
    device name). `mmap` maps the file into memory, copy on write, and needs a path; the checksums of tensors are not compared
    then, for that would read them all.

    Raises FileNotFoundError, or LoadError (a RuntimeError and a pickle.UnpicklingError) where the file is truncated,
    damaged, empty, of another format, or holds what it may not.
    """
    mmap = loading.mmap if mmap is None else mmap
    if mmap and not isinstance(f, (str, os.PathLike)):
        raise ValueError("f must be a file path in order to use the mmap argument")
    if not (map_location is None or isinstance(map_location, (str, dict, device)) or callable(map_location)):
        raise TypeError(f"map_location is a device, its name, a dict of names, or a function, not {type(map_location).__name__}")
    restricted = _restricted(pickle_module, weights_only)
    if restricted and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified; leave out weights_only=True to "
                           "read the file with it")
    if restricted and pickle_load_args.keys() - {"encoding"}:     # of which plain data have nothing
        raise TypeError(f"torch.load with weights_only=True takes no argument {', '.join(pickle_load_args)}")

    def unpickle(data: bytes, refer: Callable[[Any], Any], sparse: list | None = None) -> Any:
        if restricted:
            return restricted_load(data, refer, {**_library, **_allowed}, sparse)
        kind = TrustingUnpickler if pickle_module is None else trusting(pickle_module.Unpickler)
        return kind(io.BytesIO(data), refer, **pickle_load_args).load()

    try:
        return _loaded(f, map_location, unpickle, restricted, bool(mmap))
    except PlacingError as error:
        raise error.error from None


def _restricted(pickle_module: Any, weights_only: bool | None) -> bool:
    """Whether only plain data are read: by the argument, or by what the environment forces."""
    yes = ("1", "y", "yes", "true")
    always = told("TORCH_FORCE_WEIGHTS_ONLY_LOAD").lower() in yes
    never = told("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD").lower() in yes
    if always and never:
        raise RuntimeError("Only one of TORCH_FORCE_WEIGHTS_ONLY_LOAD and TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD should be set, but both were set")
    if always:
        return True
    if never and weights_only is None:
        warn("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, and weights_only is not given: it counts as False")
        return False
    return pickle_module is None if weights_only is None else weights_only


def _loaded(f: FileLike, map_location: MAP_LOCATION, unpickle: Callable, restricted: bool, mmap: bool) -> Any:
    shared = mmap and loading.mmap_flags == MAP_SHARED
    with opened(f, "r+b" if shared else "rb") as (file, source):
        start = peek(file, 512, source)
        if start.startswith(legacy.START) or legacy.is_tar(start):
            if mmap:
                raise RuntimeError("mmap can only be used with files saved with torch.save(_use_new_zipfile_serialization=True): save "
                                   f"{source} again")
            if start.startswith(legacy.START):
                return legacy.read(file, source, map_location, unpickle)
            if restricted:
                raise refused("A tar archive, the format of before PyTorch 0.1.10, is never plain data.")
            return legacy.read_tar(file, source, map_location, unpickle)
        archive = ArchiveReader(file, source, mapped=mmap, shared=shared)
        if "constants.pkl" in archive.members:
            raise LoadError(f"{source} is a TorchScript archive: torch.jit.load reads it")
        return unpickle(archive.read("data.pkl"), Storages(archive, map_location).load)


@contextmanager
def opened(f: FileLike, mode: str = "rb") -> Iterator[tuple[IO[bytes], str]]:
    """The file, and what errors call it."""
    if isinstance(f, (str, os.PathLike)):
        with open(f, mode) as file:
            yield file, os.fspath(f)
        return
    if not all(hasattr(f, method) for method in ("read", "seek", "tell")):
        raise AttributeError(f"'{type(f).__name__}' object is not a path or a seekable file. You can only torch.load "
                             "from a file that is seekable. Please pre-load the data into a buffer like io.BytesIO "
                             "and try to load from it instead.")
    yield f if hasattr(f, "seekable") else _Seekable(f), str(getattr(f, "name", "the file object"))  # type: ignore[misc]


class _Seekable:
    """A file object of few methods, which says that it can seek."""

    def __init__(self, file: Any) -> None:
        self.read, self.seek, self.tell, self.readline = file.read, file.seek, file.tell, getattr(file, "readline", None)

    def seekable(self) -> bool:
        """It can: `opened` has looked."""
        return True


class Storages:
    """The storages of an archive, each read once, when it is first referred to."""

    def __init__(self, archive: ArchiveReader, map_location: MAP_LOCATION, folder: str = "data") -> None:
        self.archive, self.map_location, self.folder = archive, map_location, folder
        self.loaded: dict[str, LoadedStorage] = {}

    def load(self, reference: Any) -> LoadedStorage:
        """The storage that a pickle refers to as ('storage', type, key, location, number of elements)."""
        if not isinstance(reference, tuple) or len(reference) != 5 or reference[0] != "storage":
            raise LoadError(f"{self.archive.source} refers to something other than a storage: {reprlib.repr(reference)}")
        _, kind, key, location, count = reference
        if not isinstance(kind, StorageType):
            raise LoadError(f"{self.archive.source} has a storage of the unknown type {reprlib.repr(kind)}")
        if not isinstance(key, str) or not isinstance(location, str) or not isinstance(count, int):
            raise LoadError(f"{self.archive.source} describes a storage wrongly: {reprlib.repr(reference)}")
        found = self.loaded.get(key)
        if found is None:
            found = self.loaded[key] = self._read(kind, key, location, count)
        if found.kind != kind or found.length != count * kind.itemsize:
            raise LoadError(f"{self.archive.source} describes storage {key} in two ways")
        return found

    def _read(self, kind: StorageType, key: str, location: str, count: int) -> LoadedStorage:
        nbytes = count * kind.itemsize
        if wants_meta(location, self.map_location):
            self.archive.check_storage(key, nbytes, self.folder)
            return LoadedStorage(kind, None, nbytes)
        if skipping.on:
            self.archive.check_storage(key, nbytes, self.folder)
            owner = from_array(np.empty(nbytes, np.uint8))
        else:
            owner = from_array(self.archive.storage(key, nbytes, self.folder))
            if self.archive.swapped:
                self._swap(owner, kind)
        try:
            placed = restored(UntypedStorage(owner._storage), location, self.map_location)
        except Exception as error:
            if callable(self.map_location):
                raise PlacingError(error) from error
            raise
        if placed._storage is not owner._storage:
            owner = placed.elements(uint8)
        return LoadedStorage(kind, owner, nbytes)

    def _swap(self, owner: Tensor, kind: StorageType) -> None:
        if kind.element is None:
            raise LoadError(f"{self.archive.source} holds numbers of another byte order, of which it doesn't tell the size: write it "
                            "again on a machine like this one")
        UntypedStorage(owner._storage).byteswap(kind.element)


# -- what a weights-only file may name -------------------------------------------------------------------------
_allowed: dict[tuple[str, str], Any] = {}
_library: dict[tuple[str, str], Any] = {}


def add_own_globals(things: Iterable[Any]) -> None:
    """Let files name these of the library's classes and functions, which check what they are given."""
    _library.update(_named(things))


def _named(things: Iterable[Any]) -> dict[tuple[str, str], Any]:
    """The names under which a pickle may refer to `things`: classes, functions, or (one of these, its full name)."""
    names: dict[tuple[str, str], Any] = {}
    for thing in things:
        if isinstance(thing, tuple):
            thing, full = thing
            module, _, name = full.rpartition(".")
        elif isinstance(thing, type) or callable(thing):
            module, name = thing.__module__, thing.__qualname__
        else:
            raise TypeError(f"expected a class, a function or a pair of one and its name, got {thing!r}")
        names[module, name] = thing
    return names


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let files that are loaded with weights_only=True name these classes and functions, from here on.

    Each is a class or function, or a pair of one and the full name that the file spells it by. Their constructors,
    `__setstate__` and attributes become reachable for the file.
    """
    _allowed.update(_named(safe_globals))


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` has added."""
    return list(_allowed.values())


def clear_safe_globals() -> None:
    """Take back everything that `add_safe_globals` added."""
    _allowed.clear()


class safe_globals:
    """`add_safe_globals` for the length of a `with` block."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self.names = _named(safe_globals)

    def __enter__(self) -> None:
        self.before = dict(_allowed)
        _allowed.update(self.names)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _allowed.clear()
        _allowed.update(self.before)


def get_unsafe_globals_in_checkpoint(f: FileLike) -> list[str]:
    """The full names of the classes and functions that a file refers to and that `load` refuses with weights_only=True."""
    with opened(f) as (file, source):
        start = peek(file, 512, source)
        data = legacy.opening_object(file) if start.startswith(legacy.START) else ArchiveReader(file, source).read("data.pkl")
    return unsafe_globals(data, {**_library, **_allowed})
