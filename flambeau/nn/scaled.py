"""Products of matrices of float8 with scales beside them."""

from __future__ import annotations

import enum
from typing import Any

from ..core.dtypes import bfloat16, dtype, float8_e4m3fn, float8_e5m2, float32
from ..core.tensor import Tensor
from ..ops.linalg.products import _grouped_mm


class ScalingType(enum.IntEnum):
    """How the scales of a scaled matrix product go with its operands."""

    TensorWise, RowWise, BlockWise1x16, BlockWise1x32, BlockWise1x128, BlockWise128x128 = range(6)


class SwizzleType(enum.IntEnum):
    """How the scales of a scaled matrix product lie in memory."""

    NO_SWIZZLE, SWIZZLE_32_4_4 = range(2)


def _one(name: str, given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        if len(given) != 1:
            raise NotImplementedError(f"{name}: {len(given)} levels of scales are not implemented; multiply them, and give one")
        return given[0]
    return given


def _expect(name: str, a: Tensor, b: Tensor, recipes: tuple[Any, Any], swizzles: tuple[Any, Any]) -> None:
    if any(_one(name, s) not in (None, SwizzleType.NO_SWIZZLE) for s in swizzles):
        raise NotImplementedError(f"{name}: swizzled scales are not implemented; give them in rows (SwizzleType.NO_SWIZZLE)")
    if any(t.dtype not in (float8_e4m3fn, float8_e5m2) for t in (a, b)):
        raise ValueError(f"Invalid scaling configuration. {name} takes matrices of float8_e4m3fn or float8_e5m2, got {a.dtype} and "
                         f"{b.dtype}")
    if recipes[0] is not recipes[1] or recipes[0] not in (ScalingType.TensorWise, ScalingType.RowWise):
        raise ValueError(f"Invalid scaling configuration. {name} takes scales of one kind, TensorWise or RowWise, got {recipes[0]!r} and "
                         f"{recipes[1]!r}; scales of blocks are not implemented")


def _shaped(name: str, scale: Tensor, shape: tuple[int, ...], recipe: ScalingType) -> Tensor:
    """A scale as it is multiplied with: one number, or one for each row."""
    if scale.dtype is not float32:
        raise ValueError(f"Invalid scaling configuration. {name}: scales are float32, got {scale.dtype}")
    wanted = (1,) if recipe is ScalingType.TensorWise else shape
    if scale.numel() != wanted[0] * (wanted[1] if len(wanted) > 1 else 1) or (recipe is ScalingType.RowWise and
                                                                             tuple(scale.shape) != shape):
        raise ValueError(f"Invalid scaling configuration. {name}: expected a scale of shape {list(wanted)}, got {list(scale.shape)}")
    return scale.reshape(()) if recipe is ScalingType.TensorWise else scale


def scaled_mm(mat_a: Tensor, mat_b: Tensor, scale_a: Tensor | list[Tensor], scale_recipe_a: Any, scale_b: Tensor | list[Tensor],
              scale_recipe_b: Any, swizzle_a: Any = None, swizzle_b: Any = None, bias: Tensor | None = None,
              output_dtype: dtype | None = bfloat16, contraction_dim: list[int] | tuple[int, ...] = (),
              use_fast_accum: bool = False) -> Tensor:
    """scale_a * mat_a @ mat_b * scale_b + bias of float8 matrices (m, k) and (k, n), added up in float32. The scales are one number each
    (ScalingType.TensorWise), or (m, 1) and (1, n) (RowWise)."""
    recipes = (_one("scaled_mm", scale_recipe_a), _one("scaled_mm", scale_recipe_b))
    _expect("scaled_mm", mat_a, mat_b, recipes, (swizzle_a, swizzle_b))
    if tuple(contraction_dim) not in ((), (1, 0), (-1, -2)):
        raise NotImplementedError(f"scaled_mm(contraction_dim={contraction_dim}) is not implemented; give (m, k) and (k, n) matrices")
    if mat_a.ndim != 2 or mat_b.ndim != 2 or mat_a.shape[1] != mat_b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({list(mat_a.shape)} and {list(mat_b.shape)})")
    left = _shaped("scaled_mm", _one("scaled_mm", scale_a), (mat_a.shape[0], 1), recipes[0])
    right = _shaped("scaled_mm", _one("scaled_mm", scale_b), (1, mat_b.shape[1]), recipes[1])
    del use_fast_accum  # sums are as exact as they can be
    out = mat_a.to(float32) @ mat_b.to(float32) * left * right
    return (out if bias is None else out + bias.to(float32)).to(output_dtype or float32)


def scaled_grouped_mm(mat_a: Tensor, mat_b: Tensor, scale_a: Tensor | list[Tensor], scale_recipe_a: Any, scale_b: Tensor | list[Tensor],
                      scale_recipe_b: Any, swizzle_a: Any = None, swizzle_b: Any = None, bias: Tensor | None = None,
                      offs: Tensor | None = None, output_dtype: dtype | None = bfloat16, contraction_dim: list[int] | tuple[int, ...] = (),
                      use_fast_accum: bool = False) -> Tensor:
    """`grouped_mm` of float8 matrices with a scale for each row of mat_a (m,) and for each column of each matrix of mat_b (groups, n):
    mat_a (m, k) in groups of rows that end at `offs`, mat_b (groups, k, n)."""
    recipes = (_one("scaled_grouped_mm", scale_recipe_a), _one("scaled_grouped_mm", scale_recipe_b))
    _expect("scaled_grouped_mm", mat_a, mat_b, recipes, (swizzle_a, swizzle_b))
    if recipes[0] is not ScalingType.RowWise or mat_a.ndim != 2 or mat_b.ndim != 3 or offs is None or bias is not None or contraction_dim:
        raise NotImplementedError("scaled_grouped_mm takes a 2-d mat_a with offs, a 3-d mat_b and ScalingType.RowWise, without bias and "
                                  f"contraction_dim; got {mat_a.ndim}-d and {mat_b.ndim}-d, {recipes[0]!r}. Use scaled_mm for each group")
    rows = _shaped("scaled_grouped_mm", _one("scaled_grouped_mm", scale_a), (mat_a.shape[0],), recipes[0])
    columns = _shaped("scaled_grouped_mm", _one("scaled_grouped_mm", scale_b), (mat_b.shape[0], mat_b.shape[2]), recipes[1])
    del use_fast_accum
    left, right = mat_a.to(float32) * rows.unsqueeze(1), mat_b.to(float32) * columns.unsqueeze(1)
    return _grouped_mm(left, right, offs).to(output_dtype or float32)
