"""Graphs of primitives for tests, built by hand: `Builder` records calls on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau.core.dtypes import dtype_of_numpy
from flambeau.core.size import contiguous_strides
from flambeau.core.symbolic import ShapeEnv, SymInt, evaluate
from flambeau.core.tensor import Tensor, fake, from_array
from flambeau.fx import Graph, GraphModule, Node
from flambeau.ops import prims


class Builder:
    """Calls of primitives become nodes: `b.add(x, y)`; `b.input(array)` is a placeholder."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.inputs: list[Any] = []
        self.env = ShapeEnv()

    def input(self, array: np.ndarray, dynamic: Sequence[int] = ()) -> Node:
        """A placeholder like `array`; the dimensions `dynamic` get symbolic sizes."""
        node = self.graph.placeholder(f"x{len(self.inputs)}")
        shape = tuple(self.env.create_symint(n, f"x{len(self.inputs)}[{d}]") if d in dynamic else n
                      for d, n in enumerate(array.shape))
        strides = contiguous_strides(shape) if array.flags.c_contiguous else \
            tuple(s // array.itemsize for s in array.strides)
        node.meta["val"] = fake(shape, dtype_of_numpy(array.dtype), strides=strides)
        self.inputs.append(from_array(array))
        return node

    def __getattr__(self, name: str) -> Callable[..., Any]:
        prim = getattr(prims, name)

        def call(*args: Any) -> Any:
            node = self.graph.call_function(prim, args)
            node.meta["val"] = prim(*_values(args))
            return node
        return call

    def finish(self, *outputs: Node) -> GraphModule:
        """The graph returning `outputs`."""
        self.graph.output(tuple(outputs))
        return GraphModule({}, self.graph)


def _values(args: Any) -> Any:
    if isinstance(args, Node):
        return args.meta["val"]
    return type(args)(_values(a) for a in args) if isinstance(args, (tuple, list)) else args


def eager(gm: GraphModule, inputs: Sequence[Tensor]) -> list[np.ndarray]:
    """What the primitives compute one by one."""
    known: dict[Node, Any] = {}
    given = iter(inputs)
    sizes: dict[str, int] = {}

    def value(a: Any) -> Any:
        if isinstance(a, Node):
            return known[a]
        if isinstance(a, SymInt):
            return evaluate(a.expr, sizes)
        if isinstance(a, list):
            return [value(x) for x in a]
        return tuple(value(x) for x in a) if isinstance(a, tuple) else a

    for node in gm.graph.nodes:
        if node.op == "placeholder":
            known[node] = next(given)
            for size, actual in zip(node.meta["val"]._layout.shape, known[node].shape, strict=True):
                if isinstance(size, SymInt):
                    sizes[str(size)] = actual
        elif node.op == "output":
            return [value(a)._data for a in node.args[0]]
        else:
            known[node] = node.target(*value(node.args))
    raise AssertionError("no output")
