"""A function of TorchScript as a list of nodes, in the way that torch prints graphs: `%3 : Tensor = aten::add(%x, %2)`."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from .types import dotted
from .values import Function


class Node:
    """One operation: `kind()` is its name, such as aten::add; `inputs()` and `outputs()` are names of values."""

    def __init__(self, kind: str, inputs: list[str], outputs: list[str], blocks: list[Graph]) -> None:
        self._kind, self._inputs, self._outputs, self._blocks = kind, inputs, outputs, blocks

    def kind(self) -> str:
        """What it does."""
        return self._kind.partition("[")[0]

    def inputs(self) -> list[str]:
        """The values that it takes."""
        return self._inputs

    def outputs(self) -> list[str]:
        """The values that it gives."""
        return self._outputs

    def blocks(self) -> list[Graph]:
        """What is in it, where it is a branch or a loop."""
        return self._blocks

    def lines(self) -> Iterator[str]:
        """Its text."""
        made = ", ".join(self._outputs)
        yield f"{made}{' = ' if made else ''}{self._kind}({', '.join(self._inputs)})"
        for at, block in enumerate(self._blocks):
            yield f"  block{at}():"
            yield from (f"    {line}" for node in block.nodes() for line in node.lines())


class Graph:
    """The nodes of a function, and of what is in them."""

    def __init__(self, parameters: list[str]) -> None:
        self._parameters, self._nodes, self._returns = parameters, [], []    # type: tuple[list[str], list[Node], list[str]]

    def nodes(self) -> list[Node]:
        """Its operations, in order."""
        return self._nodes

    def inputs(self) -> list[str]:
        """Its parameters."""
        return self._parameters

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        """All nodes of a kind."""
        found = []
        for node in self._nodes:
            found += [node] if kind in (node.kind(), node._kind) else []
            for block in node.blocks() if recurse else ():
                found += block.findAllNodes(kind)
        return found

    def __str__(self) -> str:
        body = "".join(f"  {line}\n" for node in self._nodes for line in node.lines())
        return f"graph({', '.join(self._parameters)}):\n{body}  return ({', '.join(self._returns)})\n"

    __repr__ = __str__


class _Writer:
    """Writes the nodes of one function; with `owner` those of the methods and functions that it calls, in the places of the calls."""

    def __init__(self, functions: Mapping[str, Function] | None = None, owner: Any = None, count: Iterator[int] | None = None) -> None:
        self.functions, self.count = functions, count or itertools.count(1)
        self.modules: dict[str, Any] = {"self": owner} if owner is not None else {}
        self.names: dict[str, str] = {}     # the values of variables
        self.suffix, self.depth = "", -1

    def fresh(self) -> str:
        """The name of a value that the text doesn't name."""
        return f"%{next(self.count)}"

    def _new(self, name: str) -> str:
        """What a variable is called that is assigned: by another name than before, but in branches and loops."""
        if self.depth and name in self.names:
            return self.names[name]
        text = f"%{name}{self.suffix}"
        return f"{text}.{next(self.count)}" if name in self.names else text

    def named(self, name: str) -> str:
        """A variable's value."""
        return self.names.get(name, f"%{name}{self.suffix}")

    def block(self, statements: list[ast.stmt], into: Graph) -> Graph:
        self.depth += 1
        for statement in statements:
            self.statement(statement, into)
        self.depth -= 1
        return into

    def statement(self, s: ast.stmt, into: Graph) -> None:
        if isinstance(s, ast.Assign):
            self.assign(s, into)
        elif isinstance(s, ast.Return):
            into._returns = [self.value(s.value, into)] if s.value is not None else []
        elif isinstance(s, ast.If):
            test = self.value(s.test, into)
            into._nodes.append(Node("prim::If", [test], [], [self.block(s.body, Graph([])), self.block(s.orelse, Graph([]))]))
        elif isinstance(s, (ast.While, ast.For)):
            over = self.value(s.test if isinstance(s, ast.While) else s.iter, into)
            into._nodes.append(Node("prim::Loop", [over], [], [self.block(s.body, Graph([]))]))
        elif isinstance(s, ast.Expr):
            self.value(s.value, into)
        elif isinstance(s, (ast.Break, ast.Continue)):
            into._nodes.append(Node(f"prim::{type(s).__name__}Stmt", [], [], []))
        elif isinstance(s, (ast.With, ast.FunctionDef)):
            kind = "prim::Enter" if isinstance(s, ast.With) else "prim::Closure"
            into._nodes.append(Node(kind, [], [], [self.block(s.body, Graph([]))]))

    def assign(self, s: ast.Assign, into: Graph) -> None:
        target = s.targets[0]
        if isinstance(target, ast.Attribute):
            into._nodes.append(Node(f'prim::SetAttr[name="{target.attr}"]', [self.value(target.value, into), self.value(s.value, into)],
                [], []))
            return
        targets = [ast.unparse(t) for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
        names = [self._new(name) for name in targets]
        made = self.value(s.value, into, names)
        self.names |= dict(zip(targets, names))
        self.modules = {name: module for name, module in self.modules.items() if name not in targets}
        if len(targets) == 1 and (module := self._module(s.value)) is not None:
            self.modules[targets[0]] = module
        if made != names[0] or (len(names) > 1 and not self._gives(into, names)):
            into._nodes.append(Node("prim::TupleUnpack" if len(names) > 1 else "prim::alias", [made], names, []))

    @staticmethod
    def _gives(into: Graph, names: list[str]) -> bool:
        return bool(into._nodes) and into._nodes[-1]._outputs == names

    def node(self, kind: str, inputs: list[str], into: Graph, names: list[str] | None) -> str:
        names = names or [self.fresh()]
        into._nodes.append(Node(kind, inputs, names, []))
        return names[0]

    def value(self, e: ast.expr | None, into: Graph, names: list[str] | None = None) -> str:
        """The name of an expression's value; its nodes are written."""
        if isinstance(e, ast.Name):
            return self.named(e.id)
        if isinstance(e, ast.IfExp):
            blocks = [Graph([]), Graph([])]
            for block, part in zip(blocks, (e.body, e.orelse)):
                block._returns = [self.value(part, block)]
            made = names or [self.fresh()]
            into._nodes.append(Node("prim::If", [self.value(e.test, into)], made, blocks))
            return made[0]
        if isinstance(e, ast.Call):
            inlined = self._inlined(e, into)
            if inlined is not None:
                return inlined
            kind, first = self._called(e, into)
            inputs = first + [self.value(a, into) for a in e.args] + [self.value(k.value, into) for k in e.keywords]
            return self.node(kind, inputs, into, names)
        if isinstance(e, ast.Attribute) and not dotted(e).startswith(("CONSTANTS.", "__torch__.")):
            return self.node(f'prim::GetAttr[name="{e.attr}"]', [self.value(e.value, into)], into, names)
        if isinstance(e, (ast.List, ast.Tuple)):
            kind = "prim::ListConstruct" if isinstance(e, ast.List) else "prim::TupleConstruct"
            return self.node(kind, [self.value(part, into) for part in e.elts], into, names)
        if isinstance(e, ast.Dict):
            return self.node("prim::DictConstruct", [self.value(part, into) for pair in zip(e.keys, e.values) for part in pair], into,
                names)
        if isinstance(e, ast.Subscript):
            return self.node("aten::__getitem__", [self.value(e.value, into), self.value(e.slice, into)], into, names)
        return self.node(f"prim::Constant[value={ast.unparse(e) if e is not None else None}]", [], into, names)

    def _module(self, e: ast.AST) -> Any:
        """The module that an expression is, where that is known."""
        if isinstance(e, ast.Name):
            return self.modules.get(e.id)
        if isinstance(e, ast.Attribute):
            of, name = self._module(e.value), e.attr
        elif isinstance(e, ast.Call) and dotted(e.func) == "getattr" and isinstance(e.args[1], ast.Constant):
            of, name = self._module(e.args[0]), str(e.args[1].value)
        else:
            return None
        return of._modules.get(name) if of is not None else None

    def _inlined(self, e: ast.Call, into: Graph) -> str | None:
        """The value of a call whose function's nodes are written here; None of any other call, and of functions that return early."""
        if self.functions is None:
            return None
        owner = self._module(e.func.value) if isinstance(e.func, ast.Attribute) else None
        function = owner._class.methods.get(e.func.attr) if owner is not None else self.functions.get(dotted(e.func))   # type: ignore[attr-defined]
        if function is None:
            return None
        tree: Any = ast.parse(function.source).body[0]
        returns = [n for n in ast.walk(tree) if isinstance(n, ast.Return)]
        if len(returns) != 1 or tree.body[-1] is not returns[0]:
            return None
        inner = _Writer(self.functions, owner, self.count)
        inner.suffix = f".{next(self.count)}"
        given = [self.value(a, into) for a in ([e.func.value] if owner is not None else []) + e.args]   # type: ignore[attr-defined]
        inner.names = dict(zip(function.names, given)) | {str(k.arg): self.value(k.value, into) for k in e.keywords}
        for arg, default in zip(reversed(tree.args.args), reversed(tree.args.defaults)):
            if arg.arg not in inner.names:
                inner.names[arg.arg] = self.value(default, into)
        inner.block(tree.body[:-1], into)
        inner.depth = 0
        return inner.value(returns[0].value, into)

    def _called(self, e: ast.Call, into: Graph) -> tuple[str, list[str]]:
        name = dotted(e.func)
        root, _, rest = name.partition(".")
        if root == "torch":
            return f"aten::{rest}", []
        if root == "ops":
            return rest.replace(".", "::", 1), []
        if isinstance(e.func, ast.Attribute) and root != "__torch__":
            return f'prim::CallMethod[name="{e.func.attr}"]', [self.value(e.func.value, into)]
        return f"prim::{'CallFunction' if root == '__torch__' else name}", []


def graph_of(function: Function, functions: Mapping[str, Function] | None = None, owner: Any = None) -> Graph:
    """The nodes of a function, read off its text. Given the program's functions, and the module of a method, what it calls is written in
    the places of the calls."""
    tree: Any = ast.parse(function.source).body[0]
    parameters = [f"%{p.name} : {p.type}" for p in function.parameters]
    writer = _Writer(functions, owner)
    writer.names = {p.name: f"%{p.name}" for p in function.parameters}
    return writer.block(tree.body, Graph(parameters))
