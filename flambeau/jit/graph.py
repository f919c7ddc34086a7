"""A function of TorchScript as a list of nodes, in the way that torch prints graphs: `%3 : Tensor = aten::add(%x, %2)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
    """Writes the nodes of one function."""

    def __init__(self) -> None:
        self.count = 0

    def fresh(self) -> str:
        """The name of a value that the text doesn't name."""
        self.count += 1
        return f"%{self.count}"

    def block(self, statements: list[ast.stmt], into: Graph) -> Graph:
        for statement in statements:
            self.statement(statement, into)
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
        names = [f"%{ast.unparse(t)}" for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
        made = self.value(s.value, into, names)
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
            return f"%{e.id}"
        if isinstance(e, ast.Call):
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


def graph_of(function: Function) -> Graph:
    """The nodes of a function, read off its text."""
    tree: Any = ast.parse(function.source).body[0]
    parameters = [f"%{p.name} : {p.type}" for p in function.parameters]
    return _Writer().block(tree.body, Graph(parameters))


__all__ = ["Graph", "Node", "graph_of"]
