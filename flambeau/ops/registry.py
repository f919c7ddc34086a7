"""The op table: one record per primitive with every facet side by side, and the operators above them.

A primitive is registered by `pointwise(...)`, `view(...)` or `primitive(...)`; an operator by `@operator`. Registering a
name twice is an error that names both places. `docs/interfaces.md` describes the facets.
"""

from __future__ import annotations

import functools
import inspect
import operator as python_operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Number
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from flambeau import _C

from ..backends.cpu import native
from ..core import dispatch
from ..core.dtypes import as_dtype, dtype
from ..core.scalar import TABLE, compares, evaluate
from ..core.size import channels_last_strides, elementwise_strides, is_contiguous, looks_channels_last
from ..core.tensor import Layout, Tensor, View, element_strides, fake, from_array, view_tensor
from . import batching
from .replay import may_be_replayed, replayed


class Spec(NamedTuple):
    """What a shape rule answers: the layout and dtype of an output. `strides` None means contiguous."""

    shape: tuple
    dtype: dtype
    strides: tuple | None = None
    offset: Any = 0


# -- derivatives -------------------------------------------------------------------------------------
class Rule:
    """One derivative formula; its parameter names say what it needs, and so what autograd saves.

    Names are inputs, attributes, `out` (or `outs`, or `out1` for one of several), `g`/`gs` (incoming gradients), `needs`
    (which inputs want one), and
    `<input>_shape`, `<input>_dtype`, `<input>_spec`, which keep no data alive.
    """

    __slots__ = ("fn", "names")

    def __init__(self, fn: Callable | int | float):
        if callable(fn):
            self.fn: Callable = fn
            self.names = tuple(inspect.signature(fn).parameters)
        else:
            constant = fn
            self.fn, self.names = (lambda: constant), ()


class Derivative:
    """Base of the three kinds of derivative."""

    rules: dict[str, Rule]


class Pointwise(Derivative):
    """Elementwise: `rules[x]` gives d out / d x (a mask selects), or, if it takes `g`, the product of `g` with it.

    The Jacobian being diagonal, the same rule serves reverse mode (`g` a gradient) and forward mode (`g` a tangent).
    """

    def __init__(self, **partials: Callable | int | float):
        self.rules = {name: Rule(fn) for name, fn in partials.items()}


class Linear(Derivative):
    """Linear in each named input: `rules[x](g, ...)` is the transpose; the tangent is the primitive itself."""

    def __init__(self, **transposes: Callable):
        self.rules = {name: Rule(fn) for name, fn in transposes.items()}


class General(Derivative):
    """Anything else: `vjp(g, ...)` gives a tuple with a gradient (or None) per tensor input; `jvp` the tangents."""

    def __init__(self, vjp: Callable, jvp: Callable | None = None):
        self.vjp = Rule(vjp)
        self.rules = {"vjp": self.vjp}
        self.jvp = jvp


# -- primitives --------------------------------------------------------------------------------------
def _refuse_complex(record: Any, args: tuple) -> None:
    """NotImplementedError where complex numbers are to be put in order."""
    kind = next((a.dtype for a in args if isinstance(a, Tensor) and a.dtype.is_complex and 0 not in a._layout.shape), None)
    if kind is not None:
        raise NotImplementedError(f'"{record.name}_cpu" not implemented for \'{kind}\': complex numbers have no order')


Flops = Callable[..., int]
"""Multiplications and additions of a call: a function of the result's shape and the arguments, shapes in the places of tensors."""


class Primitive:
    """A record of the op table, callable on tensors. Never broadcasts, never promotes."""

    vmap: Callable | None = None    # the program's own batching rule, for its own operators
    flops: Flops | None = None

    def __init__(self, name: str, shape: Callable, *, kernel: Callable | None = None, loop: Any = None,
                 derivative: Derivative | None = None, tags: Iterable[str] = (), batch: batching.Rule = batching.by_names,
                 samples: Callable | None = None, doc: str = "", kind: str = "general", tensors: int | None = None,
                 why_absent: dict[str, str] | None = None):
        self.name, self.shape, self.loop, self.derivative = name, shape, loop, derivative
        self.kind, self.tags, self.batch, self.samples, self.__doc__ = kind, frozenset(tags), batch, samples, doc
        self.kernels: dict[str, Callable] = {} if kernel is None else {"cpu": kernel}
        self.why_absent = why_absent or {}
        self.params = tuple(inspect.signature(shape).parameters)
        self.tensors = 1 if tensors is None else tensors
        self.tensor_positions = tuple(range(self.tensors))
        self.replayed = replayed(self) if may_be_replayed(self) else None
        self.launched: _C.GpuPrograms | None = None     # what the calls come to on a GPU, once one is used
        self.ordered = "ordered" in self.tags or (callable(loop) and compares(loop, len(self.params)))
        self.__name__ = self.__qualname__ = name
        self.__module__ = "flambeau.ops.prims"

    def __repr__(self) -> str:
        return f"prims.{self.name}"

    def __reduce__(self) -> tuple:
        return primitive_named, (self.name,)

    def __deepcopy__(self, memo: dict) -> Primitive:
        return self

    def __call__(self, *args: Any) -> Any:
        state = dispatch.state
        if self.launched is not None:
            out = self.launched.quick(args)
            if out is not NotImplemented:
                return out
        if state.word:
            return dispatch.call(self, args)
        if state.grad_enabled and dispatch.needs_grad(self, args):
            return dispatch.record(self, args)
        return self.run(args)

    def specs(self, args: tuple) -> Any:
        """The shape rule's answer for these arguments: a Spec or a tuple of them."""
        return self.shape(*args)

    def run(self, args: tuple) -> Any:
        """The kernel, or for fake tensors the shape rule. Nothing of autograd or modes."""
        if self.replayed is not None:
            out = self.replayed(args)
            if out is not NotImplemented:
                return out
        if self.launched is not None:
            out = self.launched(args)
            if out is not NotImplemented:
                return out
        specs = self.shape(*args)
        if self.ordered:
            _refuse_complex(self, args)
        first, arrays, pretend = None, [], dispatch.state.fake
        one_device(args, self.name)
        for a in args:
            if isinstance(a, Tensor):
                first = a if first is None else first
                pretend = pretend or a._data is None
                arrays.append(a._data)
            elif type(a) in (tuple, list):
                pretend = pretend or _is_fake_any(a)
                arrays.append(_array_of(a))
            else:
                arrays.append(a)
        if first is None:
            first = _first_tensor(args)
        if pretend:
            return _fake_outputs(specs, first)
        where = first.device
        kernel = self.kernels.get(where.type) or kernel_for(self, where)
        try:
            out = kernel(*arrays)
        except TypeError as error:
            raise _no_kernel(self, args, error) from None
        if type(specs) is tuple:
            return tuple(_wrap(o, s, where) for o, s in zip(out, specs, strict=True))
        return _wrap(out, specs, where)


def _no_kernel(prim: Primitive, args: tuple, error: TypeError) -> Exception:
    """NumPy's refusal of a dtype as ours; other errors as they are."""
    if "ufunc" not in str(error) and not str(error).startswith("Cannot cast"):
        return error
    kinds = ", ".join(dict.fromkeys(str(a.dtype) for a in args if isinstance(a, Tensor)))
    return NotImplementedError(f'"{prim.name}_cpu" not implemented for {kinds}')


# backends: device type -> function that fills in that column of the table (called when a kernel is first missed).
BACKENDS: dict[str, Callable[[], None]] = {}


def kernel_for(prim: Primitive, where: Any) -> Callable:
    """The kernel of `prim` on a device whose backend may have to be loaded; NotImplementedError if there is none."""
    load = BACKENDS.get(where.type)
    if load is not None:
        load()
    kernel = prim.kernels.get(where.type)
    if kernel is None:
        raise NotImplementedError(f"Could not run '{prim.name}' on device '{where}': it has kernels for {sorted(prim.kernels)}; "
                                  "move the tensors there with .to()")
    return kernel


class PointwisePrimitive(Primitive):
    """An elementwise primitive: tensors of one shape; Python numbers may stand for any but one of them.

    `quick(*args)` is the whole call in native code where everything is plain and small, and answers NotImplemented elsewhere;
    `quick.below` is the same below autograd. Unlike the primitive it also broadcasts.
    """

    quick: Any

    def __call__(self, *args: Any) -> Any:
        out = self.quick(*args)
        return Primitive.__call__(self, *args) if out is NotImplemented else out

    def run(self, args: tuple) -> Any:
        out = self.quick.below(*args)
        if out is NotImplemented:
            out = self.replayed(args)  # type: ignore[misc]
        if out is NotImplemented and self.launched is not None:
            out = self.launched(args)
        if out is not NotImplemented:
            return out
        if self.ordered:
            _refuse_complex(self, args)
        arrays = []
        first: Any = None
        for a in args:
            if isinstance(a, Tensor):
                data = a._data
                if data is None or dispatch.state.fake:
                    return _fake_outputs(self.shape(*args), _first_tensor(args))
                if first is None:
                    first = a
                    shape = data.shape
                elif data.shape != shape or a.device != first.device:
                    self.shape(*args)  # raises
                arrays.append(data)
            else:
                arrays.append(a)
        if first._data.size >= GENERATED_FROM and generated_pointwise is not None and first.device.type == "cpu":
            out = generated_pointwise(self, args)
            if out is not NotImplemented:
                return from_array(self._as_promised(out, args), None, first.device)
        kernel = self.kernels.get(first.device.type) or kernel_for(self, first.device)
        try:
            out = kernel(*arrays)
        except TypeError as error:
            raise _no_kernel(self, args, error) from None
        if first.device.type == "cpu":
            out = self._as_promised(out if type(out) is np.ndarray else np.asarray(out), args)
        return from_array(out, None, first.device)

    def _as_promised(self, out: np.ndarray, args: tuple) -> np.ndarray:
        """A result in the memory order of the shape rule."""
        tensors = [a for a in args if isinstance(a, Tensor)]
        if out.flags.c_contiguous and all(t._data.flags.c_contiguous for t in tensors):
            return out
        return _in_order(out, lies_like(tensors))


def _in_order(out: np.ndarray, strides: tuple | None) -> np.ndarray:
    """`out` in the memory order that the shape rule promises; NumPy chooses its own where the operands disagree."""
    if strides is None or (out.flags.c_contiguous and is_contiguous(out.shape, strides)):
        return np.ascontiguousarray(out) if out.ndim else out
    if element_strides(out) == strides:
        return out
    return native.copy_strided(native.empty_strided(out.shape, strides, out.dtype), out)


class ViewPrimitive(Primitive):
    """A primitive whose output shares its input's memory: the shape rule's layout is all there is to compute."""

    def run(self, args: tuple) -> Any:
        spec = self.shape(*args)
        out = _C.tensor_view(self, args, spec)
        if out is not NotImplemented:
            return out
        base = args[0]
        if dispatch.state.fake and base._data is not None:
            base = fake(base._layout.shape, base.dtype, base.device, base._layout.strides, base._layout.offset)
        out = view_tensor(base, spec.dtype, Layout(spec.shape, spec.strides, spec.offset))
        source = args[0]
        step = (self, args[1:])
        root, chain = (source, ()) if source._view is None else source._view[:2]
        out._view = View(root, (*chain, step), 0 if root._grad is None else root._grad.generation)
        return out


# inductor: generated kernels for eager mode. Each answers NotImplemented where NumPy should do it.
generated_pointwise: Callable[[Primitive, tuple], Any] | None = None       # -> array, from GENERATED_FROM elements on
generated_operator: Callable[[Any, tuple], Any] | None = None              # -> tensor or tuple of tensors
generated_gpu: Callable[[Any, Sequence[Any]], Any] | None = None           # -> what a call comes to on a GPU: _C.GpuProgram or None
GENERATED_FROM = 1 << 15


def on_gpu(record: Any, args: Sequence[Any]) -> Any:
    """The program of generated kernels for such a call on a GPU, or None."""
    return None if generated_gpu is None else generated_gpu(record, args)


def _first_tensor(args: Sequence) -> Tensor:
    for a in args:
        if isinstance(a, Tensor):
            return a
        if type(a) in (tuple, list):
            for item in a:
                if isinstance(item, Tensor):
                    return item
    raise TypeError(f"expected at least one Tensor among the arguments, got {[type(a).__name__ for a in args]}")


def one_device(args: Sequence, name: str = "") -> None:
    """RuntimeError where the tensors among `args`, and in lists among them, are on different devices."""
    where = None
    for a in args:
        for t in (a,) if isinstance(a, Tensor) else a if type(a) in (tuple, list) else ():
            if not isinstance(t, Tensor) or t.device is where:
                continue
            if where is None:
                where = t.device
            elif t.device != where:
                raise RuntimeError("Expected all tensors to be on the same device, but found at least two devices, "
                                   f"{where} and {t.device}!" + (f" ({name})" if name else ""))


def _is_fake(args: Sequence) -> bool:
    if dispatch.state.fake:
        return True
    for a in args:
        if isinstance(a, Tensor):
            if a._data is None:
                return True
        elif type(a) in (tuple, list) and _is_fake_any(a):
            return True
    return False


def _is_fake_any(items: Sequence) -> bool:
    return any(isinstance(item, Tensor) and item._data is None for item in items)


def _array_of(a: Any) -> Any:
    if isinstance(a, Tensor):
        return a._data
    if type(a) in (tuple, list) and any(isinstance(item, Tensor) for item in a):
        return [_array_of(item) for item in a]
    return a


def _wrap(out: Any, spec: Spec, where: Any) -> Tensor:
    if spec.shape[:1] == _UNKNOWN:
        return from_array(out, spec.dtype, where)
    if where.type == "cpu" and (type(out) is not np.ndarray or (spec.strides is None and not out.flags.c_contiguous)):
        out = np.asarray(out, order="C")  # NumPy keeps its inputs' memory order where it can; the shape rule decides here
    if where.type == "cpu" and spec.strides is not None:
        out = _in_order(out, spec.strides)
    return from_array(out, spec.dtype, where)


_UNKNOWN = (-1,)    # the size of what hangs on the values; such a kernel decides the memory order too


def _fake_outputs(specs: Any, like: Tensor) -> Any:
    if type(specs) is tuple:
        return tuple(fake(s.shape, s.dtype, like.device, s.strides, s.offset) for s in specs)
    return fake(specs.shape, specs.dtype, like.device, specs.strides, specs.offset)


PRIMITIVES: dict[str, Primitive] = {}
_WHERE: dict[str, str] = {}


def primitive_named(name: str) -> Primitive:
    """The primitive called `name`; KeyError if there is none."""
    return PRIMITIVES[name]


def _register(table: dict, name: str, record: Any) -> Any:
    frame = sys._getframe(2)
    here = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    key = f"{'primitive' if table is PRIMITIVES else 'operator'} {name}"
    if name in table:
        raise ValueError(f"{key} is registered twice: at {_WHERE[key]} and at {here}")
    table[name] = record
    _WHERE[key] = here
    return record


def lies_like(tensors: Sequence[Tensor]) -> tuple | None:
    """Strides of an elementwise result of tensors of one shape; None means contiguous."""
    layouts = [t._layout for t in tensors]
    if all(is_contiguous(lay.shape, lay.strides) for lay in layouts):
        return None
    shape = layouts[0].shape
    strides = elementwise_strides(shape, [lay.strides for lay in layouts])
    return None if is_contiguous(shape, strides) else strides


def channels_last_like(x: Tensor, shape: tuple) -> tuple | None:
    """Channels-last strides for `shape` if x (n, c, h, w) or (n, c, d, h, w) looks so and is not contiguous, else None (contiguous)."""
    lay = x._layout
    if len(shape) not in (4, 5) or is_contiguous(lay.shape, lay.strides):
        return None
    return channels_last_strides(shape) if looks_channels_last(lay.shape, lay.strides) else None


def _pointwise_shape(name: str, params: Sequence[str], result: Any) -> Callable:
    def shape(*args: Any) -> Spec:
        tensors = [a for a in args if isinstance(a, Tensor)]
        if not tensors:
            raise TypeError(f"{name}(): at least one argument must be a Tensor, got {[type(a).__name__ for a in args]}")
        first = tensors[0]
        for other in tensors[1:]:
            if other.shape != first.shape:
                raise RuntimeError(f"{name}(): shapes must match, got {[list(t.shape) for t in tensors]}")
        one_device(tensors, name)
        kind = result(*args) if callable(result) else (result or first.dtype)
        return Spec(first._layout.shape, kind, lies_like(tensors))

    shape.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(p, inspect.Parameter.POSITIONAL_ONLY) for p in params])
    return shape


class _Recorder:
    """A loop-body handler that answers each operation with its name and operands."""

    def __getattr__(self, name: str) -> Callable:
        return lambda *operands: (name, *operands)


def _only_operation(loop: Callable, params: tuple[str, ...]) -> str | None:
    """The scalar operation that is all a body does with its parameters; None for other bodies."""
    try:
        recorded = loop(_Recorder(), *params)
    except (TypeError, AttributeError):
        return None
    return recorded[0] if type(recorded) is tuple and recorded[1:] == params and recorded[0] in TABLE else None


class _Declines:
    """Stands for the native operation where there is none."""

    def __call__(self, *args: Any) -> Any:
        return NotImplemented

    below = __call__

    def into(self, *args: Any) -> bool:
        return False


DECLINES = _Declines()


def _quick(operation: str | None) -> Any:
    """The native form of a scalar operation on small tensors."""
    try:
        return DECLINES if operation is None else _C.Elementwise(operation)
    except ValueError:
        return DECLINES


def pointwise(name: str, loop: Callable, *, result: Any = None, kernel: Callable | None = None,
              d: dict[str, Any] | None = None, tensors: int | None = None, samples: Callable | None = None,
              tags: Iterable[str] = (), doc: str = "", why_absent: dict[str, str] | None = None) -> Primitive:
    """Register an elementwise primitive.

    `loop(o, x, ...)` is its body over the scalar ops; its parameters are the schema, and read by NumPy it is the kernel
    unless a cheaper `kernel` is given. `d` holds d out / d x by input name; `result` the output dtype if it is not the
    inputs' own (a dtype, or a function of the arguments).
    """
    params = tuple(inspect.signature(loop).parameters)[1:]
    operation = _only_operation(loop, params)
    record = PointwisePrimitive(
        name, _pointwise_shape(name, params, result), kernel=kernel or functools.partial(evaluate, loop), loop=loop,
        derivative=Pointwise(**d) if d else None, tags={"pointwise", "recomputable", *tags}, samples=samples, doc=doc,
        kind="pointwise", tensors=len(params) if tensors is None else tensors, why_absent=why_absent)
    record.params, record.quick = params, _quick(operation)
    return _register(PRIMITIVES, name, record)


def view(name: str, *, derivative: Derivative, loop: Callable | str | None = None, samples: Callable | None = None,
         tags: Iterable[str] = (), batch: batching.Rule = batching.by_names,
         why_absent: dict[str, str] | None = None) -> Callable[[Callable], Any]:
    """Decorate a shape rule that answers with strides and offset: registers a view primitive."""
    def add(shape: Callable) -> Primitive:
        record = ViewPrimitive(name, shape, loop=loop, derivative=derivative, batch=batch, samples=samples, doc=shape.__doc__ or "",
                               tags={"view", "recomputable", "linear", *tags}, kind="view", why_absent=why_absent)
        return _register(PRIMITIVES, name, record)
    return add


def primitive(name: str, *, kernel: Callable | None = None, loop: Any = None, derivative: Derivative | None = None,
              tags: Iterable[str] = (), tensors: int = 1, batch: batching.Rule = batching.by_names, samples: Callable | None = None,
              why_absent: dict[str, str] | None = None, doc: str = "", flops: Flops | None = None) -> Callable[[Callable], Any]:
    """Decorate a shape rule: registers a primitive whose first `tensors` parameters are tensors (or lists of them)."""
    def add(shape: Callable) -> Primitive:
        record = Primitive(name, shape, kernel=kernel, loop=loop, derivative=derivative, tags=tags, tensors=tensors,
                           batch=batch, samples=samples, doc=doc or shape.__doc__ or "", why_absent=why_absent)
        record.flops = flops
        return _register(PRIMITIVES, name, record)
    return add


# -- operators ---------------------------------------------------------------------------------------
OPERATORS: dict[str, Callable] = {}


class OperatorInfo(NamedTuple):
    """What the table knows of an operator: its plain body and the optional facets beside it."""

    name: str
    body: Callable
    vjp: Derivative | None
    lowering: str | None
    fused: bool
    methods: tuple[str, ...]
    tags: frozenset


_PACKAGE = __name__.partition(".")[0]


def is_operator(fn: Any) -> bool:
    """Whether `fn` is an operator of the table (or a primitive): one node in a captured graph."""
    if isinstance(fn, Primitive):
        return True
    marks = getattr(fn, "__dict__", None)
    marked = isinstance(marks, dict) and "_operator" in marks and not isinstance(fn, MethodType)
    # a program's own wrapper of an operator, made with functools.wraps, has its marks
    return marked and not (isinstance(fn, FunctionType) and not fn.__globals__.get("__name__", "").startswith(_PACKAGE))


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


class without_top_mode(_C.OverrideScope):
    """The innermost mode is out of action in the block, so that its own work does not come back to it."""

    def inside(self) -> tuple:
        return dispatch.state.function_modes[:-1], dispatch.state.autocast


def _asks_classes(wrapper: Any) -> bool:
    """Within `classes_off` only proxies are asked, and by operators that make tensors from data, nobody."""
    state = dispatch.state
    asked = state.proxies > 0 or (dispatch.override_classes > 0 and not state.classes_off)
    return asked and "from_data" not in wrapper._operator.tags


def call_override(wrapper: Callable, args: tuple, kwargs: dict) -> Any:
    """What the innermost mode, or else the first willing class, or else autocast answers; NotImplemented where there is none."""
    state = dispatch.state
    if state.function_modes:
        mode = state.function_modes[-1]
        with without_top_mode():
            return mode.__torch_function__(wrapper, (), args, kwargs)
    owners = _overriding((*args, *kwargs.values())) if _asks_classes(wrapper) else ()
    if not owners:
        return casting(wrapper, args, kwargs) if state.autocast is not None and state.autocast[0].on else NotImplemented
    types = tuple(type(owner) for owner in owners)
    for kind in types:
        answer = kind.__torch_function__(wrapper, types, args, kwargs)
        if answer is not NotImplemented:
            return answer
    raise TypeError(f"no implementation found for '{wrapper.__name__}' on types that implement "
                    f"__torch_function__: [{', '.join(kind.__name__ for kind in types)}]")


# Arguments may also be called as NumPy calls them, and dtypes may be given as Python's types.
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}


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


_MARKS = {"Tensor": "__torch_function__", "int": "__index__"}
"""By annotation: the method that tells that a value may stand there."""


def _within(value: Any) -> Iterator:
    """An argument, and what it holds if it is a sequence."""
    yield value
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _within(item)


def wrong_argument(name: str, fn: Callable, args: tuple, kwargs: dict, error: Exception) -> str | None:
    """What is wrong with a call that failed, if an argument is missing, unknown, or no Tensor or int where the signature says so, or
    if it is the one that lacked an attribute."""
    signature = inspect.signature(fn)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as unbound:
        return f"{name}(): {unbound}; it is called as {name}{signature.replace(return_annotation=signature.empty)}"
    for position, (key, parameter) in enumerate(signature.parameters.items(), 1):
        mark, found = _MARKS.get(parameter.annotation), given.get(key)
        if mark and key in given and not hasattr(type(found), mark) and found is not parameter.default:
            return f"{name}(): argument '{key}' (position {position}) must be {parameter.annotation}, not {type(found).__name__}"
    if isinstance(error, AttributeError):
        for position, (key, parameter) in enumerate(signature.parameters.items(), 1):
            for value in _within(given.get(key, parameter.default)):
                if value is error.obj and value is not parameter.default and not (
                        isinstance(value, Tensor) and hasattr(Tensor, str(error.name))):
                    return (f"{name}(): argument '{key}' (position {position}) cannot be {type(value).__name__}: it has no "
                            f"{error.name}; the argument is {parameter.annotation}")
    return None


def operator(fn: Callable | None = None, *, name: str | None = None, method: bool | str | Sequence[str] = False,
             vjp: Callable | Derivative | None = None, lowering: str | None = None, fused: bool = False,
             tags: Iterable[str] = (), batch: batching.Rule | None = None, flops: Flops | None = None) -> Any:
    """Register a typed function over primitives and operators as an operator.

    Tagged "view", it answers with a view of its first argument that depends on the layout and constant arguments alone;
    tagged "views", with several. Tagged "from_data", it takes data of any library, whose class is not asked for an override.
    `method`: also a method of Tensor (True: under its own name; or the names). `vjp(g, ...)`: a cheaper gradient than the
    body's, with `Rule` parameter names, giving a tuple with an entry per tensor parameter, or a `Derivative` with a rule for each
    input, of which only those that are wanted save something. `lowering`: the name under which
    inductor keeps the operator whole. `fused`: ask for a generated kernel in eager. `batch`: how one with such a facet computes a
    batch as a whole (`batching.py`), where its body would be slower. `flops`: what it costs, where that is not the sum of its steps.
    """
    if fn is None:
        return functools.partial(operator, name=name, method=method, vjp=vjp, lowering=lowering, fused=fused, tags=tags,
                                 batch=batch, flops=flops)
    body = fn
    op_name = name or fn.__name__
    if vjp is not None or lowering is not None or fused:
        body = _with_facets(op_name, fn, _derivative(vjp), lowering, fused)
        record = COMPOSITES[op_name]
        record.answers_views, record.batch, record.flops = "views" in tags, batch, flops
    if "view" in tags:
        body = _remembering(body)
    state = dispatch.state
    names = set(inspect.signature(fn).parameters)
    into_out = None if "inplace" in tags else vars(fn).get("into_out")  # with_out's mark
    aliases = {alias: real for alias, real in NUMPY_NAMES.items() if real in names and alias not in names}

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            _translate(op_name, kwargs, aliases)
        try:
            if (dispatch.override_classes or state.overrides) and (answer := call_override(wrapper, args, kwargs)) is not NotImplemented:
                return answer
            if kwargs and into_out is not None and (out := kwargs.pop("out", None)) is not None:
                return into_out(body(*args, **kwargs), out)
            return body(*args, **kwargs)
        except (AttributeError, TypeError) as error:
            _tell_wrong_argument(op_name, fn, args, kwargs, error)
            raise
        except IndexError as error:
            if str(error) != "tuple index out of range":
                raise
            shapes = [list(a.shape) for a in args if isinstance(a, Tensor)]
            raise RuntimeError(f"{op_name}() expects tensors of more dimensions, got shapes {shapes}") from error

    if into_out is not None:
        plain = inspect.signature(fn)
        last = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
        rest = list(plain.parameters.values())
        at = len(rest) - (rest[-1].kind is inspect.Parameter.VAR_KEYWORD)
        wrapper.__signature__ = plain.replace(parameters=[*rest[:at], last, *rest[at:]])  # type: ignore[attr-defined]
    methods = (op_name,) if method is True else (method,) if isinstance(method, str) else tuple(method or ())
    wrapper._plain = body  # type: ignore[attr-defined]
    wrapper._operator = OperatorInfo(  # type: ignore[attr-defined]
        op_name, fn, _derivative(vjp), lowering, fused, methods, frozenset(tags))
    for m in methods:
        setattr(Tensor, m, as_dunder(wrapper, m) if m.strip("_") in _BINARY and m.startswith("__") else wrapper)
    return _register(OPERATORS, op_name, wrapper)


_BINARY = frozenset(
    {f"{kind}{name}" for kind in ("", "r", "i") for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and",
                                                             "or", "xor", "lshift", "rshift")} | {"lt", "le", "gt", "ge", "eq", "ne"}
)


_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def as_dunder(fn: Callable, name: str) -> Callable:
    """The operator as the method `__name__` of Python's `+`, `==` ...: NotImplemented, so that the other object is asked, instead of
    a TypeError for an operand that is neither a tensor nor a number. Arrays are compared as tensors; they compute as arrays, by
    NumPy's promotion, and give a tensor."""
    body, state = fn._plain, dispatch.state  # type: ignore[attr-defined]
    plain = name.strip("_")
    reflected = getattr(python_operator, f"__{plain[1:]}__", None) if plain.startswith("r") and plain != "rshift" else None

    @functools.wraps(fn)
    def dunder(self: Tensor, other: Any) -> Any:
        try:
            if (dispatch.override_classes or state.overrides) and (answer := call_override(fn, (self, other), {})) is not NotImplemented:
                return answer
            return body(self, other)
        except TypeError:
            if isinstance(other, (Tensor, Number, np.generic)) or type(other).__name__ in ("SymInt", "SymFloat", "SymBool"):
                raise
            if not isinstance(other, np.ndarray):
                return NotImplemented
        if plain in _COMPARISONS:
            return fn(self, OPERATORS["tensor"](other, device=self.device))
        return NotImplemented if reflected is None else OPERATORS["as_tensor"](reflected(other, self.numpy()), device=self.device)

    return dunder


def _remembering(fn: Callable) -> Callable:
    """A view operator that looks only once at the same layout with the same arguments."""
    memo: dict[tuple, tuple] = {}
    known, enter = _C.remembered_view, _C.remember_view

    @functools.wraps(fn)
    def body(input: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            return fn(input, *args, **kwargs)
        out = known(memo, input, args)
        if out is NotImplemented:
            out = fn(input, *args)
            enter(memo, input, args, out)
        return out

    return body


class CompositeRecord:
    """What the ladder sees of an operator with a gradient or kernel of its own; reads like a Primitive."""

    kind = "operator"
    answers_views = False  # which stay views when it is recorded as a whole
    batch: batching.Rule | None = None
    vmap: Callable | None = None
    flops: Flops | None = None

    def __init__(self, name: str, fn: Callable, derivative: Derivative | None, lowering: str | None, fused: bool):
        self.name, self.fn, self.lowering, self.fused = name, fn, lowering, fused
        self.params = tuple(inspect.signature(fn).parameters)
        self.signature = inspect.signature(fn)
        self.defaults = tuple(p.default for p in self.signature.parameters.values())
        self.tensor_positions = tuple(range(len(self.params)))
        self.derivative = derivative
        self.tags = frozenset({"operator"})
        self.kernels: dict[str, Callable] = {}
        self.whole: dict[str, Callable[[tuple], bool]] = {}
        self.replayed = replayed(fn) if fused else None  # for small tensors
        self.launched: _C.GpuPrograms | None = None
        self.__name__ = name

    def stays_whole(self, args: tuple) -> bool:
        """Whether a graph of primitives keeps a call as one node: for inductor's own lowering, or for the device's kernel."""
        if self.lowering is not None or not self.whole:
            return self.lowering is not None
        rule = self.whole.get(_first_tensor(args).device.type)
        return rule is not None and rule(args)

    def has_kernel(self, device: str, kernel: Callable, stays_whole: Callable[[tuple], bool]) -> None:
        """Add a kernel that compiled code calls too, where `stays_whole(args)`, as it is faster there than code made of the
        body."""
        self.kernels[device], self.whole[device] = kernel, stays_whole

    def __repr__(self) -> str:
        return f"ops.{self.name}"

    def __reduce__(self) -> tuple:
        return composite_named, (self.name,)

    def __call__(self, *args: Any) -> Any:
        return dispatch.call(self, args)

    def run(self, args: tuple) -> Any:
        """A library or generated kernel if there is one for these arguments, else the body."""
        if not dispatch.state.word:
            if self.launched is not None:
                out = self.launched(args)
                if out is not NotImplemented:
                    return out
            if self.replayed is not None and "cpu" not in self.kernels:
                out = self.replayed(args)
                if out is not NotImplemented:
                    return out
        if not dispatch.state.word and not _is_fake(args):
            kernel = self.kernels.get(_first_tensor(args).device.type)
            if kernel is not None:
                one_device(args, self.name)
                out = kernel(*[_array_of(a) for a in args])
                if out is not NotImplemented:
                    where = _first_tensor(args).device
                    return tuple([_as_tensor(o, where) for o in out]) if type(out) is tuple else _as_tensor(out, where)
            if self.fused and generated_operator is not None and _first_tensor(args).device.type == "cpu":
                out = generated_operator(self, args)
                if out is not NotImplemented:
                    return out
        with dispatch.grad_enabled(False):
            return self.fn(*args) if dispatch.state.modes or self.answers_views else _standalone(self.fn(*args), args)


def _as_tensor(out: Any, where: Any) -> Tensor:
    return from_array(np.asarray(out) if where.type == "cpu" else out, None, where)


COMPOSITES: dict[str, CompositeRecord] = {}


def composite_named(name: str) -> CompositeRecord:
    """The record of an operator with facets of its own."""
    return COMPOSITES[name]


def _derivative(vjp: Callable | Derivative | None) -> Derivative | None:
    return vjp if vjp is None or isinstance(vjp, Derivative) else General(vjp)


def _with_facets(name: str, fn: Callable, derivative: Derivative | None, lowering: str | None, fused: bool) -> Callable:
    record = COMPOSITES[name] = CompositeRecord(name, fn, derivative, lowering, fused)
    defaults, positions, count = record.defaults, record.tensor_positions, len(record.params)

    def body(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) > count:
            args = _positional(record, args, kwargs)
        elif len(args) < count:
            args = args + defaults[len(args):]
            if inspect.Parameter.empty in args[len(args) - count:]:
                record.signature.bind(*args[:count])
        if record.launched is not None:
            out = record.launched.quick(args)
            if out is not NotImplemented:
                return out
        if record.derivative is None and (
                (dispatch.state.grad_enabled and _C.any_wants_grad(args, positions))
                or not (fused or dispatch.state.modes or record.kernels)):
            return fn(*args)
        return dispatch.call(record, args)

    body._composite = record  # type: ignore[attr-defined]
    body.__name__ = name
    return body


def _standalone(out: Any, args: tuple) -> Any:
    """Results of a body run without autograd: a view of a temporary is a tensor of its own, so that it can be written in place."""
    for o in out if type(out) is tuple else (out,):
        if isinstance(o, Tensor) and o._view is not None and not any(o._view.base is a for a in args):
            o._view = None
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
        for n in names or (fn.__name__,):
            setattr(Tensor, n, _refusing(n, fn) if takes_others else fn)
        return fn
    return add


def _tell_wrong_argument(name: str, fn: Callable, args: tuple, kwargs: dict, error: Exception) -> None:
    """TypeError for a call that failed, if `wrong_argument` knows what is wrong with it."""
    wrong = wrong_argument(name, fn, args, kwargs, error)
    if wrong is not None:
        raise TypeError(wrong) from None


def _refusing(name: str, fn: Callable) -> Callable:
    """A method that says which of its arguments is wrong, as operators do."""
    @functools.wraps(fn)
    def refusing(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except (AttributeError, TypeError) as error:
            _tell_wrong_argument(name, fn, args, kwargs, error)
            raise
    return refusing


__all__ = ["Spec", "Pointwise", "Linear", "General", "Rule", "Primitive", "pointwise", "view", "primitive", "operator", "method",
           "PRIMITIVES", "OPERATORS", "COMPOSITES", "is_operator"]
