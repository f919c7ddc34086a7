"""`GraphModule`: a graph together with the attributes it uses, callable like a module.

`fx` lies below `nn` and may not import it, yet users expect `isinstance(gm, nn.Module)`. So `GraphModule` stands on a
small base of its own, `PlainModule`, which speaks as much of the module protocol as a graph needs; when `nn` is loaded
it calls `set_module_base(nn.Module)` and the base is exchanged for the real one. The alternatives are worse: an ABC
registration would make every `isinstance(x, nn.Module)` slow, and keeping `Module` itself down here would put the
user-facing protocol (hooks, state dicts, apply, to) into the compiler's lowest room.
"""

from __future__ import annotations

import copy
import itertools
import linecache
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.core import dispatch
from flambeau.fx.codegen import PythonCode, compile_function
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node, resolve_attr


class PlainModule:
    """Parameters, buffers and submodules as attributes: the part of the module protocol that graphs rely on."""

    training: bool

    def __init__(self) -> None:
        fields = {"_parameters": {}, "_buffers": {}, "_modules": {}, "training": True}
        self.__dict__.update(fields)

    def __setattr__(self, name: str, value: Any) -> None:
        homes = self.__dict__
        for home in ("_parameters", "_buffers", "_modules"):
            homes.get(home, {}).pop(name, None)
        if isinstance(value, (PlainModule, _ModuleTypes.module)):
            homes.pop(name, None)
            self._modules[name] = value
        elif _ModuleTypes.parameter is not None and isinstance(value, _ModuleTypes.parameter):
            homes.pop(name, None)
            self._parameters[name] = value
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for home in ("_parameters", "_buffers", "_modules"):
            if name in (found := self.__dict__.get(home, {})):
                return found[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for home in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[home]:
                del self.__dict__[home][name]
                return
        object.__delattr__(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Keep a tensor that is part of the state but not a parameter."""
        if not persistent:
            raise NotImplementedError(f"register_buffer({name!r}, persistent=False) takes an nn.Module; this one keeps all its buffers")
        self.__dict__.pop(name, None)
        self._buffers[name] = tensor

    def register_parameter(self, name: str, param: Any) -> None:
        """Keep a parameter."""
        self.__dict__.pop(name, None)
        self._parameters[name] = param

    def add_module(self, name: str, module: Any) -> None:
        """Keep a submodule."""
        self.__dict__.pop(name, None)
        self._modules[name] = module

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """This module and all below it, with dotted paths."""
        yield prefix, self
        for name, module in self._modules.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Any]:
        """This module and all below it."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The direct submodules by name."""
        yield from self._modules.items()

    def children(self) -> Iterator[Any]:
        """The direct submodules."""
        yield from self._modules.values()

    def _named(self, home: str) -> Iterator[tuple[str, Any]]:
        for path, module in self.named_modules():
            for name, value in getattr(module, home).items():
                if value is not None:
                    yield (f"{path}.{name}" if path else name), value

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """All parameters with dotted paths."""
        return self._named("_parameters")

    def parameters(self) -> Iterator[Any]:
        """All parameters."""
        return (value for _, value in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        """All buffers with dotted paths."""
        return self._named("_buffers")

    def buffers(self) -> Iterator[Any]:
        """All buffers."""
        return (value for _, value in self.named_buffers())

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers by dotted path."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def train(self, mode: bool = True) -> PlainModule:
        """Set `training` here and below."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> PlainModule:
        """`train(False)`."""
        return self.train(False)


class _ModuleTypes:
    """The module and parameter classes in force; exchanged once, by `set_module_base`."""

    module: type = PlainModule
    parameter: type | None = None


_counter = itertools.count()
_live: weakref.WeakSet[GraphModule] = weakref.WeakSet()


class GraphModule(PlainModule):
    """A graph and the attributes that it refers to.

    `root` is a module, from which the attributes that the graph uses are taken (shared, not copied), or a dict from
    dotted path to attribute. The Python function printed from the graph is compiled on the first call; assign `graph`
    or call `recompile()` after changing the graph.
    """

    _class_name = "GraphModule"

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        if not isinstance(root, (dict, module_base(), PlainModule)):
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        super().__init__()
        self.__dict__["_class_name"] = class_name
        self.__dict__["meta"] = {}
        if hasattr(root, "training"):
            self.training = root.training
        for target in _used_attributes(graph):
            _copy_attr(root, self, target)
        graph.owning_module = self
        self.__dict__["_graph"] = graph
        _live.add(self)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the printed code. Where it raises, gradients are recorded, and what autocast casts is, as before: a graph switches both by
        steps of its own, and those that switch back are not come to."""
        state = dispatch.state
        recording, autocast = state.recording, state.autocast
        try:
            return self._compiled()(self, *args, **kwargs)
        except BaseException:
            state.recording, state.autocast = recording, autocast
            raise

    @property
    def graph(self) -> Graph:
        """The graph; assigning one makes the code be printed anew."""
        return self.__dict__["_graph"]

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(graph)}")
        graph.owning_module = self
        self.__dict__["_graph"] = graph
        self._forget_code()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "graph":  # nn.Module's own __setattr__ need not know about properties
            GraphModule.graph.__set__(self, value)  # type: ignore[attr-defined]
        else:
            super().__setattr__(name, value)

    def _forget_code(self) -> None:
        self.__dict__.pop("_forward", None)
        self.__dict__.pop("_code", None)

    def _compiled(self) -> Callable:
        forward = self.__dict__.get("_forward")
        if forward is None:
            code = self._printed()
            filename = f"<{self._class_name}.{next(_counter)}>"
            linecache.cache[filename] = (len(code.src), None, code.src.splitlines(keepends=True), filename)
            forward = self.__dict__["_forward"] = compile_function(code, filename)
            weakref.finalize(forward, linecache.cache.pop, filename, None)
        return forward

    def _printed(self) -> PythonCode:
        if "_code" not in self.__dict__:
            self.__dict__["_code"] = self.graph.python_code("self")
        return self.__dict__["_code"]

    def recompile(self) -> PythonCode:
        """Print and compile the graph as it is now; to be called after changing the graph in place."""
        self._forget_code()
        self._compiled()
        return self._printed()

    @property
    def code(self) -> str:
        """The graph as Python source, with the blank lines and the indentation around it that torch's has."""
        return f"\n\n\n{self._printed().src}    "

    def readable(self) -> str:
        """The source with the user's lines as comments and a note of which passes made it."""
        notes = [f"# {line}" for line in self.graph.provenance]
        code = self.graph.python_code("self", verbose=True)
        body = [f"    {line}" if line else line for line in code.src.splitlines()]
        return "\n".join([*notes, f"class {self._class_name}(torch.nn.Module):", *body]) + "\n"

    def print_readable(self, print_output: bool = True) -> str:
        """Print `readable()`, and return it."""
        text = self.readable()
        if print_output:
            print(text)
        return text

    def _get_name(self) -> str:
        return self._class_name

    def __str__(self) -> str:
        return f"{self!r}\n{self.code}"

    def add_submodule(self, target: str, m: Any) -> bool:
        """Put a module at a dotted path, making the modules on the way; False if something else is in the way."""
        *path, _ = target.split(".")
        owner: Any = self
        for atom in path:
            if not hasattr(owner, atom):
                owner.add_module(atom, _ModuleTypes.module())
            owner = getattr(owner, atom)
            if not isinstance(owner, _ModuleTypes.module):
                return False
        _assign(self, target, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Drop the module at a dotted path; False if there is none."""
        owner, _, name = target.rpartition(".")
        try:
            home = self.get_submodule(owner)
        except AttributeError:
            return False
        if not isinstance(getattr(home, name, None), _ModuleTypes.module):
            return False
        delattr(home, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Drop the submodules that no node of the graph refers to."""
        used = [f"{target}." for target in _used_attributes(self.graph)]
        for path in [path for path, _ in self.named_modules() if path][::-1]:
            if not any(u.startswith(f"{path}.") or f"{path}.".startswith(u) for u in used):
                owner, _, name = path.rpartition(".")
                delattr(resolve_attr(self, owner) if owner else self, name)

    # -- copies and pickles: the attributes and the graph; code is printed anew on the other side ----------------------

    def _plain_state(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_forward", "_code")}

    def __deepcopy__(self, memo: dict) -> GraphModule:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        return new._restore(copy.deepcopy(self._plain_state(), memo), copy.deepcopy(self.graph, memo))

    def __copy__(self) -> GraphModule:
        """Shares the attributes, copies the graph."""
        new = type(self).__new__(type(self))
        return new._restore(dict(self._plain_state()), copy.deepcopy(self.graph))

    def __reduce__(self) -> tuple:
        return _unpickle, (type(self), self._plain_state(), self.graph)

    def _restore(self, state: dict[str, Any], graph: Graph) -> GraphModule:
        self.__dict__.update(state)
        graph.owning_module = self
        self.__dict__["_graph"] = graph
        _live.add(self)
        return self


def _unpickle(cls: type[GraphModule], state: dict[str, Any], graph: Graph) -> GraphModule:
    return cls.__new__(cls)._restore(state, graph)


def _prefixes(target: str) -> Iterator[str]:
    atoms = target.split(".")
    return (".".join(atoms[: i + 1]) for i in range(len(atoms)))


def _used_attributes(graph: Graph) -> dict[str, Node]:
    return {str(n.target): n for n in graph.nodes if n.op in ("get_attr", "call_module")}


def _lookup(root: Any, target: str) -> Any:
    if not isinstance(root, dict):
        return resolve_attr(root, target)
    if target in root:
        return root[target]
    for prefix in reversed(list(_prefixes(target))[:-1]):  # `a.b.weight` may live in a module given as `a.b`
        if prefix in root:
            return resolve_attr(root[prefix], target[len(prefix) + 1 :])
    raise RuntimeError(f"GraphModule: the graph refers to {target!r}, but the attributes given are {', '.join(sorted(root)) or 'none'}")


def _assign(owner: Any, target: str, value: Any) -> None:
    """Set a dotted path, making plain modules on the way; tensors that are not parameters become buffers."""
    *path, name = target.split(".")
    for atom in path:
        if getattr(owner, atom, None) is None:
            owner.add_module(atom, _ModuleTypes.module())
        owner = getattr(owner, atom)
    if getattr(owner, name, None) is value and value is not None:
        return
    is_parameter = _ModuleTypes.parameter is not None and isinstance(value, _ModuleTypes.parameter)
    if hasattr(value, "dtype") and hasattr(value, "shape") and not is_parameter:
        if hasattr(owner, name):
            delattr(owner, name)
        owner.register_buffer(name, value)
    else:
        setattr(owner, name, value)


def _copy_attr(root: Any, to: Any, target: str) -> None:
    """Make the attribute of `root` (a module, or a dict by path) at a dotted path an attribute of `to` as well."""
    _assign(to, target, _lookup(root, target))


def take_attributes(gm: GraphModule, root: Any, graph: Graph) -> None:
    """Copies of what a graph refers to in its module and `gm` lacks, so that the graph's nodes may be put into `gm`'s."""
    for target in _used_attributes(graph):
        try:
            resolve_attr(gm, target)
        except AttributeError:
            _assign(gm, target, copy.deepcopy(_lookup(root, target)))


class _CodeOnlyModule(PlainModule):
    """A module made of nothing but a dict of attributes: torch.fx's, for code that copies graph modules by hand."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"  # in meta: attributes that copies of a graph module keep


def set_module_base(module: type, parameter: type | None = None) -> None:
    """Make `module` (nn.Module) the base class of `GraphModule`, and `parameter` (nn.Parameter) what counts as one.

    Called once, by `nn` when it is loaded. GraphModules that exist already are given the fields of the new base.
    """
    GraphModule.__bases__ = _CodeOnlyModule.__bases__ = (module,)
    _ModuleTypes.module = module
    _ModuleTypes.parameter = parameter
    for gm in list(_live):
        for key, value in vars(module()).items():
            gm.__dict__.setdefault(key, value)


def module_base() -> type:
    """The module class in force: `nn.Module` once `nn` is loaded, `PlainModule` before."""
    return _ModuleTypes.module
