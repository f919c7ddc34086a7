"""Numbers that count: arange, range, linspace, logspace."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.device import as_device
from ..core.dtypes import COMPLEX, FLOAT, bool_, dtype, int64
from ..core.tensor import Tensor
from ..core.warned import warn
from . import prims
from .creation import count, finish, finish_line, kind_for
from .promotion import cast, category_of_number, default_dtype, fitting
from .registry import operator


def _is_infinite(v: Any) -> bool:
    """Whether a number is an infinite float, or NaN."""
    return isinstance(v, float) and not math.isfinite(v)


def _steps(start: Any, end: Any, step: Any) -> Any:
    """ceil((end - start) / step). RuntimeError if that is no number."""
    if _is_infinite(start) or _is_infinite(end):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if isinstance(step, int) and not isinstance(start, float) and not isinstance(end, float):
        return (end - start + step - (1 if step > 0 else -1)) // step if step != 1 else end - start
    return math.ceil((end - start) / step)


def one_or_two_bounds(name: str, low: Any, high: Any) -> tuple[Any, Any]:
    """(low, high) where one of them may be None: the other is the upper bound, by position or by name, and 0 the lower one."""
    if low is None and high is None:
        raise TypeError(f"{name}(): an upper bound is missing")
    return (0, low if high is None else high) if low is None or high is None else (low, high)


@operator
def arange(start: Any = None, end: Any = None, step: Any = 1, *, out: Tensor | None = None, dtype: dtype | None = None, layout: Any = None,
           device: Any = None, pin_memory: bool | None = False, requires_grad: bool | None = False) -> Tensor:
    """start, start + step, ... before end; int64 if all are integers, else the default dtype, unless given."""
    if start is None or end is None:
        start, end = one_or_two_bounds("arange", start, end)
    if type(start) is int and type(end) is int and type(step) is int and start <= end and step > 0 and dtype is None and out is None:
        return finish(prims.iota(-((start - end) // step), start, step, int64, as_device(device)), requires_grad, None, layout, pin_memory)
    start, end, step = (_bound(v) if isinstance(v, (Tensor, np.generic)) else v for v in (start, end, step))
    kind = kind_for(dtype, out, default_dtype() if max(map(category_of_number, (start, end, step))) >= FLOAT else int64)
    if kind is bool_:
        raise NotImplementedError('"arange_cpu" not implemented for \'Bool\'')
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if kind.category == dtypes.INT and not any(map(_is_infinite, (start, end))):     # computed in integers throughout
        start, end, step = (int(v) if isinstance(v, float) else v for v in (start, end, step))
        if step == 0:
            raise ValueError("step must be nonzero: of an integer dtype it is rounded towards zero")
    if _known_backwards(start, end, step):
        raise RuntimeError(f"upper bound and lower bound inconsistent with step sign: arange({start}, {end}, {step})")
    return finish_line(prims.iota(_steps(start, end, step), start, step, kind, as_device(device)), requires_grad, out, layout, pin_memory)


def _bound(value: Any) -> Any:
    """A number out of a tensor of one element."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise TypeError(f"arange(): start, end and step must be numbers, not a Tensor of shape {list(value.shape)}")
    return value.item()


@operator(name="range")
def range_(start: Any, end: Any, step: Any = 1, *, out: Tensor | None = None, dtype: dtype | None = None, layout: Any = None,
           device: Any = None, pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    """start, start + step, ... up to and with end, in the default dtype unless given. Deprecated: use arange."""
    warn("torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with Python's "
                  "range builtin. Instead, use torch.arange, which produces values in [start, end).")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if _known_backwards(start, end, step):
        raise RuntimeError(f"upper bound and lower bound inconsistent with step sign: range({start}, {end}, {step})")
    count, kind = math.floor((end - start) / step) + 1, kind_for(dtype, out, default_dtype())
    return finish_line(prims.iota(count, start, step, kind, as_device(device)), requires_grad, out, layout, pin_memory)


def _known_backwards(start: Any, end: Any, step: Any) -> bool:
    if not all(isinstance(v, numbers.Number) for v in (start, end, step)):
        return False
    return bool((end < start) if step > 0 else (end > start))


@operator
def linspace(start: Any, end: Any, steps: int, *, out: Tensor | None = None, dtype: dtype | None = None, layout: Any = None,
             device: Any = None, pin_memory: bool | None = False, requires_grad: bool | None = False) -> Tensor:
    """`steps` numbers evenly spaced from start to end, both included; each half is counted from its own end."""
    steps = count(steps)
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got {steps}")
    start, end = _ends("linspace", start, end)
    start, end = (int(v) if isinstance(v, bool) else v for v in (start, end))
    complex_ = any(isinstance(v, complex) or (isinstance(v, Tensor) and v.is_complex()) for v in (start, end))
    kind = kind_for(dtype, out, default_dtype().to_complex() if complex_ else default_dtype())
    if kind.category == dtypes.INT and steps:
        start, end = fitting(start, kind), fitting(end, kind)
    where = as_device(device)
    work = kind if kind.category == COMPLEX or kind is dtypes.float64 else dtypes.float64
    i = prims.iota(steps, 0, 1, int64, where)
    step = (end - start) / (steps - 1) if steps != 1 else 0
    value = (i.to(work) * step + start).where(i < (steps + 1) // 2, end - (steps - 1 - i).to(work) * step)
    if steps == 1:
        value = cast(start, work).reshape(1) if isinstance(start, Tensor) else prims.full((1,), cast(start, work), work, where)
    if kind.category == dtypes.INT:
        value = value.trunc()
    return finish_line(cast(value, kind), requires_grad, out, layout, pin_memory)


@operator
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, out: Tensor | None = None, dtype: dtype | None = None,
             layout: Any = None, device: Any = None, pin_memory: bool | None = False, requires_grad: bool | None = False) -> Tensor:
    """base to the powers linspace(start, end, steps)."""
    kind = kind_for(dtype, out, default_dtype())
    start, end = _ends("logspace", start, end)
    lone = type(steps) is int and steps == 1 and not isinstance(start, Tensor)
    if kind.category == dtypes.INT and steps and not lone:
        start, end = (fitting(v, kind) if isinstance(v, Tensor) else int(fitting(v, kind)) for v in (start, end))
    value = float(base) ** linspace(start, end, steps, dtype=dtypes.float64, device=device)
    if lone:    # a single power is computed before it is converted
        value = fitting(value.reshape(()), kind).reshape(1)
    return finish_line(cast(value, kind), requires_grad, out, layout, pin_memory)


def _ends(name: str, *ends: Any) -> list:
    """The ends of a line as numbers, which may be in tensors without dimensions."""
    if any(isinstance(v, Tensor) and v.ndim for v in ends):
        raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors, but got shapes "
                           f"{[list(v.shape) for v in ends if isinstance(v, Tensor)]}")
    return [_end(v) if isinstance(v, Tensor) else v.item() if isinstance(v, np.generic) else v for v in ends]


def _end(v: Tensor) -> Any:
    """The number in a tensor; where it has none yet, itself in the precision of Python's numbers."""
    if v._data is not None or v.device.type == "meta":
        return v.item()
    wide = {dtypes.INT: int64, COMPLEX: dtypes.complex128}.get(v.dtype.category, dtypes.float64)
    return v.detach().to(wide)
