"""The compiler as a backend, and of one functional graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..inductor import compile_fx, compile_graph


def compile_fx_inner(gm: Any, example_inputs: Sequence[Any]) -> Callable[[list], list]:
    """A functional graph of primitives, as aot gives it to its compilers, as a function of the list of its inputs."""
    compiled = compile_graph(gm, example_inputs)

    def boxed(inputs: Sequence[Any]) -> list:
        return compiled(list(inputs))

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


__all__ = ["compile_fx", "compile_fx_inner"]
