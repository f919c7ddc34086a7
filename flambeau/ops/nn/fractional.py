"""Fractional max pooling (B. Graham, "Fractional Max-Pooling", 2014): windows whose places are drawn at random."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...core.dtypes import FLOAT, int64, scalar_type
from ...core.tensor import Tensor
from .. import prims
from ..joining import cat
from ..random import rand
from ..registry import operator
from .windows import _batched, counts, ntuple, window_maxima


def _starts(samples: Tensor, size: Any, kernel: int, out: int) -> Tensor:
    """(n, c, out): where windows begin: trunc((i + u) a) - trunc(u a) for a step a = (size - kernel) / (out - 1); the last one
    ends where the input does."""
    last = samples.new_full((*samples.shape, 1), size - kernel, dtype=int64)
    if out == 1:
        return last
    step, u = (size - kernel) / (out - 1), prims.unsqueeze(samples, samples.ndim)
    i = samples.new_arange(out - 1).to(samples.dtype)
    return cat([((i + u) * step).to(int64) - (u * step).to(int64), last], -1)


def _positions(samples: Tensor, sizes: tuple, kernel: tuple, wanted: tuple) -> Tensor:
    """(n, c, windows, taps): the flattened positions that each window reads."""
    rank, total = len(sizes), None
    for d, (size, k, out) in enumerate(zip(sizes, kernel, wanted)):
        starts = _starts(prims.select(samples, 2, d), size, k, out)
        reads = prims.unsqueeze(starts, 3) + starts.new_arange(k)
        shape = [1] * (2 * rank)
        shape[d], shape[rank + d] = out, k
        here = reads.reshape(*starts.shape[:2], *shape) * math.prod(sizes[d + 1:])
        total = here if total is None else total + here
    assert total is not None
    return total.reshape(*samples.shape[:2], math.prod(wanted), math.prod(kernel))


def _fractional(spatial: int) -> Callable:
    name = f"fractional_max_pool{spatial}d"

    def fn(input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool | None = False,
           _random_samples: Tensor | None = None) -> Any:
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        x, single = _batched(input, spatial, name)
        if x.dtype.category != FLOAT:
            raise NotImplementedError(f'"{name}" not implemented for \'{scalar_type(x.dtype)}\'; convert the input with .float() first')
        kernel, sizes = counts(kernel_size, spatial, "kernel_size"), tuple(x.shape[2:])
        wanted = counts(output_size, spatial, "output_size") if output_size is not None else \
            tuple(int(n * r) for n, r in zip(sizes, ntuple(output_ratio, spatial, "output_ratio")))
        for n, k, out in zip(sizes, kernel, wanted):
            if out + k - 1 > n:
                raise RuntimeError(f"{name}(): {out} windows of size {k} are too many, or too large, for an input size of {n}")
        lead = tuple(x.shape[:2])
        samples = rand((*lead, spatial), dtype=x.dtype, device=x.device) if _random_samples is None else _random_samples
        fits = samples.ndim == 3 and samples.shape[0] >= lead[0] and tuple(samples.shape[1:]) == (lead[1], spatial)
        if not fits or samples.dtype is not x.dtype:
            raise RuntimeError(f"Expect _random_samples to have the shape {[*lead, spatial]}, or of a larger batch, and the dtype of the "
                               f"input, {x.dtype}; got {list(samples.shape)} and {samples.dtype}")
        samples = samples[:lead[0]]
        if spatial == 2:
            samples = samples.flip(2)       # the first number is the width's
        places = _positions(samples, sizes, kernel, wanted)
        reads = x.flatten(2).gather(2, places.flatten(2)).reshape(places.shape)
        values, taken = window_maxima(reads, 3)
        indices = places.gather(3, prims.unsqueeze(taken, 3))
        shape = (*(lead[1:] if single else lead), *wanted)
        return (values.reshape(shape), indices.reshape(shape)) if return_indices else values.reshape(shape)

    fn.__name__ = name
    fn.__doc__ = (f"Maximum over windows of `kernel_size` at random distances in {spatial} dimensions, as many as `output_size`, or "
                  "`output_ratio` times the input's size.")
    return operator(fn, autocast={"cpu": "wide"}, node=True)


fractional_max_pool2d, fractional_max_pool3d = _fractional(2), _fractional(3)
