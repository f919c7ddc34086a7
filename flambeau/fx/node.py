"""The node of the tensor-level IR, and the walks over its nested arguments.

A `Node` is one step of a `Graph`: `name = target(*args, **kwargs)`. Arguments may hold other nodes anywhere inside
tuples, lists, dicts and slices; a node keeps its inputs and its users in step with them, which is why the containers
that it hands out cannot be written to.
"""

from __future__ import annotations

import keyword
import sys
import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from flambeau.fx.operator_schemas import ArgsKwargsPair, normalize_function, normalize_module

if TYPE_CHECKING:
    from flambeau.fx.graph import Graph

Target = Callable[..., Any] | str
Argument = Any

OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(f"{type(self).__name__!r} object does not support mutation: it holds a node's arguments, and the node's inputs and users "
                    "would no longer agree with it; build new arguments and assign node.args or node.kwargs")


class immutable_list(list):
    """A list inside a node's arguments: reads like a list, refuses writes, hashes like a tuple."""

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple:
        return immutable_list, (tuple(self),)


class immutable_dict(dict):
    """A dict inside a node's arguments: reads like a dict, refuses writes, hashes by its items."""

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple:
        return immutable_dict, (tuple(self.items()),)


_ATOMS = frozenset((int, float, str, bool, type(None)))


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """`a` with every leaf replaced by `fn(leaf)`; tuples, named tuples, lists, dicts and slices are walked into."""
    kind = type(a)
    if kind is tuple:
        return tuple([map_aggregate(item, fn) for item in a])
    if kind is list or kind is immutable_list:
        return immutable_list([map_aggregate(item, fn) for item in a])
    if kind is dict or kind is immutable_dict:
        return immutable_dict([(key, map_aggregate(item, fn)) for key, item in a.items()])
    if kind is slice:
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    if kind in _ATOMS or not isinstance(a, (tuple, list, dict)):
        return fn(a)
    return _map_subclass(a, lambda item: map_aggregate(item, fn))


def _map_subclass(a: Any, fn: Callable[[Any], Any]) -> Any:
    """The containers that are subclasses: named tuples keep their class, the others become their plain kind."""
    if isinstance(a, tuple):
        items = [fn(item) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return immutable_list([fn(item) for item in a])
    return immutable_dict([(key, fn(item)) for key, item in a.items()])


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """`a` with every `Node` in it replaced by `fn(node)`; other leaves stay."""
    if isinstance(a, Node):
        return fn(a)
    return map_aggregate(a, lambda leaf: fn(leaf) if isinstance(leaf, Node) else leaf)


def _freeze(a: Argument, inputs: dict[Node, None]) -> Argument:
    """`a` with unwritable containers; every node met is added to `inputs`. The hot path of graph building."""
    kind = type(a)
    if kind is Node:
        inputs[a] = None
        return a
    if kind in _ATOMS:
        return a
    if kind is tuple:
        return tuple([_freeze(item, inputs) for item in a]) if a else a
    if kind is list or kind is immutable_list:
        return immutable_list([_freeze(item, inputs) for item in a])
    if kind is dict or kind is immutable_dict:
        return immutable_dict([(key, _freeze(item, inputs)) for key, item in a.items()])
    if kind is slice:
        return slice(_freeze(a.start, inputs), _freeze(a.stop, inputs), _freeze(a.step, inputs))
    if isinstance(a, Node):
        inputs[a] = None
        return a
    if isinstance(a, (tuple, list, dict)):
        return _map_subclass(a, lambda item: _freeze(item, inputs))
    return a


_NO_KWARGS = immutable_dict()


class Node:
    """One step of a graph.

    `op` is one of `OPS`; `target` is the callable (`call_function`), the method's name (`call_method`) or the dotted
    attribute path (`get_attr`, `call_module`); for a `placeholder` it is the parameter's name, which may start with
    `*` or `**`, and `args` is empty or holds the default. An `output` node returns `args[0]`.

    `users` is an ordered dict used as a set; `meta` belongs to whoever walks the graph: `meta["val"]` is the value's
    shape-only stand-in and `meta["stack"]` the user's frames, innermost last.
    """

    __slots__ = ("__dict__", "_args", "_erased", "_inputs", "_kwargs", "_next", "_prev", "graph", "meta", "name", "op", "target",
                 "type", "users")  # fmt: skip - tools write attributes of their own

    def __init__(self, graph: Graph, name: str, op: str, target: Target, args: tuple = (), kwargs: dict | None = None,
                 return_type: Any = None) -> None:
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[Any, Any] = {}
        self._erased = False
        self._prev: Node = self
        self._next: Node = self
        self._inputs: dict[Node, None] = {}
        self._set_arguments(args, kwargs or _NO_KWARGS)

    # -- arguments, inputs, users ------------------------------------------------------------------------------------

    def _set_arguments(self, args: tuple, kwargs: dict) -> None:
        for old in self._inputs:
            old.users.pop(self, None)
        inputs: dict[Node, None] = {}
        self._args: tuple = _freeze(args if type(args) is tuple else tuple(args), inputs)
        self._kwargs: dict = _freeze(kwargs, inputs) if kwargs else _NO_KWARGS
        self._inputs = inputs
        for node in inputs:
            node.users[self] = None

    @property
    def args(self) -> tuple:
        """Positional arguments; assign a new tuple to change them."""
        return self._args

    @args.setter
    def args(self, args: tuple) -> None:
        self._set_arguments(args, self._kwargs)

    @property
    def kwargs(self) -> dict:
        """Keyword arguments; assign a new dict to change them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict) -> None:
        self._set_arguments(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes found in args and kwargs, each once, in order."""
        return list(self._inputs)

    def update_arg(self, index: int, value: Argument) -> None:
        """Replace one positional argument."""
        args = list(self._args)
        args[index] = value
        self.args = tuple(args)

    def update_kwarg(self, key: str, value: Argument) -> None:
        """Set one keyword argument."""
        self.kwargs = {**self._kwargs, key: value}

    def insert_arg(self, index: int, value: Argument) -> None:
        """Insert a positional argument before place `index`."""
        self.args = (*self._args[:index], value, *self._args[index:])

    def replace_input_with(self, old_input: Node, new_input: Argument) -> None:
        """Use `new_input` wherever the arguments use `old_input`."""
        swap = lambda n: new_input if n is old_input else n  # noqa: E731
        self._set_arguments(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(self, replace_with: Node, delete_user_cb: Callable[[Node], bool] | None = None, *,
                              propagate_meta: bool = False) -> list[Node]:
        """Make every user of this node, other than `replace_with` itself, use `replace_with`; return those users.

        `delete_user_cb(user)` may return False for users to leave as they are. With `propagate_meta` the replacement,
        whose meta must be empty, takes over this node's meta.
        """
        if propagate_meta:
            if replace_with.meta:
                raise ValueError(f"replace_all_uses_with(propagate_meta=True) of %{self.name}: the replacement "
                                 f"%{replace_with.name} already has meta entries "
                                 f"{sorted(map(str, replace_with.meta))}; pass propagate_meta=False")
            replace_with.meta = dict(self.meta)
        users = [u for u in self.users if u is not replace_with and (delete_user_cb is None or delete_user_cb(u))]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    # -- place in the graph ------------------------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        """The following node in the graph's order (the graph's root after the last)."""
        return self._next

    @property
    def prev(self) -> Node:
        """The preceding node in the graph's order (the graph's root before the first)."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move `x` to the place just before this node."""
        if x is self:
            return
        if x.graph is not self.graph:
            raise AssertionError(f"Attempting to move a Node into a different Graph: %{x.name} beside %{self.name}")
        x._unlink()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Move `x` to the place just after this node."""
        if x is not self and x is not self._next:
            self._next.prepend(x)

    def __lt__(self, other: Node) -> bool:
        """Whether it comes before another node of its graph."""
        node = self._next
        while node is not other and node is not self.graph._root:
            node = node._next
        return node is other and other is not self

    def __gt__(self, other: Node) -> bool:
        return other < self

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return other <= self

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    # -- facts -------------------------------------------------------------------------------------------------------

    @property
    def stack_trace(self) -> str | None:
        """The user's frames that made this node, as Python prints a traceback, or None."""
        if "stack" in self.meta:
            return format_stack(self.meta["stack"])
        return self.meta.get("stack_trace")

    def normalized_arguments(self, root: Any, arg_types: tuple | None = None, kwarg_types: dict[str, Any] | None = None,
                             normalize_to_only_use_kwargs: bool = False) -> ArgsKwargsPair | None:
        """The arguments in the order of the parameters, or all by name (`operator_schemas`); None of what is no call of a function or of a
        submodule of `root`."""
        if self.op == "call_function":
            return normalize_function(self.target, self._args, self._kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs)  # type: ignore[arg-type]
        if self.op == "call_module":
            return normalize_module(root, str(self.target), self._args, self._kwargs, normalize_to_only_use_kwargs)
        return None

    def is_impure(self) -> bool:
        """True if removing this node could change what the program does even though nobody uses its value."""
        if self.op in ("placeholder", "output") or self.meta.get("writes"):
            return True
        if self.op == "call_method":
            return _is_inplace_name(str(self.target))
        if self.op == "call_function":
            return is_impure_function(self.target) or self._kwargs.get("out") is not None
        if self.op == "call_module":
            module = self.graph.owning_module
            submodule = resolve_attr(module, str(self.target)) if module is not None else None
            return bool(getattr(submodule, "_is_impure", False))
        return False

    def __repr__(self) -> str:
        return self.name

    def format_node(self) -> str:
        """One line: `%name : [num_users=N] = op[target=...](args = ..., kwargs = ...)`."""
        kind = "" if self.type is None or isinstance(self.type, str) else f"{type_name(self.type)} "
        if self.op == "placeholder":
            default = f"(default={self._args[0]!r})" if self._args else ""
            return f"%{self.name} : {kind}[num_users={len(self.users)}] = placeholder[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"%{self.name} : {kind}[num_users={len(self.users)}] = get_attr[target={self.target}]"
        if self.op == "output":
            return f"return {self._args[0] if self._args else None}"
        kwargs = ", ".join(f"{key}: {_show(value)}" for key, value in self._kwargs.items())
        return (
            f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}[target={target_name(self.target)}]"
            f"(args = {_show(self._args)}, kwargs = {{{kwargs}}})"
        )


def _show(a: Argument) -> str:
    """Arguments as text with nodes as %name."""
    if isinstance(a, Node):
        return f"%{a.name}"
    if isinstance(a, tuple):
        return f"({', '.join(map(_show, a))}{',' if len(a) == 1 else ''})"
    if isinstance(a, list):
        return f"[{', '.join(map(_show, a))}]"
    if isinstance(a, dict):
        return "{" + ", ".join(f"{key!r}: {_show(value)}" for key, value in a.items()) + "}"
    if isinstance(a, slice):
        return f"slice({_show(a.start)}, {_show(a.stop)}, {_show(a.step)})"
    return getattr(a, "__name__", None) or repr(a)


def type_name(kind: Any) -> str:
    """An annotation as text: a class by its name, torch's with their module, also within a generic of `typing`."""
    if not isinstance(kind, type) or hasattr(kind, "__origin__"):
        generic, bracket, _ = str(kind).partition("[")
        parts = [part for part in typing.get_args(kind) if not (generic == "typing.Optional" and part is type(None))]
        return f"{generic}[{', '.join(map(type_name, parts))}]" if bracket and parts else str(kind)
    return kind.__name__ if kind.__module__ == "builtins" else target_name(kind)


def function_name(fn: Any) -> str:
    """The name that a callable goes by: an operator's own, else its path in its module, else its plain name."""
    if (info := getattr(fn, "_operator", None)) is not None:
        name = getattr(info, "name", None)
        return name if isinstance(name, str) and name else info.__name__
    path = getattr(fn, "__qualname__", None) or ""
    return path if path and "<" not in path else getattr(fn, "__name__", None) or getattr(fn, "name", None) or ""


# Modules whose names are printed as torch's, in order of preference.
PUBLIC = ("flambeau", "flambeau.nn.functional")


def _reaches(root: Any, path: str, value: Any) -> bool:
    """Whether a dotted path leads from `root` to `value`."""
    for atom in path.split("."):
        root = getattr(root, atom, None)
    return root is value


def importable_path(fn: Any) -> tuple[str, str] | None:
    """(module, path inside it) by which a callable can be found again: a public name if it has one."""
    name = function_name(fn)
    module = str(getattr(fn, "__module__", None)).removeprefix("_") or "builtins"
    for candidate in (*PUBLIC, module):
        if candidate in sys.modules and is_path(name) and _reaches(sys.modules[candidate], name, fn):
            return candidate, name
    return None


def is_path(text: str) -> bool:
    """Whether it is a dotted path of names."""
    return bool(text) and all(atom.isidentifier() and not keyword.iskeyword(atom) for atom in text.split("."))


def target_name(target: Target) -> str:
    """A target as text: the path itself, or the callable's qualified name, a public one as torch's."""
    if isinstance(target, str):
        return target
    found = importable_path(target)
    if found and found[0] in PUBLIC:
        return f"torch{found[0].removeprefix('flambeau')}.{found[1]}"
    name = function_name(target)
    module = (getattr(target, "__module__", None) or "").removeprefix("_")
    return f"{module}.{name}" if name and module and module != "builtins" else str(name or target)


def format_stack(stack: tuple[tuple[str, int, str, str], ...]) -> str:
    """Frames `(filename, lineno, function, source line)` in the layout of a Python traceback."""
    return "".join(f'  File "{file}", line {line}, in {fn}\n    {source}\n' for file, line, fn, source in stack)


# -- impurity ---------------------------------------------------------------------------------------------------------

_impure_functions: set[Callable] = {setattr, delattr, print}
_IMPURE_TAGS = frozenset({"inplace", "communicates"})


def mark_impure(fn: Callable) -> Callable:
    """Declare that calls of `fn` must stay in a graph even when nobody uses their value. Usable as a decorator."""
    _impure_functions.add(fn)
    return fn


has_side_effect = mark_impure


def is_impure_function(fn: Any) -> bool:
    """True for functions marked impure, for in-place ones (by torch's naming, `add_`, `iadd`, `setitem`, or tag) and for collectives."""
    try:
        if fn in _impure_functions:
            return True
    except TypeError:  # an unhashable callable cannot have been marked
        pass
    if not _IMPURE_TAGS.isdisjoint(getattr(getattr(fn, "_operator", fn), "tags", ())) or getattr(fn, "_is_impure", False):
        return True
    name = function_name(fn)
    if getattr(fn, "__module__", None) == "_operator":
        return name in _WRITING_OPERATORS
    return _is_inplace_name(name)


_WRITING_OPERATORS = frozenset((
    "setitem", "delitem", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow",
    "irshift", "isub", "itruediv", "ixor",
))


def _is_inplace_name(name: str) -> bool:
    if name.startswith("__"):
        return name.strip("_") in _WRITING_OPERATORS
    return name.endswith("_") and not name.startswith("_")


# -- attributes by dotted path -----------------------------------------------------------------------------------------


def resolve_attr(root: Any, target: str) -> Any:
    """`root.a.b.c` for target `"a.b.c"`; AttributeError names the part that is missing."""
    value = root
    for i, atom in enumerate(atoms := target.split(".")):
        try:
            value = getattr(value, atom)
        except AttributeError:
            where = ".".join(atoms[:i]) or type(root).__name__
            raise AttributeError(f"no attribute {target!r}: {where!r} has no {atom!r}") from None
    return value


def last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """For each node, the nodes whose value is used by it last (and, for itself, if nobody uses it)."""
    seen: set[Node] = set()
    freed: dict[Node, list[Node]] = {}
    for node in reversed(graph.nodes):
        dead = [n for n in node._inputs if n not in seen]
        seen.update(dead)
        if node not in seen and node.op != "output":
            dead.append(node)
            seen.add(node)
        freed[node] = dead
    return freed


def walk_nodes(a: Argument) -> Iterator[Node]:
    """Every node inside an argument, in order, with repeats."""
    if isinstance(a, Node):
        yield a
    elif isinstance(a, (tuple, list)):
        for item in a:
            yield from walk_nodes(item)
    elif isinstance(a, dict):
        for item in a.values():
            yield from walk_nodes(item)
    elif isinstance(a, slice):
        yield from walk_nodes((a.start, a.stop, a.step))
