# mypy: disable-error-code="arg-type,attr-defined"
# A mixin of Trace: `self` is a Trace.
"""`__torch_function__` of subclasses of Tensor, of objects that stand for tensors, and of modes that the program enters.

Which operators a call comes to, and with which arguments, the eager code itself tells: it runs on stand-ins under a mode (`_Redirect`)
that answers each of them with what the program's own `__torch_function__` gives, captured like any function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .. import _C
from ..core import dispatch
from ..core.tensor import Tensor
from ..ops.asked import accesses
from .variables.base import Args, ConstantVariable, Kwargs, Variable
from .variables.builtins import HANDLERS, BuiltinVariable
from .variables.contexts import Scope, ScopeExit
from .variables.dicts import DictVariable
from .variables.objects import ObjectVariable
from .variables.sequences import NamedTupleVariable, SequenceVariable, TupleVariable
from .variables.tensor import SubclassVariable, TensorVariable, keeps_class
from .variables.wrappers import WrapperVariable

ACCESSES: frozenset[Any] = frozenset(accesses().values())
HANDLERS.update({access: lambda tx, x, kind=None, name=name: x.attr(tx, name) for name, access in accesses().items()})

DEFAULT: Any = Tensor.__torch_function__.__func__


def overrides(kind: type) -> bool:
    """Does a class have a `__torch_function__` that is to be asked?"""
    if issubclass(kind, Tensor):
        return keeps_class(kind)
    return getattr(kind, "__torch_function__", None) is not None


class StandIn:
    """Takes the place of a tensor-like object of the program while the eager code is asked what it does."""

    __torch_function__ = classmethod(lambda cls, *args: NotImplemented)

    def __init__(self, variable: Variable) -> None:
        self.variable = variable


class _Redirect(_C.OverrideScope):
    """Answers operators with what the program has for them."""

    operators_only = True
    for_programs = True     # it is told what the program's would be

    def __init__(self, tx: Any) -> None:
        self.tx = tx
        self.known: dict[int, tuple[Any, Variable]] = {}
        self.asked = False

    def inside(self) -> tuple:
        return (*dispatch.state.function_modes, self), dispatch.state.autocast

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.asked = True
        found = self.tx.overridden(func, [self.variable(arg) for arg in args], {k: self.variable(v) for k, v in (kwargs or {}).items()})
        return self.example(found)

    def variable(self, value: Any) -> Variable:
        """What an argument or a result stands for."""
        if id(value) in self.known:
            return self.known[id(value)][1]
        if type(value) in (tuple, list):
            return self.tx.sequence_like(value, [self.variable(item) for item in value])
        return self.tx.literal(value)

    def example(self, variable: Variable) -> Any:
        """What the eager code is given for a variable."""
        variable = variable.realize(self.tx)
        if isinstance(variable, SequenceVariable):
            made: Any = (list if variable.python_type() is list else tuple)(map(self.example, variable.items))
        elif isinstance(variable, SubclassVariable):
            made = variable.fake._as_subclass(Tensor)
        elif isinstance(variable, ObjectVariable):
            made = StandIn(variable)
        elif isinstance(variable, WrapperVariable):
            made = variable.fake
        else:
            return self.tx.example(variable)
        self.known[id(made)] = made, variable
        return made


class Overriding:
    """Mixed into Trace."""

    def start_overriding(self) -> None:
        self.classes_off = 0
        """Blocks that are open in which no class is asked."""
        self.torch_modes: list[Variable] = []
        """Those that the program has entered, innermost last."""

    def is_overridden(self, args: Args, kwargs: Kwargs) -> bool:
        """Does a mode or an argument want to see an operator?"""
        return bool(self.torch_modes or (not self.classes_off and next(self._owners([*args, *kwargs.values()]), None)))

    def _owners(self, args: Args) -> Iterator[type]:
        for arg in args:
            arg = arg.realize(self)
            if isinstance(arg, SequenceVariable) and arg.python_type() in (tuple, list):
                yield from self._owners(arg.items)
            elif isinstance(arg, SubclassVariable) or (isinstance(arg, ObjectVariable) and overrides(arg.cls)) or (
                    isinstance(arg, WrapperVariable) and arg.overrides()):
                yield arg.python_type()

    def redirected(self, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Variable | None:
        """What a call of eager code gives where operators are overridden; None if it comes to none."""
        redirect = _Redirect(self)
        examples = [redirect.example(arg) for arg in args]
        named = {name: redirect.example(value) for name, value in kwargs.items()}
        with redirect:
            answer = function(*examples, **named)
        return redirect.variable(answer) if redirect.asked else None

    def in_python(self, asked: Callable, args: Args, kwargs: Kwargs) -> Variable:
        """`has_torch_function(args)` and `handle_torch_function(function, args, ...)` of a function that is written in Python."""
        if asked.__name__ == "has_torch_function":
            return ConstantVariable(self.is_overridden(args, kwargs))
        return self.overridden(self.known(args[0]), args[2:], kwargs)

    def overridden(self, function: Any, args: Args, kwargs: Kwargs) -> Variable:
        """An operator, as modes and classes have it."""
        operator = BuiltinVariable(function) if function in ACCESSES else self.literal(function)
        if self.torch_modes:
            given = [operator, TupleVariable([]), TupleVariable(args), self._named(kwargs)]
            modes, self.torch_modes = self.torch_modes, self.torch_modes[:-1]
            try:
                return self.call(self.attr(modes[-1], "__torch_function__"), given, {})
            finally:
                self.torch_modes = modes
        kinds: list[type] = []
        for kind in self._owners([*args, *kwargs.values()]) if not self.classes_off else ():
            if kind not in kinds:
                kinds.insert(next((i for i, other in enumerate(kinds) if issubclass(kind, other)), len(kinds)), kind)
        if not kinds:
            return self.call(operator, args, kwargs)
        types = TupleVariable(list(map(self.class_variable, kinds)))
        for kind in kinds:
            method = self.attr(self.class_variable(kind), "__torch_function__")
            answer = self.call(method, [operator, types, TupleVariable(args), self._named(kwargs)], {})
            if not (answer.is_constant() and answer.as_constant() is NotImplemented):
                return answer
        return self.raise_(TypeError, f"no implementation found for '{function.__name__}' on types that implement "
                           f"__torch_function__: [{', '.join(kind.__name__ for kind in kinds)}]")

    def enter_mode(self, mode: Variable) -> tuple[Variable, Variable]:
        """`with mode:`."""
        return ModeScope(mode).enter_scope(self)

    def _named(self, kwargs: Kwargs) -> Variable:
        return self.make_dict({ConstantVariable(name): value for name, value in kwargs.items()})

    def default_torch_function(self, owner: Variable, function: Variable, types: Variable, args: Variable | None = None,
                               kwargs: Variable | None = None) -> Variable:  # fmt: skip
        """`Tensor.__torch_function__`: the operator as if no class overrode it, and results of this class."""
        cls = self.known(owner)
        if not all(issubclass(cls, self.known(kind)) for kind in self.iterate(types)):
            return ConstantVariable(NotImplemented)
        given = {} if not isinstance(kwargs, DictVariable) else {key.as_constant(): value for key, value in kwargs.open(self).values()}
        self.classes_off += 1
        try:
            result = self.call(function, list(self.iterate(args)) if args is not None else [], given)
        finally:
            self.classes_off -= 1
        return self.of_class(result, cls) if keeps_class(cls) else result

    def of_class(self, variable: Variable, cls: type) -> Variable:
        """Tensors as instances of a class."""
        variable = variable.realize(self)
        if isinstance(variable, SequenceVariable):
            items = [self.of_class(item, cls) for item in variable.items]
            if isinstance(variable, NamedTupleVariable):
                return NamedTupleVariable(items, variable.kind)
            return type(variable)(items) if variable.python_type() in (tuple, list) else variable
        if not isinstance(variable, TensorVariable) or issubclass(variable.python_type(), cls):
            return variable
        return SubclassVariable(variable.node, variable.fake, cls)


class ModeScope(Scope):
    """A `TorchFunctionMode` of the program, entered."""

    def __init__(self, mode: Variable) -> None:
        self.mode = mode

    def enter_scope(self, tx: Any) -> tuple[Variable, Variable]:
        self.entered += 1
        tx.torch_modes = [*tx.torch_modes, self.mode]
        return ScopeExit(self), self.mode

    def leave(self, tx: Any) -> None:
        self.entered -= 1
        tx.torch_modes = tx.torch_modes[:-1]

    def make(self, w: Any) -> str:
        return self.entered_in(w, w.value(self.mode))


class ClassesOffScope(Scope):
    """`DisableTorchFunctionSubclass()`."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def enter_scope(self, tx: Any) -> tuple[Variable, Variable]:
        self.entered += 1
        tx.classes_off += 1
        return ScopeExit(self), self

    def leave(self, tx: Any) -> None:
        self.entered -= 1
        tx.classes_off -= 1

    def make(self, w: Any) -> str:
        return self.entered_in(w, w.bind(f"{w.constant(self.kind)}()"))
