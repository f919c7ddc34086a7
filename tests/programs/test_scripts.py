"""Scripts as people write them for PyTorch, run unmodified: `python -m flambeau run SCRIPT` prints what PyTorch prints."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="what is printed is compared with what PyTorch prints")

HERE = Path(__file__).parent
SCRIPTS = sorted(path.stem for path in (HERE / "scripts").glob("*.py"))
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@pytest.fixture(scope="module")
def printed() -> tuple[dict[str, str], dict[str, str]]:
    """What each script prints, on PyTorch and on Flambeau: one process for each of the two, side by side."""
    prefixes = ([sys.executable], [sys.executable, "-m", "flambeau", "run"])
    jobs = [
        subprocess.Popen([*prefix, str(HERE / "run_scripts.py"), *SCRIPTS], stdout=subprocess.PIPE, text=True) for prefix in prefixes
    ]
    theirs, mine = (json.loads(job.communicate(timeout=600)[0].splitlines()[-1]) for job in jobs)
    return theirs, mine


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_prints_what_it_prints_on_pytorch(script, printed):
    theirs, mine = (text[script].splitlines() for text in printed)
    assert "Traceback" not in "".join(theirs), theirs
    assert [NUMBER.sub("#", line) for line in mine] == [NUMBER.sub("#", line) for line in theirs]
    for ours, line in zip(mine, theirs, strict=True):
        expected = [float(number) for number in NUMBER.findall(line)]
        assert [float(number) for number in NUMBER.findall(ours)] == pytest.approx(expected, rel=1e-3, abs=1e-5), line
