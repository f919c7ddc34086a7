"""Statements of Python as TorchScript's text, and functions as a whole."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ..values import Function
from .calls import Calls
from .errors import NotSupportedError, SourceText, UnsupportedNodeError
from .expressions import BINARY, ModuleValue
from .matching import Misfit
from .scopes import Missing, Scope, Variable, join
from .static import NONE, NOTHING, STR, TENSOR, Known, Several, Sugar, Type, Value, common, is_part

_RETURN = "\0return"
_IN_PLACE = {"add": "add_", "sub": "sub_", "mul": "mul_", "div": "div_", "__and__": "__iand__", "__or__": "__ior__", "__xor__": "__ixor__",
             "pow": "pow_", "remainder": "remainder_", "floordiv": "floor_divide_", "__lshift__": "__ilshift__",
             "__rshift__": "__irshift__"}


class Statements(Calls):
    """Translates the statements of one function."""

    def __init__(self, unit: Any, source: SourceText, names: Mapping[str, Any], where: str) -> None:
        super().__init__(unit, source, names, where)
        self.declared: Type | None = None      # of what the function returns
        self.returned: Type | None = None
        self.loops: list[Scope] = []

    def statements(self, nodes: list[ast.stmt]) -> None:
        """Statements one after the other; what comes after one that ends the block is left out."""
        for node in nodes:
            if self.scope.exits:
                return
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        """One statement."""
        translate = self.STATEMENTS.get(type(node))
        if translate is None:
            shown = {ast.Try: "try blocks", ast.FunctionDef: "function definitions", ast.ClassDef: "class definitions",
                     ast.Import: "import statements", ast.ImportFrom: "import statements", ast.Global: "global variables",
                     ast.Nonlocal: "nonlocal variables", ast.AsyncFor: "async statements"}
            raise self.error(node, f"{shown.get(type(node), type(node).__name__)} aren't supported", UnsupportedNodeError)
        translate(self, node)

    # -- names ------------------------------------------------------------------------------------------------------------
    def declare(self, name: str, kind: Type, node: ast.AST, annotated: Type | None = None) -> None:
        """A variable is of a type from here on."""
        outer = self.scope.outer(name)
        if isinstance(outer, Variable) and not is_part(kind, outer.type, self.classes):
            raise self.error(node, f"Variable '{name}' previously had type {outer.type} but is now being assigned to a value of type "
                                   f"{kind}")
        previous = self.scope.names.get(name)
        if isinstance(previous, Variable) and previous.annotated is not None:
            annotated = annotated or (previous.annotated if is_part(kind, previous.annotated, self.classes) else None)
        self.scope.names[name] = Variable(self.text_name(name), kind, kind, annotated)

    def assign(self, target: ast.AST, value: Any, node: ast.AST, annotated: Type | None = None) -> None:
        """`target = value`."""
        if isinstance(target, ast.Name):
            self._assign_name(target, value, annotated)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, node)
        elif isinstance(target, ast.Attribute):
            self._assign_attribute(target, value)
        elif isinstance(target, ast.Subscript):
            of = self.first_class(self.expr(target.value), target)
            self.write_item(of, self.index_of(target), self.first_class(value, node), target)
        else:
            raise self.error(target, f"{type(target).__name__} can't be assigned to", NotSupportedError)

    def _assign_name(self, target: ast.Name, value: Any, annotated: Type | None) -> None:
        if isinstance(value, Known) and self._plain(value):
            value = self.first_class(value, target)
        if isinstance(value, (Sugar, ModuleValue)):
            if isinstance(self.scope.outer(target.id), Variable):
                raise self.error(target, f"Cannot re-assign '{target.id}' to a value of type {type(value).__name__.lower()} in a block")
            self.scope.names[target.id] = value
            return
        known, outer = self.scope.find(target.id), self.scope.outer(target.id)
        wanted = known.annotated if isinstance(known, Variable) else None
        if wanted is None and isinstance(outer, Variable) and not is_part(value.type, outer.type, self.classes):
            wanted = outer.type
        if wanted is not None:
            with suppress(Misfit):      # `declare` says what is wrong
                value = self.converter.converted(value, wanted, known is not None and known.annotated is not None)
        self.declare(target.id, value.type, target, annotated)
        self.scope.names[target.id].fields = value.fields
        name = self.text_name(target.id)
        if value.text != name:
            declared = f" : {annotated}" if annotated is not None and annotated.name == "Union" else ""     # `annotate` keeps the narrower type
            self.out.append(f"{name}{declared} = {value.text}")

    def _assign_attribute(self, target: ast.Attribute, value: Any) -> None:
        of = self.expr(target.value)
        if not isinstance(of, (ModuleValue, Value)):
            raise self.error(target, "attributes of what is no object can't be set")
        made = self.first_class(value, target)
        if isinstance(of, ModuleValue):
            kind = of.info.settable(self, target.attr, target)
        else:
            made_of = self.classes.get(of.type.name)
            if made_of is None or made_of.kind == "NamedTuple":
                raise self.error(target, f"Tried to set an attribute of a {of.type}")
            kind = self.unit.attribute_to_set(self, made_of, target, made)
        made = self.converted(made, kind, target, f"Wrong type for attribute assignment. Expected {kind} but got {{found}}")
        self.out.append(f"{of.text if of.simple or isinstance(of, ModuleValue) else f'({of.text})'}.{target.attr} = {made.text}")

    def _unpack(self, target: ast.Tuple | ast.List, value: Any, node: ast.AST) -> None:
        items = self._items(target, value, node)
        if items is None:       # a list, whose length is told when it runs
            element = value.type.args[0]
            if any(isinstance(t, ast.Starred) for t in target.elts):
                raise self.error(target, "a list can't be unpacked with a star", NotSupportedError)
            names = [self.fresh() for _ in target.elts]
            self.out.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {value.text}")
            items = [Value(element, name, True) for name in names]
        star = next((at for at, t in enumerate(target.elts) if isinstance(t, ast.Starred)), None)
        if star is not None:
            rest = len(items) - len(target.elts) + 1
            if rest < 0:
                raise self.error(target, f"need at least {len(target.elts) - 1} values to unpack, got {len(items)}")
            items = [*items[:star], Several(items[star:star + rest]), *items[star + rest:]]
        if len(items) != len(target.elts):
            raise self.error(target, f"Provided values {len(items)}, but {len(target.elts)} are expected to be unpacked")
        for part, item in zip(target.elts, items):
            if isinstance(part, ast.Starred):
                item = self.tuple_of([self.first_class(i, node) for i in item.items])
                part = part.value
            self.assign(part, item, node)

    def _items(self, target: ast.Tuple | ast.List, value: Any, node: ast.AST) -> list[Any] | None:
        if isinstance(value, Several):
            return [self.kept(item) if type(item) is Value else item for item in value.items]
        if isinstance(value, Known) and not self._plain(value):
            raise self.error(node, "cannot be unpacked")
        one = self.first_class(value, node)
        if one.type.name == "List" and one.parts is None:
            return None
        if one.type == TENSOR:
            raise self.error(node, "Provided Tensor cannot be used as a tuple: unbind it")
        kinds = self.tuple_types(one.type)
        if kinds is None and one.parts is None:
            raise self.error(node, f"cannot be used as a tuple: {one.type}")
        plain = all(isinstance(t, ast.Name) for t in target.elts)
        if one.parts is None and plain and kinds is not None and len(kinds) == len(target.elts):
            names = [self.fresh() for _ in kinds]
            self.out.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {one.text}")
            return [Value(kind, name, True) for kind, name in zip(kinds, names)]
        targets = {self.text_name(t.id) for t in ast.walk(target) if isinstance(t, ast.Name)}
        made = []
        for part in self.elements(one, node):
            if part.simple and part.constant is NOTHING and part.text in targets:       # a, b = b, a
                name = self.fresh()
                self.out.append(f"{name} = {part.text}")
                part = Value(part.type, name, True)
            made.append(self.kept(part))
        return made

    # -- each kind of statement ---------------------------------------------------------------------------------------------
    def _assignment(self, node: ast.Assign) -> None:
        hint = None
        if node.type_comment is not None:
            hint = self.type_at(node.type_comment, node)
        first = node.targets[0]
        if hint is None and isinstance(first, ast.Attribute):
            hint = self._attribute_hint(first)
        if hint is None and isinstance(first, ast.Name) and isinstance(self.scope.find(first.id), Variable):
            found = self.scope.find(first.id)
            hint = found.annotated or found.type
        value: Any = self.expr(node.value, hint)
        if node.type_comment is not None and hint is not None:
            value = self.annotated(self.first_class(value, node), hint, node)
        if len(node.targets) > 1 and isinstance(value, Value):
            value = self.kept(value)
        for target in node.targets:
            self.assign(target, value, node, hint if node.type_comment is not None else None)

    def _attribute_hint(self, target: ast.Attribute) -> Type | None:
        of = self.expr(target.value)
        if isinstance(of, ModuleValue):
            return of.info.cls.attributes.get(target.attr)
        made_of = self.classes.get(of.type.name) if isinstance(of, Value) else None
        return made_of.attributes.get(target.attr) if made_of is not None else None

    def _annotated_assignment(self, node: ast.AnnAssign) -> None:
        kind = self.type_at(node.annotation, node.annotation)
        if node.value is None:
            raise self.error(node, "variables are declared with a value")
        value = self.annotated(self.value(node.value, kind), kind, node)
        if isinstance(node.target, ast.Attribute):
            of = self.expr(node.target.value)
            if isinstance(of, Value) and not isinstance(of, ModuleValue) and of.type.name in self.classes:
                self.unit.attribute_to_set(self, self.classes[of.type.name], node.target, value)
        self.assign(node.target, value, node, kind)

    def _augmented(self, node: ast.AugAssign) -> None:
        name = BINARY.get(type(node.op))
        if name is None:
            raise self.error(node, f"unsupported kind of augmented assignment: {type(node.op).__name__}", NotSupportedError)
        target = node.target
        if isinstance(target, ast.Subscript):
            of = self.kept(self.first_class(self.expr(target.value), target))
            if of.type == TENSOR:
                self._augmented_view(node, name, of, target)
                return
            key = self.kept(self.value(target.slice))
            old = self.item(of, _named(self, key, target), target)
            self.write_item(of, _named(self, key, target), self._changed(node, name, old, self.value(node.value)), target)
            return
        read = ast.copy_location(ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else ast.Attribute(
            target.value, target.attr, ast.Load()), target)
        old, new = self.first_values([read, node.value], [None, self._hint_of(read)])
        self.assign(target, self._changed(node, name, old, new), node)

    def _hint_of(self, node: ast.AST) -> Type | None:
        if isinstance(node, ast.Name):
            found = self.scope.find(node.id)
            return found.type if isinstance(found, Variable) else None
        return self._attribute_hint(node) if isinstance(node, ast.Attribute) else None

    def _changed(self, node: ast.AST, name: str, old: Value, new: Value) -> Value:
        """What `old OPERATOR= new` gives: tensors and lists are changed in place."""
        if old.type == TENSOR and name in _IN_PLACE:
            return self.operator(node, _IN_PLACE[name], [old, new])
        if old.type.name == "List" and name in ("add", "mul"):
            try:
                new = self.converter.converted(new, old.type, False) if name == "add" else new
            except Misfit:
                raise self.error(node, f"Arguments for call are not valid: {old.type} += {new.type}") from None
            return Value(old.type, f"torch.{name}_({old.text}, {new.text})")
        own = self._own_operator(node, f"i{name}", old, [new])
        return own or self.combined(node, name, old, new)

    def _augmented_view(self, node: ast.AugAssign, name: str, of: Value, target: ast.Subscript) -> None:
        view, indices = self.views(of, self.index_of(target), target)
        new = self.value(node.value)
        if indices:
            view = self.kept(view)
            listed = f"annotate(List[Optional[Tensor]], [{', '.join(indices)}])"
            old = self.kept(Value(TENSOR, f"torch.index({view.text}, {listed})"))
            made = self.combined(node, name, old, new)
            self.out.append(f"{self.fresh()} = torch.index_put_({view.text}, {listed}, {made.text})")
        else:
            self.out.append(f"{self.fresh()} = {self.operator(node, _IN_PLACE[name], [view, new]).text}")

    def _expression_statement(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):    # a text that documents
            return
        found = self.expr(node.value)
        if isinstance(found, Value) and not isinstance(found, ModuleValue) and not found.simple:
            plain = found.type == NONE and not found.text.startswith("(")
            self.out.append(found.text if plain else f"{self.fresh()} = {found.text}")

    def _return(self, node: ast.Return) -> None:
        value = self.value(node.value, self.declared) if node.value is not None else Value(NONE, "None", True, None)
        if self.declared is not None:
            value = self.converted(value, self.declared, node, "Return value was annotated as having type {kind} but is actually of type "
                                                               "{found}", implicit=True)
        else:
            joined = value.type if self.returned is None else common(self.returned, value.type, self.classes)
            if joined is None:
                raise self.error(node, f"Previous return statement returned a value of type {self.returned} but this return statement "
                                       f"returns a value of type {value.type}")
            self.returned = joined
        self.out.append(f"return {value.text}")
        self.scope.exits = True

    def _if(self, node: ast.If) -> None:
        test, yes, no = self.condition(node.test)
        if test.constant is not NOTHING:
            self.scope.refine(yes if test.constant else no)
            self.statements(node.body if test.constant else node.orelse)
            return
        scopes, blocks = [], []
        for body, told in ((node.body, yes), (node.orelse, no)):
            scope = Scope(self.scope)
            scope.refine(told)
            with self.block(scope) as lines:
                self.statements(body)
            scopes.append(scope)
            blocks.append(list(lines))
        self.write_if(test.text, *blocks)
        join(self.scope, scopes, ("true branch", "false branch"), self.classes, lambda why: f"{self.error(node, why)}and was used here")

    @contextmanager
    def _loop(self) -> Iterator[list[str]]:
        """The body of a loop: what is assigned there has the type that it had before."""
        scope = Scope(self.scope, loop=True)
        self.loops.append(scope)
        try:
            with self.block(scope) as lines:
                yield lines
        finally:
            self.loops.pop()

    def _after_loop(self, scope: Scope) -> None:
        for name in scope.names:
            if self.scope.find(name) is None:
                self.scope.names[name] = Missing(f"{name} is not defined where the loop does not run")

    def _while(self, node: ast.While) -> None:
        self._no_else(node)
        with self._loop() as lines:
            test, yes, _ = self.condition(node.test)
            head = f"while {test.text}:"
            if lines or (test.constant is NOTHING and test.simple):
                lines += [f"if {test.text}:", "  pass", "else:", "  break"]
                head = "while True:"
            scope = self.scope
            scope.refine(yes)
            if test.constant is NOTHING or test.constant:
                self.statements(node.body)
        if test.constant is not NOTHING and not test.constant:
            return
        self.out += [head, *(f"  {line}" for line in lines or ["pass"])]
        self._after_loop(scope)

    def _for(self, node: ast.For) -> None:
        self._no_else(node)
        over = self.iterated(node.iter)
        if isinstance(over, Several):
            self._unrolled_loop(node, over)
            return
        with self._loop() as lines:
            head = self.loop_head(over, node.target)
            scope = self.scope
            self.statements(node.body)
        self.out += [head, *(f"  {line}" for line in lines or ["pass"])]
        self._after_loop(scope)

    def _unrolled_loop(self, node: ast.For, over: Several) -> None:
        for part in ast.walk(ast.Module(node.body, [])):
            if isinstance(part, (ast.Break, ast.Continue)) and not _in_inner_loop(node.body, part):
                raise self.error(part, "break and continue are not supported in loops over a fixed number of elements of several types",
                                 NotSupportedError)
        for item in over.items:
            self.assign(node.target, item, node)
            self.statements(node.body)

    def _no_else(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            raise self.error(node, "else branches of loops aren't supported", NotSupportedError)

    def _break(self, node: ast.Break | ast.Continue) -> None:
        if not self.loops:
            raise self.error(node, f"{type(node).__name__.lower()} statement not in a loop")
        self.out.append(type(node).__name__.lower())
        self.scope.exits = True

    def _assert(self, node: ast.Assert) -> None:
        test, yes, _ = self.condition(node.test)
        with self.block() as lines:
            text = self.value(node.msg) if node.msg is not None else None
            shown = '"AssertionError: "' if text is None else f'torch.add("AssertionError: ", {text.text})'
            lines.append(f'ops.prim.RaiseException({shown})')
        if test.constant is NOTHING:
            self.write_if(test.text, [], lines)
        elif not test.constant:
            self.out += lines
            self._leave()
        self.scope.refine(yes)

    def _leave(self) -> None:
        """Nothing after this runs: an exception has been raised."""
        self.out.append(_RETURN)
        self.scope.exits = True

    def _raise(self, node: ast.Raise) -> None:
        if node.exc is None:
            raise self.error(node, "raise names an exception", NotSupportedError)
        call = node.exc if isinstance(node.exc, ast.Call) else ast.copy_location(ast.Call(node.exc, [], []), node.exc)
        found = self.expr(call.func)
        kind = getattr(found, "obj", None)
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise self.error(node, "exceptions must derive from BaseException")
        texts = [self._shown(v) for v in self.first_values(call.args)]
        several = f'torch.format("({", ".join(["{}"] * len(texts))})", {", ".join(texts)})'
        text = texts[0] if len(texts) == 1 else several if texts else '""'
        self.out.append(f'ops.prim.RaiseException({text}, "{kind.__module__}.{kind.__qualname__}")')
        self._leave()

    @staticmethod
    def _shown(value: Value) -> str:
        return value.text if value.type == STR else f"str({value.text})"

    def _with(self, node: ast.With) -> None:
        heads = []
        for item in node.items:
            manager = self.kept(self.first_class(self._manager(item.context_expr), item.context_expr))
            made_of = self.classes.get(manager.type.name)
            if made_of is None or self.unit.method(made_of, "__enter__") is None:
                raise self.error(item.context_expr, f"a {manager.type} has no __enter__ and __exit__")
            entered = self.unit.method(made_of, "__enter__")
            self.unit.method(made_of, "__exit__")
            if item.optional_vars is not None:
                if not isinstance(item.optional_vars, ast.Name):
                    raise self.error(item.optional_vars, "`with` names one variable", NotSupportedError)
                self.declare(item.optional_vars.id, entered.returns, item.optional_vars)
                heads.append(f"with {manager.text} as {self.text_name(item.optional_vars.id)}:")
            else:
                heads.append(f"with {manager.text}:")
        outer = self.out
        self.out = []
        self.statements(node.body)
        lines, self.out = self.out or ["pass"], outer
        for depth, head in enumerate(heads):
            self.out.append("  " * depth + head)
        self.out += ["  " * len(heads) + line for line in lines]

    def _manager(self, node: ast.expr) -> Any:
        """What `with` is given: scopes of gradients are classes of the program."""
        if isinstance(node, ast.Call):
            form = self.unit.form(self._known_callee(node.func))
            if form is not None:
                return self._call_known(form, node, None)
        return self.expr(node)

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                of, key = self.first_values([target.value, target.slice])
                self.out.append(self.operator(node, "Delete", [of, key]).text)
            elif isinstance(target, ast.Name):
                self.scope.names[target.id] = Missing(f"{target.id} was deleted")
            else:
                raise self.error(node, "del takes elements of lists and dicts, and names", NotSupportedError)

    STATEMENTS: dict[type, Callable[..., None]] = {
        ast.Assign: _assignment, ast.AnnAssign: _annotated_assignment, ast.AugAssign: _augmented, ast.Expr: _expression_statement,
        ast.Return: _return, ast.If: _if, ast.While: _while, ast.For: _for, ast.Break: _break, ast.Continue: _break, ast.Assert: _assert,
        ast.Raise: _raise, ast.With: _with, ast.Delete: _delete, ast.Pass: lambda self, node: None,
    }

    # -- a function as a whole ------------------------------------------------------------------------------------------------
    def function(self, signature: Function, owner: Any, node: ast.FunctionDef) -> str:
        """The text of a function whose parameters are known; `owner` is the value of `self` in a method."""
        self.declared = signature.returns if signature.returns.name != "?" else None
        parameters = []
        for at, p in enumerate(signature.parameters):
            if at == 0 and owner is not None:
                self.scope.names[p.name] = owner
                self.texts[p.name] = "self"
                parameters.append(f"self: {owner.type}")
                continue
            self.scope.names[p.name] = Variable(self.text_name(p.name), p.type, p.type)
            shown = p.default.__dict__["text"] if p.default is not None else None
            parameters.append(f"{self.text_name(p.name)}: {p.type}" + (f"={shown}" if shown is not None else ""))
        self.statements(node.body)
        if not self.scope.exits:
            self._falls_off(node)
        returns = self.declared or self.returned or NONE
        lines = [line.replace(_RETURN, "return None" if returns == NONE else f"return uninitialized({returns})") for line in self.out]
        signature.returns = returns
        head = f"def {signature.name.rpartition('.')[2]}({', '.join(parameters)}) -> {returns}:"
        return "\n".join([head, *(f"  {line}" for line in lines or ["pass"])]) + "\n"

    def _falls_off(self, node: ast.FunctionDef) -> None:
        kind = self.declared or self.returned or NONE
        if kind == NONE or kind.name in ("Optional", "Any"):
            self.out.append("return None")
            return
        raise self.error(node, f"Expected return value of type {kind}, but the function '{node.name}' may end without one" if
                         self.declared is None else f"Return value was annotated as having type {kind} but is actually of type NoneType")


def _in_inner_loop(body: list[ast.stmt], part: ast.AST) -> bool:
    inner = [n for stmt in body for n in ast.walk(stmt) if isinstance(n, (ast.For, ast.While))]
    return any(part in ast.walk(loop) for loop in inner)


def _named(body: Statements, value: Value, node: ast.AST) -> ast.AST:
    """An expression that stands for a value which was computed."""
    name = f" {len(body.scope.names)}k"
    body.scope.names[name] = value
    return ast.copy_location(ast.Name(name, ast.Load()), node)


def default_of(text: str, value: Any) -> Callable[[dict], Any]:
    """The default of a parameter, with its text."""
    def default(_: dict) -> Any:
        return value

    default.__dict__["text"] = text
    return default
