"""What Python reads first in the processes that a program under `python -m flambeau run` starts: `import torch` is Flambeau in them, too."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import flambeau.as_torch  # noqa: F401

_HERE = Path(__file__).resolve().parent


def _go_on() -> None:
    """The sitecustomize that Python would have read."""
    folders = [folder for folder in sys.path if Path(folder or ".").resolve() != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", folders)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_go_on()
