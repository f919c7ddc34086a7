"""A batch as microbatches, and results of microbatches as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.tensor import Tensor
from ...ops.joining import cat
from ...utils._pytree import tree_flatten, tree_unflatten


class TensorChunkSpec:
    """Tensors of an argument are cut (and results put together) along dimension `split_dim`."""

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: Sequence[int]) -> tuple[TensorChunkSpec, ...]:
        """One for each positional argument."""
        return tuple(map(TensorChunkSpec, chunk_dims))

    @staticmethod
    def from_dict(chunk_dims: Mapping[str, int]) -> dict[str, TensorChunkSpec]:
        """One for each argument by name."""
        return {name: TensorChunkSpec(dim) for name, dim in chunk_dims.items()}


class _Replicate:
    """Every microbatch gets the whole."""


_FIRST = TensorChunkSpec(0)


def chunks(value: Any, count: int, spec: Any = None) -> list:
    """`value`, anything with tensors in it, as `count` of its kind: tensors in equal parts, other things as they are. ValueError for a size
    that `count` does not divide: means of parts would not be the mean of the whole."""
    leaves, form = tree_flatten(value)
    parts = [_parts(leaf, count, _FIRST if spec is None else spec) for leaf in leaves]
    return [tree_unflatten([p[i] for p in parts], form) for i in range(count)]


def _parts(leaf: Any, count: int, spec: Any) -> Sequence:
    if not isinstance(leaf, Tensor) or spec is _Replicate or isinstance(spec, _Replicate):
        return [leaf] * count
    size = leaf.shape[spec.split_dim]
    if size % count:
        raise ValueError(f"a tensor of shape {list(leaf.shape)} can't be cut into {count} equal microbatches along dimension "
                         f"{spec.split_dim}")
    return leaf.tensor_split(count, spec.split_dim)


def merged(values: Sequence[Any], spec: Any = None) -> Any:
    """The results of all microbatches, one behind the other."""
    form = tree_flatten(values[0])[1]
    dim = (_FIRST if spec is None else spec).split_dim
    columns = zip(*(tree_flatten(v)[0] for v in values))
    return tree_unflatten([cat(list(c), dim) if isinstance(c[0], Tensor) and c[0].dim() else c[0] for c in columns], form)


def split_args_kwargs_into_chunks(args: tuple, kwargs: dict[str, Any] | None, chunks: int, args_chunk_spec: Sequence | None = None,
                                  kwargs_chunk_spec: Mapping[str, Any] | None = None) -> tuple[list[tuple], list[dict[str, Any]]]:
    """The arguments of each microbatch: ([args, ...], [kwargs, ...]). Along dimension 0, if the specs don't say otherwise."""
    return _args_of(args, chunks, args_chunk_spec), _kwargs_of(kwargs or {}, chunks, kwargs_chunk_spec)


def _args_of(args: tuple, count: int, spec: Sequence | None) -> list[tuple]:
    if spec is not None and len(spec) != len(args):
        raise ValueError(f"args_chunk_spec has {len(spec)} entries for {len(args)} arguments")
    columns = [chunks(a, count, s) for a, s in zip(args, spec or [None] * len(args))]
    return [tuple(c[i] for c in columns) for i in range(count)]


def _kwargs_of(kwargs: Mapping[str, Any], count: int, spec: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    columns = {name: chunks(value, count, (spec or {}).get(name)) for name, value in kwargs.items()}
    return [{name: c[i] for name, c in columns.items()} for i in range(count)]


def merge_chunks(chunks: Sequence[Any], chunk_spec: Any) -> Any:
    """The results of all microbatches as one, along the dimension of `chunk_spec` (0 if it is None)."""
    return merged(chunks, chunk_spec)
