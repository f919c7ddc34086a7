"""torch's other names for operators, and in-place forms of those that have none beside their definition."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from .pointwise import inplace
from .registry import OPERATORS, as_dunder, operator

# name -> the operator it means; each is a function of the namespace and a method.
_ALIASES = {
    "arctan2": "atan2", "clip": "clamp", "conj_physical": "conj", "divide": "div", "true_divide": "div", "fix": "trunc",
    "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne", "multiply": "mul",
    "subtract": "sub", "moveaxis": "movedim", "swapaxes": "transpose", "swapdims": "transpose", "split_with_sizes":
    "split", "unsafe_split": "split", "unsafe_chunk": "chunk", "unsafe_split_with_sizes": "split", "resolve_conj":
    "positive", "resolve_neg": "positive", "clip_": "clamp_", "divide_": "div_", "true_divide_": "div_", "fix_":
    "trunc_", "multiply_": "mul_", "subtract_": "sub_", "greater_": "gt_", "greater_equal_": "ge_", "less_": "lt_",
    "less_equal_": "le_", "not_equal_": "ne_", "arctan2_": "atan2_", "absolute_": "abs_", "negative_": "neg_",
}
_INPLACE = (
    "deg2rad", "rad2deg", "frac", "sinc", "logit", "xlogy", "nan_to_num", "float_power", "heaviside", "ldexp",
    "logical_not", "mvlgamma", "igamma", "igammac", "tril", "triu", "clamp_min", "clamp_max", "conj_physical", "sgn",
    "index_reduce",
)


def _name(alias: str, target: str) -> None:
    made = OPERATORS.get(target)
    if made is not None:
        OPERATORS.setdefault(alias, made)
        if not hasattr(Tensor, alias):
            setattr(Tensor, alias, made)


for _alias, _target in _ALIASES.items():
    _name(_alias, _target)
for _base in _INPLACE:
    if f"{_base}_" not in OPERATORS and _base in OPERATORS:
        inplace(OPERATORS[_base], f"{_base}_")


@operator(method="__rlshift__")
def rlshift(input: Tensor, other: Any) -> Tensor:
    """other << input."""
    return OPERATORS["bitwise_left_shift"](other, input)


@operator(method="__rrshift__")
def rrshift(input: Tensor, other: Any) -> Tensor:
    """other >> input."""
    return OPERATORS["bitwise_right_shift"](other, input)


for _dunder, _target in (("__imod__", "remainder_"), ("__ifloordiv__", "floor_divide_"), ("__ilshift__", "bitwise_left_shift_"),
                         ("__irshift__", "bitwise_right_shift_")):
    if not hasattr(Tensor, _dunder):
        setattr(Tensor, _dunder, as_dunder(OPERATORS[_target]))
