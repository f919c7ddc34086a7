"""Graphs whose calls say their arguments by name, and whose operators are Python's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Transformer
from flambeau.fx.node import Target
from flambeau.fx.operator_schemas import ArgsKwargsPair, normalize_function, normalize_module
from flambeau.fx.proxy import Proxy

_PYTHONS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "floor_divide": operator.floordiv,
            "remainder": operator.mod, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
            "ge": operator.ge}  # fmt: skip


class NormalizeArgs(Transformer):
    """`NormalizeArgs(gm).transform()`: calls of functions and modules with all arguments by name, defaults included; what has no signature
    stays as it is."""

    def __init__(self, module: GraphModule, normalize_to_only_use_kwargs: bool = True) -> None:
        super().__init__(module)
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs

    def call_function(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The call of a function."""
        found = normalize_function(target, args, kwargs, normalize_to_only_use_kwargs=self.normalize_to_only_use_kwargs)  # type: ignore[arg-type]
        return super().call_function(target, *(found or ArgsKwargsPair(args, kwargs)))

    def call_module(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The call of a submodule."""
        found = normalize_module(self.module, str(target), args, kwargs, self.normalize_to_only_use_kwargs)
        return super().call_module(target, *(found or ArgsKwargsPair(args, kwargs)))


class NormalizeOperators(Transformer):
    """`NormalizeOperators(gm).transform()`: `torch.add(x, y)` as `x + y`, and so on, where two operands are all that is given."""

    binary_magic_method_remap: dict[str, Callable] = _PYTHONS

    def call_function(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The call of a function."""
        name = getattr(getattr(target, "_operator", None), "name", "")
        python = self.binary_magic_method_remap.get(name)
        if python is None or len(args) != 2 or kwargs or not isinstance(args[0], Proxy):
            return super().call_function(target, args, kwargs)
        return super().call_function(python, args, {})


__all__ = ["NormalizeArgs", "NormalizeOperators"]
