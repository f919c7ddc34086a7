"""cond, while_loop, scan and map in an exported graph: one node, with a graph for each function.

A function runs once on tensors like those that it will be given; what it uses beside them becomes a further input of its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..aot.trace import stripped
from ..core.size import contiguous_strides
from ..core.symbolic import SymBool
from ..core.tensor import Tensor, fake
from ..dynamo.exceptions import UserError, UserErrorType
from ..func.higher_order import call_step, choose, repeat, scanned
from ..func.trees import flatten, unflatten
from ..fx import GraphModule, Node


class HigherOrderOperator:
    """What the node of such a call calls; prints as its name."""

    def __init__(self, name: str, fn: Callable) -> None:
        self.__name__, self.fn = name, fn

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    def __repr__(self) -> str:
        return self.__name__


OPERATORS = {op.__name__: op for op in (HigherOrderOperator("cond", choose), HigherOrderOperator("while_loop", repeat),
                                        HigherOrderOperator("scan", scanned))}


class _Symbols(dict):
    """The symbols of a function's graph: those of the graph around it become inputs when they are used."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.body.outer.symbols

    def __missing__(self, name: str) -> Node:
        self[name] = node = self.body.lift(self.body.outer.symbols[name])
        return node


class Body:
    """A function, captured: its recorder, the nodes outside that it uses beside its arguments, and what it gives."""

    def __init__(self, outer: Any, function: Callable, args: Sequence[Any], what: str) -> None:
        self.outer, self.lifted = outer, dict[Node, Node]()
        recorder = self.recorder = type(outer)(self._constant, outer.env)
        recorder.symbols = recorder.sizes.symbols = _Symbols(self)
        recorder.stack_of, recorder.modules = outer.stack_of, outer.modules
        recorder.outer_node = self._outer_node
        for i, value in enumerate(args):
            recorder.input(f"arg{i}_1", value)
        recorder.after_inputs = recorder.graph.output(())     # further inputs and all steps go before it
        with recorder.graph.inserting_before(recorder.after_inputs):
            outer.quiet += 1
            try:
                with recorder.recording():
                    self.result = function(*args)
                    self.leaves, self.spec = flatten(self.result)
                    self.nodes = [recorder.argument(leaf) for leaf in self.leaves if isinstance(leaf, Tensor)]
            finally:
                outer.quiet -= 1
        inside = {node for node in recorder.graph.nodes if node.op != "placeholder"}
        if any(node not in inside for node in self.nodes) or len(set(self.nodes)) < len(self.nodes):
            raise UserError(UserErrorType.INVALID_INPUT, f"torch.{what}: a function gives back what it is given, or one tensor twice; use "
                            ".clone()")

    def _constant(self, tensor: Tensor, made_here: bool) -> str:
        raise AssertionError("constants are the outer graph's")

    def _outer_node(self, tensor: Tensor, made_here: bool = False) -> Node:
        return self.lift(self.outer.constant(tensor, True) if made_here else self.outer.node_of(tensor))

    def lift(self, outside: Node) -> Node:
        """An input for a node of the graph around."""
        if outside not in self.lifted:
            graph = self.recorder.graph
            first = next(node for node in graph.nodes if node.op != "placeholder")
            with graph.inserting_before(first):
                node = self.lifted[outside] = graph.placeholder(outside.name)
            node.meta["val"] = outside.meta["val"]
        return self.lifted[outside]

    def tensors(self) -> list[Tensor]:
        """What it gives."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]

    def module(self, captured: Sequence[Node]) -> GraphModule:
        """Its graph, which takes what it is given and then all of `captured`."""
        graph = self.recorder.graph
        nodes = [self.lift(node) for node in captured]
        for node in nodes:     # in this order
            next(n for n in graph.nodes if n.op != "placeholder").prepend(node)
        graph.erase_node(self.recorder.after_inputs)
        graph.output(tuple(self.nodes))
        return GraphModule(self.recorder.functions, graph)


def _alike(a: Tensor, b: Tensor) -> bool:
    return list(a.shape) == list(b.shape) and a.dtype is b.dtype and a.device == b.device


class Functions:
    """Answers the operators that take functions while a program is recorded."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder

    def _emit(self, name: str, bodies: Sequence[Body], labels: Sequence[str], make: Callable[..., tuple], out: Sequence[Tensor]) -> tuple:
        """The node: `make(graphs, captured)` gives its arguments."""
        recorder = self.recorder
        captured = list(dict.fromkeys(node for body in bodies for node in body.lifted))
        graphs = []
        for body, label in zip(bodies, labels, strict=True):
            path = f"{label}_{sum(n.startswith(label) for n in recorder.functions)}"
            recorder.functions[path] = body.module(captured)
            graphs.append(recorder.graph.get_attr(path))
        results = tuple([fake(t.shape, t.dtype, t.device, contiguous_strides(t._layout.shape)) for t in out])
        recorder.write(OPERATORS[name], make(graphs, tuple(captured)), {}, results)
        return results

    def cond(self, pred: Tensor | SymBool, true_fn: Callable, false_fn: Callable, operands: Any) -> Any:
        """torch.cond."""
        if isinstance(pred, SymBool) and (known := pred.env.static_value(pred.relation)) is not None:
            return (true_fn if known else false_fn)(*operands)
        leaves, spec = flatten(tuple(operands))
        given = [stripped(self.recorder._fake(leaf)) for leaf in leaves]
        bodies = [Body(self.recorder, lambda *a, fn=fn: fn(*unflatten(list(a), spec)), [stripped(g) for g in given], "cond")
                  for fn in (true_fn, false_fn)]
        yes, no = bodies
        if yes.spec != no.spec or not all(isinstance(leaf, Tensor) for leaf in (*yes.leaves, *no.leaves)) or not all(
                map(_alike, yes.leaves, no.leaves)):
            raise UserError(UserErrorType.INVALID_OUTPUT, "torch.cond: both branches must give tensors of the same structure, shapes and "
                            f"dtypes, got {_told(yes.leaves)} and {_told(no.leaves)}")
        nodes = tuple(self.recorder.argument(list(leaves)))
        where = self.recorder.condition(pred.relation) if isinstance(pred, SymBool) else self.recorder.node_of(pred)
        results = self._emit("cond", bodies, ("true_graph", "false_graph"),
                             lambda graphs, captured: (where, *graphs, (*nodes, *captured)), yes.tensors())
        return unflatten(list(results), yes.spec)

    def while_loop(self, cond_fn: Callable, body_fn: Callable, carried: tuple) -> tuple:
        """torch.while_loop."""
        given = [stripped(self.recorder._fake(t)) for t in carried]
        test, body = (Body(self.recorder, fn, [stripped(g) for g in given], "while_loop") for fn in (cond_fn, body_fn))
        if len(test.tensors()) != 1 or test.tensors()[0].numel() != 1:
            raise UserError(UserErrorType.INVALID_OUTPUT, "torch.while_loop: cond_fn must give a tensor of one element")
        if len(body.leaves) != len(carried) or not all(map(_alike, body.leaves, given)):
            raise UserError(UserErrorType.INVALID_OUTPUT, f"torch.while_loop: body_fn must give tensors like carried_inputs, "
                            f"{_told(given)}, got {_told(body.leaves)}")
        nodes = tuple(self.recorder.argument(list(carried)))
        return self._emit("while_loop", [test, body], ("while_loop_cond_graph", "while_loop_body_graph"),
                          lambda graphs, captured: (*graphs, nodes, captured), given)

    def scan(self, combine_fn: Callable, carried: list, carried_spec: Any, rows: list, rows_spec: Any, reverse: bool) -> tuple[list, Any]:
        """torch's scan, and map."""
        count = len(carried)
        starts = [stripped(self.recorder._fake(t)) for t in carried]
        slices = [fake(t._layout.shape[1:], t.dtype, t.device, t._layout.strides[1:]) for t in rows]
        specs: list[Any] = []

        def step(*args: Tensor) -> list[Tensor]:
            after, made = call_step(combine_fn, list(args[:count]), carried_spec, list(args[count:]), rows_spec)
            leaves, spec = flatten(made)
            specs.append(spec)
            return [*after, *leaves]

        body = Body(self.recorder, step, [*starts, *slices], "scan")
        made = body.tensors()
        length = rows[0]._layout.shape[0]
        out = [*starts, *[fake((length, *t._layout.shape), t.dtype, t.device) for t in made[count:]]]
        nodes = [tuple(self.recorder.argument(list(each))) for each in (carried, rows)]
        results = self._emit("scan", [body], ("scan_combine_graph",), lambda graphs, captured: (*graphs, *nodes, captured, reverse), out)
        return list(results[:count]), unflatten(list(results[count:]), specs[0])


def as_scan(functions: Functions, function: Callable, carried: Sequence[Tensor], xs: Sequence[Tensor], captured: Sequence[Any],
            reverse: bool) -> tuple:
    """`scanned` of a captured step."""
    count = len(carried)

    def combine(state: list, row: list) -> tuple[list, list]:
        made = list(function(*state, *row, *captured))
        return made[:count], made[count:]

    after, results = functions.scan(combine, list(carried), flatten(list(carried))[1], list(xs), flatten(list(xs))[1], reverse)
    return (*after, *results)


def _told(leaves: Sequence[Any]) -> str:
    return ", ".join(f"{list(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else repr(x) for x in leaves)
