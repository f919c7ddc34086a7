"""One capture: the graph, guards, side effects and symbolic frames of one attempt to compile a frame."""

from __future__ import annotations

import collections
import enum
import inspect
import operator
import re
import types
from collections.abc import Callable, Container
from typing import Any, TypeVar

import numpy as np

from ..autograd.graph import disable_saved_tensors_hooks
from ..core import dispatch
from ..core.size import Size
from ..core.symbolic import SymBool, SymFloat, SymInt, free_variables, to_python
from ..core.tensor import Tensor
from ..func.tape import recording
from ..ops.registry import is_operator
from . import config, policy
from .autograd_functions import apply_function
from .break_kinds import describe, graph_break
from .builder import IMMUTABLE, IMMUTABLE_BY_TEXT, Builder
from .exceptions import RaisedInTrace, RestartTrace, RunEagerly
from .frame import Frame
from .graph_builder import GraphBuilder
from .guards import GuardSet
from .higher_order import call_higher_order, hooked
from .operations import Operations
from .overriding import DEFAULT, ClassesOffScope, Overriding, overrides
from .side_effects import SideEffects
from .source import Source, constant_source, opposite
from .surroundings import Surroundings, setting_at, write_setting
from .variables import copying, toolbox  # noqa: F401 - they register their handlers
from .variables.arrays import DTYPES, ArrayVariable, call_function, takes_arrays, to_tensor
from .variables.autocast import autocast_class, make_autocast
from .variables.base import NONE, Args, ConstantVariable, Kwargs, NotConstant, Variable, is_plain_constant
from .variables.builtins import HANDLERS, PURE, call_modelled
from .variables.contexts import GRAD_SCOPES, GradScope, ProfilerScope, Scope, UnhookedScope, make_scope
from .variables.dicts import DictVariable, SetVariable
from .variables.floats import of_floats
from .variables.functions import FunctionBase, FunctionVariable, MethodVariable
from .variables.generators import GeneratorVariable
from .variables.nn_module import ModuleObjectVariable
from .variables.objects import ObjectVariable
from .variables.sequences import IteratorVariable, ListVariable, NamedTupleVariable, RangeVariable, SizeVariable, SliceVariable, TupleVariable
from .variables.tensor import SymVariable, TensorVariable
from .variables.wrappers import run_through

_GENERATOR = inspect.CO_GENERATOR
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
MAX_DEPTH = 60
_Result = TypeVar("_Result")


def _maker(field: Variable, owner: Variable) -> Callable[..., Any] | None:
    """What makes a field of a parameter's state, if it exists outside of capture: a function or a method of the optimizer."""
    if isinstance(field, MethodVariable) and field.owner is owner:
        function = getattr(field.function, "function", None)
        return function and types.MethodType(function, owner.value)     # type: ignore[attr-defined]
    return getattr(field, "function", None)


class Trace(Builder, GraphBuilder, Operations, Overriding):
    """State of one capture. Variables call back into it as `tx`."""

    def __init__(self, shapes: Any, pinned: set[str], needed: Container[int] = ()) -> None:
        self.needed = needed
        """Which of `births` an earlier attempt found that the program needs the values of."""
        self.shapes = shapes
        """What is known of varying sizes (`dynamic.Shapes`)."""
        self.pinned = pinned
        """Sources of sizes and ints that an earlier attempt found to be fixed by the program."""
        self.surroundings = Surroundings()
        self.lookup = self.surroundings.look_up
        self.guards = GuardSet(self.surroundings)
        self.effects = SideEffects()
        self.frames: list[Frame] = []
        self.absent: dict[Source, set[str]] = {}
        self.modules: set[Source] = set()
        """Where modules were found."""
        self.told_apart: dict[int, Variable] = {}
        """Existing objects that were keys by their identity."""
        self.counts = False
        """Did a counter that existed before give numbers?"""
        self.tells_compiling = False
        """Does the program ask whether it is compiled?"""
        self.has_handlers = False
        """Does any function that was captured handle exceptions?"""
        self.generators: list[GeneratorVariable] = []
        """All that the program has made."""
        self.steps = 0
        self.region: int | None = None
        """Which call of a marked function (`torch.compiler.nested_compile_region`) is captured."""
        self.entry_grad_mode = dispatch.state.recording
        self.start_overriding()
        self.start_graph()

    def release(self) -> None:
        """The end: let go of the program's objects at once, for it may look whether anybody still has them."""
        self.frames.clear()
        self.generators.clear()
        self.told_apart.clear()
        self._by_fake.clear()
        self.effects.release()

    def count_step(self) -> None:
        self.steps += 1
        if self.steps > config.max_trace_steps:
            raise RunEagerly(describe("trace too long", f"{self.steps} instructions"))

    # -- policy -------------------------------------------------------------------------------------------------------------
    def is_stable(self, source: Source) -> bool:
        """Does a function at this source stay the same object (a global or an attribute of a class or module)?"""
        return bool(source.bases) and source.bases[0].is_constant

    def global_module_hooks(self) -> bool:
        """Are there hooks on all modules? Guarded."""
        hooks = policy.global_hooks()
        if hooks is None or hooks.any:
            return True
        self.guard("not {0}", constant_source(hooks).class_attr("any"), reason="hooks on all modules")
        return False

    def may_vary(self, source: Source) -> bool:
        return self.presumed_varying(source) or self.shapes.may_vary(str(source))

    def note_code(self, function: types.FunctionType) -> None:
        """A function that was found by name; tools that load changed files anew give it another code."""
        if not policy.is_trusted(function.__globals__.get("__name__")):
            self.surroundings.note_function(function)

    def note_write(self, owner: Any, key: Any, value: Variable | None) -> None:
        """The program binds a name of an existing class or module. If it is a setting, the operators that come after it are to see it."""
        setting = setting_at(owner, key)
        if setting is None:
            return
        if not setting.traced or value is None or not value.is_constant():
            graph_break("global state", f"a write to {key} of the {setting.name}")
        node = self.graph.call_function(write_setting, (setting.name, key, value.as_constant()))
        node.meta.update(self.origin(), val=None)
        self.surroundings.assign(setting.name, key, value.as_constant())

    # -- sizes --------------------------------------------------------------------------------------------------------------
    def dynamic_dims(self, value: Tensor, source: Source) -> tuple[bool | None, ...]:
        dims = self.shapes.dims(str(source), value)
        if type(value).__name__ == "Parameter":  # each model has its own sizes, which don't vary from call to call
            return tuple(dim or False for dim in dims)
        return tuple(
            False if dim is None and str(source.size(i)) in self.pinned else dim for i, dim in enumerate(dims)
        )

    def newly_pinned(self) -> dict[str, str]:
        """Sizes and ints that were taken as variables though the program allows one value only (a product with a weight), each with the
        line that asks for it."""
        env = self.shape_env
        names = [name for name, value in env.replacements.items() if isinstance(value, int) and name in env.hints]
        why = {name: guard.reason for guard in reversed(env.guards) if guard.relation.op == "=="
               for name in free_variables(guard.relation.left) | free_variables(guard.relation.right)}
        found = {str(self.symbol_source(name, i)): why.get(name, "") for name in names for i in range(len(env.sources[name]))}
        return {source: line for source, line in found.items() if source not in self.pinned}

    def presumed_varying(self, source: Source) -> bool:
        """Is a number here taken to vary before it was seen to: what callers pass, where sizes vary from the start? Globals, defaults and
        what modules hold are not."""
        return self.shapes.from_the_start and not any(
            step.is_constant or step.step[0] == "default" or step in self.modules for step in source.way())

    def dynamic_int(self, value: int, source: Source, presumed: bool = False) -> Variable | None:
        """The variable of an int that varies, or None for one that is taken as a constant."""
        if source.is_constant or not self.shapes.varies(str(source), value, presumed):
            return None
        if abs(value) >> 63 or not self.pinned.isdisjoint((str(source), str(opposite(source)))):
            return None
        variable = self.int_input(value, source)
        exactly = f" and {{0}} == {value}" if isinstance(variable, ConstantVariable) else ""  # a size of 0 or 1
        self.guard("{0}.__class__ is int" + exactly, source, about="value" if exactly else "any")
        return variable

    def number_varies(self, value: float, source: Source, presumed: bool = False) -> bool:
        """Is a number one that changes?"""
        return not source.is_constant and self.shapes.varies(str(source), value, presumed) and not self.is_pinned(source)

    def is_pinned(self, source: Source) -> bool:
        """Has an earlier attempt found that the program needs the value?"""
        return str(source) in self.pinned

    def shape_text(self, value: Any, first: int = 1) -> tuple[str, tuple[Source, ...]]:
        """A symbolic size as a guard template, whose sources are numbered from `first`, and its sources."""
        text = to_python(value.expr)
        sources = []
        for i, name in enumerate(sorted(free_variables(value.expr)), first):
            text = text.replace(name, f"{{{i}}}")
            sources.append(self.symbol_source(name))
        return f"({text})", tuple(sources)

    # -- Python values made during capture ------------------------------------------------------------------------------------
    def literal(self, value: Any) -> Variable:
        """The variable of a value that the program computes during capture."""
        if isinstance(value, Variable):
            return value
        if self.is_immutable(value):
            return ConstantVariable(value)
        make = _LITERALS.get(type(value))
        if make is not None:
            return make(self, value)
        if isinstance(value, Tensor):
            return self.fake_variable(value)
        if isinstance(value, type):
            return self.class_variable(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self.sequence_like(value, [self.literal(v) for v in value])
        if callable(value) or isinstance(value, types.ModuleType):
            return self.trusted(value)
        return ConstantVariable(value)

    @staticmethod
    def is_immutable(value: Any) -> bool:
        """Can a value be folded wherever it comes from?"""
        return is_plain_constant(value) or isinstance(value, IMMUTABLE) or hasattr(type(value), "_flambeau_fact")

    def sequence_like(self, value: Any, items: Args) -> Variable:
        """A sequence of the kind of `value` with other elements."""
        if isinstance(value, Size):
            return SizeVariable(items, Size)
        if isinstance(value, list):
            return ListVariable(items)
        if type(value) is tuple:
            return TupleVariable(items)
        return NamedTupleVariable(items, type(value))

    def object_variable(self, cls: type, container: Variable | None) -> ObjectVariable:
        kind = ModuleObjectVariable if policy.is_nn_module_class(cls) else ObjectVariable
        return kind(cls, None, None, container)

    def construct_known(self, cls: type, args: Args, kwargs: Kwargs) -> Variable | None:
        """Classes with a model of their own: built-in types, scopes, enums, sizes."""
        if cls in GRAD_SCOPES:
            return make_scope(self, cls, [*args, *kwargs.values()])
        if cls in (dispatch.grad_enabled, recording):
            return GradScope(dispatch.grad_enabled, cls is recording or self.truth(args[0]))
        if cls is autocast_class():
            return make_autocast(self, args, kwargs)
        if policy.is_own(cls.__module__) and cls.__name__ == "DisableTorchFunctionSubclass":
            return ClassesOffScope(cls)
        if policy.is_profiler_scope(cls):
            return ProfilerScope(cls, args, kwargs)
        if cls is disable_saved_tensors_hooks:
            return UnhookedScope(cls, args, kwargs)
        handler = HANDLERS.get(cls)
        if handler is not None:
            return call_modelled(self, cls, handler, args, kwargs)
        if cls in PURE or cls in IMMUTABLE_BY_TEXT or issubclass(cls, IMMUTABLE) or issubclass(cls, enum.Enum) or policy.is_fact_class(cls) or (
                getattr(cls, "_flambeau_fact", None) == "value"):
            return self.fold(cls, args, kwargs)
        if issubclass(cls, np.generic):
            return self.numpy_number(cls, args, kwargs)
        if cls is Size:
            return SizeVariable(list(self.iterate(args[0])) if args else [], Size)
        if issubclass(cls, Tensor) and hasattr(cls, "__torch_dispatch__"):
            return run_through(self, cls, args, kwargs)
        if issubclass(cls, Tensor):
            return self._new_tensor(cls, args, kwargs)
        return MethodVariable(args[0], args[1]) if cls is types.MethodType else None

    def _new_tensor(self, cls: type, args: Args, kwargs: Kwargs) -> Variable:
        """A tensor of a program's class, by the class's own `__new__` and `__init__`."""
        new, init = self.lookup(cls, "__new__"), self.lookup(cls, "__init__")
        if policy.is_homemade(new):
            graph_break("call of C function", f"making a {cls.__name__} from Python data or another tensor")
        made = self.call(self.trusted(getattr(new, "__func__", new)), [self.class_variable(cls), *args], kwargs).realize(self)
        if issubclass(made.python_type(), cls) and not policy.is_homemade(init):
            self.call(self.trusted(init), [made, *args], kwargs)
        return made

    # -- calls --------------------------------------------------------------------------------------------------------------
    def call_function(self, function: FunctionVariable, args: Args, kwargs: Kwargs) -> Variable:
        """A call of an existing Python function: into the graph, by a handler, or inlined."""
        real = function.function
        if args and isinstance(args[0], Scope) and real.__name__ in ("__enter__", "__exit__"):
            return args[0].method(self, real.__name__, args[1:], kwargs)
        if function.source is None or function.source.is_constant or function.source.trusted:
            self.note_code(real)
        if real is DEFAULT:
            return self.default_torch_function(*args, **kwargs)
        if policy.is_state(real):
            graph_break("global state", f"{real.__name__}()")
        if is_operator(real):
            return self.call_operator(real, args, kwargs)
        if args and isinstance(args[0], TensorVariable) and getattr(Tensor, name := str(getattr(real, "__name__", "")), None) is real:
            return args[0].method(self, name, args[1:], kwargs)    # torch.as_strided_(x) is x.as_strided_()
        match policy.treatment(real):
            case "graph":
                return self.call_operator(real, args, kwargs)
            case "constant":
                return self._fact(real, args, kwargs)
            case "overriding":
                return self.in_python(real, args, kwargs)
            case "skip":
                graph_break("call of skipped function", f"{real.__module__}.{real.__qualname__}")
            case "autograd":
                graph_break("autograd inside a compiled function", f"{real.__qualname__}()")
            case "compiling":
                return self.compiling()
            case "check":
                return self._checked(function, args, kwargs)
            case "apply":
                return apply_function(self, self.known(args[0]), args[1:], kwargs)
            case "checkpoint":
                return self._checkpointed(args, kwargs)
            case "dispatch":
                return self._dispatched(real, args[0])
            case "higher order":
                return call_higher_order(self, function, args, kwargs)
            case "begin":
                self._begin_states(real, *args)
        return self.inline(function, args, kwargs)

    def _begin_states(self, function: Any, owner: Variable, params: Variable, fields: Variable, *rest: Variable) -> None:
        """An optimizer makes the states of its parameters, which say nothing of a step: that is done now, and capture starts anew with
        states that are there, so that the first step and those after it have one graph. Not where the program has looked at them before."""
        optimizer, begun = getattr(owner, "value", None), self.shapes.begun
        tensors = [getattr(param, "real", None) for param in self.iterate(params)]
        makers = {self.known(key): _maker(self.item(fields, key), owner) for key in self.iterate(fields)}
        if optimizer is None or None in tensors or None in makers.values():
            return
        if id(optimizer) in begun or self.effects.known(optimizer.state) is None:
            begun.add(id(optimizer))
            with dispatch.grad_enabled(False):
                if function(optimizer, tensors, makers, *map(self.known, rest)):
                    raise RestartTrace

    def compiling(self) -> Variable:
        """`is_compiling()`."""
        self.tells_compiling = True
        return ConstantVariable(True)

    def _fact(self, function: Any, args: Args, kwargs: Kwargs) -> Variable:
        """What a function says of known values, and of the dtypes, devices and shapes of tensors."""
        if any(type(arg) is TensorVariable for arg in args):
            return self.literal(self.checked(function, *map(self.example, args), **{k: self.example(v) for k, v in kwargs.items()}))
        return self.fold(function, args, kwargs)

    def hooked(self, owner: TensorVariable, hook: Variable) -> Any:
        """The node of a hook on a tensor of the graph."""
        return hooked(self, owner, hook)

    def array_of(self, tensor: TensorVariable) -> Variable | None:
        """`tensor.numpy()`, or None where that raises or has no model."""
        plain = type(tensor) is TensorVariable and not tensor.fake.requires_grad and tensor.fake.device.type == "cpu"
        return ArrayVariable(tensor) if plain and np.dtype(tensor.fake.dtype.numpy) in DTYPES else None

    def call_numpy(self, function: Any, args: Args, kwargs: Kwargs) -> Variable:
        """A function of NumPy: of arrays in the graph, of known numbers now."""
        if takes_arrays(args, kwargs):
            return call_function(self, function, args, kwargs)
        if not policy.is_numpy_function(function):
            graph_break("call of skipped function", f"numpy.{function.__name__}()")
        return self.numpy_number(function, args, kwargs)

    def numpy_number(self, function: Any, args: Args, kwargs: Kwargs) -> Variable:
        """A function of NumPy on numbers that gives a number; anything else is a graph break."""
        if not kwargs and (found := of_floats(self, function, args)) is not None:
            return found
        try:
            plain = [self.constant_of(arg) for arg in args]
            named = {name: self.constant_of(value) for name, value in kwargs.items()}
        except NotConstant as unknown:
            graph_break("call of skipped function", f"numpy.{function.__name__}() of {unknown.args[0].describe()}")
        result = self.checked(function, *plain, **named)
        if not isinstance(result, np.generic):
            graph_break("call of skipped function", f"numpy.{function.__name__}(), which gives a {type(result).__name__}")
        return ConstantVariable(result)

    def _checked(self, function: FunctionVariable, args: Args, kwargs: Kwargs) -> Variable:
        """`torch._check(condition)`; of a size that is known only when the program runs it is known from here on."""
        condition = args[0].realize(self) if args else ConstantVariable(None)
        if function.function.__name__ == "_check_is_size":
            condition = self.binary(operator.ge, condition, ConstantVariable(0))
        relation = condition.value if isinstance(condition, SymVariable) else None
        if isinstance(relation, SymBool):
            _, left, right = relation.relation
            if self.shape_env.unbacked & (free_variables(left) | free_variables(right)):
                self.check_size(relation)
                return NONE
        return self.inline(function, args, kwargs)

    def _dispatched(self, dispatch: Any, cls: Variable) -> Variable:
        """The function that functools.singledispatch has for a class; others may be registered later."""
        chosen = self.checked(dispatch, self.known(cls))
        sources = map(constant_source, (dispatch, self.known(cls), chosen))
        self.guards.add("{0}({1}) is {2}", *sources, reason="single dispatch", about="any")
        return self.wrap(chosen, constant_source(chosen))

    def _checkpointed(self, args: Args, kwargs: Kwargs) -> Variable:
        """`checkpoint(function, *args)`: the compiler decides itself what is saved and what is computed again."""
        if "context_fn" in kwargs:
            graph_break("autograd inside a compiled function", "checkpoint() with context_fn")
        options = {"use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop"}
        return self.call(args[0], args[1:], {name: value for name, value in kwargs.items() if name not in options})

    def call_operator(self, function: Any, args: Args, kwargs: Kwargs) -> Variable:
        """One node of the graph; tensor-like objects of the program may override it."""
        if args and (tensor := to_tensor(self, function.__name__, args, kwargs)) is not None:
            return tensor
        for arg in [*args, *kwargs.values()]:
            if isinstance(arg, ObjectVariable) and not isinstance(arg, ModuleObjectVariable) and not overrides(arg.cls):
                graph_break("unknown operation", f"{function.__name__}() of {arg.describe()}")
        return self.emit(function, args, kwargs)

    def inline(self, function: FunctionBase, args: Args, kwargs: Kwargs) -> Variable:
        """Interpret the callee here."""
        code = function.code
        if len(self.frames) >= MAX_DEPTH:
            graph_break("recursion", f"{code.co_name} at depth {len(self.frames)}")
        if code.co_flags & _ASYNC:
            graph_break("call of generator", f"{code.co_name} is a coroutine")
        local = function.bind(self, args, kwargs)
        frame = Frame(self, code, function.globals, local, function.closure_cells(self), function)
        if code.co_flags & _GENERATOR:
            return GeneratorVariable(frame).made_by(function, args, kwargs)
        if self.region is None and getattr(function.function, "_flambeau_region", False):
            return self._region(frame)
        return self._inside(frame, frame.run)

    def _region(self, frame: Frame) -> Variable:
        """Interpret a call of a function that is a piece of its own for compilers."""
        self.region = self.calls
        try:
            return self._inside(frame, frame.run)
        finally:
            self.region = None

    def _inside(self, frame: Frame, run: Callable[[], _Result]) -> _Result:
        """Interpret on top of the frames that wait; at a graph break they stay, for its stack."""
        depth = len(self.frames)
        self.frames.append(frame)
        try:
            result = run()
        except RaisedInTrace as error:
            error.stack = error.stack or self.stack()
            del self.frames[depth:]
            raise
        self.frames.pop()
        return result

    def run_generator(self, frame: Frame) -> Variable | None:
        """Let a generator run to its next yield."""
        if len(self.frames) >= MAX_DEPTH or frame in self.frames:
            graph_break("recursion", f"generator {frame.code.co_name}")
        return self._inside(frame, frame.run_to_yield)


def _literal_set(tx: Trace, value: Any) -> Variable:
    items = [tx.literal(item) for item in value]
    return SetVariable({item.key(): item for item in items}, type(value), None, type(value)(value))


def _literal_dict(tx: Trace, value: Any) -> Variable:
    made = DictVariable({}, type(value))
    for key, item in value.items():
        variable = tx.literal(key)
        made.items[tx.hashable(variable)] = (variable, tx.literal(item))
    return made


_LITERALS: dict[type, Any] = {
    tuple: lambda tx, v: TupleVariable([tx.literal(item) for item in v]),
    list: lambda tx, v: ListVariable([tx.literal(item) for item in v]),
    Size: lambda tx, v: SizeVariable([tx.literal(item) for item in v], Size),
    dict: _literal_dict,
    collections.OrderedDict: _literal_dict,
    set: _literal_set,
    frozenset: _literal_set,
    range: lambda tx, v: RangeVariable(v),
    slice: lambda tx, v: SliceVariable(tx.literal(v.start), tx.literal(v.stop), tx.literal(v.step)),
    SymInt: lambda tx, v: SymVariable(v),
    SymFloat: lambda tx, v: SymVariable(v),
    SymBool: lambda tx, v: SymVariable(v),
    type(re.finditer("", "")): lambda tx, v: IteratorVariable(map(tx.literal, v)),
}

