"""Names of the types of sizes, for annotations (torch.nn.common_types)."""

from __future__ import annotations

from typing import Any, Optional, TypeVar, Union

from ..core.tensor import Tensor

T = TypeVar("T")


def _one_or(kind: Any, count: int | None) -> Any:
    """A number, or a tuple of `count` of them (None: of any length)."""
    several: Any = tuple.__class_getitem__((kind, ...) if count is None else (kind,) * count)
    return Union[kind, several]     # noqa: UP007 - made of values


_scalar_or_tuple_any_t = _one_or(T, None)
_size_any_t, _ratio_any_t = _one_or(int, None), _one_or(float, None)
_size_1_t, _size_2_t, _size_3_t, _size_4_t, _size_5_t, _size_6_t = (_one_or(int, count) for count in range(1, 7))
_ratio_2_t, _ratio_3_t = (_one_or(float, count) for count in (2, 3))
_size_any_opt_t, _size_2_opt_t, _size_3_opt_t = (_one_or(Optional[int], count) for count in (None, 2, 3))  # noqa: UP045 - so too
_tensor_list_t = Union[Tensor, tuple[Tensor, ...]]     # noqa: UP007
_maybe_indices_t = Union[Tensor, tuple[Tensor, Tensor]]     # noqa: UP007
