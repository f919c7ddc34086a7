"""The objects that a TorchScript program works with beside tensors, numbers, strings and containers: instances of its own classes."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..core.tensor import Tensor
from .types import Type

EXACT: dict[Type, type] = {Type("Tensor"): Tensor, Type("int"): int, Type("bool"): bool, Type("float"): float, Type("str"): str}


@dataclass(eq=False)
class Parameter:
    """A parameter of a function: its name, its type, and what computes its default."""

    name: str
    type: Type
    default: Callable[[dict], Any] | None = None


def _shown(default: Any) -> str:
    """A default as signatures have it: texts in double quotes."""
    return json.dumps(default) if isinstance(default, str) else str(default)


@dataclass(eq=False)
class Function:
    """A function or method, compiled: `run(frame)` computes its result from a dict of its parameters."""

    name: str
    parameters: list[Parameter]
    returns: Type
    run: Callable[[dict], Any]
    source: str

    def __post_init__(self) -> None:
        self.names = tuple(p.name for p in self.parameters)

    def frame_of(self, owner: tuple, args: tuple) -> dict[str, Any] | None:
        """The parameters for arguments that are of exactly the declared types; None where more must be looked at."""
        if len(owner) + len(args) != len(self.parameters):
            return None
        frame = {}
        for p, value in zip(self.parameters, owner):
            frame[p.name] = value
        for p, value in zip(self.parameters[len(owner):], args):
            if EXACT.get(p.type) is not type(value):
                return None
            frame[p.name] = value
        return frame

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result for arguments that are of the right types."""
        return self.run(self._frame(args, kwargs))

    def arguments(self, args: tuple, kwargs: dict[str, Any]) -> tuple:
        """What each parameter gets, in order."""
        frame = self._frame(args, kwargs)
        return tuple(frame[name] for name in self.names)

    def _frame(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        frame = dict(zip(self.names, args), **kwargs)
        if len(frame) < len(self.parameters):
            for p in self.parameters:
                if p.name not in frame:
                    if p.default is None:
                        raise RuntimeError(f"{self.name}() is missing value for argument '{p.name}'. Declaration: {self.declaration()}")
                    frame[p.name] = p.default({})
        return frame

    def declaration(self) -> str:
        """Its signature, as torch writes signatures."""
        parts = [f"{p.type.notation()} {p.name}" + (f"={_shown(p.default({}))}" if p.default else "") for p in self.parameters]
        return f"{self.name.rpartition('.')[2]}({', '.join(parts)}) -> {self.returns.notation()}"

    def __deepcopy__(self, memo: dict) -> Function:
        return self


@dataclass(eq=False)
class Class:
    """A class of a program: `kind` is Module, class, NamedTuple, Enum, Interface or ModuleInterface."""

    name: str
    kind: str
    source: str = ""
    attributes: dict[str, Type] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    methods: dict[str, Function] = field(default_factory=dict)
    forward_pre_hooks: list[str] = field(default_factory=list)      # methods that a module's call runs before forward
    forward_hooks: list[str] = field(default_factory=list)          # and after it
    python: Any = None      # of a NamedTuple and an Enum, and what was scripted

    def __deepcopy__(self, memo: dict) -> Class:
        return self

    @property
    def short(self) -> str:
        """The name without the module that it is in."""
        return self.name.rpartition(".")[2]

    def finish(self) -> None:
        """Make the Python class of a NamedTuple or an Enum."""
        if self.python is not None:
            return
        if self.kind == "NamedTuple":
            self.python = namedtuple(self.short, self.attributes)   # type: ignore[misc]
        elif self.kind == "Enum":
            self.python = Enum(self.short, self.constants)      # type: ignore[misc]

    def constant(self, name: str) -> Any:
        """The value of a constant."""
        return self.constants[name]


class ScriptObject:
    """An instance of a class of a program that is no module."""

    __slots__ = ("_class", "_fields")

    def __init__(self, made_of: Class) -> None:
        self._class, self._fields = made_of, {}     # type: tuple[Class, dict[str, Any]]

    def __getattr__(self, name: str) -> Any:
        return read(self, name)

    def __repr__(self) -> str:
        return f"<torch.ScriptObject {self._class.name}>"


def read(value: Any, name: str) -> Any:
    """An attribute of a value of a program: only what its class declares."""
    of_module = getattr(type(value), "script_read", None)
    if of_module is not None:
        return of_module(value, name)
    if isinstance(value, ScriptObject):
        made_of, fields = value._class, value._fields
        if name in fields:
            return fields[name]
        if name in made_of.constants:
            return made_of.constants[name]
        if name in made_of.methods:
            return method(value, name)
    elif isinstance(value, tuple) and name in getattr(type(value), "_fields", ()):
        return value[type(value)._fields.index(name)]   # type: ignore[attr-defined]
    elif isinstance(value, Enum) and name in ("name", "value"):
        return value.name if name == "name" else value.value
    raise AttributeError(f"'{type(value).__name__}' has no attribute '{name}' that TorchScript knows")


def write(value: Any, name: str, new: Any) -> None:
    """Set an attribute that the class of a value declares."""
    if isinstance(value, ScriptObject) and name in value._class.attributes:
        value._fields[name] = new
    elif hasattr(type(value), "script_write"):
        value.script_write(name, new)
    else:
        raise AttributeError(f"'{type(value).__name__}' has no attribute '{name}' that TorchScript can set")


def method(value: Any, name: str) -> Callable[..., Any]:
    """A method of an object or module of a program."""
    if isinstance(value, Tensor) and name == "tolist":
        return value.tolist
    made_of = getattr(value, "_class", None) if isinstance(value, ScriptObject) or hasattr(type(value), "script_read") else None
    if made_of is None or name not in made_of.methods:
        raise AttributeError(f"'{type(value).__name__}' has no method '{name}' that TorchScript knows")
    function = made_of.methods[name]
    return lambda *args, **kwargs: function(value, *args, **kwargs)
