"""torch.backends.opt_einsum: the order of contractions in einsum is chosen without the opt_einsum package."""

from __future__ import annotations

from ._flags import flags_of, setter_of

enabled = False
strategy: str | None = None
_NAMES = ("enabled", "strategy")
flags = flags_of(globals(), *_NAMES)
_set = setter_of(globals(), *_NAMES)


def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple:
    """What the flags were; ValueError where they would switch on what is not there."""
    if _enabled or _strategy is not None:
        raise ValueError("opt_einsum is not used here: torch.einsum contracts in an order of its own, so leave `enabled` False "
                         "and `strategy` None")
    return _set(_enabled, _strategy)


def is_available() -> bool:
    """False: opt_einsum is not used."""
    return False


def get_opt_einsum() -> None:
    """None: opt_einsum is not used."""
