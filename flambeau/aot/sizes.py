"""Symbolic sizes as nodes: the arithmetic on sizes that a graph's arguments need, spelled out in the graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from flambeau.core.symbolic import Expr, SymFloat, SymInt, sym_max, sym_min
from flambeau.fx import Graph, Node

_ATOM_FUNCTIONS: dict[str, Callable] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": sym_max,
    "min": sym_min,
}
_FLOAT_FUNCTIONS: dict[str, Callable] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow,
}  # fmt: skip


class SizeNodes:
    """Writes expressions over the symbols of one graph as nodes, each once.

    `symbols` maps a symbol's name to the placeholder that brings its value; it may grow while tracing goes on.
    """

    def __init__(self, graph: Graph, symbols: dict[str, Node]) -> None:
        self.graph = graph
        self.symbols = symbols
        self._made: dict[Any, Any] = {}

    def of(self, value: Any) -> Any:
        """The node that computes a symbolic size; plain numbers stay as they are."""
        if isinstance(value, SymInt):
            return self._expr(value.expr)
        if isinstance(value, SymFloat):
            if value.op == "variable":
                return self.symbols[value.left]
            return self._call(_FLOAT_FUNCTIONS[value.op], self.of(value.left), self.of(value.right))
        return value

    def _call(self, function: Callable, *args: Any) -> Node:
        node = self.graph.call_function(function, args)
        node.meta["val"] = function(*[a.meta["val"] if isinstance(a, Node) else a for a in args])
        return node

    def _expr(self, expr: Any) -> Any:
        """A polynomial: the sum of coefficient times product of powers of atoms."""
        if not isinstance(expr, Expr):
            return expr
        if expr not in self._made:
            terms = [self._term(m, c) for m, c in sorted(expr.terms.items(), key=lambda term: not term[0])]
            total = terms[0]
            for term in terms[1:]:
                total = self._call(operator.add, total, term)
            self._made[expr] = total
        return self._made[expr]

    def _term(self, monomial: tuple, coefficient: int) -> Any:
        factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
        if coefficient != 1 or not factors:
            factors.append(coefficient)
        product = factors[0]
        for factor in factors[1:]:
            product = self._call(operator.mul, product, factor)
        return product

    def _atom(self, atom: Any) -> Any:
        if atom.kind == "var":
            if atom.name not in self.symbols:
                raise NotImplementedError(
                    f"the size {atom.name} is used in the graph but no input has it; pass it as an input of its own"
                )
            return self.symbols[atom.name]
        if atom not in self._made:
            self._made[atom] = self._call(_ATOM_FUNCTIONS[atom.kind], *[self._expr(arg) for arg in atom.args])
        return self._made[atom]
