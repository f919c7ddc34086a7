"""torch.backends.opt_einsum: the order of contractions in einsum is chosen without the opt_einsum package."""

from __future__ import annotations

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """False: opt_einsum is not used."""
    return False


def get_opt_einsum() -> None:
    """None: opt_einsum is not used."""
