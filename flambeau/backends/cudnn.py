"""torch.backends.cudnn: cuDNN is not there; the flags keep their values and change nothing on a CPU."""

from __future__ import annotations

from ._flags import flags_of

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    """False: no cuDNN."""
    return False


def version() -> int | None:
    """None: no cuDNN."""
    return None


def is_acceptable(tensor: object) -> bool:
    """False: no tensor can go to cuDNN."""
    return False


flags = flags_of(globals(), "enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32", "fp32_precision")
