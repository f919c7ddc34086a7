"""Every test of graph capture starts without compiled versions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flambeau import dynamo

sys.path.insert(0, str(Path(__file__).parent))  # for dynamo_harness


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    dynamo.reset()
    yield
    dynamo.reset()
