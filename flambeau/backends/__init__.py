"""Kernels over arrays, one package for each kind of device; and the switches that torch keeps in `torch.backends`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum, quantized

fp32_precision = "none"


@contextmanager
def __allow_nonbracketed_mutation() -> Iterator[None]:
    """A block in which the switches may be set: here they always may."""
    yield

