"""A sample of `exported.py`: models of timm and transformers export with sizes that vary, run as eager does, and so do their packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "exported.py"


def run(*arguments: str) -> None:
    command = [sys.executable, "-W", "ignore", str(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "2"})
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.timeout(300)
@pytest.mark.skipif(find_spec("timm") is None, reason="needs timm")
def test_timm() -> None:
    run("resnet18", "vit_tiny_patch16_384")


@pytest.mark.timeout(300)
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
def test_transformers() -> None:
    run("GPT2LMHeadModel", "T5ForConditionalGeneration", *(["--package"] if shutil.which("g++") else []))
