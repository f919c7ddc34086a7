"""Where compiled code is kept between processes: files by content, sealed, written whole or not at all.

The directory is trusted as much as the program itself, for it holds native code that is loaded: a seal tells damage, not
malice. It is made readable and writable for its owner alone.

What was not used for longest goes when there is more than the limit. Any process may take a file away at any time: whoever
has it open keeps it, and whoever comes later makes it anew.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import itertools
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .settings import told

_MAGIC = b"FLAMBEAU"
_SEAL = len(_MAGIC) + 16
_IMPORTED = time.time()
LEFT_ALONE = 24 * 3600  # seconds for which a half-made file may still be somebody's work
DEFAULT_LIMIT = 4 << 30
NOTED = 24 * 3600  # seconds: a file's time of last change tells when it was last used, and is set anew when it is older than this
LOOKED_AFTER = 3600, 256  # the size is looked at when nobody has done so for these seconds, and at every so manyeth write of a process
YOUNG = 600  # seconds for which a new entry stays, whatever the limit: a compilation may be about to use it
LARGEST = 1 << 30  # bytes; nothing that is made here is larger
KEPT = 0.8  # of the limit, once it is passed


def cache_directory() -> Path:
    """$FLAMBEAU_CACHE_DIR, or ~/.cache/flambeau; for those without a home a directory that goes with the process."""
    given = told("FLAMBEAU_CACHE_DIR")
    if given:
        return Path(given)
    common = told("XDG_CACHE_HOME")
    if common:
        return Path(common) / "flambeau"
    try:
        return Path.home() / ".cache" / "flambeau"
    except RuntimeError:
        return _temporary()


@functools.cache
def _temporary() -> Path:
    try:
        return temporary_folder("flambeau-cache-")
    except OSError:  # there is no place for files at all: one below which there is nothing, and nothing can be made
        return Path(os.devnull) / "flambeau"


_own: dict[Path, int] = {}
"""Folders that go when the process that made them ends, but not when one forked from it does."""


def temporary_folder(prefix: str, parent: Path | None = None) -> Path:
    """A new folder, outside of the cache unless `parent` says where, that goes with this process. OSError."""
    made = Path(parent or tempfile.gettempdir(), f"{prefix}{secrets.token_hex(8)}")
    _own[made] = os.getpid()  # before there is one: an interrupt between the two leaves nothing behind
    try:
        made.mkdir(mode=0o700)
    except OSError:
        del _own[made]
        raise
    return made


def remove_folder(folder: Path) -> None:
    """Remove a temporary folder now."""
    shutil.rmtree(folder, ignore_errors=True)
    _own.pop(folder, None)


@atexit.register
def _remove_own() -> None:
    for folder, owner in list(_own.items()):
        if owner == os.getpid():
            remove_folder(folder)


def limit() -> int:
    """$FLAMBEAU_CACHE_LIMIT, the most bytes that the cache may hold: a number, also as 512K, 100M or 4G; else 4 GiB."""
    given = told("FLAMBEAU_CACHE_LIMIT").strip()
    if not given:
        return DEFAULT_LIMIT
    read = re.fullmatch(r"(\d+)([KMGT]?)", given.upper())
    if read is None:
        _warn_of_limit(given)
        return DEFAULT_LIMIT
    return int(read[1]) << 10 * " KMGT".index(read[2] or " ")


@functools.cache
def _warn_of_limit(given: str) -> None:
    warnings.warn(f"FLAMBEAU_CACHE_LIMIT={given!r} is not a number of bytes, such as 2000000000, 512M or 4G; the limit is "
                  f"{DEFAULT_LIMIT >> 30} GiB", stacklevel=4)


# -- files -------------------------------------------------------------------------------------------------------------


def seal(content: bytes, name: str) -> bytes:
    """What is written after the content of a file of that name, so that one which is damaged, or another's, is known before
    anybody uses it."""
    return _MAGIC + hashlib.blake2b(content, digest_size=16, key=name.encode()[-64:]).digest()


used: set[Path] = set()     # the files that this process has read or put in place


def read_sealed(path: Path) -> bytes | None:
    """A file's content; None if it is missing, cut short, damaged or another file's."""
    data = read(path)
    if data is None or data[-_SEAL:-_SEAL + len(_MAGIC)] != _MAGIC:
        return None
    content = data[:-_SEAL]
    return content if data[-_SEAL:] == seal(content, path.name) else None


def read(path: Path, noted: float = NOTED) -> bytes | None:
    """A file of the cache, which counts as used now (to some `noted` seconds); None if it is missing, or no file at all, which
    might keep us waiting (a pipe) or have no end (a device)."""
    try:
        with open(path, "rb", buffering=0, opener=_at_once) as f:
            facts = os.fstat(f.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST:
                return None
            age, data = time.time() - facts.st_mtime, f.readall()
    except OSError:
        return None
    if age > noted:
        with contextlib.suppress(OSError):  # not ours to change, or gone
            os.utime(path)
    used.add(path)
    return data


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def make_folder(path: Path) -> None:
    """A folder of the cache, and the cache's own for its owner alone. OSError."""
    root = cache_directory()
    if not root.exists():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.mkdir(parents=True, exist_ok=True)
    _sweep(path)


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed have left half-made in a folder of the cache."""
    for path in (*folder.glob("build-*"), *folder.glob("aside-*")):
        try:
            if path.stat().st_mtime > time.time() - LEFT_ALONE:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        except OSError:  # somebody else is at it
            continue


def write_file(path: Path, data: bytes) -> None:
    """Write aside, sync, then rename: two processes may fill the cache at once. OSError; it leaves nothing behind."""
    make_folder(path.parent)
    handle, aside = tempfile.mkstemp(prefix="aside-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        put_in_place(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
    note_write()


def put_in_place(aside: str | Path, path: Path) -> None:
    """Give a file that was made aside its name, whatever has that name now; but folders that hold something stay. OSError."""
    try:
        os.replace(aside, path)
    except IsADirectoryError:
        with contextlib.suppress(OSError):
            os.rmdir(path)
        os.replace(aside, path)
    used.add(Path(path))


def write_sealed(path: Path, content: bytes) -> bool:
    """Write what `read_sealed` reads; where the cache cannot be written, one warning and False."""
    try:
        write_file(path, content + seal(content, path.name))
    except OSError as error:
        warn_unusable(error)
        return False
    return True


_unusable: set[Path] = set()  # directories of which it was said


def warn_unusable(error: OSError) -> None:
    """Say, once for a directory, that nothing is kept."""
    directory = cache_directory()
    if directory in _unusable:
        return
    _unusable.add(directory)
    in_the_way = f": {error.filename2}" if error.filename2 else ""
    warnings.warn(f"the cache of compiled code in {directory} cannot be used ({error.strerror or error}{in_the_way}): what is compiled "
                  "serves this process alone. Make room or change its rights, or set FLAMBEAU_CACHE_DIR to another directory.",
                  stacklevel=4)


# -- how much there is -------------------------------------------------------------------------------------------------


# Name of a folder -> (what lies in it, which of its files are the cache's: others are nobody's to remove).
_KEY = "[0-9a-f]{2}/[0-9a-f]{32}"
KINDS = {
    "programs": ("programs", re.compile(_KEY)),
    "lib": ("libraries", re.compile(rf"({_KEY})\.(so|cpp)")),
    "cubin": ("GPU kernels", re.compile(_KEY)),
    "triton": ("sources of GPU kernels", re.compile(r"(kernels_[0-9a-f]{24}\.py|__pycache__/kernels_[0-9a-f]{24}\.[\w.-]+\.pyc)")),
    "tuned": ("measurements", re.compile(r"[0-9a-f]{32}\.json")),
}


@dataclass
class Entry:
    """Files that are of use together."""

    kind: str
    files: list[str] = field(default_factory=list)
    size: int = 0
    used: float = 0.0  # when last, in seconds since the epoch


def entries() -> list[Entry]:
    """All that the cache holds."""
    found: dict[tuple[str, str], Entry] = {}
    for kind, (_, pattern) in KINDS.items():
        top = os.path.join(cache_directory(), kind, "")
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                if pattern.fullmatch(path, len(top)) is None:
                    continue
                try:
                    facts = os.stat(path)
                except OSError:  # gone meanwhile
                    continue
                entry = found.setdefault((kind, name.partition(".")[0]), Entry(kind))
                entry.files.append(path)
                entry.size += facts.st_size
                entry.used = max(entry.used, facts.st_mtime)
    return list(found.values())


def _remove(entry: Entry) -> None:
    for path in entry.files:
        with contextlib.suppress(OSError):  # another process was faster, or it is not ours
            if os.stat(path).st_mtime <= entry.used:  # nobody has made or used it since it was looked at
                os.unlink(path)


def evict() -> int:
    """Where the cache holds more than its limit, remove what was not used for longest. The number of bytes that went."""
    found, most = entries(), limit()
    total = before = sum(entry.size for entry in found)
    if total <= most:
        return 0
    for entry in sorted(found, key=lambda entry: entry.used):
        if total <= most * KEPT or entry.used > time.time() - YOUNG:
            break
        _remove(entry)
        total -= entry.size
    return before - total


def clear() -> int:
    """Remove everything that the cache holds. The number of bytes that went."""
    found = entries()
    for entry in found:
        _remove(entry)
    return sum(entry.size for entry in found)


_written = itertools.count()  # by this process


def note_write() -> None:
    """Called when a file was added: looks now and then whether there are too many. At most a scan of the cache an hour, over
    all processes, and one in some hundred writes of this one."""
    seconds, writes = LOOKED_AFTER
    number, stamp = next(_written), cache_directory() / "looked-after"
    if number % writes:
        return
    with contextlib.suppress(OSError):
        if number or not stamp.exists() or stamp.stat().st_mtime < time.time() - seconds:
            stamp.touch()
            evict()


# -- what is compiled by what ------------------------------------------------------------------------------------------


@functools.cache
def package_hash() -> str | None:
    """A hash of Flambeau's own files, of Python's and NumPy's versions: what is cached by one version is no other's.

    None if they cannot be read or were changed after this process started: then nobody knows what it has loaded.
    """
    root, started = str(Path(__file__).resolve().parent.parent), _process_start()
    numpy = sys.modules.get("numpy")
    found = hashlib.sha256(f"{sys.version} {getattr(numpy, '__version__', '')}".encode())
    try:
        for path in sorted(_sources(root)):
            with open(path, "rb", buffering=0) as f:
                facts = os.fstat(f.fileno())
                if max(facts.st_mtime, facts.st_ctime) > started:
                    return None
                found.update(f"{path[len(root):]} {facts.st_size}\0".encode())
                found.update(f.readall())
    except OSError:  # not in files of their own, or going away
        return None
    return found.hexdigest()


def _sources(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _sources(entry.path)
            elif entry.name.endswith((".py", ".h", ".so")):
                yield entry.path


def _process_start() -> float:
    """When this process was started, in seconds since the epoch; at the latest."""
    try:
        with open("/proc/self/stat", "rb") as f:
            ticks = int(f.read().rpartition(b")")[2].split()[19])
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return min(_IMPORTED, time.time() - since_boot)
    except (OSError, AttributeError, ValueError, IndexError):  # not on Linux
        return _IMPORTED
