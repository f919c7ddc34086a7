"""Tensors in the graph, and sizes that are variables."""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.symbolic import DataDependentSize, SymBool, SymFloat, SymInt
from ...core.tensor import Tensor
from ...ops.asked import plain_of
from .. import policy
from ..break_kinds import graph_break
from ..source import Source
from ..surroundings import MISSING
from .base import NONE, Args, ConstantVariable, IdentityKey, Kwargs, NamedMethod, Variable
from .dicts import DictVariable
from .hooks import register_hook, set_data, set_requires_grad
from .sequences import ListVariable, SequenceVariable, SliceVariable

if TYPE_CHECKING:
    from ...fx import Node
    from ..replacement import Writer
    from ..trace import Trace

FACTS = frozenset(
    {
        "dtype", "device", "layout", "ndim", "shape", "requires_grad", "is_cuda", "is_cpu", "is_meta", "is_sparse",
        "itemsize", "nbytes", "is_quantized", "is_mkldnn", "is_mps", "is_nested", "is_xpu", "is_complex", "names",
    }
)  # fmt: skip
"""Attributes that follow from shape, dtype and device."""

FACT_METHODS = frozenset(
    {
        "size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "is_contiguous", "element_size",
        "is_floating_point", "is_complex", "is_signed", "get_device", "type", "is_same_size", "__len__",
        "is_conj", "is_neg", "dim_order",
    }
)  # fmt: skip
"""Methods that answer with such facts, so they are computed during capture."""

READS = frozenset({"item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "__complex__",
                   "__dlpack__", "data_ptr", "is_nonzero", "equal", "allclose", "__contains__"})  # fmt: skip
"""Methods that read elements into Python."""

FEW = 16
"""Elements that a tensor has whose list of numbers is symbols."""

RESIZING = frozenset({"resize_", "resize_as_", "set_"})

HOOKS = frozenset({"register_hook", "register_post_accumulate_grad_hook"})

OURS = ("__", "_is_param", "_dynamo_", "_version_")
"""Attributes that a tensor has from us, or Python."""

_HISTORY: dict[str, Callable[[TensorVariable, Trace], Variable | None]] = {
    "is_leaf": lambda x, tx: ConstantVariable(x.is_leaf(tx)),
    "grad_fn": lambda x, tx: NONE if x.is_leaf(tx) else None,
    "_base": lambda x, tx: x.base(tx),
    **dict.fromkeys(("output_nr", "_version", "_grad", "_data"), lambda x, tx: None),
}
"""What a tensor comes from; None where capture doesn't know."""

AUTOGRAD = frozenset({"backward", "register_hook", "retain_grad", "register_post_accumulate_grad_hook"})


class TensorVariable(Variable):
    """A tensor: a node of the graph and the fake tensor that it computes."""

    def __init__(self, node: Node, fake: Any, source: Source | None = None, real: Any = None) -> None:
        self.node, self.fake, self.source, self.real = node, fake, source, real
        self.written: dict[str, Variable] = {}
        """Attributes that the program gave it."""

    def python_type(self) -> type:
        return type(self.real) if self.real is not None else type(self.fake)

    def describe(self) -> str:
        return f"tensor {self.source.words if self.source is not None else self.node.name}"

    def key(self) -> Any:
        return IdentityKey(self)

    def truth(self, tx: Trace) -> bool:
        graph_break("data-dependent branch", f"truth value of {self.describe()}")

    def replaced(self, tx: Trace, *names: str) -> Variable | None:
        """What the program has put into the class under one of these names, or its own class has there, bound; None: ours counts."""
        kind = self.python_type()
        for name in names:
            entry = tx.lookup(kind, name)
            if entry is not MISSING and not policy.is_homemade(entry):
                bound = tx.bind(entry, self, kind)
                if bound is None:
                    graph_break("unknown attribute", f"{self.describe()}.{name}, which is a {type(entry).__name__}")
                return bound
        return None

    def attr(self, tx: Trace, name: str) -> Variable:
        if name in self.written:
            return self.written[name]
        replaced = self.replaced(tx, name)
        if replaced is not None:
            return replaced
        if name == "requires_grad" and self in tx.effects.late_flags:
            return ConstantVariable(tx.effects.late_flags[self])
        if name in FACTS:
            return tx.literal(getattr(self.fake, name))
        if name == "data":      # no detach(): writes through it are not counted
            return tx.emit(getattr, [self, ConstantVariable(name)], {})
        if name == "grad":
            return self._grad(tx)
        if name in _HISTORY:
            found = _HISTORY[name](self, tx)
            return found if found is not None else graph_break("unknown attribute", f"{self.describe()}.{name}")
        if name == "__class__":
            return tx.class_variable(self.python_type())
        entry = getattr(type(self.fake), name, None)
        if entry is None and self._given(tx, name):
            assert self.source is not None
            return tx.wrap(self.real.__dict__[name], self.source.dict_item(name))
        if isinstance(entry, property):
            return tx.emit(getattr, [self, ConstantVariable(name)], {})
        if entry is None:
            own = getattr(self.python_type(), name, None)
            if own is None:
                tx.raise_(AttributeError, f"'{self.python_type().__name__}' object has no attribute '{name}'")
            graph_break("unknown attribute", f"{self.describe()}.{name}")
        return TensorMethod(self, name)

    def known_at_entry(self, tx: Trace, what: str, answer: bool) -> bool:
        """`answer`, which nothing that is guarded of every tensor tells: guarded for one that existed before."""
        if self.source is not None:
            tx.guard(f"{{0}}.{what} is {answer}", self.source, about="any")
        return answer

    def is_view(self, tx: Trace) -> bool:
        """Is it a view of another tensor?"""
        return self.known_at_entry(tx, "_is_view()", (self.fake if self.real is None else self.real)._is_view())

    def is_leaf(self, tx: Trace) -> bool:
        """Has it no history?"""
        if not self.fake.requires_grad or self.fake.grad_fn is not None or self.real is None:
            return bool(self.fake.is_leaf)
        return self.known_at_entry(tx, "is_leaf", self.real.is_leaf)

    def base(self, tx: Trace) -> Variable | None:
        """The tensor of the graph that it is a view of, or None."""
        if not self.is_view(tx):
            return NONE
        base = tx._by_fake.get(id(self.fake._base))
        return None if base is None or base.is_view(tx) else base

    def _grad(self, tx: Trace) -> Variable:
        if self.real is None:
            return NONE
        assert self.source is not None
        if self in tx.effects.grads:
            return tx.effects.grads[self]
        return tx.wrap(self.real.grad, self.source.attr("grad"))

    def has_attr(self, tx: Trace, name: str) -> bool:
        return name in self.written or tx.lookup(self.python_type(), name) is not MISSING or self._given(tx, name)

    def _given(self, tx: Trace, name: str) -> bool:
        """Has an existing tensor an attribute that the program gave it?"""
        if self.real is None or self.source is None:
            return False
        found = name in self.real.__dict__
        tx.guard(f"({name!r} in {{0}}.__dict__) is {found}", self.source, about="any")
        return found

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        if name == "grad" and self.source is not None:
            tx.effects.check(self)
            tx.effects.grads[self] = value
            return
        if name == "data":
            return set_data(tx, self, value)
        if name == "requires_grad":
            return set_requires_grad(tx, self, tx.truth(value))
        if hasattr(type(self.fake), name) or name.startswith(OURS):
            graph_break("unknown attribute", f"{self.describe()}.{name} = ...")
        tx.effects.touch(self)
        self.written[name] = value

    def _special(self, tx: Trace, names: Iterable[str], *args: Variable) -> Variable | None:
        """What a special method gives that is the program's own."""
        replaced = self.replaced(tx, *names)
        return None if replaced is None else tx.call(replaced, list(args), {})

    def item(self, tx: Trace, key: Variable) -> Variable:
        own = self._special(tx, ["__getitem__"], key)
        if own is not None:
            return own
        return tx.emit(operator.getitem, [self, tx.as_index(key)], {})

    def set_item(self, tx: Trace, key: Variable, value: Variable) -> None:
        if self._special(tx, ["__setitem__"], key, value) is None:
            tx.emit(operator.setitem, [self, tx.as_index(key), value], {})

    def contains(self, tx: Trace, key: Variable) -> bool:
        graph_break("tensor to Python value", f"{key.describe()} in {self.describe()}")

    def length(self, tx: Trace) -> Variable:
        if not self.fake.ndim:
            tx.raise_(TypeError, "len() of a 0-d tensor")
        return tx.literal(self.fake.shape[0])

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        if not self.fake.ndim:
            tx.raise_(TypeError, "iteration over a 0-d tensor")
        return (self.item(tx, ConstantVariable(i)) for i in range(int(self.fake.shape[0])))

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        replaced = self.replaced(tx, name)
        if replaced is not None:
            return tx.call(replaced, args, kwargs)
        if name == "as_subclass" and len(args) == 1:
            cls = tx.known(args[0])
            return SubclassVariable(self.node, self.fake, cls) if keeps_class(cls) else TensorVariable(self.node, self.fake)
        if name in FACT_METHODS:
            return self._fact(tx, name, args, kwargs)
        if name == "is_inference":
            return ConstantVariable(self.known_at_entry(tx, "is_inference()", self.fake.is_inference()))
        if name == "_is_view":
            return ConstantVariable(self.is_view(tx))
        if name == "item" and not args and not kwargs and (number := tx.read_number(self)) is not None:
            return number
        if name == "tolist" and len(self.fake.shape) == 1 and self.fake.shape[0] <= FEW and tx.may_be_unknown():
            return ListVariable([self.item(tx, ConstantVariable(i)).method(tx, "item", [], {}) for i in range(int(self.fake.shape[0]))])
        if name == "numpy" and not args and not kwargs and (array := tx.array_of(self)) is not None:
            return array
        if name in READS:
            graph_break("tensor to Python value", f"{self.describe()}.{name}()")
        if name in RESIZING:
            graph_break("unknown operation", f"{self.describe()}.{name}(), which changes what memory it has")
        if name in HOOKS and len(args) == 1 and not kwargs:
            return register_hook(tx, self, name, args[0])
        if name in AUTOGRAD:
            graph_break("autograd inside a compiled function", f"{self.describe()}.{name}()")
        if name in SPECIAL:
            return SPECIAL[name](self, tx, *args, **kwargs)
        entry = getattr(type(self.fake), name, None)
        if entry is None:
            return self.attr(tx, name).call(tx, args, kwargs)
        if self.source is None and (view := getattr(entry, "becomes", None)) is not None:
            return tx.turned(self, tx.emit(view, [self, *args], kwargs))
        return tx.emit_method(name, [self, *args], kwargs)

    def _fact(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        if name == "type" and args:
            return tx.emit_method(name, [self, *args], kwargs)
        try:
            plain = [tx.example(arg) for arg in args]
            answer = getattr(self.fake, name)(*plain, **{k: tx.example(v) for k, v in kwargs.items()})
        except (TypeError, IndexError, RuntimeError, ValueError) as error:
            graph_break("operator failed on fake tensors", f"{self.describe()}.{name}(): {error}")
        return tx.literal(answer)

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if op in (operator.is_, operator.is_not) or not _operand(other):
            return None
        own = self._special(tx, tx.special_names(op, reflected), other)
        if own is not None:
            return None if own.is_constant() and own.as_constant() is NotImplemented else own
        return tx.emit(op, [other, self] if reflected else [self, other], {})

    def unary(self, tx: Trace, op: Any) -> Variable:
        return self._special(tx, [f"__{op.__name__.strip('_')}__"]) or tx.emit(op, [self], {})

    def make(self, w: Writer) -> str:
        made = w.output(self)
        if keeps_class(kind := self.python_type()):
            made = w.bind(f"{w.constant(of_class)}({made}, {w.constant(kind)})")
        if self.written:
            w.remember(self, made)
            w.effects_of(self)
        return made

    def replay(self, w: Writer) -> None:
        target = w.value(self)
        for name, value in self.written.items():
            w.effect(f"{target}.{name} = {w.value(value)}")


class SubclassVariable(TensorVariable):
    """A tensor of a class with its own `__torch_function__`: in the graph it is a plain one."""

    def __init__(self, node: Node, fake: Any, cls: type, source: Source | None = None, real: Any = None) -> None:
        super().__init__(node, fake, source, real)
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def _asked(self, tx: Trace, name: str) -> Any:
        return None if tx.classes_off else plain_of(tx.lookup(self.cls, name))

    def attr(self, tx: Trace, name: str) -> Variable:
        asked = self._asked(tx, name)
        if isinstance(asked, types.MethodWrapperType):
            return tx.overridden(asked, [self], {})
        return super().attr(tx, name)

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        asked = self._asked(tx, name)
        if asked is not None:
            return tx.overridden(asked, [self, *args], kwargs)
        return super().method(tx, name, args, kwargs)

    def length(self, tx: Trace) -> Variable:
        asked = self._asked(tx, "__len__")
        return super().length(tx) if asked is None else tx.overridden(asked, [self], {})


def as_plain(tensor: Tensor) -> Tensor:
    """A tensor without its class."""
    return tensor._as_subclass(Tensor)


def keeps_class(kind: type) -> bool:
    """Do results of operators on tensors of a class have this class?"""
    return kind is not Tensor and not getattr(kind, "_plain_torch_function", False)


def of_class(tensor: Tensor, kind: type) -> Tensor:
    """A result of a graph, whose tensors may be plain ones, as a tensor of the class that the program expects."""
    return tensor if type(tensor) is kind else tensor._as_subclass(kind)


def _operand(variable: Variable) -> bool:
    variable = variable.beneath or variable
    if isinstance(variable, (TensorVariable, SymVariable)):
        return True
    return isinstance(variable, ConstantVariable) and isinstance(variable.value, (bool, int, float, complex, str, type(None), np.generic))


def _requires_grad_(self: TensorVariable, tx: Trace, flag: Variable | None = None) -> Variable:
    set_requires_grad(tx, self, flag is None or tx.truth(flag))
    return self


def _hash(self: TensorVariable, tx: Trace) -> Variable:
    graph_break("unknown operation", f"hash of {self.describe()}")


SPECIAL: dict[str, Callable[..., Variable]] = {
    "requires_grad_": _requires_grad_,
    "__getitem__": lambda self, tx, key: self.item(tx, key),
    "__setitem__": lambda self, tx, key, value: self.set_item(tx, key, value) or NONE,
    "__hash__": _hash,
}


class TensorMethod(NamedMethod):
    """A bound method of a tensor."""

    kind: Any = types.MethodType
    owner: TensorVariable

    def attr(self, tx: Trace, name: str) -> Variable:
        return self.owner if name == "__self__" else tx.literal(getattr(getattr(type(self.owner.fake), self.name), name))

    def has_attr(self, tx: Trace, name: str) -> bool:
        return name == "__self__" or hasattr(getattr(type(self.owner.fake), self.name), name)


class SymVariable(Variable):
    """An int, float or bool that depends on sizes of inputs; computing with it stays symbolic, branching guards."""

    changes = True

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value, self.source = value, source

    def python_type(self) -> type:
        return {SymInt: int, SymFloat: float, SymBool: bool}[type(self.value)]

    def describe(self) -> str:
        return f"number {self.source.words}" if self.source is not None else f"size {self.value}"

    def truth(self, tx: Trace) -> bool:
        try:
            return bool(self.value)
        except DataDependentSize as needed:
            if tx.shapes.breaks_allowed and not tx.reads(needed.names):     # the graph gives the tensor whose size it is, and the size
                graph_break("data-dependent branch", f"truth value of {self.describe()}")
            raise

    def key(self) -> Any:
        return self.specialize()

    def specialize(self) -> Any:
        """The example's value; a guard says that it is this one."""
        return self.python_type()(self.value)

    def attr(self, tx: Trace, name: str) -> Variable:
        if name in ("real", "numerator"):
            return self
        return ConstantVariable(self.specialize()).attr(tx, name)

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        number = isinstance(other, SymVariable) or (isinstance(other, ConstantVariable) and isinstance(other.value, (int, float)))
        symbolic = _SYMBOLIC.get(op)
        if number and op in _OF_BITS:
            return tx.fold(op, [other, self] if reflected else [self, other])
        if not number or symbolic is None:
            if op in (operator.eq, operator.ne) or not isinstance(other, (ConstantVariable, SymVariable, SequenceVariable)):
                return None
            return self._binary_of_value(tx, op, other, reflected)
        pair = [other, self] if reflected else [self, other]
        if self._is_beyond_graph(tx, symbolic, *pair):
            return tx.fold(op, pair)
        op, theirs = symbolic, other.value  # type: ignore[attr-defined]
        try:
            return tx.literal(op(theirs, self.value) if reflected else op(self.value, theirs))
        except ZeroDivisionError as error:
            tx.raise_(ZeroDivisionError, *error.args)

    def _binary_of_value(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable:
        """The operation on the value, which is fixed."""
        known = ConstantVariable(self.specialize())
        return tx.binary(op, other, known) if reflected else tx.binary(op, known, other)

    @staticmethod
    def _is_beyond_graph(tx: Trace, op: Any, left: Variable, right: Variable) -> bool:
        """Is this for Python to compute, before the graph: with a float that changes, a comparison of fractions, a float of ints that are no
        sizes, a power that may be no float or too large, a division by what is zero?"""
        parts = [part for part in (left, right) if isinstance(part, SymVariable)]
        if any(type(part) is not SymVariable for part in parts):
            return True
        has_float = any(isinstance(part.value, (float, SymFloat)) for part in (left, right))    # type: ignore[attr-defined]
        if op in _COMPARISONS:
            return has_float
        if (has_float or op is operator.truediv) and tx.numbers_alone(part.value for part in parts):
            return True
        if op is operator.pow:
            power = right.value if isinstance(right, ConstantVariable) else None
            is_root = type(power) is float and power in (0.5, -0.5) and tx.binary(operator.gt, left, ConstantVariable(0)).truth(tx)
            return not is_root and not (type(power) is int and power in (0, 1, 2))
        return op in _DIVISIONS and right in parts and tx.binary(operator.eq, right, ConstantVariable(0)).truth(tx)

    def build(self, w: Writer) -> str:
        return w.size(self.value)


_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_OF_BITS = {getattr(operator, prefix + name) for prefix, name in itertools.product(("", "i"), ("xor", "lshift", "rshift"))} | {
    operator.and_, operator.or_, operator.iand, operator.ior}
_SYMBOLIC = {
    getattr(operator, prefix + name): getattr(operator, name)
    for name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow") for prefix in ("", "i")
} | {op: op for op in _COMPARISONS}
"""Operators that sizes have."""


def operand_of(tx: Trace, variable: Variable, tensor: Callable[[TensorVariable], Any], size: Callable[[Any], Any]) -> Any:
    """An argument of an operator: containers filled with what `tensor` and `size` make of tensors and symbolic sizes, and constants;
    numbers of NumPy as the Python numbers that operators take them for."""
    variable = variable.realize(tx)
    variable = variable.beneath or variable

    def inner(part: Variable) -> Any:
        return operand_of(tx, part, tensor, size)

    if isinstance(variable, TensorVariable) or hasattr(variable, "fake"):
        return tensor(variable)     # type: ignore[arg-type]
    if isinstance(variable, SymVariable):
        return size(variable.value)
    if isinstance(variable, ListVariable):
        return list(map(inner, variable.items))
    if isinstance(variable, SequenceVariable):
        return tuple(map(inner, variable.items))
    if isinstance(variable, SliceVariable):
        return slice(*map(inner, variable.parts))
    if isinstance(variable, DictVariable):
        return {key.as_constant(): inner(value) for key, value in variable.open(tx).values()}
    value = variable.as_constant()
    return value.item() if isinstance(value, np.generic) else value
