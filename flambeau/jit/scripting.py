"""`torch.jit.script`: functions and modules of Python compiled into programs of TorchScript."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from ..nn.modules.module import Module
from . import language
from .frontend.library import FORMS, METHODS
from .frontend.modules import INTERNAL, ModuleInfo
from .frontend.unit import Unit
from .module import SCRIPT, RecursiveScriptModule, ScriptFunction, ScriptModule, taken
from .observed import Types, observed
from .program import ScriptProgram
from .trace import tracing

LANGUAGE = {fn.__name__: fn for fn in (language.annotate, language.fork, language.wait)}


def is_tracing() -> bool:
    """Whether torch.jit.trace is running what asks."""
    return tracing() is not None


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """`obj` compiled: a function as a ScriptFunction, a module as a ScriptModule with the same parameters; a class is marked as one of the
    language, and stays what it is.

    `example_inputs`, a list of tuples of arguments (of a module also a dict from modules and methods to such lists), is run once, and tells
    the types of parameters that have no annotation, in all functions that are called; MonkeyType is not needed. What is no TorchScript
    raises RuntimeError or `torch.jit.frontend.NotSupportedError` with the line.
    """
    if isinstance(obj, (ScriptModule, ScriptFunction)):
        return obj
    if isinstance(obj, Module):
        return script_module(obj, observed(obj, example_inputs))
    if isinstance(obj, type):
        return script_class(obj)
    if isinstance(obj, (dict, list)):
        raise NotImplementedError("torch.jit.script of a list or dict: make it in a function that is scripted")
    if not callable(obj):
        raise TypeError(f"torch.jit.script takes a function, a module or a class, got {type(obj).__name__}")
    return script_function(obj if inspect.isroutine(obj) else type(obj).__call__, observed(obj, example_inputs))


def _unit() -> Unit:
    return Unit(FORMS, METHODS, LANGUAGE)


def script_function(fn: Callable, seen: Types | None = None) -> ScriptFunction:
    """A function compiled; `seen` are types of parameters that say none."""
    cached = fn.__dict__.get("_script_compiled") if hasattr(fn, "__dict__") else None
    if cached is not None and not seen:
        return cached
    if inspect.isbuiltin(fn) or not hasattr(fn, "__code__"):
        raise TypeError(f"torch.jit.script takes functions written in Python, got {fn!r}")
    unit = _unit()
    unit.seen = seen or {}
    _, name = unit.compile_function(fn)
    program = unit.program()
    made = ScriptFunction(program.functions[name], program)
    made.qualified_name = name
    made.__doc__, made._script_original = fn.__doc__, fn        # type: ignore[attr-defined]
    made._flambeau_captured_as = fn     # type: ignore[attr-defined]  # torch.compile sees the Python
    made.__module__ = fn.__module__
    if hasattr(fn, "__dict__") and not seen:
        fn.__dict__["_script_compiled"] = made
    return made


def script_class(cls: type) -> type:
    """A class that programs may make instances of; it is compiled where they do."""
    if issubclass(cls, Module):
        raise RuntimeError(f"Type '{cls.__name__}' is a module: torch.jit.script takes an instance of it")
    if len(cls.__mro__) > 2 and not hasattr(cls, "_fields"):
        raise RuntimeError("TorchScript classes do not support inheritance yet. Please directly inherit from object")
    cls._script_class = True    # type: ignore[attr-defined]
    unit = _unit()
    unit.type_of_class(cls)
    return cls


# -- modules -----------------------------------------------------------------------------------------------------------------------
def script_module(module: Module, seen: Types | None = None) -> RecursiveScriptModule:
    """A module compiled: `forward`, methods that are marked, and what they call."""
    unit = _unit()
    unit.seen = seen or {}
    info = unit.info(module)
    info.compile_entries()
    program = unit.program()
    return _instance(module, unit, program, {})


SCRIPT.append(script_module)


def _instance(module: Module, unit: Unit, program: ScriptProgram, made: dict[int, RecursiveScriptModule]) -> RecursiveScriptModule:
    """The ScriptModule for a module, which holds the same parameters and buffers."""
    if id(module) in made:
        return made[id(module)]
    info = unit.info(module)
    one = made[id(module)] = RecursiveScriptModule(program.classes[info.name], program)
    one.training = module.training
    if isinstance(module, RecursiveScriptModule):
        one.__dict__.update({home: module.__dict__[home] for home in ("_parameters", "_buffers", "_values")})
    else:
        _fill(one, module, info)
    for name, sub in module._modules.items():
        if sub is None:
            one._values[name] = None
        else:
            one._modules[name] = _instance(sub, unit, program, made)
    return one


def _fill(one: RecursiveScriptModule, module: Module, info: ModuleInfo) -> None:
    """The attributes of a module of Python's: those that the program knows, and the others as they are."""
    for home in ("_parameters", "_buffers"):
        for name, value in module.__dict__[home].items():
            (one.__dict__[home] if value is not None else one._values)[name] = value
    one.__dict__["_non_persistent_buffers_set"] = set(module._non_persistent_buffers_set)
    for name, value in module.__dict__.items():
        if name in INTERNAL or name == "training":
            continue
        if isinstance(value, language.Attribute):
            value = value.value
        kind = info.cls.attributes.get(name)
        if kind is not None:
            one._values[name] = taken(one._class.attributes[name], value, one._program)
        elif name not in info.cls.constants:
            one.__dict__[name] = value
    for name in dir(type(module)):
        fn = inspect.getattr_static(type(module), name)
        if inspect.isfunction(fn) and getattr(fn, language.MARK, None) in ("ignore",):
            one.__dict__[name] = types.MethodType(fn, one)


# -- functions and methods that are scripted later ------------------------------------------------------------------------------------
def script_if_tracing(fn: Callable) -> Callable:
    """`fn`, which is compiled when it is first called while torch.jit.trace runs: its control flow stays in the trace."""
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not is_tracing():
            return fn(*args, **kwargs)
        return script_function(fn)(*args, **kwargs)

    wrapper._script_original = fn       # type: ignore[attr-defined]
    wrapper.__script_if_tracing_wrapper = True      # type: ignore[attr-defined]
    return wrapper


def script_method(fn: Callable) -> Callable:
    """A method of a ScriptModule that TorchScript compiles."""
    return language.export(fn)
