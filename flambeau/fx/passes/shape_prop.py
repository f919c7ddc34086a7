"""Shape propagation: run a graph on examples and note what every node gives."""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau.core.memory_format import channels_last, channels_last_3d, contiguous_format
from flambeau.core.size import Size
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node, map_aggregate


class TensorMetadata(NamedTuple):
    """Facts about a tensor that a node produced."""

    shape: Size
    dtype: Any
    requires_grad: bool
    stride: tuple
    memory_format: Any = None
    is_quantized: bool = False
    qparams: dict[str, Any] = {}


def tensor_metadata(value: Any) -> TensorMetadata:
    """The facts of one tensor."""
    requires_grad = bool(getattr(value, "requires_grad", False))
    shape, strides = tuple(value.shape), tuple(value.stride())
    kept = next((f for f in (contiguous_format, channels_last, channels_last_3d) if f.matches(shape, strides)), None)
    return TensorMetadata(Size(shape), value.dtype, requires_grad, strides, kept)


_extract_tensor_metadata = tensor_metadata


class ShapeProp(Interpreter):
    """Runs a graph on example inputs and notes each node's value facts: `meta["tensor_meta"]` and `meta["type"]`, and,
    for fake tensors, the value itself as `meta["val"]`."""

    def run_node(self, n: Node) -> Any:
        """As the interpreter, noting what came out."""
        value = super().run_node(n)
        found = False

        def look(leaf: Any) -> Any:
            nonlocal found
            if hasattr(leaf, "dtype") and hasattr(leaf, "stride"):
                found = True
                return tensor_metadata(leaf)
            return leaf

        described = map_aggregate(value, look)
        if found:
            n.meta["tensor_meta"] = described
            leaves = value if isinstance(value, (tuple, list)) else [value]
            if all(getattr(leaf, "is_fake", False) for leaf in leaves):
                n.meta["val"] = value
        n.meta["type"] = type(value)
        return value

    def propagate(self, *args: Any) -> Any:
        """Run on `args`."""
        return self.run(*args)
