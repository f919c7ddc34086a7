"""`torch.save` and `torch.load`: PyTorch's .pt files, readable by PyTorch and the other way round.

A file can only hold data unless it is loaded with `weights_only=False`; see `unpickler.py` for how that is kept.
"""

import pickle as pickle
import warnings
from tempfile import mkdtemp
from typing import Any

# isort: off
from ..core.dtypes import dtype as dtype_type
from ..core.dtypes import dtype_of_name
from .api import add_safe_globals, clear_safe_globals, get_safe_globals, get_unsafe_globals_in_checkpoint, load, safe_globals, save
from .errors import LoadError
from .legacy import INT_SIZE, LONG_SIZE, MAGIC_NUMBER, PROTOCOL_VERSION, SHORT_SIZE
from .locations import (
    _package_registry,
    MAP_LOCATION, default_restore_location, location_tag, normalize_storage_type, register_package, storage_to_tensor_type,
    validate_cuda_device, validate_hpu_device,
)
from .names import STORAGE_NAMES, _get_layout
from .options import (
    LoadEndianness, get_crc32_options, get_default_load_endianness, get_default_mmap_options, set_crc32_options,
    set_default_load_endianness, set_default_mmap_options, skip_data,
)
# isort: on

DEFAULT_PROTOCOL = 2
"""Of pickles inside a file, unless `save` is told another."""


class SourceChangeWarning(Warning):
    """What PyTorch warns with when the source of a pickled class has changed; it is not compared here."""


class StorageType:
    """A storage's class by its name ("FloatStorage"), of which files speak: `dtype` is that of its elements."""

    def __init__(self, name: str) -> None:
        kinds = [kind for kind, of in STORAGE_NAMES.items() if of == name]
        if not kinds:
            raise KeyError(f"{name} is no storage's name; there are {', '.join(sorted(STORAGE_NAMES.values()))}")
        self._dtype = dtype_of_name(kinds[0])

    @property
    def dtype(self) -> dtype_type:
        """Of the elements."""
        return self._dtype


def check_module_version_greater_or_equal(module: Any, req_version_tuple: tuple[int, ...], error_if_malformed: bool = True) -> bool:
    """Whether `module.__version__` is at least that. One that cannot be read is a RuntimeError, or else a warning and True."""
    try:
        parts = module.__version__.split(".")
        found = tuple(type(wanted)(part) for wanted, part in zip(req_version_tuple, parts, strict=False))
        return found >= req_version_tuple
    except (ValueError, AttributeError, TypeError) as error:
        told = f"'{getattr(module, '__name__', module)}' module version string is malformed '{getattr(module, '__version__', None)}' and " \
               f"cannot be compared with tuple {req_version_tuple}"
        if error_if_malformed:
            raise RuntimeError(told) from error
        warnings.warn(f"{told}, but continuing assuming that requirement is met", stacklevel=2)
        return True


__all__ = [
    "StorageType", "check_module_version_greater_or_equal",
    "DEFAULT_PROTOCOL", "MAP_LOCATION", "LoadEndianness", "LoadError", "SourceChangeWarning", "_get_layout", "add_safe_globals",
    "clear_safe_globals", "default_restore_location", "get_crc32_options", "get_default_load_endianness", "get_default_mmap_options",
    "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "location_tag", "mkdtemp", "normalize_storage_type",
    "register_package", "safe_globals", "save", "set_crc32_options", "set_default_load_endianness", "set_default_mmap_options",
    "skip_data", "storage_to_tensor_type", "validate_cuda_device", "validate_hpu_device",
]
