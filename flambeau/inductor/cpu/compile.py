"""From C++ source to a loaded library: g++ or clang++, and the cache of what it built.

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
import itertools
import os
import platform
import shlex
import shutil
import signal
import struct
import subprocess
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from flambeau import _C
from flambeau.core.cache import (
    cache_directory,
    make_folder,
    note_write,
    put_in_place,
    read,
    read_sealed,
    remove_folder,
    seal,
    temporary_folder,
    warn_unusable,
    write_sealed,
)
from flambeau.core.settings import told

INCLUDES = [Path(__file__).parents[2] / "include", Path(__file__).parent]
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
         "-fno-exceptions", "-fno-rtti", "-fno-semantic-interposition", "-fno-plt", "-w")
GCC_FLAGS = ("-fno-loop-unroll-and-jam",)  # which keeps GCC 12 from vectorising innermost loops over accumulators


class CompilerError(RuntimeError):
    """g++ made no library of generated code: `what` happened; the message has its command and the first lines of what it said."""

    def __init__(self, what: str, details: str):
        super().__init__(f"{what}\n  {details}")
        self.what = what


class NoCompiler(RuntimeError):
    """There is no C++ compiler."""


@functools.cache
def compiler() -> str | None:
    """The C++ compiler: $CXX, or else g++ or clang++; None where there is none."""
    given = told("CXX")
    return shutil.which(given) if given else shutil.which("g++") or shutil.which("clang++")


def is_clang(path: str) -> bool:
    """Whether the compiler there is clang, by its file's own name (clang++ and c++ are often links to clang-14)."""
    return "clang" in os.path.basename(os.path.realpath(path))


@functools.cache
def _warn_no_compiler() -> None:
    given = told("CXX")
    named = f" (CXX is {given!r}, which is no program)" if given else ""
    warnings.warn(f"torch.compile found no C++ compiler{named}, so compiled programs run kernel by kernel through NumPy, correct but "
                  "slower. Install one (Debian and Ubuntu: apt install g++, or clang and libomp-dev; or set CXX to its path).",
                  stacklevel=2)


def have_compiler(asked: bool = True) -> bool:
    """Whether native code can be made; where somebody `asked` to compile, warns once where not."""
    if compiler() is None:
        if asked:
            _warn_no_compiler()
        return False
    return compiler() not in _hung


_hung: set[str] = set()  # compilers that did not end, which has been said
_told: set[str] = set()  # of what compilers did


def warn_failed(error: CompilerError) -> None:
    """Say, once for each thing that a compiler may do, that graphs run without it."""
    if error.what not in _told:
        _told.add(error.what)
        warnings.warn(f"{error}\nWhat it was to compile runs through NumPy instead: correct but slower. If the compiler is to "
                      "blame, install it anew (Debian and Ubuntu: apt install --reinstall g++), or set CXX to another.", stacklevel=4)


def time_limit() -> float:
    """$FLAMBEAU_CXX_TIMEOUT, the seconds after which a compiler counts as hung; else ten minutes."""
    given = told("FLAMBEAU_CXX_TIMEOUT", "600")
    try:
        return float(given)
    except ValueError:
        raise ValueError(f"FLAMBEAU_CXX_TIMEOUT={given!r} is not a number of seconds, such as 600") from None


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
    own = () if is_clang(compiler() or "") else GCC_FLAGS
    return (*FLAGS, *own, *extra, *shlex.split(told("FLAMBEAU_CXXFLAGS")))


@functools.cache
def _headers() -> bytes:
    return b"".join(path.read_bytes() for folder in INCLUDES for path in sorted(folder.glob("*.h")))


def _stamp(path: str) -> str:
    """The compiler's identity without running it: its full name (g++-12) and its size."""
    real = os.path.realpath(path)
    try:
        return f"{os.path.basename(real)} {os.stat(real).st_size}"
    except OSError:  # it has gone since it was found; who starts it will see
        return os.path.basename(real)


@functools.cache
def fixed_part() -> bytes:
    """What every library depends on beside its source."""
    path = compiler()
    assert path is not None
    return "\0".join([_stamp(path), *flags(), _machine()]).encode() + _headers()


def key_of(source: str) -> str:
    """The name of a source's library in the cache."""
    return hashlib.sha256(fixed_part() + source.encode()).hexdigest()[:32]


def library_path(key: str) -> Path:
    """Where the library of this name is, or would be."""
    return cache_directory() / "lib" / key[:2] / f"{key}.so"


class _Failed(Exception):
    """What is wrong with a run of the compiler; `again`: it may be worth another try."""

    def __init__(self, what: str, again: bool = True):
        super().__init__(what)
        self.again = again


class _Run:
    """The compiler at work on one source, beside the process, in a folder of its own."""

    def __init__(self, source: str, key: str, folder: Path, libraries: Sequence[str]):
        stats["calls"] += 1
        self.key, self.folder, self.made = key, folder, folder / "unit.so"
        self._process: subprocess.Popen[bytes] | None = None
        self._started, self._failure = time.perf_counter(), ""
        self._ended, self._words = threading.Event(), folder / "unit.txt"
        self.command = [str(compiler()), *flags(), *(f"-I{d}" for d in INCLUDES), "-o", str(self.made), str(folder / "unit.cpp"),
                        *libraries]
        try:
            (folder / "unit.cpp").write_text(source + _MARK % key)
            self._start()
        except OSError as error:
            self._failure = f"could not be started ({error})"

    def _start(self) -> None:
        # Its words go to a file: nobody reads them before it has ended, and what it leaves behind may hold a pipe open for ever. A
        # process group of its own: Ctrl-C at a terminal is for the program, not for the compiler beside it. Its passes leave their
        # files in our folder: where that can be written to, nothing else is needed.
        with open(self._words, "wb") as words:
            self._process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=words,
                                             process_group=0, env={**os.environ, "TMPDIR": str(self.folder)})
        # Whether or not anybody comes for the library, the ended process is waited for: no zombie stays.
        threading.Thread(target=self._watch, args=(self._process,), name="flambeau-g++", daemon=True).start()

    def _watch(self, process: subprocess.Popen) -> None:
        process.wait()
        self._ended.set()

    def ended_well(self) -> bool:
        """Whether the compiler has ended, and said that all is well."""
        return self._process is not None and self._ended.is_set() and self._process.returncode == 0

    def result(self) -> bytes:
        """Wait for the library. `_Failed`."""
        if self._process is None:
            raise _Failed(self._failure)
        if not self._ended.wait(max(0.0, self._started + time_limit() - time.perf_counter())):
            _hung.add(self.command[0])
            raise _Failed(f"did not end within {time_limit():g} s (FLAMBEAU_CXX_TIMEOUT), so it is not called again", again=False)
        stats["seconds"] += time.perf_counter() - self._started
        status = self._process.returncode
        if status:
            raise _Failed(f"was ended by signal {-status}" if status < 0 else f"failed with status {status}")
        content = read(self.made)
        if content is None:
            raise _Failed("said that all is well, but made nothing")
        if not _is_library(content, self.key):
            raise _Failed("said that all is well, but what it made is not the whole library of this code")
        return content

    def said(self) -> str:
        """The first lines of what the compiler said."""
        try:
            with open(self._words, errors="replace") as f:
                return "".join(f"\n{line.rstrip()}" for line in itertools.islice(f, 12))
        except OSError:
            return ""

    def clean(self, keep_folder: bool = False) -> None:
        """End the compiler, and remove what it made."""
        if self._process is not None and not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError):   # it may have ended, and been waited for, this moment
                os.killpg(self._process.pid, signal.SIGKILL)  # the driver, and the passes that it runs
            self._process.wait()
        if not keep_folder:
            remove_folder(self.folder)


# Stands at the end of every source: what a compiler gives for a library is looked through for it.
_MARK = '\nextern "C" __attribute__((used, visibility("default"))) const char flambeau_source[] = "%s";\n'


def _is_library(content: bytes, key: str) -> bool:
    """Whether this is the whole of a library (ELF), and of the source of that name. The loader dies of some that are cut short."""
    if content[:5] != b"\x7fELF\x02" or len(content) < 64 or key.encode() not in content:
        return False
    segments, sections = struct.unpack_from("<QQ", content, 32)
    segment_size, segment_count, section_size, section_count = struct.unpack_from("<HHHH", content, 54)
    if segment_size != 56 or max(segments + 56 * segment_count, sections + section_size * section_count) > len(content):
        return False
    places = [struct.unpack_from("<Q16xQ", content, segments + 56 * k + 8) for k in range(segment_count)]
    return all(offset + size <= len(content) for offset, size in places)


class Build:
    """A library on its way: g++ runs beside the process from the moment that this is made until `finish`.

    Whatever goes wrong is tried once more, in a temporary folder: the fault may lie with the cache's disk, or be over. `libraries` are what
    it is linked with, of which the source has to say what is in them.
    """

    def __init__(self, source: str, libraries: Sequence[str] = ()):
        if compiler() is None:
            raise NoCompiler("there is no C++ compiler")
        self.source, self.key, self._libraries = source, key_of(source), libraries
        self.path = library_path(self.key)
        self._owner = os.getpid()
        self._run: _Run | None = None
        self._built = self._aside = False  # it was made here; what lies in the cache cannot be loaded
        self._done = is_sound(self.path)
        if not self._done:
            with contextlib.suppress(_Failed):  # `finish` tries again, and tells
                self._start(elsewhere=False)

    def _start(self, elsewhere: bool) -> None:
        """Start g++. `_Failed` where there is no folder to do it in."""
        try:
            self._run = _Run(self.source, self.key, self._make_folder(elsewhere), self._libraries)
        except OSError as error:
            raise _Failed(f"has no folder to work in ({error})") from None
        _running.add(self)  # from here on `_give_up` cleans up, whatever interrupts

    def _make_folder(self, elsewhere: bool) -> Path:
        """A folder to build in: in the cache, or else a temporary one. OSError."""
        if elsewhere:
            return temporary_folder("flambeau-build-")
        try:
            make_folder(self.path.parent)
            return temporary_folder("build-", self.path.parent)
        except OSError as error:
            made = temporary_folder("flambeau-build-")
            warn_unusable(error)
            return made

    def finish(self) -> Path:
        """Wait for the library and put it into the cache. CompilerError; whatever interrupts it leaves nothing behind, and
        the next call starts anew."""
        self._take_over()
        for last in (False, True):
            if self._done:
                break
            kept = False
            try:
                if self._run is None:
                    self._start(elsewhere=last or self._aside)
                assert self._run is not None
                kept = self._put(self._run, self._run.result())
                self._built = self._done = True
            except _Failed as failure:
                if last or not failure.again:
                    raise self._error(f"{failure}, twice" if last else str(failure)) from None
            finally:
                self._clean(keep_folder=kept)
        return self.path

    def _error(self, what: str) -> CompilerError:
        command, said = (" ".join(self._run.command), self._run.said()) if self._run is not None else ("", "")
        return CompilerError(f"the C++ compiler {compiler()} {what}", f"{command}{said}")

    def _take_over(self) -> None:
        """After a fork, g++ is the parent's child: this process has to start its own."""
        if self._owner != os.getpid():
            self._owner, self._run = os.getpid(), None
            _running.discard(self)

    def _put(self, run: _Run, content: bytes) -> bool:
        """Move what was made into the cache; True if that cannot be, and its folder is kept while this process lives."""
        home = library_path(self.key)
        if not self._aside and (_move(run.made, content, home) if run.folder.parent == home.parent else write_sealed(home, content)):
            self.path = home
            with contextlib.suppress(OSError):
                os.replace(run.folder / "unit.cpp", home.with_suffix(".cpp"))  # beside its library, for reading
            return False
        self.path = run.made
        return True

    def _clean(self, keep_folder: bool = False) -> None:
        if self._run is not None:
            self._run.clean(keep_folder)
        self._run = None
        _running.discard(self)

    def give_up(self) -> None:
        """Keep the library if it is ready; else end the compiler."""
        self._take_over()
        if self._run is not None and self._run.ended_well():
            with contextlib.suppress(CompilerError):
                self.finish()
        self._clean()

    def content(self) -> bytes:
        """Wait for the library; its bytes. CompilerError."""
        path = self.finish()
        content = read_sealed(path) or read(path)
        assert content is not None
        return content

    def load(self, functions: Mapping[str, int]) -> list[_C.NativeGraph]:
        """These functions of the library, by how many arrays each takes, ready to call. CompilerError."""
        while True:
            path = self.finish()
            try:
                return _functions(path, functions)
            except OSError as error:
                if self._aside:
                    raise self._error(f"made a library that cannot be loaded ({error})") from None
                _remove(path)
                if self._built:  # then it is the place: its file system may refuse programs
                    warn_unusable(error)
                    self._aside = True
                self._done = False


def _move(made: Path, content: bytes, home: Path) -> bool:
    """Seal what was made in the cache's own folder, and give it its name; where that cannot be, one warning and False."""
    try:
        with open(made, "ab") as f:
            f.write(seal(content, home.name))
            f.flush()
            os.fsync(f.fileno())
        put_in_place(made, home)
    except OSError as error:
        warn_unusable(error)
        return False
    note_write()
    return True


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _functions(path: Path, functions: Mapping[str, int]) -> list[_C.NativeGraph]:
    return [_C.NativeGraph(str(path), name, arrays) for name, arrays in functions.items()]


def open_library(key: str, functions: Mapping[str, int]) -> list[_C.NativeGraph] | None:
    """The functions of the cached library of this name; None if it is missing or damaged."""
    path = library_path(key)
    if not is_sound(path):
        return None
    try:
        return _functions(path, functions)
    except OSError:
        _remove(path)
        return None


def is_sound(path: Path) -> bool:
    """Whether a library is there and whole."""
    return read_sealed(path) is not None


# The instruction sets that a loader asks the processor for, as the compiler's macros have them (has_feature of aoti.h).
_FEATURES = ("sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "bmi", "bmi2", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd",
             "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512ifma", "avx512vpopcntdq", "avx512bf16")


@functools.cache
def needed_features() -> tuple[str, ...]:
    """What a processor has to have for libraries that are built here."""
    command = [str(compiler()), *flags(), "-dM", "-E", "-x", "c++", os.devnull]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=time_limit(), check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerError(f"the C++ compiler {compiler()} does not tell its macros", f"{' '.join(command)}\n{error}") from None
    defined = {line.split()[1] for line in told.splitlines() if line.startswith("#define ")}
    return tuple(name for name in _FEATURES if f"__{name.upper().replace('.', '_')}__" in defined)


_running: set[Build] = set()


@atexit.register
def _give_up() -> None:
    """At exit: what nobody has waited for."""
    for building in list(_running):
        building.give_up()


def build(source: str) -> Path:
    """The library of `source`: from the cache, or by calling g++. CompilerError, NoCompiler."""
    return Build(source).finish()


def load(source: str, functions: Mapping[str, int]) -> list[_C.NativeGraph]:
    """The functions of `source`'s library, ready to call."""
    return Build(source).load(functions)


stats: dict[str, float] = {"calls": 0, "seconds": 0.0}  # of g++ in this process
