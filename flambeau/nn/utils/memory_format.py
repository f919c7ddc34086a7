"""Convolution weights in another memory order."""

from __future__ import annotations

from typing import Any

from ..modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module


def _convert(module: Module, kinds: tuple[type, ...], memory_format: Any) -> Module:
    for m in module.modules():
        if isinstance(m, kinds):
            m.weight.data = m.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Give the weights of all 2-D convolutions below `module` this memory format."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Give the weights of all 3-D convolutions below `module` this memory format."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
