"""`compile_fx`, the backend "inductor", and what of its work is kept in the disk cache."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

from flambeau.aot import Uncacheable, aot_compile
from flambeau.backends.cpu import onednn
from flambeau.inductor import compile as build
from flambeau.inductor import graph as graphs
from flambeau.inductor.externs import PostOp
from flambeau.inductor.graph import CompiledGraph, Config, compile_graph, config
from flambeau.inductor.ir import Extern, View
from flambeau.inductor.lowering import Slot
from flambeau.inductor.native import NativeCode

GRAPH_MODES = ("reduce-overhead", "max-autotune")  # those that record CUDA graphs


def compile_fx(gm: Any, example_inputs: Sequence[Any], *, mode: str | None = None, **options: Any) -> Callable[..., Any]:
    """The backend "inductor": aot traces, differentiates and partitions; `compile_graph` compiles the pieces.

    `options` are settings of `Config` that hold while this is compiled. RuntimeError for one that does not exist.
    """
    known = {f.name for f in fields(Config)}
    for name in options:
        if name not in known:
            raise RuntimeError(f"Unexpected optimization option {name!r}, known options are {sorted(known)}")
    settings = {"cuda_graphs": mode in GRAPH_MODES, **options}

    def compiler(graph: Any, inputs: Sequence[Any]) -> CompiledGraph:
        with _settings(settings):
            return compile_graph(graph, inputs)

    artefacts = Kept(settings) if {"cache": config.cache, **settings}["cache"] else None
    return aot_compile(gm, example_inputs, forward_compiler=compiler, artefacts=artefacts)


@contextmanager
def _settings(values: dict[str, Any]) -> Iterator[None]:
    saved = {name: getattr(config, name) for name in values}
    try:
        for name, value in values.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in saved.items():
            setattr(config, name, value)


# --- the cache ---


class Kept:
    """How compiled graphs are kept: on CPUs by their library's name and the function around it."""

    classes = (NativeCode, Extern, View, PostOp, Slot)

    def __init__(self, settings: dict[str, Any]):
        self.settings = settings

    def fingerprint(self, description: str) -> str:
        """The settings, the machine, the C++ compiler and the libraries."""
        if graphs.listening:
            raise Uncacheable("its kernels are being looked at")
        if build.compiler() is None:
            raise Uncacheable("there is no C++ compiler")
        settings = {**asdict(config), **self.settings}
        return f"{sorted(settings.items())} {hashlib.sha256(build.fixed_part()).hexdigest()} {_onednn()}"

    def pack(self, compiled: Any) -> tuple[str, NativeCode]:
        """The name of the library, "" where there is none, and the rest."""
        if not isinstance(compiled.code, NativeCode):
            raise Uncacheable("it runs through NumPy" if compiled.cuda is None else "it runs on a GPU")
        return build.key_of(compiled.unit.source) if compiled.code.functions else "", compiled.code

    def unpack(self, record: tuple[str, NativeCode]) -> Callable[[list], list] | None:
        """The library loaded and the function around it."""
        key, code = record
        runs = build.open_library(key, code.symbols, code.arguments) if key else []
        return None if runs is None else code.link(runs)


@functools.cache
def _onednn() -> str:
    """Which oneDNN decides about layouts and epilogues."""
    path = onednn.library_path() if onednn.available() else None
    return f"{os.path.basename(os.path.realpath(path))} {os.stat(path).st_size}" if path else ""


__all__ = ["compile_fx"]
