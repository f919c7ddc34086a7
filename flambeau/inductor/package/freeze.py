"""Graphs whose parameters stay what they are: what follows from these alone is computed when the graph is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.aot.joint import FromAttribute, TracedProgram
from flambeau.core import dispatch
from flambeau.core.tensor import Tensor
from flambeau.fx import Node, map_arg
from flambeau.inductor.package.scales import fold_scales

GROWTH, SMALL = 2, 1 << 12      # what is computed beforehand has at most so many times the elements of what it is of, or so many


def freeze(program: TracedProgram, attributes: Sequence[Tensor]) -> None:
    """Let parameters and buffers that are not written to be constants of a traced program, and fold what follows from them."""
    interface, inputs = program.interface, program.inputs
    kept = [i for i, source in enumerate(interface.sources) if i in interface.written or not isinstance(source, FromAttribute)]
    for i in sorted(set(range(len(inputs))) - set(kept)):
        source = interface.sources[i]
        assert isinstance(source, FromAttribute)
        _replace(program, inputs[i], attributes[source.index], f"frozen_{i}")
    interface.sources[:] = [interface.sources[i] for i in kept]
    interface.names[:] = [interface.names[i] for i in kept]
    interface.written[:] = [kept.index(i) for i in interface.written]
    fold(program)


def fold(program: TracedProgram) -> None:
    """Compute what follows from constants, and let convolutions do what scales and shifts their channels. Views stay views."""
    with dispatch.grad_enabled(False):
        fold_scales(program, _known(program))
        _fold_known(program, _known(program))


def _known(program: TracedProgram) -> dict[Node, Tensor]:
    """What follows from constants alone."""
    values: dict[Node, Tensor] = {}
    for node in program.graph.nodes:
        if node.op == "get_attr":
            values[node] = program.constants[str(node.target)]
        elif node.op == "call_function" and (value := _value(node, values)) is not None:
            values[node] = value
    return values


def _fold_known(program: TracedProgram, values: dict[Node, Tensor]) -> None:
    views: set[Node] = set()
    for node in reversed(list(values)):
        if node.op != "call_function" or not any(user not in values or user in views for user in node.users):
            continue
        if "view" in getattr(node.target, "tags", ()):
            views.add(node)
        else:
            _replace(program, node, values[node], f"folded_{node.name}")


def _value(node: Node, known: dict[Node, Tensor]) -> Tensor | None:
    """What a call gives, if that follows from what is known, and is not much larger."""
    given = node.all_input_nodes
    target: Any = node.target
    tags = getattr(target, "tags", None)
    val = node.meta.get("val")
    if tags is None or not given or not isinstance(val, Tensor) or not all(n in known for n in given):
        return None
    if "random" in tags or "inplace" in tags or any(type(n) is not int for n in val._layout.shape):
        return None
    if "view" not in tags and val.numel() > max(SMALL, GROWTH * sum(known[n].numel() for n in given)):
        return None
    args, kwargs = map_arg((node.args, dict(node.kwargs)), known.__getitem__)
    made: Any = target(*args, **kwargs)
    return made if isinstance(made, Tensor) else None


def _replace(program: TracedProgram, node: Node, value: Tensor, name: str) -> None:
    """Let a constant take the place of a node."""
    program.constants[name] = value.detach()
    with program.graph.inserting_before(node):
        constant = program.graph.get_attr(name)
    constant.meta = dict(node.meta)
    node.replace_all_uses_with(constant)
    program.graph.erase_node(node)
