"""vmap over what holds tensors and does itself what is done with them, as tensordict's collections do."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau
from flambeau.func.vmap import add_batch_dim, is_batchedtensor, remove_batch_dim


class Pair:
    """Two tensors under one batch shape."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    @property
    def shape(self) -> tuple:
        return tuple(self.a.shape[:1])

    ndim = 1

    def _add_batch_dim(self, *, in_dim: int, vmap_level: Any) -> Pair:
        return Pair(add_batch_dim(self.a, in_dim, vmap_level), add_batch_dim(self.b, in_dim, vmap_level))

    def _remove_batch_dim(self, *, vmap_level: Any, batch_size: int, out_dim: int) -> Pair:
        return Pair(*(remove_batch_dim(t, vmap_level, batch_size, out_dim) for t in (self.a, self.b)))


def test_collections_in_and_out() -> None:
    a, b = flambeau.arange(6.0).reshape(3, 2), flambeau.arange(3.0)
    seen = []

    def f(pair: Pair, scale: Any) -> Any:
        seen.append((tuple(pair.a.shape), tuple(pair.b.shape), is_batchedtensor(pair.a)))
        return Pair(pair.a * scale, pair.b + 1), pair.a.sum() * pair.b

    made, sums = flambeau.vmap(f)(Pair(a, b), flambeau.tensor([1.0, 2.0, 3.0]))
    assert seen == [((2,), (), True)]
    assert made.a.tolist() == [[0, 1], [4, 6], [12, 15]] and made.b.tolist() == [1, 2, 3] and sums.tolist() == [0, 5, 18]
    with pytest.raises(ValueError, match="same size"):
        flambeau.vmap(f)(Pair(a, b), flambeau.ones(2))
