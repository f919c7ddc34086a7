"""What surrounds training: data loading, safetensors files, and other tools (`torch.utils`)."""

from .._lazy import submodules

__getattr__ = submodules(__name__, "_pytree", "benchmark", "checkpoint", "data", "flop_counter", "model_zoo", "safetensors")
