"""Names for annotations (torch.types)."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from .core.device import device
from .core.dtypes import dtype
from .core.memory_format import layout
from .core.size import Size
from .core.symbolic import SymInt
from .core.tensor import Tensor

_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrTensorsOrGradEdge: TypeAlias = _TensorOrTensors
_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_dtype, _device, _layout = dtype, device, layout
_size: TypeAlias = Size | list[builtins.int] | tuple[builtins.int, ...]
_dispatchkey: TypeAlias = str
_symsize: TypeAlias = Size | Sequence[builtins.int | SymInt]
Device: TypeAlias = device | str | builtins.int | None
DeviceLikeType: TypeAlias = str | device | builtins.int
FileLike: TypeAlias = str | os.PathLike | Any
IntLikeType: TypeAlias = builtins.int | SymInt
FloatLikeType: TypeAlias = builtins.float
BoolLikeType: TypeAlias = builtins.bool
Number: TypeAlias = builtins.int | builtins.float | builtins.bool
_Number = (builtins.int, builtins.float, builtins.bool)
