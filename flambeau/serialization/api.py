"""What users call: save, load, and the list of classes that a weights-only file may name."""

from __future__ import annotations

import io
import os
import reprlib
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeAlias

from ..core.device import CPU, device
from ..core.storage import Storage
from ..core.tensor import from_array
from .archive import ALIGNMENT, ArchiveReader, ArchiveWriter, replacing
from .errors import LoadError
from .names import LoadedStorage, StorageType
from .pickler import Pickler
from .unpickler import TrustingUnpickler, restricted_load

FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
MAP_LOCATION: TypeAlias = str | device | dict[str, str] | Callable[[Storage, str], Any] | None


# -- saving ----------------------------------------------------------------------------------------------------
def save(obj: object, f: FileLike, pickle_module: Any = None, pickle_protocol: int = 2,
         _use_new_zipfile_serialization: bool = True) -> None:
    """Write `obj` (tensors in any nesting of Python data; modules too) to a path or a binary file object.

    Tensors that share storage still share it after loading. A file under a path is replaced only once the new one is
    complete on disk, so a crash never leaves half a checkpoint. PyTorch reads the result.
    """
    if not _use_new_zipfile_serialization:
        raise NotImplementedError("Flambeau writes the zip format only; PyTorch since 1.6 reads it")
    if pickle_module is not None or pickle_protocol != 2:
        raise NotImplementedError("torch.save always pickles with protocol 2 and its own pickler: leave pickle_module "
                                  "and pickle_protocol at their defaults")
    if not isinstance(f, (str, os.PathLike)) and not hasattr(f, "write"):
        raise AttributeError(f"expected 'f' to be a string, path, or a file-like object with a 'write' attribute, "
                             f"got {type(f).__name__}")
    pickled = io.BytesIO()
    pickler = Pickler(pickled)
    pickler.dump(obj)
    is_path = isinstance(f, (str, os.PathLike))
    name = Path(f).stem if is_path else "archive"  # type: ignore[arg-type]
    opened: Any = replacing(f) if is_path else nullcontext(f)  # type: ignore[arg-type]
    with opened as file:
        _write(file, name, pickled.getbuffer(), pickler.storages)


def _write(file: IO[bytes], name: str, pickled: memoryview, storages: dict[str, Storage]) -> None:
    with ArchiveWriter(file, name) as archive:
        archive.write("data.pkl", pickled)
        archive.write(".format_version", b"1")
        archive.write(".storage_alignment", str(ALIGNMENT).encode())
        archive.write("byteorder", sys.byteorder.encode())
        for key, storage in storages.items():
            archive.write(f"data/{key}", memoryview(storage.buffer))
        archive.write("version", b"3\n")


# -- loading ---------------------------------------------------------------------------------------------------
def load(f: FileLike, map_location: MAP_LOCATION = None, pickle_module: Any = None, *, weights_only: bool | None = None,
         mmap: bool | None = None, **pickle_load_args: Any) -> Any:
    """Read what `save` (or PyTorch's torch.save) wrote to a path or a seekable binary file object.

    `weights_only` (the default) admits tensors and plain data alone and refuses anything else, naming it; False runs
    whatever code the file contains. `map_location` puts tensors on other devices than those they were saved from: a
    device, a dict of device names, or a function of (storage, device name). `mmap` maps the file into memory, copy on
    write, and needs a path; the checksums of tensors are not compared then, for that would read them all.

    Raises FileNotFoundError, or LoadError (a RuntimeError and a pickle.UnpicklingError) where the file is truncated,
    damaged, empty, of another format, or holds what it may not.
    """
    if pickle_module is not None:
        raise NotImplementedError("torch.load with a pickle_module: leave it out and use weights_only=False")
    is_path = isinstance(f, (str, os.PathLike))
    if mmap and not is_path:
        raise ValueError("f must be a file path in order to use the mmap argument")
    if not is_path and not all(hasattr(f, method) for method in ("read", "seek", "tell")):
        raise AttributeError(f"'{type(f).__name__}' object is not a path or a seekable file. You can only torch.load "
                             "from a file that is seekable. Please pre-load the data into a buffer like io.BytesIO "
                             "and try to load from it instead.")
    source = os.fspath(f) if is_path else getattr(f, "name", "the file object")  # type: ignore[arg-type]
    opened: Any = open(f, "rb") if is_path else nullcontext(f)  # type: ignore[arg-type]  # noqa: SIM115
    with opened as file:
        archive = ArchiveReader(file, str(source), mapped=bool(mmap))
        storages = _Storages(archive, map_location)
        data = archive.read("data.pkl")
        if weights_only is None or weights_only:
            if pickle_load_args:
                raise TypeError(f"torch.load with weights_only=True takes no argument {', '.join(pickle_load_args)}")
            return restricted_load(data, storages.load, {**_library, **_allowed})
        return TrustingUnpickler(io.BytesIO(data), storages.load, **pickle_load_args).load()


class _Storages:
    """The storages of an archive, each read once, when it is first referred to."""

    def __init__(self, archive: ArchiveReader, map_location: MAP_LOCATION) -> None:
        self.archive, self.map_location = archive, map_location
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
        if _target_type(location, self.map_location) == "meta":
            self.archive.check_storage(key, nbytes)
            return LoadedStorage(kind, None, nbytes, device("meta"))
        owner = from_array(self.archive.storage(key, nbytes))
        where = _place(owner._storage, location, self.map_location)
        if where.type != "cpu":
            owner = owner.to(where)
        return LoadedStorage(kind, owner, nbytes, where)


def _target_type(location: str, map_location: MAP_LOCATION) -> str:
    """The type of the device on which a storage saved from `location` belongs, a function left out of account."""
    if isinstance(map_location, dict):
        location = map_location.get(location, location)
    elif isinstance(map_location, (str, device)):
        location = str(map_location)
    return device(location).type


def _place(storage: Storage, location: str, map_location: MAP_LOCATION) -> device:
    """The device for a storage that was saved from `location`, following `map_location`."""
    if callable(map_location):
        answer = map_location(storage, location)
        if answer is not None:
            return getattr(answer, "device", CPU)
    elif isinstance(map_location, dict):
        location = map_location.get(location, location)
    elif map_location is not None:
        location = str(map_location)
    where = device(location)
    if where.type == "cuda" and not _cuda_is_available():
        raise RuntimeError(
            f"Attempting to deserialize object on a CUDA device ({location}) but torch.cuda.is_available() is False. "
            "If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to "
            "map your storages to the CPU."
        )
    return where


def _cuda_is_available() -> bool:
    torch = sys.modules[__name__.partition(".")[0]]
    cuda = getattr(torch, "cuda", None)
    return cuda is not None and cuda.is_available()


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
