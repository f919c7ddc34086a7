"""Which overload of an operator a call is, by the types of its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.schema import Argument, FunctionSchema
from ...ops.aten_schemas import ALIASES, REDUCTIONS, _pairs
from ...ops.script_types import fields_of, known, result_of
from ..printer import literal
from ..types import INT, TENSOR, Type
from ..values import Class
from .static import ANY, BOOL, DEVICE, FLOAT, FREE, NOTHING, NUMBER, NUMBERS, STR, Value, bind, filled, is_part, type_of

_LISTED = {"int[]": INT, "SymInt[]": INT, "int[1]": INT, "SymInt[1]": INT, "Tensor[]": TENSOR}
_IMPLICIT = {INT: "int", FLOAT: "float", NUMBER: "torch.ScalarImplicit", BOOL: "bool"}


class Misfit(Exception):
    """An overload that does not take the arguments; it says why."""


class Matched(NamedTuple):
    """A call of an overload: the text of its arguments, and what it gives."""

    schema: FunctionSchema
    arguments: list[str]
    result: Type


class Converter:
    """Values as parameters take them."""

    def __init__(self, classes: dict[str, Class]) -> None:
        self.classes = classes

    def converted(self, value: Value, kind: Type, implicit: bool, found: dict[str, Type] | None = None, sized: bool = False,
                  numbers: bool = False) -> Value:
        """`value` as a `kind`; Misfit if it is none. `implicit`: tensors become numbers; `numbers`: these stand for tensors; `sized`: one
        number stands for several."""
        wanted = bind(kind, value.type, found) if found is not None else kind
        if is_part(value.type, wanted, self.classes):
            return value
        inner = wanted.args[0] if wanted.name == "Optional" else wanted
        if inner.name == "List":
            made = self._listed(value, self._told_by_parts(value, inner, found), implicit, sized)
            if made is not None:
                return made
        if numbers and inner == TENSOR and value.type in (*NUMBERS, BOOL):
            return value
        if inner.name == "Tuple" and value.parts is not None and len(value.parts) == len(inner.args) and value.type.name == "Tuple":
            parts = [self.converted(part, k, implicit, found) for part, k in zip(value.parts, inner.args)]
            return Value(inner, f"({', '.join(p.text for p in parts)}{',' if len(parts) == 1 else ''})", parts=parts)
        if inner == DEVICE and value.type == STR:
            return Value(DEVICE, f"torch.device({value.text})")
        if implicit and inner in (INT, FLOAT) and (value.type == NUMBER or (value.type == BOOL and kind == wanted)):
            return Value(inner, f"{inner}({value.text})")
        if implicit and value.type == TENSOR and inner in _IMPLICIT:
            return Value(inner, f"{_IMPLICIT[inner]}({value.text})")
        raise Misfit(f"Expected a value of type '{wanted}' but instead found type '{value.type}'.")

    @staticmethod
    def _told_by_parts(value: Value, kind: Type, found: dict[str, Type] | None) -> Type:
        """A list of any type, made of a tuple: its parts tell."""
        free = kind.args[0].name
        parts = set(value.type.args) if value.type.name == "Tuple" else set()
        if free not in FREE or found is None or len(parts) != 1:
            return kind
        return Type("List", (found.setdefault(free, parts.pop()),))

    def _listed(self, value: Value, kind: Type, implicit: bool, sized: bool) -> Value | None:
        """A tuple, or one number, as a list."""
        element = kind.args[0]
        if value.parts is not None:
            parts = [self.converted(part, element, implicit) for part in value.parts]
            text = f"[{', '.join(p.text for p in parts)}]"
            return Value(kind, text if parts and all(p.type == element for p in parts) else f"annotate({kind}, {text})")
        if value.type.name == "Tuple":
            parts = [self.converted(Value(k, f"({value.text})[{at}]"), element, implicit) for at, k in enumerate(value.type.args)]
            return Value(kind, f"[{', '.join(p.text for p in parts)}]")
        if sized and is_part(value.type, element, self.classes):
            return value
        return None

    def matched(self, schema: FunctionSchema, args: Sequence[Value], kwargs: Mapping[str, Value], implicit: bool,
                names: Mapping[str, str] | None = None, numbers: bool = False) -> Matched:
        """The call as this overload; `names` are what a function calls the overload's arguments."""
        given = self._by_name(schema, args, kwargs, names or {})
        found: dict[str, Type] = {}
        texts = []
        skipped = False
        for a in schema.arguments:
            if a.name not in given:
                if a.default is inspect.Parameter.empty:
                    raise Misfit(f"Argument {a.name} not provided.")
                skipped = True
                continue
            try:
                value = self._argument(a, given[a.name], implicit, found, numbers)
            except Misfit as misfit:
                raise Misfit(str(misfit).replace("but instead", f"for argument '{a.name}' but instead")) from None
            texts.append(f"{a.name}={value.text}" if a.kwarg_only or skipped else value.text)
        return Matched(schema, texts, filled(type_of(result_of(schema)), found))

    def _argument(self, a: Argument, value: Value, implicit: bool, found: dict[str, Type], numbers: bool) -> Value:
        if a.name == "reduction" and value.constant in REDUCTIONS:
            return Value(INT, str(REDUCTIONS.index(value.constant)))
        sized = a.kind.rstrip("?").endswith("]") and not a.kind.rstrip("?").endswith("[]")
        if a.kind == "str" and value.constant is not NOTHING and value.type != STR:
            raise Misfit(f"Expected a value of type 'str' but instead found type '{value.type}'.")
        return self.converted(value, type_of(a.kind), implicit, found, sized, numbers)

    def _by_name(self, schema: FunctionSchema, args: Sequence[Value], kwargs: Mapping[str, Value],
                 names: Mapping[str, str]) -> dict[str, Value]:
        positional = [a for a in schema.arguments if not a.kwarg_only]
        if len(args) > len(positional) or (positional and len(args) == len(positional) > 0 and self._spread(positional, args)):
            args = self._spread(positional, args) or _too_many(schema, len(args))
        given = {a.name: v for a, v in zip(positional, args)}
        known_names = {a.name for a in schema.arguments}
        for key, value in kwargs.items():
            name = names.get(key, key)
            if name not in known_names and name == "input" and "self" in known_names:
                name = "self"
            if name not in known_names or name in given:
                raise Misfit(f"Unknown keyword argument '{key}'.")
            given[name] = value
        return given

    @staticmethod
    def _spread(positional: list[Argument], args: Sequence[Value]) -> list[Value] | None:
        """`view(2, 3)` as `view([2, 3])`: the last arguments are a list of ints."""
        at = next((i for i, a in enumerate(positional) if a.kind.rstrip("?") in _LISTED), None)
        if at is None or at >= len(args):
            return None
        kind = _LISTED[positional[at].kind.rstrip("?")]
        if any(v.type not in (kind, TENSOR) for v in args[at:]) or all(v.type != kind for v in args[at:]):
            return None
        if at != len(positional) - 1 and len(args) <= len(positional):
            return None
        rest = list(args[at:])
        element = kind if all(v.type == kind for v in rest) else ANY
        return [*args[:at], Value(Type("List", (element,)), f"[{', '.join(v.text for v in rest)}]", parts=rest)]

    def operator(self, name: str, args: Sequence[Value], kwargs: Mapping[str, Value], fn: Callable | None = None) -> Value:
        """The call of `aten::NAME`, or of the operator `fn` with the parameters that the operator has here; Misfit tells all overloads."""
        aten = ALIASES.get(name, name)
        misfits = []
        on_tensors = any(v.type == TENSOR for v in (*args, *kwargs.values()))
        for implicit, numbers in ((False, False), *(((False, True),) if on_tensors else ()), (True, False)):
            for schema in known(aten):
                ways = [(args, kwargs, {})] if fn is None else _ways(schema, fn, args, kwargs)
                for positional, named, names in ways:
                    try:
                        found = self.matched(schema, positional, named, implicit, names, numbers)
                    except Misfit as misfit:
                        misfits.append(f"  {schema.text}:\n  {misfit}\n")
                        continue
                    return Value(found.result, f"torch.{schema.operator}({', '.join(found.arguments)})", fields=fields_of(schema))
        raise Misfit("Arguments for call are not valid.\nThe following variants are available:\n" + "\n".join(dict.fromkeys(misfits))
                     if misfits else f"Unknown builtin op: aten::{name}")


def _too_many(schema: FunctionSchema, count: int) -> Any:
    raise Misfit(f"Expected at most {len(schema.arguments)} arguments but found {count} positional arguments.")


def _ways(schema: FunctionSchema, fn: Callable, args: Sequence[Value], kwargs: Mapping[str, Value]) -> list[tuple]:
    """The arguments as given, and by the names that the overload has for the parameters of an operator."""
    ways: list[tuple] = []
    pairs = _pairs(schema, fn)
    ours = {mine: its for its, mine in pairs.items()}
    theirs = {pairs[a.name]: a for a in schema.arguments if a.name in pairs}
    parameters = list(inspect.signature(fn).parameters.values())
    plain = all(p.kind is not p.VAR_POSITIONAL for p in parameters)
    if plain and len(args) <= len(parameters):
        named = {p.name: v for p, v in zip(parameters, args)} | dict(kwargs)
        for p in parameters:    # a default that the overload hasn't
            a = theirs.get(p.name)
            wanted = a is not None and p.name not in named and a.default is inspect.Parameter.empty
            if wanted and isinstance(p.default, (bool, int, float, str, type(None))):
                named[p.name] = literal_value(p.default)
        named = {name: v for name, v in named.items() if v.constant is not None or (name in theirs and theirs[name].kind.endswith("?"))}
        if named.keys() <= ours.keys():
            kernels = {a.name: literal_value(True) for a in schema.arguments     # which it may take: there is no choice here
                       if a.kind == "bool" and a.default is inspect.Parameter.empty and a.name not in pairs}
            ways.append(([], named | kernels, ours))
    ways.append((args, kwargs, {}))
    return ways


_KINDS: dict[type, Type] = {bool: BOOL, int: INT, float: FLOAT, str: STR, complex: Type("complex"), type(None): Type("NoneType")}


def literal_value(value: Any) -> Value:
    """A number, a text, None, or a tuple or list of these, as a value of the program."""
    if isinstance(value, (tuple, list)):
        parts = [literal_value(v) for v in value]
        if isinstance(value, list):
            listed = Type("List", (parts[0].type if parts else TENSOR,))
            return Value(listed, f"[{', '.join(p.text for p in parts)}]" if parts else f"annotate({listed}, [])", parts=parts)
        return Value(Type("Tuple", tuple(p.type for p in parts)), f"({''.join(f'{p.text}, ' for p in parts)})", True, value, parts)
    kind = next(k for k in _KINDS if isinstance(value, k))
    return Value(_KINDS[kind], literal(value), True, value)


def as_numbers(a: Value, b: Value) -> tuple[Value, Value]:
    """Operands of an operator of numbers: a bool becomes what the other is, two of them ints."""
    kinds = {a.type, b.type} - {BOOL}
    if len(kinds) > 1 or not kinds <= {INT, FLOAT, Type("complex")}:
        return a, b
    kind = FLOAT if kinds == {FLOAT} else INT
    first, second = (Value(kind, f"{kind}({v.text})") if v.type == BOOL else v for v in (a, b))
    return first, second


def arithmetic(name: str, a: Type, b: Type) -> Type | None:
    """What an operator of Python's gives for two numbers; None if it takes none of these."""
    if a not in NUMBERS or b not in NUMBERS:
        return None
    ranks = max(NUMBERS.index(a), NUMBERS.index(b))
    if ranks == 3:
        return NUMBER if name != "div" else FLOAT
    if name in ("div", "pow") and ranks == 0:
        return FLOAT
    if ranks == 2 and name in ("floordiv", "remainder"):
        return None
    return NUMBERS[ranks]
