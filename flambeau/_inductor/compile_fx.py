"""The compiler as a backend, and of one functional graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import inductor
from .._functorch.aot_autograd import aot_module_simplified
from ..aot.dialect import to_primitives
from ..inductor.graph import compile_graph
from . import config

TOLD = frozenset((
    "aot_mode", "boxed_forward_device_index", "cpp_wrapper", "cudagraphs", "extern_node_serializer", "fx_wrapper", "graph_id",
    "is_backward", "is_inference", "layout_opt", "static_input_idxs"))
"""What PyTorch tells its inner compiler of the graph; here the graph says it itself."""


def compile_fx(model_: Any, example_inputs_: Sequence[Any], inner_compile: Callable[..., Any] | None = None,
               config_patches: dict[str, Any] | None = None, decompositions: Mapping[Any, Callable] | None = None,
               **options: Any) -> Callable[..., Any]:  # fmt: skip
    """The backend "inductor". `inner_compile(gm, example_inputs)`, of functional graphs, takes the place of `compile_fx_inner`;
    `config_patches` are settings that hold meanwhile; operators of `decompositions` are computed by its functions."""
    if inner_compile in (None, compile_fx_inner) and not decompositions:
        return inductor.compile_fx(model_, example_inputs_, **(config_patches or {}), **options)
    with config.patch({**(config_patches or {}), **options}):  # type: ignore[attr-defined]
        return aot_module_simplified(model_, list(example_inputs_), inner_compile or compile_fx_inner, decompositions=decompositions)


def compile_fx_inner(gm: Any, example_inputs: Sequence[Any], **told: Any) -> Callable[[list], list]:
    """A functional graph, as aot gives it to its compilers, as a function of the list of its inputs."""
    if unknown := told.keys() - TOLD:
        raise TypeError(f"compile_fx_inner() got an unexpected keyword argument {min(unknown)!r}")
    compiled = compile_graph(to_primitives(gm, example_inputs), example_inputs)

    def boxed(inputs: Sequence[Any]) -> list:
        return compiled(list(inputs))

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


__all__ = ["compile_fx", "compile_fx_inner"]
