"""The types of parameters that say none, as they are in calls: what `torch.jit.script(f, example_inputs=[...])` goes by.

The examples are run once, under Python's profiling hook, so that functions and methods which these call are seen too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from ..aot.trace import _PACKAGE as PACKAGE
from .frontend.annotations import type_of_value
from .frontend.static import NONE, TENSOR, Type, common, optional

Types = dict[CodeType, dict[str, Type]]


class _Watching:
    """A profiling hook that writes down the types of arguments, of functions that are not the library's."""

    def __init__(self) -> None:
        self.found: Types = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename.startswith(PACKAGE):
            return
        known = self.found.setdefault(code, {})
        for name in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]:
            if name in frame.f_locals and (kind := _of_example(frame.f_locals[name])) is not None:
                known[name] = common(known.get(name, kind), kind, {}, union=True) or kind

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Watch what the block calls."""
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)


def _of_example(value: Any) -> Type | None:
    if isinstance(value, (list, dict)) and not value:
        return Type("List", (TENSOR,)) if isinstance(value, list) else Type("Dict", (Type("str"), TENSOR))
    return type_of_value(value, lambda cls: None)


def observed(obj: Callable, examples: Any) -> Types:
    """What calls of `obj` with these arguments show. Of a module `examples` may be a dict from modules and methods to lists of calls."""
    if examples is None:
        return {}
    listed: Iterable = examples.items() if isinstance(examples, dict) else [(obj, examples)]
    watching = _Watching()
    for fn, calls in listed:
        if not callable(fn) or not isinstance(calls, (list, tuple)):
            raise ValueError("Error: Unable to infer types. Please format the inputs to type `List[Tuple]` or `Dict[Callable, List[Tuple]]` "
                             "to be run with MonkeyType.")
        for call in calls:
            args = call if isinstance(call, (tuple, list)) else (call,)
            with watching.under_way():
                fn(*args)
    return {code: {name: optional(TENSOR) if kind == NONE else kind for name, kind in types.items()} for code, types in
            watching.found.items()}
