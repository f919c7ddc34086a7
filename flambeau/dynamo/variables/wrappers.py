"""Tensors of classes with `__torch_dispatch__`: capture goes through them to the tensors that they hold.

`__tensor_flatten__` tells which these are; they are inputs of the graph. An operator on such a tensor runs during capture, on one that
holds fake tensors: what its class does with them, operator by operator, goes into the graph (`Below`), and the class is gone from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from ... import _C
from ...core import dispatch
from ...core.size import contiguous_strides, is_contiguous
from ...core.symbolic import hint_of
from ...core.tensor import Tensor
from ...ops.wrappers import answer, wrapping
from ...ops.writing import copy_into
from .. import policy
from ..break_kinds import describe, graph_break
from ..exceptions import RunEagerly
from ..source import Source, constant_source
from ..surroundings import MISSING
from ..typed import Trace, Writer
from .base import Args, ConstantVariable, Kwargs, NamedMethod, Variable
from .builtins import HANDLERS
from .sequences import SequenceVariable
from .tensor import AUTOGRAD, FACT_METHODS, FACTS, HOOKS, TensorVariable

HISTORY = frozenset({"grad", "grad_fn", "is_leaf", "output_nr", "_base", "_version", "data"})
"""Attributes that autograd tells."""


class WrapperVariable(Variable):
    """A tensor whose class answers operators; `fake` is one like it that holds fake tensors of the graph."""

    def __init__(self, fake: Tensor, source: Source | None = None, real: Any = None) -> None:
        self.fake, self.source, self.real = fake, source, real

    def python_type(self) -> type:
        return type(self.fake)

    def describe(self) -> str:
        return f"{type(self.fake).__name__} {self.source.words if self.source is not None else 'made here'}"

    def overrides(self) -> bool:
        """Has its class a `__torch_function__` of its own as well?"""
        return not policy.is_homemade(inspect.getattr_static(type(self.fake), "__torch_function__"))

    def truth(self, tx: Trace) -> bool:
        graph_break("data-dependent branch", f"truth value of {self.describe()}")

    def attr(self, tx: Trace, name: str) -> Variable:
        kind = self.python_type()
        entry = tx.lookup(kind, name)
        own = entry is not MISSING and not policy.is_homemade(entry)
        if own and (bound := tx.bind(entry, self, kind)) is not None:
            return bound
        if name in self.fake.__dict__:
            return self._held(tx, name)
        if name == "__class__":
            return tx.class_variable(kind)
        if name in FACTS:
            return tx.literal(getattr(self.fake, name))
        if name in HISTORY:
            graph_break("autograd inside a compiled function", f"{self.describe()}.{name}")
        if entry is MISSING:
            tx.raise_(AttributeError, f"'{kind.__name__}' object has no attribute '{name}'")
        if isinstance(entry, property):
            return tx.emit(getattr, [self, ConstantVariable(name)], {})
        if not callable(entry):
            graph_break("unknown attribute", f"{self.describe()}.{name}")
        return NamedMethod(self, name)

    def _held(self, tx: Trace, name: str) -> Variable:
        value = self.fake.__dict__[name]
        if isinstance(value, Tensor):
            return tx.literal(value)
        if self.source is not None:
            return tx.wrap(self.real.__dict__[name], self.source.dict_item(name))
        return tx.wrap(value, constant_source(value))

    def has_attr(self, tx: Trace, name: str) -> bool:
        return name in self.fake.__dict__ or tx.lookup(self.python_type(), name) is not MISSING

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        graph_break("unknown attribute", f"{self.describe()}.{name} = ...")

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        entry = tx.lookup(self.python_type(), name)
        if entry is MISSING or not policy.is_homemade(entry):
            return tx.call(self.attr(tx, name), args, kwargs)
        if name in AUTOGRAD or name in HOOKS or name == "requires_grad_":
            graph_break("autograd inside a compiled function", f"{self.describe()}.{name}()")
        if name in FACT_METHODS:
            return tx.literal(getattr(self.fake, name)(*map(tx.example, args), **{k: tx.example(v) for k, v in kwargs.items()}))
        return tx.emit_method(name, [self, *args], kwargs)

    def item(self, tx: Trace, key: Variable) -> Variable:
        return tx.emit_method("__getitem__", [self, key], {})

    def set_item(self, tx: Trace, key: Variable, value: Variable) -> None:
        tx.emit_method("__setitem__", [self, key, value], {})

    def length(self, tx: Trace) -> Variable:
        return tx.literal(self.fake.shape[0])

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        return (self.item(tx, ConstantVariable(i)) for i in range(int(self.fake.shape[0])))

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if not isinstance(other, (TensorVariable, WrapperVariable)) and not other.is_constant():
            return None
        return tx.emit(op, [other, self] if reflected else [self, other], {})

    def unary(self, tx: Trace, op: Any) -> Variable:
        return tx.emit(op, [self], {})

    def build(self, w: Writer) -> str:
        if self.source is not None:
            return w.fetch(self.source)
        if not hasattr(self.fake, "__tensor_flatten__") or not hasattr(self.fake, "__tensor_unflatten__"):
            graph_break("value can't be rebuilt", f"a {type(self.fake).__name__}, which has no __tensor_flatten__")
        names, context = self.fake.__tensor_flatten__()
        parts = ", ".join(f"{name!r}: {w.value(w.trace.literal(getattr(self.fake, name)))}" for name in names)
        shape, strides = (", ".join(map(w.size, part)) for part in (self.fake.shape, self.fake.stride()))
        given = f"{w.constant(type(self.fake))}, {{{parts}}}, {w.constant(context)}, {_tuple(shape)}, {_tuple(strides)}"
        return w.bind(f"{w.constant(unflattened)}({given})")


@_C.undisturbed
def unflattened(kind: Any, parts: dict[str, Tensor], context: Any, shape: tuple, strides: tuple) -> Tensor:
    """Such a tensor of its parts."""
    return kind.__tensor_unflatten__(parts, context, shape, strides)


def _tuple(items: str) -> str:
    return f"({items},)" if items else "()"


class Below:
    """The mode under which operators on such tensors run: it puts into the graph what they come to."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx

    def handle(self, prim: Any, args: tuple) -> Any:
        """Called by dispatch for each primitive."""
        if wrapping(args):
            with dispatch.push_mode(self):
                return answer(prim, args)
        if prim is copy_into:
            return self._emit("call_method", "copy_", args, lambda target, value: target.copy_(value))
        return self._emit("call_function", prim, args, lambda *given: prim.run(given))

    def _emit(self, kind: str, target: Any, args: tuple, function: Callable[..., Any]) -> Any:
        return _examples(self.tx, self.tx._emit(kind, target, function, [self.tx.literal(arg) for arg in args], {}))


def _examples(tx: Any, variable: Variable) -> Any:
    if isinstance(variable, SequenceVariable):
        return tuple(_examples(tx, item) for item in variable.items)
    return tx.example(variable)


def holds_wrapper(args: Any) -> bool:
    """Is one of an operator's arguments such a tensor?"""
    return any(isinstance(arg, WrapperVariable) or (isinstance(arg, SequenceVariable) and holds_wrapper(arg.items)) for arg in args)


def run_through(tx: Any, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Variable:
    """A call on such tensors, or of their class: run, with what it comes to in the graph."""
    examples = [tx.example(arg) for arg in args]
    named = {name: tx.example(value) for name, value in kwargs.items()}
    if dispatch.state.grad_enabled and any(isinstance(t, Tensor) and t.requires_grad for t in (*examples, *named.values())):
        graph_break("autograd inside a compiled function", "an operator of a class with __torch_dispatch__ where gradients are recorded")
    with dispatch.push_mode(Below(tx)), dispatch.classes_off() if tx.classes_off else nullcontext():
        answered = function(*examples, **named)
    return tx.literal(answered)


def _of_class(tx: Any, cls: Variable, data: Variable, require_grad: Variable | None = None) -> Variable:
    """`_make_subclass(cls, data)`."""
    kind = tx.known(cls)
    if hasattr(kind, "__torch_dispatch__") or (require_grad is not None and tx.truth(require_grad)):
        graph_break("call of C function", f"_make_subclass({kind.__name__}, ...)")
    return tx.of_class(tx.emit_method("detach", [data], {}), kind)


def _refuse(tx: Any, *args: Variable, **kwargs: Variable) -> Variable:
    graph_break("call of C function", "_make_wrapper_subclass()")


HANDLERS[Tensor._make_subclass] = _of_class
HANDLERS[Tensor._make_wrapper_subclass] = _refuse


def wrap_existing(tx: Any, value: Any, source: Source) -> WrapperVariable:
    """An existing tensor of such a class, whose parts are inputs."""
    try:
        names, context = value.__tensor_flatten__()
    except AttributeError:      # it has no such method, or is being made
        raise RunEagerly(describe("fake tensor", source.words)) from None
    tx.guard_type(source, value)
    tx.guard("{0}.__tensor_flatten__() == {1}", source, constant_source((names, context)), reason="__tensor_flatten__()", about="any")
    tx.guard(f"{{0}}.requires_grad is {value.requires_grad} and {{0}}.dtype is {{1}} and {{0}}.dim() == {value.ndim}", source,
             constant_source(value.dtype), about="any")
    parts = {name: tx.wrap(getattr(value, name), source.attr(name)).realize(tx) for name in names}
    sizes = [_size(tx, value, source, dim, parts) for dim in range(value.ndim)]
    strides: tuple = tuple(value.stride())
    if any(type(size) is not int for size in sizes):
        if not is_contiguous(value.shape, strides):
            graph_break("unknown value", f"a {type(value).__name__} of varying sizes that isn't contiguous")
        strides = contiguous_strides(sizes)
    else:
        tx.guard(f"{{0}}.stride() == {strides}", source, about="any")
    with dispatch.push_mode(Below(tx)):
        fake = type(value).__tensor_unflatten__({name: part.fake for name, part in parts.items()}, context, tuple(sizes), strides)
    fake.requires_grad = value.requires_grad
    return tx.remember(value, WrapperVariable(fake, source, value))


def _size(tx: Any, value: Any, source: Source, dim: int, parts: dict[str, Any]) -> Any:
    """A size of the whole: that of a part, where it varies with this one."""
    size = int(value.shape[dim])
    for name, part in parts.items():
        if part.fake.ndim == value.ndim and type(own := part.fake.shape[dim]) is not int and hint_of(own) == size:
            tx.guard(f"{{0}}.shape[{dim}] == {{0}}.{name}.shape[{dim}]", source, about="any")
            return own
    tx.guard(f"{{0}}.shape[{dim}] == {size}", source, about="any")
    return size
