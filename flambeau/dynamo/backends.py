"""The registry of backends: names for `torch.compile(backend=...)`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from .. import fx
from ..core.lazy import LazyModule
from .exceptions import InvalidBackend

Backend = Callable[..., Callable[..., Any]]
"""`backend(gm, example_inputs) -> callable(*inputs) -> tuple`."""

_aot, _inductor = LazyModule("flambeau.aot"), LazyModule("flambeau.inductor")
_BACKENDS: dict[str, Backend] = {}
_TAGS: dict[str, frozenset[str]] = {}


def register_backend(compiler_fn: Backend | None = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
    """Give a backend a name, and tags by which lists leave it out; usable as a decorator. Registering a name twice is an error."""
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    backend, key = compiler_fn, name or compiler_fn.__name__
    if key in _BACKENDS:
        raise ValueError(f"a backend called {key!r} is registered already: {_BACKENDS[key]}")
    _BACKENDS[key], _TAGS[key] = backend, frozenset(tags)
    return backend


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """Names that `torch.compile(backend=...)` knows, but those of backends with one of these tags."""
    return sorted(name for name in _BACKENDS if not _TAGS[name] & set(exclude_tags or ()))


register_debug_backend = functools.partial(register_backend, tags=("debug",))
register_experimental_backend = functools.partial(register_backend, tags=("experimental",))


def lookup_backend(backend: str | Backend) -> Backend:
    """The backend of a name, or a callable as it is."""
    if callable(backend):
        return backend
    found = _BACKENDS.get(backend) or _installed(backend)
    if found is None:
        raise InvalidBackend(f"Invalid backend: {backend!r}. Known are {', '.join(map(repr, list_backends(())))}; any callable "
                         "backend(gm, example_inputs) works too.")
    return found


def _installed(name: str) -> Backend | None:
    """A backend that an installed package offers as an entry point of the group `torch_dynamo_backends`."""
    for entry in metadata.entry_points(group="torch_dynamo_backends"):
        if entry.name == name:
            return register_backend(entry.load(), name)
    return None


@register_debug_backend
def eager(gm: fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """Run the captured graph as it is: for finding out whether capture itself is right."""
    return gm.forward


@register_debug_backend
def aot_eager(gm: fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """Run the functional forward and backward graphs, without generated code."""
    compiled: Callable[..., Any] = _aot.aot_eager(gm, example_inputs)
    return compiled


@register_backend
def inductor(gm: fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """Fused native code (the default)."""
    compiled: Callable[..., Any] = _inductor.compile_fx(gm, example_inputs, **options)
    return compiled


inductor.check_options = lambda options: _inductor.config.effective(options)


@register_backend
def cudagraphs(gm: fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """As inductor, whose launches on a GPU are recorded and replayed."""
    return inductor(gm, example_inputs, **{"mode": "reduce-overhead", **options})
