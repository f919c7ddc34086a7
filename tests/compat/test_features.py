"""Generation, checkpoints, optimizers and transforms of the guest libraries; see `features.py`, which runs in one process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.features import FEATURES

GUESTS = ("timm", "torchvision", "transformers", "safetensors", "PIL")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in GUESTS), reason=f"needs {', '.join(GUESTS)}"),
]


@pytest.fixture(scope="module")
def reports() -> dict[str, str]:
    script = Path(__file__).with_name("features.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=script.parents[2])
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.split(" ")[0] in FEATURES)


@pytest.mark.parametrize("name", FEATURES)
def test_feature(reports: dict[str, str], name: str) -> None:
    assert reports[name] == "ok"
