"""`cond` and `while_loop` where tensors decide, `scan` and `vmap`: one node, with a graph for each function.

A function is captured in the place of the call like any other, so that it sees what the program sees. Then its nodes move into a graph of
their own, whose inputs are what they use of the rest. As it may run once, often or never, it must change nothing and give new tensors.
"""

from __future__ import annotations

from typing import Any

from .. import fx
from ..core import dispatch
from ..core.tensor import Tensor, fake
from ..func.higher_order import call_step, choose, mapped, repeat, scanned
from ..func.trees import flatten, unflatten
from ..func.vmap import _out_dims, call_with
from .break_kinds import graph_break
from .exceptions import GraphBreak, RaisedInTrace
from .variables.autocast import exit_autocast
from .variables.base import Args, Kwargs, NotConstant, Variable
from .variables.dicts import DictVariable
from .variables.functions import FunctionVariable
from .variables.hooks import hook_in_graph
from .variables.sequences import ListVariable, SequenceVariable, TupleVariable
from .variables.tensor import SymVariable, TensorVariable


def call_higher_order(tx: Any, function: FunctionVariable, args: Args, kwargs: Kwargs) -> Variable:
    """One node if tensors decide; else what the Python function does."""
    name, capture = _CAPTURES[function.function.__name__]
    given = function.bind(tx, args, kwargs)
    try:
        made = capture(tx, **given)
    except NotConstant as unknown:
        graph_break("higher-order operator", f"torch.{name}: {unknown.args[0].describe()}")
    except GraphBreak as error:
        graph_break("higher-order operator", f"torch.{name}: {error.info.kind}: {error.info.context}")
    return tx.inline(function, args, kwargs) if made is None else made


def _cond(tx: Any, pred: Variable, true_fn: Variable, false_fn: Variable, operands: Variable) -> Variable | None:
    pred, operands = pred.realize(tx), operands.realize(tx)
    if not _decides(pred) or not isinstance(operands, SequenceVariable):
        return None
    bodies = [_Body(tx, function, operands.items) for function in (true_fn, false_fn)]
    if bodies[0].spec != bodies[1].spec or bodies[0].constants() != bodies[1].constants():
        graph_break("unknown operation", "branches that give results of different structure")
    inputs = _inputs_of(bodies)
    graphs = [body.graph(tx, inputs) for body in bodies]
    return bodies[0].result(tx, tx.emit(choose, [pred, *graphs, _variables(tx, inputs)], {}))


def _while_loop(tx: Any, cond_fn: Variable, body_fn: Variable, carried_inputs: Variable) -> Variable | None:
    carried = carried_inputs.realize(tx)
    if not isinstance(carried, SequenceVariable):
        return None
    start = [item.realize(tx) for item in carried.items]
    places = [_stand_in(tx, item) for item in start if isinstance(item, TensorVariable)]
    if not start or len(places) < len(start):
        return None
    bodies = [_Body(tx, function, list(places)) for function in (cond_fn, body_fn)]
    if len(bodies[0].leaves) != 1 or not _decides(bodies[0].leaves[0]):
        graph_break("unknown operation", "a condition that is no tensor of one element")
    if bodies[1].spec.type not in (tuple, list) or len(bodies[1].tensors()) < bodies[1].spec.num_children:
        graph_break("unknown operation", "a body that gives no tuple of tensors")
    nodes = [place.node for place in places]
    inputs = [*nodes, *(node for node in _inputs_of(bodies) if node not in nodes)]
    graphs = [body.graph(tx, inputs) for body in bodies]
    for node in nodes:
        tx.graph.erase_node(node)
    return tx.emit(repeat, [*graphs, TupleVariable(start), _variables(tx, inputs[len(nodes) :])], {})


def _map_examples(tx: Any, func: Variable, batches: Variable, has: Variable, spec: Variable, size: Variable, out_dims: Variable,
                  randomness: Variable) -> Variable | None:
    values = [item.realize(tx) for item in batches.realize(tx).items]  # type: ignore[attr-defined]
    flags = has.as_constant()
    given = [_stand_in(tx, v, 1) if flag else v for v, flag in zip(values, flags, strict=True)]
    places = [v.node for v, flag in zip(given, flags, strict=True) if flag]
    body = _Body(tx, tx.literal(call_with), [func, ListVariable(given), spec], may_alias=True)
    if len(body.tensors()) < len(body.leaves):
        graph_break("unknown operation", "a function that gives other things than tensors")
    wanted = tuple(d is not None for d in _out_dims(tx.constant_of(out_dims), body.spec, "function"))
    shared = [node for node in _inputs_of([body]) if node not in places]
    graph = body.graph(tx, [*places, *shared])
    for node in places:
        tx.graph.erase_node(node)
    whole = TupleVariable([v for v, flag in zip(values, flags, strict=True) if flag])
    return body.result(tx, tx.emit(mapped, [graph, whole, _variables(tx, shared), size, randomness, tx.literal(wanted)], {}))


def _scan_rows(tx: Any, combine_fn: Variable, carried: Variable, carried_spec: Variable, rows: Variable, rows_spec: Variable,
               reverse: Variable) -> Variable | None:
    starts, over = ([item.realize(tx) for item in given.realize(tx).items] for given in (carried, rows))  # type: ignore[attr-defined]
    states, inputs = [_stand_in(tx, v) for v in starts], [_stand_in(tx, v, 1) for v in over]
    places = [v.node for v in (*states, *inputs)]
    given = [combine_fn, ListVariable(list(states)), carried_spec, ListVariable(list(inputs)), rows_spec]
    body = _Body(tx, tx.literal(call_step), given, may_alias=True)
    if len(body.tensors()) < len(body.leaves):
        graph_break("unknown operation", "a function that gives other things than tensors")
    captured = [node for node in _inputs_of([body]) if node not in places]
    graph = body.graph(tx, [*places, *captured])
    for node in places:
        tx.graph.erase_node(node)
    return body.result(tx, tx.emit(scanned, [graph, TupleVariable(starts), TupleVariable(over), _variables(tx, captured), reverse], {}))


def hooked(tx: Any, owner: TensorVariable, hook: Variable) -> fx.Node | None:
    """The node of a hook on a tensor of the graph; None for one that leaves gradients as they are."""
    place = _stand_in(tx, owner)
    try:
        body = _Body(tx, hook, [place], may_alias=True)
        if body.leaves == [None]:
            for node in reversed(body.nodes):
                tx.graph.erase_node(node)
            return None
        if len(body.leaves) != 1 or not body.tensors():
            graph_break("unknown operation", "a hook that gives no tensor")
    except NotConstant as unknown:
        graph_break("autograd inside a compiled function", f"a hook on {owner.describe()}: {unknown.args[0].describe()}")
    except GraphBreak as error:
        graph_break("autograd inside a compiled function", f"a hook on {owner.describe()}: {error.info.kind}: {error.info.context}")
    shared = [node for node in _inputs_of([body]) if node is not place.node]
    graph = body.graph(tx, [place.node, *shared])
    tx.graph.erase_node(place.node)
    node = tx.graph.call_function(hook_in_graph, (owner.node, graph.node, tuple(shared)))
    node.meta.update(val=None, stack=tx.stack())
    return node


_CAPTURES: dict[str, tuple[str, Any]] = {
    "cond": ("cond", _cond), "while_loop": ("while_loop", _while_loop), "map_examples": ("vmap", _map_examples),
    "scan_rows": ("scan", _scan_rows),
}  # fmt: skip


def _decides(pred: Variable) -> bool:
    return isinstance(pred, TensorVariable) and pred.fake.numel() == 1


def _stand_in(tx: Any, start: TensorVariable, without: int = 0) -> TensorVariable:
    """What the functions of a loop take for a tensor that each round replaces, or `without` its first dimension for its examples."""
    shape, strides, _ = start.fake._layout
    made = fake(shape[without:], start.fake.dtype, start.fake.device, strides[without:])
    node = tx.graph.call_function(choose, (start.node,))
    node.meta.update(val=made, stack=tx.stack())
    return tx.from_node(node, made)


class _Body:
    """A function, captured: its nodes, and the tree of its results."""

    def __init__(self, tx: Any, function: Variable, args: Args, may_alias: bool = False) -> None:
        before, expressions = set(tx.graph.nodes), dict(tx._expressions)
        state = (dispatch.state.recording, len(tx.scopes))
        outside = {known.fake._storage.memory: known for known in tx._by_fake.values()}
        writes = [known.fake._writes for known in outside.values()]
        with tx.effects.frozen(tx):
            try:
                result = tx.call(function, args, {})
            except RaisedInTrace as error:
                graph_break("exception", f"it raises {error.value.python_type().__name__}")
        self.leaves, self.spec = flatten(_tree(tx, result))
        if (dispatch.state.recording, len(tx.scopes)) != state:
            graph_break("global state", "it leaves another grad mode or autocast behind")
        if writes != [known.fake._writes for known in outside.values()]:
            graph_break("unknown operation", "it writes to a tensor in place; use .clone() first")
        self.nodes = [node for node in tx.graph.nodes if node not in before and node.op != "placeholder"]
        tx._expressions = expressions
        if may_alias:
            return
        stores = [leaf.fake._storage.memory for leaf in self.tensors()]
        if len(set(stores)) < len(stores) or not outside.keys().isdisjoint(stores) or any(
                leaf.node not in self.nodes for leaf in self.tensors()):  # fmt: skip
            graph_break("unknown operation", "it gives back what it is given, or one tensor twice, or views of such; use .clone()")

    def tensors(self) -> list[TensorVariable]:
        return [leaf for leaf in self.leaves if isinstance(leaf, TensorVariable)]

    def constants(self) -> list[Any]:
        return [None if isinstance(leaf, TensorVariable) else (type(leaf), leaf) for leaf in self.leaves]

    def inputs(self) -> list[fx.Node]:
        """The nodes of the rest that it uses."""
        inside = set(self.nodes)
        used = [node for user in self.nodes for node in user.all_input_nodes] + [leaf.node for leaf in self.tensors()]
        return [node for node in used if node not in inside]

    def graph(self, tx: Any, inputs: list[fx.Node]) -> TensorVariable:
        """Its nodes in a graph of their own, which is an attribute of the graph that they are taken out of."""
        graph = fx.Graph()
        inner = {}
        for node in inputs:
            inner[node] = graph.placeholder(node.name)
            inner[node].meta.update(val=node.meta["val"])
        scopes = [graph.node_copy(node) for node, _ in tx.scopes]  # it may be compiled, or differentiated, outside of autocast's blocks
        for node in self.nodes:
            inner[node] = graph.node_copy(node, inner.__getitem__)
        for scope in reversed(scopes):
            graph.call_function(exit_autocast, (scope,))
        graph.output(tuple(inner[leaf.node] for leaf in self.tensors()))
        for node in reversed(self.nodes):
            tx.graph.erase_node(node)
        name = f"function_{len(tx.functions)}"
        module = tx.functions[name] = fx.GraphModule(tx.functions, graph)
        return TensorVariable(tx.graph.get_attr(name), module)

    def result(self, tx: Any, made: Variable) -> Variable:
        """Its result, with the tensors that the node gives."""
        tensors = iter(made.items)  # type: ignore[attr-defined]
        return tx.literal(unflatten([next(tensors) if isinstance(leaf, TensorVariable) else leaf for leaf in self.leaves], self.spec))


def _inputs_of(bodies: list[_Body]) -> list[fx.Node]:
    return list(dict.fromkeys(node for body in bodies for node in body.inputs()))


def _variables(tx: Any, nodes: list[fx.Node]) -> Variable:
    known = {variable.node: variable for variable in tx._by_fake.values()}
    return TupleVariable([known[n] if isinstance(n.meta["val"], Tensor) else SymVariable(n.meta["val"]) for n in nodes])


def _tree(tx: Any, variable: Variable) -> Any:
    """A result as a tree of Python's, with variables for tensors."""
    variable = variable.realize(tx)
    if isinstance(variable, SequenceVariable):
        kind: Any = variable.python_type()
        items = [_tree(tx, item) for item in variable.items]
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if isinstance(variable, DictVariable):
        return variable.python_type()({key.as_constant(): _tree(tx, value) for key, value in variable.open(tx).values()})
    if isinstance(variable, SymVariable):
        return variable.value
    return variable if isinstance(variable, TensorVariable) else variable.as_constant()
