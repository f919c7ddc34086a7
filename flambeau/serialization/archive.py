"""PyTorch's .pt container: a zip archive whose members are stored uncompressed, their data aligned to 64 bytes (`storage_alignment`).

    NAME/data.pkl            the pickled object, tensors' storages replaced by references
    NAME/data/KEY            the bytes of one storage
    NAME/version, NAME/byteorder, NAME/.format_version, NAME/.storage_alignment
    NAME/.data/serialization_id  forty digits that follow from the others' names and checksums

Alignment makes it possible to map the file into memory and use the storages where they lie.
"""

from __future__ import annotations

import contextlib
import copy
import glob
import io
import os
import reprlib
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from .errors import EmptyFileError, LoadError
from .options import LoadEndianness, loading, saving

_LOCAL_HEADER = 30          # bytes before the name (APPNOTE.TXT 4.3.7)
_LOCAL_SIGNATURE, _DESCRIPTOR_SIGNATURE = b"PK\x03\x04", b"PK\x07\x08"
_ENCRYPTED, _DESCRIBED, _UTF8 = 1, 8, 0x800  # flags of a member; `described`: its checksum and sizes follow its data
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MOST_DEFLATED = 1032       # how many bytes one byte of deflated data can stand for
_ZIP64_EXTRA = 20           # what `zipfile` puts first for members past 2 GiB
_PAD_FIELD = b"FB"          # the extra field that holds the padding
_DAMAGE = (zipfile.BadZipFile, EOFError, ValueError, OverflowError, IndexError, NotImplementedError, MemoryError, zlib.error,
           struct.error)  # what `zipfile` lets out


_SEEK_BACK = (io.BytesIO, io.FileIO, io.BufferedWriter, io.BufferedRandom)     # files in which what was written can be written again


class _Forward:
    """A file that is written from its start to its end: a compressed one, say."""

    def __init__(self, file: Any) -> None:
        self.write, self.flush = file.write, getattr(file, "flush", lambda: None)

    def seekable(self) -> bool:
        """It cannot."""
        return False


def _writable(file: IO[bytes]) -> Any:
    return file if isinstance(file, _SEEK_BACK) else _Forward(file)


class ArchiveWriter:
    """Writes members one after the other into `file`, an open binary file, all under the folder `name`."""

    def __init__(self, file: IO[bytes], name: str = "archive", checksums: bool = True) -> None:
        self.name, self.checksums = name, checksums
        self.file = _writable(file)
        self.zip = zipfile.ZipFile(self.file, "w", zipfile.ZIP_STORED, allowZip64=True)

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.zip.close()

    def write(self, member: str, data: bytes | memoryview) -> None:
        """Add one member, its data at a multiple of `storage_alignment` bytes from the start of the archive."""
        info = self._next(member, len(data))
        if self.checksums:
            self.zip.writestr(info, data)
            info.extra = b""     # the directory at the end needs no padding
        else:
            self._enter(info, len(data))
            self.zip.fp.write(data)  # type: ignore[union-attr]
            self.zip.start_dir = self.zip.fp.tell()  # type: ignore[union-attr]

    def write_id(self) -> None:
        """Add the member that tells archives of different contents apart."""
        infos = self.zip.infolist()
        names, sums = "".join(info.filename for info in infos).encode(), struct.pack(f"<{len(infos)}I", *(info.CRC for info in infos))
        self.write(".data/serialization_id", f"{zlib.crc32(names):020d}{zlib.crc32(sums):020d}".encode())

    def leave_room(self, member: str, size: int) -> None:
        """Add one member whose bytes are to be written by others: zeros, without a checksum."""
        self._enter(self._next(member, size), size)
        fp: Any = self.zip.fp
        if self.file.seekable():
            fp.seek(size, os.SEEK_CUR)
        else:
            fp.write(bytes(size))
        self.zip.start_dir = fp.tell()

    def _next(self, member: str, size: int) -> zipfile.ZipInfo:
        info = zipfile.ZipInfo(f"{self.name}/{member}")
        position = self.zip.fp.tell() + _LOCAL_HEADER + len(info.filename.encode())  # type: ignore[union-attr]
        if size * 1.05 > zipfile.ZIP64_LIMIT:
            position += _ZIP64_EXTRA
        padding = -(position + 4) % saving.storage_alignment
        info.extra = _PAD_FIELD + struct.pack("<H", padding) + b"Z" * padding
        return info

    def _enter(self, info: zipfile.ZipInfo, size: int) -> None:
        """Write a member's header, its checksum 0: `zipfile` itself would compute one."""
        info.header_offset, info.file_size, info.compress_size, info.CRC = self.zip.fp.tell(), size, size, 0  # type: ignore[union-attr]
        self.zip.fp.write(info.FileHeader(size * 1.05 > zipfile.ZIP64_LIMIT))  # type: ignore[union-attr]
        info.extra = b""
        self.zip.filelist.append(info)
        self.zip.NameToInfo[info.filename] = info
        self.zip.comment = b""  # marks the archive as changed


class ArchiveReader:
    """Reads the members of an archive; `mapped` maps it into memory instead of reading it: what is written stays in memory, or reaches
    the file if `shared`. `swapped`: its numbers have the other byte order.

    Whatever the file holds, nothing outside of it is looked at, and no more memory is asked for than its members can fill.
    Raises LoadError when it is empty, no archive, truncated or damaged, and TypeError when it is text.
    """

    def __init__(self, file: IO[bytes], source: str, mapped: bool = False, shared: bool = False) -> None:
        self.file, self.source = file, source
        _check_start(peek(file, 16, source), source)
        try:
            self.zip = zipfile.ZipFile(file)
        except _DAMAGE as error:
            raise LoadError(f"failed finding the central directory of {source}: the file is truncated or damaged ({error})") from error
        self.length = file.seek(0, os.SEEK_END)
        self._check_extents()
        self.members = {info.filename.partition("/")[2]: info for info in self.zip.infolist()}
        self._check_members()
        self.mapping = np.asarray(np.memmap(file, np.uint8, mode="r+" if shared else "c")) if mapped else None

    def _check_extents(self) -> None:
        """Refuse a directory whose members are not in the file, or share its bytes so as to seem larger than it."""
        infos = self.zip.infolist()
        for info in infos:
            size, packed = info.file_size, info.compress_size
            stored = info.compress_type == zipfile.ZIP_STORED
            if (info.compress_type not in _METHODS or info.flag_bits & _ENCRYPTED
                    or (size != packed if stored else size > packed * _MOST_DEFLATED)
                    or not 0 <= info.header_offset <= self.length - _LOCAL_HEADER - packed):
                raise LoadError(f"member {info.filename!r} of {self.source} is damaged: {size} bytes, packed in {packed} at "
                                f"{info.header_offset} of {self.length}, by method {info.compress_type}")
        if sum(info.compress_size for info in infos) > self.length:
            raise LoadError(f"{self.source} is damaged: its members overlap")

    def _check_members(self) -> None:
        if len(self.members) < len(self.zip.infolist()):
            raise LoadError(f"{self.source} is damaged: two of its members have one name")
        if "data.pkl" not in self.members:
            raise LoadError(f"{self.source} is a zip archive, but not a checkpoint: no member is called data.pkl. "
                            f"Members: {', '.join(list(self.members)[:5]) or 'none'}")
        assumed = {None: "little", LoadEndianness.NATIVE: sys.byteorder}.get(loading.endianness) or loading.endianness.name.lower()  # type: ignore[union-attr]
        order = self.read("byteorder").decode("latin1") if "byteorder" in self.members else assumed
        if order not in ("little", "big"):
            raise LoadError(f"{self.source} names a byte order {reprlib.repr(order)}")
        self.swapped = order != sys.byteorder

    def _info(self, member: str) -> zipfile.ZipInfo:
        try:
            return self.members[member]
        except KeyError:
            raise LoadError(f"{self.source} has no member {member!r}, which its data.pkl refers to") from None

    def read(self, member: str) -> bytes:
        """The bytes of a member."""
        return self._read_into(self._info(member)).tobytes()

    def check_storage(self, key: str, nbytes: int, folder: str = "data") -> zipfile.ZipInfo:
        """The member of a storage, which must have `nbytes` bytes."""
        info = self._info(f"{folder}/{key}")
        if info.file_size != nbytes:
            raise LoadError(f"storage {key} of {self.source} should have {nbytes} bytes and has {info.file_size}")
        return info

    def storage(self, key: str, nbytes: int, folder: str = "data") -> np.ndarray:
        """The `nbytes` bytes of a storage: a writable 1-D uint8 array."""
        info = self.check_storage(key, nbytes, folder)
        begin = None if self.mapping is None else self._data_offset(self.mapping, info)
        if self.mapping is None or begin is None:
            return self._read_into(info)
        return self.mapping[begin : begin + nbytes]

    def _data_offset(self, mapping: np.ndarray, info: zipfile.ZipInfo) -> int | None:
        """Where the data of a member lie in the mapping; None where the bytes around them leave doubt, and it must be read.

        The local header's length may differ from the directory's, and no checksum is compared for mapped data: so they are
        taken where they are only if they end exactly where the next member begins.
        """
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & ~(_DESCRIBED | _UTF8):
            return None
        header = mapping[info.header_offset : info.header_offset + _LOCAL_HEADER].tobytes()
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        name_at = info.header_offset + _LOCAL_HEADER
        name = mapping[name_at : name_at + name_length].tobytes()
        begin = name_at + name_length + extra_length
        end = begin + info.file_size
        following = min((other.header_offset for other in self.zip.infolist() if other.header_offset > info.header_offset),
                        default=self.zip.start_dir)
        between = mapping[end:following].tobytes() if end <= following <= len(mapping) else b"?"
        described = _DESCRIPTOR_SIGNATURE + struct.pack("<I", info.CRC) if info.flag_bits & _DESCRIBED else b""
        exact = between[:8] == described and len(between) in ((16, 24) if described else (0,))
        named = name == info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437", "replace")
        return begin if header[:4] == _LOCAL_SIGNATURE and named and exact else None

    def _read_into(self, info: zipfile.ZipInfo) -> np.ndarray:
        try:
            buffer = np.empty(info.file_size, np.uint8)
            view, done = memoryview(buffer.data), 0
            if not info.CRC:    # none was computed
                info = copy.copy(info)
                info.CRC = None  # type: ignore[assignment]
            with self.zip.open(info) as member:
                while done < len(view):
                    count = member.readinto(view[done : done + (1 << 24)])  # type: ignore[attr-defined]
                    if not count:
                        raise EOFError(f"{done} of {len(view)} bytes are there")
                    done += count
                member.read(1)  # past the end: the checksum is compared there
        except _DAMAGE as error:
            raise LoadError(f"member {info.filename} of {self.source} is truncated or damaged ({error})") from error
        return buffer


def _check_start(start: bytes, source: str) -> None:
    if not start.startswith(b"PK"):
        raise LoadError(f"{source} is not a checkpoint that torch.save wrote: it starts with {start!r}, not with a zip archive's signature")


def peek(file: IO[bytes], count: int, source: str) -> bytes:
    """The first bytes of what is left of a file, which must be there."""
    here = file.tell()
    start: Any = file.read(count)
    file.seek(here)
    if not isinstance(start, bytes):
        raise TypeError(f"{source} gives {type(start).__name__}, not bytes; open it in binary mode")
    if not start:
        raise EmptyFileError(f"{source} is empty: there is nothing to load")
    return start


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a new file that takes `path`'s place only when it is complete and on disk.

    Whatever goes wrong in between, `path` keeps what it held (an OSError names it), and where the file system has files without names, a
    process that is killed while it writes leaves nothing. Elsewhere the next one sweeps up. Raises RuntimeError when its folder does
    not exist.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise RuntimeError(f"Parent directory {target.parent} does not exist.")
    if target.exists() and not target.is_file():  # a pipe or a device: nothing to replace
        with target.open("wb") as device:
            yield device
        return
    _sweep(target)
    aside = target.with_name(f"{_aside_prefix(target)}{os.getpid()}-{os.urandom(4).hex()}")
    nameless = _open_nameless(target.parent)
    named = nameless is None
    file: IO[bytes] = aside.open("xb") if nameless is None else nameless
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not named:
                _give_name(file, aside)
                named = True
        os.replace(aside, target)
    except BaseException as error:
        if named:
            aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(target)
        raise
    _sync_folder(target.parent)


def _open_nameless(folder: Path) -> IO[bytes] | None:
    """A file in `folder` that has no name yet; None where the system has none such."""
    if not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return open(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666), "wb")
    except OSError:
        return None  # what is wrong for named files too is said when one is opened


def _give_name(file: IO[bytes], path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{file.fileno()}", path.name, dst_dir_fd=folder)  # with a folder, the link is followed
    finally:
        os.close(folder)


def _aside_prefix(target: Path) -> str:
    return f".{target.name}."


def _sweep(target: Path) -> None:
    """Remove what processes that were killed while they wrote `target` left beside it."""
    for left in target.parent.glob(glob.escape(_aside_prefix(target)) + "*-????????"):
        owner, _, mark = left.name.removeprefix(_aside_prefix(target)).partition("-")
        ours = owner.isdigit() and len(mark) == 8 and set(mark) <= set("0123456789abcdef")
        if ours and not Path("/proc", owner).exists():
            left.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle: Any = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass  # some file systems cannot: the file itself is safe
    finally:
        os.close(handle)
