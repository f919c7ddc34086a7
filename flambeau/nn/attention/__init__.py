"""torch.nn.attention: choosing among attention kernels, and flexible attention."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..._lazy import submodules
from . import flex_attention


class SDPBackend(enum.IntEnum):
    """Kernels for scaled_dot_product_attention. On the CPU there is one, which stands for MATH."""

    ERROR, MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION, OVERRIDEABLE = range(-1, 5)


_allowed: list[tuple[SDPBackend, ...]] = [tuple(b for b in SDPBackend if b is not SDPBackend.ERROR)]


@contextmanager
def sdpa_kernel(backends: SDPBackend | Iterable[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Allow only `backends` in the block. All of them mean the same kernel on a CPU, so that any choice will do."""
    chosen = (backends,) if isinstance(backends, SDPBackend) else tuple(backends)
    if not chosen or not all(isinstance(b, SDPBackend) for b in chosen):
        raise AssertionError(f"Backend must be an instance of SDPBackend or a list of them, got {backends!r}")
    _allowed.append(chosen)
    try:
        yield
    finally:
        _allowed.pop()


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """The backends that are allowed now."""
    return list(_allowed[-1])


WARN_FOR_UNFUSED_KERNELS = False
"""Whether torch says why a kernel was not taken; nothing is said here."""


class _Implementations:
    """Implementations of attention by others, which put themselves in place when their function is called."""

    known: dict[str, Callable[[], Any]] = {}
    current: tuple[str, Any] | None = None


def register_flash_attention_impl(impl: str, *, register_fn: Callable[[], Any]) -> None:
    """Make an implementation known by a name: `register_fn()` puts it in place (by torch.library, or by a mode), and gives a handle whose
    `remove()` takes it away again, or None."""
    _Implementations.known[impl] = register_fn


def activate_flash_attention_impl(impl: str) -> None:
    """Put an implementation that was registered in place, instead of the one that is."""
    if impl not in _Implementations.known:
        raise ValueError(f"Unknown flash attention impl {impl!r}. Available implementations: {list_flash_attention_impls()}")
    restore_flash_attention_impl(_raise_warn=False)
    _Implementations.current = impl, _Implementations.known[impl]()


def list_flash_attention_impls() -> list[str]:
    """The names of those that were registered, beside Flambeau's own."""
    return sorted(_Implementations.known)


def current_flash_attention_impl() -> str | None:
    """The name of the one that was activated; None: Flambeau's own."""
    return None if _Implementations.current is None else _Implementations.current[0]


def restore_flash_attention_impl(_raise_warn: bool = True) -> None:
    """Back to Flambeau's own. `_raise_warn`: a warning where the one in place gave no handle to take it away by."""
    if _Implementations.current is None:
        return
    (name, handle), _Implementations.current = _Implementations.current, None
    if hasattr(handle, "remove"):
        handle.remove()
    elif _raise_warn:
        warnings.warn(f"the flash attention implementation {name!r} gave no handle to remove it by, so that it may still be in place",
                      UserWarning, stacklevel=2)


__getattr__ = submodules(__name__)

__all__ = ["SDPBackend", "activate_flash_attention_impl", "current_flash_attention_impl", "flex_attention", "list_flash_attention_impls",
           "register_flash_attention_impl", "restore_flash_attention_impl", "sdpa_kernel"]
