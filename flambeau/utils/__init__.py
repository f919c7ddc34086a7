"""What surrounds training: data loading, safetensors files, and other tools (`torch.utils`)."""

from .._lazy import submodules

__getattr__ = submodules(
    __name__, "_contextlib", "_foreach_utils", "_ordered_set", "_python_dispatch", "_pytree", "_triton", "benchmark", "checkpoint",
    "cpp_extension", "data", "deterministic", "dlpack", "flop_counter", "hooks", "model_zoo", "safetensors", "tensorboard", "weak")
