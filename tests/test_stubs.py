"""What type checkers see: the stubs say what the op table holds, and mypy finds the mistakes of a program, as with PyTorch's own stubs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "tests" / "typing" / "planted.py"
# nn.LSTM takes what its base takes (*args, **kwargs), for PyTorch's stubs too; random.pyi of PyTorch takes any seed.
UNSEEN = {"flambeau": {"nn.LSTM(8, 16, layers=2)"}, "torch": {"nn.LSTM(8, 16, layers=2)", 'torch.manual_seed("a")'}}


def test_stubs_are_current() -> None:
    done = subprocess.run([sys.executable, "-m", "tools.stubs", "--check"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, f"run `python -m tools.stubs`: {done.stdout}{done.stderr}"
    assert (ROOT / "flambeau" / "py.typed").is_file()


def _missed(found: set[int], text: str, told: str) -> set[str]:
    """The lines with a mistake that a checker did not find; it must find none elsewhere."""
    lines = {number: line for number, line in enumerate(text.splitlines(), 1) if line.endswith("# error")}
    assert found <= lines.keys(), told
    return {lines[number].removesuffix("# error").strip() for number in lines.keys() - found}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("library", ["flambeau", "torch"])
def test_mypy_finds_the_mistakes_of_a_program(library: str, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    pytest.importorskip(library)
    text = PROGRAM.read_text()
    if library == "torch":
        text = text.replace("import flambeau as torch", "import torch").replace("flambeau", "torch")
    program = tmp_path / "program.py"
    program.write_text(text)
    done = subprocess.run([sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), "--config-file",
                           "", "--no-error-summary", str(program)], capture_output=True, text=True, check=False, cwd=ROOT)
    found = {int(line) for line in re.findall(r"program\.py:(\d+): error", done.stdout)}
    assert _missed(found, text, done.stdout + done.stderr) == UNSEEN[library]


@pytest.mark.timeout(900)
def test_pyright_finds_the_mistakes_of_a_program() -> None:
    pytest.importorskip("pyright")
    done = subprocess.run([sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(PROGRAM)], capture_output=True, text=True,
                          check=False, cwd=ROOT)
    if "planted.py" not in done.stdout:
        pytest.skip("pyright has no Node.js here")
    found = {int(line) for line in re.findall(r"planted\.py:(\d+):\d+ - error", done.stdout)}
    assert _missed(found, PROGRAM.read_text(), done.stdout) == UNSEEN["flambeau"]
