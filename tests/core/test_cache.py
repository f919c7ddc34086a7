"""The cache directory: where it is, files written whole or not at all, seals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau.core import cache


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
    cache.write_file(tmp_path / "entry", b"old")

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    for name in ("fsync", "replace"):
        with monkeypatch.context() as m:
            m.setattr(os, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                cache.write_file(tmp_path / "entry", b"new")
        assert [p.name for p in tmp_path.iterdir()] == ["entry"] and (tmp_path / "entry").read_bytes() == b"old"


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
    cache._warn_once.cache_clear()
    with pytest.warns(UserWarning, match="cannot be written.*FLAMBEAU_CACHE_DIR") as seen:
        assert not cache.write_sealed(cache.cache_directory() / "entry", b"content")
        assert not cache.write_sealed(cache.cache_directory() / "entry", b"content")
    assert len(seen) == 1
