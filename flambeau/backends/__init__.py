"""Kernels over arrays, one package for each kind of device; and the switches that torch keeps in `torch.backends`."""

from __future__ import annotations

from . import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum, python_native, quantized, xnnpack
from ._flags import __allow_nonbracketed_mutation, disable_global_flags, flags_frozen

fp32_precision = "none"

