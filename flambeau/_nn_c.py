"""What libraries find at `torch._C._nn`: the functions of `torch.nn.functional`, a few under other names."""

from __future__ import annotations

from typing import Any

from ._absent import absent
from .nn import functional
from .nn.modules.module import parse_to as _parse_to
from .ops import aten
from .ops.registry import OPERATORS

col2im, im2col = functional.fold, functional.unfold
cross_entropy_loss, log_sigmoid = functional.cross_entropy, functional.logsigmoid

_KERNELS = frozenset((
    "_conv_depthwise2d", "_pad_circular", "_pad_enum", "_test_ambiguous_defaults", "_test_optional_filled_intlist",
    "_test_optional_floatlist", "_test_optional_intlist", "_test_string_default", "_test_warn_in_autograd", "_upsample_lanczos2d_aa",
    "conv_depthwise3d", "flatten_dense_tensors", "gelu_", "mkldnn_reorder_conv2d_weight", "mkldnn_reorder_conv3d_weight", "nll_loss2d",
    "nll_loss_nd", "pad_sequence", "rrelu_with_noise_", "slow_conv3d", "slow_conv_dilated2d", "slow_conv_dilated3d",
    "slow_conv_transpose2d", "slow_conv_transpose3d", "thnn_conv2d", "unflatten_dense_tensors"
))
"""PyTorch's kernels that have no form here."""


def __getattr__(name: str) -> Any:
    if name in _KERNELS:
        return absent(f"torch._C._nn.{name}", "use torch.nn.functional")
    found = getattr(functional, name, None) or OPERATORS.get(name)
    return getattr(aten, name) if found is None else found


__all__ = ["_parse_to", "col2im", "cross_entropy_loss", "im2col", "log_sigmoid"]
