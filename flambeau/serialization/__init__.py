"""`torch.save` and `torch.load`: PyTorch's .pt files, readable by PyTorch and the other way round.

A file can only hold data unless it is loaded with `weights_only=False`; see `unpickler.py` for how that is kept.
"""

from tempfile import mkdtemp

from .api import add_safe_globals, clear_safe_globals, get_safe_globals, get_unsafe_globals_in_checkpoint, load, safe_globals, save
from .errors import LoadError
from .locations import (
    MAP_LOCATION,
    default_restore_location,
    location_tag,
    normalize_storage_type,
    register_package,
    storage_to_tensor_type,
    validate_cuda_device,
    validate_hpu_device,
)
from .names import _get_layout
from .options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)

DEFAULT_PROTOCOL = 2
"""Of pickles inside a file; it is always this one."""


class SourceChangeWarning(Warning):
    """What PyTorch warns with when the source of a pickled class has changed; it is not compared here."""


__all__ = [
    "DEFAULT_PROTOCOL", "MAP_LOCATION", "LoadEndianness", "LoadError", "SourceChangeWarning", "_get_layout", "add_safe_globals",
    "clear_safe_globals", "default_restore_location", "get_crc32_options", "get_default_load_endianness", "get_default_mmap_options",
    "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "location_tag", "mkdtemp", "normalize_storage_type",
    "register_package", "safe_globals", "save", "set_crc32_options", "set_default_load_endianness", "set_default_mmap_options",
    "skip_data", "storage_to_tensor_type", "validate_cuda_device", "validate_hpu_device",
]
