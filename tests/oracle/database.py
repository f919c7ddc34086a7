"""torch's own operator database, called as a library: its entries, and the function of Flambeau that each one names."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

import flambeau

from .exclusions import ENTRIES

# each reading of forward values by the dtype of its samples
DTYPES = ("float32", "float64", "int64", "bool", "bfloat16", "float16", "complex64")


def title(entry: Any) -> str:
    """`linalg.norm` or, of a variant, `linalg.norm:subgradients_at_zero`."""
    return f"{entry.name}:{entry.variant_test_name}" if entry.variant_test_name else entry.name


def entries() -> dict[str, Any]:
    """The entries that are compared, by title."""
    from torch.testing._internal.common_methods_invocations import op_db
    return {title(entry): entry for entry in op_db if entry.name not in ENTRIES and title(entry) not in ENTRIES}


def named(path: str) -> Any:
    """What stands under a dotted name in our namespaces, or a method of Tensor."""
    found: Any = flambeau
    for part in path.removeprefix("torch.").split("."):
        found = getattr(found, part, None)
        if found is None:
            return getattr(flambeau.Tensor, path, None)
    return found


def _rebound(fn: types.FunctionType) -> Callable[..., Any]:
    """A function of the database's own, calling Flambeau where it calls torch; its helpers likewise."""
    ours: dict[str, Any] = dict(fn.__globals__)
    for name in _names(fn.__code__):
        value = ours.get(name)
        if name == "torch" or value is torch:
            ours[name] = flambeau
        elif name == "wrapper_set_seed":
            ours[name] = _seeded
        elif name == "F" or value is torch.nn.functional:
            ours[name] = flambeau.nn.functional
        elif isinstance(value, type) and value.__module__.startswith("torch.optim"):
            ours[name] = named(f"{value.__module__}.{value.__name__}")
        elif isinstance(value, types.FunctionType) and value.__module__.startswith("torch.testing"):
            ours[name] = _rebound(value)
    made = types.FunctionType(fn.__code__, ours, fn.__name__, fn.__defaults__, fn.__closure__)
    made.__kwdefaults__ = fn.__kwdefaults__
    return made


def _names(code: types.CodeType) -> set[str]:
    """The names that a function reads, and those that its inner functions read."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _seeded(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As the database calls what draws random numbers."""
    flambeau.manual_seed(42)
    return fn(*args, **kwargs)


def translated(fn: Any) -> Any:
    """Our counterpart of a function or method of torch's, or of one that the database defines; None where there is none."""
    if isinstance(fn, types.FunctionType) and fn.__module__.startswith("torch.testing"):
        return _rebound(fn)
    if isinstance(fn, functools.partial):
        inner = translated(fn.func) or named("nn.functional." + fn.func.__name__)
        return inner and functools.partial(inner, *fn.args, **fn.keywords)
    if isinstance(fn, types.MethodDescriptorType | types.WrapperDescriptorType):
        return getattr(flambeau.Tensor, fn.__name__, None)
    if isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return named("ops." + str(fn))
    return None


def counterpart(entry: Any) -> Any:
    """Our function for an entry; None where there is none."""
    found = translated(entry.op)
    return found if found is not None else named(entry.name)


def samples(entry: Any, dtype: str, gradient: bool = False, most: int = 0) -> Iterator[Any]:
    """The samples of an entry, drawn from a fixed seed; with `most`, about so many of them, evenly spread."""
    torch.manual_seed(0)
    if not most:
        yield from entry.sample_inputs("cpu", getattr(torch, dtype), requires_grad=gradient)
        return
    drawn = list(entry.sample_inputs("cpu", getattr(torch, dtype), requires_grad=gradient))
    yield from drawn[::max(1, -(-len(drawn) // most))]


def offers(entry: Any, dtype: str) -> bool:
    """Does torch compute this entry on the CPU in this dtype?"""
    return getattr(torch, dtype) in entry.supported_dtypes("cpu")
