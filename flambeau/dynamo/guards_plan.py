"""What a guard reads, as the plan by which `_C.Unchanged` tells whether it would read the same again.

A plan is a tree of *nodes*: instances, dicts, lists, tuples and functions, each reached from an argument, a constant or another
node. Guards that depend on nothing but what the tree holds are asked again only after something in it was written to.
"""

from __future__ import annotations

import collections
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._C import TensorSpec
from ..core.device import device
from ..core.dtypes import dtype
from ..core.memory_format import layout, memory_format
from ..core.tensor import Tensor

if TYPE_CHECKING:
    from .guards import Guard
    from .source import Source

_VALUES = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range, dtype, device, layout,
           memory_format, types.CodeType, np.generic)  # fmt: skip
"""Types (exactly these, or NumPy's numbers) whose objects never change."""


class Unplanned(Exception):
    """A source or guard that the plan can't hold."""


@dataclass(eq=False)
class Node:
    """One object of the tree; `children` as `_C.Unchanged` takes them, with nodes in the place of their numbers."""

    kind: str
    root: int | None = None
    constant: tuple[Any, ...] = ()
    whole: bool = False
    children: dict[Any, Any] = field(default_factory=dict)


class GuardPlan:
    """Grows by guards and tensors; `nodes()` is what `_C.Unchanged` takes and `roots` the names of its arguments."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.roots: list[str] = []
        self._tops: dict[Any, Node] = {}
        self._tensors: dict[tuple[int, Any], Source] = {}
        # Of each source what everything that is read from it asks for:
        self._values: dict[Source, Any] = {}
        self._reads: dict[Source, tuple[Source, Any]] = {}
        self._checked: set[Source] = set()
        self._nodes: dict[Source, Node] = {}

    def _ordered(self) -> list[Node]:
        """Parents before children."""
        ordered = list(self._tops.values())
        for node in ordered:  # grows while we go
            ordered += [child for child in node.children.values() if isinstance(child, Node)]
        return ordered

    def numbers(self) -> dict[Source, int]:
        """Which of the tree's tensors a source is."""
        places = [(id(node), key) for node in self._ordered() for key in node.children]
        return {self._tensors[place]: i for i, place in enumerate(place for place in places if place in self._tensors)}

    def nodes(self) -> tuple[Any, ...]:
        """The tree as tuples."""
        ordered = self._ordered()
        number = {id(node): i for i, node in enumerate(ordered)}
        return tuple(
            (node.kind, node.root, node.constant, node.whole,
             tuple((key, number.get(id(child), child)) for key, child in node.children.items()))
            for node in ordered
        )  # fmt: skip

    def add_guard(self, guard: Guard) -> bool:
        """Take a guard in; False if it depends on something else."""
        try:
            for apply, *arguments in [_DEMANDS[guard.about](self, guard, source) for source in guard.sources]:
                apply(*arguments)
        except Unplanned:
            return False
        return True

    def add_tensor(self, source: Source, spec: Any) -> bool:
        """Take a tensor in that is to be as `spec` says."""
        try:
            if kind_of(self.value(source)) != "tensor" or not source.bases:
                return False
            self._check(source)
            node, key = self.place(source)
        except Unplanned:
            return False
        if node.children.get(key, False) is not False:
            return False
        node.children[key] = spec
        self._tensors[id(node), key] = source
        return True

    # -- where a source lies ------------------------------------------------------------------------------------------------
    def value(self, source: Source) -> Any:
        """What the source was during capture."""
        if source.is_constant:
            return source.constant
        if not source.bases:
            return self.arguments[source.template]
        if source not in self._values:
            self._values[source] = self._find(source)
        return self._values[source]

    def _find(self, source: Source) -> Any:
        owner, key = self._read(source)
        value = self.value(owner)
        try:
            match source.step[0]:
                case "entry":
                    return object.__getattribute__(value, "__dict__")[key]
                case "item":
                    return value[key] if type(value) is not collections.OrderedDict else dict.__getitem__(value, key)
                case "class":
                    return _lookup(value, key)
                case "code":
                    return value.__code__
                case "default":
                    return value.__defaults__[key // 2]
                case _:
                    return value.__closure__[key // 2].cell_contents
        except (LookupError, ValueError, TypeError, AttributeError):
            raise Unplanned from None

    def _read(self, source: Source) -> tuple[Source, Any]:
        """The source of the object that this one is read from, and the key; checks that it is such an object."""
        known = self._reads.get(source)
        if known is None:
            known = self._reads[source] = self._read_anew(source)
        return known

    def _read_anew(self, source: Source) -> tuple[Source, Any]:
        step, key = source.step
        base = source.bases[0]
        if step == "contents" and base.bases:
            (step, key), base = base.step, base.bases[0]
        kind = kind_of(self.value(base)) if step in _READS else ""
        if kind not in _READS.get(step, ()) or not (type(key) is str or (type(key) is int and key >= 0) or step == "code"):
            raise Unplanned
        if kind == "function":
            key = -1 if step == "code" else 2 * key + (step == "default")
        elif kind == "sequence" and type(key) is not int:
            raise Unplanned
        return base, key

    def place(self, source: Source) -> tuple[Node, Any]:
        """The node that holds a source, and under which key."""
        owner, key = self._read(source)
        return self.node(owner), key

    def node(self, source: Source) -> Node:
        """The node of a source, made when it isn't there yet."""
        known = self._nodes.get(source)
        if known is None:
            known = self._nodes[source] = self._node_anew(source)
        return known

    def _node_anew(self, source: Source) -> Node:
        kind = kind_of(self.value(source))
        if kind not in _NODES:
            raise Unplanned
        if source.is_constant or not source.bases:
            top = id(source.constant) if source.is_constant else source.template
            if top not in self._tops:
                constant = (source.constant,) if source.is_constant else ()
                self._tops[top] = Node(kind, None if source.is_constant else len(self.roots), constant)
                if not source.is_constant:
                    self.roots.append(source.template)
            return self._tops[top]
        parent, key = self.place(source)
        known = parent.children.get(key, False)
        if not isinstance(known, Node):
            if known is not False:
                raise Unplanned
            known = parent.children[key] = Node(kind)
        return known

    # -- what guards ask for ------------------------------------------------------------------------------------------------
    def _same_object(self, guard: Guard, source: Source) -> tuple[Any, ...]:
        if source.is_constant:
            return (bool,)
        if source.step[0] != "type":
            self._check(source)
            return self._borrow, source
        base = source.bases[0]
        if kind_of(self.value(base)) == "value":
            return self._same_value(guard, base)
        if kind_of(self.value(base)) not in _NODES:
            raise Unplanned
        self._check(base)
        return self.node, base

    def _same_value(self, guard: Guard, source: Source) -> tuple[Any, ...]:
        if source.is_constant:
            return (bool,)
        if kind_of(self.value(source)) != "value" or not source.bases:
            raise Unplanned
        self._check(source)
        return self._hold, source

    def _same_keys(self, guard: Guard, source: Source) -> tuple[Any, ...]:
        if source is not guard.sources[0]:
            return (bool,)
        if type(self.value(source)) is not dict:  # an OrderedDict can get another order without being written to
            raise Unplanned
        self._check(source)
        return self._all_keys, source

    def _same_length(self, guard: Guard, source: Source) -> tuple[Any, ...]:
        if kind_of(self.value(source)) not in ("sequence", "dict"):
            raise Unplanned
        self._check(source)
        return (self._all_keys if kind_of(self.value(source)) == "dict" else self.node), source

    def _absent(self, guard: Guard, source: Source) -> tuple[Any, ...]:
        if source is not guard.sources[0]:
            return (bool,)
        names = guard.sources[1].constant
        if kind_of(self.value(source)) not in ("object", "dict") or not all(type(name) in (str, int) for name in names):
            raise Unplanned
        self._check(source)
        return self._without, source, names

    def _nothing(self, guard: Guard, source: Source) -> tuple[Any, ...]:
        raise Unplanned

    def _check(self, source: Source) -> None:
        """Raises Unplanned for what can't be placed, without making nodes."""
        if source in self._checked:
            return
        if source.bases and not source.is_constant:
            self._check(self._read(source)[0])
        elif not source.is_constant and kind_of(self.value(source)) not in ("object", "function"):
            raise Unplanned
        self._checked.add(source)

    def _borrow(self, source: Source) -> None:
        if source.bases:
            node, key = self.place(source)
            goal = node.children.setdefault(key, False)
            if isinstance(goal, TensorSpec):
                node.children[key] = (goal,)
        else:
            self.node(source)

    def _hold(self, source: Source) -> None:
        node, key = self.place(source)
        node.children[key] = True

    def _all_keys(self, source: Source) -> None:
        self.node(source).whole = True

    def _without(self, source: Source, names: frozenset[Any]) -> None:
        self.node(source).children.update(dict.fromkeys(names))


_NODES = ("object", "dict", "sequence", "function", "type")
_READS = {
    "entry": ("object",), "item": ("dict", "sequence"), "class": ("type",), "cell": ("function",), "code": ("function",),
    "default": ("function",),
}  # fmt: skip
"""The kinds of objects that a step reads from."""

_DEMANDS: dict[str, Any] = {
    "value": GuardPlan._same_value, "identity": GuardPlan._same_object, "distinct": GuardPlan._same_object, "keys": GuardPlan._same_keys,
    "length": GuardPlan._same_length, "absent": GuardPlan._absent, "any": GuardPlan._nothing,
}  # fmt: skip


def kind_of(value: Any) -> str:
    """What a plan can do with an object: look into it, compare its value, its identity, or nothing."""
    cls = type(value)
    if cls in _VALUES or isinstance(value, np.generic):
        return "value"
    if cls in (tuple, list):
        return "value" if cls is tuple and all(kind_of(item) == "value" for item in value) else "sequence"
    if cls in (dict, collections.OrderedDict):
        return "dict"
    if isinstance(value, Tensor):
        return "tensor"
    if cls is types.FunctionType:
        return "function"
    if isinstance(value, type):
        return "type" if cls is type else "other"
    if isinstance(value, (dict, list, tuple)):
        return "other"
    return "object" if isinstance(_lookup(cls, "__dict__", None), types.GetSetDescriptorType) else "other"


def _lookup(cls: type, name: str, *default: Any) -> Any:
    """What a class or the first of its bases that has the name has there."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    if default:
        return default[0]
    raise AttributeError(name)
