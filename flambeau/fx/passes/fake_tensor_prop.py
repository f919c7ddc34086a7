"""Shapes without computing: `meta["val"]` of every node from fake tensors."""

from __future__ import annotations

from typing import Any

from flambeau.core.tensor import Tensor, fake
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node, map_aggregate


def _as_fake(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor) or leaf.is_fake:
        return leaf
    shape, strides, offset = leaf._layout
    return fake(shape, leaf.dtype, leaf.device, strides, offset)


class FakeTensorProp(Interpreter):
    """Runs a graph on fake tensors like the examples and notes each node's value as `meta["val"]`."""

    def __init__(self, module: Any, mode: Any = None) -> None:
        super().__init__(module)
        self.mode = mode

    def run_node(self, n: Node) -> Any:
        """As the interpreter, noting what came out."""
        value = map_aggregate(super().run_node(n), _as_fake)
        n.meta["val"] = value
        return value

    def propagate(self, *args: Any) -> Any:
        """Run on fake tensors like `args`."""
        return self.run(*map_aggregate(args, _as_fake))

    propagate_dont_convert_inputs = Interpreter.run


__all__ = ["FakeTensorProp"]
