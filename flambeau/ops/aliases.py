"""torch's other names for operators, and in-place forms of those that have none beside their definition."""

from __future__ import annotations

from ..core.tensor import Tensor
from .pointwise import reflected
from .primitives import register
from .registry import OPERATORS, as_dunder
from .writing import inplace

# operator -> its other names; functions of the namespace and, where it is one, methods, and so are the in-place forms.
_ALIASES = {
    "abs": "absolute", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atan2": "arctan2", "atanh": "arctanh", "cat": "concat concatenate", "channel_shuffle": "native_channel_shuffle",
    "clamp": "clip",
    "div": "divide true_divide", "ge": "greater_equal", "grid_sampler": "grid_sampler_2d grid_sampler_3d", "gt": "greater",
    "le": "less_equal", "linalg_det": "det",
    "linalg_householder_product": "orgqr", "linalg_inv": "inverse", "linalg_matrix_exp": "matrix_exp",
    "linalg_matrix_power": "matrix_power", "linalg_slogdet": "slogdet", "lt": "less",
    "movedim": "moveaxis", "mul": "multiply",
    "ne": "not_equal", "neg": "negative",
    "outer": "ger", "split": "split_with_sizes", "split_copy": "split_with_sizes_copy",
    "sub": "subtract",
    "transpose": "swapaxes swapdims", "trunc": "fix", "vstack": "row_stack",
}
_INPLACE = (
    "deg2rad", "rad2deg", "frac", "sinc", "logit", "xlogy", "nan_to_num", "heaviside", "ldexp",
    "logical_not", "mvlgamma", "igamma", "igammac", "tril", "triu", "clamp_min", "clamp_max", "conj_physical", "sgn",
    "index_reduce",
)


def _name(alias: str, target: str) -> None:
    made = OPERATORS.get(target)
    if made is not None:
        if alias not in OPERATORS:
            register(OPERATORS, alias, made)
        if hasattr(Tensor, target) and not hasattr(Tensor, alias):
            setattr(Tensor, alias, made)


for _target, _names in _ALIASES.items():
    for _alias in _names.split():
        _name(_alias, _target)
        _name(f"{_alias}_", f"{_target}_")
for _base in _INPLACE:
    if f"{_base}_" not in OPERATORS and _base in OPERATORS:
        inplace(OPERATORS[_base], f"{_base}_")


Tensor.__rdiv__ = Tensor.__rtruediv__  # type: ignore[method-assign]
reflected("rlshift", OPERATORS["bitwise_left_shift"], "other << input.")
reflected("rrshift", OPERATORS["bitwise_right_shift"], "other >> input.")


for _dunder, _target in (("__imod__", "remainder_"), ("__ifloordiv__", "floor_divide_"), ("__ilshift__", "bitwise_left_shift_"),
                         ("__irshift__", "bitwise_right_shift_")):
    if not hasattr(Tensor, _dunder):
        setattr(Tensor, _dunder, as_dunder(OPERATORS[_target], _dunder))
