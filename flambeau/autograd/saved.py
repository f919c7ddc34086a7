"""Hooks on what the tape saves: pack a tensor when it is saved, unpack it when backward needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from .graph import Settings


class saved_tensors_hooks:
    """Within the block `pack(tensor)` is kept in the tensor's place, and `unpack(packed)` gives it back for backward."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]):
        self.hooks = pack_hook, unpack_hook

    def __enter__(self) -> None:
        Settings.saved_hooks.append(self.hooks)

    def __exit__(self, *exc: Any) -> None:
        Settings.saved_hooks.pop()


class save_on_cpu(saved_tensors_hooks):
    """Keep saved tensors in host memory."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))
