"""Python's own tests, each body captured beside a tensor operation: none fails that passes plainly."""

from __future__ import annotations

import importlib
import io
import types
import unittest
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch

NAMES = ("abc", "augassign", "bisect", "call", "class", "collections", "compare", "contextlib", "copy", "dataclasses", "decorators",
         "descr", "dict", "enum", "except_star", "exception_group", "exceptions", "float", "fstring", "funcattrs",
         "functools", "generators", "genericclass", "grammar", "heapq", "index", "int", "isinstance", "iter", "itertools",
         "keywordonlyarg", "list", "named_expressions", "operator", "ordered_dict", "patma", "positional_only_arg",
         "property", "raise", "scope", "set", "string", "subclassinit", "super", "textwrap", "tuple", "types", "userlist",
         "weakset", "with", "yield_from")


class Raises:
    """`assertRaises` as a context, in plain Python that can be captured."""

    def __init__(self, expected: Any) -> None:
        self.expected = expected

    def __enter__(self) -> Raises:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        if kind is None:
            raise AssertionError(f"{self.expected} was not raised")
        self.exception = value
        return issubclass(kind, self.expected)


def _asserting(holds: Callable[..., bool], count: int) -> Callable:
    def asserts(self: Any, *args: Any, **kwargs: Any) -> None:
        if not holds(*args[:count]):
            raise AssertionError(args)

    return asserts


def _raises(skipped: int) -> Callable:
    def asserts(self: Any, expected: Any, *args: Any, **kwargs: Any) -> Any:
        context, given = Raises(expected), args[skipped:]
        if not given:
            return context
        with context:
            given[0](*given[1:], **kwargs)
        return None

    return asserts


ASSERTIONS: dict[str, Callable] = {
    **{f"assert{name}Equal": _asserting(lambda a, b: a == b, 2) for name in ("", "List", "Tuple", "Dict", "Set", "Sequence")},
    "assertTrue": _asserting(lambda a: a, 1), "assertFalse": _asserting(lambda a: not a, 1),
    "assertIs": _asserting(lambda a, b: a is b, 2), "assertIsNot": _asserting(lambda a, b: a is not b, 2),
    "assertNotEqual": _asserting(lambda a, b: a != b, 2),
    "assertIsNone": _asserting(lambda a: a is None, 1), "assertIsNotNone": _asserting(lambda a: a is not None, 1),
    "assertIn": _asserting(lambda a, b: a in b, 2), "assertNotIn": _asserting(lambda a, b: a not in b, 2),
    "assertIsInstance": _asserting(isinstance, 2), "assertLess": _asserting(lambda a, b: a < b, 2),
    "assertGreater": _asserting(lambda a, b: a > b, 2), "assertRaises": _raises(0), "assertRaisesRegex": _raises(1),
}


def _captured(self: unittest.TestCase, method: Any) -> None:
    function = method.__func__

    def body(self: unittest.TestCase, t: torch.Tensor) -> torch.Tensor:
        t = t + 1
        function(self)
        return t * 2

    assert torch.compile(body, backend="eager")(self, torch.ones(2)).tolist() == [4.0, 4.0]


def _failures(module: types.ModuleType) -> dict[str, str]:
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(suite)
    assert result.testsRun > 5
    return {str(test): text for test, text in result.failures + result.errors}


@pytest.mark.usefixtures("only_new_objects_collected")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_bodies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("test.support", reason="Python came without its tests")
    module = importlib.import_module(f"test.test_{name}")
    for assertion, function in ASSERTIONS.items():
        monkeypatch.setattr(unittest.TestCase, assertion, function)
    plainly = _failures(module)
    monkeypatch.setattr(unittest.TestCase, "_callTestMethod", _captured)
    assert {test: text for test, text in _failures(module).items() if test not in plainly} == {}
