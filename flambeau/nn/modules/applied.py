"""Modules that are one function of nn.functional with its settings kept."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from .. import functional
from .module import Module

# The two methods as they would be written by hand, so that a call costs no more, the compiler sees plain code, and tools that put
# another function in the place of one of nn.functional see the module's call of it.
_METHODS = """
def made(base, F, {defaults}):
    def __init__(self, {parameters}):
        super(base, self).__init__()
        self._keep({kept})
    def forward(self, {inputs}):
        return F.{function}({inputs}, {passed})
    return __init__, forward
"""


class FunctionModule(Module):
    """A function with its settings kept: `class ELU(FunctionModule, function=F.elu)`.

    The function's signature is the module's: `forward` takes its leading tensors; the constructor takes its other parameters,
    with their defaults, and keeps them as attributes. `training` is the module's own. The last parameters may be left out, by
    `without`. What a class writes itself stays.
    """

    settings: tuple[str, ...] = ()

    def __init_subclass__(cls, function: Callable | None = None, without: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if function is None:
            return
        parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in ("out", *without)]
        inputs = list(takewhile(lambda p: p.annotation.startswith("Tensor") and p.default is p.empty, parameters))
        rest = parameters[len(inputs):]
        settings = [p for p in rest if p.name != "training"]
        name = function.__name__
        assert getattr(functional, name) is function, f"nn.functional.{name} is another function"
        source = _METHODS.format(
            function=name,
            inputs=", ".join(p.name for p in inputs), defaults=", ".join(f"default_{p.name}" for p in settings),
            parameters=", ".join(p.name if p.default is p.empty else f"{p.name}=default_{p.name}" for p in settings),
            kept=", ".join(f"{p.name}={p.name}" for p in settings),
            passed=", ".join(f"{p.name}=self.{p.name}" if p.kind is p.KEYWORD_ONLY else f"self.{p.name}" for p in rest))
        place, scope = sys._getframe(1), dict[str, Any]()
        code = compile("\n" * (place.f_lineno - 7) + source, place.f_code.co_filename, "exec")     # tracebacks show the class statement
        exec(code, sys.modules[cls.__module__].__dict__, scope)
        methods = scope["made"](FunctionModule, functional, *(p.default for p in settings))
        methods[1].source_text = source[source.index("    def forward"):source.index("    return __init__")]
        for method, taken in zip(methods, (settings, inputs)):
            if taken and method.__name__ not in cls.__dict__:
                method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
                method.__annotations__ = {p.name: p.annotation for p in taken}
                setattr(cls, method.__name__, method)
        cls.settings = tuple(p.name for p in settings)

    def _keep(self, **settings: Any) -> None:
        for name, value in settings.items():
            setattr(self, name, value)

    def extra_repr(self) -> str:
        """The settings by name; `inplace` only where it is chosen."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.settings if name != "inplace" or self.inplace)
