"""The example of docs/export.md runs."""

from __future__ import annotations

import re
from pathlib import Path


def test_the_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    code, = re.findall(r"```python\n(.*?)```", text, re.S)
    path = tmp_path / "example.py"
    path.write_text(code)
    exec(compile(code, str(path), "exec"), {"__name__": "example"})
    assert "{s0: VR[0, 64]}" in capsys.readouterr().out
