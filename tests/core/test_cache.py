"""The cache directory: where it is, files written whole or not at all, seals."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flambeau.__main__ import main
from flambeau.core import cache
from tests.threads import in_threads


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "here"))
    assert cache.cache_directory() == tmp_path / "here"
    monkeypatch.delenv("FLAMBEAU_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "common"))
    assert cache.cache_directory() == tmp_path / "common" / "flambeau"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.cache_directory() == tmp_path / "home" / ".cache" / "flambeau"


def test_without_a_home_it_goes_with_the_process(tmp_path: Path) -> None:
    program = ("import pathlib\ndef nobody(): raise RuntimeError('Could not determine home directory.')\n"
               "pathlib.Path.home = nobody\nfrom flambeau.core import cache\nd = cache.cache_directory()\n"
               "assert d.is_dir() and d == cache.cache_directory()\nprint(d)")
    env = {k: v for k, v in os.environ.items() if k not in ("FLAMBEAU_CACHE_DIR", "XDG_CACHE_HOME")} | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == tmp_path and not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"content", bytes(100)])
def test_what_is_sealed_is_read(content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "cache" / "a" / "b"
    assert cache.read_sealed(path) is None
    assert cache.write_sealed(path, content) and cache.read_sealed(path) == content
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[1:], whole + b"x", b"", content, bytes(len(whole))):
        path.write_bytes(damaged)
        assert cache.read_sealed(path) is None


def test_a_write_that_fails_leaves_the_old_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    cache.write_file(tmp_path / "xx" / "entry", b"old")

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    for name in ("fsync", "replace"):
        with monkeypatch.context() as m:
            m.setattr(os, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                cache.write_file(tmp_path / "xx" / "entry", b"new")
        assert [p.name for p in (tmp_path / "xx").iterdir()] == ["entry"] and (tmp_path / "xx" / "entry").read_bytes() == b"old"


def test_what_killed_processes_left_is_swept_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    for name in ("build-old/unit.cpp", "build-new/unit.cpp", "aside-old", "aside-new", "entry-old"):
        path = tmp_path / "xx" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    for name in ("build-old", "aside-old", "entry-old"):
        os.utime(tmp_path / "xx" / name, (0, 0))
    cache.write_file(tmp_path / "xx" / "entry", b"whole")
    assert sorted(p.name for p in (tmp_path / "xx").iterdir()) == ["aside-new", "build-new", "entry", "entry-old"]


def test_a_directory_that_cannot_be_written_warns_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "file" / "cache"))
    cache._unusable.clear()
    with pytest.warns(UserWarning, match="cannot be used.*FLAMBEAU_CACHE_DIR") as seen:
        assert not cache.write_sealed(cache.cache_directory() / "entry", b"content")
        assert not cache.write_sealed(cache.cache_directory() / "entry", b"content")
    assert len(seen) == 1


# -- the limit ----------------------------------------------------------------------------------------------------------------
HOUR = 3600


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of the test's own, which looks after its size at each write."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "LOOKED_AFTER", (0, 1))
    monkeypatch.setattr(cache, "YOUNG", 0)
    return tmp_path / "cache"


def key(number: int) -> str:
    return f"{number:02x}/{number:032x}"


def put(root: Path, name: str, size: int, hours_ago: float = 0) -> Path:
    """A file of the cache that was last used so long ago."""
    path = root / name
    cache.write_file(path, bytes(size))
    used = time.time() - hours_ago * HOUR
    os.utime(path, (used, used))
    return path


def held(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()} - {"looked-after"}


@pytest.mark.parametrize("given, limit", [
    ("", 4 << 30), ("12345", 12345), ("512K", 512 << 10), ("100m", 100 << 20), (" 2G ", 2 << 30), ("0", 0),
])  # fmt: skip
def test_the_limit(given: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", given)
    assert cache.limit() == limit


def test_a_limit_that_is_no_number_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "-1 GB")
    cache._warn_of_limit.cache_clear()
    with pytest.warns(UserWarning, match="FLAMBEAU_CACHE_LIMIT='-1 GB' is not a number of bytes") as seen:
        assert cache.limit() == cache.limit() == cache.DEFAULT_LIMIT
    assert len(seen) == 1


def test_what_was_not_used_for_longest_goes_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age in range(10):
        put(root, f"programs/{key(age)}", 100, age)
    assert cache.evict() == 0
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "1000")
    assert cache.evict() == 0 and len(held(root)) == 10  # just as much as there may be
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "999")
    assert cache.evict() == 300 and held(root) == {f"programs/{key(age)}" for age in range(7)}
    assert cache.evict() == 0
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "0")
    assert cache.evict() == 700 and not held(root)


def test_files_that_belong_together_go_together(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age in (1, 3):
        put(root, f"lib/{key(age)}.so", 100, age)
        put(root, f"lib/{key(age)}.cpp", 20, 5)  # nobody reads it
    put(root, f"cubin/{key(2)}", 100, 2)
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "300")
    assert cache.evict() == 120 and held(root) == {f"lib/{key(1)}.so", f"lib/{key(1)}.cpp", f"cubin/{key(2)}"}


def test_other_peoples_files_stay(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable may name a directory that has folders of these names, with other things in them."""
    strangers = {"lib/libc.so", "lib/xx/notes.txt", "programs/main.py", f"programs/{key(1)}.txt", "notes.txt", "triton/kernels.py",
                 f"programs/deeper/{key(1)}", "tuned/results.json", "lib/ab/build-1/unit.cpp"}
    for name in strangers:
        put(root, name, 100, 30)
    put(root, f"programs/{key(1)}", 100, 1)
    put(root, "tuned/" + "0" * 32 + ".json", 100, 1)
    put(root, "triton/kernels_" + "0" * 24 + ".py", 100, 1)
    put(root, "triton/__pycache__/kernels_" + "0" * 24 + ".cpython-311.pyc", 100, 1)
    assert len(cache.entries()) == 3
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "0")
    assert cache.evict() == 400 and held(root) == strangers
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "1G")
    put(root, f"programs/{key(1)}", 100, 1)
    assert cache.clear() == 100 and held(root) == strangers


def test_young_entries_stay(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "YOUNG", 600)
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "10")
    old, young = put(root, f"programs/{key(1)}", 100, 1), root / f"programs/{key(2)}"
    cache.write_file(young, bytes(100))
    assert young.exists() and not old.exists()


def test_a_hit_counts_as_use_once_a_day(root: Path) -> None:
    path = root / f"programs/{key(1)}"
    assert cache.write_sealed(path, b"content")
    for hours_ago, noted in ((1, False), (23, False), (25, True)):
        used = time.time() - hours_ago * HOUR
        os.utime(path, (used, used))
        assert cache.read_sealed(path) == b"content"
        assert (path.stat().st_mtime > used + 1) is noted


def test_what_is_used_while_others_are_removed_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [put(root, f"programs/{key(number)}", 100, 48) for number in range(3)]
    seen = cache.entries()
    assert cache.read(paths[1], noted=HOUR) == bytes(100)
    monkeypatch.setattr(cache, "entries", lambda: seen)
    cache.clear()
    assert [path.exists() for path in paths] == [False, True, False]


def test_a_file_that_cannot_be_touched_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> None:
        raise PermissionError

    path = put(root, f"programs/{key(1)}", 3, 48)
    monkeypatch.setattr(os, "utime", refused)
    assert cache.read(path) == bytes(3)


def test_writes_keep_the_cache_within_its_limit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "1000")
    for number in range(50):
        put(root, f"programs/{key(number)}", 100)
        assert sum(entry.size for entry in cache.entries()) <= 1000
    assert f"programs/{key(49)}" in held(root)


def test_the_size_is_looked_at_now_and_then(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(cache, "evict", lambda: looks.append(1))
    monkeypatch.setattr(cache, "LOOKED_AFTER", (HOUR, 100))

    def writes(count: int) -> int:
        """How often a new process looks at the size in so many writes."""
        monkeypatch.setattr(cache, "_written", itertools.count())
        looks.clear()
        for number in range(count):
            put(root, f"programs/{key(number)}", 1)
        return len(looks)

    assert writes(10) == 1  # the first of all
    assert writes(10) == 0  # somebody has just looked
    assert writes(250) == 2
    os.utime(root / "looked-after", (0, 0))
    assert writes(10) == 1


def test_threads_evict_while_others_read_and_write(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "20K")
    contents = {number: bytes([number]) * 1000 for number in range(40)}
    wrong: list[Exception | str] = []

    def work(start: int) -> None:
        try:
            for number in [*range(start, 40), *range(start)]:
                path = root / f"programs/{key(number)}"
                found = cache.read_sealed(path)
                if found is None:
                    assert cache.write_sealed(path, contents[number])
                elif found != contents[number]:
                    wrong.append(f"{number}: {found[:10]!r}")
        except Exception as error:
            wrong.append(error)

    in_threads(*[functools.partial(work, start) for start in (0, 10, 20, 30)])
    assert not wrong and sum(entry.size for entry in cache.entries()) <= 20 << 10


WORKER = """
import sys
import numpy as np
import flambeau as torch
from flambeau.core import cache
cache.LOOKED_AFTER, cache.YOUNG = (0, 1), 0
cache.package_hash = lambda: "this version"
for turn in range(2):
    for n in range(1, 4):
        f = torch.compile(lambda x: torch.softmax(x * n, 0).sum())
        np.testing.assert_allclose(f(torch.ones(n + 2)).item(), 1, rtol=1e-6)
        torch._dynamo.reset()
cache.evict()
print("done", sum(entry.size for entry in cache.entries()))
"""


def test_processes_share_a_cache_that_is_too_small(tmp_path: Path) -> None:
    """Everything that one writes may be gone a moment later: what is loaded stays, and the rest is made anew."""
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path), "FLAMBEAU_CACHE_LIMIT": "30K", "PYTHONWARNINGS": "error"}
    workers = [subprocess.Popen([sys.executable, "-c", WORKER], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for _ in range(2)]
    for worker in workers:
        out, err = worker.communicate(timeout=200)
        assert worker.returncode == 0, err
        assert int(out.split()[1]) <= 30 << 10


# -- the command --------------------------------------------------------------------------------------------------------------
def test_the_command(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_LIMIT", "100M")
    put(root, f"lib/{key(1)}.so", 3 << 20)
    put(root, f"lib/{key(1)}.cpp", 1 << 20)
    put(root, f"programs/{key(1)}", 1 << 20)
    put(root, "notes.txt", 1 << 20)
    assert main(["cache"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == [str(root)] and ["libraries", "1", "4.0", "MiB"] in lines and ["programs", "1", "1.0", "MiB"] in lines
    assert ["in", "all", "2", "5.0", "MiB"] in lines and ["at", "most", "100.0", "MiB", "(FLAMBEAU_CACHE_LIMIT)"] in lines
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"{root}: 5.0 MiB removed\n" and held(root) == {"notes.txt"}
    assert main(["info"]) == 0 and f"{root}: empty, 0.0 MiB of at most 100.0 MiB" in capsys.readouterr().out
