"""Native graphs as they run: the printed Python function around a library, and what it calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flambeau.core.dtypes import dtype
from flambeau.core.expr import Expr, evaluate
from flambeau.core.tensor import Tensor, from_array
from flambeau.inductor import post_ops
from flambeau.inductor.ir import Extern, Program
from flambeau.inductor.lowering import Slot
from flambeau.inductor.unit import Unit


@dataclass
class NativeCode:
    """All that a call needs beside the library: plain enough to be kept in the cache."""

    wrapper: str                     # the text of `call(inputs)`
    functions: dict[str, int]        # the library's that it calls, and how many arrays each takes; without any there is no library
    steps: list[Extern]              # those that it calls through Python
    dtypes: dict[str, dtype]         # of buffers that it makes
    constants: dict[str, Tensor]

    @classmethod
    def of(cls, wrapper: str, program: Program, unit: Unit) -> NativeCode:
        """Of a printed unit."""
        steps = [replace(s.run, origins=()) for s in unit.segments if isinstance(s.run, Extern)]
        names = dict.fromkeys(re.findall(r"\bd_(\w+)", wrapper))
        dtypes = {name: program.buffers[name].dtype for name in names if name in program.buffers}
        functions = {f"run_{s.run}": len(s.arguments) + 1 for s in unit.segments if isinstance(s.run, int)}
        return cls(wrapper, functions, steps, dtypes, dict(program.constants))

    def link(self, runs: Sequence[Callable]) -> Callable[[list], list]:
        """The function from inputs to outputs, given the library's."""
        scope: dict[str, Any] = {
            "__name__": __name__,
            "np": np, "empty": np.empty, "tensor": from_array, "_fit": _fit, "_eager": run_eager, "_strided": strided_view,
            "_out": from_array, "_refused": _refused, "constants": self.constants, "steps": self.steps,
        }
        scope |= {f"d_{name}": kind for name, kind in self.dtypes.items()}
        scope |= dict(zip(self.functions, runs, strict=True))
        exec(compile(self.wrapper, "<inductor wrapper>", "exec"), scope)
        return scope["call"]


def _fit(array: np.ndarray, shape: tuple, strides: tuple) -> np.ndarray:
    """`array` with the strides (in bytes) that the code was compiled for; copied unless only dimensions of size 1 differ."""
    if all(n == 1 or a == b for n, a, b in zip(array.shape, array.strides, strides, strict=True)):
        return array
    size = array.itemsize
    if array.size == 0:
        return array
    room = np.empty(sum((n - 1) * s // size for n, s in zip(shape, strides, strict=True)) + 1, array.dtype)
    out = np.lib.stride_tricks.as_strided(room, shape, strides)
    out[...] = array
    return out


def strided_view(array: np.ndarray, shape: tuple, strides: tuple, offset: int) -> np.ndarray:
    """The elements of `array`'s memory at `offset` with other strides (in elements)."""
    if 0 in shape:
        return np.empty(shape, array.dtype)
    size = array.itemsize
    last = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // size + 1
    flat = np.ndarray((last,), array.dtype, array, 0, (size,)) if array.flags.c_contiguous else \
        np.lib.stride_tricks.as_strided(array, (last,), (size,))
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, [s * size for s in strides])


def _refused(error: RuntimeError) -> None:
    """Turn what a kernel says of a bad index into the exception that it is."""
    said = str(error)
    if "is out of bounds for dimension" in said:
        raise IndexError(said[said.rindex("index "):]) from None
    raise error


def run_eager(step: Extern, views: Sequence[np.ndarray], sizes: dict[str, int]) -> list[np.ndarray]:
    """The results of a primitive, or of an operator's kernel, on arrays: in memory of their own, in any layout."""
    if step.op == "kernel":
        results = step.attrs["target"].kernels["cpu"](*fill(step.attrs["args"], views, sizes))
        arrays = list(results) if isinstance(results, tuple) else [results]
    else:
        tensors = [from_array(v, view.dtype) for v, view in zip(views, step.inputs, strict=True)]
        if step.op == "bmm" and views[0].ndim == 4:  # one batch dimension written as two
            tensors = [from_array(v.reshape(-1, *v.shape[2:])) for v in views]
        arrays = [post_ops.finish(step.attrs.get("epilogue", ()), result._data.reshape([evaluate(n, sizes) for n in out.shape]), views)
                  for out, result in zip(step.outputs, call_primitive(step, tensors, sizes), strict=True)]
    return [a.copy() if any(np.may_share_memory(a, v) for v in views) else a for a in arrays]


def call_primitive(step: Extern, tensors: Sequence[Tensor], sizes: dict[str, int]) -> tuple[Tensor, ...]:
    """The results of a step's primitive on tensors."""
    results = step.attrs["target"](*fill(step.attrs["args"], tensors, sizes))
    return results if isinstance(results, tuple) else (results,)


def fill(template: Any, tensors: Sequence[Any], sizes: dict[str, int]) -> Any:
    """A step's arguments: the tensors in their places, sizes worked out."""
    if isinstance(template, Slot):
        return tensors[template]
    if isinstance(template, Expr):
        return evaluate(template, sizes)
    if isinstance(template, (tuple, list)):
        return type(template)(fill(t, tensors, sizes) for t in template)
    return template


__all__ = ["NativeCode", "call_primitive", "fill", "run_eager", "strided_view"]
