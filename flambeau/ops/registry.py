"""The op table: operators above the primitives (primitives.py), each a record in one place.

An operator is registered by `@operator`. Registering a name twice is an error that names both places. `docs/interfaces.md` describes
the facets.
"""

from __future__ import annotations

import functools
import inspect
import operator as python_operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Number
from types import FunctionType, MethodType, NoneType
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np

from flambeau import _C

from ..core import dispatch
from ..core.device import elsewhere
from ..core.dtypes import as_dtype
from ..core.homes import is_own
from ..core.symbolic import is_symbolic
from ..core.tensor import Tensor, from_array
from ..core.watching import watched
from . import batching
from .derivatives import Derivative, General, Linear, Pointwise, Rule
from .help import composed
from .primitives import (
    EFFECTS,
    PRIMITIVES,
    Flops,
    InAten,
    Primitive,
    Spec,
    array_of,
    compiled,
    first_tensor,
    is_fake,
    one_device,
    pointwise,
    primitive,
    register,
    spelt,
    view,
)
from .replay import replayed
from .telling import MAY_BE_THE_CALL, is_whole, known, other_form, tell
from .traced import OWN_WAYS

OPERATORS: dict[str, Callable] = {}
F = TypeVar("F", bound=Callable)
Autocast = str | Mapping[str, str] | None
"""What autocast casts an operator's tensors to, or by device: "narrow", the fast dtype; "wide", float32;
"promote", the widest among them; "inside", nothing: its body is products and other operators, each of which is asked."""


class OperatorInfo(NamedTuple):
    """What the table knows of an operator: its plain body and the optional facets beside it."""

    name: str
    body: Callable
    vjp: Derivative | None
    library: str
    fused: bool
    methods: tuple[str, ...]
    tags: frozenset
    autocast: Mapping[str, str]


def is_operator(fn: Any) -> bool:
    """Whether `fn` is an operator of the table (or a primitive): one node in a captured graph."""
    if isinstance(fn, Primitive):
        return True
    marks = getattr(fn, "__dict__", None)
    marked = isinstance(marks, dict) and "_operator" in marks and not isinstance(fn, MethodType)
    # a program's own wrapper of an operator, made with functools.wraps, has its marks
    return marked and not (isinstance(fn, FunctionType) and not is_own(fn.__globals__.get("__name__")))


def _overriding(args: Iterable, found: list | None = None) -> list:
    """An argument of each class that overrides __torch_function__, subclasses before their bases."""
    found = [] if found is None else found
    for a in args:
        kind = type(a)
        if kind in (list, tuple):
            _overriding(a, found)
        elif kind is not Tensor and getattr(kind, "__torch_function__", None) is not None \
                and not getattr(kind, "_plain_torch_function", False) and all(type(f) is not kind for f in found):
            before = next((i for i, f in enumerate(found) if issubclass(kind, type(f))), len(found))
            found.insert(before, a)
    return found


def casting(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Slot that autocast fills: what an operator gives for arguments that are cast first."""
    raise RuntimeError("flambeau.amp is not loaded; import flambeau")


def has_torch_function(args: Iterable) -> bool:
    """Whether some argument overrides `__torch_function__`."""
    return bool(_overriding(args))


def handle_torch_function(public_api: Callable, relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Ask the modes, then each overriding class of `relevant_args`, to answer `public_api(*args, **kwargs)`.

    For functions written in Python that want to be overridable: `if has_torch_function((x,)): return
    handle_torch_function(f, (x,), x)`. Raises TypeError when all of them answer NotImplemented.
    """
    owners = _overriding(relevant_args)
    if dispatch.state.function_modes:
        mode = dispatch.state.function_modes[-1]
        with without_top_mode():
            answer = mode.__torch_function__(public_api, tuple(type(owner) for owner in owners), args, kwargs)
        if answer is not NotImplemented:
            return answer
    name = f"{getattr(public_api, '__module__', '')}.{getattr(public_api, '__name__', public_api)}"
    return _asked_of_classes(public_api, name, owners, args, kwargs)


def _asked_of_classes(fn: Callable, name: str, owners: Iterable, args: tuple, kwargs: dict, method: Callable | None = None) -> Any:
    """What the first willing class answers; TypeError where none is. A program's own are told of the `method` that was called, if one was."""
    types = tuple(type(owner) for owner in owners)
    for kind in types:
        answer = kind.__torch_function__(fn if method is None or _is_ours(kind) else method, types, args, kwargs)
        if answer is not NotImplemented:
            return answer
    raise TypeError(f"no implementation found for '{name}' on types that implement "
                    f"__torch_function__: [{', '.join(kind.__name__ for kind in types)}]")


class without_top_mode(_C.OverrideScope):
    """The innermost mode is out of action in the block, so that its own work does not come back to it."""

    def inside(self) -> tuple:
        return dispatch.state.function_modes[:-1], dispatch.state.autocast


def _asks_classes(wrapper: Any) -> bool:
    """Within `classes_off` only proxies are asked, and by operators that make tensors from data, nobody."""
    state = dispatch.state
    asked = state.proxies > 0 or (dispatch.override_classes > 0 and not state.classes_off)
    return asked and "from_data" not in wrapper._operator.tags


def _is_ours(kind: type) -> bool:
    return is_own(kind.__module__)


def call_override(wrapper: Callable, args: tuple, kwargs: dict, method: Callable | None = None) -> Any:
    """What the innermost mode, or else the first willing class, or else autocast answers; NotImplemented where there is none. `method`: what
    was called, where programs' classes and modes know it by that."""
    state = dispatch.state
    if len(args) == 2 and isinstance(args[1], (list, tuple)) and "spread" in wrapper._operator.tags:    # type: ignore[attr-defined]
        args = (args[0], *args[1])
    if state.watchers:
        return watched(wrapper._event, wrapper, args, kwargs)    # type: ignore[attr-defined]
    if state.function_modes:
        types: tuple[type, ...] = ()
        mode = state.function_modes[-1]
        if not _is_ours(type(mode)) and dispatch.override_classes:
            types = tuple([type(owner) for owner in _overriding((*args, *kwargs.values()))])
        with without_top_mode():
            told = method is not None and (not _is_ours(type(mode)) or getattr(mode, "for_programs", False))
            return mode.__torch_function__(method if told else wrapper, types, args, kwargs)
    owners: Iterable = ()
    if _asks_classes(wrapper):
        owners = _overriding((*args, *kwargs.values()))
    elif state.classes_off and dispatch.override_classes:
        owners = [owner for owner in _overriding((*args, *kwargs.values())) if dispatch.takes_every_call(owner)]
    if not owners:
        return casting(wrapper, args, kwargs) if state.autocast is not None and state.autocast[0].on else NotImplemented
    return _asked_of_classes(wrapper, wrapper.__name__, owners, args, kwargs, method)


# Arguments may also be called as NumPy calls them, and dtypes may be given as Python's types.
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}
# Names of torch's own schemas, where several of its overloads are one function here.
SCHEMA_NAMES = {"split_size": "split_size_or_sections", "split_sizes": "split_size_or_sections", "indices": "indices_or_sections",
                "sections": "indices_or_sections", "tensor_indices_or_sections": "indices_or_sections", "axis0": "dim0", "axis1": "dim1",
                "train": "training"}


def _translate(name: str, kwargs: dict[str, Any], aliases: dict[str, str]) -> None:
    """Bring keyword arguments to the operator's own names and to dtypes, in place."""
    for given in kwargs.keys() & aliases.keys():
        real = aliases[given]
        if real not in kwargs:
            kwargs[real] = kwargs.pop(given)
    given_dtype = kwargs.get("dtype")
    if isinstance(given_dtype, (type, str, np.dtype)):
        kwargs["dtype"] = as_dtype(given_dtype, name)
    elif isinstance(given_dtype, (Tensor, Number, tuple, list)):
        raise TypeError(f"{name}(): argument 'dtype' must be torch.dtype, not {type(given_dtype).__name__}")


@overload
def operator(fn: F, **facets: Any) -> F: ...
@overload
def operator(fn: None = None, **facets: Any) -> Callable[[F], F]: ...
def operator(fn: Any = None, *, name: str | None = None, method: bool | str | Sequence[str] = False,    # type: ignore[misc]
             vjp: Callable | Derivative | None = None, library: str = "", fused: bool = False,
             tags: Iterable[str] = (), batch: batching.Rule | None = None, flops: Flops | None = None,
             autocast: Autocast = None, shortcut: Any = None, aten: str | Callable[..., str] | InAten = "",
             node: bool | str | Callable[..., str] = "") -> Any:
    """Register a typed function over primitives and operators as an operator.

    Tagged "view", it answers with a view of its first argument that depends on the layout and constant arguments alone;
    tagged "views", with several. Tagged "keeps_zero", it is a function of each element that gives 0 for 0. Tagged "from_data", it
    takes data of any library, whose class is not asked for an override. Tagged "spread", it takes its operands in one list as well, in
    whose place overrides see them one by one. Tagged "alone", it works on lists of tensors in place, and
    nothing that it does to one element depends on other elements: parts of tensors can be given to it as well. Tagged "refuses_values",
    a kernel of its own raises for what is in a tensor (what primitives of its body raise, they say).
    `method`: also a method of Tensor (True: under its own name; or the names). `vjp(g, ...)`: a cheaper gradient than the
    body's, with `Rule` parameter names, giving a tuple with an entry per tensor parameter, or a `Derivative` with a rule for each
    input, of which only those that are wanted save something. `library`: the family of calls
    (inductor/library) by which graphs compute it whole. `fused`: ask for a generated kernel in eager. `batch`: how one with such a facet
    computes a batch as a whole (`batching.py`), where its body would be slower. `flops`: what it costs, where that is not the sum of its steps.
    `autocast`: what its arguments are cast to within autocast. `shortcut`: the primitive of a scalar operation that is all there is to
    operands of one dtype and numbers: it is asked before the body, where the parameters that are called Tensor are none but tensors.
    `aten`: what ATen calls it (or a function of the arguments that says), where it has a facet and another name. `node`: where
    steps of its body are what is recorded, what the last of them is called on the tape (`sum.1` is SumBackward1; True: by its own name).
    """
    if fn is None:
        return functools.partial(operator, name=name, method=method, vjp=vjp, library=library, fused=fused, tags=tags,
                                 batch=batch, flops=flops, autocast=autocast, shortcut=shortcut, aten=aten, node=node)
    body = fn
    op_name = name or fn.__name__
    if vjp is not None or library or fused:
        body = _with_facets(op_name, fn, _derivative(vjp), library, fused)
        record = COMPOSITES[op_name]
        record.answers_views, record.batch, record.flops, record.aten = "views" in tags, batch, flops, \
            aten if isinstance(aten, InAten) else InAten(aten)
        record.tags |= EFFECTS.intersection(tags)
    if OWN_WAYS.isdisjoint(tags):
        body = _C.Traced(body)
    if shortcut is not None and shortcut.eager.scalar is not None:
        body = _C.Shortcut(shortcut.eager, body, sum(p.annotation == "Tensor" for p in inspect.signature(fn).parameters.values()))
    never_none = _never_none(fn)
    if "view" in tags:  # what is remembered was looked at
        body, never_none = _C.Remembered(_refusing_none(op_name, never_none, body)), ()
    if node:
        body = _with_its_node(body, op_name if node is True else node)
    wrapper = _entered(op_name, fn, body, never_none, None if "inplace" in tags else vars(fn).get("into_out"))  # with_out's mark
    methods = (op_name,) if method is True else (method,) if isinstance(method, str) else tuple(method or ())
    wrapper._operator = OperatorInfo(  # type: ignore[attr-defined]
        op_name, fn, _derivative(vjp), library, fused, methods, frozenset(tags),
        dict.fromkeys(("cpu", "cuda"), autocast) if isinstance(autocast, str) else autocast or {})
    if len(methods) == 1 and methods[0].startswith("__"):
        wrapper.__name__ = methods[0]       # it is nothing else
    for m in methods:
        setattr(Tensor, m, as_dunder(wrapper, m) if m.strip("_") in _BINARY and m.startswith("__") else wrapper)
    return register(OPERATORS, op_name, wrapper)


def _with_its_node(body: Callable, told: str | Callable[..., str]) -> Callable:
    """The body, the last step of whose results is called after the whole on the tape."""
    @functools.wraps(body)
    def with_its_node(*args: Any, **kwargs: Any) -> Any:
        out = body(*args, **kwargs)
        for result in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(result, Tensor) and (dispatch.asked_mode("named") or result._grad is not None) and not any(result is a for a in args):
                on_tape(told if isinstance(told, str) else told(*args, **kwargs), result)
        return out
    return with_its_node


def on_tape(told: str, result: Tensor) -> Tensor:
    """A result, the last step of which is called `told` on the tape, if it is there: as `node` of `operator`, for some ways of a body."""
    if told and (kept := dispatch.asked_mode("named")) is not None:
        return kept(on_tape, told, result)
    if told and (meta := result._grad) is not None and meta.grad_fn is not None:
        meta.grad_fn.call(spelt(told))
    return result


def _entered(op_name: str, fn: Callable, body: Callable, never_none: tuple, into_out: Callable | None) -> Callable:
    """What callers have of an operator: overrides, NumPy's names of arguments, `out=` and errors that tell, around its body."""
    state, holds_none = dispatch.state, _C.holds_none
    names = set(inspect.signature(fn).parameters)
    checks_out = vars(fn).get("checks_out")     # with_out_apart's
    from_place = never_none[0][0] if never_none else 1 << 30
    exact = _exact(fn)
    first_exact = min((place for place, *_ in exact), default=1 << 30)
    aliases = {alias: real for alias, real in (NUMPY_NAMES | SCHEMA_NAMES).items() if real in names and alias not in names}

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            _translate(op_name, kwargs, aliases)
        if never_none and (kwargs or len(args) > from_place) and holds_none((*args, *kwargs.values()) if kwargs else args):
            _refuse_none(op_name, never_none, args, kwargs)
        if exact and (kwargs or len(args) > first_exact):
            count = len(args)
            for place, key, kinds in exact:
                value = args[place] if place < count else kwargs.get(key, _EXACT)
                if type(value) not in kinds and value is not _EXACT:
                    _refuse_other(op_name, key, kinds, value)
        try:
            if (dispatch.override_classes or state.overrides) and (answer := call_override(wrapper, args, kwargs)) is not NotImplemented:
                return answer
            if kwargs and into_out is not None and "out" in kwargs:
                given = dict(kwargs)
                if (out := given.pop("out")) is None:
                    return body(*args, **given)
                if not isinstance(out, (Tensor, tuple, list)):
                    raise TypeError(f"{op_name}(): argument 'out' must be Tensor, not {type(out).__name__}")
                if checks_out is not None:
                    checks_out(out, (*args, *given.values()))
                return into_out(body(*args, **given), out)
            return body(*args, **kwargs)
        except Exception as error:
            owners = _overriding((*args, *kwargs.values()))
            if owners and isinstance(error, MAY_BE_THE_CALL) and not (dispatch.override_classes or state.overrides):
                return _asked_of_classes(wrapper, op_name, owners, args, kwargs)    # which no call before had
            if isinstance(error, MAY_BE_THE_CALL) and not owners and (other := other_form(op_name, wrapper, args, kwargs)) is not None:
                return wrapper(*other[0], **other[1])
            if into_out is not None:
                kwargs.pop("out", None)     # of which the body knows nothing
            tell(op_name, fn, args, kwargs, error, bool(owners))
            raise

    if into_out is not None:
        wrapper.__signature__ = _with_out(fn)  # type: ignore[attr-defined]
    if "<locals>" in wrapper.__qualname__:
        wrapper.__qualname__ = wrapper.__name__     # pickles say where it is
    wrapper._event = f"aten::{known(op_name)}"  # type: ignore[attr-defined]
    composed(wrapper)
    wrapper._body = body  # type: ignore[attr-defined]
    wrapper._plain = body if into_out is None else _taking_out(body, into_out)  # type: ignore[attr-defined]
    return wrapper


def _taking_out(body: Callable, into_out: Callable) -> Callable:
    """The body with the keyword `out`."""
    def plain(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        result = body(*args, **kwargs)
        return result if out is None else into_out(result, out)
    return plain


def _with_out(fn: Callable) -> inspect.Signature:
    """The function's signature with a keyword `out`."""
    plain = inspect.signature(fn)
    last = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
    rest = list(plain.parameters.values())
    at = len(rest) - (rest[-1].kind is inspect.Parameter.VAR_KEYWORD)
    return plain.replace(parameters=[*rest[:at], last, *rest[at:]])


_BINARY = frozenset(
    {f"{kind}{name}" for kind in ("", "r", "i") for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and",
                                                             "or", "xor", "lshift", "rshift")} | {"lt", "le", "gt", "ge", "eq", "ne"}
)


# What overrides see as the method, and not as the operator that it is: which ones, PyTorch says.
_SEEN_AS_METHODS = frozenset({"eq", "floordiv", *(f"{i}{name}" for i in ("", "i") for name in ("and", "or", "xor", "lshift", "rshift")), *(
    f"r{name}" for name in ("sub", "truediv", "floordiv", "mod", "pow", "lshift", "rshift"))})
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def as_dunder(fn: Callable, name: str) -> Callable:
    """The operator as the method `__name__` of Python's `+`, `==` ...: NotImplemented, so that the other object is asked, instead of
    a TypeError for an operand that is neither a tensor nor a number. Arrays are compared as tensors; they compute as arrays, by
    NumPy's promotion, and give a tensor."""
    body, state = fn._body, dispatch.state  # type: ignore[attr-defined]
    plain = name.strip("_")
    mirrored = plain.startswith("r") and plain != "rshift"
    reflected = getattr(python_operator, f"__{plain[1:]}__", None) if mirrored else None

    @functools.wraps(fn)
    def dunder(self: Tensor, other: Any) -> Any:
        if mirrored and not isinstance(self, Tensor):
            raise TypeError(f"descriptor '{name}' for 'Tensor' objects doesn't apply to a '{type(self).__name__}' object")
        try:
            if (dispatch.override_classes or state.overrides) and \
                    (answer := call_override(fn, (self, other), {}, method)) is not NotImplemented:
                return answer
            return body(self, other)
        except TypeError:
            if isinstance(other, (Tensor, Number, np.generic)) or type(other).__name__ in ("SymInt", "SymFloat", "SymBool"):
                raise
            if not isinstance(other, np.ndarray):
                return NotImplemented
        except Exception as error:
            tell(fn.__name__, fn, (self, other), {}, error)
            raise
        if plain in _COMPARISONS:
            return fn(self, OPERATORS["tensor"](other, device=self.device))
        return NotImplemented if reflected is None else OPERATORS["as_tensor"](reflected(other, self.numpy()), device=self.device)

    method = dunder if plain in _SEEN_AS_METHODS else None
    if method is not None:
        dunder.__name__ = "__rdiv__" if plain == "rtruediv" else name
    return dunder


class CompositeRecord:
    """What the ladder sees of an operator with a gradient or kernel of its own; reads like a Primitive."""

    kind = "operator"
    answers_views = False  # which stay views when it is recorded as a whole
    batch: batching.Rule | None = None
    vmap: Callable | None = None
    flops: Flops | None = None
    aten = InAten()

    def __init__(self, name: str, fn: Callable, derivative: Derivative | None, library: str, fused: bool):
        self.name, self.fn, self.library, self.fused = name, fn, library, fused
        self.params = tuple(inspect.signature(fn).parameters)
        self.signature = inspect.signature(fn)
        self.defaults = tuple(p.default for p in self.signature.parameters.values())
        self.tensor_positions = tuple(range(len(self.params)))
        self.derivative = derivative
        self.tags = frozenset({"operator"})
        self.kernels: dict[str, Callable] = {}
        self.whole: dict[str, Callable[[tuple], bool]] = {}
        self.eager = _C.Eager(None, replayed(fn) if fused else None, self)
        self.body: Callable = self     # what the operator calls
        self.__name__ = name

    def stays_whole(self, args: tuple) -> bool:
        """Whether a graph of primitives keeps a call as one node: for a library's call in it, or for the device's kernel."""
        if self.library or not self.whole:
            return bool(self.library)
        rule = self.whole.get(first_tensor(args).device.type)
        return rule is not None and rule(args)

    def has_kernel(self, device: str, kernel: Callable, stays_whole: Callable[[tuple], bool] | None = None,
                   small: str | None = None) -> None:
        """Add a kernel, which compiled code calls too where `stays_whole(args)`, as it is faster there than code made of the body; `small`:
        as for a primitive."""
        self.kernels[device] = kernel
        if stays_whole is not None:
            self.whole[device] = stays_whole
        if device == "cpu":
            self.eager = _C.Eager(None, None, self, small, False, False, True)

    def __repr__(self) -> str:
        return f"ops.{self.name}"

    def __reduce__(self) -> tuple:
        return composite_named, (self.name,)

    def __call__(self, *args: Any) -> Any:
        return dispatch.call(self, args)

    def run(self, args: tuple) -> Any:
        """A library or generated kernel if there is one for these arguments, else the body."""
        if (out := dispatch.ask(self, args, whole=True)) is not NotImplemented:
            return out
        if not dispatch.state.word:
            out = self.eager.below(args)
            if out is not NotImplemented:
                return out
        if not dispatch.state.word and not is_fake(args):
            where, out = first_tensor(args).device, NotImplemented
            arrays = [array_of(a) for a in args]
            if where.type in self.kernels:
                one_device(args, self.name)
                if (there := elsewhere(where)) is not None:
                    with there:
                        return self.run(args)
                out = self.kernels[where.type](*arrays)
            if out is NotImplemented and self.fused and where.type == "cpu":
                out = compiled(self.fn, *arrays)
            if out is not NotImplemented:
                return tuple([_as_tensor(o, where) for o in out]) if type(out) is tuple else _as_tensor(out, where)
        recorded = dispatch.state.grad_enabled
        with dispatch.grad_enabled(False):
            return self.fn(*args) if dispatch.state.modes or self.answers_views else _standalone(self.fn(*args), args, recorded)


def _as_tensor(out: Any, where: Any) -> Tensor:
    return from_array(np.asarray(out) if where.type == "cpu" else out, None, where)


COMPOSITES: dict[str, CompositeRecord] = {}


def composite_named(name: str) -> CompositeRecord:
    """The record of an operator with facets of its own."""
    return COMPOSITES[name]


def _derivative(vjp: Callable | Derivative | None) -> Derivative | None:
    return vjp if vjp is None or isinstance(vjp, Derivative) else General(vjp)


def _with_facets(name: str, fn: Callable, derivative: Derivative | None, library: str, fused: bool) -> Callable:
    record = COMPOSITES[name] = CompositeRecord(name, fn, derivative, library, fused)
    defaults, positions, count = record.defaults, record.tensor_positions, len(record.params)

    def body(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) > count:
            args = _positional(record, args, kwargs)
        elif len(args) < count:
            args = args + defaults[len(args):]
            if inspect.Parameter.empty in args[len(args) - count:]:
                record.signature.bind(*args[:count])
        out = record.eager(*args)
        if out is not NotImplemented:
            return out
        if record.derivative is None and (
                (dispatch.state.grad_enabled and _C.any_wants_grad(args, positions))
                or not (fused or dispatch.state.modes or record.kernels)):
            return fn(*args)
        return dispatch.call(record, args)

    record.body = body
    body.__name__ = name
    return body


def _standalone(out: Any, args: tuple, recorded: bool) -> Any:
    """Results of a body run without autograd: a view of a temporary is a tensor of its own, so that it can be written in place. One of an
    argument is what the operator gives, which is `recorded`."""
    for o in out if type(out) is tuple else (out,):
        if isinstance(o, Tensor) and o._view is not None and not any(o is a for a in args):
            of = any(o._view.base is a for a in args)
            o._view = None if not of else o._view._replace(origin=None) if recorded else o._view
    return out


def _positional(record: CompositeRecord, args: tuple, kwargs: dict) -> tuple:
    try:
        bound = record.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{record.name}(): {error}") from None
    bound.apply_defaults()
    return tuple(bound.arguments.values())


def method(*names: str) -> Callable:
    """Attach a plain function to Tensor under its own name or `names`, without registering an operator."""
    def add(fn: Callable) -> Callable:
        takes_others = any(p.annotation == "Tensor" for p in list(inspect.signature(fn).parameters.values())[1:])
        if names and fn.__name__.startswith("_"):   # of the room's own; classes and modes that are asked see what was called
            fn.__name__ = names[0]
        for n in names or (fn.__name__,):
            setattr(Tensor, n, _refusing(n, fn) if takes_others else fn)
        return fn
    return add


Absent: TypeAlias = None
"""In annotations: the argument may be left out, but not be given as None (`dim: int | Absent = None`)."""

_PLAIN = {"bool", "int", "float"}


def _never_none(fn: Callable) -> tuple[tuple[int, str, str], ...]:
    """The parameters that may be left out and take no None: (place, name, annotation), a place that is never reached if by name only."""
    found = []
    for place, (key, p) in enumerate(inspect.signature(fn).parameters.items()):
        if "Absent" in str(p.annotation) or (p.annotation in _PLAIN and p.default is not p.empty):
            found.append((place if p.kind is p.POSITIONAL_OR_KEYWORD else 1 << 30, key, str(p.annotation).removesuffix(" | Absent")))
    return tuple(found)


_EXACT: dict[str, tuple[type, ...]] = {"bool": (bool, np.bool_), "str": (str,), "str | None": (str, NoneType), "int": (int,),
                                       "int | None": (int, NoneType)}
"""By annotation, the classes that need no second look."""


def _exact(fn: Callable) -> tuple[tuple[int, str, tuple[type, ...]], ...]:
    """The parameters that take values of certain classes alone, nothing that converts to them, and those that take integers: (place, name, the
    classes). Names of modes in nn.functional are looked up, and numbers computed with, whatever they are."""
    told = ("bool",) if ".nn." in fn.__module__ else tuple(_EXACT)
    return tuple([(place if p.kind is p.POSITIONAL_OR_KEYWORD else 1 << 30, key, _EXACT[p.annotation])
                  for place, (key, p) in enumerate(inspect.signature(fn).parameters.items()) if p.annotation in told])


def _refuse_other(name: str, key: str, kinds: tuple[type, ...], value: Any) -> None:
    """TypeError for a value that is of none of the classes, and stands for none: symbols and what tracers put in its place may, and for an
    int whatever is a whole number."""
    if kinds[0] is int and type(value) is not bool and is_whole(value):
        return
    if isinstance(value, Tensor) or (getattr(type(value), "__torch_function__", None) is None and not is_symbolic(value)):
        raise TypeError(f"{name}(): argument '{key}' must be {kinds[0].__name__}, not {type(value).__name__}")


def _refusing_none(name: str, parameters: tuple[tuple[int, str, str], ...], fn: Callable) -> Callable:
    """The function behind a look at those arguments."""
    @functools.wraps(fn)
    def refusing(*args: Any, **kwargs: Any) -> Any:
        _refuse_none(name, parameters, args, kwargs)
        return fn(*args, **kwargs)
    return refusing if parameters else fn


def _refuse_none(name: str, parameters: tuple[tuple[int, str, str], ...], args: tuple, kwargs: dict) -> None:
    """TypeError if one of these parameters was given as None."""
    for place, key, kind in parameters:
        if (args[place] is None) if place < len(args) else (key in kwargs and kwargs[key] is None):
            raise TypeError(f"{name}(): argument '{key}' must be {kind}, not NoneType")


def _refusing(name: str, fn: Callable) -> Callable:
    """A method that says which of its arguments is wrong, as operators do."""
    @functools.wraps(fn)
    def refusing(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except (AttributeError, TypeError) as error:
            tell(name, fn, args, kwargs, error)
            raise
    return refusing


__all__ = ["Spec", "Pointwise", "Linear", "General", "Rule", "Primitive", "pointwise", "view", "primitive", "operator", "method",
           "on_tape", "PRIMITIVES", "OPERATORS", "COMPOSITES", "is_operator"]
