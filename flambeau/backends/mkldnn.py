"""torch.backends.mkldnn: whether oneDNN serves the CPU kernels."""

from __future__ import annotations

from ..core.settings import add_setting
from ._flags import flags_of, setter_of
from .cpu import onednn

enabled = True
deterministic = False
allow_tf32 = False
fp32_precision = "none"


def is_available() -> bool:
    """Whether the oneDNN library was found."""
    return onednn.available()


_NAMES = ("enabled", "deterministic", "allow_tf32", "fp32_precision")
flags = flags_of(globals(), *_NAMES)
set_flags = setter_of(globals(), *_NAMES)
add_setting("mkldnn", globals(), *_NAMES)
