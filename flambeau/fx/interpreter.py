"""The two ways to walk a graph: `Interpreter` runs it node by node, `Transformer` runs it to make another graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau.fx.codegen import describe_value
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Argument, Node, Target, format_stack, last_uses, map_aggregate, map_arg, resolve_attr
from flambeau.fx.proxy import Proxy, TracerBase, operators_see_proxies


class Interpreter:
    """Runs a graph one node at a time. Override `run_node`, or one of the methods named after node kinds, to change
    what a node means; values are dropped after their last use unless `garbage_collect_values` is False.

    An exception passes through unchanged but for a note that names the node and the user's line.
    """

    def __init__(self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.graph: Graph = module.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.garbage_collect_values = garbage_collect_values
        self._args_iter: Iterator[Any] = iter(())
        self._last_uses = last_uses(self.graph) if garbage_collect_values else {}

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None) -> Any:
        """Run the graph on `args`; `initial_env` gives nodes whose values are already known."""
        return self._run(list(args), initial_env)

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Run on a list that is emptied, so that inputs can be freed while the graph still runs."""
        args = list(args_list)
        args_list.clear()
        return self._run(args, None)

    def _run(self, args: list[Any], initial_env: dict[Node, Any] | None) -> Any:
        env = self.env = dict(initial_env) if initial_env else {}
        self._args_iter = _popping(args)
        frees = self._last_uses
        for node in self.graph.nodes:
            if node in env:
                continue
            try:
                env[node] = self.run_node(node)
            except Exception as error:
                annotate(error, node)
                raise
            if node.op == "output":
                value = env[node]
                self.env = {}
                return value
            for dead in frees.get(node, ()):
                env.pop(dead, None)
        return None

    def run_node(self, n: Node) -> Any:
        """The value of one node; the hook to override for looking at every node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    # -- one method a kind of node -----------------------------------------------------------------------------------

    def placeholder(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The next argument, or the default."""
        assert isinstance(target, str)
        if target.startswith("**"):
            return {}
        if target.startswith("*"):
            return tuple(self._args_iter)
        try:
            return next(self._args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(f"too few arguments for the graph: none is left for parameter {target!r}") from None

    def get_attr(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The owning module's attribute."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call the function."""
        assert callable(target)
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call the method of `args[0]`."""
        receiver, *rest = args
        return getattr(receiver, str(target))(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call the submodule."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the graph returns."""
        return args[0]

    # -- helpers -----------------------------------------------------------------------------------------------------

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module by dotted path; RuntimeError if there is none."""
        try:
            return resolve_attr(self.module, target)
        except AttributeError as error:
            raise RuntimeError(f"Node referenced nonexistent target {target}: {error}") from error

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple, dict]:
        """The node's arguments with nodes replaced by values; containers are plain, writable ones."""
        load = self.env.__getitem__
        return tuple([_load(a, load) for a in n.args]), {key: _load(a, load) for key, a in n.kwargs.items()}

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Any argument with nodes replaced by their values."""
        return _load(args, self.env.__getitem__)


def _popping(args: list[Any]) -> Iterator[Any]:
    """The arguments in order, none of them held on to after it was handed out."""
    args.reverse()
    while args:
        yield args.pop()


def _load(a: Argument, load: Callable[[Node], Any]) -> Any:
    kind = type(a)
    if kind is Node:
        return load(a)
    if isinstance(a, list):
        return [_load(item, load) for item in a]
    if kind is tuple:
        return tuple([_load(item, load) for item in a])
    if isinstance(a, dict):
        return {key: _load(item, load) for key, item in a.items()}
    return map_arg(a, load) if kind is slice or isinstance(a, tuple) else a


def annotate(error: BaseException, node: Node) -> None:
    """Add to an exception which node raised it and which line of the user's made that node, once."""
    if any(note.startswith("While executing ") for note in getattr(error, "__notes__", ())):
        return
    described = describe_value(node.meta.get("val"))
    note = f"While executing {node.format_node()}" + (f"    # {described}" if described else "")
    if stack := node.meta.get("stack"):
        note += f"\nmade by this code:\n{format_stack(stack)}"
    error.add_note(note)


class _GraphAppender(TracerBase):
    """A tracer that only appends; modules and attributes keep their paths."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


class Transformer(Interpreter):
    """An interpreter whose values are proxies: running it makes a new graph. Override the methods named after node
    kinds to change what is recorded, and call `transform()`."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _GraphAppender(self.new_graph)

    def placeholder(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Proxy:
        """A proxy for the same parameter."""
        return self.tracer.create_proxy("placeholder", target, args, {})

    def get_attr(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Proxy:
        """A proxy for the same attribute."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_function(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Record the call; without a proxy among the arguments it is simply made."""
        if not _has_proxy((args, kwargs)):
            return super().call_function(target, args, kwargs)
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Record the method's call."""
        if not _has_proxy((args, kwargs)):
            return super().call_method(target, args, kwargs)
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def call_module(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Record the submodule's call."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def run_node(self, n: Node) -> Any:
        """As the interpreter; nodes recorded meanwhile take over this node's meta."""
        before = self.new_graph._root._prev
        value = super().run_node(n)
        node = before._next
        while node is not self.new_graph._root:
            node.meta = dict(n.meta) if not node.meta else node.meta
            node = node._next
        return value

    def transform(self) -> GraphModule:
        """The new graph as a module that shares the old one's attributes."""
        with operators_see_proxies():
            result = self.run()
        if result is not None:
            self.new_graph.output(map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a))
        return GraphModule(self.module, self.new_graph, self.module._class_name)


def _has_proxy(a: Any) -> bool:
    found = False

    def look(leaf: Any) -> Any:
        nonlocal found
        found = found or isinstance(leaf, Proxy)
        return leaf

    map_aggregate(a, look)
    return found
