"""Signatures of operators: `torch.parse_schema("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")`."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .memory_format import channels_last, channels_last_3d, contiguous_format, preserve_format

REQUIRED: Any = inspect.Parameter.empty
MEMORY_FORMATS = (contiguous_format, preserve_format, channels_last, channels_last_3d)     # as ATen numbers them
_WHOLE = re.compile(r"^\s*([\w:]*)(?:\.(\w+))?\s*\((.*)\)\s*->\s*(.+?)\s*$", re.DOTALL)
_BETWEEN = r"\((?:[^()]|\([^()]*\))*\)"
_PIECE = re.compile(rf"(?:[^,(\[]|{_BETWEEN}|\[[^\]]*\])+")     # between commas in no bracket
_PART = re.compile(rf"^((?:Dict|Future)?{_BETWEEN}|\w+)(?:\(([^)]*)\)|(!))?((?:\?|\[\d*\])*)\s*(\w+)?(?:\s*=\s*(.+))?$")
_TYPES = {"SymInt": "int", "Scalar": "number", "ScalarType": "int", "Layout": "int", "MemoryFormat": "int"}


class AliasInfo(NamedTuple):
    """What memory an argument shares with others of this letter, and whether it is written to."""

    before_set: frozenset
    is_write: bool


class Argument:
    """A parameter, or a result, of a signature: its `name`, and its `kind` as the signature writes it, "int[2]?"."""

    def __init__(self, text: str, kwarg_only: bool = False) -> None:
        found = _PART.match(text)
        if found is None:
            raise RuntimeError(f"cannot read {text!r} in the schema; expected a type and a name")
        element, alias, alone, marks, name, default = found.groups()
        alias = alias or alone      # "Tensor!" is written to and shares its memory with no other argument
        self.kind, self.name, self.kwarg_only, self._text = element + marks, name or "", kwarg_only, text
        self.default = REQUIRED if default is None else self._constant(default)
        self.alias_info = None if alias is None else AliasInfo(frozenset(re.findall(r"\w+", alias.partition("->")[0])), "!" in alias)

    def _constant(self, text: str) -> Any:
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            return text     # a bare word: float32
        if self.kind.startswith("MemoryFormat") and value is not None:
            return MEMORY_FORMATS[value]
        sized = self.N if isinstance(value, (int, float)) else None
        return value if sized is None else [value] * sized

    @property
    def N(self) -> int | None:
        """How many elements one number stands for."""
        sized = re.search(r"\[(\d+)\]", self.kind)
        return sized and int(sized[1])

    @property
    def type(self) -> str:
        """`Optional[List[int]]`."""
        return type_text(self.kind)

    @property
    def is_write(self) -> bool:
        """Whether it is written to."""
        return self.alias_info is not None and self.alias_info.is_write

    @property
    def is_out(self) -> bool:
        """Whether it is where a result goes."""
        return self.kwarg_only and self.is_write

    def has_default_value(self) -> bool:
        """Whether calls may leave it out."""
        return self.default is not REQUIRED

    @property
    def default_value(self) -> Any:
        """What goes without, if there is something."""
        return self.default if self.has_default_value() else None

    def __repr__(self) -> str:
        return self._text


def _split(text: str) -> list[str]:
    return [part for piece in _PIECE.findall(text) if (part := piece.strip())]


def type_text(kind: str) -> str:
    """A type of a signature as TorchScript's text has it: `Optional[List[int]]` of "int[2]?"."""
    found = re.fullmatch(r"(.*)(?:(\?)|\[\d*\])", kind)
    if found:
        return f"{'Optional' if found[2] else 'List'}[{type_text(found[1])}]"
    outer, bracket, inner = kind.removesuffix(")").partition("(")
    return f"{outer or 'Tuple'}[{', '.join(map(type_text, _split(inner)))}]" if bracket else _TYPES.get(kind, kind)


class FunctionSchema:
    """The signature of one overload: `name` ("aten::add"), `overload_name`, `arguments` and `returns`, as text `result`."""

    def __init__(self, name: str, overload_name: str, arguments: str, results: str = "") -> None:
        self.name, self.overload_name, self.result = name, overload_name, results
        self.operator = name.rpartition("::")[2]
        parts = _split(arguments)
        keyword = parts.index("*") if "*" in parts else len(parts)
        self.arguments = [Argument(part, at > keyword) for at, part in enumerate(parts) if part not in ("*", "...")]
        self.returns = [Argument(part) for part in _split(results[1:-1] if results.startswith("(") and results.endswith(")") else results)]
        self.text = f"{name}{'.' + overload_name if overload_name else ''}({', '.join(parts)})" + (f" -> {results}" if results else "")
        self._positional = [a.name for a in self.arguments if not a.kwarg_only]
        self._names = frozenset(a.name for a in self.arguments)
        self._required = [a.name for a in self.arguments if not a.has_default_value()]

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name; TypeError for those that there are none of, or too few."""
        given = dict(zip(self._positional, args))
        if len(args) > len(self._positional) or (kwargs and (kwargs.keys() & given.keys() or kwargs.keys() - self._names)):
            raise TypeError(f"{self.text} was called with {len(args)} positional arguments and {sorted(kwargs)}")
        given |= kwargs
        missing = [name for name in self._required if name not in given]
        if missing:
            raise TypeError(f"{self.text} is missing {', '.join(missing)}")
        return given

    @property
    def signature(self) -> inspect.Signature:
        """As Python's signature."""
        kinds, arguments = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY), self.arguments
        return inspect.Signature([inspect.Parameter(a.name, kinds[a.kwarg_only], default=a.default, annotation=a.kind) for a in arguments])

    @property
    def is_mutable(self) -> bool:
        """Whether an argument is written to."""
        return any(a.is_write for a in self.arguments)

    def is_backward_compatible_with(self, old: FunctionSchema) -> bool:
        """Whether calls by an older signature are calls by this one: the same arguments, and others only with defaults."""
        count = len(old.arguments)
        return [(a.name, a.type) for a in self.arguments[:count]] == [(a.name, a.type) for a in old.arguments] \
            and [r.type for r in self.returns] == [r.type for r in old.returns] \
            and all(a.has_default_value() for a in self.arguments[count:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


def parse_schema(schema: str, allow_typevars: bool = True) -> FunctionSchema:
    """A signature as an object; RuntimeError for what is none, or for a letter as a type without `allow_typevars`."""
    found = _WHOLE.match(schema)
    if found is None:
        raise RuntimeError(f"not an operator schema: {schema!r}; expected 'name(Tensor x, int n=1) -> Tensor'")
    made = FunctionSchema(found[1], found[2] or "", found[3], found[4])
    letters = [a.type for a in (*made.arguments, *made.returns) if len(a.type) == 1]
    if letters and not allow_typevars:
        raise RuntimeError(f"the schema {schema!r} has variables as types: {letters}")
    return made
