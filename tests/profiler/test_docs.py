"""The example of docs/profiler.md runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flambeau.profiler.memory import Category

PAGE = Path(__file__).parents[2] / "docs" / "profiler.md"


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "example.py", "exec"), scope)
    assert "Optimizer.step#AdamW.step" in capsys.readouterr().out
    assert all((tmp_path / name).stat().st_size > 100 for name in ("trace.json.gz", "stacks.txt", "memory.html", "profile.html"))
    assert {block.category for block in scope["blocks"]} >= {Category.PARAMETER, Category.OPTIMIZER_STATE}
    assert sum(block.size for block in scope["blocks"]) == scope["most"]
    names = {event.name for event in scope["taken"].events()}
    assert any(name.startswith("compiled forward of") for name in names) and any(name.startswith("mm") for name in names)


def test_the_files_that_the_page_names() -> None:
    table = PAGE.read_text().rpartition("## How it is made")[2]
    root = PAGE.parents[1]
    for name in re.findall(r"`([\w/]+\.(?:py|cpp|html))`", table):
        assert any((root / folder / name).exists() for folder in ("flambeau/profiler", "flambeau", ".")), name
