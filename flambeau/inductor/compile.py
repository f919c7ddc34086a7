"""From C++ source to a loaded library: g++, and the cache of what it built.

The cache is a directory of libraries named by content: the source, the headers, the flags, the compiler's version and the
CPU. Nothing in a library depends on where it lies, so a copied cache stays warm. Files are written aside, synced and
renamed, so that two processes may race and a crash leaves nothing half-made; a damaged library is built anew. Where the
cache cannot be written, libraries are built in a temporary directory and serve this process alone.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from flambeau import _C
from flambeau.core.cache import cache_directory, make_folder, note_write, read_sealed, seal, temporary_folder, warn_unwritable
from flambeau.inductor.unit import HEADERS, INCLUDES

FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
         "-fno-exceptions", "-fno-rtti", "-fno-semantic-interposition", "-fno-plt", "-w",
         "-fno-loop-unroll-and-jam")  # which keeps GCC 12 from vectorising innermost loops over accumulators


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
    """What -march=native depends on."""
    flags = ""
    try:
        with open("/proc/cpuinfo") as f:
            flags = next((line for line in f if line.startswith(("flags", "Features"))), "")
    except OSError:
        pass
    return f"{platform.machine()} {' '.join(sorted(flags.split()))}"


# What takes -march=native back to the instructions that ONEDNN_MAX_CPU_ISA leaves (csrc/instruction_set.cpp).
_NARROWER = {"SSE41": ("-march=x86-64-v2",), "AVX2": ("-mno-avx512f",), "AVX512_CORE": ("-mno-avx512bf16", "-mno-avx512fp16"),
             "AVX512_CORE_BF16": ("-mno-avx512fp16",)}


@functools.cache
def flags() -> tuple[str, ...]:
    """All flags for this machine, and those of $FLAMBEAU_CXXFLAGS after them."""
    level, extra = _C.instruction_set(), ["-march=native"]
    if level != _C.instruction_sets()[-1]:
        extra += _NARROWER[level]
    if level.startswith("AVX512"):
        extra.append("-mprefer-vector-width=512")
    return (*FLAGS, *extra, *shlex.split(os.environ.get("FLAMBEAU_CXXFLAGS", "")))


@functools.cache
def _headers() -> bytes:
    return b"".join((folder / name).read_bytes() for name in HEADERS for folder in INCLUDES if (folder / name).exists())


def _stamp(path: str) -> str:
    """The compiler's identity without running it: its full name (g++-12) and its size."""
    real = os.path.realpath(path)
    found = os.stat(real)
    return f"{os.path.basename(real)} {found.st_size}"


@functools.cache
def fixed_part() -> bytes:
    """What every library depends on beside its source."""
    path = compiler()
    assert path is not None
    return "\0".join([_stamp(path), *flags(), _machine()]).encode() + _headers()


def key_of(source: str) -> str:
    """The name of a source's library in the cache."""
    return hashlib.sha256(fixed_part() + source.encode()).hexdigest()[:32]


def cached_library(source: str) -> Path:
    """Where the library of `source` is, or would be."""
    return library_path(key_of(source))


def library_path(key: str) -> Path:
    """Where the library of this name is, or would be."""
    return cache_directory() / "lib" / key[:2] / f"{key}.so"


class Build:
    """A library on its way: g++ runs beside the process from the moment that this is made until `finish`."""

    def __init__(self, source: str):
        if compiler() is None:
            raise NoCompiler("there is no C++ compiler")
        self.source, self.path = source, cached_library(source)
        self._owner = os.getpid()
        self._process: subprocess.Popen | None = None
        self._failure: OSError | None = None
        self._folder: Path | None = None
        self._done = is_sound(self.path)
        if not self._done:
            self._start()

    def _start(self) -> None:
        """Start g++. What keeps it from starting is told by `finish`."""
        stats["calls"] += 1
        self._started = time.perf_counter()
        try:
            self._folder = self._make_folder()
            _running.add(self)  # from here on `_give_up` cleans up, whatever interrupts
            text, self._made = self._folder / "unit.cpp", self._folder / "unit.so"
            self._command = [str(compiler()), *flags(), *(f"-I{d}" for d in INCLUDES), "-o", str(self._made), str(text)]
            text.write_text(self.source)
            # A process group of its own: Ctrl-C at a terminal is for the program, not for the compiler beside it.
            self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                             process_group=0)
            # Whether or not anybody comes for the library, the ended process is waited for: no zombie stays.
            threading.Thread(target=self._process.wait, name="flambeau-g++", daemon=True).start()
        except OSError as error:
            self._failure = error

    def _make_folder(self) -> Path:
        """A folder to build in: in the cache, or else a temporary one."""
        try:
            make_folder(self.path.parent)
            return Path(tempfile.mkdtemp(prefix="build-", dir=self.path.parent))
        except OSError as error:
            warn_unwritable(error)
            return temporary_folder("flambeau-build-")

    def finish(self) -> Path:
        """Wait for the library and put it into the cache. CompilerError; whatever interrupts it leaves nothing behind, and
        the next call starts anew."""
        self._take_over()
        for last in (False, True):
            if self._done:
                break
            if self._process is None and self._failure is None:
                self._start()
            kept_aside = False
            try:
                self._wait(last)
                kept_aside = not self._put()
                self._done = True
            except _Killed:
                continue
            finally:
                self._clean(keep_folder=kept_aside)
        return self.path

    def _take_over(self) -> None:
        """After a fork, g++ is the parent's child: this process has to start its own."""
        if self._owner != os.getpid():
            self._owner, self._process, self._folder = os.getpid(), None, None
            _running.discard(self)

    def _wait(self, last: bool) -> None:
        """Wait for the compiler; CompilerError if it failed, `_Killed` if somebody ended it and it may be tried again."""
        if self._process is None:
            raise CompilerError(f"the C++ compiler {compiler()} could not be started on generated code: {self._failure}")
        _, said = self._process.communicate()
        stats["seconds"] += time.perf_counter() - self._started
        status = self._process.returncode
        if status == 0:
            return
        if not last and (status < 0 or "signal terminated program" in said):
            raise _Killed
        what = f"was ended by signal {-status}, twice," if status < 0 else f"failed with status {status}"
        lines = "\n".join(said.splitlines()[:12])
        raise CompilerError(f"the C++ compiler {what} on generated code\n  {' '.join(self._command)}\n{lines}")

    def _put(self) -> bool:
        """Move what was made into the cache; False if it has to be used where it is."""
        try:
            with open(self._made, "r+b") as f:
                f.write(seal(f.read()))
                f.flush()
                os.fsync(f.fileno())
            if self._made.parent.parent != self.path.parent:  # the cache cannot be written, which has been said
                self.path = self._made
                return False
            os.replace(self._made, self.path)
            os.replace(self._made.with_suffix(".cpp"), self.path.with_suffix(".cpp"))  # beside its library, for reading
            note_write()
        except OSError as error:
            if not self._made.exists():  # the library is there, its text is not: so be it
                return True
            warn_unwritable(error)
            self.path = self._made
            return False
        return True

    def _clean(self, keep_folder: bool = False) -> None:
        process, self._process, self._failure = self._process, None, None
        if process is not None:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):   # it may have ended, and been waited for, this moment
                    os.killpg(process.pid, signal.SIGKILL)  # the driver, and the passes that it runs
                process.wait()
            if process.stderr is not None:
                process.stderr.close()
        if not keep_folder:  # else it goes when the process ends
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            _running.discard(self)

    def give_up(self) -> None:
        """Keep the library if it is ready; else end the compiler."""
        self._take_over()
        if self._process is not None and self._process.poll() == 0:
            self.finish()
        else:
            self._clean()

    def load(self, symbols: Sequence[str], n_args: int) -> list[_C.NativeGraph]:
        """The library's functions, ready to call."""
        path = self.finish()
        try:
            return _functions(path, symbols, n_args)
        except OSError:  # cut short, or of another machine: build it anew
            path.unlink(missing_ok=True)
            return _functions(build(self.source), symbols, n_args)


class _Killed(Exception):
    """The compiler was ended by a signal: for want of memory, or by mistake."""


def _functions(path: Path, symbols: Sequence[str], n_args: int) -> list[_C.NativeGraph]:
    return [_C.NativeGraph(str(path), symbol, n_args) for symbol in symbols]


def open_library(key: str, symbols: Sequence[str], n_args: int) -> list[_C.NativeGraph] | None:
    """The functions of the cached library of this name; None if it is missing or damaged."""
    path = library_path(key)
    if not is_sound(path):
        return None
    try:
        return _functions(path, symbols, n_args)
    except OSError:
        path.unlink(missing_ok=True)
        return None


def is_sound(path: Path) -> bool:
    """Whether a library is there and whole: the loader dies of some that are not."""
    return read_sealed(path) is not None


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
