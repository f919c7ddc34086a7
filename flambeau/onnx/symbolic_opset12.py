"""Symbolic functions of opset 12, for libraries that name them at import; calling one raises NotImplementedError."""

from __future__ import annotations

from .._absent import absent_names

__getattr__ = absent_names(
    "torch.onnx.symbolic_opset12", ("dropout", "masked_fill", "select", "softmax", "squeeze", "unsqueeze"),
    "save the weights with torch.save and run torch.onnx in PyTorch",
)
