"""torch.nn.attention: choosing among attention kernels, and flexible attention."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..._absent import absent_names
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


def list_flash_attention_impls() -> list[str]:
    """None: there is one implementation."""
    return []


def current_flash_attention_impl() -> str | None:
    """None: no other one was activated."""


def restore_flash_attention_impl() -> None:
    """Nothing to go back from."""


__getattr__ = submodules(__name__, otherwise=absent_names(
    __name__, ("activate_flash_attention_impl", "register_flash_attention_impl"), "there is one implementation; sdpa_kernel chooses"))

__all__ = ["SDPBackend", "flex_attention", "sdpa_kernel"]
