"""torch.ao.quantization: the stubs that quantisable models hold, which pass tensors through. Quantising is not implemented."""

from __future__ import annotations

from typing import Any

from ..._absent import absent_names
from ..._lazy import submodules
from ...core.tensor import Tensor
from ...nn.modules.module import Module


class QuantStub(Module):
    """Where a quantised model would quantise its input; the identity."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig is not None:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x


class DeQuantStub(QuantStub):
    """Where a quantised model would go back to floats; the identity."""


__getattr__ = submodules(__name__, otherwise=absent_names(
    "torch.ao.quantization",
    (
        "convert", "prepare", "prepare_qat", "fuse_modules", "fuse_modules_qat", "quantize", "quantize_dynamic", "quantize_qat",
        "QConfig", "get_default_qconfig", "get_default_qat_qconfig", "default_observer", "default_weight_observer",
        "default_per_channel_weight_observer", "QuantWrapper", "propagate_qconfig_", "FakeQuantize", "FakeQuantizeBase", "ObserverBase",
        "QConfigMapping", "QConfigDynamic", "MinMaxObserver", "MovingAverageMinMaxObserver", "PerChannelMinMaxObserver",
        "HistogramObserver", "PlaceholderObserver", "NoopObserver", "default_placeholder_observer", "default_dynamic_qconfig",
        "default_qconfig", "default_fake_quant", "disable_fake_quant", "enable_fake_quant", "disable_observer", "enable_observer",
        "get_default_qconfig_mapping", "get_default_qat_qconfig_mapping", "float_qparams_weight_only_qconfig", "swap_module",
        "per_channel_dynamic_qconfig", "default_eval_fn", "add_quant_dequant", "default_dynamic_quant_observer",
    ),
    "run the model in float32 or bfloat16",
))
