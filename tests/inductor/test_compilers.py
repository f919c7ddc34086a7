"""Which C++ compiler is used, and that what it makes computes what eager does."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.inductor.cpu import compile as build


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    cached = (build.compiler, build.flags, build.fixed_part)
    for fn in cached:
        fn.cache_clear()
    yield
    for fn in cached:
        fn.cache_clear()


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("there", [["g++", "clang++"], ["clang++"], []])
def test_gcc_is_asked_first_and_clang_is_found(there: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    paths = [str(program(tmp_path, name)) for name in there]
    assert build.compiler() == (paths[0] if paths else None)


def test_clang_is_told_by_the_file_that_a_name_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """clang refuses flags that it does not know."""
    program(tmp_path, "clang-16")
    for name in ("c++", "clang++"):
        (tmp_path / name).symlink_to("clang-16")
    program(tmp_path, "g++-12")
    for name, own in (("c++", False), ("clang++", False), ("g++-12", True)):
        monkeypatch.setenv("CXX", str(tmp_path / name))
        build.compiler.cache_clear()
        build.flags.cache_clear()
        assert set(build.FLAGS) < set(build.flags()) and (set(build.GCC_FLAGS) <= set(build.flags())) == own


@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_programs_of_each_compiler(name: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"no {name}")
    monkeypatch.setenv("CXX", name)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    compiled, x = torch.compile(model), torch.randn(300, 8)
    gradients = [torch.autograd.grad(one(x).square().sum(), list(model.parameters())) for one in (model, compiled)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)
