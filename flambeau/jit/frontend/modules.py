"""Modules while they are compiled: what their attributes are, and which methods of theirs the program has."""

from __future__ import annotations

import ast
import inspect
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...fx.graph_module import GraphModule
from ...nn.modules.container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from ...nn.modules.module import Module
from .. import language
from ..module import DEFINED, RecursiveScriptModule, ScriptFunction
from ..printer import member
from ..values import Class, Function
from .annotations import type_of_value
from .errors import source_of
from .expressions import ModuleValue
from .matching import literal_value
from .static import BOOL, NONE, NOTHING, TENSOR, Bound, Known, Several, Type, Value, is_part

INTERNAL = frozenset(Module().__dict__) - {"training"} | {DEFINED}
_OF_GRAPHS = frozenset(("_class_name", "_code", "_forward", "_graph", "meta"))
_LISTS = (ModuleList, Sequential, ModuleDict, ParameterList, ParameterDict)


_WALKS = frozenset(f"{prefix}{what}" for prefix in ("", "named_") for what in ("children", "modules", "parameters", "buffers"))


def is_ours(cls: type) -> bool:
    """Whether this is one of the library's modules, whose settings are constants."""
    return cls.__module__.startswith(Module.__module__.removesuffix("modules.module"))


def hooks_of(module: Module) -> tuple[list[Callable], list[Callable]]:
    """A module's hooks before and after `forward`, which become a part of its program; a warning tells of others."""
    if module._backward_hooks or module._backward_pre_hooks:
        warnings.warn(f"backward hooks of {type(module).__name__} are no part of what torch.jit.script makes", stacklevel=2)
    return list(module._forward_pre_hooks.values()), list(module._forward_hooks.values())


class ModuleInfo:
    """A module of which the program has a class, shared by modules with the same kinds of attributes."""

    def __init__(self, unit: Any, module: Module) -> None:
        self.unit, self.module = unit, module
        self.cls = Class("", "Module")
        self.subs: dict[str, ModuleInfo] = {}
        self.functions: dict[str, Callable] = {}
        self.failed: dict[str, str] = {}
        self.compiled_hooks: set[Callable] = set()
        self.absorbed = isinstance(module, RecursiveScriptModule)
        if self.absorbed:
            self._from_program(module)      # type: ignore[arg-type]
            return
        of_graph = isinstance(module, GraphModule) and type(module).forward is GraphModule.forward
        self.printed = module._compiled() if of_graph else None
        self.annotations = unit.annotations_of(type(module))
        self.hooks = hooks_of(module)
        self._state()
        self._attributes()
        self.key: Any = (type(module), tuple((n, str(t)) for n, t in self.cls.attributes.items()), repr(self.cls.constants),
                         tuple(self.cls.parameters), tuple(self.cls.buffers), tuple((n, id(s)) for n, s in self.subs.items()),
                         tuple((n, id(f)) for n, f in self.functions.items()), id(self.printed),
                         tuple(tuple(map(id, found)) for found in self.hooks))

    def _from_program(self, module: RecursiveScriptModule) -> None:
        """A module of another program, which becomes a part of this one."""
        rename = self.unit.absorb(module._program)
        self.cls = self.unit.classes[rename(module._class.name)]
        for name, sub in module._modules.items():
            if sub is not None:
                self.subs[name] = self.unit.info(sub)
        self.key = ("absorbed", id(module))

    def name_it(self, name: str) -> None:
        """Give the class its name, under which the program has it."""
        if not self.absorbed:
            self.cls.name = name
            self.unit.classes[name] = self.cls

    @property
    def name(self) -> str:
        """The full name of the class."""
        return self.cls.name

    @property
    def short(self) -> str:
        """The name of the Python class."""
        return type(self.module).__name__

    # -- attributes ----------------------------------------------------------------------------------------------------------
    def _state(self) -> None:
        m, cls = self.module, self.cls
        for home, names in ((m._parameters, cls.parameters), (m._buffers, cls.buffers)):
            for name, value in home.items():
                declared = self.unit.type_or_none(self.annotations[name]) if name in self.annotations else None
                optional = declared is not None and declared.name == "Optional" and name in m._buffers
                cls.attributes[name] = declared if declared is not None and optional else NONE if value is None else TENSOR
                if value is not None:
                    names.append(name)
        cls.attributes["training"] = BOOL
        for name, sub in m._modules.items():
            declared = self.unit.type_or_none(self.annotations[name]) if name in self.annotations else None
            if sub is None:
                cls.attributes[name] = NONE
            elif declared is not None and declared.name in self.unit.module_interfaces:
                self.unit.info(sub).compile_for(declared)
                cls.attributes[name] = declared
                self.subs[name] = self.unit.info(sub)
            else:
                self.subs[name] = self.unit.info(sub)
                cls.attributes[name] = Type(self.subs[name].name)

    def _attributes(self) -> None:
        m = self.module
        ours = is_ours(type(m))
        constants = set(getattr(type(m), "__constants__", ()))
        for name, value in m.__dict__.items():
            if name in INTERNAL or name in self.cls.attributes or name in m.__dict__.get(DEFINED, ()) or (
                    name in _OF_GRAPHS and self.printed is not None):
                continue
            annotation = self.annotations.get(name)
            final = typing.get_origin(annotation) is typing.Final or annotation is typing.Final
            if isinstance(value, language.Attribute):
                self.cls.attributes[name] = self.unit.type_or_none(value.type) or TENSOR
            elif final or name in constants or ours:
                self._constant(name, value)
            else:
                self._attribute(name, value, annotation)

    def _constant(self, name: str, value: Any) -> None:
        if (isinstance(value, list) and value and all(isinstance(v, (int, float, str)) for v in value)) or isinstance(
                value, (bool, int, float, str, complex, tuple, type(None))) or type_of_value(value, self.unit.type_of_held) is not None:
            self.cls.constants[name] = value
        elif callable(value):
            self.functions[name] = value
        else:
            self.failed[name] = f"a constant of type {type(value).__name__}"

    def _attribute(self, name: str, value: Any, annotation: Any) -> None:
        kind = self.unit.type_or_none(annotation) if annotation is not None else None
        if kind is None:
            kind = type_of_value(value, self.unit.type_of_held)
        if kind is not None:
            self.cls.attributes[name] = kind
        elif inspect.isfunction(value) or inspect.isbuiltin(value) or isinstance(value, ScriptFunction) or (
                callable(value) and hasattr(value, "_operator")):
            self.functions[name] = value
        else:
            what = "an empty list or dict: annotate it in the class" if value in ([], {}) else f"of type {type(value).__name__}"
            self.failed[name] = f"(This attribute exists on the Python module, but we failed to convert it: it is {what})"

    def has(self, name: str) -> bool:
        """Whether the module has an attribute."""
        return name in self.cls.attributes or name in self.cls.constants or hasattr(self.module, name)

    def attribute(self, body: Any, of: ModuleValue, name: str, node: ast.AST) -> Any:
        """`of.name`."""
        kind = self.cls.attributes.get(name)
        if kind is not None and kind.name in self.unit.module_interfaces:
            return Value(kind, member(of.text, name))
        if name in self.subs:
            return ModuleValue.of(self.subs[name], member(of.text, name))
        if kind is not None:
            return literal_value(None) if kind == NONE else Value(kind, member(of.text, name))
        if name in self.cls.constants:
            return body.known_value(self.cls.constants[name], node)
        if name in self.functions:
            return Known(self.functions[name])
        if name in self.cls.methods or name in self.module.__dict__.get(DEFINED, ()):
            return Bound(of, name)
        return self._of_class(body, of, name, node)

    def _of_class(self, body: Any, of: ModuleValue, name: str, node: ast.AST) -> Any:
        found = inspect.getattr_static(type(self.module), name, NOTHING) if not self.absorbed else NOTHING
        if isinstance(found, property) and is_ours(type(self.module)):
            return self._parameters(of, getattr(self.module, name))
        if isinstance(found, property):
            return body.call_method(of, self._getter(name, found), [], {}, node)
        if isinstance(found, (staticmethod, classmethod)):
            return Known(getattr(type(self.module), name))
        if inspect.isfunction(found):
            return Known(found) if hasattr(found, "_operator") or self.unit.form(found) is not None else Bound(of, name)
        if found is not NOTHING and not inspect.isroutine(found) and name not in INTERNAL:
            return Known(found)
        raise body.error(node, f"Module '{self.short}' has no attribute '{name}' {self.failed.get(name, '')}".rstrip())

    def _parameters(self, of: ModuleValue, value: Any) -> Any:
        """A property of one of our modules: a list of its parameters, or a constant."""
        names = {id(p): n for n, p in self.module._parameters.items()}
        if isinstance(value, list) and value and all(id(p) in names for p in value):
            parts = [Value(TENSOR, member(of.text, names[id(p)])) for p in value]
            return Value(Type("List", (TENSOR,)), f"[{', '.join(p.text for p in parts)}]", parts=parts)
        return Known(value)

    def settable(self, body: Any, name: str, node: ast.AST) -> Type:
        """The type of an attribute that a method assigns."""
        kind = self.cls.attributes.get(name)
        if kind is None or name in self.subs:
            why = "constants can't be set" if name in self.cls.constants else "Did you forget to initialize it in __init__()?"
            raise body.error(node, f"Tried to set nonexistent attribute: {name}. {why}")
        return kind

    # -- methods ------------------------------------------------------------------------------------------------------------------
    def method(self, body: Any, of: ModuleValue, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], node: ast.AST) -> Any:
        """A method, compiled; or what a call of it gives, where that is known."""
        if isinstance(self.module, _LISTS) and name in ("items", "keys", "values", "__contains__", "__len__"):
            return self._of_list(of, name, args)
        if name in _WALKS and getattr(type(self.module), name, None) is getattr(Module, name):
            return self._walk(of, name)
        found = self.cls.methods.get(name)
        if found is not None:
            return self._finished(found, name)
        fn = self.python_method(name)
        if fn is None:
            if name == "forward":
                raise body.error(node, f"Module '{self.short}' has no forward")
            raise body.error(node, f"Module '{self.short}' has no attribute '{name}' {self.failed.get(name, '')}".rstrip())
        overloads = language.OVERLOADS.get(f"{fn.__module__}.{fn.__qualname__}")
        if overloads:
            return self._overloaded(body, fn, overloads, name, args, kwargs, node)
        mark = getattr(fn, language.MARK, None)
        if mark in ("ignore", "unused", "drop"):
            return self._ignored(body, fn, mark, args, kwargs, node)
        return self.compiled(name, fn)

    def _finished(self, function: Function, name: str) -> Function:
        if function.returns.name == "?":
            raise RuntimeError(f"method '{self.short}.{name}' is called recursively. Recursive calls are not supported without a declared "
                               "type of what it returns")
        return function

    def python_method(self, name: str) -> Callable | None:
        """The function that a method is."""
        if name == "forward" and self.printed is not None:
            return self.printed
        defined = self.module.__dict__.get(DEFINED, {})
        if name in defined:
            return defined[name]
        own = self.module.__dict__.get(name)
        if inspect.ismethod(own):
            return own.__func__
        form = self.unit.module_form(type(self.module), name)
        if form is not None:
            return form
        found = inspect.getattr_static(type(self.module), name, None)
        if isinstance(found, property):
            return found.fget
        if not inspect.isfunction(found) or found is Module.forward:
            return None
        return inspect.unwrap(found)

    def compiled(self, name: str, fn: Callable) -> Function:
        """Compile a method under a name."""
        return self.unit.compile_method(self.cls, fn, name, ModuleValue.of(self, "self"), f"{self.short}.{name}")

    def _overloaded(self, body: Any, fn: Callable, overloads: Sequence[Callable], name: str, args: Sequence[Any],
                    kwargs: Mapping[str, Any], node: ast.AST) -> Function:
        declared = self.unit._chosen(body, overloads, args, kwargs, node)
        text = f"{name}__{'_'.join(str(p.type) for p in declared.parameters[1:])}"
        text = "".join(c if c.isalnum() else "_" for c in text)
        if text not in self.cls.methods:
            self.unit.argument_types[fn] = {p.name: p.type for p in declared.parameters[1:]}
            try:
                made = self.compiled(text, fn)
            finally:
                del self.unit.argument_types[fn]
            return made
        return self._finished(self.cls.methods[text], name)

    def _ignored(self, body: Any, fn: Callable, mark: str, args: Sequence[Any], kwargs: Mapping[str, Any], node: ast.AST) -> Value:
        function, text = self.unit.ignored(fn, mark, body)
        if mark != "ignore":
            return Value(function.returns, str(text), True)
        return body.call_function(function, text, ["self"], args, kwargs, node)

    def _getter(self, name: str, found: property) -> str:
        text = f"_get_{name}"
        if text not in self.cls.methods:
            self.compiled(text, found.fget)     # type: ignore[arg-type]
        return text

    def inherited(self, body: Any, name: str, after: type, node: ast.AST) -> str:
        """The name of the method that `super().NAME` is, compiled beside the others."""
        order = type(self.module).__mro__
        owner = next((c for c in order[order.index(after) + 1:] if name in c.__dict__), None)
        if owner is None:
            raise body.error(node, f"super has no method '{name}'")
        text = f"_{owner.__name__}_{name}".replace("__", "_")
        if text not in self.cls.methods:
            self.compiled(text, self.unit.method_forms.get((owner, name)) or owner.__dict__[name])
        return text

    def compile_for(self, interface: Type) -> None:
        """Compile the methods that an interface asks for."""
        for name in self.unit.classes[interface.name].methods:
            if name not in self.cls.methods and (fn := self.python_method(name)) is not None:
                self.compiled(name, fn)

    # -- hooks -------------------------------------------------------------------------------------------------------------------
    def called(self, body: Any, of: ModuleValue, args: Sequence[Any], kwargs: Mapping[str, Any], node: ast.AST) -> Any:
        """`module(...)`: its hooks around its `forward`."""
        if not self.absorbed and any(self.hooks):
            body.call_method(of, "forward", args, kwargs, node)     # which says what hooks take
            self.compile_hooks()
        cls = self.cls
        if not cls.forward_pre_hooks and not cls.forward_hooks:
            return body.call_method(of, "forward", args, kwargs, node)
        given = body.bound(cls.methods["forward"], cls.methods["forward"].parameters[1:], args, kwargs, node)
        inputs = body.kept(body.tuple_of([value or Value(p.type, p.default.__dict__["text"]) for p, value in given]))
        for name in cls.forward_pre_hooks:
            answer = self._call_hook(body, of, name, [inputs], node)
            if answer.type != NONE:
                inputs = answer if answer.type.name == "Tuple" else body.kept(body.tuple_of([answer]))
        result = body.kept(body.call_method(of, "forward", body.elements(inputs, node), {}, node))
        for name in cls.forward_hooks:
            answer = self._call_hook(body, of, name, [inputs, result], node)
            result = result if answer.type == NONE else answer
        return result

    def _call_hook(self, body: Any, of: ModuleValue, name: str, args: list[Value], node: ast.AST) -> Value:
        """A hook's call: programs call hooks as functions, for PyTorch has them apart from methods."""
        function, text = self.cls.methods[name], f"{self.name}.{name}"
        self.unit.texts.setdefault(text, function.source)
        return body.kept(body.call_function(function, text, [of.text], args, {}, node))

    def compile_hooks(self) -> None:
        """Compile the hooks of `forward`, which has been compiled, as methods."""
        cls, (before, after) = self.cls, self.hooks
        if cls.forward_pre_hooks or cls.forward_hooks:
            return
        forward = cls.methods["forward"]
        inputs = Type("Tuple", tuple(p.type for p in forward.parameters[1:]))
        for fn in before:
            cls.forward_pre_hooks.append(self._hook(fn, "pre-hook", [inputs]).name.rpartition(".")[2])
        output = forward.returns
        for fn in after:
            made = self._hook(fn, "hook", [inputs, output])
            cls.forward_hooks.append(made.name.rpartition(".")[2])
            output = output if made.returns == NONE else made.returns

    def _hook(self, fn: Callable, what: str, takes: list[Type]) -> Function:
        """A hook, compiled as a method; RuntimeError where it does not take and give what the module's call needs."""
        cls, name = self.cls, getattr(fn, "__name__", type(fn).__name__)
        wanted = ", ".join(["self", *(f"{key}: {kind}" for key, kind in zip(("input", "output"), takes))])
        gives = f" -> None, Tensor or {takes[0]}" if len(takes) == 1 else ""
        told = f". It should be {name}({wanted}){gives}; remove a hook that is not to be scripted before torch.jit.script"
        about = f"The forward {what} '{name}' of module '{self.short}'"
        known = cls.methods.get(name)
        if known is not None and fn not in self.compiled_hooks:
            raise RuntimeError(f"{about} has the name of another hook or method; give it a name of its own")
        signature = known or self.unit.signature(fn, source_of(fn), f"{self.short}.{name}")
        found = [p.type for p in signature.parameters[1:]]
        if len(found) != len(takes):
            raise RuntimeError(f"{about} takes {len(found) + 1} inputs, and {len(takes) + 1} were expected{told}")
        if found[0].name != "Tuple":
            raise RuntimeError(f"{about} expected the input argument to be typed as a Tuple but found type: '{found[0]}' instead{told}")
        if found[0] != takes[0]:
            raise RuntimeError(f"{about} has the wrong inner types for the input tuple argument: '{found[0]}'{told}")
        if len(takes) == 2 and found[1] != takes[1]:
            raise RuntimeError(f"{about} has the wrong type for the output argument: '{found[1]}'{told}")
        if len(takes) == 1 and signature.returns not in (NONE, takes[0], *takes[0].args[:1]):
            what_is = "is missing a return annotation" if signature.returns.name == "?" else f"returns a '{signature.returns}'"
            raise RuntimeError(f"{about} {what_is}{told}")
        self.compiled_hooks.add(fn)
        return known or self.compiled(name, fn)

    def entries(self) -> list[str]:
        """The methods with which a scripted module begins: forward, and those that are marked."""
        if self.absorbed:
            return []
        found = [name for name in self.module.__dict__.get(DEFINED, ()) if name != "forward"]
        for name in dir(type(self.module)):
            fn = inspect.getattr_static(type(self.module), name)
            fn = fn.fget if isinstance(fn, property) else fn
            if getattr(fn, language.MARK, None) == "export":
                found.append(name)
        forward = self.python_method("forward")
        if forward is not None and getattr(forward, language.MARK, None) not in ("ignore", "unused", "drop"):
            found.insert(0, "forward")
        return found

    def compile_entries(self) -> None:
        """Compile what a scripted module begins with, here and in submodules' exported methods."""
        for name in self.entries():
            fn = self.python_method(name)
            if fn is not None and name not in self.cls.methods and f"{fn.__module__}.{fn.__qualname__}" not in language.OVERLOADS:
                self.compiled(name, fn)
        if not self.absorbed and any(self.hooks) and "forward" in self.cls.methods:
            self.compile_hooks()
        if isinstance(self.module, (ModuleList, Sequential, ModuleDict)) and "__len__" not in self.cls.methods:
            self.cls.methods["__len__"] = Function("__len__", [], Type("int"), _unused, (
                f"def __len__(self: {self.name}) -> int:\n  return {len(self.module)}\n"))
        for sub in self.subs.values():
            sub.compile_entries()

    # -- lists and dicts of modules ------------------------------------------------------------------------------------------------------
    def _children(self, of: ModuleValue) -> dict[str, Any]:
        m = self.module
        if isinstance(m, (ParameterList, ParameterDict)):
            return {name: Value(TENSOR, member(of.text, name)) for name in m._parameters}
        return {name: ModuleValue.of(sub, member(of.text, name)) for name, sub in self.subs.items()}

    def items(self, body: Any, of: ModuleValue, node: ast.AST) -> list[Any]:
        """What iterating it gives."""
        if not isinstance(self.module, _LISTS) and "__len__" not in self.cls.methods:
            raise body.error(node, f"'{self.short}' object is not iterable")
        children = self._children(of)
        if isinstance(self.module, (ModuleDict, ParameterDict)):
            return [literal_value(name) for name in children]
        return list(children.values())

    def length(self, body: Any, of: ModuleValue, node: ast.AST) -> Value:
        """`len(of)`."""
        if isinstance(self.module, _LISTS):
            return literal_value(len(self._children(of)))
        return body.call_method(of, "__len__", [], {}, node)

    def item(self, body: Any, of: ModuleValue, at: ast.AST, node: ast.AST) -> Any:
        """`of[at]`."""
        if not isinstance(self.module, _LISTS) and "__len__" not in self.cls.methods:
            return body.call_method(of, "__getitem__", [body.value(at)], {}, node)
        children = self._children(of)
        if isinstance(at, ast.Slice):
            return Several(list(children.values())[body.constant_slice(at, node)])
        key = body.value(at).constant
        if isinstance(self.module, (ModuleDict, ParameterDict)) and isinstance(key, str):
            if key not in children:
                raise body.error(node, f"Key Error, {key}")
            return children[key]
        if isinstance(key, bool) or not isinstance(key, int):
            raise body.error(node, "Unable to extract string literal index. ModuleList and Sequential are indexed by numbers, ModuleDict "
                                   "by texts, that are known while compiling. Enumeration is supported, e.g. 'for index, v in "
                                   "enumerate(self): ...'")
        found = list(children.values())
        if not -len(found) <= key < len(found):
            raise body.error(node, f"index {key} is out of range for {len(found)} modules")
        return found[key]

    def item_of_kind(self, body: Any, of: ModuleValue, at: Value, kind: Type, node: ast.AST) -> Value:
        """`of[at]` for a place that the program computes: what all of the list or dict are, a module of an interface."""
        for name, sub in self.subs.items():
            sub.compile_for(kind)
            if not is_part(Type(sub.name), kind, self.unit.classes):
                raise body.error(node, f"module '{name}' of this {self.short} is no '{kind}'")
        name = body.fresh()
        body.out.append(f"{name} : {kind} = ({of.text})[{at.text}]")
        return Value(kind, name, True)

    def _walk(self, of: ModuleValue, name: str) -> Several:
        """`of.children()` and its kin: what they give is known."""
        paths = {"": of} | dict(self._below(of, ""))
        if name.endswith("children"):
            found: dict[str, Any] = {path: v for path, v in paths.items() if path and "." not in path}
        elif name.endswith("modules"):
            found = paths
        else:
            home = "_parameters" if name.endswith("parameters") else "_buffers"
            found = {f"{path}.{n}".strip("."): Value(TENSOR, member(v.text, n)) for path, v in paths.items()
                     for n, value in v.info.module.__dict__[home].items() if value is not None}
        pairs = [Several([literal_value(path), v]) for path, v in found.items()]
        return Several(pairs if name.startswith("named") else list(found.values()))

    def _below(self, of: ModuleValue, prefix: str) -> Iterator[tuple[str, ModuleValue]]:
        for name, sub in self.subs.items():
            value = ModuleValue.of(sub, member(of.text, name))
            yield prefix + name, value
            yield from sub._below(value, f"{prefix}{name}.")

    def _of_list(self, of: ModuleValue, name: str, args: Sequence[Any]) -> Any:
        children = self._children(of)
        if name == "__contains__":
            return literal_value(args[0].constant in children)
        if name == "__len__":
            return literal_value(len(children))
        names: list[Any] = [literal_value(key) for key in children]
        return Several({"keys": names, "values": list(children.values()),
                        "items": [Several([k, v]) for k, v in zip(names, children.values())]}[name])


def _unused(frame: dict) -> Any:
    raise RuntimeError("a function is being compiled")
