"""Test cases that begin with nothing compiled."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ..dynamo import reset

# torch's own test helpers, where a program has put them in this place
_utils = importlib.import_module(f"{sys.modules[__name__.partition('.')[0]].__name__}.testing._internal.common_utils")


class TestCase(_utils.TestCase):  # type: ignore[name-defined]
    """A test case that forgets what is compiled before and after each test."""

    def setUp(self) -> None:
        super().setUp()
        reset()

    def tearDown(self) -> None:
        super().tearDown()
        reset()


def run_tests(needs: str | tuple[str, ...] = ()) -> None:
    """Run the program's tests, if the modules `needs` are installed."""
    if all(importlib.util.find_spec(name) for name in ((needs,) if isinstance(needs, str) else needs)):
        run: Any = _utils.run_tests
        run()


__all__ = ["TestCase", "run_tests"]
