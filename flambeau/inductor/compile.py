"""From C++ source to a loaded library: g++, and the cache of what it built.

The cache is a directory of libraries named by content: the source, the headers, the flags, the compiler's version and the
CPU. Nothing in a library depends on where it lies, so a copied cache stays warm. Files are written aside, synced and
renamed, so that two processes may race and a crash leaves nothing half-made; a library that does not load is built anew.
"""

from __future__ import annotations

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


def cache_directory() -> Path:
    """$FLAMBEAU_CACHE_DIR, or ~/.cache/flambeau."""
    given = os.environ.get("FLAMBEAU_CACHE_DIR")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "flambeau"


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


def build(source: str) -> Path:
    """The library of `source`: from the cache, or by calling g++. CompilerError, NoCompiler."""
    if compiler() is None:
        raise NoCompiler("there is no C++ compiler")
    path = cached_library(source)
    if not path.exists():
        _compile(source, path)
    return path


def load(source: str, symbols: Sequence[str], n_args: int) -> list:
    """The functions of `source`'s library, ready to call."""
    path = build(source)
    try:
        return [_C.NativeGraph(str(path), symbol, n_args) for symbol in symbols]
    except OSError:  # cut short, or of another machine: build it anew
        path.unlink(missing_ok=True)
        build(source)
        return [_C.NativeGraph(str(path), symbol, n_args) for symbol in symbols]


def _compile(source: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="build-", dir=path.parent))
    try:
        text = folder / "unit.cpp"
        text.write_text(source)
        made = folder / "unit.so"
        command = [str(compiler()), *flags(), *(f"-I{d}" for d in INCLUDES), "-o", str(made), str(text)]
        if "-DFL_MVEC=1" in command:
            command.append("-lmvec")
        started = time.perf_counter()
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        stats["seconds"] += time.perf_counter() - started
        stats["calls"] += 1
        if ran.returncode != 0:
            said = "\n".join(ran.stderr.splitlines()[:12])
            raise CompilerError(f"the C++ compiler failed with status {ran.returncode} on generated code\n"
                                f"  {' '.join(command)}\n{said}")
        with open(made, "rb") as f:
            os.fsync(f.fileno())
        os.replace(made, path)
        _keep_source(source, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep_source(source: str, path: Path) -> None:
    """The text beside its library, for reading."""
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    aside.write_text(source)
    os.replace(aside, path.with_suffix(".cpp"))


stats: dict[str, float] = {"calls": 0, "seconds": 0.0}  # of g++ in this process

__all__ = ["CompilerError", "NoCompiler", "build", "cache_directory", "compiler", "have_compiler", "load", "stats"]
