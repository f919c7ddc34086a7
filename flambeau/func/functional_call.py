"""A module as a function of its parameters and buffers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..ops.registry import OPERATORS


def functional_call(module: Any, parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
                    args: Any = None, kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False) -> Any:
    """`module(*args, **kwargs)` with the named parameters and buffers replaced for this call.

    `tie_weights`: a tensor that the module knows by several names is replaced under all of them. `strict`: raise RuntimeError for
    names that the module lacks (which are passed over otherwise) or that are left out. Raises ValueError when one key occurs in two
    dicts.
    """
    given: dict[str, Tensor] = {}
    dicts = [parameter_and_buffer_dicts] if isinstance(parameter_and_buffer_dicts, Mapping) else parameter_and_buffer_dicts
    if not isinstance(dicts, Sequence):
        raise ValueError("Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
                         f"{type(parameter_and_buffer_dicts)}")
    if not all(isinstance(part, Mapping) for part in dicts):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    for part in dicts:
        repeated = set(part) & set(given)
        if repeated:
            raise ValueError(f"{sorted(repeated)} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given.update(part)
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, given, tie_weights, strict):
        return module(*positional, **(kwargs or {}))


@contextlib.contextmanager
def _replaced(module: Any, given: Mapping[str, Tensor], tie_weights: bool, strict: bool) -> Iterator[None]:
    """The block sees the module with other tensors in place of its own."""
    own = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    chosen = dict(given)
    if tie_weights:
        by_identity: dict[int, Any] = {}
        for name, value in given.items():
            if name in own and by_identity.setdefault(id(own[name]), value) is not value:
                tied = [other for other in own if own[other] is own[name] and other in given]
                raise ValueError(f"functional_call got multiple values for keys {tied}, which are tied. Consider using tie_weights=False")
        for name, tensor in own.items():
            if name not in chosen and id(tensor) in by_identity:
                chosen[name] = by_identity[id(tensor)]
    if strict and own.keys() != chosen.keys():
        faults = {"Unexpected": [name for name in chosen if name not in own], "Missing": [name for name in own if name not in chosen]}
        raise RuntimeError(f"Error(s) in reparametrizing for {type(module).__name__}:" + "".join(
            f"\n\t{what} key(s): {', '.join(map(repr, names))}." for what, names in faults.items() if names))
    undo: list[tuple[dict, str, Any]] = []
    try:
        for name, value in chosen.items():
            path, _, leaf = name.rpartition(".")
            owner = module.get_submodule(path)
            table = next((t for t in (owner._parameters, owner._buffers, owner.__dict__) if leaf in t), None)
            if table is not None:
                if value is not None and not isinstance(value, Tensor):
                    raise TypeError(f"{value} is not an instance of torch.Tensor")
                undo.append((table, leaf, table[leaf]))
                table[leaf] = value
            elif leaf in owner._modules:
                raise TypeError(f"attribute `{leaf}`: {owner._modules[leaf]} is not an instance of torch.Tensor")
        yield
    finally:
        for table, leaf, value in reversed(undo):
            table[leaf] = value


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters, and the buffers, of models of one class, each name's tensors stacked along a new first dimension."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    stack = OPERATORS["stack"]

    def stacked(kind: str) -> dict[str, Tensor]:
        tables = [dict(getattr(m, kind)()) for m in models]
        return {name: stack([t[name].detach() for t in tables]).requires_grad_(tables[0][name].requires_grad) for name in tables[0]}

    return stacked("named_parameters"), stacked("named_buffers")


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """`root`, in which no normalisation keeps running statistics any more: a call within vmap cannot write them."""
    for module in root.modules():
        if getattr(module, "track_running_stats", False):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
