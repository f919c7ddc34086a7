"""Which nodes a backend takes: predicates, and how they are combined."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flambeau.fx.node import Node
from flambeau.fx.passes.tools_common import get_node_target

IsNodeSupported = Callable[[Mapping[str, Any], Node], bool]


class OperatorSupportBase(abc.ABC):
    """Says of each node whether it is supported."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        """`submodules` are the graph's modules by path."""


class OperatorSupport(OperatorSupportBase):
    """By a table: the target's name (`get_node_target`) -> None, or the dtypes of inputs and keyword inputs that are supported."""

    _support_dict: Mapping[str, Any] = {}

    def __init__(self, support_dict: Mapping[str, Any] | None = None) -> None:
        self._support_dict = support_dict or self._support_dict

    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        """Whether the table has the target, with these dtypes where the node's inputs tell theirs."""
        if node.op not in ("call_function", "call_method", "call_module"):
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        wanted = self._support_dict[target]
        if wanted is None:
            return True
        positional, keyword = wanted
        return all(_fits(a, dtypes) for a, dtypes in zip(node.args, positional)) and all(
            _fits(node.kwargs[name], dtypes) for name, dtypes in keyword.items() if name in node.kwargs)


def _dtype(node: Any) -> Any:
    value = node.meta.get("tensor_meta", node.meta.get("val")) if isinstance(node, Node) else None
    return getattr(value, "dtype", None)


def _fits(argument: Any, dtypes: Sequence[Any]) -> bool:
    return not isinstance(argument, Node) or not dtypes or _dtype(argument) in dtypes


class _Function(OperatorSupportBase):
    def __init__(self, function: IsNodeSupported) -> None:
        self.function = function

    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        return bool(self.function(submodules, node))


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """A function of (submodules, node) as support."""
    return _Function(is_node_supported)


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """What all of them support."""
    return create_op_support(lambda submodules, node: all(one.is_node_supported(submodules, node) for one in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """What one of them supports."""
    return create_op_support(lambda submodules, node: any(one.is_node_supported(submodules, node) for one in op_support))


class OpSupports:
    """Common conditions."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        """No node with an input of this dtype."""
        return create_op_support(lambda submodules, node: all(_dtype(source) is not dtype for source in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """No node of these names."""
        return create_op_support(lambda submodules, node: node.name not in disallow_set)


__all__ = ["OpSupports", "OperatorSupport", "OperatorSupportBase", "any_chain", "chain", "create_op_support"]
