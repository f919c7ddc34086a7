"""Trees of containers with anything at the leaves: flatten them, map over them, put them together again (torch.utils._pytree).

A node type is a container class with two functions: `flatten(node) -> (children, context)` and
`unflatten(children, context) -> node`. Lists, tuples, named tuples, dicts (also ordered and default ones), deques and torch's
return types are known; `register_pytree_node` adds others. Everything else, None included, is a leaf.
"""

from __future__ import annotations

import functools
import json
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

# isort: off
from ..func.trees import (   # noqa: F401 - all of it is torch.utils._pytree
    CONSTANT_NODES, SERIALIZED_TYPE_TO_PYTHON_TYPE, SUPPORTED_NODES, SUPPORTED_SERIALIZED_TYPES, Context, GetAttrKey, KeyPath, LeafSpec,
    MappingKey, NodeDef, SequenceKey, SerializeNodeDef, TreeSpec, _LEAF, _broadcast_to_and_flatten, _dict_flatten, _dict_unflatten,
    _indices, _is_leaf, _list_unflatten, _node_type, _plain_list, _register, is_namedtuple_class, tree_flatten, tree_unflatten,
)
from ..ops import return_types
# isort: on

PyTree = Any


def register_pytree_node(cls: type, flatten_fn: Callable, unflatten_fn: Callable, *, serialized_type_name: str | None = None,
                         to_dumpable_context: Callable | None = None, from_dumpable_context: Callable | None = None,
                         flatten_with_keys_fn: Callable | None = None) -> None:
    """Make `cls` a node type.

    `flatten_with_keys_fn(node)` gives `([(key, child), ...], context)` for the functions that tell paths. Raises ValueError when
    `cls` is one already.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _register(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn, serialized_type_name, to_dumpable_context, from_dumpable_context)


_register_pytree_node = register_pytree_node


def _deregister_pytree_node(cls: type) -> None:
    """Make `cls` a leaf again."""
    SUPPORTED_NODES.pop(cls, None)
    found = SUPPORTED_SERIALIZED_TYPES.pop(cls, None)
    if found is not None and found.serialized_type_name is not None:
        SERIALIZED_TYPE_TO_PYTHON_TYPE.pop(found.serialized_type_name, None)
    CONSTANT_NODES.discard(cls)


def register_constant(cls: type) -> None:
    """Make objects of `cls` nodes without children: they are part of the structure, compared with ==."""
    register_pytree_node(cls, lambda x: ([], x), lambda _, x: x, flatten_with_keys_fn=lambda x: ([], x))
    CONSTANT_NODES.add(cls)


def is_constant_class(cls: type) -> bool:
    """Whether `register_constant` was called for `cls`."""
    return cls in CONSTANT_NODES


def register_dataclass(cls: type, *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None,
                       serialized_type_name: str | None = None) -> None:
    """Make a dataclass a node type whose children are its fields."""
    names = field_names or [n for n in getattr(cls, "__dataclass_fields__") if n not in (drop_field_names or ())]  # noqa: B009

    def flatten_with_keys(x: Any) -> tuple[list, Context]:
        return [(GetAttrKey(n), getattr(x, n)) for n in names], None

    register_pytree_node(cls, lambda x: ([getattr(x, n) for n in names], None), lambda values,
                         _: cls(**dict(zip(names, values))), flatten_with_keys_fn=flatten_with_keys,
                         serialized_type_name=serialized_type_name)


# -- lists and named tuples ------------------------------------------------------------------------------
_list_flatten = _plain_list


def _list_flatten_with_keys(x: list) -> tuple[list, Context]:
    return list(zip(_indices(x), x)), None


def is_structseq_instance(obj: Any) -> bool:
    """Whether `obj` is one of C's named tuples, such as time.struct_time."""
    return is_structseq_class(type(obj))


def is_structseq_class(cls: type) -> bool:
    """Whether `cls` is a class of C's named tuples."""
    return issubclass(cls, tuple) and isinstance(getattr(cls, "n_sequence_fields", None), int)


_NAMED_TUPLES: dict[str, type] = {}


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """The name by which structures with this class of named tuples are written and read."""
    _NAMED_TUPLES[serialized_type_name] = cls


def _dump_namedtuple(cls: type) -> str:
    name = next((name for name, known in _NAMED_TUPLES.items() if known is cls), None)
    if name is None and vars(return_types).get(cls.__name__) is cls:
        name = f"torch.return_types.{cls.__name__}"
    if name is None:
        raise NotImplementedError(f"No registered serialization name for {cls} found. Please register it with _register_namedtuple(cls, "
                                  "serialized_type_name=...).")
    return json.dumps(name)


def _load_namedtuple(text: str) -> type:
    name = json.loads(text)
    found = _NAMED_TUPLES.get(name)
    if found is None and name.startswith("torch.return_types."):
        found = vars(return_types).get(name.rpartition(".")[2])
    if found is None or not is_namedtuple_class(found):
        raise NotImplementedError(f"Deserializing the named tuple {name!r} in pytree is not registered.")
    return found


_named: Any = namedtuple    # which stands for all classes of named tuples
SUPPORTED_SERIALIZED_TYPES[_named] = SerializeNodeDef(_named, "collections.namedtuple", _dump_namedtuple, _load_namedtuple)
_dict_flatten_with_keys = SUPPORTED_NODES[dict].flatten_with_keys_fn

BUILTIN_TYPES = frozenset(SUPPORTED_NODES)


def is_namedtuple(obj: Any) -> bool:
    """Whether `obj` is a named tuple, or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


_get_node_type = _node_type


tree_is_leaf = _is_leaf


def treespec_leaf() -> TreeSpec:
    """The structure of a leaf."""
    return _LEAF


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


tree_iter = tree_leaves


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure."""
    return tree_flatten(tree, is_leaf)[1]


# -- mapping --------------------------------------------------------------------------------------------
def tree_map(func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The tree with `func(leaf, *leaves of the other trees)` at each leaf; the others have its structure or more below it."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(other) for other in rests)]
    return tree_unflatten([func(*values) for values in zip(*columns)], spec)


def tree_map_(func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Call `func` on each leaf; the tree itself comes back."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def map_only(type_or_types: Any, /) -> Callable[[Callable], Callable]:
    """Decorate a function of a leaf so that it leaves others than those of these types (or that meet a test) alone."""
    is_test = callable(type_or_types) and not isinstance(type_or_types, type)

    def decorate(func: Callable) -> Callable:
        @functools.wraps(func)
        def wrapped(x: Any) -> Any:
            chosen = type_or_types(x) if is_test else isinstance(x, type_or_types)
            return func(x) if chosen else x

        return wrapped

    return decorate


def tree_map_only(type_or_types: Any, func: Callable, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """`tree_map` of `func` over the leaves of these types; the others stay."""
    return tree_map(map_only(type_or_types)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types: Any, func: Callable, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Call `func` on the leaves of these types; the tree itself comes back."""
    return tree_map_(map_only(type_or_types)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether every leaf meets `pred`."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether some leaf meets `pred`."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether every leaf of these types meets `pred`."""
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether some leaf of these types meets `pred`."""
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))


# -- paths ----------------------------------------------------------------------------------------------
def tree_flatten_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """`[(path, leaf), ...]` and the structure; a path is a tuple of keys that print as Python access."""
    return list(_leaves_below((), tree, is_leaf)), tree_structure(tree, is_leaf)


def _leaves_below(path: tuple, node: Any, is_leaf: Callable[[Any], bool] | None) -> Iterator[tuple[KeyPath, Any]]:
    if _is_leaf(node, is_leaf):
        yield path, node
        return
    kind = _node_type(node)
    with_keys = SUPPORTED_NODES[kind].flatten_with_keys_fn
    if with_keys is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {kind}. Please pass a "
                         "flatten_with_keys_fn argument to register_pytree_node.")
    for key, child in with_keys(node)[0]:
        yield from _leaves_below((*path, key), child, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[KeyPath, Any]]:
    """`[(path, leaf), ...]`."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """`tree_map` with the leaf's path as the first argument."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [[p for p, _ in pairs], [leaf for _, leaf in pairs], *(spec.flatten_up_to(other) for other in rests)]
    return tree_unflatten([func(*values) for values in zip(*columns)], spec)


def keystr(path: KeyPath) -> str:
    """A path as Python access: `['a'][0].x`."""
    return "".join(map(str, path))


def key_get(obj: Any, path: KeyPath) -> Any:
    """What `path` leads to in `obj`."""
    return functools.reduce(lambda parent, key: key.get(parent), path, obj)


# -- structures as text -----------------------------------------------------------------------------------
_PROTOCOL = 1


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A structure as JSON; NotImplementedError for a type registered without `serialized_type_name`."""

    def dump(spec: TreeSpec) -> dict:
        if spec.type is None:
            return {"type": None, "context": None, "children_spec": []}
        known = SUPPORTED_SERIALIZED_TYPES[spec.type]
        if known.serialized_type_name is None:
            raise NotImplementedError(f"No registered serialization name for {spec.type} found. Please register it "
                                      "with a serialized_type_name.")
        context = known.to_dumpable_context(spec.context) if known.to_dumpable_context else json.dumps(spec.context)
        return {"type": known.serialized_type_name, "context": context, "children_spec": [dump(c) for c in spec.children_specs]}

    if protocol not in (None, _PROTOCOL):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")
    return json.dumps([_PROTOCOL, dump(treespec)])


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that `treespec_dumps` wrote."""

    def load(record: dict) -> TreeSpec:
        if record["type"] is None:
            return _LEAF
        kind = SERIALIZED_TYPE_TO_PYTHON_TYPE.get(record["type"])
        if kind is None:
            raise NotImplementedError(f"Deserializing {record['type']!r} in pytree is not registered.")
        known = SUPPORTED_SERIALIZED_TYPES[kind]
        text = record["context"]
        context = known.from_dumpable_context(text) if known.from_dumpable_context else json.loads(text)
        return TreeSpec(kind, context, [load(c) for c in record["children_spec"]])

    protocol, root = json.loads(serialized)
    if protocol != _PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")
    return load(root)
