"""Primitives that make tensors from nothing: filled, counting, and raw random words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import dispatch
from ...core.device import CPU, device
from ...core.dtypes import dtype, float32, int64
from ...core.size import extent, plain_numbers
from ...core.tensor import Tensor, laid_out
from ..primitives import InAten, kernel_for, pretended, register
from ..registry import PRIMITIVES, Primitive, Spec


class FactoryPrimitive(Primitive):
    """A primitive without tensor inputs; its last parameter is the device."""

    promises = True

    def promise(self, args: tuple) -> Any:
        return self.shape(*args) if args[-1].type == "cpu" else None

    def run(self, args: tuple) -> Tensor:
        spec = self.shape(*args)
        where = args[-1]
        symbolic = False
        for n in spec.shape:
            symbolic = symbolic or type(n) is not int
        if symbolic and any(isinstance(n, np.integer) for n in spec.shape):
            return self.run(plain_numbers(args))
        if symbolic or dispatch.state.fake or where.type == "meta":
            return pretended(spec, where)
        kernel = self.kernels.get(where.type) or kernel_for(self, where)
        try:
            return laid_out(kernel(*args), spec.dtype, spec.strides, where)
        except ValueError as error:
            if math.prod(spec.shape) * spec.dtype.itemsize < 1 << 63:
                raise
            raise RuntimeError(f"Storage size calculation overflowed with sizes={list(spec.shape)}") from error


def _factory(name: str, kernel: Any, loop: Any, samples: Any, call: Any = None) -> Any:
    def add(shape: Any) -> Primitive:
        record = FactoryPrimitive(
            name, shape, kernel=kernel, loop=loop, tags=("factory", "recomputable"), tensors=0, kind="factory",
            doc=shape.__doc__ or "", samples=samples, why_absent={"derivative": "no tensor inputs"})
        record.aten = InAten(call=call)
        return register(PRIMITIVES, name, record)
    return add


def _full(shape: Sequence, value: Any, kind: dtype, where: device) -> np.ndarray:
    if value == 0 and "-" not in repr(value):     # -0.0 is no zeroed memory
        return np.zeros(shape, kind.numpy)
    made = np.empty(shape, kind.numpy)
    with np.errstate(over="ignore"):
        made.fill(value)
    return made


@_factory("full", _full, lambda o, idx, shape, value, kind, where: o.constant(value, kind), lambda r: [((2, 3), 1.5, float32, CPU)],
          lambda shape, value, kind, where: ("full", (list(shape), value), {"dtype": kind, "device": where}))
def full(shape: tuple[int, ...], value: Any, kind: dtype, where: device) -> Spec:
    """A tensor of `shape` filled with the number `value`."""
    return Spec(tuple(shape), kind)


@_factory("empty", lambda shape, kind, where: np.empty(shape, kind.numpy), lambda o, idx, shape, kind, where: o.constant(0, kind),
          lambda r: [((2, 3), float32, CPU)], lambda shape, kind, where: ("empty", (list(shape),), {"dtype": kind, "device": where}))
def empty(shape: tuple[int, ...], kind: dtype, where: device) -> Spec:
    """An uninitialised tensor of `shape`."""
    return Spec(tuple(shape), kind)


def _empty_strided(shape: Sequence, strides: Sequence, kind: dtype, where: device) -> np.ndarray:
    size = kind.itemsize
    return np.ndarray(tuple(shape), kind.numpy, np.empty(extent(shape, strides) * size, np.uint8), 0, [s * size for s in strides])


@_factory("empty_strided", _empty_strided, lambda o, idx, shape, strides, kind, where: o.constant(0, kind),
          lambda r: [((2, 3), (1, 2), float32, CPU)], lambda shape, strides, kind, where: (
              "empty_strided", (list(shape), list(strides)), {"dtype": kind, "device": where}))
def empty_strided(shape: tuple[int, ...], strides: tuple[int, ...], kind: dtype, where: device) -> Spec:
    """An uninitialised tensor of `shape` with these strides."""
    return Spec(tuple(shape), kind, tuple(strides))


def _iota(n: int, start: Any, step: Any, kind: dtype, where: device) -> np.ndarray:
    if type(start) is int and type(step) is int and step != 0:
        return np.arange(start, start + n * step, step, dtype=np.int64).astype(kind.numpy, copy=False)
    return (np.arange(n) * step + start).astype(kind.numpy)


@_factory("iota", _iota,
          lambda o, idx, n, start, step, kind, where: o.to_dtype(o.index(idx[0] * step + start, kind), kind)
          if isinstance(start, int) and isinstance(step, int)
          else o.add(o.mul(o.index(idx[0], kind), o.constant(step, kind)), o.constant(start, kind)),
           samples=lambda r: [(5, 2, 3, int64, CPU), (4, 0.5, 0.25, float32, CPU)])
def iota(n: int, start: Any, step: Any, kind: dtype, where: device) -> Spec:
    """start, start + step, ... : `n` numbers."""
    return Spec((n,), kind)


__all__ = ["full", "empty", "empty_strided", "iota"]
