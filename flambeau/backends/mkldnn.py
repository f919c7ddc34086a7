"""torch.backends.mkldnn: whether oneDNN serves the CPU kernels."""

from __future__ import annotations

from ._flags import flags_of
from .cpu import onednn

enabled = True
deterministic = False
allow_tf32 = False
fp32_precision = "none"


def is_available() -> bool:
    """Whether the oneDNN library was found."""
    return onednn.available()


flags = flags_of(globals(), "enabled", "deterministic", "allow_tf32", "fp32_precision")
