"""A sample of `exported.py`: models of timm and transformers export with sizes that vary, run as eager does, and so do their packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "exported.py"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("library", "names"), [("timm", ["resnet18", "vit_tiny_patch16_384"]),
                                                ("transformers", ["GPT2LMHeadModel", "T5ForConditionalGeneration"])])
def test_sample(library: str, names: list[str]) -> None:
    pytest.importorskip(library)
    package = ["--package"] if shutil.which("g++") and library == "transformers" else []
    done = subprocess.run([sys.executable, "-W", "ignore", SCRIPT, *names[:1], *package], capture_output=True, text=True, timeout=280,
                          env={**os.environ, "OMP_NUM_THREADS": "2"})
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    done = subprocess.run([sys.executable, "-W", "ignore", SCRIPT, *names[1:]], capture_output=True, text=True, timeout=280,
                          env={**os.environ, "OMP_NUM_THREADS": "2"})
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
