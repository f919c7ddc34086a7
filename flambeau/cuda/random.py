"""torch.cuda.random: seeds of GPUs. All GPUs draw from one generator, which torch.manual_seed seeds with the CPU's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.tensor import Tensor
from ..ops.generators import default_gpu_generator
from .library import NOT_ENABLED, device_count, index_of

_NONE = f"there is no CUDA device; the CPU's generator is torch.get_rng_state() ({NOT_ENABLED})"


def _check(name: str, device: Any = None) -> None:
    if not device_count():
        raise AssertionError(f"torch.cuda.{name}(): {_NONE}")
    if not 0 <= index_of(device) < device_count():
        raise AssertionError(f"torch.cuda.{name}(): Invalid device id: got {device}, and there are {device_count()} GPUs")


def manual_seed(seed: int) -> None:
    """Seed the GPU's generator, nothing without a GPU."""
    if device_count():
        default_gpu_generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the GPU's generator with chance; nothing without a GPU."""
    if device_count():
        default_gpu_generator.seed()


manual_seed_all, seed_all = manual_seed, seed


def initial_seed() -> int:
    """The seed of the GPU's generator."""
    _check("initial_seed")
    return default_gpu_generator.initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The state of the GPU's generator, one for all GPUs."""
    _check("get_rng_state", device)
    return default_gpu_generator.get_state()


def get_rng_state_all() -> list[Tensor]:
    """The states of all GPUs' generators, one and the same."""
    return [default_gpu_generator.get_state() for _ in range(device_count())]


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Set the state of the GPU's generator, one for all GPUs."""
    _check("set_rng_state", device)
    default_gpu_generator.set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Set the states of all GPUs; raises unless `new_states` is empty where there is none."""
    for state in new_states:
        set_rng_state(state)
