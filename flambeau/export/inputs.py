"""Which sizes vary, told by further inputs: `AdditionalInputs`."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..utils._pytree import tree_flatten, tree_unflatten
from .dims import Dim, named_inputs


class AdditionalInputs:
    """Given as `dynamic_shapes`: a size that differs between the inputs `add`ed here and those that are exported with varies."""

    def __init__(self) -> None:
        self._examples: list[tuple[tuple, dict]] = []

    def add(self, args: tuple, kwargs: dict[str, Any] | None = None) -> None:
        """Further inputs that the program is to run on."""
        if not isinstance(args, tuple) or not isinstance(kwargs or {}, dict):
            raise AssertionError(f"AdditionalInputs.add() takes a tuple and a dict, got {type(args)} and {type(kwargs)}")
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, m: Any, args: tuple, kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
        """The tree of shapes for these inputs of a module: Dim.DYNAMIC where a size, or a number, is not the same in all."""
        every = [named_inputs(m, *example) for example in ((args, kwargs or {}), *self._examples)]
        trees = [tree_flatten(inputs) for inputs in every]
        for _, spec in trees[1:]:
            if spec != trees[0][1]:
                raise ValueError(f"AdditionalInputs: the structure of further inputs is {spec}, that of the first {trees[0][1]}")
        return tree_unflatten([_vary(leaves) for leaves in zip(*(leaves for leaves, _ in trees))], trees[0][1])

    def verify(self, ep: Any) -> None:
        """RuntimeError, or what the program raises, where it doesn't run on one of the inputs."""
        module = ep.module()
        for args, kwargs in self._examples:
            module(*args, **kwargs)


def _vary(values: tuple) -> Any:
    first = values[0]
    if isinstance(first, Tensor):
        if any(not isinstance(v, Tensor) or v.ndim != first.ndim for v in values):
            raise ValueError(f"AdditionalInputs: tensors of one number of dimensions stand in one place, got "
                             f"{[list(v.shape) if isinstance(v, Tensor) else type(v).__name__ for v in values]}")
        return {d: Dim.DYNAMIC for d in range(first.ndim) if any(v.shape[d] != first.shape[d] for v in values)} or None
    if type(first) is int:
        return Dim.DYNAMIC if any(v != first for v in values) else None
    if any(v != first for v in values):
        raise ValueError(f"AdditionalInputs: values of type {type(first).__name__} must be the same in all inputs, got {list(values)}")
    return None
