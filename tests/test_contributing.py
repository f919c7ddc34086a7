"""CONTRIBUTING.md says how an operator is added: its blocks, put where they say into a copy of the package, do what it promises."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CHECKS = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "flambeau" not in getattr(f, "known_packages", ())]  # an editable install's own
sys.path.insert(0, {copy!r})
import flambeau
assert flambeau.__file__.startswith({copy!r}), flambeau.__file__
exec({use!r})
import pytest
sys.exit(pytest.main(["tests/ops/test_registry.py", "-q", "-k", "squareplus", "-p", "no:cacheprovider"]))
"""


@pytest.mark.timeout(300)
def test_a_new_operator(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n# ([^\n]+)\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    assert [where.partition(",")[0] for where, _ in blocks] == ["flambeau/ops/prims/pointwise.py", "flambeau/ops/formulas.py", "try it"]
    shutil.copytree(ROOT / "flambeau", tmp_path / "flambeau", ignore=shutil.ignore_patterns("__pycache__"))
    for where, text in blocks[:2]:
        name, _, place = where.partition(", ")
        path = tmp_path / name
        source, before = path.read_text(encoding="utf-8"), re.search('"(.*)"', place)
        if before is None:
            source = f"{source}\n\n{text}"
        else:
            assert source.count(before[1]) == 1
            source = source.replace(before[1], f"{text}\n\n{before[1]}")
        path.write_text(source, encoding="utf-8")
    script = CHECKS.format(copy=str(tmp_path), use=blocks[2][1])
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 5, done.stdout  # type: ignore[index]


def test_the_version_has_a_section_of_changes() -> None:
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]  # type: ignore[index]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


INSIDE = {"ao", "aot", "core", "dynamo", "extensions", "include", "inductor", "lib", "nnapi", "ops"}
"""Rooms that PyTorch hasn't, or whose names only say what to use instead."""


def test_the_changes_name_every_room() -> None:
    said = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "flambeau").glob("*/__init__.py") if not path.parent.name.startswith("_")} - INSIDE
    assert len(rooms) > 20 and not [room for room in sorted(rooms) if f"`torch.{room}" not in said]


def test_every_place_names_the_same_pythons() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    first, end = map(int, re.search(r'^requires-python = ">=3\.(\d+),<3\.(\d+)"$', project, re.MULTILINE).groups())  # type: ignore[union-attr]
    minors = [str(minor) for minor in range(first, end)]
    assert re.findall(r"Programming Language :: Python :: 3\.(\d+)", project) == minors
    assert f"PY_VERSION_HEX >= 0x03{end:02X}0000" in (ROOT / "csrc" / "frame_access.h").read_text(encoding="utf-8")
    for place in ("dev", "release/build.sh"):
        assert f"{' '.join(f'python3.{minor}' for minor in minors)}" in (ROOT / place).read_text(encoding="utf-8"), place
    for place in ("README.md", "CHANGELOG.md", "docs/architecture.md", "docs/releasing.md"):
        assert f"3.{first} to 3.{end - 1}" in (ROOT / place).read_text(encoding="utf-8"), place
