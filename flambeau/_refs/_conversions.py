"""`torch._refs._conversions`: a tensor in another dtype, by the dtype's old name."""

from __future__ import annotations

from ..core.tensor import Tensor
from ..ops.registry import OPERATORS

globals().update({name: getattr(Tensor, name) for name in (
    "bfloat16", "bool", "byte", "cdouble", "cfloat", "chalf", "char", "double", "float", "half", "int", "long", "short")})
complex, polar = OPERATORS["complex"], OPERATORS["polar"]
