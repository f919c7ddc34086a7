"""`torch.save` and `torch.load`: PyTorch's .pt files, readable by PyTorch and the other way round.

A file can only hold data unless it is loaded with `weights_only=False`; see `unpickler.py` for how that is kept.
"""

from .api import MAP_LOCATION, add_safe_globals, clear_safe_globals, get_safe_globals, load, safe_globals, save
from .errors import LoadError

DEFAULT_PROTOCOL = 2
"""Of pickles inside a file; it is always this one."""

__all__ = [
    "DEFAULT_PROTOCOL", "MAP_LOCATION", "LoadError", "add_safe_globals", "clear_safe_globals", "get_safe_globals",
    "load", "safe_globals", "save",
]
