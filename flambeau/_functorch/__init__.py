"""`torch._functorch` as PyTorch's users know it; the things themselves are `flambeau.func` and `flambeau.aot`."""

from .._lazy import submodules
from ..func import *  # noqa: F403
from ..func import __all__

__getattr__ = submodules(__name__, "aot_autograd", "compilers", "config", "partitioners")
