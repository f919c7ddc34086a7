"""Backends that count and keep what they are given, and comparisons."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import fx
from .._inductor.compile_fx import compile_fx_inner
from ..core.size import extent
from ..dynamo import lookup_backend
from ..ops.registry import OPERATORS
from .backends.common import aot_autograd
from .backends.debugging import aot_eager
from .utils import clone_inputs, rmse, same


def _operations(gm: fx.GraphModule) -> int:
    return sum("call" in node.op for node in gm.graph.nodes)


class CompileCounter:
    """A backend that runs graphs as they are and counts them: `frame_count` graphs, of `op_count` operations in all."""

    def __init__(self) -> None:
        self.clear()

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += _operations(gm)
        return gm.forward

    def clear(self) -> None:
        """Begin anew."""
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend:
    """The same around another backend; `graphs` are what it was given."""

    def __init__(self, backend: str | Callable[..., Any]) -> None:
        self.backend = backend
        self.clear()

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += _operations(gm)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, list(example_inputs), **options)

    def clear(self) -> None:
        """Begin anew."""
        self.frame_count = self.op_count = 0
        self.graphs: list[fx.GraphModule] = []


class EagerAndRecordGraphs:
    """A backend that runs graphs as they are and keeps them in `graphs`, their examples in `example_inputs`."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []
        self.example_inputs: list[Sequence[Any]] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        self.example_inputs.append(example_inputs)
        return gm.forward


class AotEagerAndRecordGraphs:
    """A backend like `aot_eager` that keeps the captured `graphs`, the `fw_graphs` and the `bw_graphs`."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []
        self.fw_graphs: list[fx.GraphModule] = []
        self.bw_graphs: list[fx.GraphModule] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)

        def keep(kept: list[fx.GraphModule], graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
            kept.append(graph)
            return graph.forward

        return aot_autograd(fw_compiler=functools.partial(keep, self.fw_graphs), bw_compiler=functools.partial(keep, self.bw_graphs))(
            gm, example_inputs)


class InductorAndRecordGraphs:
    """The backend inductor, which keeps the captured `graphs`, and the functional `inductor_graphs` that are compiled of them."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []
        self.inductor_graphs: list[fx.GraphModule] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)

        def compile_one(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
            self.inductor_graphs.append(graph)
            return compile_fx_inner(graph, inputs)

        return aot_autograd(fw_compiler=compile_one)(gm, example_inputs)


def normalize_gm(gm_str: str) -> str:
    """The text of a graph without comments and empty lines."""
    lines = (line.partition("#")[0].rstrip() for line in gm_str.splitlines())
    return "\n".join(line for line in lines if line.strip())


def rand_strided(size: Sequence[int], stride: Sequence[int], dtype: Any = None, device: Any = "cpu", extra_size: int = 0) -> Any:
    """A tensor of random numbers with this layout."""
    needed = extent(size, stride) and extent(size, stride) + extra_size
    kind = dtype or OPERATORS["get_default_dtype"]() if "get_default_dtype" in OPERATORS else dtype
    flat = OPERATORS["randn"](needed, device=device)
    return (flat if kind is None else flat.to(kind)).as_strided(tuple(size), tuple(stride))


def reduce_to_scalar_loss(out: Any) -> Any:
    """A number to call backward on: the mean of all tensors in a result."""
    if hasattr(out, "mean"):
        return out.mean() if out.dtype.is_floating_point else out.float().mean()
    items = list(out.values()) if isinstance(out, dict) else list(out)
    return sum(map(reduce_to_scalar_loss, items)) / len(items)


__all__ = ["AotEagerAndRecordGraphs", "CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs",
           "InductorAndRecordGraphs", "aot_eager", "clone_inputs",
           "normalize_gm", "rand_strided", "reduce_to_scalar_loss", "rmse", "same"]
