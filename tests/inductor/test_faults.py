"""What may happen to a compiler: killed, interrupted, a disk that is full or cannot be used. Nothing is lost by it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.aot import cache as programs
from flambeau.aot import compile as aot_compile
from flambeau.core import cache
from flambeau.inductor import graph as graphs
from flambeau.inductor import operators
from flambeau.inductor.cpu import compile as build

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def directory(own_cache: Path) -> Path:
    cache._unusable.clear()
    build._told.clear()
    return own_cache


def a_program() -> tuple[Any, torch.Tensor]:
    """A new compiled function and its input; `run` tells whether they agree with eager."""
    return torch.compile(lambda x: torch.tanh(x * 2).sum(0)), torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()


def run(program: tuple[Any, torch.Tensor]) -> None:
    compiled, x = program
    out = compiled(x)
    out.sum().backward()
    t = np.tanh(2 * x.detach().numpy())
    np.testing.assert_allclose(out.detach().numpy(), t.sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), 2 * (1 - t * t), rtol=1e-4, atol=1e-6)
    x.grad = None


def leftovers(directory: Path) -> list[str]:
    return [p.name for p in directory.rglob("*") if p.name.startswith(("build-", "aside-"))]


def stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> Path:
    """A compiler that runs `script`; $REAL is g++, and `once NAME` is true the first time."""
    path = folder / "some-g++"
    head = f"#!/bin/sh\nREAL={build.compiler()}\nonce() {{ mkdir {folder}/once-$1 2>/dev/null; }}\n"
    path.write_text(head + script)
    path.chmod(0o755)
    monkeypatch.setattr(build, "compiler", lambda: str(path))
    return path


# -- the compiler -------------------------------------------------------------------------------------------------------

# What a compiler may do, and what the warning says of it. $OUT is the library that it is to make, $REAL the one that works.
COMPILERS = {
    "makes nothing": ("exit 0", "made nothing"),
    "makes garbage": ("echo garbage > $OUT", "not the whole library"),
    "makes an empty file": (": > $OUT", "not the whole library"),
    "makes half a library": ('$REAL "$@" && truncate -s 8000 $OUT', "not the whole library"),
    "makes all but the end of it": ('$REAL "$@" && truncate -s -8 $OUT', "not the whole library"),
    "makes the library of another source": (
        'echo "extern \\"C\\" int run_0(void**, const long*, void*) { __builtin_trap(); }" | $REAL -shared -fPIC -xc++ - -o $OUT',
        "not the whole library"),
    "makes a folder": ("mkdir $OUT", "made nothing"),
    "makes a pipe": ("mkfifo $OUT", "made nothing"),
    "makes a link to nothing": ("ln -s nowhere $OUT", "made nothing"),
    "makes a link to a device": ("ln -s /dev/zero $OUT", "made nothing"),
    "fails": ("echo out of luck >&2; exit 3", "failed with status 3.*out of luck"),
    "is ended": ("kill -9 $$", "ended by signal 9, twice"),
    "hangs": ("sleep 100", "did not end within 0.5 s .FLAMBEAU_CXX_TIMEOUT"),
    "waits for what it started": ("sleep 100 & wait", "did not end within 0.5 s"),
    "leaves somebody behind": ("sleep 5 & exit 0", "made nothing"),
    "waits for words": ("cat; exit 1", "failed with status 1"),
    "is no program": (None, "could not be started.*Exec format error"),
    "is gone": ("", "could not be started.*No such file"),
}  # fmt: skip


def program() -> None:
    """A program that is compiled, and not remembered from before."""
    torch._dynamo.reset()
    x = torch.linspace(-1, 1, 12)
    np.testing.assert_allclose(torch.compile(lambda x: torch.tanh(x) * 3)(x).numpy(), np.tanh(x.numpy()) * 3, rtol=1e-5)


def small() -> None:
    """Such a program, and an eager kernel."""
    program()
    many = np.linspace(-1, 1, 1 << 14, dtype=np.float32)
    found = operators.operator_kernel(lambda x: x.exp() + 1)(many)
    if found is not NotImplemented:
        np.testing.assert_allclose(found, np.exp(many) + 1, rtol=1e-5)


@contextmanager
def said() -> Iterator[list[str]]:
    """The warnings of a block, each of them."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield texts
    texts += [str(w.message) for w in seen]


@pytest.mark.parametrize("name", COMPILERS)
def test_a_compiler_that(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, directory: Path) -> None:
    script, cause = COMPILERS[name]
    with monkeypatch.context() as m:
        if "FLAMBEAU_CXX_TIMEOUT" in cause or "within" in cause:
            m.setenv("FLAMBEAU_CXX_TIMEOUT", "0.5")
        path = stand_in(m, tmp_path, f'for a; do [ "$last" = -o ] && OUT=$a; last=$a; done\n{script}\n')
        if not script:
            path.unlink() if script == "" else path.write_bytes(b"\x7fELF, it seems")
        started_at = time.monotonic()
        with said() as seen:
            small()
            program()
        assert time.monotonic() - started_at < 20
    assert len(seen) == 1 and re.search(f"(?s){cause}.*NumPy instead.*set CXX", seen[0]), seen
    assert not leftovers(directory) and not list(directory.rglob("*.so")) and not build._running
    build._hung.clear()
    with said() as seen:
        program()
    assert not seen and len(list(directory.rglob("*.so"))) == 1


@pytest.mark.parametrize("script", [
    'once a && kill -9 $$\nexec $REAL "$@"\n',
    'once a && { echo "g++: fatal error: Killed signal terminated program cc1plus" >&2; exit 1; }\nexec $REAL "$@"\n',
], ids=["the driver", "a pass of it"])  # fmt: skip
def test_a_compiler_that_is_killed_is_tried_again(script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                  directory: Path) -> None:
    stand_in(monkeypatch, tmp_path, script)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(a_program())
    assert len(list(directory.rglob("*.so"))) == 2 and not leftovers(directory)


def test_a_compiler_that_is_always_killed_means_a_slower_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                              directory: Path) -> None:
    script = stand_in(monkeypatch, tmp_path, "kill -9 $$\n")
    program = a_program()
    with pytest.warns(UserWarning, match=r"(?s)ended by signal 9, twice.*NumPy"):
        run(program)
    run(program)
    assert not leftovers(directory) and not list(directory.rglob("*.so"))
    script.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@"\n')
    torch._dynamo.reset()
    run(a_program())  # it has recovered: so do we, although an entry was written for the library that was not made
    assert len(list(directory.rglob("*.so"))) == 2
    torch._dynamo.reset()
    programs.stats.clear()
    run(a_program())
    assert programs.stats == {"hit": 1}


def test_a_compiler_that_disappears_means_a_slower_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, directory: Path) -> None:
    monkeypatch.setattr(build, "compiler", lambda: str(tmp_path / "nothing"))
    with pytest.warns(UserWarning, match=r"(?s)could not be started.*nothing.*NumPy"):
        run(a_program())
    assert not leftovers(directory)


def test_ctrl_c_at_a_terminal_is_not_for_the_compiler() -> None:
    building = build.Build('#include "runtime.h"\nextern "C" int run(void**, const int64_t*, void*) { return 0; }\n')
    assert building._run is not None and building._run._process is not None
    assert os.getpgid(building._run._process.pid) != os.getpgid(0)
    assert build.is_sound(building.finish())


# -- what lies in the cache ----------------------------------------------------------------------------------------------


def swapped(path: Path) -> None:
    """Another sealed file of the same kind, as by a mistake of who copied the cache."""
    name = "0" * 32 + path.suffix
    assert cache.write_sealed(path.with_name(name), b"something else")
    os.replace(path.with_name(name), path)


def nested(path: Path) -> None:
    (path / "somebody's").mkdir(parents=True)


def large(path: Path) -> None:
    with open(path, "wb") as f:
        f.truncate(1 << 40)


# What may lie in the place of an entry, and of a warning the words, if it stays there.
THINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, ""),
    "a folder": (os.mkdir, ""),
    "a folder that is somebody's": (nested, "Is a directory: .*Make room"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), ""),
    "a link to itself": (lambda path: path.symlink_to(path), ""),
    "a device": (lambda path: path.symlink_to("/dev/zero"), ""),
    "a terminal": (lambda path: path.symlink_to("/dev/tty"), ""),
    "a socket": (lambda path: os.mknod(path, stat.S_IFSOCK | 0o600), ""),
    "an empty file": (Path.touch, ""),
    "a file without an end": (large, ""),
    "a file that is cut short": (lambda path: path.write_bytes(b"\x7fELF" + bytes(5000)), ""),
    "another entry": (swapped, ""),
}


@pytest.mark.parametrize("kind", ["lib/*/*.so", "programs/*/*"])
@pytest.mark.parametrize("name", THINGS)
def test_in_the_place_of_an_entry_lies(name: str, kind: str, directory: Path) -> None:
    put, words = THINGS[name]
    program()
    [path] = directory.glob(kind)
    path.unlink()
    put(path)
    with said() as seen:
        program()
    assert len(seen) == bool(words) and all(re.search(words, text) for text in seen), seen
    assert not leftovers(directory) or words
    calls = build.stats["calls"]
    programs.stats.clear()
    with said() as seen:
        program()
    assert not seen  # it was said before, or mended
    if not words:
        assert programs.stats == {"hit": 1} and build.stats["calls"] == calls


def test_an_entry_that_may_not_be_read(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str, flags: int) -> int:
        if not path.endswith("unit.so"):
            raise PermissionError(13, "Permission denied")
        return os.open(path, flags)

    program()
    calls = build.stats["calls"]
    with monkeypatch.context() as m:
        m.setattr(cache, "_at_once", refused)
        with said() as seen:
            program()
    assert not seen and not leftovers(directory) and build.stats["calls"] == calls + 1


# -- the disk -----------------------------------------------------------------------------------------------------------


def mounted(path: Path, options: str) -> Path:
    """A file system of its own."""
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(path)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("only who may mount file systems can try this")
    return path


# Where a cache may be that is of no use, and what the warning says of it.
PLACES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "below a file": (lambda path: (path.touch(), path / "cache")[1], "Not a directory"),
    "where nothing can be made": (lambda path: Path("/proc/cache"), "No such file"),
    "a file": (lambda path: (path.touch(), path)[1], "Not a directory|File exists"),
    "a pipe": (lambda path: (os.mkfifo(path), path)[1], "Not a directory|File exists"),
    "a link to nothing": (lambda path: (path.symlink_to("nowhere"), path)[1], "File exists"),
    "a name that is too long": (lambda path: path / ("long" * 100), "File name too long"),
    "full": (lambda path: mounted(path, "size=4k"), "No space left"),
    "nearly full": (lambda path: mounted(path, "size=16k"), "No space left"),
    "full with the first library": (lambda path: mounted(path, "size=32k"), "No space left"),
    "without room for names": (lambda path: mounted(path, "nr_inodes=4"), "No space left"),
    "read only": (lambda path: mounted(path, "ro"), "Read-only file system"),
    "for data only": (lambda path: mounted(path, "noexec"), "cannot load the kernel library"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_the_cache_is(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make, cause = PLACES[name]
    place = make(tmp_path / "place")
    try:
        monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(place))
        calls = build.stats["calls"]
        with said() as seen:
            small()
            run(a_program())  # said once, and compiled natively all the same
        assert len(seen) == 1 and re.search(rf"cannot be used \(.*({cause}).*FLAMBEAU_CACHE_DIR", seen[0]), seen
        assert build.stats["calls"] - calls >= 4
        assert not any("NumPy" in text for text in seen)
    finally:
        if os.path.ismount(place):
            subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_for_temporary_files_is_no_matter_while_the_cache_has_room(monkeypatch: pytest.MonkeyPatch, directory: Path,
                                                                               tmp_path: Path) -> None:
    place = mounted(tmp_path / "small", "size=4k")
    try:
        monkeypatch.setenv("TMPDIR", str(place))
        (place / "more").write_bytes(b"0" * 4096)
        with said() as seen:
            run(a_program())
        assert not seen and list(directory.rglob("*.so"))
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_there_is_no_place_for_files_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*args: Any, **kwargs: Any) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.delenv("FLAMBEAU_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("nobody's")))
    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    monkeypatch.setattr("tempfile.mkstemp", nowhere)
    cache._temporary.cache_clear()
    with said() as seen:
        small()
        program()
    cache._temporary.cache_clear()
    assert len(seen) == 2, seen  # of the compiler, and of the cache
    assert re.search("(?s)has no folder to work in.*NumPy instead", "".join(seen)) and "/dev/null/flambeau cannot be used" in "".join(seen)


def test_a_directory_that_disappears(directory: Path) -> None:
    program = a_program()
    run(program)
    shutil.rmtree(directory)
    run(program)
    torch._dynamo.reset()
    run(a_program())
    assert len(list(directory.rglob("*.so"))) == 2


def test_what_cannot_be_written_whole_is_not_there(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        cache.write_file(directory / "some" / "entry", b"content")
    assert not [p for p in directory.rglob("*") if p.is_file()]
    with pytest.warns(UserWarning, match="No space left on device.*Make room"):
        run(a_program())
    assert not [p for p in directory.rglob("*") if p.is_file() and not p.name.startswith("unit")]
    monkeypatch.undo()


PROGRAM = textwrap.dedent("""
    import resource, signal, sys, warnings
    import numpy as np
    import flambeau as torch
    from flambeau.core import cache
    from flambeau.inductor.cpu import compile as build
    cache.package_hash = lambda: "this version"

    def run():
        f = torch.compile(lambda x: torch.softmax(x @ x.T, 1).sum(0))
        x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        out = f(x)
        out.sum().backward()
        a = x.detach().numpy() @ x.detach().numpy().T
        e = np.exp(a - a.max(1, keepdims=True))
        np.testing.assert_allclose(out.detach().numpy(), (e / e.sum(1, keepdims=True)).sum(0), rtol=1e-5)
        np.testing.assert_allclose(x.grad.numpy(), 0, atol=1e-5)
""")


def started(program: str, directory: Path, **environment: str) -> subprocess.Popen:
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(directory), "PYTHONUNBUFFERED": "1", **environment}
    return subprocess.Popen([sys.executable, "-c", PROGRAM + textwrap.dedent(program)], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def test_files_that_may_not_grow_stand_for_a_full_disk(directory: Path, tmp_path: Path) -> None:
    """The limit hits g++'s own files and ours alike; afterwards everything is in order again."""
    room = tmp_path / "tmp"
    room.mkdir()
    child = started("""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            run()
        print("\\n".join(str(w.message) for w in seen))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        torch._dynamo.reset()
        run()
        print("sound", sum(build.is_sound(p) for p in cache.cache_directory().rglob("*.so")))
    """, directory, TMPDIR=str(room))
    out, err = child.communicate(timeout=100)
    assert child.returncode == 0, err
    assert "NumPy instead" in out and "sound 2" in out
    assert not leftovers(directory) and not list(room.iterdir())


def test_a_temporary_folder_goes_with_the_process(directory: Path, tmp_path: Path) -> None:
    room = tmp_path / "tmp"
    room.mkdir()
    (tmp_path / "file").write_text("in the way")
    child = started("""
        warnings.simplefilter("ignore")
        run()
        print(int(build.stats["calls"]))
    """, tmp_path / "file" / "cache", TMPDIR=str(room))
    out, err = child.communicate(timeout=100)
    assert child.returncode == 0, err
    assert out == "2\n" and not list(room.iterdir())


# -- interruption -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["trace", "partition", "lower", "schedule", "print_unit"])
def test_ctrl_c_while_it_compiles(where: str, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    home: Any = aot_compile if hasattr(aot_compile, where) else graphs
    program = a_program()
    with monkeypatch.context() as m:
        m.setattr(home, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            program[0](program[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(program)
    assert not leftovers(directory)
    torch._dynamo.reset()
    programs.stats.clear()
    run(a_program())
    assert programs.stats == {"hit": 1}


def interrupted(*args: Any, **kwargs: Any) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_while_it_waits_for_the_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, directory: Path) -> None:
    stand_in(monkeypatch, tmp_path, 'once a && sleep 30\nexec $REAL "$@"\n')
    program = a_program()
    before = signal.signal(signal.SIGALRM, interrupted)
    signal.setitimer(signal.ITIMER_REAL, 1.5)
    try:
        started_at = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            run(program)
        assert time.monotonic() - started_at < 20
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(program)
    assert not leftovers(directory) and len(list(directory.rglob("*.so"))) == 2


def test_ctrl_c_at_any_time(directory: Path) -> None:
    """Interrupted again and again while it compiles, the program starts anew each time, and ends right."""
    child = started("""
        count = 0
        print("ready", flush=True)
        while True:
            try:
                run()
                break
            except KeyboardInterrupt:
                count += 1
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        torch._dynamo.reset()
        run()
        print("interrupted", count, flush=True)
    """, directory)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    for k in range(12):
        time.sleep(0.03 + 0.02 * k)
        child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=100)
    assert child.returncode == 0, err
    assert out.startswith("interrupted") and int(out.split()[1]) > 2
    assert not leftovers(directory)
    assert all(build.is_sound(path) for path in directory.rglob("*.so"))


def test_a_forked_process_builds_for_itself(directory: Path, tmp_path: Path) -> None:
    """The child neither waits for its parent's compiler nor ends it."""
    slow = tmp_path / "slow-g++"
    slow.write_text(f'#!/bin/sh\nmkdir {tmp_path}/once 2>/dev/null && sleep 2\nexec {build.compiler()} "$@"\n')
    slow.chmod(0o755)
    child = started(f"""
        import os
        build.compiler = lambda: {str(slow)!r}
        source = '#include "runtime.h"\\nextern "C" int run(void** args, const int64_t*, void*) {{ *(int*)args[0] = 7; return 0; }}'
        building, idle = build.Build(source), build.Build(source + " ")
        forked = os.fork()
        out = np.zeros(1, np.int32)
        if forked == 0:
            building.load({{"run": 1}})[0]((out,))
            sys.exit(int(out[0]))   # and through what is done at exit
        status = os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])
        building.load({{"run": 1}})[0]((out,))
        idle.finish()
        print(status, int(out[0]), int(build.stats["calls"]), [build.is_sound(p) for p in cache.cache_directory().rglob("*.so")])
    """, directory)
    out, err = child.communicate(timeout=100)
    assert child.returncode == 0, err
    assert out == "7 7 2 [True, True]\n" and not leftovers(directory)
