"""Modules and functions of TorchScript as Python sees them: `ScriptModule`, its methods, `ScriptFunction`."""

from __future__ import annotations

import copy
import functools
import io
from collections.abc import Callable
from typing import Any

from ..core.device import device
from ..core.dtypes import dtype
from ..core.memory_format import layout, memory_format
from ..nn.modules.module import Module
from ..nn.parameter import Parameter
from ..ops import return_types
from ..ops.script import number_of
from .frontend.given import functions_of
from .graph import Graph, graph_of
from .program import ScriptProgram
from .types import Type, fits
from .values import Class, Function, ScriptObject, method
from .whole import Following, Whole

DEFINED = "_defined"        # what a ScriptModule was given methods as
MARK = "_script_mark"       # of a method: "export", "ignore", "unused" or "drop"
_HOMES = ("_modules", "_parameters", "_buffers", "_values")
_NUMBERS: dict[str, tuple[Any, Any]] = {
    "int": (bool, int), "float": (int, float), "bool": ((int, float), bool), "complex": ((int, float), complex)}
_NUMBERED = (dtype, layout, memory_format)


def taken(kind: Type, value: Any, program: ScriptProgram) -> Any:
    """An argument from Python as a value of this type: lists and dicts are copied, dtypes are numbers, tuples become NamedTuples."""
    if kind.name in ("Optional", "Union"):
        if any(fits(arg, value, program.is_instance) for arg in kind.args) or value is None:
            return value
        return next((made for arg in kind.args if fits(arg, made := taken(arg, value, program), program.is_instance)), value)
    if kind.name == "List" and isinstance(value, (list, tuple)):
        return [taken(kind.args[0], v, program) for v in value]
    if kind.name == "Dict" and isinstance(value, dict):
        return {taken(kind.args[0], k, program): taken(kind.args[1], v, program) for k, v in value.items()}
    if kind.name == "Tuple" and isinstance(value, (tuple, list)) and len(value) == len(kind.args):
        return tuple(taken(arg, v, program) for arg, v in zip(kind.args, value))
    made_of = program.classes.get(kind.name)
    if made_of is not None and made_of.kind == "NamedTuple" and isinstance(value, tuple) and len(value) == len(made_of.attributes):
        return made_of.python(*(taken(k, v, program) for k, v in zip(made_of.attributes.values(), value)))
    if made_of is not None and made_of.kind == "class" and made_of.python is not None and isinstance(value, made_of.python):
        made = ScriptObject(made_of)
        made._fields.update({name: taken(k, getattr(value, name), program) for name, k in made_of.attributes.items()})
        return made
    if made_of is not None and made_of.kind == "Enum" and getattr(value, "name", None) in made_of.constants:
        return made_of.python[value.name]
    if isinstance(value, _NUMBERED):
        return number_of(value)
    if kind.name == "Device" and isinstance(value, str):
        return device(value)
    number = _NUMBERS.get(kind.name)
    return number[1](value) if number is not None and isinstance(value, number[0]) else value


def call_from_python(function: Function, program: ScriptProgram, owner: tuple, args: tuple, kwargs: dict) -> Any:
    """A call whose arguments are to be checked: RuntimeError for what is missing, too much or of another type."""
    parameters = function.parameters[len(owner):]
    name = function.name.rpartition(".")[2]
    if len(args) > len(parameters):
        raise RuntimeError(f"{name}() expected at most {len(parameters) + len(owner)} argument(s) but received {len(args) + len(owner)} "
                           f"argument(s). Declaration: {function.declaration()}")
    given = dict(zip([p.name for p in parameters], args))
    for key, value in kwargs.items():
        if key in given:
            raise RuntimeError(f"{name}() got multiple values for argument '{key}'. Declaration: {function.declaration()}")
        if not any(p.name == key for p in parameters):
            raise RuntimeError(f"Unknown keyword argument '{key}' for operator '{name}'. Declaration: {function.declaration()}")
        given[key] = value
    checked = {}
    for p in parameters:
        if p.name not in given:
            if p.default is None:
                raise RuntimeError(f"{name}() is missing value for argument '{p.name}'. Declaration: {function.declaration()}")
            continue
        value = taken(p.type, given[p.name], program)
        if not fits(p.type, value, program.is_instance):
            raise RuntimeError(f"{name}() Expected a value of type '{p.type}' for argument '{p.name}' but instead found type "
                               f"'{type(value).__name__}'. Declaration: {function.declaration()}")
        checked[p.name] = value
    return function(*owner, **checked)


def _plain(value: Any) -> Any:
    """A result as Python gets it: what operators call their results, the program alone knows."""
    if not isinstance(value, tuple):
        return value
    kind = type(value)
    return tuple(map(_plain, value)) if kind is tuple or kind.__module__ == return_types.__name__ else value


class _Callable:
    """A compiled function, with what shows it."""

    def __init__(self, function: Function, program: ScriptProgram, owner: tuple = ()) -> None:
        self._function, self._program, self.owner = function, program, owner[0] if owner else None
        self._owner = owner
        self.name = self.__name__ = function.name.rpartition(".")[2]
        self._whole = owner[0]._whole(function) if owner else Whole(function, ())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        frame = self._function.frame_of(self._owner, args) if not kwargs else None
        if frame is not None:
            return _plain(self._whole(frame, args))
        return _plain(call_from_python(self._function, self._program, self._owner, args, kwargs))

    @property
    def code(self) -> str:
        """Its text."""
        return self._function.source

    @property
    def graph(self) -> Graph:
        """Its statements, each a node."""
        return graph_of(self._function)

    @property
    def inlined_graph(self) -> Graph:
        """Its nodes, with those of what it calls in the places of the calls."""
        return graph_of(self._function, self._program.functions, self.owner)

    @property
    def schema(self) -> str:
        """Its parameters and what it gives."""
        return self._function.declaration()


class ScriptMethod(_Callable):
    """A method of a ScriptModule."""


class Saves:
    """What torch.jit.save takes, and can write itself."""

    def save(self, f: Any, _extra_files: dict | None = None) -> None:
        """Write it to a file, as `torch.jit.save` does: a function as the `forward` of a module."""
        SAVE[0](self, f, _extra_files)

    def save_to_buffer(self, _extra_files: dict | None = None) -> bytes:
        """What `save` writes."""
        buffer = io.BytesIO()
        self.save(buffer, _extra_files)
        return buffer.getvalue()


class ScriptFunction(Saves, _Callable):
    """A function of TorchScript."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not args or not isinstance(args[0], Function):
            raise TypeError("a ScriptFunction is made by torch.jit.script or torch.jit.trace")
        super().__init__(*args, **kwargs)
        self.qualified_name = f"__torch__.{self.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return TRACED[0](self, super().__call__, args, kwargs)

    def __repr__(self) -> str:
        return f"<torch.jit.ScriptFunction {self.name}>"


class ScriptModule(Saves, Module):
    """A module whose methods are TorchScript's. A class that inherits from it is compiled when an instance has been made: its `forward`,
    the methods that `torch.jit.script_method` marks, and what they call. The program works on the instance's own state."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__ == __name__:
            return
        for name, fn in list(cls.__dict__.items()):
            if callable(fn) and getattr(fn, MARK, None) == "export":
                setattr(cls, name, _compiled_method(name, fn))
        if "__init__" in cls.__dict__:
            cls.__init__ = _compiling(cls, cls.__init__)    # type: ignore[method-assign]

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def define(self, src: str) -> None:
        """Give it methods by their text: `define("def forward(self, x):\\n  return x + 1")`. They are compiled when the instance has been
        made."""
        defined: dict[str, Callable] = self.__dict__.setdefault(DEFINED, {})
        defined.update(functions_of(src, {}))
        if type(self) is ScriptModule or "_scripted" in self.__dict__:
            self._compile()

    def _compile(self) -> None:
        """Compile the instance: its program works on its own state."""
        self.__dict__.pop("_scripted", None)
        scripted = SCRIPT[0](self)
        for home in ("_parameters", "_buffers", "_modules"):
            self.__dict__[home] = scripted.__dict__[home]
        self.__dict__["_scripted"] = scripted
        self.__dict__.update({name: scripted._method(name) for name in self.__dict__.get(DEFINED, ())})

    def __getattr__(self, name: str) -> Any:
        scripted = self.__dict__.get("_scripted")
        try:
            return super().__getattr__(name)
        except AttributeError:
            if scripted is None:
                raise
            return getattr(scripted, name)

    def __setattr__(self, name: str, value: Any) -> None:
        scripted = self.__dict__.get("_scripted")
        if scripted is not None and name != "_scripted":
            setattr(scripted, name, value)
        super().__setattr__(name, value)


def _compiled_method(name: str, fn: Callable) -> Callable:
    """What calls the compiled form of a method."""
    @functools.wraps(fn)
    def call(self: ScriptModule, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["_scripted"]._method(name)(*args, **kwargs)

    return call


def _compiling(cls: type, init: Callable) -> Callable:
    """`__init__`, after which an instance of just this class is compiled."""
    @functools.wraps(init)
    def wrapper(self: ScriptModule, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if type(self) is cls:
            self._compile()

    return wrapper


class RecursiveScriptModule(ScriptModule):
    """A module of a program: parameters, buffers and submodules are where every module has them, other attributes in a dict."""

    def __init__(self, made_of: Class, program: ScriptProgram) -> None:
        super().__init__()
        self.__dict__.update(_class=made_of, _program=program, _values={}, _wholes={})

    @property
    def original_name(self) -> str:
        """The name of the class that it was made of."""
        return self._class.short

    def define(self, src: str) -> None:
        raise NotImplementedError("define() of what torch.jit.script has made: give the module its methods before")

    # -- what programs read and write ------------------------------------------------------------------------------------
    def script_read(self, name: str) -> Any:
        """An attribute, as the program sees it."""
        fields, following = self.__dict__, Following.now
        for home in _HOMES:
            found = fields[home].get(name, fields)      # which no attribute is
            if found is not fields:
                if following is not None:
                    following.read(fields[home], name, found)
                return found
        if name == "training":
            if following is not None:
                following.read(fields, name, self.training)
            return self.training
        made_of = fields["_class"]
        if name in made_of.constants:
            return made_of.constants[name]
        if name in made_of.methods:
            return method(self, name)
        raise AttributeError(f"Module '{made_of.short}' has no attribute '{name}'")

    def script_write(self, name: str, value: Any) -> None:
        """Set an attribute that the class declares, to a value of its type."""
        Following.acts(f"{name} is set")
        made_of, fields = self._class, self.__dict__
        kind = made_of.attributes.get(name)
        if kind is None:
            raise AttributeError(f"Module '{made_of.short}' has no attribute '{name}' that can be set")
        if not fits(kind, value, self._program.is_instance):
            raise RuntimeError(f"Expected a value of type '{kind}' for field '{name}', but found '{type(value).__name__}'")
        if name == "training":
            self.training = value
            return
        home = next((h for h in ("_parameters", "_buffers", "_modules") if name in fields[h]), "_values")
        if home == "_parameters" and not isinstance(value, Parameter):
            value = Parameter(value.detach(), value.requires_grad)
        fields[home][name] = value

    # -- what Python does --------------------------------------------------------------------------------------------------
    @property
    def forward(self) -> ScriptMethod:      # type: ignore[override]
        """The program's `forward`; or Python's own, where that is ignored."""
        return self.__dict__.get("forward") or self._method("forward")

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        made_of: Class = self.__dict__["_class"]
        if not made_of.forward_pre_hooks and not made_of.forward_hooks:
            return super()._call_impl(*args, **kwargs)
        inputs = made_of.methods["forward"].arguments((self, *args), kwargs)[1:]
        for name in made_of.forward_pre_hooks:
            answer = self._method(name)(inputs)
            if answer is not None:
                inputs = answer if isinstance(answer, tuple) else (answer,)
        result = super()._call_impl(*inputs)
        for name in made_of.forward_hooks:
            answer = self._method(name)(inputs, result)
            result = result if answer is None else answer
        return result

    def _method(self, name: str) -> ScriptMethod:
        function = self._class.methods.get(name)
        if function is None:
            raise NotImplementedError(f"Module [{type(self).__name__}, original_name={self.original_name}] is missing the required "
                                      f"\"{name}\" function")
        return ScriptMethod(function, self._program, (self,))

    def _whole(self, function: Function) -> Whole:
        """Calls of a method."""
        known = self.__dict__["_wholes"]
        found = known.get(function)
        if found is None:
            found = known[function] = Whole(function, (self,), "_frozen" in self.__dict__)
        return found

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__
        if "_class" in fields:
            for home in ("_parameters", "_buffers", "_modules", "_values"):
                if name in fields[home]:
                    return fields[home][name]
            if name in fields["_class"].methods:
                return self._method(name)
            if name in fields["_class"].constants:
                return fields["_class"].constants[name]
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        made_of = self.__dict__.get("_class")
        if made_of is not None and name in made_of.constants:
            raise AttributeError(f"Cannot mutate TorchScript constant value: '{name}'. Value: '{made_of.constants[name]}'")
        if made_of is not None and name in made_of.attributes and name != "training":
            self.script_write(name, taken(made_of.attributes[name], value, self._program))
        else:
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._class.methods, *self._class.constants, *self._values})

    def __len__(self) -> int:
        return self._call_special("__len__")

    def __contains__(self, key: Any) -> bool:
        return self._call_special("__contains__", key)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter(self.children()) if "__len__" in self._class.methods else self._call_special("__iter__")

    def __getitem__(self, at: Any) -> Any:
        if "__len__" in self._class.methods:
            return list(self.children())[at] if isinstance(at, (int, slice)) else self._modules[at]
        return self._call_special("__getitem__", at)

    def _call_special(self, name: str, *args: Any) -> Any:
        if name not in self._class.methods:
            raise TypeError(f"Module '{self.original_name}' has no {name}")
        return self._method(name)(*args)

    def extra_repr(self) -> str:
        return f"original_name={self.original_name}"

    # -- looking at it, keeping it -------------------------------------------------------------------------------------------
    @property
    def code(self) -> str:
        """The text of `forward`."""
        return self._method("forward").code

    @property
    def graph(self) -> Graph:
        """The nodes of `forward`."""
        return self._method("forward").graph

    @property
    def inlined_graph(self) -> Graph:
        """The nodes of `forward` and of what it calls."""
        return self._method("forward").inlined_graph

    @property
    def code_with_constants(self) -> tuple[str, dict[str, Any]]:
        """The text of `forward`, and what it calls CONSTANTS."""
        return self.code, {f"c{at}": value for at, value in enumerate(self._program.constants)}

    def __copy__(self) -> RecursiveScriptModule:
        made = type(self)(self._class, self._program)
        for name, value in self.__dict__.items():
            if name != "_wholes":
                made.__dict__[name] = copy.copy(value) if isinstance(value, (dict, set)) else value
        return made

    def __deepcopy__(self, memo: dict) -> RecursiveScriptModule:
        made = type(self)(self._class, self._program)
        memo[id(self)] = made
        made.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items() if name != "_wholes"})
        return made

    def copy(self) -> RecursiveScriptModule:
        """A module with the same attributes."""
        return copy.copy(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("ScriptModules cannot be pickled: keep them with torch.jit.save, or their weights with torch.save(m.state_dict())")


def _refused(name: str) -> Callable:
    def register(self: RecursiveScriptModule, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{name} is not supported on ScriptModules: register hooks before torch.jit.script, which makes them a part of "
                           "the program")

    register.__name__ = name
    return register


for _name in ("forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook", "backward_hook"):
    setattr(RecursiveScriptModule, f"register_{_name}", _refused(f"register_{_name}"))

SCRIPT: list[Callable[[Module], RecursiveScriptModule]] = []
"""What compiles a module."""
TRACED: list[Callable[[ScriptFunction, Callable, tuple, dict], Any]] = []
"""What calls a function, and writes the call down where a trace is made."""
SAVE: list[Callable[..., None]] = []
"""`torch.jit.save`, which knows modules."""


class TopLevelTracedModule(RecursiveScriptModule):
    """What `torch.jit.trace(module)` gives."""
