"""Decorators of functions that describe operators for ONNX export (torch.onnx.symbolic_helper)."""

from __future__ import annotations

from collections.abc import Callable


def parse_args(*arg_descriptors: str) -> Callable[[Callable], Callable]:
    """Decorate a symbolic function; it stays as it is, and gets numbers for arguments that are constants."""
    return lambda fn: fn


def quantized_args(*arg_q_descriptors: bool, **settings: object) -> Callable[[Callable], Callable]:
    """Decorate a symbolic function; it stays as it is: no tensor is quantized."""
    return lambda fn: fn
