"""Signatures of operators as objects: `torch.parse_schema("aten::add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")`."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .library import _constant

_WHOLE = re.compile(r"^\s*([\w.:]+?)(?:\.(\w+))?\s*\((.*)\)\s*->\s*(.+?)\s*$", re.DOTALL)
_PART = re.compile(r"^(?P<kind>\w+)(?:\((?P<alias>[^)]*)\))?(?P<rest>(?:\?|\[\d*\])*)\s*(?P<name>\w+)?(?:\s*=\s*(?P<default>.+))?$")
_NOTHING: Any = object()


class AliasInfo(NamedTuple):
    """What memory an argument shares with others of this letter, and whether it is written to."""

    before_set: frozenset
    is_write: bool


class Argument:
    """A parameter, or a result, of a signature."""

    def __init__(self, text: str, kwarg_only: bool) -> None:
        found = _PART.match(text.strip())
        if found is None:
            raise RuntimeError(f"cannot read {text.strip()!r} in the schema; expected a type and a name")
        self._text, self.kwarg_only = text.strip(), kwarg_only
        self.name, self._default = found["name"] or "", found["default"]
        self.type: str = found["kind"]
        for mark in re.findall(r"\?|\[\d*\]", found["rest"]):
            self.type = f"Optional[{self.type}]" if mark == "?" else f"List[{self.type}]"
        alias = found["alias"]
        self.alias_info = None if alias is None else AliasInfo(frozenset(re.findall(r"\w+", alias.partition("->")[0])), "!" in alias)
        self.is_out = kwarg_only and self.alias_info is not None and self.alias_info.is_write

    def has_default_value(self) -> bool:
        """Whether calls may leave it out."""
        return self._default is not None

    @property
    def default_value(self) -> Any:
        """What goes without, if there is something."""
        return None if self._default is None else _constant(self._default)

    def __repr__(self) -> str:
        return self._text


def _split(text: str) -> list[str]:
    """At the commas that stand in no bracket."""
    return [part for part in re.split(r",(?![^(\[]*[)\]])", text) if part.strip()]


class FunctionSchema:
    """An operator's name, parameters and results."""

    def __init__(self, schema: str) -> None:
        found = _WHOLE.match(schema)
        if found is None:
            raise RuntimeError(f"not a schema: {schema!r}; expected 'name(Tensor x, int n=1) -> Tensor'")
        self.name, self.overload_name = found[1], found[2] or ""
        self.arguments: list[Argument] = []
        named = False
        for part in _split(found[3]):
            if part.strip() == "*":
                named = True
            else:
                self.arguments.append(Argument(part, named))
        results = found[4]
        self.returns = [Argument(part, False) for part in _split(results[1:-1] if results.startswith("(") else results)]
        self._text = f"{self.name}{'.' + self.overload_name if self.overload_name else ''}({', '.join(self._texts())}) -> {results}"

    def _texts(self) -> list[str]:
        texts = [repr(a) for a in self.arguments]
        first = next((i for i, a in enumerate(self.arguments) if a.kwarg_only), None)
        return texts if first is None else [*texts[:first], "*", *texts[first:]]

    @property
    def is_mutable(self) -> bool:
        """Whether an argument is written to."""
        return any(a.alias_info is not None and a.alias_info.is_write for a in self.arguments)

    def is_backward_compatible_with(self, old: FunctionSchema) -> bool:
        """Whether calls by an older signature are calls by this one: the same arguments, and others only with defaults."""
        same = [(a.name, a.type) for a in self.arguments[:len(old.arguments)]] == [(a.name, a.type) for a in old.arguments]
        return same and [r.type for r in self.returns] == [r.type for r in old.returns] and all(
            a.has_default_value() for a in self.arguments[len(old.arguments):])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


def parse_schema(schema: str, allow_typevars: bool = True) -> FunctionSchema:
    """A signature as an object; RuntimeError for what is none, or for a letter as a type without `allow_typevars`."""
    made = FunctionSchema(schema)
    letters = [a.type for a in (*made.arguments, *made.returns) if len(a.type) == 1]
    if letters and not allow_typevars:
        raise RuntimeError(f"the schema {schema!r} has variables as types: {letters}")
    return made


__all__ = ["AliasInfo", "Argument", "FunctionSchema", "parse_schema"]
