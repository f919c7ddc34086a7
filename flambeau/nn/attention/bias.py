"""Causal masks by name: `scaled_dot_product_attention` takes them as `attn_mask`."""

from __future__ import annotations

import enum
from typing import Any

from ...core.tensor import Tensor
from ...ops.nn.attention import scaled_dot_product_attention
from ...ops.registry import OPERATORS
from ...overrides import DisableTorchFunctionSubclass

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """In which corner the diagonal begins: the first key is the first query's, or the last key the last query's."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A mask that says which keys each query sees, made when somebody wants its elements."""

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        return OPERATORS["empty"]((0,))._as_subclass(cls)

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        if not isinstance(variant, CausalVariant):
            raise TypeError(f"variant must be a CausalVariant, not {type(variant).__name__}")
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask, True where a query sees a key."""
        shift = 0 if self.variant is CausalVariant.UPPER_LEFT else self.seq_len_kv - self.seq_len_q
        return OPERATORS["tril"](OPERATORS["ones"]((self.seq_len_q, self.seq_len_kv), dtype=bool, device=device), shift)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is not scaled_dot_product_attention:
            return super().__torch_function__(func, types, args, kwargs)
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = dict(zip(names, args), **kwargs)
        mask = given["attn_mask"]
        if given.get("is_causal"):
            raise ValueError("CausalBias should not be used with causal=True")
        plain = mask.variant is CausalVariant.UPPER_LEFT or mask.seq_len_q == mask.seq_len_kv
        given.update({"attn_mask": None, "is_causal": True} if plain else {"attn_mask": mask._materialize(given["query"].device)})
        with DisableTorchFunctionSubclass():
            return scaled_dot_product_attention(**given)

    def __repr__(self) -> str:
        return repr(self._materialize())


def _size(size: tuple) -> tuple[int, int]:
    if len(size) != 2:
        raise ValueError(f"a causal mask has two sizes (queries, keys), got {size}")
    return size


def causal_upper_left(*size: int) -> CausalBias:
    """The mask in which query i sees the keys up to i."""
    return CausalBias(CausalVariant.UPPER_LEFT, *_size(size))


def causal_lower_right(*size: int) -> CausalBias:
    """The mask in which the last query sees all keys, the one before all but the last, and so on."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_size(size))
