"""Functions that PyTorch keeps for itself and libraries call nevertheless: answers by public operators."""

from __future__ import annotations

from collections.abc import Sequence

from ._absent import absent
from .core.dtypes import dtype, int8, int32, int64, uint8
from .core.tensor import Tensor
from .nn.scaled import ScalingType, scaled_mm
from .ops.aten_forms import FORMS
from .ops.registry import OPERATORS
from .ops.script import ON_TENSORS


def _shape_as_tensor(self: Tensor) -> Tensor:
    """The sizes as a tensor of int64."""
    return OPERATORS["tensor"](list(self.shape), dtype=int64)


shape_as_tensor = _shape_as_tensor


def _scaled_mm(self: Tensor, mat2: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
               scale_result: Tensor | None = None, out_dtype: dtype | None = None, use_fast_accum: bool = False) -> Tensor:
    """torch.nn.functional.scaled_mm, whose kind of scales follows from their number."""
    if scale_result is not None:
        raise NotImplementedError("_scaled_mm(scale_result=...) is not implemented; multiply the result")
    recipe = ScalingType.TensorWise if scale_a.numel() == scale_b.numel() == 1 else ScalingType.RowWise
    return scaled_mm(self, mat2, scale_a, recipe, scale_b, recipe, bias=bias, output_dtype=out_dtype or self.dtype,
                     use_fast_accum=use_fast_accum)


def _int_mm(self: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices of 8-bit integers, added up in int32: (n, k) and (k, m) give (n, m)."""
    for name, x in (("self", self), ("mat2", mat2)):
        if x.ndim != 2:
            raise RuntimeError(f"_int_mm: Expected {name} to be of dimension 2 but got {x.ndim}")
        if x.dtype is not int8 and (x is mat2 or x.dtype is not uint8):
            raise RuntimeError(f"_int_mm: Expected {name} dtype to be int8{'' if x is mat2 else ' or uint8'} but got {x.dtype}")
    if self.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"_int_mm: self.size(1) needs to match mat2.size(0) but got {self.shape[1]} and {mat2.shape[0]}")
    return self.to(int32) @ mat2.to(int32)


def _amp_foreach_non_finite_check_and_unscale_(self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply the tensors by `inv_scale`, and make `found_inf` 1 where one of them has an infinite or NaN element."""
    if not all(bool(x.isfinite().all()) for x in self):
        found_inf.fill_(1)
    for x in self:
        x.mul_(inv_scale.to(x.device))


def _amp_update_scale_(self: Tensor, growth_tracker: Tensor, found_inf: Tensor, scale_growth_factor: float,
                       scale_backoff_factor: float, growth_interval: int) -> Tensor:
    """The scale of losses after a step, in place: shrunk if there was an infinite gradient, grown after `growth_interval` steps without."""
    steps = 0 if bool(found_inf) else int(growth_tracker) + 1
    if not steps:
        self.mul_(scale_backoff_factor)
    elif steps == growth_interval:
        grown = self * scale_growth_factor
        self.copy_(grown if bool(grown.isfinite()) else self)
        steps = 0
    growth_tracker.fill_(steps)
    return self


_KEPT = ("_batch_norm_with_update", "_chunk_cat", "_native_batch_norm_legit", "_softmax_backward_data", "_unsafe_masked_index",
         "_unsafe_masked_index_put_accumulate")
globals().update({name: FORMS[name] for name in _KEPT})     # ATen's, which torch has in its namespace too
globals().update({name: fn for name, fn in ON_TENSORS.items() if name.startswith("_cast_")})
_scaled_mm_v2 = absent("torch._scaled_mm_v2", "use torch.nn.functional.scaled_mm")
