"""`symbolic_trace`: run a function or module once on proxies and keep what it did as a graph."""

from __future__ import annotations

import builtins
import collections
import contextlib
import dis
import functools
import inspect
import itertools
import math
import sys
import threading
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from flambeau.core.homes import own_name
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule, PlainModule, module_base
from flambeau.fx.node import Argument, Node, Target, mark_impure
from flambeau.fx.proxy import ParameterProxy, Proxy, TracerBase, operators_see_proxies

_wrapped: dict[tuple[int, str], dict[str, Any]] = {}  # (id of a globals dict, name) -> that globals dict


def wrap(fn_or_name: str | Callable) -> str | Callable:
    """Keep calls of a function of the calling module whole in traces; called at module level, also as a decorator.

    Takes a function or the name under which the calling module knows it, e.g. `fx.wrap("len")`.
    """
    name = fn_or_name if isinstance(fn_or_name, str) else getattr(fn_or_name, "__name__", None)
    if name is None:
        raise RuntimeError(f"fx.wrap takes a function or the name of one, got {fn_or_name!r}")
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError(f"fx.wrap({name!r}) must be called at the top level of a module")
    _wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


@mark_impure
def check_specialized(value: Any, expected: Any, name: str) -> None:
    """Run in traces with `concrete_args`: the argument must be what the trace was made for."""
    if value is not expected and value != expected:
        raise AssertionError(f"{name} has been specialized to have value {expected} but got another value: {value!r}; trace again")


class _Tracing(threading.local):
    """How many traces are under way on this thread."""

    depth = 0


_tracing = _Tracing()


class PH:
    """In `concrete_args`, stands for a part that is to stay an input."""


class Tracer(TracerBase):
    """Traces a module or function into a `Graph`. Override `is_leaf_module`, `call_module`, `create_arg`, `iter` or
    `to_bool` to change what is followed and what is kept whole.

    `autowrap_modules`: their functions are recorded as calls where the traced function reaches them through globals.
    `autowrap_functions`: further functions to record so. `param_shapes_constant`: parameters' shapes are plain values.
    """

    proxy_buffer_attributes = False  # a subclass may say True: buffers are then recorded, like parameters

    def __init__(self, autowrap_modules: tuple[ModuleType, ...] = (math,),
                 autowrap_functions: tuple[Callable, ...] = (), param_shapes_constant: bool = False) -> None:
        functions = [f for m in autowrap_modules for n, f in vars(m).items() if callable(f) and not n.startswith("_")]
        functional = sys.modules.get("flambeau.nn.functional")      # which this room doesn't know
        layers = [] if functional is None else list(filter(_is_layer, vars(functional).values()))
        self._autowrap = {id(f) for f in (*functions, *autowrap_functions, *layers)}
        self._autowrap_modules = (*autowrap_modules, functional) if functional is not None else autowrap_modules
        self.param_shapes_constant = param_shapes_constant
        self.root: Any = None
        self._constants: dict[int, str] = {}
        self._parameters: dict[int, str] = {}
        self._proxies: dict[str, Proxy] = {}
        self.module_stack: dict[str, tuple[str, type]] = collections.OrderedDict()

    # -- what to follow ----------------------------------------------------------------------------------------------

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """True for modules to keep as one `call_module`: by default those of the library's own `nn`, bar Sequential."""
        home = own_name(type(m).__module__ or "")
        return home.startswith("flambeau.nn") and type(m).__name__ not in ("Sequential", "ModuleList", "ModuleDict")

    def call_module(self, m: Any, forward: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Called in place of `m(*args, **kwargs)`; `forward` is the original call."""
        path = self.path_of_module(m)
        self.module_stack[path] = (path, type(m))
        try:
            if not self.is_leaf_module(m, path):
                return forward(*args, **kwargs)
            return self.create_proxy("call_module", path, args, kwargs)
        finally:
            self.module_stack.pop(path, None)

    def create_node(self, kind: str, target: Target, args: tuple, kwargs: dict, name: str | None = None, type_expr: Any = None) -> Node:
        """As any tracer; the node knows which modules it was made in."""
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        if self.module_stack:
            node.meta["nn_module_stack"] = dict(self.module_stack)
        return node

    def path_of_module(self, mod: Any) -> str:
        """The dotted path of a submodule; NameError if it is not in the root's tree."""
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError(f"module {type(mod).__name__} was called but is not a submodule of {type(self.root).__name__}; "
                        "assign it to an attribute of the root module before tracing")

    def iter(self, obj: Proxy) -> Iterator:
        """`a, b = proxy` is allowed, for the bytecode says how many there are; nothing else is."""
        frame: Any = sys._getframe(2)
        instruction = _instruction_at(frame)
        if instruction is not None and instruction.opname == "UNPACK_SEQUENCE":
            return (obj[i] for i in range(instruction.argval))  # type: ignore[index]
        return super().iter(obj)

    # -- arguments ---------------------------------------------------------------------------------------------------

    def _create_leaf(self, a: Any) -> Argument:
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, module_base()):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        if hasattr(a, "dtype") and hasattr(a, "shape") and hasattr(a, "requires_grad"):
            return self._tensor_node(a)
        return a

    def _tensor_node(self, tensor: Any) -> Argument:
        path = self._parameters.get(id(tensor)) or self._constants.get(id(tensor))
        if path is None:
            path = next(name for i in itertools.count() if not hasattr(self.root, name := f"_tensor_constant{i}"))
            self._constants[id(tensor)] = path
            setattr(self.root, path, tensor)
        return self._attribute(path, tensor).node

    def _attribute(self, path: str, value: Any) -> Proxy:
        if path not in self._proxies:
            node = self.create_node("get_attr", path, (), {})
            named = self.param_shapes_constant
            self._proxies[path] = ParameterProxy(self, node, path, value) if named else self.proxy(node)
        return self._proxies[path]

    # -- tracing -----------------------------------------------------------------------------------------------------

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module's `forward` or of a function.

        `concrete_args` maps parameter names to values to trace with; the graph then checks that it is called with the
        same. Tensors found on the way that are not the root's become its attributes `_tensor_constant0`, ...
        """
        if isinstance(root, (module_base(), PlainModule)):
            self.root, fn, receiver = root, getattr(type(root), "forward"), [root]  # noqa: B009 - either base has it
            if isinstance(vars(root).get("_graph"), Graph):     # a graph's own code has the parameters' names
                fn = root._compiled()    # type: ignore[attr-defined]
        else:
            self.root, fn, receiver = PlainModule(), inspect.unwrap(root), []
        self.graph = Graph(tracer_cls=type(self))
        self._proxies, self._constants = {}, {}
        self._parameters = {id(p): name for name, p in self.root.named_parameters()}
        self._parameters |= {id(b): name for name, b in self.root.named_buffers()}
        fn = getattr(fn, "__func__", fn)
        if not hasattr(fn, "__code__"):
            raise TypeError(f"symbolic_trace takes a module or a Python function, got {root!r}")
        args = self._arguments(fn, len(receiver), concrete_args or {})
        with self._patched(fn):
            result = _all_positional(fn)(*receiver, *args)
        self.graph.output(self.create_arg(result), getattr(fn, "__annotations__", {}).get("return"))
        return self.graph

    def _arguments(self, fn: Callable, skip: int, concrete: dict[str, Any]) -> list:
        """A value for each parameter, in the order of `_all_positional`: `*args` and `**kwargs` are one proxy each."""
        parameters = inspect.signature(fn).parameters
        code = fn.__code__
        variadic = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        names = code.co_varnames[skip : code.co_argcount + code.co_kwonlyargcount + variadic]
        if unknown := concrete.keys() - set(names):
            raise TypeError(f"concrete_args names {sorted(unknown)}, but the parameters of {fn.__name__} are {names}")
        values = {name: self._argument(p, concrete) for name, p in list(parameters.items())[skip:]}
        return [values[name] for name in names]

    def _argument(self, p: inspect.Parameter, concrete: dict[str, Any]) -> Any:
        stars = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        has_value = p.name in concrete and concrete[p.name] is not PH
        default = (concrete[p.name],) if has_value else () if p.default is p.empty else (p.default,)
        proxy = self.create_proxy("placeholder", stars + p.name, default, {}, type_expr=None if p.annotation is p.empty else p.annotation)
        if not has_value:
            return proxy
        self.create_proxy("call_function", check_specialized, (proxy, concrete[p.name], p.name), {})
        return concrete[p.name]

    # -- patches in force while tracing -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _patched(self, fn: Callable) -> Iterator[None]:
        """Module calls, parameter look-ups and wrapped functions go through this tracer, on this thread only."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(operators_see_proxies())
            _tracing.depth += 1
            stack.callback(setattr, _tracing, "depth", _tracing.depth - 1)
            for base in {module_base(), PlainModule}:
                self._patch(stack, base, "__call__", self._calls)
                self._patch(stack, base, "__getattr__", self._looks_up)
            for (_, name), namespace in list(_wrapped.items()):
                if name in namespace or hasattr(builtins, name):
                    self._patch_global(stack, namespace, name)
            namespace = getattr(fn, "__globals__", {})
            for name, value in list(namespace.items()):
                if id(value) in self._autowrap and isinstance(value, Callable):  # type: ignore[arg-type]
                    self._patch_global(stack, namespace, name)
            for module in self._autowrap_modules:
                for name, value in list(vars(module).items()):
                    if id(value) in self._autowrap:
                        self._patch_global(stack, vars(module), name)
            yield

    def _patch(self, stack: contextlib.ExitStack, owner: type, name: str, make: Callable) -> None:
        if (original := vars(owner).get(name)) is not None:
            setattr(owner, name, make(original))
            stack.callback(setattr, owner, name, original)

    def _patch_global(self, stack: contextlib.ExitStack, namespace: dict[str, Any], name: str) -> None:
        missing = object()
        former = namespace.get(name, missing)
        original = getattr(builtins, name) if former is missing else former
        namespace[name] = _recording(original)
        if former is missing:
            stack.callback(namespace.pop, name, None)
        else:
            stack.callback(namespace.__setitem__, name, former)

    def _calls(self, original: Callable) -> Callable:
        thread = threading.get_ident()

        @functools.wraps(original)
        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            forward = functools.partial(original, module)
            if threading.get_ident() != thread:
                return forward(*args, **kwargs)
            return self.call_module(module, forward, args, kwargs)

        return __call__

    def _looks_up(self, original: Callable) -> Callable:
        thread = threading.get_ident()

        @functools.wraps(original)
        def __getattr__(module: Any, name: str) -> Any:
            value = original(module, name)
            homes = ("_parameters", "_buffers") if self.proxy_buffer_attributes else ("_parameters",)
            if threading.get_ident() == thread and any(name in module.__dict__.get(home, ()) for home in homes):
                path = self._parameters.get(id(value))
                if path is not None:
                    return self._attribute(path, value)
            return value

        return __getattr__


def _is_layer(function: Any) -> bool:
    """Is it a function of `nn.functional` that is made of operators, and so would be seen as these?"""
    return (isinstance(function, FunctionType) and function.__module__ == "flambeau.nn.functional" and function.__name__[0] != "_"
            and not hasattr(function, "_operator"))


def _all_positional(fn: Callable) -> Callable:
    """`fn` with every parameter positional, `*args` and `**kwargs` included, in the order of its local variables."""
    code = fn.__code__
    variadic = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    flat = code.replace(co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
                        co_argcount=code.co_argcount + code.co_kwonlyargcount + variadic, co_posonlyargcount=0, co_kwonlyargcount=0)
    return FunctionType(flat, fn.__globals__, fn.__name__, None, fn.__closure__)


def _instruction_at(frame: Any) -> dis.Instruction | None:
    """The bytecode instruction that a frame is executing."""
    return next((i for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti), None)


def _recording(original: Callable) -> Callable:
    """`original`, recorded as a call when a proxy is among its arguments."""

    @functools.wraps(original)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        proxy = next((a for a in (*args, *kwargs.values()) if isinstance(a, Proxy)), None)
        if proxy is None:
            return original(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", original, args, kwargs)

    return recorded


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """Trace a module or function by running it once on proxies.

    Control flow that depends on values raises `TraceError`; `concrete_args` fixes arguments by name.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, (module_base(), PlainModule)) else root.__name__
    return GraphModule(tracer.root, graph, name if name.isidentifier() else "GraphModule")


def is_fx_tracing() -> bool:
    """Whether a symbolic trace is under way on this thread."""
    return _tracing.depth > 0
