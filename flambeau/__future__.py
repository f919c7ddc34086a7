"""torch.__future__: how modules convert and load their parameters. Both ways are off unless asked for."""

from __future__ import annotations

from .core.settings import Conversions


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Let conversions (`module.double()`, `.to(...)`) put new parameters in the place of the old ones, which stay as they were."""
    Conversions.overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether conversions put new parameters in the place of the old ones."""
    return Conversions.overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Let conversions and `load_state_dict` swap what they make with the parameters (`torch.utils.swap_tensors`): whoever holds one has
    the new one, whatever its class."""
    Conversions.swap = value


def get_swap_module_params_on_conversion() -> bool:
    """Whether conversions and `load_state_dict` swap."""
    return Conversions.swap
