"""`Proxy`: a stand-in for a value that is being traced; whatever is done to it becomes a node."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from flambeau.core import dispatch
from flambeau.fx.graph import Graph
from flambeau.fx.node import Argument, Node, Target, map_aggregate

_ADVICE = (
    "Symbolic tracing runs the program once without values. Give the argument through concrete_args, make the module "
    "that contains this a leaf (Tracer.is_leaf_module), wrap the function with fx.wrap, or use torch.compile, which "
    "follows Python's control flow"
)


class TraceError(ValueError):
    """The traced program asked a proxy for something that only a value can tell."""


@contextmanager
def operators_see_proxies() -> Iterator[None]:
    """Within the block operators look for `__torch_function__` among their arguments, and so meet proxies. Everywhere
    else eager calls are spared the search."""
    dispatch.state.proxies += 1
    try:
        yield
    finally:
        dispatch.state.proxies -= 1


class TracerBase:
    """Records nodes for proxies. `graph` is where; override `create_arg` to allow more kinds of arguments, `iter`,
    `to_bool` and `keys` to give proxies a meaning where Python wants a value."""

    graph: Graph

    def create_node(self, kind: str, target: Target, args: tuple, kwargs: dict, name: str | None = None, type_expr: Any = None) -> Node:
        """Append a node."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """The stand-in for a node."""
        return Proxy(node, self)

    def create_proxy(self, kind: str, target: Target, args: tuple, kwargs: dict, name: str | None = None, type_expr: Any = None) -> Proxy:
        """Record a node for arguments that may hold proxies, and return its stand-in."""
        node_args = tuple([self.create_arg(a) for a in args])
        node_kwargs = {key: self.create_arg(a) for key, a in kwargs.items()}
        return self.proxy(self.create_node(kind, target, node_args, node_kwargs, name, type_expr))

    def create_arg(self, a: Any) -> Argument:
        """A value as a node's argument: proxies become their nodes, at any depth."""
        return map_aggregate(a, self._create_leaf)

    def _create_leaf(self, a: Any) -> Argument:
        return a.node if isinstance(a, Proxy) else a

    def to_bool(self, obj: Proxy) -> bool:
        """Called where Python needs a truth value."""
        raise TraceError(f"symbolically traced variables cannot be used as inputs to control flow: {obj.node.name!r} is one. {_ADVICE}")

    def iter(self, obj: Proxy) -> Iterator:
        """Called where Python iterates; unpacking `a, b = proxy` is answered by `Proxy.__iter__` itself."""
        raise TraceError(f"Proxy object cannot be iterated: {obj.node.name!r} has no length. {_ADVICE}")

    def keys(self, obj: Proxy) -> Any:
        """Called for `**proxy`."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """The least tracer: records into a graph that is given."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        dispatch.count_override(Proxy)      # its proxies may meet operators anywhere


class Proxy:
    """The value of `node` while tracing. Operators, methods, attributes and functions that honour
    `__torch_function__` become nodes."""

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.node = node
        self.tracer = tracer if tracer is not None else GraphAppendingTracer(node.graph)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Attribute:
        if name.startswith("__") and name.endswith("__"):  # so that copy, pickle and NumPy's protocols are not misled
            raise AttributeError(f"Proxy({self.node.name}) has no attribute {name!r}")
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> NoReturn:
        raise RuntimeError(f"'len' is not supported in symbolic tracing by default: {self.node.name!r} has no length yet. If you want this "
                           "call to be recorded, please call torch.fx.wrap('len') at module scope")

    __hash__ = object.__hash__

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})

    def keys(self) -> Any:
        """Called for `**proxy`."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, orig_method: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Record a library function that was called with a proxy among its arguments."""
        kwargs = kwargs or {}
        tracers: dict[int, TracerBase] = {}

        def look(a: Any) -> Any:
            if isinstance(a, Proxy):
                tracers[id(a.tracer)] = a.tracer
            return a

        map_aggregate((args, kwargs), look)
        if len(tracers) > 1:
            name = getattr(orig_method, "__name__", orig_method)
            raise RuntimeError(f"{name}: proxies of {len(tracers)} different tracers among its arguments")
        (tracer,) = tracers.values()
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


class Attribute(Proxy):
    """`proxy.name`: becomes a `getattr` node only if used as a value; called, it is a method call."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """Made when first asked for."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """The stand-in for a parameter: what its shape is can be told without a value."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param = param
        self.name = name

    shape, ndim, dtype = (property(operator.attrgetter(f"param.{fact}")) for fact in ("shape", "ndim", "dtype"))

    def size(self, dim: int | None = None) -> Any:
        """As the parameter's."""
        return self.param.size() if dim is None else self.param.size(dim)

    def dim(self) -> int:
        """As the parameter's."""
        return self.param.dim()

    def numel(self) -> int:
        """As the parameter's."""
        return self.param.numel()


# `x += y` becomes x = x + y, as in torch.fx: there are no in-place forms.
_BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and_", "or_", "xor"]
_COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]
_UNARY = ["neg", "pos", "invert", "abs"]


def _operator_method(fn: Callable) -> Callable:
    def method(self: Proxy, *args: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", fn, (self, *args), {})

    return method


def _reflected_method(fn: Callable) -> Callable:
    def method(self: Proxy, other: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", fn, (other, self), {})

    return method


for _name in (*_BINARY, *_COMPARE, *_UNARY, "getitem"):
    setattr(Proxy, f"__{_name.strip('_')}__", _operator_method(getattr(operator, _name)))
for _name in _BINARY:
    setattr(Proxy, f"__r{_name.strip('_')}__", _reflected_method(getattr(operator, _name)))
for _name, _function in (("__divmod__", divmod), ("__round__", round)):
    setattr(Proxy, _name, _operator_method(_function))
