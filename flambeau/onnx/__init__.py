"""torch.onnx: export is not implemented."""

from __future__ import annotations

from .._absent import absent

_INSTEAD = "export the weights with torch.save and run torch.onnx in PyTorch"
export = absent("torch.onnx.export", _INSTEAD)
dynamo_export = absent("torch.onnx.dynamo_export", _INSTEAD)
register_custom_op_symbolic = absent("torch.onnx.register_custom_op_symbolic", _INSTEAD)


def is_in_onnx_export() -> bool:
    """False."""
    return False
