"""torch.cuda.jiterator: elementwise kernels from CUDA's text. They can be made, and say what to use instead when they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._absent import absent

_INSTEAD = "write the function with torch operators and compile it, or a torch.library.custom_op around a Triton kernel"


def _create_jit_fn(code_string: str, **kwargs: Any) -> Callable[..., Any]:
    """A kernel with one result; `kwargs` are the defaults of its numbers."""
    return absent(f"a kernel of torch.cuda.jiterator ({code_string.split('(')[0].split()[-1]}, {sorted(kwargs)})", _INSTEAD)


def _create_multi_output_jit_fn(code_string: str, num_outputs: int, **kwargs: Any) -> Callable[..., Any]:
    """A kernel with `num_outputs` results."""
    return absent(f"a kernel of torch.cuda.jiterator with {num_outputs} results ({code_string.split('(')[0].split()[-1]}, {sorted(kwargs)})",
                  _INSTEAD)


__all__: list[str] = []
