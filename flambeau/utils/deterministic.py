"""What `torch.use_deterministic_algorithms` also looks at: `fill_uninitialized_memory`."""

from __future__ import annotations

import sys
from types import ModuleType

from ..core.settings import Numerics


class _Deterministic(ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether `empty` and its like give NaN, the greatest integer or True while deterministic algorithms are asked for."""
        return Numerics.fill_uninitialized_memory

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, flag: bool) -> None:
        if not isinstance(flag, bool):
            raise TypeError(f"fill_uninitialized_memory must be a bool, but got {type(flag).__name__}")
        Numerics.fill_uninitialized_memory = flag


sys.modules[__name__].__class__ = _Deterministic
