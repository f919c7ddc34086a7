"""What surrounds training: data loading, safetensors files, and other tools (`torch.utils`)."""

from .._lazy import submodules

__getattr__ = submodules(__name__, "_pytree", "benchmark", "checkpoint", "data", "deterministic", "dlpack", "flop_counter", "hooks",
                         "model_zoo", "safetensors")
