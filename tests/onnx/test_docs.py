"""The example of docs/onnx.md runs, and examples/onnx_runtime.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="flambeau[onnx] is not installed")
ROOT = Path(__file__).parents[2]


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    code, = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "onnx.md").read_text(), re.S)
    (tmp_path / "example.py").write_text(code)
    exec(compile(code, str(tmp_path / "example.py"), "exec"), {"__name__": "example"})
    assert "ONNXProgram(opset 20, 2 nodes, inputs: x: float32[s0, 4]" in capsys.readouterr().out


def test_digits(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "flambeau", "run", "examples/onnx_runtime.py", "--out", str(tmp_path / "a.onnx")],
                          cwd=ROOT, capture_output=True, text=True, check=True)
    assert "10 of 10 digits right in ONNX Runtime; logits within 0.0001 of eager" in done.stdout
