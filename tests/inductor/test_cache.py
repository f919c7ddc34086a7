"""The cache of compiled libraries: content addresses, races, damage, a compiler that fails, interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flambeau import inductor
from flambeau.inductor.cpu import compile as build
from tests.inductor.graphs import Builder, eager
from tests.threads import in_threads

SOURCE = '#include "kernel.h"\nextern "C" int run(void** args, const int64_t*, void*) { *(int*)args[0] = %d; return 0; }\n'
SOURCE = '#include "runtime.h"\n' + SOURCE

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    return tmp_path


def answer(source: str) -> int:
    out = np.zeros(1, np.int32)
    build.load(source, {"run": 1})[0]((out,))
    return int(out[0])


def leftovers(directory: Path) -> list[str]:
    return [p.name for p in directory.rglob("*") if (p.is_dir() and p.name.startswith("build-")) or p.suffix == ".tmp"]


def test_the_second_time_there_is_no_compiler_call(directory: Path) -> None:
    calls = build.stats["calls"]
    assert answer(SOURCE % 7) == 7 and answer(SOURCE % 7) == 7
    assert build.stats["calls"] == calls + 1 and not leftovers(directory)
    assert len(list(directory.rglob("*.so"))) == len(list(directory.rglob("*.cpp"))) == 1


def test_the_key_is_the_content() -> None:
    assert build.key_of(SOURCE % 1) == build.key_of(SOURCE % 1) != build.key_of(SOURCE % 2)


def test_a_copied_cache_is_warm(directory: Path, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(SOURCE % 3)
    elsewhere = tmp_path_factory.mktemp("copy") / "cache"
    os.rename(directory, elsewhere)
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(elsewhere))
    calls = build.stats["calls"]
    assert answer(SOURCE % 3) == 3 and build.stats["calls"] == calls


@pytest.mark.parametrize("damage", [b"", b"not a library", None])
def test_a_damaged_library_is_built_anew(damage: bytes | None) -> None:
    path = build.build(SOURCE % 4)
    path.write_bytes(path.read_bytes()[:2000] if damage is None else damage)
    assert answer(SOURCE % 4) == 4


def test_two_builders_may_race(directory: Path) -> None:
    found: list[int] = []
    in_threads(*[lambda: found.append(answer(SOURCE % 5))] * 3)
    assert found == [5, 5, 5] and not leftovers(directory)


def test_compiler_failure_names_the_command_and_leaves_nothing(directory: Path) -> None:
    with pytest.raises(build.CompilerError, match=r"(?s)status 1.*unit\.cpp.*error"):
        build.build("this is not C++")
    assert not leftovers(directory) and not list(directory.rglob("*.so"))


def test_a_failing_compiler_means_a_slower_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken-g++"
    broken.write_text("#!/bin/sh\necho 'internal compiler error: out of luck' >&2\nexit 4\n")
    broken.chmod(0o755)
    monkeypatch.setattr(build, "compiler", lambda: str(broken))
    b = Builder()
    gm = b.finish(b.exp(b.input(np.linspace(-1, 1, 77, dtype=np.float32))))
    graph = inductor.compile_graph(gm)
    with pytest.warns(UserWarning, match=r"(?s)status 4.*out of luck.*NumPy"):
        got = graph(list(b.inputs))
    np.testing.assert_allclose(got[0]._data, eager(gm, b.inputs)[0], rtol=1e-6)


def test_no_compiler_warns_once_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "compiler", lambda: None)
    build._warn_no_compiler.cache_clear()
    b = Builder()
    gm = b.finish(b.exp(b.input(np.linspace(-1, 1, 78, dtype=np.float32))))
    with pytest.warns(UserWarning, match="apt install g"):
        graph = inductor.compile_graph(gm)
    np.testing.assert_allclose(graph(list(b.inputs))[0]._data, eager(gm, b.inputs)[0], rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inductor.compile_graph(gm)


def test_interruption_leaves_nothing_behind(directory: Path) -> None:
    program = ("import os, sys, time\nfrom flambeau.inductor.cpu import compile as b\n"
               "os.environ['CXX'] = 'g++'\nb.compiler = lambda: sys.argv[1]\nprint('go', flush=True)\nb.build('int x;')\n")
    slow = directory / "slow-g++"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    child = subprocess.Popen([sys.executable, "-c", program, str(slow)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None and child.stdout.readline() == b"go\n"
    deadline = time.monotonic() + 10
    while not leftovers(directory) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert leftovers(directory)
    child.send_signal(signal.SIGINT)
    child.wait(timeout=20)
    child.stdout.close()
    assert not leftovers(directory) and not list(directory.rglob("*.so"))


def test_what_nobody_waits_for_is_kept_if_ready_and_stopped_if_not(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = build.Build(SOURCE % 8)
    assert ready._run is not None and ready._run._ended.wait(60)
    ready.give_up()
    assert build.is_sound(build.library_path(build.key_of(SOURCE % 8)))
    slow = directory / "slow-g++"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    monkeypatch.setattr(build, "compiler", lambda: str(slow))
    stopped = build.Build(SOURCE % 9)
    stopped.give_up()
    assert not leftovers(directory) and not {ready, stopped} & build._running
