"""The example of docs/jit.md runs."""

from __future__ import annotations

import re
from pathlib import Path


def test_the_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "jit.md").read_text()
    code, = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(code, str(tmp_path / "example.py"), "exec"), {"__name__": "example"})
    assert "torch.relu" in capsys.readouterr().out
