"""Operators that libraries ship as binaries for PyTorch's C++ classes, written here in Python.

`torch.ops.load_library` of such a file imports the module that stands for it (the table `ops.custom.EXTENSIONS`), which defines the
operators of the library's namespace: kernels over Flambeau's own operators, for every device, with their gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..library import Library, register_autograd, register_fake
from ..ops.custom import NAMESPACES, CustomOperator


class Extension:
    """The operators of one namespace, each defined once in a process."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.library = Library(namespace, "FRAGMENT")

    def operator(self, schema: str, shape: Callable | None = None) -> Callable[[Callable], CustomOperator]:
        """Make a function that computes it the operator of `schema`; `shape` gives its results on tensors without data."""
        def define(kernel: Callable) -> CustomOperator:
            name = self.library.define(schema)
            self.library.impl(name, kernel, "CompositeExplicitAutograd")
            if shape is not None:
                register_fake(f"{self.namespace}::{name}", shape)
            made: CustomOperator = getattr(NAMESPACES[self.namespace], name)
            made.__doc__ = kernel.__doc__
            return made

        return define

    def gradient(self, name: str, backward: Callable, keep: Callable) -> None:
        """`backward(ctx, *grads)` is an operator's gradient, of what `keep(ctx, inputs, output)` put down."""
        register_autograd(f"{self.namespace}::{name}", backward, setup_context=keep)

    def refused(self, schema: str, instead: str) -> None:
        """An operator that is there by name: calling it raises NotImplementedError."""
        def kernel(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"{self.namespace}::{schema.partition('(')[0]} is not implemented: {instead}")

        self.operator(schema)(kernel)

    def constants(self, **values: Any) -> None:
        """Operators without arguments, and what they answer."""
        for name, value in values.items():
            self.library.define(f"{name}() -> int")
            self.library.impl(name, lambda value=value: value, "CompositeExplicitAutograd")
