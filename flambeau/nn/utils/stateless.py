"""functional_call: a module called with other parameters and buffers than its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...core.tensor import Tensor
from ..modules.module import Module


def _home(module: Module, path: str) -> tuple[dict, str] | None:
    owner_path, _, name = path.rpartition(".")
    try:
        owner = module.get_submodule(owner_path)
    except AttributeError:
        return None
    for home in (owner._parameters, owner._buffers):
        if name in home:
            return home, name
    return None


@contextmanager
def swapped(module: Module, tensors: Mapping[str, Tensor], tie_weights: bool = True, strict: bool = False) -> Iterator[None]:
    """Within the block `module` holds `tensors` in place of its own. Tensors registered under several names follow each other."""
    names: dict[int, list[str]] = {}
    for name, t in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)):
        names.setdefault(id(t), []).append(name)
    full = dict(tensors)
    if tie_weights:
        for tied in names.values():
            given = [n for n in tied if n in tensors]
            if given:
                for n in tied:
                    full.setdefault(n, tensors[given[0]])
    known = {n for tied in names.values() for n in tied}
    unexpected, missing = [n for n in tensors if n not in known], [n for n in known if n not in full]
    if strict and (unexpected or missing):
        parts = ([f"Unexpected key(s): {', '.join(unexpected)}."] if unexpected else []) + \
            ([f"Missing key(s): {', '.join(missing)}."] if missing else [])
        raise RuntimeError(f"Error(s) in swapping tensors of {type(module).__name__}: " + " ".join(parts))
    saved = []
    try:
        for name, value in full.items():
            home = _home(module, name)
            if home is not None:
                saved.append((*home, home[0][home[1]]))
                home[0][home[1]] = value
        yield
    finally:
        for home_dict, name, value in reversed(saved):
            home_dict[name] = value


def functional_call(module: Module, parameters_and_buffers: Any, args: Any = None, kwargs: dict[str, Any] | None = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """module(*args, **kwargs) with `parameters_and_buffers` (a mapping by dotted name, or several) in place of its own."""
    if isinstance(parameters_and_buffers, (tuple, list)):
        merged: dict[str, Tensor] = {}
        for part in parameters_and_buffers:
            if repeated := merged.keys() & part.keys():
                raise ValueError(f"{next(iter(repeated))} appears in multiple dictionaries; behavior of functional "
                                 f"call is ambiguous")
            merged.update(part)
        parameters_and_buffers = merged
    given = () if args is None else args if isinstance(args, tuple) else (args,)
    with swapped(module, parameters_and_buffers, tie_weights, strict):
        return module(*given, **(kwargs or {}))
