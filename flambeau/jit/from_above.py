"""What TorchScript calls of rooms above the operators': filled into the tables of `ops/script.py` where programs are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import autograd
from ..core.tensor import Tensor
from ..ops.script import ON_TENSORS, ON_VALUES, dtype_of
from ..sparse import construct


def _sparse(name: str) -> Callable[..., Tensor]:
    """A constructor of sparse tensors."""
    def made(*parts: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        return getattr(construct, name)(*parts, dtype=dtype_of(dtype), device=device, requires_grad=requires_grad)

    return made


ON_TENSORS |= {name: _sparse(name) for name in ("sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor")}
ON_VALUES["grad"] = lambda *args, **kwargs: list(autograd.grad(*args, **kwargs))
