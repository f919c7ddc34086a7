"""Expressions of Python as TorchScript's text, with their types."""

from __future__ import annotations

import ast
import enum
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ...core.device import device
from ...core.dtypes import dtype
from ...core.memory_format import layout, memory_format
from ...core.tensor import Tensor
from ...ops import aten, script
from ...ops.custom import Namespace
from ...ops.script_types import known
from ..printer import RESERVED, member
from ..values import Class, Function
from .annotations import Unknown, evaluated, type_from
from .errors import NotSupportedError, SourceText, UnsupportedNodeError, failure
from .matching import Converter, Misfit, arithmetic, as_numbers, literal_value
from .scopes import Missing, Scope, Variable
from .static import (
    ANY,
    BOOL,
    DEVICE,
    INT,
    NONE,
    NOTHING,
    NUMBERS,
    STR,
    TENSOR,
    Bound,
    Known,
    Several,
    Stepped,
    Sugar,
    Type,
    Value,
    common,
    is_part,
    may_be_none,
    optional,
    without_none,
)

BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "remainder", ast.Pow: "pow",
          ast.MatMult: "matmul", ast.BitAnd: "__and__", ast.BitOr: "__or__", ast.BitXor: "__xor__", ast.LShift: "__lshift__",
          ast.RShift: "__rshift__"}
_ON_NUMBERS = frozenset(BINARY.values()) - {"matmul"}
COMPARED = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_TURNED = {"add": "add", "mul": "mul", "eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "__and__": "__and__",
           "__or__": "__or__", "__xor__": "__xor__", "sub": "rsub"}
_PROPERTIES = {
    **dict.fromkeys(("dtype", "layout", "itemsize", "nbytes"), INT), "device": DEVICE, "data": TENSOR, "grad": optional(TENSOR),
    **dict.fromkeys(("requires_grad", "is_cuda", "is_cpu", "is_sparse", "is_quantized", "is_nested", "is_leaf", "is_meta", "is_mkldnn",
                     "is_sparse_csr", "is_mps", "is_xpu"), BOOL)}
_PROPERTY_CALLS = {"shape": "size", "ndim": "dim", "T": "numpy_T", "mT": "mT", "H": "matrix_H", "mH": "mH", "real": "real", "imag": "imag"}
_MATH = {"pow": "pow", "remainder": "mathremainder", "fabs": "fabs"}
TRUE, FALSE = literal_value(True), literal_value(False)


class AbsentOperator(NamedTuple):
    """An operator of a library that is not registered: a call of it raises when it runs."""

    namespace: str
    name: str


class ModuleValue(Value):
    """A module: its class is known, and so is the object that is scripted."""

    info: Any = None

    @classmethod
    def of(cls, info: Any, text: str) -> ModuleValue:
        """The module that `text` reads."""
        made = cls(Type(info.name), text)
        made.info = info
        return made


class Expressions:
    """Translates the expressions of one function."""

    def __init__(self, unit: Any, source: SourceText, names: Mapping[str, Any], where: str) -> None:
        self.unit, self.source, self.names, self.where = unit, source, dict(names), where
        self.classes: dict[str, Class] = unit.classes
        self.converter = Converter(self.classes)
        self.scope = Scope()
        self.out: list[str] = []
        self.texts: dict[str, str] = {}
        self.count = 0

    # -- errors and names ----------------------------------------------------------------------------------------------
    def error(self, node: ast.AST, message: str, kind: Callable[[str], Exception] = RuntimeError) -> Exception:
        """The error for a place of the function."""
        return failure(message, self.source, node, kind)

    def text_name(self, name: str) -> str:
        """What the text calls a local variable."""
        if name not in self.texts:
            text = name
            while text in RESERVED or text in self.texts.values() or not text.isascii():
                text = f"{text}_" if text.isascii() else "".join(c if c.isascii() else "_" for c in text)
            self.texts[name] = text
        return self.texts[name]

    def fresh(self) -> str:
        """A name that nothing has."""
        while True:
            text = f"_{self.count}"
            self.count += 1
            if text not in self.texts.values() and text not in self.names:
                return text

    def kept(self, value: Value) -> Value:
        """The value under a name of its own, unless it may be written twice."""
        if value.simple:
            return value
        name = self.fresh()
        self.out.append(f"{name} = {value.text}")
        made = Value(value.type, name, True, value.constant, None, value.fields)
        return made

    @contextmanager
    def block(self, scope: Scope | None = None) -> Any:
        """Statements of an inner block: gives the list that they are written to."""
        outer, outer_scope = self.out, self.scope
        self.out, self.scope = [], scope or Scope(self.scope)
        try:
            yield self.out
        finally:
            self.out, self.scope = outer, outer_scope

    def write_if(self, test: str, yes: list[str], no: list[str]) -> None:
        """An `if` with these statements."""
        self.out.append(f"if {test}:")
        self.out += [f"  {line}" for line in yes or ["pass"]]
        if no:
            self.out.append("else:")
            self.out += [f"  {line}" for line in no]

    def type_at(self, annotation: Any, node: ast.AST) -> Type:
        """The type that an annotation in the function means."""
        try:
            return type_from(evaluated(annotation, self.names), self.unit.type_of_class)
        except Unknown as unknown:
            raise self.error(node, str(unknown)) from None

    # -- values ------------------------------------------------------------------------------------------------------------
    def value(self, node: ast.AST, hint: Type | None = None) -> Value:
        """The value of an expression; `hint` is what an empty list or dict there is."""
        return self.first_class(self.expr(node, hint), node)

    def first_class(self, found: Any, node: ast.AST) -> Value:
        """`found` as a value of the program."""
        if isinstance(found, Value):
            return found
        if isinstance(found, Known):
            return self.known_value(found.obj, node)
        if isinstance(found, Several):
            return self.tuple_of([self.first_class(item, node) for item in found.items])
        if isinstance(found, Bound):
            raise self.error(node, f"The method '{found.name}' is not called, and is no value")
        raise self.error(node, f"{type(found).__name__.lower()} cannot be used as a value")

    def known_value(self, obj: Any, node: ast.AST) -> Value:
        """Something of Python's as a value: numbers, texts, dtypes, devices, members of enums, tuples and lists of these."""
        if isinstance(obj, enum.Enum):
            kind = self.unit.type_of_class(type(obj))
            return Value(kind, f"{kind.name}.{obj.name}", True, obj)
        if isinstance(obj, (dtype, layout, memory_format)):
            return Value(INT, str(script.number_of(obj)), True, obj)
        if isinstance(obj, device):
            return Value(DEVICE, f'torch.device("{obj}")')
        if obj is None or isinstance(obj, (bool, int, float, complex, str)):
            return literal_value(obj)
        if isinstance(obj, (tuple, list)) and not hasattr(obj, "_fields"):
            parts = [self.known_value(part, node) for part in obj]
            return self.tuple_of(parts) if isinstance(obj, tuple) else self.list_of(parts, None)
        if isinstance(obj, Tensor):
            raise self.error(node, "a tensor outside of the function is no constant of it: give it as an argument, or keep it in a module")
        raise self.error(node, f"Python value of type '{type(obj).__name__}' cannot be used as a value. Perhaps it is a closed over "
                               "global variable? If so, please consider passing it in as an argument or use a local varible instead.")

    @staticmethod
    def tuple_of(parts: list[Value]) -> Value:
        """A tuple that is written out."""
        constant = tuple(p.constant for p in parts) if all(p.constant is not NOTHING for p in parts) else NOTHING
        text = f"({', '.join(p.text for p in parts)}{',' if len(parts) == 1 else ''})"
        return Value(Type("Tuple", tuple(p.type for p in parts)), text, all(p.simple for p in parts), constant, parts)

    def list_of(self, parts: list[Value], hint: Type | None) -> Value:
        """A list that is written out."""
        hint = without_none(hint) if hint is not None else None
        wanted = hint.args[0] if hint is not None and hint.name == "List" else None
        if not parts:
            kind = Type("List", (wanted or TENSOR,))
            return Value(kind, f"annotate({kind}, [])", parts=[])
        element = parts[0].type
        for part in parts[1:]:
            joined = common(element, part.type, self.classes, union=True)
            element = joined if joined is not None else ANY
        fits = wanted is not None and all(is_part(p.type, wanted, self.classes) for p in parts)
        kind = Type("List", (wanted if fits and wanted is not None else element,))
        text = f"[{', '.join(p.text for p in parts)}]"
        plain = all(p.type == kind.args[0] for p in parts)
        return Value(kind, text if plain else f"annotate({kind}, {text})", parts=parts)

    def values(self, nodes: Sequence[ast.AST], hints: Sequence[Type | None] = ()) -> list[Any]:
        """Several expressions, in order: what was computed before one that takes statements gets a name."""
        found: list[Any] = []
        for at, node in enumerate(nodes):
            mark = len(self.out)
            made = self.expr(node, hints[at] if at < len(hints) else None)
            if len(self.out) > mark:
                self._spill(found, mark)
            found.append(made)
        return found

    def _spill(self, found: list[Any], mark: int) -> None:
        rest, self.out[mark:] = self.out[mark:], []
        for at, value in enumerate(found):
            if type(value) is Value:
                found[at] = self.kept(value)
        self.out += rest

    def first_values(self, nodes: Sequence[ast.AST], hints: Sequence[Type | None] = ()) -> list[Value]:
        """`values`, as values of the program."""
        return [self.first_class(found, node) for found, node in zip(self.values(nodes, hints), nodes)]

    def converted(self, value: Value, kind: Type, node: ast.AST, what: str, implicit: bool = False) -> Value:
        """`value` as a `kind`; an error says what of. `implicit`: tensors and numbers of any kind become ints or floats."""
        try:
            return self.converter.converted(value, kind, implicit)
        except Misfit:
            raise self.error(node, f"{what.format(kind=kind, found=value.type)}") from None

    # -- each kind of expression ---------------------------------------------------------------------------------------------
    def expr(self, node: ast.AST, hint: Type | None = None) -> Value | Sugar:
        """What an expression stands for."""
        translate = self.EXPRESSIONS.get(type(node))
        if translate is None:
            raise self.error(node, f"{_NAMES.get(type(node), type(node).__name__)} aren't supported", UnsupportedNodeError)
        return translate(self, node, hint)

    def _constant(self, node: ast.Constant, hint: Type | None) -> Value:
        if not isinstance(node.value, (int, float, complex, str, type(None))):
            raise self.error(node, f"constants of type {type(node.value).__name__} aren't supported", NotSupportedError)
        return literal_value(node.value)

    def _name(self, node: ast.Name, hint: Type | None) -> Any:
        found = self.scope.find(node.id)
        if isinstance(found, Variable):
            return found.value()
        if isinstance(found, Missing):
            raise self.error(node, found.why)
        if found is not None:
            return found
        if node.id not in self.names:
            raise self.error(node, f"undefined value {node.id}")
        return Known(self.names[node.id])

    def _attribute(self, node: ast.Attribute, hint: Type | None) -> Any:
        return self.attribute(self.expr(node.value), node.attr, node)

    def attribute(self, of: Any, name: str, node: ast.AST) -> Any:
        """`of.name`."""
        if isinstance(of, Known):
            return self.known_attribute(of.obj, name, node)
        if isinstance(of, ModuleValue):
            return of.info.attribute(self, of, name, node)
        if hasattr(of, "attribute"):
            return of.attribute(self, name, node)
        value = self.first_class(of, node)
        if name in value.fields:
            at = value.fields.index(name)
            return Value(value.type.args[at], f"({value.text})[{at}]")
        if value.type == TENSOR:
            return self._tensor_attribute(value, name, node)
        if value.type == DEVICE and name in ("type", "index"):
            return Value(STR if name == "type" else optional(INT), f"ops.prim.{name}({value.text})")
        made_of = self.classes.get(value.type.name)
        if made_of is not None:
            return self._member(made_of, value, name, node)
        if value.type.name in ("Optional", "Union", "Any"):
            raise self.error(node, f"'{value.type}' object has no attribute or method '{name}'. Did you forget to refine it, as with "
                                   "`if x is not None`?")
        return Bound(value, name)

    def known_attribute(self, obj: Any, name: str, node: ast.AST) -> Any:
        """An attribute of something of Python's."""
        if isinstance(obj, type) and self.unit.is_scripted(obj) and not issubclass(obj, enum.Enum):
            static = obj.__dict__.get(name)
            if isinstance(static, staticmethod):
                return Known(static.__func__)
        if obj is aten:
            return Known(aten.AtenOperator(name))
        try:
            return Known(getattr(obj, name))
        except AttributeError:
            if isinstance(obj, Namespace):      # of operators that a library registers, and hasn't here
                return Known(AbsentOperator(obj.__name__, name))
            shown = getattr(obj, "__name__", type(obj).__name__)
            raise self.error(node, f"module '{shown}' has no attribute '{name}'") from None

    def _tensor_attribute(self, value: Value, name: str, node: ast.AST) -> Any:
        if name in _PROPERTIES:
            return Value(_PROPERTIES[name], f"ops.prim.{name}({value.text})")
        if name in _PROPERTY_CALLS:
            return Value(Type("List", (INT,)) if name == "shape" else INT if name == "ndim" else TENSOR,
                         f"torch.{_PROPERTY_CALLS[name]}({value.text})")
        if not known(name) and name not in _METHODS:
            raise self.error(node, f"'Tensor' object has no attribute or method '{name}'")
        return Bound(value, name)

    def _member(self, made_of: Class, value: Value, name: str, node: ast.AST) -> Any:
        """An attribute or method of an object of a class."""
        if made_of.kind == "Enum" and name in ("name", "value"):
            first = next(iter(made_of.constants.values()))
            text = value.text if value.simple else f"({value.text})"
            return Value(STR if name == "name" else literal_value(first).type, f"{text}.{name}")
        if name in made_of.attributes:
            return Value(made_of.attributes[name], member(value.text if value.simple else f"({value.text})", name))
        found = self.unit.member(made_of, name)
        if isinstance(found, Function):
            return Bound(value, name)
        if isinstance(found, property):
            return self.call_method(value, self.unit.getter(made_of, name), [], {}, node)
        if found is not None:
            return Known(found)
        raise self.error(node, f"Tried to access nonexistent attribute or method '{name}' of type '{value.type}'")

    # -- operators of Python ------------------------------------------------------------------------------------------------
    def operator(self, node: ast.AST, name: str, args: Sequence[Value], kwargs: Mapping[str, Value] | None = None,
                 fn: Callable | None = None) -> Value:
        """The call of an operator; an error shows the overloads that there are."""
        try:
            return self.converter.operator(name, args, kwargs or {}, fn)
        except Misfit as misfit:
            raise self.error(node, f"{misfit}\nThe original call is") from None

    def _binary(self, node: ast.BinOp, hint: Type | None) -> Value:
        name = BINARY.get(type(node.op))
        if name is None:
            raise self.error(node, f"unsupported binary operator: {type(node.op).__name__}", NotSupportedError)
        hints = (hint, hint) if hint is not None and hint.name == "List" else ()
        left, right = self.first_values([node.left, node.right], hints)
        return self.combined(node, name, left, right)

    def combined(self, node: ast.AST, name: str, a: Value, b: Value) -> Value:
        """`a OPERATOR b`."""
        own = self._own_operator(node, name, a, [b])
        if own is not None:
            return own
        if name == "remainder" and a.type == STR:
            return Value(STR, f"torch.percentFormat({a.text}, {b.text})")
        if name == "add" and a.type.name == "Tuple" == b.type.name:
            return self._joined_tuples(a, b)
        if TENSOR in (a.type, b.type):
            return self._on_tensors(node, name, a, b)
        if name in _ON_NUMBERS and not (a.type == b.type == BOOL and name in ("__and__", "__or__", "__xor__")):
            a, b = as_numbers(a, b)
        kind = arithmetic(name, a.type, b.type)
        if kind is not None and name in _ON_NUMBERS:
            return Value(kind, f"torch.{name}({a.text}, {b.text})")
        return self.operator(node, name, [a, b])

    def _joined_tuples(self, a: Value, b: Value) -> Value:
        parts = []
        for value in (a, b):
            one = self.kept(value) if value.parts is None else value
            parts += one.parts or [Value(k, f"{one.text}[{at}]") for at, k in enumerate(one.type.args)]
        return self.tuple_of(parts)

    def _own_operator(self, node: ast.AST, name: str, a: Value, rest: list[Value]) -> Value | None:
        """The method of an object's class that Python calls for an operator."""
        made_of = self.classes.get(a.type.name)
        own = _METHOD_OF.get(name, f"__{name.strip('_')}__")
        if made_of is None or made_of.kind in ("Enum", "NamedTuple") or self.unit.member(made_of, own) is None:
            return None
        return self.call_method(a, own, rest, {}, node)

    def _on_tensors(self, node: ast.AST, name: str, a: Value, b: Value) -> Value:
        if a.type != TENSOR and b.type == TENSOR:     # the number comes first
            if name in _TURNED:
                return self.operator(node, _TURNED[name], [b, a])
            if name == "div":
                return self.operator(node, "mul", [self.operator(node, "reciprocal", [b]), a])
        if name == "floordiv" and a.type != TENSOR:
            a = Value(TENSOR, f"torch.tensor({a.text}, device=ops.prim.device({b.text}))")
        if name == "floordiv":
            name = "floor_divide"
        return self.operator(node, name, [a, b])

    def _unary(self, node: ast.UnaryOp, hint: Type | None) -> Value:
        if isinstance(node.op, ast.Not):
            return self._truth(node)
        value = self.value(node.operand)
        if isinstance(node.op, ast.USub):
            if isinstance(value.constant, (int, float, complex)) and not isinstance(value.constant, bool):
                return literal_value(-value.constant)
            return self._own_operator(node, "neg", value, []) or self.operator(node, "neg", [value])
        if isinstance(node.op, ast.UAdd):
            return value
        return self.operator(node, "bitwise_not", [value])

    def _truth(self, node: ast.AST, hint: Type | None = None) -> Value:
        """`not`, `and`, `or` and comparisons: a bool."""
        return self.condition(node)[0]

    def condition(self, node: ast.AST) -> tuple[Value, dict[str, Type], dict[str, Type]]:
        """A test as a bool, and the types that variables have where it holds and where it doesn't."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            test, yes, no = self.condition(node.operand)
            if test.constant is not NOTHING:
                return literal_value(not test.constant), no, yes
            return Value(BOOL, f"torch.__not__({test.text})"), no, yes
        if isinstance(node, ast.BoolOp):
            return self._all_or_any(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return self._is(node)
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            found = self._known_callee(node.func)
            if self.unit.is_isinstance(found):
                return self._isinstance(node)
        if isinstance(node, ast.Compare):
            return self.truth_of(self._compare(node), node), {}, {}
        return self.truth_of(self.value(node), node), {}, {}

    def _known_callee(self, node: ast.AST) -> Any:
        """The Python function that an expression names; None of anything else."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id) if self.scope.find(node.id) is None else None
        if isinstance(node, ast.Attribute):
            of = self._known_callee(node.value)
            return getattr(of, node.attr, None) if of is not None else None
        return None

    def truth_of(self, value: Value, node: ast.AST) -> Value:
        """A value as a bool."""
        if value.type == BOOL:
            return value
        if value.type == TENSOR or value.type in NUMBERS:
            return Value(BOOL, f"bool({value.text})")
        if value.type.name in ("List", "Dict", "str"):
            return Value(BOOL, f"torch.gt(torch.len({value.text}), 0)")
        own = self.classes.get(value.type.name)
        if own is not None and self.unit.member(own, "__bool__") is not None:
            return self.call_method(value, "__bool__", [], {}, node)
        raise self.error(node, f"Could not cast value of type {value.type} to bool")

    def _all_or_any(self, node: ast.BoolOp) -> tuple[Value, dict[str, Type], dict[str, Type]]:
        """`a and b`, `a or b`: b is looked at only where a does not decide."""
        both = isinstance(node.op, ast.And)
        test, yes, no = self.condition(node.values[0])
        for part in node.values[1:]:
            if test.constant is not NOTHING and bool(test.constant) is not both:
                break
            scope = Scope(self.scope)
            scope.refine(yes if both else no)
            with self.block(scope) as lines:
                more, more_yes, more_no = self.condition(part)
            test = self._either(test, more, lines, both)
            yes, no = ({**yes, **more_yes}, {}) if both else ({}, {**no, **more_no})
        return test, yes, no

    def _either(self, test: Value, more: Value, lines: list[str], both: bool) -> Value:
        if test.constant is not NOTHING:
            self.out += lines
            return more
        if not lines:
            if more.constant is not NOTHING:
                decided = bool(more.constant) is both
                return test if decided else literal_value(not both)
            return Value(BOOL, f"({more.text} if {test.text} else False)" if both else f"(True if {test.text} else {more.text})")
        name = self.fresh()
        yes, no = [*lines, f"{name} = {more.text}"], [f"{name} = {not both}"]
        self.write_if(test.text, *((yes, no) if both else (no, yes)))
        return Value(BOOL, name, True)

    def _is(self, node: ast.Compare) -> tuple[Value, dict[str, Type], dict[str, Type]]:
        """`x is None` and `x is not None`, which tell more of x."""
        found = self.values([node.left, node.comparators[0]])
        negated = isinstance(node.ops[0], ast.IsNot)
        known_things = [f.obj for f in found if isinstance(f, Known)]
        if len(known_things) == 2:
            return literal_value((known_things[0] is known_things[1]) is not negated), {}, {}
        a, b = (self.first_class(f, n) for f, n in zip(found, (node.left, node.comparators[0])))
        if NONE in (a.type, b.type):
            value, name = (a, node.left) if b.type == NONE else (b, node.comparators[0])
            if value.type == NONE:
                return literal_value(not negated), {}, {}
            if not may_be_none(value.type):
                return literal_value(negated), {}, {}
            text = f"torch.{'__isnot__' if negated else '__is__'}({value.text}, None)"
            told = {name.id: without_none(value.type)} if isinstance(name, ast.Name) and value.type != ANY else {}
            return Value(BOOL, text), *((told, {}) if negated else ({}, told))
        return Value(BOOL, f"torch.{'__isnot__' if negated else '__is__'}({a.text}, {b.text})"), {}, {}

    def _isinstance(self, node: ast.Call) -> tuple[Value, dict[str, Type], dict[str, Type]]:
        """`isinstance(x, T)`, decided by the type of x where that is enough."""
        found = self.expr(node.args[0])
        if isinstance(found, ModuleValue):
            kinds = self.expr(node.args[1])
            return literal_value(isinstance(found.info.module, getattr(kinds, "obj", ()))), {}, {}
        value = self.first_class(found, node.args[0])
        wanted = self._kinds(node.args[1])
        kind = value.type
        members = kind.args if kind.name == "Union" else (*kind.args, NONE) if kind.name == "Optional" else (kind,)
        fits = [m for m in members if any(self._is_kind(m, w) for w in wanted)]
        if kind != ANY and (not fits or len(fits) == len(members)):
            return literal_value(bool(fits)), {}, {}
        shown = ", ".join({"AnyList": "list", "AnyTuple": "tuple"}.get(w.name, str(w)) for w in wanted)
        test = Value(BOOL, f"isinstance({value.text}, {shown if len(wanted) == 1 else f'({shown})'})")
        name = node.args[0].id if isinstance(node.args[0], ast.Name) else None
        if name is None:
            return test, {}, {}
        if kind == ANY:
            return test, ({name: wanted[0]} if len(wanted) == 1 else {}), {}
        rest = [m for m in members if m not in fits]
        return test, {name: _one_of(fits)}, {name: _one_of(rest)}

    def _is_kind(self, kind: Type, wanted: Type) -> bool:
        if wanted.name in ("AnyList", "AnyTuple"):
            return kind.name == wanted.name.removeprefix("Any")
        return is_part(kind, wanted, self.classes)

    def _kinds(self, node: ast.AST) -> list[Type]:
        if isinstance(node, ast.Tuple):
            return [kind for part in node.elts for kind in self._kinds(part)]
        return [self.type_at(node, node)]

    def _compare(self, node: ast.Compare, hint: Type | None = None) -> Value:
        """`a < b`, `a < b < c`, `a in b`."""
        if len(node.ops) > 1:
            middle = [self.kept(v) for v in self.first_values(node.comparators[:-1])]
            for at, value in enumerate(middle):
                self.scope.names[f" {at}"] = value
            sides = [node.left, *(ast.copy_location(ast.Name(f" {at}", ast.Load()), c) for at, c in enumerate(node.comparators[:-1])),
                     node.comparators[-1]]
            pairs = [ast.copy_location(ast.Compare(a, [op], [b]), node) for a, op, b in zip(sides, node.ops, sides[1:])]
            return self.condition(ast.copy_location(ast.BoolOp(ast.And(), pairs), node))[0]     # type: ignore[arg-type]
        op = node.ops[0]
        if isinstance(op, (ast.Is, ast.IsNot)):
            return self._is(node)[0]
        if isinstance(op, (ast.In, ast.NotIn)):
            found = self._in(node)
            if isinstance(op, ast.In):
                return found
            return literal_value(not found.constant) if found.constant is not NOTHING else Value(BOOL, f"torch.__not__({found.text})")
        a, b = self.first_values([node.left, node.comparators[0]])
        return self.compared(node, COMPARED[type(op)], a, b)

    def compared(self, node: ast.AST, name: str, a: Value, b: Value) -> Value:
        """`a OPERATOR b` for one comparison."""
        own = self._own_operator(node, name, a, [b])
        if own is not None:
            return own
        if TENSOR in (a.type, b.type) and name in _TURNED:
            return self._on_tensors(node, name, a, b)
        if a.type.name == "Tuple" == b.type.name and name in ("eq", "ne"):
            return self._compared_tuples(node, name, a, b)
        made_of = self.classes.get(a.type.name)
        if made_of is not None and made_of.kind == "Enum" and a.type == b.type and name in ("eq", "ne"):
            return Value(BOOL, f"torch.{name}({a.text}, {b.text})")
        if name in ("eq", "ne") and NONE in (a.type, b.type) and may_be_none(a.type) and may_be_none(b.type):
            return Value(BOOL, f"torch.{'__is__' if name == 'eq' else '__isnot__'}({a.text}, {b.text})")
        if a.constant is not NOTHING and b.constant is not NOTHING and type(a.constant) is type(b.constant) in (bool, int, float, str):
            return literal_value(getattr(operator, name)(a.constant, b.constant))
        return self.operator(node, name, [a, b] if a.type == b.type else list(as_numbers(a, b)))

    def _compared_tuples(self, node: ast.AST, name: str, a: Value, b: Value) -> Value:
        if len(a.type.args) != len(b.type.args):
            return literal_value(name == "ne")
        a, b = self.kept(a), self.kept(b)
        text = "True"
        for at, (x, y) in enumerate(zip(a.type.args, b.type.args)):
            one = self.truth_of(self.compared(node, "eq", Value(x, f"({a.text})[{at}]"), Value(y, f"({b.text})[{at}]")), node)
            text = one.text if text == "True" else f"({one.text} if {text} else False)"
        return Value(BOOL, text if name == "eq" else f"torch.__not__({text})")

    def _in(self, node: ast.Compare) -> Value:
        of, container = self.values([node.left, node.comparators[0]])
        if isinstance(container, ModuleValue):
            return self.call_method(container, "__contains__", [self.first_class(of, node.left)], {}, node)
        key, holder = self.first_class(of, node.left), self.first_class(container, node.comparators[0])
        if holder.type.name == "Tuple":
            if holder.constant is not NOTHING and key.constant is not NOTHING:
                return literal_value(key.constant in holder.constant)
            holder = self.list_of(holder.parts or [Value(k, f"({holder.text})[{at}]") for at, k in enumerate(holder.type.args)], None)
        own = self._own_operator(node, "contains", holder, [key])
        return own or self.operator(node, "__contains__", [holder, key])

    def _ternary(self, node: ast.IfExp, hint: Type | None) -> Any:
        test, yes, no = self.condition(node.test)
        if test.constant is not NOTHING:
            self.scope.refine(yes if test.constant else no)
            return self.expr(node.body if test.constant else node.orelse, hint)
        sides = []
        for part, told in ((node.body, yes), (node.orelse, no)):
            scope = Scope(self.scope)
            scope.refine(told)
            with self.block(scope) as lines:
                sides.append((self.value(part, hint), lines))
        (a, a_lines), (b, b_lines) = sides
        kind = common(a.type, b.type, self.classes, union=True)
        assert kind is not None
        if hint is not None and a.type != b.type and is_part(kind, hint, self.classes):
            kind = hint
        texts = [v.text if v.type == kind else f"annotate({kind}, {v.text})" for v in (a, b)]
        if not a_lines and not b_lines:
            return Value(kind, f"({texts[0]} if {test.text} else {texts[1]})")
        name = self.fresh()
        self.write_if(test.text, [*a_lines, f"{name} = {texts[0]}"], [*b_lines, f"{name} = {texts[1]}"])
        return Value(kind, name, True)

    # -- containers and texts ---------------------------------------------------------------------------------------------------
    def _list(self, node: ast.List, hint: Type | None) -> Value:
        plain = without_none(hint) if hint is not None else None
        element = plain.args[0] if plain is not None and plain.name == "List" else None
        return self.list_of(self.first_values(self.spread(node.elts), [element] * len(node.elts)), hint)

    def _tuple(self, node: ast.Tuple, hint: Type | None) -> Any:
        plain = without_none(hint) if hint is not None else None
        hints = plain.args if plain is not None and plain.name == "Tuple" else ()
        found = self.values(self.spread(node.elts), hints)
        if any(isinstance(f, (ModuleValue, Known)) and not self._plain(f) for f in found):
            return Several(found)
        return self.tuple_of([self.first_class(f, n) for f, n in zip(found, node.elts)])

    @staticmethod
    def _plain(found: Any) -> bool:
        return isinstance(found, Known) and isinstance(found.obj, (dtype, device, bool, int, float, complex, str, type(None), tuple, list,
                                                                   enum.Enum, layout, memory_format))

    def spread(self, nodes: Sequence[ast.AST]) -> list[ast.AST]:
        """Expressions with what stands behind a star taken apart."""
        made: list[ast.AST] = []
        for node in nodes:
            if not isinstance(node, ast.Starred):
                made.append(node)
                continue
            found = self.expr(node.value)
            items = found.items if isinstance(found, Several) else self.elements(self.first_class(found, node), node)
            for item in items:
                name = f" {len(self.scope.names)}*"
                self.scope.names[name] = item
                made.append(ast.copy_location(ast.Name(name, ast.Load()), node))
        return made

    def elements(self, value: Value, node: ast.AST) -> list[Value]:
        """The parts of a tuple."""
        if value.parts is not None:
            return value.parts
        kinds = self.tuple_types(value.type)
        if kinds is None:
            raise self.error(node, f"a {value.type} has no fixed number of elements, and can't be taken apart here")
        held = self.kept(value)
        return [Value(kind, f"{held.text}[{at}]", True) for at, kind in enumerate(kinds)]

    def tuple_types(self, kind: Type) -> tuple[Type, ...] | None:
        """The types of a tuple's elements; None of another type."""
        made_of = self.classes.get(kind.name)
        if made_of is not None and made_of.kind == "NamedTuple":
            return tuple(made_of.attributes.values())
        return kind.args if kind.name == "Tuple" else None

    def _dict(self, node: ast.Dict, hint: Type | None) -> Value:
        plain = without_none(hint) if hint is not None else None
        wanted = plain.args if plain is not None and plain.name == "Dict" else (None, None)
        if None in node.keys:
            raise self.error(node, "dicts within dicts (**) aren't supported", NotSupportedError)
        pairs = [part for pair in zip(node.keys, node.values) for part in pair]
        found = self.first_values(pairs, wanted * len(node.keys))   # type: ignore[arg-type]
        keys, values = found[::2], found[1::2]
        if not keys:
            kind = Type("Dict", (wanted[0] or STR, wanted[1] or TENSOR))
            return Value(kind, f"annotate({kind}, {{}})")
        element = values[0].type
        for value in values[1:]:
            joined = common(element, value.type, self.classes)
            if joined is None and wanted[1] is None:
                raise self.error(node, f"Dict values must contain only a single type\nAssumed type: {element}, got: {value.type}")
            element = joined if joined is not None else element
        if wanted[1] is not None and all(is_part(v.type, wanted[1], self.classes) for v in values):
            element = wanted[1]
        if any(k.type != keys[0].type for k in keys):
            raise self.error(node, "Dict keys must contain only a single type")
        kind = Type("Dict", (keys[0].type, element))
        return Value(kind, f"annotate({kind}, {{{', '.join(f'{k.text}: {v.text}' for k, v in zip(keys, values))}}})")

    def _joined_text(self, node: ast.JoinedStr, hint: Type | None) -> Value:
        """An f-string."""
        parts: list[str] = []
        fields: list[ast.AST] = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
            elif isinstance(part, ast.FormattedValue):
                if part.format_spec is not None or part.conversion not in (-1, None):
                    raise self.error(part, "Don't support conversion or format_spec in JoinedStr", NotSupportedError)
                parts.append("{}")
                fields.append(part.value)
        found = self.first_values(fields)
        text = literal_value("".join(parts)).text
        return Value(STR, f"torch.format({', '.join([text, *(v.text for v in found)])})")

    def _comprehension(self, node: Any, hint: Type | None) -> Value:
        """`[f(x) for x in xs]`, and of dicts, as a loop."""
        if len(node.generators) != 1:
            raise self.error(node, "Only a single generator is currently supported", NotSupportedError)
        one = node.generators[0]
        if one.ifs:
            raise self.error(node, "Comprehension ifs are not supported yet", NotSupportedError)
        if one.is_async:
            raise self.error(node, "async comprehensions aren't supported", NotSupportedError)
        over = self.iterated(one.iter)
        is_dict = isinstance(node, ast.DictComp)
        plain = without_none(hint) if hint is not None else None
        wanted = plain.args if plain is not None and plain.name == ("Dict" if is_dict else "List") else ()
        name = self.fresh()
        if isinstance(over, Several):
            return self._unrolled(node, one, over, hint)
        with self.block(Scope(self.scope, loop=True)) as lines:
            head = self.loop_head(over, one.target)
            found = self.first_values([node.key, node.value], wanted) if is_dict else self.first_values([node.elt], wanted)
            kinds = [w if w is not None and is_part(v.type, w, self.classes) else v.type for v, w in zip(found, wanted or [None, None])]
            change = f"torch.{'_set_item' if is_dict else 'append'}({', '.join([name, *(v.text for v in found)])})"
            lines.append(change if is_dict else f"{self.fresh()} = {change}")
        kind = Type("Dict" if is_dict else "List", tuple(kinds))
        self.out.append(f"{name} = annotate({kind}, {'{}' if is_dict else '[]'})")
        self.out.append(head)
        self.out += [f"  {line}" for line in lines]
        return Value(kind, name, True)

    def _unrolled(self, node: Any, one: ast.comprehension, over: Several, hint: Type | None) -> Value:
        if isinstance(node, ast.DictComp):
            raise self.error(node, "a dict of what is known while compiling: write it out", NotSupportedError)
        parts = []
        for item in over.items:
            self.assign(one.target, item, one.target)
            found = self.value(node.elt)
            parts.append(self.kept(found))
        return self.list_of(parts, hint)

    # -- what is iterated -------------------------------------------------------------------------------------------------------
    def iterated(self, node: ast.AST) -> Any:
        """What a loop runs over: (text, type of elements), or Stepped, or Several."""
        return self.iterable(self.expr(node), node)

    def iterable(self, found: Any, node: ast.AST) -> Any:
        """A value, or what range, zip and enumerate make, as what a loop runs over."""
        if isinstance(found, (Stepped, Several)):
            return found
        if isinstance(found, ModuleValue):
            return Several(found.info.items(self, found, node))
        if isinstance(found, Known) and isinstance(found.obj, type) and issubclass(found.obj, enum.Enum):
            return self.list_of([self.known_value(member, node) for member in found.obj], None)
        value = self.first_class(found, node)
        kinds = self.tuple_types(value.type)
        if kinds is not None:
            return Several(list(self.elements(value, node)))
        if value.type.name == "List":
            return value
        if value.type.name == "Dict":
            return Value(Type("List", (value.type.args[0],)), f"torch.keys({value.text})")
        if value.type == STR:
            return Value(Type("List", (STR,)), f"torch.list({value.text})")
        if value.type == TENSOR:
            return Value(Type("List", (TENSOR,)), f"torch.unbind({value.text}, 0)")
        raise self.error(node, f"'{value.type}' object is not iterable")

    def stepped(self, over: Any) -> Stepped:
        """What a loop runs over, by an index."""
        if isinstance(over, Stepped):
            return over
        held = self.kept(over)
        element = held.type.args[0]
        return Stepped(f"torch.len({held.text})", lambda at: Value(element, f"{held.text}[{at}]"), element)

    def loop_head(self, over: Any, target: ast.AST) -> str:
        """The first line of a loop, whose body is being written: the target is assigned there."""
        if isinstance(over, Value) and isinstance(target, ast.Name):
            self.declare(target.id, over.type.args[0], target)
            return f"for {self.text_name(target.id)} in {over.text}:"
        if isinstance(over, Stepped) and over.item is None and isinstance(target, ast.Name):     # range
            self.declare(target.id, INT, target)
            return f"for {self.text_name(target.id)} in range({over.length}):"
        index = self.fresh()
        if isinstance(over, Value):
            self.assign(target, Value(over.type.args[0], index, True), target)
            return f"for {index} in {over.text}:"
        if over.item is None:
            self.assign(target, Value(INT, index, True), target)
            return f"for {index} in range({over.length}):"
        self.assign(target, over.item(index), target)
        return f"for {index} in range({over.length}):"

    # -- subscripts: see subscripts.py; calls: see calls.py ----------------------------------------------------------------------------
    def _subscript(self, node: ast.Subscript, hint: Type | None) -> Any:
        raise NotImplementedError

    def _call(self, node: ast.Call, hint: Type | None) -> Any:
        raise NotImplementedError

    def call_method(self, of: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], node: ast.AST) -> Value:
        """A method of a value."""
        raise NotImplementedError

    def assign(self, target: ast.AST, value: Any, node: ast.AST) -> None:
        """`target = value`."""
        raise NotImplementedError

    def declare(self, name: str, kind: Type, node: ast.AST) -> None:
        """A variable that a loop assigns."""
        raise NotImplementedError

    EXPRESSIONS: dict[type, Callable[..., Any]] = {
        ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.BinOp: _binary, ast.UnaryOp: _unary, ast.BoolOp: _truth,
        ast.Compare: lambda self, node, hint: self._compare(node), ast.IfExp: _ternary, ast.List: _list, ast.Tuple: _tuple,
        ast.Dict: _dict, ast.JoinedStr: _joined_text, ast.ListComp: _comprehension, ast.DictComp: _comprehension,
        ast.Subscript: lambda self, node, hint: self._subscript(node, hint), ast.Call: lambda self, node, hint: self._call(node, hint),
    }


_NAMES = {ast.Lambda: "Lambda", ast.Yield: "yield", ast.YieldFrom: "yield", ast.Await: "await", ast.NamedExpr: "assignments within "
          "expressions", ast.Set: "Set", ast.SetComp: "Set comprehensions", ast.GeneratorExp: "GeneratorExp", ast.Starred: "Starred"}
_METHOD_OF = {"div": "__truediv__", "remainder": "__mod__"}
_METHODS = frozenset(("tolist", "float", "double", "half", "int", "long", "short", "char", "byte", "bool", "bfloat16", "new_tensor",
                      "unique", "split", "requires_grad_", "is_same_size", "flip", "type", "expand", "view", "numpy", "norm"))


def _one_of(kinds: Sequence[Type]) -> Type:
    some = [k for k in kinds if k != NONE]
    if len(some) == len(kinds):
        return some[0] if len(some) == 1 else Type("Union", tuple(some))
    return NONE if not some else optional(some[0]) if len(some) == 1 else Type("Union", tuple(kinds))


def numbers_of(math_function: Any) -> str:
    """The operator that a function of Python's `math` is."""
    name = math_function.__name__
    return _MATH.get(name, name)


def is_math(obj: Any) -> bool:
    """Whether this is a function of `math`."""
    return callable(obj) and getattr(math, getattr(obj, "__name__", ""), None) is obj
