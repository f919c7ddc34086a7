"""Functions that PyTorch keeps for itself and libraries call nevertheless: answers by public operators."""

from __future__ import annotations

from ._absent import absent
from .core.dtypes import dtype, int64
from .core.tensor import Tensor
from .nn.scaled import ScalingType, scaled_mm
from .ops.aten_forms import FORMS
from .ops.registry import OPERATORS


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


_KEPT = ("_batch_norm_with_update", "_chunk_cat", "_native_batch_norm_legit", "_softmax_backward_data", "_unsafe_masked_index",
         "_unsafe_masked_index_put_accumulate")
globals().update({name: FORMS[name] for name in _KEPT})     # ATen's, which torch has in its namespace too
_scaled_mm_v2 = absent("torch._scaled_mm_v2", "use torch.nn.functional.scaled_mm")
