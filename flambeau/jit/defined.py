"""`torch.jit.CompilationUnit`: functions of TorchScript that are given as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .frontend.given import functions_of
from .module import ScriptFunction
from .scripting import script_function


class CompilationUnit:
    """Functions of TorchScript, given as text: `CompilationUnit("def f(x):\\n  return x + 1").f(x)`."""

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        self._functions: dict[str, Callable] = {}
        self._compiled: dict[str, ScriptFunction] = {}
        if lang is not None:
            self.define(lang, _frames_up=_frames_up)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> None:
        """Compile the functions of a text, which may call those that are here. RuntimeError with the line of what is no TorchScript."""
        if rcb is not None:
            raise NotImplementedError("CompilationUnit.define(rcb=): a text sees torch, typing and its own functions")
        made = functions_of(lang, self._functions)
        compiled = {name: script_function(fn) for name, fn in made.items()}
        self._functions.update(made)
        self._compiled.update(compiled)

    def __getattr__(self, name: str) -> ScriptFunction:
        found = self.__dict__.get("_compiled", {}).get(name)
        if found is None:
            raise AttributeError(f"'CompilationUnit' has no attribute '{name}'")
        return found

    def get_functions(self) -> list[ScriptFunction]:
        """The functions, in the order in which they were defined."""
        return list(self._compiled.values())
