"""Passes over modules as objects."""

from __future__ import annotations

import abc
from typing import NamedTuple

from flambeau.fx.graph_module import GraphModule


class PassResult(NamedTuple):
    """What a pass made, and whether it changed anything."""

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """A pass: `requires` before it, `call`, `ensures` after it."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Run it."""
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """What it does."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027 - a pass need not
        """Raises if the module is none for this pass."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raises if the pass went wrong."""


__all__ = ["PassBase", "PassResult"]
