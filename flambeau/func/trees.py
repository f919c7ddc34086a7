"""Nested containers of tensors, as arguments and results: which classes are nodes, and the structure and the leaves of a tree."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

Context = Any


class SequenceKey(NamedTuple):
    """A step of a path: position `idx` of a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, parent: Any) -> Any:
        """The child that the step leads to."""
        return parent[self.idx]


class MappingKey(NamedTuple):
    """A step of a path: the entry `key` of a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, parent: Any) -> Any:
        """The child that the step leads to."""
        return parent[self.key]


class GetAttrKey(NamedTuple):
    """A step of a path: the attribute `name`."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, parent: Any) -> Any:
        """The child that the step leads to."""
        return getattr(parent, self.name)


KeyPath = tuple


class NodeDef(NamedTuple):
    """What is known of one container class."""

    type: type
    flatten_fn: Callable[[Any], tuple[list, Context]]
    unflatten_fn: Callable[[Iterable, Context], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list, Context]] | None


class SerializeNodeDef(NamedTuple):
    """How a container class and its context are written as JSON."""

    typ: type
    serialized_type_name: str | None
    to_dumpable_context: Callable[[Context], Any] | None
    from_dumpable_context: Callable[[Any], Context] | None


SUPPORTED_NODES: dict[type, NodeDef] = {}
SUPPORTED_SERIALIZED_TYPES: dict[type, SerializeNodeDef] = {}
SERIALIZED_TYPE_TO_PYTHON_TYPE: dict[str, type] = {}
CONSTANT_NODES: set[type] = set()


def _register(cls: type, flatten_fn: Callable, unflatten_fn: Callable, flatten_with_keys_fn: Callable | None = None,
              name: str | None = None, dump: Callable | None = None, load: Callable | None = None) -> None:
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    SUPPORTED_SERIALIZED_TYPES[cls] = SerializeNodeDef(cls, name, dump, load)
    if name is not None:
        SERIALIZED_TYPE_TO_PYTHON_TYPE[name] = cls


# -- the containers that are known from the start -------------------------------------------------------
def _known(cls: Any, name: str, flatten: Callable, unflatten: Callable, keys: Callable[[Any], Iterable]) -> None:
    """Enter a container; `keys(node)` are the steps to its children."""
    def with_keys(x: Any) -> tuple[list, Context]:
        children, context = flatten(x)
        return list(zip(keys(x), children)), context

    _register(cls, flatten, unflatten, with_keys, name)


def _plain_list(x: Iterable) -> tuple[list, Context]:
    return list(x), None


def _dict_flatten(d: dict) -> tuple[list, Context]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Iterable, context: Context) -> dict:
    return dict(zip(context, values))


def _indices(x: Any) -> Iterable[SequenceKey]:
    return map(SequenceKey, range(len(x)))


def _entries(d: dict) -> Iterable[MappingKey]:
    return map(MappingKey, d)


def _list_unflatten(values: Iterable, context: Context) -> list:
    return list(values)


_known(tuple, "builtins.tuple", _plain_list, lambda c, _: tuple(c), _indices)
_known(list, "builtins.list", _plain_list, lambda c, _: list(c), _indices)
_known(dict, "builtins.dict", _dict_flatten, _dict_unflatten, _entries)
_known(namedtuple, "collections.namedtuple", lambda x: (list(x), type(x)), lambda c, kind: kind(*c), lambda x: map(GetAttrKey, x._fields))
_known(OrderedDict, "collections.OrderedDict", _dict_flatten, lambda c, keys: OrderedDict(zip(keys, c)), _entries)
_known(defaultdict, "collections.defaultdict", lambda d: (list(d.values()), [d.default_factory, list(d)]),
       lambda c, context: defaultdict(context[0], zip(context[1], c)), _entries)
_known(deque, "collections.deque", lambda x: (list(x), x.maxlen), lambda c, maxlen: deque(c, maxlen=maxlen), _indices)


def is_namedtuple_class(cls: type) -> bool:
    """Whether `cls` makes named tuples."""
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _node_type(tree: Any) -> Any:
    """The key of SUPPORTED_NODES for `tree`, or its class if it is a leaf."""
    kind = type(tree)
    if kind not in SUPPORTED_NODES and is_namedtuple_class(kind):
        return namedtuple
    return kind


def _is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return (is_leaf is not None and is_leaf(tree)) or _node_type(tree) not in SUPPORTED_NODES


# -- structure ------------------------------------------------------------------------------------------
class TreeSpec:
    """The structure of a tree: the node's type, its context and its children's structures; `type` None is a leaf."""

    __slots__ = ("children_specs", "context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type: Any, context: Context, children_specs: list[TreeSpec]) -> None:
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_children = len(children_specs)
        self.num_nodes = 1 + sum(c.num_nodes for c in children_specs)
        self.num_leaves = 1 if type is None else sum(c.num_leaves for c in children_specs)

    def is_leaf(self) -> bool:
        """Whether this is the structure of a leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The structures of the children."""
        return self.children_specs

    def child(self, index: int) -> TreeSpec:
        """The structure of one child."""
        return self.children_specs[index]

    def unflatten(self, leaves: Iterable) -> Any:
        """The tree of this structure with these leaves."""
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: Any) -> list:
        """The subtrees of `tree` that stand where this structure has leaves; ValueError if it differs above them."""
        if self.type is None:
            return [tree]
        kind = _node_type(tree)
        if kind is not self.type:
            raise ValueError(f"Node type mismatch: expected {self.type}, got {kind}")
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        if kind in (dict, OrderedDict):
            if set(context) != set(self.context):
                raise ValueError(f"Node keys mismatch: expected {self.context}, got {context}")
            children = [tree[key] for key in self.context]
        elif len(children) != self.num_children or context != self.context:
            raise ValueError(f"Node mismatch: expected {self.num_children} children and context {self.context!r}, got "
                             f"{len(children)} and {context!r}")
        return [leaf for spec, child in zip(self.children_specs, children) for leaf in spec.flatten_up_to(child)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.type, self.context, self.children_specs) == (other.type, other.context, other.children_specs)

    def __hash__(self) -> int:
        return hash((self.type, repr(self.context), tuple(self.children_specs)))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        name = getattr(self.type, "__name__", str(self.type))
        return f"TreeSpec({name}, {self.context!r}, [{', '.join(map(repr, self.children_specs))}])"


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, [])


_LEAF = LeafSpec()


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list, TreeSpec]:
    """The leaves in order, and the structure."""
    leaves: list = []
    return leaves, _gather(tree, is_leaf, leaves)


def _gather(node: Any, is_leaf: Callable[[Any], bool] | None, leaves: list) -> TreeSpec:
    """The structure; the leaves are added to `leaves`. (A function within another that calls itself is a cycle, which holds them.)"""
    if _is_leaf(node, is_leaf):
        leaves.append(node)
        return _LEAF
    kind = _node_type(node)
    children, context = SUPPORTED_NODES[kind].flatten_fn(node)
    return TreeSpec(kind, context, [_gather(child, is_leaf, leaves) for child in children])


def tree_unflatten(leaves: Iterable, treespec: TreeSpec) -> Any:
    """The tree of structure `treespec` with these leaves; ValueError when their number differs."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten(leaves, treespec): expected a TreeSpec, got {type(treespec).__name__}")
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten(leaves, treespec): `leaves` has length {len(given)} but the spec refers to a "
                         f"pytree that holds {treespec.num_leaves} items ({treespec}).")
    return _build(treespec, iter(given))


def _build(spec: TreeSpec, leaves: Iterator) -> Any:
    if spec.type is None:
        return next(leaves)
    return SUPPORTED_NODES[spec.type].unflatten_fn([_build(child, leaves) for child in spec.children_specs], spec.context)


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: Callable[[Any], bool] | None = None) -> list | None:
    """`tree`'s leaves, each repeated for all leaves of `treespec` below its place; None when the structures do not agree."""
    if _is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    kind = _node_type(tree)
    if treespec.type is None or kind is not treespec.type:
        return None
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    found: list = []
    for child, spec in zip(children, treespec.children_specs):
        part = _broadcast_to_and_flatten(child, spec, is_leaf)
        if part is None:
            return None
        found += part
    return found


def map_tree(fn: Callable, tree: Any) -> Any:
    """The tree with `fn(leaf)` at each leaf."""
    leaves, spec = tree_flatten(tree)
    return tree_unflatten([fn(leaf) for leaf in leaves], spec)


Spec = TreeSpec
flatten, unflatten = tree_flatten, tree_unflatten
