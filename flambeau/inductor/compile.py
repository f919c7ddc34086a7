"""From C++ source to a loaded library: g++, and the cache of what it built.

The cache is a directory of libraries named by content: the source, the headers, the flags, the compiler's version and the
CPU. Nothing in a library depends on where it lies, so a copied cache stays warm. Files are written aside, synced and
renamed, so that two processes may race and a crash leaves nothing half-made; a damaged library is built anew.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from flambeau import _C
from flambeau.core.cache import cache_directory
from flambeau.inductor.unit import HEADERS, INCLUDES

FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
         "-fno-exceptions", "-fno-rtti", "-fno-semantic-interposition", "-fno-plt", "-w")


class CompilerError(RuntimeError):
    """g++ refused generated code; the message has its command and the first lines of what it said."""


class NoCompiler(RuntimeError):
    """There is no C++ compiler."""


@functools.cache
def compiler() -> str | None:
    """The C++ compiler: $CXX, or g++; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


@functools.cache
def _warn_no_compiler() -> None:
    warnings.warn("torch.compile found no C++ compiler, so compiled programs run kernel by kernel through NumPy, correct but "
                  "slower. Install one (Debian and Ubuntu: apt install g++; or set CXX to its path).", stacklevel=2)


def have_compiler() -> bool:
    """Whether native code can be made; warns once where not."""
    if compiler() is None:
        _warn_no_compiler()
        return False
    return True


@functools.cache
def _machine() -> str:
    """What -march=native depends on, and whether glibc has the vector functions."""
    flags = ""
    try:
        with open("/proc/cpuinfo") as f:
            flags = next((line for line in f if line.startswith(("flags", "Features"))), "")
    except OSError:
        pass
    return f"{platform.machine()} {' '.join(sorted(flags.split()))}"


@functools.cache
def flags() -> tuple[str, ...]:
    """All flags for this machine."""
    extra = ["-march=native"]
    if "avx512f" in _machine().split():
        extra.append("-mprefer-vector-width=512")
    name, version = platform.libc_ver()
    mvec = platform.machine() == "x86_64" and name == "glibc" and tuple(map(int, version.split(".")[:2])) >= (2, 35)
    return (*FLAGS, *extra, f"-DFL_MVEC={int(mvec)}")


@functools.cache
def _headers() -> bytes:
    return b"".join((folder / name).read_bytes() for name in HEADERS for folder in INCLUDES if (folder / name).exists())


def _stamp(path: str) -> str:
    """The compiler's identity without running it: its full name (g++-12) and its size."""
    real = os.path.realpath(path)
    found = os.stat(real)
    return f"{os.path.basename(real)} {found.st_size}"


@functools.cache
def _fixed_part() -> bytes:
    path = compiler()
    assert path is not None
    return "\0".join([_stamp(path), *flags(), _machine()]).encode() + _headers()


def key_of(source: str) -> str:
    """The name of a source's library in the cache."""
    return hashlib.sha256(_fixed_part() + source.encode()).hexdigest()[:32]


def cached_library(source: str) -> Path:
    """Where the library of `source` is, or would be."""
    key = key_of(source)
    return cache_directory() / "lib" / key[:2] / f"{key}.so"


class Build:
    """A library on its way: g++ runs beside the process from the moment that this is made until `finish`."""

    def __init__(self, source: str):
        if compiler() is None:
            raise NoCompiler("there is no C++ compiler")
        self.source, self.path = source, cached_library(source)
        self._process: subprocess.Popen | None = None
        if not is_sound(self.path):
            self._start()

    def _start(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="build-", dir=self.path.parent))
        _running.add(self)  # from here on `_give_up` cleans up, whatever interrupts
        text, self._made = self._folder / "unit.cpp", self._folder / "unit.so"
        text.write_text(self.source)
        self._command = [str(compiler()), *flags(), *(f"-I{d}" for d in INCLUDES), "-o", str(self._made), str(text)]
        if "-DFL_MVEC=1" in self._command:
            self._command.append("-lmvec")
        self._started = time.perf_counter()
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        stats["calls"] += 1

    def finish(self) -> Path:
        """Wait for the library and put it into the cache. CompilerError; whatever interrupts it leaves nothing behind."""
        process, self._process = self._process, None
        if process is None:
            return self.path
        try:
            _, said = process.communicate()
            stats["seconds"] += time.perf_counter() - self._started
            if process.returncode != 0:
                lines = "\n".join(said.splitlines()[:12])
                raise CompilerError(f"the C++ compiler failed with status {process.returncode} on generated code\n"
                                    f"  {' '.join(self._command)}\n{lines}")
            with open(self._made, "r+b") as f:
                f.write(_seal(f.read()))
                f.flush()
                os.fsync(f.fileno())
            os.replace(self._made, self.path)
            os.replace(self._folder / "unit.cpp", self.path.with_suffix(".cpp"))  # beside its library, for reading
        finally:
            self._clean(process)
        return self.path

    def _clean(self, process: subprocess.Popen | None) -> None:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        if process is not None and process.stderr is not None:
            process.stderr.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        _running.discard(self)

    def give_up(self) -> None:
        """Keep the library if it is ready; else end the compiler."""
        process = self._process
        if process is not None and process.poll() == 0:
            self.finish()
        else:
            self._process = None
            self._clean(process)

    def load(self, symbols: Sequence[str], n_args: int) -> list[_C.NativeGraph]:
        """The library's functions, ready to call."""
        path = self.finish()
        try:
            return [_C.NativeGraph(str(path), symbol, n_args) for symbol in symbols]
        except OSError:  # cut short, or of another machine: build it anew
            path.unlink(missing_ok=True)
            path = build(self.source)
            return [_C.NativeGraph(str(path), symbol, n_args) for symbol in symbols]


_MAGIC = b"FLAMBEAU"


def _seal(content: bytes) -> bytes:
    """What is written after a library, so that a damaged one is known before the loader maps (and dies of) it."""
    return _MAGIC + hashlib.blake2b(content, digest_size=16).digest()


def is_sound(path: Path) -> bool:
    """Whether a library is there and whole."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return content[-24:] == _seal(content[:-24])


_running: set[Build] = set()


@atexit.register
def _give_up() -> None:
    """At exit: what nobody has waited for."""
    for building in list(_running):
        building.give_up()


def build(source: str) -> Path:
    """The library of `source`: from the cache, or by calling g++. CompilerError, NoCompiler."""
    return Build(source).finish()


def load(source: str, symbols: Sequence[str], n_args: int) -> list[_C.NativeGraph]:
    """The functions of `source`'s library, ready to call."""
    return Build(source).load(symbols, n_args)


stats: dict[str, float] = {"calls": 0, "seconds": 0.0}  # of g++ in this process

__all__ = ["Build", "CompilerError", "NoCompiler", "build", "cache_directory", "compiler", "have_compiler", "load", "stats"]
