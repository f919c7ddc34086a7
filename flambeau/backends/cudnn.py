"""torch.backends.cudnn: switches of cuDNN's convolutions on a GPU; on a CPU they keep their values and change nothing."""

from __future__ import annotations

import importlib.util

from ..core.lazy import LazyModule
from ..core.settings import add_setting
from ._flags import flags_of, setter_of

_dnn = LazyModule("flambeau.backends.cuda.dnn_library")     # which reads the settings here
enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    """Whether convolutions can run on a GPU: CuPy is there, and cuDNN where pip puts it."""
    if importlib.util.find_spec("cupy") is None:
        return False
    return len(_dnn.find_library()) > 1


def version() -> int | None:
    """cuDNN's version, 91500 for 9.15.0; None without it."""
    return _dnn.library().version() if is_available() else None


def is_acceptable(tensor: object) -> bool:
    """Whether cuDNN takes a tensor: on a GPU, of a floating dtype."""
    return bool(getattr(tensor, "is_cuda", False)) and tensor.dtype.is_floating_point and is_available()  # type: ignore[attr-defined]


_NAMES = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32", "fp32_precision")
flags = flags_of(globals(), *_NAMES)
set_flags = setter_of(globals(), *_NAMES)
add_setting("cudnn", globals(), *_NAMES)
