"""Writing the replacement of a frame: a Python function that calls the graph, replays side effects and goes on.

The function has five parts, in this order: *prelude* (everything that is read from the frame's arguments, before anything
changes), the graph call, *building* of new objects, *effects* on objects, and the *tail* (return, or the breaking operation
and the call of a resume function).
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..core.symbolic import SymBool, SymFloat, SymInt, free_variables, to_python
from .break_kinds import graph_break
from .guards import FEW, Lasting, Namespace
from .source import Source
from .variables.base import LazyVariable, Variable

if TYPE_CHECKING:
    from .trace import Trace
    from .variables.tensor import TensorVariable


class Writer:
    """Collects the statements of one replacement function."""

    def __init__(self, trace: Trace, namespace: Namespace) -> None:
        self.trace = trace
        self.namespace = namespace
        self.prelude: list[str] = []
        self.building: list[str] = []
        self.effects: list[str] = []
        self.tail: list[tuple[str, int]] = []
        self.outputs: dict[Any, str] = {}
        """Graph node -> name of the output."""
        self._fetched: dict[Source, str] = {}
        self._known: dict[int, tuple[str, Variable]] = {}
        self._building: set[int] = set()
        self._replayed: set[int] = set()
        self._count = 0

    def fresh(self, prefix: str = "t") -> str:
        self._count += 1
        return f"_{prefix}{self._count}"

    def begin(self) -> None:
        """What comes before the graph: Python's generators draw, and leaves begin to need gradients, or do no longer."""
        for name, call in self.trace.draws.items():
            method = self.fetch(call.bases[0])
            self.prelude.append(f"{name} = {call.template.format(method)}")
        for tensor, flag in self.trace.effects.flags.items():
            self.prelude.append(f"{self.fetch(tensor.source)}.requires_grad = {flag}")

    def constant(self, value: Any) -> str:
        """The name of an object that the entry keeps alive."""
        return self.namespace.name(value)

    def fetch(self, source: Source | None) -> str:
        """A name for the value that `source` has when the frame starts."""
        assert source is not None
        if source.is_constant:
            return self.namespace.name(source.constant)
        if not source.bases:
            return source.template
        known = self._fetched.get(source)
        if known is None:
            for base in source.bases:
                self.fetch(base)
            known = self.fresh("v")
            self.prelude.append(f"{known} = {source.render(self.namespace.name, self._fetched)}")
            self._fetched[source] = known
        return known

    def value(self, variable: Variable) -> str:
        """An expression for a variable; objects with an identity are built once."""
        found = self._known.get(id(variable))
        if found is not None:
            return found[0]
        if isinstance(variable, LazyVariable):
            return variable.build(self)
        if id(variable) in self._building:
            graph_break("value can't be rebuilt", f"{variable.describe()} contains itself")
        self._building.add(id(variable))
        try:
            text = variable.build(self)
        finally:
            self._building.discard(id(variable))
        found = self._known.get(id(variable))
        if found is not None:
            return found[0]
        if (variable.source is None and text[0] in "[{") or (text.startswith(("set(", "_c")) and "(" in text):
            text = self.bind(text)
        self._known[id(variable)] = (text, variable)
        return text

    def remember(self, variable: Variable, name: str) -> None:
        """`name` holds the object of `variable` (before its parts are built, so that they may refer to it)."""
        self._known[id(variable)] = (name, variable)

    def bind(self, expression: str) -> str:
        """A name for a new object."""
        name = self.fresh()
        self.building.append(f"{name} = {expression}")
        return name

    def call(self, function: str, args: Iterable[Variable], kwargs: dict[str, Variable]) -> str:
        """A call of what this expression is."""
        parts = list(map(self.value, args))
        if all(name.isidentifier() and not keyword.iskeyword(name) for name in kwargs):
            parts += [f"{name}={self.value(value)}" for name, value in kwargs.items()]
        else:
            parts.append("**{" + ", ".join(f"{name!r}: {self.value(value)}" for name, value in kwargs.items()) + "}")
        return f"{function}({', '.join(parts)})"

    def effect(self, statement: str) -> None:
        self.effects.append(statement)

    def effects_of(self, variable: Any) -> None:
        """Replay what was written to an object, once."""
        if id(variable) not in self._replayed:
            self._replayed.add(id(variable))
            variable.replay(self)

    def output(self, variable: TensorVariable) -> str:
        """The name under which the graph returns a tensor."""
        return self._output(variable.node)

    def _output(self, node: Any) -> str:
        name = self.outputs.get(node)
        if name is None:
            name = self.outputs[node] = f"_g{len(self.outputs)}"
        return name

    def _symbol(self, name: str) -> str:
        """A symbol of a size: fetched or drawn, or given by the graph."""
        if name in self.trace.number_sources:
            return self.fetch(self.trace.number_sources[name])
        if name in self.trace.births:
            return self._output(self.trace._symbol_node(name))
        return self.fetch(self.trace.symbol_source(name))

    def size(self, value: Any) -> str:
        """A symbolic size as an expression over the frame's arguments."""
        if isinstance(value, SymInt):
            text = to_python(value.expr)
            names = {name: self._symbol(name) for name in free_variables(value.expr)}
            return f"({_renamed(text, names)})"
        if isinstance(value, SymFloat):
            if value.op == "variable":
                return self._symbol(value.left)
            left, right = self.size(value.left), self.size(value.right)
            return f"({left} {value.op} {right})"
        if isinstance(value, SymBool):
            relation, env = value.relation, value.env
            return f"({self.size(env.symint(relation.left))} {relation.op} {self.size(env.symint(relation.right))})"
        return repr(value)

    def inputs(self, sources: list[Source], lasting: Lasting) -> list[str]:
        """The arguments of the graph; a model's many tensors are fetched at once."""
        many = [source for source in sources if source in lasting.tensors]
        if len(many) < FEW:
            return [self.fetch(source) for source in sources]
        name = self.fresh("p")
        self.prelude.append(f"{name} = {lasting.fetch(many, self.namespace)}")
        arguments: list[str] = []
        taken = 0
        for inside, group in itertools.groupby(sources, lasting.tensors.__contains__):
            found = list(group)
            if not inside:
                arguments += [self.fetch(source) for source in found]
                continue
            arguments.append(f"*{name}" if len(found) == len(many) else f"*{name}[{taken}:{taken + len(found)}]")
            taken += len(found)
        return arguments

    def graph_call(self, graph_name: str, inputs: list[Source], lasting: Lasting) -> str:
        """The statement that calls the graph."""
        arguments = self.inputs(inputs, lasting)
        names = list(self.outputs.values())
        target = f"({', '.join(names)},) = " if names else ""
        return f"{target}{graph_name}({', '.join(arguments)})"


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda match: names.get(match[0], match[0]), text)
