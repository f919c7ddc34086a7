"""torch.cuda.random: seeds of GPUs. There are none, so that seeding all of them does nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from ..core.tensor import Tensor

_NONE = "there is no CUDA device; the CPU's generator is torch.get_rng_state()"


def manual_seed(seed: int) -> None:
    """Seed the current GPU, of which there is none."""


def manual_seed_all(seed: int) -> None:
    """Seed every GPU, of which there is none."""


def seed() -> None:
    """Seed the current GPU with chance, of which there is none."""


def seed_all() -> None:
    """Seed every GPU with chance, of which there is none."""


def initial_seed() -> NoReturn:
    """Raise: there is no GPU whose seed could be told."""
    raise AssertionError(f"torch.cuda.initial_seed(): {_NONE}")


def get_rng_state(device: Any = "cuda") -> NoReturn:
    """Raise: there is no GPU whose state could be told."""
    raise AssertionError(f"torch.cuda.get_rng_state(): {_NONE}")


def get_rng_state_all() -> list[Tensor]:
    """The states of all GPUs: none."""
    return []


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> NoReturn:
    """Raise: there is no GPU."""
    raise AssertionError(f"torch.cuda.set_rng_state(): {_NONE}")


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Set the states of all GPUs; raises unless `new_states` is empty."""
    for state in new_states:
        set_rng_state(state)
