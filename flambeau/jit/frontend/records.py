"""Methods that the standard library makes for a dataclass, as functions with a text."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

# By comparison: what decides of the first field that differs (without a sign: that it does), and the answer for equal objects.
_COMPARISONS = {"__eq__": ("", "True"), "__lt__": ("<", "False"), "__le__": ("<=", "True"), "__gt__": (">", "False"),
                "__ge__": (">=", "True")}


def is_made(cls: type, fn: Any) -> bool:
    """Whether the standard library made a function of this dataclass, so that no file has its text."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return dataclasses.is_dataclass(cls) and code is not None and code.co_filename == "<string>"


def with_text(cls: type, fn: Callable) -> Callable:
    """A function like the one that was made, with the text that makes it; itself where that has none in the language (`__repr__`)."""
    text = _opening(cls) if fn.__name__ == "__init__" else _comparison(cls, fn.__name__)
    if not text:
        return fn
    names = {**fn.__globals__, cls.__name__: cls, **{f"_of_{f.name}": f.default for f in dataclasses.fields(cls)}}
    exec(text, names)
    made = names[fn.__name__]
    made.__annotations__ = {**fn.__annotations__, **({} if fn.__name__ == "__init__" else {"other": cls, "return": bool})}
    made.source_text = text
    return made


def _opening(cls: type) -> str:
    fields = [f for f in dataclasses.fields(cls) if f.init]
    if any(f.default_factory is not dataclasses.MISSING for f in dataclasses.fields(cls)):
        raise NotImplementedError(f"dataclass {cls.__name__}: default_factory is not supported in TorchScript; give the field's value when "
                                  "an object is made")
    given = ", ".join(f.name if f.default is dataclasses.MISSING else f"{f.name}=_of_{f.name}" for f in fields)
    lines = [f"self.{f.name} = {f.name}" for f in fields] + ["self.__post_init__()"] * hasattr(cls, "__post_init__")
    return f"def __init__(self, {given}):\n" + "".join(f"    {line}\n" for line in lines or ["pass"])


def _comparison(cls: type, name: str) -> str:
    if name not in _COMPARISONS:
        return ""
    sign, equal = _COMPARISONS[name]
    fields = [f.name for f in dataclasses.fields(cls) if f.compare]
    answers = {f: f"self.{f} {sign} other.{f}" if sign else "False" for f in fields}
    differs = "".join(f"    if self.{f} != other.{f}:\n        return {answer}\n" for f, answer in answers.items())
    return f"def {name}(self, other):\n{differs}    return {equal}\n"
