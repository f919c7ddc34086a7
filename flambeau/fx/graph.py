"""The tensor-level IR: an ordered list of `Node`s that reads as one Python function."""

from __future__ import annotations

import builtins
import contextlib
import copy
import importlib
import keyword
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.fx.codegen import CodeGen, PythonCode
from flambeau.fx.lint import lint_graph
from flambeau.fx.node import OPS, Argument, Node, Target, function_name, importable_path, map_aggregate, map_arg, resolve_attr, target_name

_NOT_IDENTIFIER = re.compile(r"[^0-9a-zA-Z_]+")
_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_RESERVED = frozenset((*keyword.kwlist, *dir(builtins), "self", "torch", "inf", "nan", "device"))


class Namespace:
    """Readable names, each given once."""

    def __init__(self) -> None:
        self._next_suffix: dict[str, int] = {}
        self._used: set[str] = set(_RESERVED)

    def create_name(self, candidate: str) -> str:
        """`candidate` made into an identifier, with `_1`, `_2`, ... appended while it is taken."""
        if not candidate.isidentifier():
            candidate = _NOT_IDENTIFIER.sub("_", candidate) or "_"
            if candidate[0].isdigit():
                candidate = f"_{candidate}"
        if candidate not in self._used:
            self._used.add(candidate)
            return candidate
        stem, _, suffix = candidate.rpartition("_")
        if not (stem and suffix.isdigit()):
            stem = candidate
        number = self._next_suffix.get(stem, 0) + 1
        while (name := f"{stem}_{number}") in self._used:
            number += 1
        self._next_suffix[stem] = number
        self._used.add(name)
        return name

    def add(self, name: str) -> None:
        """Take a name as it is."""
        self._used.add(name)


class NodeList:
    """A view of a graph's nodes in order; nodes may be inserted or erased while it is iterated."""

    def __init__(self, graph: Graph, reverse: bool = False) -> None:
        self._graph = graph
        self._reverse = reverse

    def __len__(self) -> int:
        return self._graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        if self._reverse:
            node = root._prev
            while node is not root:
                if not node._erased:
                    yield node
                node = node._prev
        else:
            node = root._next
            while node is not root:
                if not node._erased:
                    yield node
                node = node._next

    def __reversed__(self) -> NodeList:
        return NodeList(self._graph, not self._reverse)


class _InsertPoint:
    """The context that `inserting_before` and `inserting_after` return; it restores the former point."""

    def __init__(self, graph: Graph, point: Node) -> None:
        self._graph = graph
        self._former = graph._cursor
        graph._cursor = point

    def __enter__(self) -> _InsertPoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self._graph._cursor = self._graph._root if self._former._erased else self._former


class Graph:
    """An ordered list of nodes: placeholders, steps, one output.

    Nodes are made with `placeholder`, `get_attr`, `call_function`, `call_method`, `call_module`, `output` or
    `create_node`, at the insert point (the end, unless `inserting_before`/`inserting_after` says otherwise).
    """

    def __init__(self, owning_module: Any = None, tracer_cls: type | None = None, tracer_extras: dict[str, Any] | None = None) -> None:
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._root = Node(self, "", "root", "", ())
        self._cursor = self._root  # new nodes go before this one
        self._len = 0
        self._namespace = Namespace()
        self._codegen = CodeGen()
        self.owning_module = owning_module
        self.provenance: list[str] = []  # "made by pass X in N ms", one line a pass
        self.meta: dict[str, Any] = {}

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> NodeList:
        """All nodes in order."""
        return NodeList(self)

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes of kind `op`, in order; for calls, only those of `target` when one is given."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target is target or n.target == target)]

    def output_node(self) -> Node:
        """The output node; RuntimeError if there is none yet."""
        last = self._root._prev
        if last.op == "output":
            return last
        for node in self.nodes:
            if node.op == "output":
                return node
        raise RuntimeError("the graph has no output node; call graph.output(value) first")

    # -- building ----------------------------------------------------------------------------------------------------

    def create_node(self, op: str, target: Target, args: tuple | None = None, kwargs: dict | None = None,
                    name: str | None = None, type_expr: Any = None) -> Node:
        """A new node at the insert point; `name` is a wish, made unique."""
        if op not in OPS:
            raise AssertionError(f"create_node: op must be one of {', '.join(OPS)}, got {op!r}")
        if op == "call_function" and not callable(target):
            raise ValueError(f"create_node: the target of call_function must be callable, got {target!r}")
        if op not in ("call_function",) and not isinstance(target, str):
            raise ValueError(f"create_node: the target of {op} must be a str, got {target!r}")
        unique = self._namespace.create_name(name or self._candidate_name(op, target))
        node = Node(self, unique, op, target, args or (), kwargs, type_expr)
        after = self._cursor
        before = after._prev
        before._next, node._prev = node, before
        node._next, after._prev = after, node
        self._len += 1
        return node

    @staticmethod
    def _candidate_name(op: str, target: Target) -> str:
        if op == "output":
            return "output"
        if isinstance(target, str):
            name = target if op != "placeholder" else target.lstrip("*")
        else:
            name = function_name(target).rpartition(".")[2] or type(target).__name__
        name = _NOT_IDENTIFIER.sub("_", name)
        return _CAMEL_HUMP.sub(r"_\1", name).lower() if op.startswith("call_") else name

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An input; a leading `*` or `**` in the name makes it variadic."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    @staticmethod
    def own_name(node: Node, name: str) -> Node:
        """Let an input be called as in the program, where Python has a function of that name (`input`, `max`)."""
        if node.op == "placeholder" and hasattr(builtins, name):
            node.name = name
        return node

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """An attribute of the owning module by dotted path."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(self, the_function: Callable, args: tuple | None = None, kwargs: dict | None = None,
                      type_expr: Any = None, name: str | None = None) -> Node:
        """`the_function(*args, **kwargs)`."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def call_method(self, method_name: str, args: tuple | None = None, kwargs: dict | None = None, type_expr: Any = None) -> Node:
        """`args[0].method_name(*args[1:], **kwargs)`."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_module(self, module_name: str, args: tuple | None = None, kwargs: dict | None = None, type_expr: Any = None) -> Node:
        """The owning module's submodule at a dotted path, called."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """What the graph returns: nodes and constants in any nest of containers."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Put new nodes before `n` (the graph's beginning if None), for good or for a `with` block."""
        return self._insert_at(self._root._next if n is None else n)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Put new nodes after `n`, in the order made (the graph's end if None), for good or for a `with` block."""
        return self._insert_at(self._root if n is None else n._next)

    def _insert_at(self, point: Node) -> _InsertPoint:
        if point.graph is not self:
            raise ValueError(f"cannot insert at node %{point.name}: it belongs to a different graph")
        return _InsertPoint(self, point)

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that nobody uses; RuntimeError names the users if there are any."""
        if to_erase.users:
            users = ", ".join(f"%{user.name}" for user in to_erase.users)
            raise RuntimeError(f"tried to erase node %{to_erase.name}, but {len(to_erase.users)} node(s) still use it: "
                               f"{users}; replace_all_uses_with another node first")
        if to_erase.graph is not self:
            raise RuntimeError(f"tried to erase node %{to_erase.name} from a graph that it is not in")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        if self._cursor is to_erase:
            self._cursor = to_erase._next
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1
        to_erase._set_arguments((), {})

    # -- copying -----------------------------------------------------------------------------------------------------

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda n: n) -> Node:
        """A copy of another graph's node at the insert point; `arg_transform` maps its input nodes into this graph."""
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        new = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        if node.name == node.target:
            self.own_name(new, node.name)
        new.meta = dict(node.meta)
        return new

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Argument:
        """Copy all of `g` but its output to the insert point; return its output value in terms of the copies.

        `val_map` maps nodes of `g` to nodes here: entries present are used instead of copies, new ones are added. With
        `return_output_node` the result is `(value, g's output node)`.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], val_map.__getitem__)
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def __deepcopy__(self, memo: dict | None = None) -> Graph:
        new = Graph(tracer_cls=self._tracer_cls)
        new._codegen = copy.copy(self._codegen)
        new.provenance = list(self.provenance)
        new.meta = dict(self.meta)
        val_map: dict[Node, Node] = {}
        for node in self.nodes:
            val_map[node] = new.node_copy(node, val_map.__getitem__)
        return new

    def __reduce__(self) -> tuple:
        """Flat records, so that long graphs do not recurse; meta stays behind, for it may hold anything."""
        index = {node: _Ref(i) for i, node in enumerate(self.nodes)}
        records = []
        for n in self.nodes:
            target = (importable_path(n.target) or n.target) if n.op == "call_function" else n.target
            args, kwargs = map_arg(n.args, index.__getitem__), map_arg(n.kwargs, index.__getitem__)
            records.append((n.op, n.name, target, args, kwargs, n.type))
        return _rebuild_graph, (records, self._codegen)

    # -- checking and cleaning ---------------------------------------------------------------------------------------

    def lint(self) -> None:
        """Raise `GraphLintError`, with the neighbourhood of the fault, unless the graph is well formed."""
        lint_graph(self)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erase nodes that nobody uses and that have no effect of their own; True if there were any.

        `is_impure_node` replaces `Node.is_impure` as the judge of effects.
        """
        impure = is_impure_node or Node.is_impure
        before = self._len
        for node in reversed(self.nodes):
            if not node.users and node.op not in ("placeholder", "output") and not impure(node):
                self.erase_node(node)
        return self._len != before

    # -- printing ----------------------------------------------------------------------------------------------------

    def set_codegen(self, codegen: CodeGen) -> None:
        """Print with another `CodeGen`, for example one with a different signature."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[Callable | None], Callable]) -> contextlib.ExitStack:
        """From here on, or within a block, the lines of printed code go through a function from lines to lines; `make_transformer` gives it,
        from the one in force or None."""
        former = self._codegen
        self._codegen = copy.copy(former)
        self._codegen._body_transformer = make_transformer(former._body_transformer)
        scope = contextlib.ExitStack()
        scope.callback(setattr, self, "_codegen", former)
        return scope

    def process_inputs(self, *args: Any) -> Any:
        """The arguments of a call as the placeholders get them."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What the output node gives as a call returns it."""
        return self._codegen.process_outputs(out)

    def python_code(self, root_module: str = "self", *, verbose: bool = False) -> PythonCode:
        """The graph as a Python function named `forward`; `verbose` adds the user's lines as comments."""
        return self._codegen.generate(self, root_module, verbose=verbose)

    def print_tabular(self) -> None:
        """Print one row a node."""
        header = ["opcode", "name", "target", "args", "kwargs"]
        rows = [header] + [[n.op, n.name, target_name(n.target), str(n.args), str(dict(n.kwargs))] for n in self.nodes]
        widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
        rows.insert(1, ["-" * width for width in widths])
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def __str__(self) -> str:
        return "\n".join(["graph():", *(f"    {node.format_node()}" for node in self.nodes)])


class _Ref:
    """A node's place in its graph, standing for it in a pickle."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple:
        return _Ref, (self.index,)


def _rebuild_graph(records: list[tuple], codegen: CodeGen) -> Graph:
    graph = Graph()
    graph._codegen = codegen
    nodes: list[Node] = []
    for op, name, target, args, kwargs, type_expr in records:
        resolve = _resolver(nodes)
        if isinstance(target, tuple):  # a function, by module and path
            target = resolve_attr(importlib.import_module(target[0]), target[1])
        nodes.append(graph.create_node(op, target, resolve(args), resolve(kwargs), name, type_expr))
    return graph


def _resolver(nodes: list[Node]) -> Callable[[Argument], Argument]:
    from_ref = lambda leaf: nodes[leaf.index] if isinstance(leaf, _Ref) else leaf  # noqa: E731
    return lambda a: map_aggregate(a, from_ref)
