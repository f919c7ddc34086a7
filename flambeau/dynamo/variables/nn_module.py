"""Instances of nn.Module: parameters, buffers and submodules are found without tracing `__getattr__` and `__call__`."""

from __future__ import annotations

import types
from typing import Any

from ...core.symbolic import hint_of
from ...core.tensor import Tensor, fake
from .. import policy
from ..break_kinds import graph_break
from ..exceptions import RestartTrace
from ..source import constant_source
from ..typed import Trace
from .base import Args, ConstantVariable, Kwargs, NotConstant, Variable
from .objects import ObjectVariable
from .tensor import TensorVariable


def sized(example: Any) -> Any:
    """A fake tensor with plain numbers for its sizes."""
    if not isinstance(example, Tensor):
        return example
    return fake(tuple(map(hint_of, example.shape)), example.dtype, example.device, tuple(map(hint_of, example.stride())))


STATE = ("_parameters", "_buffers", "_modules")
HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip
OWNED = ("flambeau.nn", "torch.nn")


def _is_base_method(function: Any, names: tuple[str, ...]) -> bool:
    """Is this nn.Module's own method, not one that a subclass overrides?"""
    return (
        isinstance(function, types.FunctionType)
        and policy.home_of(function).startswith(OWNED)
        and function.__qualname__ in tuple(f"Module.{name}" for name in names)
    )


class ModuleObjectVariable(ObjectVariable):
    """An existing nn.Module."""

    identity_hash = True

    def find_attr(self, tx: Trace, name: str) -> Variable | None:
        if self.value is not None and name not in self.written and name not in self.value.__dict__:
            found = self._registered(tx, name)
            if found is not None:
                return found
        return super().find_attr(tx, name)

    def _registered(self, tx: Trace, name: str) -> Variable | None:
        """A parameter, buffer or submodule."""
        assert self.source is not None
        for part in STATE:
            entries = self.value.__dict__.get(part, {})
            changed = tx.effects.changed(entries)
            if changed is not None:
                found = changed.lookup(tx, ConstantVariable(name))
                if found is not None:
                    return found
            elif name in entries:
                if name not in self.read:
                    self.read[name] = tx.wrap(entries[name], self.source.field(part).item(name))
                return self.read[name]
        return None

    def has_attr(self, tx: Trace, name: str) -> bool:
        return self.attr_or_none(tx, name) is not None

    def attr_or_none(self, tx: Trace, name: str) -> Variable | None:
        getter = tx.lookup(self.cls, "__getattr__")
        own = isinstance(tx.lookup(self.cls, "__getattribute__"), types.FunctionType)
        if _is_base_method(getter, ("__getattr__",)) and not own and not isinstance(tx.lookup(self.cls, name), property):
            found = self.find_attr(tx, name)
            if found is not None:
                return found
            if self.value is not None and self.source is not None:
                for part in STATE:
                    tx.guard("{1}.isdisjoint({0})", self.source.field(part), constant_source(frozenset((name,))), about="absent")
            return None
        return super().attr_or_none(tx, name)

    def plain_setattr(self, setter: Any, name: str, value: Variable | None) -> bool:
        """A value that isn't registered with the module, under a name that isn't either."""
        if self.value is None or not _is_base_method(setter, ("__setattr__", "__delattr__")):
            return False
        if isinstance(value, (TensorVariable, ModuleObjectVariable)):
            return False
        return not any(name in self.value.__dict__.get(part, ()) for part in STATE)

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        if self.value is not None and "_initialize_hook" in self.value.__dict__ and hasattr(self.cls, "initialize_parameters"):
            self._initialize(tx, args, kwargs)
        entry = tx.lookup(self.cls, "__call__")
        if _is_base_method(entry, ("__call__", "_call_impl", "_wrapped_call_impl")) and self._no_hooks(tx):
            return tx.call(self.attr(tx, "forward"), args, kwargs)
        return super().call(tx, args, kwargs)

    def _initialize(self, tx: Trace, args: Args, kwargs: Kwargs) -> None:
        """A lazy module gets its parameters now, as it would at this call, from what is known of its inputs; then capture starts anew."""
        try:
            known = [sized(tx.example(arg.realize(tx))) for arg in args]
            named = {name: sized(tx.example(value.realize(tx))) for name, value in kwargs.items()}
        except NotConstant:
            graph_break("call of unknown object", f"{self.describe()}, a lazy module, with arguments known only when it runs")
        self.value._infer_parameters(self.value, tuple(known), named)
        raise RestartTrace

    def _no_hooks(self, tx: Trace) -> bool:
        if self.value is None or tx.global_module_hooks():
            return False
        present = [name for name in HOOKS if name in self.value.__dict__]
        assert self.source is not None
        for name in present:
            changed = tx.effects.changed(self.value.__dict__[name])
            if self.value.__dict__[name] if changed is None else changed.truth(tx):
                return False
            if changed is None:
                tx.guard("not {0}", self.source.field(name), reason="hooks", about="length")
        return True
