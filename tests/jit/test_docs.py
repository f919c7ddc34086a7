"""The examples of docs/jit.md run."""

from __future__ import annotations

import re
from pathlib import Path


def test_the_examples(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "jit.md").read_text()
    code = "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    (tmp_path / "example.py").write_text(code)     # where torch.jit.script reads sources
    exec(compile(code, str(tmp_path / "example.py"), "exec", dont_inherit=True), {"__name__": "example"})
    assert "torch.relu" in capsys.readouterr().out
