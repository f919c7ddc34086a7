"""The registry of backends: names for `torch.compile(backend=...)`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .. import fx

Backend = Callable[..., Callable[..., Any]]
"""`backend(gm, example_inputs) -> callable(*inputs) -> tuple`."""

_BACKENDS: dict[str, Backend] = {}


def register_backend(backend: Backend | None = None, name: str | None = None) -> Any:
    """Give a backend a name; usable as a decorator. Registering a name twice is an error."""
    if backend is None:
        return lambda function: register_backend(function, name)
    key = name or backend.__name__
    if key in _BACKENDS:
        raise ValueError(f"a backend called {key!r} is registered already: {_BACKENDS[key]}")
    _BACKENDS[key] = backend
    return backend


def list_backends() -> list[str]:
    """Names that `torch.compile(backend=...)` knows."""
    return sorted(_BACKENDS)


def lookup_backend(backend: str | Backend) -> Backend:
    """The backend of a name, or a callable as it is."""
    if callable(backend):
        return backend
    found = _BACKENDS.get(backend)
    if found is None:
        raise ValueError(f"Invalid backend: {backend!r}. Known are {', '.join(map(repr, list_backends()))}; any callable "
                         "backend(gm, example_inputs) works too.")
    return found


@register_backend
def eager(gm: fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """Run the captured graph as it is: for finding out whether capture itself is right."""
    return gm.forward


@register_backend
def aot_eager(gm: fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """Run the functional forward and backward graphs, without generated code."""
    compiled: Callable[..., Any] = importlib.import_module("..aot", __package__).aot_eager(gm, example_inputs)
    return compiled


@register_backend
def inductor(gm: fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """Fused native code (the default)."""
    compile_fx = importlib.import_module("..inductor", __package__).compile_fx
    compiled: Callable[..., Any] = compile_fx(gm, example_inputs, **options)
    return compiled
