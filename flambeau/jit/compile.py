"""TorchScript's text as functions: each node of the syntax tree becomes a Python function of the frame, a dict of local variables.

The text is read by Python's parser and never run by Python: a name is an operator of `ops/script.py`, a class or function of the program, a
constant of the archive or a local variable, and anything else is refused with its line.
"""

from __future__ import annotations

import ast
import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from ..core.tensor import Tensor
from ..futures import settled
from ..ops import script
from ..ops.custom import CustomOperator
from .fuse import Region, regions
from .types import NONE, Type, dotted, fits, read_type, refuse
from .values import Class, Function, Parameter, ScriptObject, method, read, write
from .whole import Following

Frame = dict[str, Any]
Expression = Callable[[Frame], Any]
Statement = Callable[[Frame], "tuple | None"]      # (result,) of a return, BREAK or CONTINUE
BREAK, CONTINUE = ("break",), ("continue",)


class Error(RuntimeError):
    """What a TorchScript program raises, and what goes wrong in it."""


class Referred(Protocol):
    """What a text may refer to."""

    version: int

    @property
    def python_calls(self) -> Mapping[str, Callable]: ...
    @property
    def constants(self) -> Sequence[Any]: ...
    @property
    def classes(self) -> Mapping[str, Class]: ...
    @property
    def functions(self) -> Mapping[str, Function]: ...
    def is_instance(self, name: str, value: Any) -> bool: ...
    def custom_operator(self, name: str) -> CustomOperator: ...


NUMBERS = {"inf": math.inf, "nan": math.nan, "infj": complex(0, math.inf), "nanj": complex(0, math.nan)}
CASTS = {"int": "Int", "float": "Float", "bool": "Bool", "complex": "Complex", "str": "str"}
SIGNS: dict[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_}


def _cast(kind: Type, value: Any) -> Any:
    """`annotate(kind, value)`: a tensor becomes the number that it is said to be."""
    if isinstance(value, Tensor) and kind.name in ("int", "float", "bool", "complex"):
        return {"int": int, "float": float, "bool": bool, "complex": complex}[kind.name](value)
    return value


def _raise(text: str, kind: str = "RuntimeError", *_: Any) -> None:
    raise Error(f"The following operation failed in the TorchScript interpreter.\n{kind}: {text}")


def _invoked(obj: Expression, name: str, args: list[Expression]) -> Expression:
    """A method's call."""
    count = len(args) + 1

    def call(frame: Frame) -> Any:
        value = obj(frame)
        made_of = getattr(value, "_class", None)
        function = made_of.methods.get(name) if type(made_of) is Class else None
        if function is None:
            return method(value, name)(*[arg(frame) for arg in args])
        names = function.names
        if len(names) != count:
            return function(value, *[arg(frame) for arg in args])
        if count == 2:
            return function.run({names[0]: value, names[1]: args[0](frame)})
        return function.run(dict(zip(names, [value, *[arg(frame) for arg in args]])))

    return call


def _stored(name: str, value: Expression) -> Statement:
    def run(frame: Frame) -> None:
        frame[name] = value(frame)

    return run


def _acting(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """What does more than compute: no call of compiled code stands for it."""
    def call(*args: Any, **kwargs: Any) -> Any:
        Following.acts(f"{name} is called")
        return function(*args, **kwargs)

    return call


_PYTHONS_OWN = (IndexError, KeyError, ZeroDivisionError, ValueError, TypeError, AttributeError, OverflowError)
"""What Python raises where a program fails, which is a RuntimeError of the program."""
SPECIAL: dict[str, Callable[..., Any]] = {
    "print": _acting(script.show, "print"), "fork": settled, "awaitable": settled, "isinstance": isinstance}


def _fail(error: Exception, frame: Frame, names: set[str], where: str, line: int) -> NoReturn:
    """Raise what went wrong in a program: an error of Python's own as the program's, with the function and the line once for each frame."""
    if type(error) is KeyError and error.args and error.args[0] in names and error.args[0] not in frame:
        error = Error(f"undefined value {error.args[0]}")
    if isinstance(error, _PYTHONS_OWN):
        shown = error.args[0] if type(error) is KeyError and error.args else error
        error = RuntimeError(f"The following operation failed in the TorchScript interpreter.\n{type(error).__name__}: {shown}")
    told = error.__dict__.setdefault("_script_frames", set())
    if id(frame) not in told:
        told.add(id(frame))
        error.add_note(f"  in TorchScript, {where}, line {line}")
    raise error


class Compiler:
    """Compiles the functions of one program."""

    def __init__(self, program: Referred) -> None:
        self.program = program
        self.reads: Counter[str] = Counter()      # of names in the function that is being compiled

    # -- functions ---------------------------------------------------------------------------------------------------
    def function(self, node: ast.FunctionDef, name: str, source: str) -> Function:
        """A function of the text."""
        a = node.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or node.decorator_list:
            raise refuse(node, f"{name} has parameters that TorchScript doesn't have")
        defaults = [None] * (len(a.args) - len(a.defaults)) + [self.expression(d) for d in a.defaults]
        parameters = [Parameter(p.arg, read_type(p.annotation) if p.annotation is not None else Type("Any"), d)
                      for p, d in zip(a.args, defaults)]
        self.reads = Counter(part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load))
        body = self.block(node.body, name)

        def of_block(frame: Frame) -> Any:
            done = body(frame)
            return None if done is None else done[0]

        run: Expression = of_block
        if len(node.body) == 1 and isinstance(node.body[0], ast.Return) and node.body[0].value is not None:
            run = self.told(self.expression(node.body[0].value), name, node.body[0])
        return Function(name, parameters, read_type(node.returns) if node.returns is not None else NONE, run, source)

    # -- statements --------------------------------------------------------------------------------------------------
    def block(self, nodes: list[ast.stmt], where: str) -> Statement:
        """Statements one after the other; an error is told with the line that it came from."""
        steps = [(node.lineno, self.statement(node, where)) for node in nodes]
        for start, end in reversed(list(regions(nodes))):
            region = Region(nodes[start:end], [step for _, step in steps[start:end]], self.reads)
            steps[start:end] = [(nodes[start].lineno, region)]
        names = {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}

        if len(steps) == 1:
            return self.told(steps[0][1], where, nodes[0], names)

        def run(frame: Frame) -> tuple | None:
            line = 0
            try:
                for line, step in steps:    # noqa: B007 - an error tells it
                    done = step(frame)
                    if done is not None:
                        return done
            except Exception as error:
                _fail(error, frame, names, where, line)
            return None

        return run

    @staticmethod
    def told(step: Expression, where: str, node: ast.AST, names: set[str] | None = None) -> Expression:
        """A step by itself, whose errors are told with the line that it came from."""
        line, inside = node.lineno, names or {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}     # type: ignore[attr-defined]

        def run(frame: Frame) -> Any:
            try:
                return step(frame)
            except Exception as error:
                _fail(error, frame, inside, where, line)

        return run

    def statement(self, node: ast.stmt, where: str) -> Statement:
        compile_it = self.STATEMENTS.get(type(node))
        if compile_it is None:
            raise refuse(node, f"{type(node).__name__} is no statement of TorchScript")
        return compile_it(self, node, where)

    def _return(self, node: ast.Return, where: str) -> Statement:
        value = self.expression(node.value) if node.value is not None else lambda frame: None
        return lambda frame: (value(frame),)

    def _assign(self, node: ast.Assign, where: str) -> Statement:
        if len(node.targets) != 1:
            raise refuse(node, "one assignment has one target")
        value, store = self.expression(node.value), self.target(node.targets[0])
        if isinstance(node.targets[0], ast.Name):
            return _stored(node.targets[0].id, value)

        def run(frame: Frame) -> None:
            store(frame, value(frame))

        return run

    def _declared(self, node: ast.AnnAssign, where: str) -> Statement:
        """`name : TYPE = value`."""
        if node.value is None:
            raise refuse(node, "a variable is declared without a value")
        kind, value, store = read_type(node.annotation), self.expression(node.value), self.target(node.target)
        return lambda frame: store(frame, _cast(kind, value(frame)))

    def target(self, node: ast.expr) -> Callable[[Frame, Any], None]:
        """What is assigned to."""
        if isinstance(node, ast.Name):
            name = node.id
            return lambda frame, value: frame.__setitem__(name, value)
        if isinstance(node, ast.Attribute):
            obj, attr = self.expression(node.value), node.attr
            return lambda frame, value: write(obj(frame), attr, value)
        if isinstance(node, (ast.Tuple, ast.List)):
            parts = [self.target(part) for part in node.elts]

            def unpack(frame: Frame, values: Any) -> None:
                if not isinstance(values, (tuple, list)) or len(values) != len(parts):
                    raise RuntimeError(f"Expected {len(parts)} elements in a list or tuple but found {script.text_of(values)[:60]}")
                for part, value in zip(parts, values):
                    part(frame, value)

            return unpack
        raise refuse(node, "TorchScript assigns to names and attributes")

    def _expression_statement(self, node: ast.Expr, where: str) -> Statement:
        value = self.expression(node.value)

        def run(frame: Frame) -> None:
            value(frame)

        return run

    def _if(self, node: ast.If, where: str) -> Statement:
        test, yes, no = self.expression(node.test), self.block(node.body, where), self.block(node.orelse, where)
        return lambda frame: yes(frame) if test(frame) else no(frame)

    def _while(self, node: ast.While, where: str) -> Statement:
        test, body = self.expression(node.test), self.block(node.body, where)

        def run(frame: Frame) -> tuple | None:
            while test(frame):
                done = body(frame)
                if done is not None and done is not CONTINUE:
                    return None if done is BREAK else done
            return None

        return run

    def _for(self, node: ast.For, where: str) -> Statement:
        over, store, body = self.iterated(node.iter), self.target(node.target), self.block(node.body, where)

        def run(frame: Frame) -> tuple | None:
            for value in over(frame):
                store(frame, value)
                done = body(frame)
                if done is not None and done is not CONTINUE:
                    return None if done is BREAK else done
            return None

        return run

    def iterated(self, node: ast.expr) -> Expression:
        """`range(...)`, or a list."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            bounds = [self.expression(arg) for arg in node.args]
            return lambda frame: range(*(bound(frame) for bound in bounds))
        return self.expression(node)

    def _with(self, node: ast.With, where: str) -> Statement:
        body = self.block(node.body, where)
        for item in reversed(node.items):
            body = self._scope(item, body)
        return body

    def _scope(self, item: ast.withitem, body: Statement) -> Statement:
        manager = self.expression(item.context_expr)
        store = self.target(item.optional_vars) if item.optional_vars is not None else None

        def run(frame: Frame) -> tuple | None:
            scope = manager(frame)
            entered = method(scope, "__enter__")()
            if store is not None:
                store(frame, entered)
            try:
                return body(frame)
            finally:
                method(scope, "__exit__")(None, None, None)

        return run

    def _nested(self, node: ast.FunctionDef, where: str) -> Statement:
        """A function without parameters that is forked; it reads the variables around it."""
        if node.args.args:
            raise refuse(node, "functions within functions have no parameters")
        name, body = node.name, self.block(node.body, f"{where}.{node.name}")

        def task(frame: Frame) -> Any:
            done = body(dict(frame))
            return None if done is None else done[0]

        return lambda frame: frame.__setitem__(name, lambda: task(frame))

    def _assert(self, node: ast.Assert, where: str) -> Statement:
        test, text = self.expression(node.test), self.expression(node.msg) if node.msg is not None else lambda frame: ""

        def run(frame: Frame) -> None:
            if not test(frame):
                _raise(f"AssertionError: {text(frame)}")

        return run

    STATEMENTS: dict[type, Callable[..., Statement]] = {
        ast.Return: _return, ast.Assign: _assign, ast.AnnAssign: _declared, ast.Expr: _expression_statement, ast.If: _if,
        ast.While: _while, ast.For: _for,
        ast.With: _with, ast.FunctionDef: _nested, ast.Assert: _assert, ast.Pass: lambda self, node, where: lambda frame: None,
        ast.Break: lambda self, node, where: lambda frame: BREAK, ast.Continue: lambda self, node, where: lambda frame: CONTINUE,
    }

    # -- expressions -------------------------------------------------------------------------------------------------
    def expression(self, node: ast.expr) -> Expression:
        """What computes the value of an expression."""
        compile_it = self.EXPRESSIONS.get(type(node))
        if compile_it is None:
            raise refuse(node, f"{type(node).__name__} is no expression of TorchScript")
        return compile_it(self, node)

    def _constant(self, node: ast.Constant) -> Expression:
        value = node.value
        if not isinstance(value, (int, float, complex, str, type(None))) or script.wrapped(value) is not value:
            raise refuse(node, f"no constant of TorchScript: {str(value)[:40]}")
        return lambda frame: value

    def _complex(self, node: ast.BinOp) -> Expression:
        """`1.0+2.0j`, a number that takes two."""
        sign = {ast.Add: 1, ast.Sub: -1}.get(type(node.op))
        if sign is None or not isinstance(node.right, ast.Constant) or not isinstance(node.right.value, complex):
            raise refuse(node, "BinOp is no expression of TorchScript, but for complex numbers")
        real, imaginary = self.expression(node.left), sign * node.right.value
        return lambda frame: real(frame) + imaginary

    def _name(self, node: ast.Name) -> Expression:
        name = node.id
        if name in NUMBERS:
            number = NUMBERS[name]
            return lambda frame: frame.get(name, number)

        def load(frame: Frame) -> Any:
            try:
                return frame[name]
            except KeyError:
                raise Error(f"undefined value {name}") from None

        return load

    def _attribute(self, node: ast.Attribute) -> Expression:
        name = dotted(node)
        root = name.partition(".")[0]
        if root == "CONSTANTS":
            return self.archived(node)
        if root == "__torch__":
            return self.named(name)
        obj, attr = self.expression(node.value), node.attr
        return lambda frame: read(obj(frame), attr)

    def archived(self, node: ast.Attribute) -> Expression:
        """`CONSTANTS.c3`."""
        at = node.attr[1:]
        if dotted(node) != f"CONSTANTS.c{at}" or not at.isdecimal() or int(at) >= len(self.program.constants):
            raise refuse(node, f"{dotted(node)} is no constant of the archive, which has {len(self.program.constants)}")
        value = self.program.constants[int(at)]
        return lambda frame: value

    def named(self, name: str) -> Expression:
        """A function of the program, or a member of an enum; its class may follow in the text."""
        def load(frame: Frame) -> Any:
            found = self.program.functions.get(name)
            if found is not None:
                return found
            owner, _, member = name.rpartition(".")
            made_of = self.program.classes.get(owner)
            if made_of is not None and made_of.kind == "Enum" and member in made_of.constants:
                return made_of.python[member]
            raise Error(f"the archive has no {name}")

        return load

    def _subscript(self, node: ast.Subscript) -> Expression:
        if isinstance(node.slice, ast.Slice):
            raise refuse(node, "TorchScript's text has no slices")
        obj, at = self.expression(node.value), self.expression(node.slice)

        def item(frame: Frame) -> Any:
            values, index = obj(frame), at(frame)
            if hasattr(type(values), "script_read"):      # a list or dict of modules
                values = values._modules if isinstance(index, str) else list(values._modules.values())
            elif not isinstance(values, (list, tuple, dict, str)):
                raise Error(f"a {type(values).__name__} has no elements that an index gives")
            return values[index]

        return item

    def _many(self, nodes: Sequence[ast.expr]) -> Callable[[Frame], list]:
        parts = [self.expression(part) for part in nodes]
        return lambda frame: [part(frame) for part in parts]

    def _list(self, node: ast.List) -> Expression:
        return self._many(node.elts)

    def _tuple(self, node: ast.Tuple) -> Expression:
        parts = self._many(node.elts)
        return lambda frame: tuple(parts(frame))

    def _dict(self, node: ast.Dict) -> Expression:
        if None in node.keys:
            raise refuse(node, "TorchScript's dicts are written item by item")
        keys, values = self._many([k for k in node.keys if k is not None]), self._many(node.values)
        return lambda frame: dict(zip(keys(frame), values(frame)))

    def _unary(self, node: ast.UnaryOp) -> Expression:
        act: Callable[[Any], Any] | None = SIGNS.get(type(node.op))
        if act is None:
            raise refuse(node, f"{type(node.op).__name__} is no sign of TorchScript's text")
        if act is operator.neg and isinstance(node.operand, ast.Constant) and node.operand.value == 2**63 \
                and type(node.operand.value) is int:
            return lambda frame: -2**63
        value = self.expression(node.operand)
        return lambda frame: act(value(frame))

    def _if_expression(self, node: ast.IfExp) -> Expression:
        test, yes, no = map(self.expression, (node.test, node.body, node.orelse))
        return lambda frame: yes(frame) if test(frame) else no(frame)

    # -- calls -------------------------------------------------------------------------------------------------------
    def _call(self, node: ast.Call) -> Expression:
        name = dotted(node.func)
        if name in self.FORMS:
            return self.FORMS[name](self, node)
        found = self.callee(node, name)
        args = self._many(node.args)
        if any(k.arg is None for k in node.keywords):
            raise refuse(node, "TorchScript's calls name their arguments")
        keywords = {str(k.arg): self.expression(k.value) for k in node.keywords}
        if callable(found) and not keywords:
            return self._positional(found, node.args)
        if callable(found):
            return lambda frame: found(*args(frame), **{key: value(frame) for key, value in keywords.items()})
        dynamic = found[0]
        if isinstance(node.func, ast.Attribute) and not keywords:
            return _invoked(self.expression(node.func.value), node.func.attr, [self.expression(part) for part in node.args])
        return lambda frame: dynamic(frame)(*args(frame), **{key: value(frame) for key, value in keywords.items()})

    def _positional(self, found: Callable[..., Any], nodes: Sequence[ast.expr]) -> Expression:
        """A call of what is known: written out for few arguments, which are most, and for names and numbers among them."""
        parts = [self.expression(part) for part in nodes]
        names = [part.id if isinstance(part, ast.Name) and part.id not in NUMBERS else None for part in nodes]
        if len(parts) == 1:
            one, name = parts[0], names[0]
            return (lambda frame: found(frame[name])) if name is not None else lambda frame: found(one(frame))
        if len(parts) == 2:
            a, b = parts
            m, n = names
            if isinstance(nodes[1], ast.Constant):
                value = nodes[1].value
                return (lambda frame: found(frame[m], value)) if m is not None else lambda frame: found(a(frame), value)
            if m is not None and n is not None:
                return lambda frame: found(frame[m], frame[n])
            return (lambda frame: found(a(frame), frame[n])) if n is not None else lambda frame: found(a(frame), b(frame))
        return lambda frame: found(*[part(frame) for part in parts])

    def callee(self, node: ast.Call, name: str) -> Callable[..., Any] | tuple[Expression]:
        """What is called: a function that is known now, or (what computes it,)."""
        root, _, rest = name.partition(".")
        if not rest and root:
            return self.plain_callee(root)
        if root == "torch" and rest.startswith("autograd."):     # which torch writes so
            rest = rest.removeprefix("autograd.")
        if root == "torch" and script.allowed(rest):
            return script.function(rest, self.program.version)
        if root == "ops":
            return self.operator(node, rest)
        if root == "__torch__":
            return self.defined(name)
        if root in ("torch", "CONSTANTS"):
            raise refuse(node, f"Unknown builtin op: aten::{rest}. Could not find any similar ops to aten::{rest}")
        if isinstance(node.func, ast.Attribute):
            obj, attr = self.expression(node.func.value), node.func.attr
            return (lambda frame: method(obj(frame), attr),)
        raise refuse(node, f"{ast.unparse(node.func)[:60]} is nothing that TorchScript calls")

    def plain_callee(self, name: str) -> Callable[..., Any] | tuple[Expression]:
        """A cast, a function of Python's that TorchScript has, or a local name of a function."""
        if name in CASTS:
            return script.function(CASTS[name])
        if name in SPECIAL:
            return SPECIAL[name]

        def local(frame: Frame) -> Any:
            found = frame.get(name)
            if found is None and name in script.ON_VALUES:
                return script.function(name)
            if not isinstance(found, Function):
                raise Error(f"{name} is no function")
            return found

        return (local,)

    def operator(self, node: ast.Call, name: str) -> Callable[..., Any]:
        """`ops.prim.NAME`, `ops.aten.NAME` or a custom operator."""
        space, _, rest = name.partition(".")
        if name == "prim.RaiseException":
            return _raise
        if space == "__python__" and rest in self.program.python_calls:
            return _acting(self.program.python_calls[rest], rest)
        if space == "prim" and rest in script.PRIM:
            return script.PRIM[rest]
        if space == "aten" and script.allowed(rest):
            return script.function(rest)
        if space not in ("aten", "prim") and rest and "." not in rest:
            qualified = f"{space}::{rest}"
            return _acting(lambda *args, **kw: self.program.custom_operator(qualified)(*args, **kw), qualified)
        raise refuse(node, f"Unknown builtin op: {space}::{rest}. Could not find any similar ops to {space}::{rest}")

    def defined(self, name: str) -> Callable[..., Any]:
        """A function of the program, `CLASS.__new__`, or the class of a NamedTuple."""
        def call(*args: Any, **kwargs: Any) -> Any:
            function = self.program.functions.get(name)
            if function is not None:
                return function(*args, **kwargs)
            made_of = self.program.classes.get(name)
            if made_of is None or made_of.kind not in ("NamedTuple", "Enum"):
                raise Error(f"the archive has no function {name}")
            return made_of.python(*args, **kwargs)

        return call

    def _new(self, name: str) -> Expression:
        def make(_: Frame) -> ScriptObject:
            made_of = self.program.classes.get(name)
            if made_of is None or made_of.kind != "class":
                raise Error(f"the archive has no class {name}")
            return ScriptObject(made_of)

        return make

    def _two(self, node: ast.Call) -> tuple[ast.expr, ast.expr]:
        if len(node.args) != 2 or node.keywords:
            raise refuse(node, f"{dotted(node.func)} takes two arguments")
        return node.args[0], node.args[1]

    def _annotate(self, node: ast.Call) -> Expression:
        written, value = self._two(node)
        kind, of = read_type(written), self.expression(value)
        return lambda frame: _cast(kind, of(frame))

    def _uninitialized(self, node: ast.Call) -> Expression:
        return lambda frame: None

    def _getattr(self, node: ast.Call) -> Expression:
        of, name = self._two(node)
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            raise refuse(node, "getattr takes a name")
        obj, attr = self.expression(of), name.value
        return lambda frame: read(obj(frame), attr)

    def _isinstance(self, node: ast.Call) -> Expression:
        of, written = self._two(node)
        value = self.expression(of)
        kinds = [read_type(k) for k in (written.elts if isinstance(written, (ast.Tuple, ast.List)) else [written])]
        kinds = [Type({"list": "AnyList", "tuple": "AnyTuple"}.get(k.name, k.name), k.args) for k in kinds]
        told = self.program.is_instance
        return lambda frame: any(fits(kind, v, told) for v in [value(frame)] for kind in kinds)

    FORMS: dict[str, Callable[[Compiler, ast.Call], Expression]] = {
        "annotate": _annotate, "unchecked_cast": _annotate, "uninitialized": _uninitialized, "getattr": _getattr, "isinstance": _isinstance,
    }

    def _call_or_new(self, node: ast.Call) -> Expression:
        name = dotted(node.func)
        if name.startswith("__torch__.") and name.endswith(".__new__"):
            return self._new(name.removesuffix(".__new__"))
        return self._call(node)

    EXPRESSIONS: dict[type, Callable[..., Expression]] = {
        ast.Constant: _constant, ast.BinOp: _complex, ast.Name: _name,
        ast.Attribute: _attribute, ast.Subscript: _subscript, ast.List: _list, ast.Tuple: _tuple,
        ast.Dict: _dict, ast.UnaryOp: _unary, ast.IfExp: _if_expression, ast.Call: _call_or_new,
    }
