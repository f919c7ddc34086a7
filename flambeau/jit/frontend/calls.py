"""Calls: of Python's built-in functions, of operators, and of functions, methods and classes of the program."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import typing
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.device import device
from ...core.dtypes import DTYPES
from ...core.size import Size
from ...ops.aten import AtenOperator
from ...ops.custom import CustomOperator
from ...ops.script_types import known
from ..values import Class, Function, Parameter
from .errors import NotSupportedError, called_from
from .expressions import BINARY, AbsentOperator, ModuleValue, is_math, numbers_of
from .matching import Misfit, as_numbers, literal_value
from .naming import is_library
from .static import (
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    NONE,
    NOTHING,
    NUMBER,
    NUMBERS,
    STR,
    TENSOR,
    Bound,
    Inlined,
    Known,
    Several,
    Stepped,
    Sugar,
    Type,
    Value,
    without_none,
)
from .subscripts import Subscripts

_CASTS: dict[Any, Type] = {int: INT, float: FLOAT, bool: BOOL, complex: COMPLEX, str: STR}
_TO_DTYPE = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64", "short": "int16",
             "char": "int8", "byte": "uint8", "bool": "bool", "bfloat16": "bfloat16"}
_PLAIN_NAMES: dict[Any, str] = {
    abs: "abs", round: "round", pow: "pow", divmod: "divmod", ord: "ord", chr: "chr", hex: "hex", oct: "oct", bin: "bin", hash: "hash",
    any: "any", all: "all", sum: "sum", sorted: "sorted", len: "len", warnings.warn: "warn", device: "device",
    Size: "Size"}


def _with_arguments(partial: functools.partial, node: ast.Call) -> ast.Call:
    """The call of a `functools.partial` as the call of its function, with what it holds as constants."""
    given = {k.arg for k in node.keywords}
    held = [ast.keyword(name, ast.Constant(value)) for name, value in partial.keywords.items() if name not in given]
    call = ast.Call(node.func, [*(ast.Constant(value) for value in partial.args), *node.args], [*node.keywords, *held])
    return ast.fix_missing_locations(ast.copy_location(call, node))


class Super(Sugar):
    """`super()`."""

    def __init__(self, owner: ModuleValue, after: type) -> None:
        self.owner, self.after = owner, after

    def attribute(self, body: Any, name: str, node: ast.AST) -> Any:
        """A method of a class further up."""
        return Bound(self.owner, self.owner.info.inherited(body, name, self.after, node))


_ANSWERS = {"is_in_onnx_export": False, "is_compiling": False, "is_dynamo_compiling": False, "is_tracing": False, "is_exporting": False,
            "_get_tracing_state": False, "has_torch_function": False, "has_torch_function_unary": False,
            "has_torch_function_variadic": False, "is_scripting": True}
"""What this package's functions answer in a program."""


def _to_dtype(name: str) -> Callable[..., Value]:
    def _method(self: Calls, of: Value, node: ast.Call, hint: Type | None) -> Value:
        return Value(TENSOR, f"torch.to({of.text}, {self.known_value(DTYPES[name], node).text})")

    return _method


class Calls(Subscripts):
    """Translates calls."""

    def _call(self, node: ast.Call, hint: Type | None) -> Any:
        fn: Any = self.expr(node.func)
        if isinstance(fn, Known):
            return self._call_known(fn.obj, node, hint)
        if isinstance(fn, Bound):
            special = self._METHODS.get((fn.owner.type.name if isinstance(fn.owner, Value) else "", fn.name))
            if special is not None:
                return special(self, fn.owner, node, hint)
            held = [fn.owner]
            args, kwargs = self.arguments(node, self._hints(fn), held)
            return self.call_method(held[0], fn.name, args, kwargs, node)
        if isinstance(fn, Value):
            args, kwargs = self.arguments(node)
            if isinstance(fn, ModuleValue):
                return fn.info.called(self, fn, args, kwargs, node)
            name = "forward" if fn.type.name in self.unit.module_interfaces else "__call__"
            return self.call_method(fn, name, args, kwargs, node)
        raise self.error(node, f"{ast.unparse(node.func)} is not callable")

    def _hints(self, fn: Bound) -> list[Type | None]:
        """What empty lists and dicts are, as arguments of a method."""
        if isinstance(fn.owner, Value) and fn.owner.type.name == "List":
            return [fn.owner.type if fn.name == "extend" else fn.owner.type.args[0]] * 2
        if isinstance(fn.owner, Value) and fn.owner.type.name == "Dict":
            return [*fn.owner.type.args]
        return []

    def arguments(self, node: ast.Call, hints: Sequence[Type | None] = (), held: list[Any] | None = None) -> tuple[list[Any], dict]:
        """The arguments of a call, in order; `held` was computed before them."""
        nodes = self.spread(node.args)
        for k in node.keywords:
            if k.arg is None:
                raise self.error(k.value, "keyword-arg expansion is not supported", NotSupportedError)
        mark = len(self.out)
        found = self.values([*nodes, *(k.value for k in node.keywords)], hints)
        if held is not None and len(self.out) > mark:
            self._spill(held, mark)
        return found[:len(nodes)], {str(k.arg): v for k, v in zip(node.keywords, found[len(nodes):])}

    def plain_arguments(self, node: ast.Call, hints: Sequence[Type | None] = ()) -> tuple[list[Value], dict[str, Value]]:
        """The arguments as values of the program."""
        args, kwargs = self.arguments(node, hints)
        return [self.first_class(a, node) for a in args], {k: self.first_class(v, node) for k, v in kwargs.items()}

    # -- functions of Python ---------------------------------------------------------------------------------------------------
    def _call_known(self, obj: Any, node: ast.Call, hint: Type | None) -> Any:
        if isinstance(obj, functools.partial):
            return self._call_known(obj.func, _with_arguments(obj, node), hint)
        obj = self.unit.original(obj)
        special = self._SPECIAL.get(obj) if isinstance(obj, typing.Hashable) else None
        if special is not None:
            return special(self, node, hint)
        if self.unit.is_isinstance(obj):
            return self.condition(node)[0]
        answer = _ANSWERS.get(getattr(obj, "__name__", ""))
        if answer is not None and is_library(obj):
            return literal_value(answer)
        language = self.unit.language.get(getattr(obj, "__name__", None))
        if language is not None and language is obj:
            return self._LANGUAGE[obj.__name__](self, node, hint)
        if isinstance(obj, typing.Hashable) and obj in _PLAIN_NAMES:
            return self._operation(_PLAIN_NAMES[obj], node)
        if is_math(obj):
            return self._operation(numbers_of(obj), node)
        return self._call_program(obj, node, hint)

    def _operation(self, name: str, node: ast.Call, fn: Callable | None = None) -> Value:
        """An operator's call."""
        args, kwargs = self.plain_arguments(node)
        for at, value in enumerate(args):    # a tuple that is a list to it
            if name in ("sum", "any", "all", "sorted", "len") and value.type.name == "Tuple":
                args[at] = self.list_of(self.elements(value, node), None)
        own = self._own_operator(node, name, args[0], args[1:]) if args and args[0].type.name in self.classes else None
        if own is not None:
            return own
        if name == "abs" and args and args[0].type in NUMBERS:
            return Value(args[0].type, f"ops.prim.abs({args[0].text})")
        if name in BINARY.values() and len(args) == 2 and not kwargs and all(v.type in (*NUMBERS, BOOL) for v in args):
            return self.combined(node, name, *args)
        indices = self._taken("return_indices", name, args, kwargs, fn)
        if indices is not None and indices.constant is True:
            return self.operator(node, f"{name}_with_indices", args, kwargs, fn)
        inplace = self._taken("inplace", name, args, kwargs, fn)
        into = kwargs.pop("out", None) if fn is not None and "out" in inspect.signature(fn).parameters else None
        made = self.operator(node, name, args, kwargs, fn)
        if into is not None:
            return Value(made.type, f"{made.text[:-1]}, out={into.text})")
        return made if inplace is None else self._in_place(made, name, args, kwargs, fn, inplace, node)

    @staticmethod
    def _taken(flag: str, name: str, args: list[Value], kwargs: dict[str, Value], fn: Callable | None) -> Value | None:
        """The argument `flag`, which operators have here and of which ATen makes another operator, taken from the others."""
        names = list(inspect.signature(fn).parameters) if fn is not None else []
        if flag not in names or any(a.name == flag for s in known(name) for a in s.arguments):
            return None
        at = names.index(flag)
        return args.pop(at) if len(args) > at else kwargs.pop(flag, None)

    def _in_place(self, made: Value, name: str, args: list[Value], kwargs: dict, fn: Any, inplace: Value, node: ast.AST) -> Value:
        """`fn(x, inplace=...)`."""
        changed = Value(made.type, made.text.replace(f"torch.{name}(", f"torch.{name}_(", 1))
        if inplace.constant is not NOTHING:
            return changed if inplace.constant else made
        return Value(made.type, f"({changed.text} if {inplace.text} else {made.text})")

    def _call_program(self, obj: Any, node: ast.Call, hint: Type | None) -> Any:
        """An operator, a function or a class that the user has."""
        form = self.unit.form(obj)
        if form is not None:
            return self._function(form, node)
        operator = getattr(obj, "_operator", None)
        if isinstance(obj, CustomOperator):
            return self._custom(obj, node)
        if isinstance(obj, AbsentOperator):
            args, kwargs = self.plain_arguments(node)
            texts = [*(a.text for a in args), *(f"{k}={v.text}" for k, v in kwargs.items())]
            return Value(TENSOR, f"ops.{obj.namespace}.{obj.name}({', '.join(texts)})")
        if isinstance(obj, AtenOperator):
            return self._operation(obj.__name__, node)
        if operator is not None:
            return self._operation(operator.name, node, obj)
        if isinstance(obj, type):
            return self._make(obj, node)
        if is_library(obj) and known(obj.__name__):
            return self._operation(obj.__name__, node, obj)
        if callable(obj) and (hasattr(obj, "__code__") or self.unit.is_scripted(obj)):
            return self._function(obj, node)
        name = getattr(obj, "__name__", "")
        if name and known(name):
            return self._operation(name, node)
        raise self.error(node, f"Python builtin {obj!r} is currently not supported in Torchscript")

    def _function(self, fn: Callable, node: ast.Call) -> Value:
        args, kwargs = self.arguments(node)
        with called_from(getattr(fn, "__name__", "?"), self.source, node, self.where):
            function, text = self.unit.function(self, fn, args, kwargs, node)
        if isinstance(text, Inlined):
            return Value(function.returns, text)
        return self.call_function(function, text, [], args, kwargs, node)

    def _custom(self, op: CustomOperator, node: ast.Call) -> Value:
        args, kwargs = self.plain_arguments(node)
        try:
            found = self.converter.matched(op._schema, args, kwargs, True)
        except Misfit as misfit:
            raise self.error(node, f"{misfit}\nThe original call is") from None
        return Value(found.result, f"ops.{op.namespace}.{op.__name__}({', '.join(found.arguments)})")

    def _make(self, cls: type, node: ast.Call) -> Value:
        """An instance of a class of the program."""
        kind = self.unit.type_of_class(cls)
        made_of: Class | None = self.classes.get(kind.name) if kind is not None else None
        if kind is None or made_of is None or made_of.kind in ("Module", "ModuleInterface", "Interface"):
            raise self.error(node, f"class {cls.__name__} is none that TorchScript can make an instance of")
        if made_of.kind == "Enum":
            raise self.error(node, "members of an enum are named, as in Color.RED: they aren't made of values", NotSupportedError)
        if made_of.kind == "NamedTuple":
            return self._named_tuple(cls, kind, made_of, node)
        name = self.fresh()
        args, kwargs = self.arguments(node)
        self.out.append(f"{name} = {kind.name}.__new__({kind.name})")
        made = Value(kind, name, True)
        called = self.call_method(made, "__init__", args, kwargs, node)
        self.out.append(f"{self.fresh()} = {called.text}")
        return made

    def _named_tuple(self, cls: Any, kind: Type, made_of: Class, node: ast.Call) -> Value:
        args, kwargs = self.plain_arguments(node, list(made_of.attributes.values()))
        given = dict(zip(made_of.attributes, args)) | kwargs
        texts = []
        for name, wanted in made_of.attributes.items():
            if name not in given and name in cls._field_defaults:
                given[name] = self.known_value(cls._field_defaults[name], node)
            if name not in given:
                raise self.error(node, f"Argument {name} not provided")
            texts.append(self.converted(given[name], wanted, node, f"Expected a value of type '{{kind}}' for argument '{name}' but instead "
                                        "found type '{found}'", True).text)
        return Value(kind, f"{kind.name}({', '.join(texts)})")

    # -- functions and methods of the program -------------------------------------------------------------------------------------
    def call_function(self, function: Function, text: str, before: list[str], args: Sequence[Any], kwargs: Mapping[str, Any],
                      node: ast.AST) -> Value:
        """A call with arguments of the types that the function declares."""
        parameters = function.parameters[len(before):]
        if len(args) > len(parameters):
            raise self.error(node, f"{function.name}() expected at most {len(parameters)} arguments but found {len(args)} positional "
                                   "arguments")
        texts: list[str] = []
        skipped = False
        for p, value in self.bound(function, parameters, args, kwargs, node):
            if value is None:
                skipped = True
            else:
                texts.append(f"{self.unit.text_of_parameter(p.name)}={value.text}" if skipped else value.text)
        return Value(function.returns, f"{text}({', '.join([*before, *texts])})")

    def bound(self, function: Function, parameters: Sequence[Parameter], args: Sequence[Any], kwargs: Mapping[str, Any],
              node: ast.AST) -> list[tuple[Parameter, Value | None]]:
        """Each parameter with the argument that it gets, of its type; None where its default is taken."""
        given = dict(zip([p.name for p in parameters], args))
        for key, value in kwargs.items():
            if key in given or not any(p.name == key for p in parameters):
                raise self.error(node, f"{function.name}(): Unknown keyword argument '{key}'" if key not in given
                                 else f"{function.name}(): argument {key} specified twice")
            given[key] = value
        found: list[tuple[Parameter, Value | None]] = []
        for p in parameters:
            if p.name not in given and p.default is None:
                raise self.error(node, f"{function.name}(): Argument {p.name} not provided")
            found.append((p, None if p.name not in given else self.converted(
                self.first_class(given[p.name], node), p.type, node,
                f"{function.name}() Expected a value of type '{{kind}}' for argument '{p.name}' but instead found type '{{found}}'", True)))
        return found

    def call_method(self, of: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], node: ast.AST) -> Value:
        """`of.name(...)`."""
        if isinstance(of, ModuleValue):
            with called_from(f"{of.info.short}.{name}", self.source, node, self.where):
                function = of.info.method(self, of, name, args, kwargs, node)
            return self._on(of, function, args, kwargs, node) if isinstance(function, Function) else function
        value = self.first_class(of, node)
        plain_args = [self.first_class(a, node) for a in args]
        plain_kwargs = {k: self.first_class(v, node) for k, v in kwargs.items()}
        made_of = self.classes.get(value.type.name)
        if made_of is not None:
            with called_from(f"{made_of.short}.{name}", self.source, node, self.where):
                found = self.unit.method(made_of, name)
            if found is None:
                raise self.error(node, f"Tried to access nonexistent attribute or method '{name}' of type '{value.type}'")
            return self._on(value, found, plain_args, plain_kwargs, node)
        if value.type.name in ("Optional", "Union", "Any", "Tuple") or (value.type == TENSOR and not known(name)):
            raise self.error(node, f"'{value.type}' object has no attribute or method '{name}'")
        return self.operator(node, name, [value, *plain_args], plain_kwargs)

    def _on(self, of: Value, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], node: ast.AST) -> Value:
        made = self.call_function(Function(function.name, function.parameters[1:], function.returns, function.run, ""),
                                  f"({of.text}).{function.name.rpartition('.')[2]}", [], args, kwargs, node)
        return made

    # -- built-in functions ------------------------------------------------------------------------------------------------------------
    def _range(self, node: ast.Call, hint: Type | None) -> Stepped:
        args = []
        for at, value in enumerate(self.first_values(self.spread(node.args))):
            if value.type not in (INT, NUMBER, TENSOR):
                raise self.error(node, f"all inputs of range must be ints, found {value.type} in argument {at}")
            args.append(self.converter.converted(value, INT, True))
        if not 1 <= len(args) <= 3:
            raise self.error(node, f"range expected 1 to 3 arguments, got {len(args)}")
        return Stepped(", ".join(a.text for a in args), None, INT)

    def by_index(self, over: Any) -> Stepped:
        """What a loop runs over, with its elements by an index that counts from 0."""
        if isinstance(over, Stepped) and over.item is None:
            bounds = over.length.split(", ") if over.length.count("(") == 0 else [over.length]
            if len(bounds) == 1:
                return Stepped(over.length, lambda at: Value(INT, at, True), INT)
            low, high, step = (bounds + ["1"])[:3]
            count = f"torch.__range_length({low}, {high}, {step})"
            return Stepped(count, lambda at: Value(INT, f"torch.__derive_index({at}, {low}, {step})"), INT)
        return self.stepped(over)

    def _enumerate(self, node: ast.Call, hint: Type | None) -> Any:
        over = self.iterated(node.args[0])
        start_node = node.args[1] if len(node.args) > 1 else node.keywords[0].value if node.keywords else None
        start = self.value(start_node) if start_node is not None else literal_value(0)
        if isinstance(over, Several):
            if not isinstance(start.constant, int):
                raise self.error(node, "enumerate of a fixed number of elements starts at a known number")
            return Several([Several([literal_value(start.constant + at), item]) for at, item in enumerate(over.items)])
        one = self.by_index(over)

        def item(at: str) -> Several:
            count = Value(INT, at, True) if start.constant == 0 else Value(INT, f"torch.add({at}, {start.text})")
            return Several([count, one.item(at)])

        return Stepped(one.length, item, Type("Tuple", (INT, one.type)))

    def _zip(self, node: ast.Call, hint: Type | None) -> Any:
        overs = [self.iterated(part) for part in self.spread(node.args)]
        fixed = [len(over.items) for over in overs if isinstance(over, Several)]
        if fixed:
            columns = [over.items if isinstance(over, Several) else over.parts if isinstance(over, Value) else None for over in overs]
            if None in columns:
                raise self.error(node, "Can not iterate over a module list or tuple with a value that does not have a statically "
                                       "determinable length")
            return Several([Several(list(row)) for row in zip(*columns)])
        steps = [self.by_index(over) for over in overs]
        lengths = [s.length for s in steps]
        length = lengths[0] if len(lengths) == 1 else f"ops.prim.min([{', '.join(lengths)}])"
        return Stepped(length, lambda at: Several([s.item(at) for s in steps]), Type("Tuple", tuple(s.type for s in steps)))

    def _reversed(self, node: ast.Call, hint: Type | None) -> Any:
        over = self.iterated(node.args[0])
        if isinstance(over, Several):
            return Several(over.items[::-1])
        if isinstance(over, Value):
            return Value(over.type, f"torch.slice({over.text}, None, None, -1)")
        one = self.by_index(over)
        return Stepped(one.length, lambda at: one.item(f"torch.sub(torch.sub({one.length}, 1), {at})"), one.type)

    def _len(self, node: ast.Call, hint: Type | None) -> Value:
        found = self.expr(node.args[0])
        if isinstance(found, Several):
            return literal_value(len(found.items))
        if isinstance(found, ModuleValue):
            return found.info.length(self, found, node)
        value = self.first_class(found, node)
        kinds = self.tuple_types(value.type)
        if kinds is not None:
            return literal_value(len(kinds))
        return self._own_operator(node, "len", value, []) or self.operator(node, "len", [value])

    def _print(self, node: ast.Call, hint: Type | None) -> Value:
        return Value(NONE, f"print({', '.join(v.text for v in self.plain_arguments(node)[0])})")

    def _list_call(self, node: ast.Call, hint: Type | None) -> Value:
        if not node.args:
            return self.list_of([], hint)
        over = self.iterated(node.args[0])
        if isinstance(over, Several):
            return self.list_of([self.first_class(item, node) for item in over.items], hint)
        if isinstance(over, Value):
            return Value(over.type, f"torch.list({over.text})")
        name = self.fresh()
        with self.block() as lines:
            index = self.fresh()
            one = self.by_index(over)
            item = self.first_class(one.item(index), node)
            lines.append(f"{self.fresh()} = torch.append({name}, {item.text})")
        kind = Type("List", (item.type,))
        self.out += [f"{name} = annotate({kind}, [])", f"for {index} in range({one.length}):", *(f"  {line}" for line in lines)]
        return Value(kind, name, True)

    def _tuple_call(self, node: ast.Call, hint: Type | None) -> Any:
        found = self.expr(node.args[0]) if node.args else Several([])
        over = self.iterable(found, node)
        if not isinstance(over, Several):
            raise self.error(node, "a tuple has a fixed number of elements: a list can't be made one", NotSupportedError)
        return self.tuple_of([self.first_class(item, node) for item in over.items])

    def _dict_call(self, node: ast.Call, hint: Type | None) -> Value:
        if node.args:
            found = self.expr(node.args[0])
            if isinstance(found, Value) and found.type.name == "Dict":
                return self.operator(node, "dict", [found])
            over = self.iterable(found, node)
            plain = without_none(hint) if hint is not None else None
            if isinstance(over, Several) and not over.items:
                return self._dict(ast.copy_location(ast.Dict([], []), node), plain)
            return self._dict_of_pairs(over, node)
        literal = ast.Dict([ast.copy_location(ast.Constant(k.arg), node) for k in node.keywords], [k.value for k in node.keywords])
        return self._dict(ast.copy_location(literal, node), hint)

    def _dict_of_pairs(self, over: Any, node: ast.Call) -> Value:
        if isinstance(over, Several):
            pairs = [[self.first_class(p, node) for p in (item.items if isinstance(item, Several) else self.elements(item, node))]
                     for item in over.items]
            kind = Type("Dict", (pairs[0][0].type, pairs[0][1].type))
            return Value(kind, f"annotate({kind}, {{{', '.join(f'{k.text}: {v.text}' for k, v in pairs)}}})")
        name, one = self.fresh(), self.by_index(over)
        with self.block() as lines:
            index = self.fresh()
            item = one.item(index)
            key, value = item.items if isinstance(item, Several) else self.elements(item, node)
            lines.append(f"torch._set_item({name}, {key.text}, {value.text})")
        kind = Type("Dict", (key.type, value.type))
        self.out += [f"{name} = annotate({kind}, {{}})", f"for {index} in range({one.length}):", *(f"  {line}" for line in lines)]
        return Value(kind, name, True)

    def _least(self, node: ast.Call, hint: Type | None) -> Value:
        name = node.func.id if isinstance(node.func, ast.Name) else "min"
        found = self.values(self.spread(node.args))
        args = [self.first_class(f, node) for f in found]
        if len(args) == 1 and args[0].type.name == "Tuple":
            args = self.elements(args[0], node)
        if len(args) == 1:
            value = args[0]
            if value.type == TENSOR:
                return self.operator(node, name, args)
            if value.type.name != "List" or value.type.args[0] not in (INT, FLOAT, BOOL):
                raise self.error(node, f"Arguments for call are not valid: {name}({value.type})")
            return Value(value.type.args[0], f"ops.prim.{name}({value.text})")
        made = args[0]
        for other in args[1:]:
            made = self._lesser(name, made, other, node)
        return made

    def _lesser(self, name: str, a: Value, b: Value, node: ast.AST) -> Value:
        if a.type == b.type == TENSOR:
            return self.operator(node, name, [a, b])
        if TENSOR in (a.type, b.type):      # the tensor becomes a number
            kind = b.type if a.type == TENSOR else a.type
            a, b = (self.converter.converted(v, kind, True) for v in (a, b))
        a, b = as_numbers(a, b)
        if a.type in NUMBERS and b.type in NUMBERS:
            return Value(NUMBERS[max(NUMBERS.index(a.type), NUMBERS.index(b.type))], f"ops.prim.{name}({a.text}, {b.text})")
        if a.type == b.type and a.type.name == "List":
            return Value(a.type, f"ops.prim.{name}({a.text}, {b.text})")
        raise self.error(node, f"Arguments for call are not valid: {name}({a.type}, {b.type})")

    def _hasattr(self, node: ast.Call, hint: Type | None) -> Value:
        of, name = self.expr(node.args[0]), self.value(node.args[1]).constant
        if isinstance(of, ModuleValue):
            return literal_value(of.info.has(name))
        if isinstance(of, Known):
            return literal_value(hasattr(of.obj, name))
        value = self.first_class(of, node)
        made_of = self.classes.get(value.type.name)
        if made_of is None:
            raise self.error(node, f"hasattr's first argument must be an object, got {value.type}")
        return literal_value(name in made_of.attributes or self.unit.member(made_of, name) is not None)

    def _getattr(self, node: ast.Call, hint: Type | None) -> Any:
        of, name = self.expr(node.args[0]), self.value(node.args[1]).constant
        if not isinstance(name, str):
            raise self.error(node, "getattr's second argument must be a string literal")
        if len(node.args) == 3 and isinstance(of, ModuleValue) and not of.info.has(name):
            return self.expr(node.args[2], hint)
        return self.attribute(of, name, node)

    def _super(self, node: ast.Call, hint: Type | None) -> Super:
        owner = self.scope.find("self")
        after = self.names.get("__class__")
        if node.args:
            after = getattr(self.expr(node.args[0]), "obj", None)
        if not isinstance(owner, ModuleValue) or not isinstance(after, type):
            raise self.error(node, "super() stands in methods of modules", NotSupportedError)
        return Super(owner, after)

    # -- the language's own ------------------------------------------------------------------------------------------------------------
    def _annotate(self, node: ast.Call, hint: Type | None) -> Value:
        if len(node.args) != 2:
            raise self.error(node, "annotate takes a type and a value")
        kind = self.type_at(node.args[0], node.args[0])
        return self.annotated(self.value(node.args[1], kind), kind, node)

    def annotated(self, value: Value, kind: Type, node: ast.AST) -> Value:
        """A value that is said to be of a type."""
        made = self.converted(value, kind, node, "expected an expression of type {kind} but found {found}")
        return made if made.type == kind else Value(kind, f"annotate({kind}, {made.text})")

    def _fork(self, node: ast.Call, hint: Type | None) -> Value:
        inner = ast.copy_location(ast.Call(node.args[0], node.args[1:], node.keywords), node)
        with self.block() as lines:
            value = self.value(inner)
        name = f"forked_{self.fresh().strip('_')}"
        self.out += [f"def {name}():", *(f"  {line}" for line in lines), f"  return {value.text}"]
        return Value(Type("Future", (value.type,)), f"fork({name})")

    def _wait(self, node: ast.Call, hint: Type | None) -> Value:
        return self.operator(node, "wait", self.plain_arguments(node)[0])

    # -- methods that are no operators ----------------------------------------------------------------------------------------------------
    def _tolist(self, of: Value, node: ast.Call, hint: Type | None) -> Value:
        if hint is None:
            raise self.error(node, "Expected type hint for result of tolist(), as in `x: List[int] = t.tolist()`")
        return Value(hint, f"annotate({hint}, {of.text if of.simple else f'({of.text})'}.tolist())")

    def _new_tensor(self, of: Value, node: ast.Call, hint: Type | None) -> Value:
        args, kwargs = self.plain_arguments(node)
        made = {"dtype": f"ops.prim.dtype({of.text})", "device": f"ops.prim.device({of.text})"} | {k: v.text for k, v in kwargs.items()}
        return Value(TENSOR, f"torch.tensor({', '.join([args[0].text, *(f'{k}={v}' for k, v in made.items())])})")

    def _text_format(self, of: Value, node: ast.Call, hint: Type | None) -> Value:
        args, kwargs = self.plain_arguments(node)
        if kwargs:
            raise self.error(node, "format takes no names of fields", NotSupportedError)
        return Value(STR, f"torch.format({', '.join([of.text, *(a.text for a in args)])})")

    def _type_of_tensor(self, of: Value, node: ast.Call, hint: Type | None) -> Value:
        args, _ = self.plain_arguments(node)
        return self.operator(node, "to", [of, *args])

    def _waits(self, of: Value, node: ast.Call, hint: Type | None) -> Value:
        return self.operator(node, "wait", [of])

    _METHODS: dict[tuple[str, str], Callable[..., Value]] = {
        ("Tensor", "tolist"): _tolist, ("Tensor", "new_tensor"): _new_tensor, ("str", "format"): _text_format,
        ("Tensor", "type"): _type_of_tensor, ("Future", "wait"): _waits,
    }

    _LANGUAGE: dict[str, Callable[..., Any]] = {
        "annotate": _annotate, "fork": _fork, "_fork": _fork, "wait": _wait, "_wait": _wait,
    }

    _SPECIAL: dict[Any, Callable[..., Any]] = {
        builtins.range: _range, builtins.enumerate: _enumerate, builtins.zip: _zip, builtins.reversed: _reversed, builtins.len: _len,
        builtins.print: _print, builtins.list: _list_call, builtins.tuple: _tuple_call, builtins.dict: _dict_call, OrderedDict: _dict_call,
        builtins.min: _least,
        builtins.max: _least, builtins.hasattr: _hasattr, builtins.getattr: _getattr, builtins.super: _super, typing.cast: _annotate,
    }


def _cast_call(cls: type) -> Callable[..., Value]:
    kind = _CASTS[cls]

    def _made(self: Calls, node: ast.Call, hint: Type | None) -> Value:
        args, _ = self.plain_arguments(node)
        if not args and cls is not complex:
            return literal_value(cls())
        value = args[0]
        if len(args) == 2 and cls is complex:
            return Value(COMPLEX, f"torch.Complex({args[0].text}, {args[1].text})")
        own = self._own_operator(node, {STR: "str", INT: "int", FLOAT: "float"}.get(kind, "bool"), value, [])
        if own is not None:
            return own
        if kind == STR:
            return Value(STR, f"str({value.text})")
        if value.type == kind:
            return value
        members = value.type.args if value.type.name == "Union" else (value.type,)
        if any(member not in (*NUMBERS, BOOL, TENSOR, STR) for member in members):
            raise self.error(node, f"Arguments for call are not valid: {kind}({value.type})")
        return Value(kind, f"{kind}({value.text})")

    return _made


Calls._METHODS.update({("Tensor", name): _to_dtype(kind) for name, kind in _TO_DTYPE.items()})
Calls._SPECIAL.update({cls: _cast_call(cls) for cls in _CASTS})
