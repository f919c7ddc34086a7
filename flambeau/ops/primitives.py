"""Records of primitives, with every facet side by side, and how they run on tensors.

A primitive is registered by `pointwise(...)`, `view(...)` or `primitive(...)`. Registering a name twice is an error that names both
places. `docs/interfaces.md` describes the facets.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from flambeau import _C

from ..backends.cpu import native
from ..core import dispatch
from ..core.device import at, elsewhere, enter_gpu
from ..core.dtypes import COMPLEX, FLOAT, dtype
from ..core.locks import cached_property
from ..core.scalar import FOLDS, TABLE, Fold, compares, evaluate
from ..core.size import channels_last_strides, elementwise_strides, is_contiguous, looks_channels_last, plain_numbers, telling
from ..core.tensor import Layout, Tensor, ViewPath, element_strides, fake, from_array, is_example, laid_out, view_tensor
from ..core.unresolved import resolved, seen, waits
from . import batching
from .derivatives import Derivative, Pointwise
from .replay import SMALL, may_be_replayed, replayed


class Spec(NamedTuple):
    """What a shape rule answers: the layout and dtype of an output. `strides` None means contiguous."""

    shape: tuple
    dtype: dtype
    strides: tuple | None = None
    offset: Any = 0


class Refused(NamedTuple):
    """What a primitive does not take, whatever the sizes and whoever runs it: tensors of these categories."""

    categories: range
    why: str
    empty: bool = True     # not even where there is nothing to compute

    def check(self, record: Any, args: tuple) -> None:
        """NotImplementedError where one of the arguments is such a tensor."""
        for a in args:
            if isinstance(a, Tensor) and a.dtype.category in self.categories and (self.empty or 0 not in a._layout.shape):
                raise NotImplementedError(f'"{record.name}_cpu" not implemented for \'{a.dtype}\': {self.why}')


NO_ORDER = Refused(range(COMPLEX, COMPLEX + 1), "complex numbers have no order", empty=False)
NO_BITS = Refused(range(FLOAT, COMPLEX + 1), "bitwise operations take integers and bools")
NO_FRACTIONS = Refused(range(FLOAT), "it takes floating-point tensors")


class InAten(NamedTuple):
    """How a step is called in ATen, where it isn't by the record's own name and arguments."""

    name: str | Callable[..., str] = ""
    call: Callable[..., tuple[str, tuple, dict] | None] | bool = False     # its (operator, args, kwargs); True: of these arguments
    steps: Callable[..., Any] | None = None     # `steps(call, *args)`: what calls of overloads make, `call("name", *args, **kwargs)`
    node: str | Callable[..., str] = ""     # its node on the tape, where that isn't called by `name`: `sum.1` is SumBackward1


def node_name(record: Any, args: tuple) -> str:
    """What the node of a recorded call is called, as PyTorch spells it: `NativeLayerNormBackward0`."""
    told = record.aten.node or record.aten.name or record.name
    return spelt(told if isinstance(told, str) else told(*args))


@functools.cache
def spelt(told: str) -> str:
    """A step of ATen as nodes are called: `sum.1` is SumBackward1, `view_copy` with a mark ViewBackward0_copy."""
    base, _, number = told.partition(".")
    return f"{base.replace('_', ' ').title().replace(' ', '')}Backward{number or 0}"


def told_by_dimensions(name: str) -> InAten:
    """Of a reduction: its first form reduces all dimensions, its second some."""
    return InAten(node=lambda x, dims, *_: name if len(dims) == x.ndim else f"{name}.1")


EFFECTS = frozenset({"refuses_values", "communicates"})
"""Tags of what a call does beside computing results, which stays in a graph though nobody reads those: it raises an error for what is in
some tensors, or other processes take part in it."""


def has_effect(record: Any, tensors: int) -> bool:
    """Whether a call of a record with so many tensors does more than to compute. A view that a second tensor tells the place of may not fit."""
    tags: frozenset[str] = getattr(record, "tags", frozenset())
    return not EFFECTS.isdisjoint(tags) or (tensors > 1 and "view" in tags)


NO_CALL = InAten(call=lambda *args: None)
Flops = Callable[..., int]
"""Multiplications and additions of a call: a function of the result's shape and the arguments, shapes in the places of tensors."""


class Primitive:
    """A record of the op table, callable on tensors. Never broadcasts, never promotes."""

    vmap: Callable | None = None    # the program's own batching rule, for its own operators
    sharding: str | Callable | None = None  # which dimensions may be split over processes, where that doesn't follow from `loop`
    flops: Flops | None = None
    aten = InAten()
    library = ""        # the family of calls (inductor/library) that compute it in graphs
    promises = True     # of a class itself: its calls are the shape rule's answer and the kernel, which native code may call

    def __init__(self, name: str, shape: Callable, *, kernel: Callable | None = None, loop: Any = None,
                 derivative: Derivative | None = None, tags: Iterable[str] = (), batch: batching.Rule = batching.by_names,
                 samples: Callable | None = None, doc: str = "", kind: str = "general", tensors: int | None = None,
                 why_absent: dict[str, str] | None = None, scalar: _C.Elementwise | None = None, small: str | None = None,
                 views: bool = False):
        self.name, self.shape, self.loop, self.derivative = name, shape, loop, derivative
        self.kind, self.tags, self.batch, self.samples, self.__doc__ = kind, frozenset(tags), batch, samples, doc
        self.kernels: dict[str, Callable] = {} if kernel is None else {"cpu": kernel}
        self.why_absent = why_absent or {}
        self.params = tuple(inspect.signature(shape).parameters)
        self.tensors = 1 if tensors is None else tensors
        self.tensor_positions = tuple(range(self.tensors))
        self.fold: Fold | None = FOLDS.get(loop) if type(loop) is str else None
        # what native code makes of a call
        self.eager = _C.Eager(scalar, replayed(self) if may_be_replayed(self) else None, self, small, views,
                              "promises" in vars(type(self)))
        self.refuses = NO_ORDER if "ordered" in self.tags or (callable(loop) and compares(loop, len(self.params))) else None
        self.__name__ = self.__qualname__ = name
        self.__module__ = "flambeau.ops.prims"

    @cached_property
    def __signature__(self) -> inspect.Signature:
        return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.params])

    def __repr__(self) -> str:
        return f"prims.{self.name}"

    def __reduce__(self) -> tuple:
        return primitive_named, (self.name,)

    def __deepcopy__(self, memo: dict) -> Primitive:
        return self

    def __call__(self, *args: Any) -> Any:
        out = self.eager(*args)
        if out is not NotImplemented:
            return out
        state = dispatch.state
        if state.word:
            return dispatch.call(self, args)
        if state.grad_enabled and dispatch.needs_grad(self, args):
            return dispatch.record(self, args)
        return self.run(args)

    def specs(self, args: tuple) -> Any:
        """The shape rule's answer for these arguments: a Spec or a tuple of them."""
        return self.shape(*args)

    def promise(self, args: tuple) -> Any:
        """What the shape rule says of such arguments on the CPU (None: this is not for native code); it and what is refused raise here."""
        specs = self.shape(*args)
        if self.refuses is not None:
            self.refuses.check(self, args)
        return specs

    def run(self, args: tuple) -> Any:
        """The kernel, or for fake tensors the shape rule. Nothing of autograd or modes."""
        out = self.eager.below(args)
        if out is not NotImplemented:
            return out
        if enter_gpu and (there := elsewhere(first_tensor(args).device)) is not None:
            with there:
                return self.run(args)
        return self.computed(args)

    def computed(self, args: tuple) -> Any:
        """`run` where no native program answers, on the current GPU if it is one's."""
        specs = self.promise(args)
        first, arrays, pretend = None, [], dispatch.state.fake
        one_device(args, self.name)
        for a in args:
            if isinstance(a, Tensor):
                first = a if first is None else first
                pretend = pretend or a._data is None
                arrays.append(resolved(a._data))
            elif type(a) in (tuple, list):
                pretend = pretend or _is_fake_any(a)
                arrays.append(array_of(a))
            else:
                arrays.append(a)
        if first is None:
            first = first_tensor(args)
        if pretend:
            return _fake_outputs(self, args, specs, first)
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
    """An elementwise primitive: tensors of one shape; Python numbers may stand for any but one of them."""

    def computed(self, args: tuple) -> Any:
        if self.refuses is not None:
            self.refuses.check(self, args)
        arrays = []
        first: Any = None
        for a in args:
            if isinstance(a, Tensor):
                data = a._data
                if data is None or dispatch.state.fake:
                    return _fake_outputs(self, args, self.shape(*args), first_tensor(args))
                if first is None:
                    first = a
                    shape = data.shape
                elif data.shape != shape or a.device != first.device:
                    self.shape(*args)  # raises
                arrays.append(resolved(data))
            else:
                arrays.append(a)
        on_cpu = first.device.type == "cpu"
        out = compiled(self, *arrays) if on_cpu else NotImplemented
        if out is NotImplemented:
            kernel = self.kernels.get(first.device.type) or kernel_for(self, first.device)
            try:
                out = kernel(*arrays)
            except TypeError as error:
                raise _no_kernel(self, args, error) from None
        if on_cpu:
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
    """A primitive whose output shares its input's memory: the shape rule's layout is all there is to compute.

    `turns`: whether the elements are seen conjugated, and negated (core/unresolved.py); `copies`: the primitive that graphs and other
    devices than the CPU, which hold no such views, have in its place.
    """

    turns = (False, False)
    copies: str = ""

    def run(self, args: tuple) -> Any:
        spec = self.shape(*args)
        if (out := dispatch.ask(self, args)) is not NotImplemented:
            return out
        if any(self.turns) and args[0].device.type != "cpu":
            return PRIMITIVES[self.copies].run(args)
        conj, neg = (a is not b for a, b in zip(waits(args[0]._data), self.turns))
        if conj and not spec.dtype.is_complex:
            raise RuntimeError(f"{self.name} of a conjugate view is not supported: its memory holds imaginary parts with the other sign; "
                               "call resolve_conj() first")
        out = NotImplemented if conj or neg or any(self.turns) else _C.tensor_view(self, args, spec)
        if out is not NotImplemented:
            return out
        if any(isinstance(n, np.integer) for n in (*spec.shape, *spec.strides, spec.offset)):
            return self.run((args[0], *plain_numbers(args[1:])))
        base = args[0]
        if dispatch.state.fake and base._data is not None:
            base = fake(base._layout.shape, base.dtype, base.device, base._layout.strides, base._layout.offset)
        out = view_tensor(base, spec.dtype, Layout(spec.shape, spec.strides, spec.offset))
        if out._data is not None and (conj or neg):
            out._data = seen(out._data, conj, neg)
        source = args[0]
        step = (self, args[1:])
        root, chain, _, origin = source._view or ViewPath(source, ())
        origin = origin or (None if dispatch.state.grad_enabled else "no_grad")
        out._view = ViewPath(root, (*chain, step), 0 if root._grad is None else root._grad.generation, origin)
        return out


def waiting(x: Tensor) -> tuple[bool, bool]:
    """Whether a conjugation, and whether a sign, waits in a tensor: as its array says, or how the view of one without data came about."""
    if is_example(x):
        return waiting(x._store.values)     # type: ignore[union-attr]
    if x._data is not None or x._view is None:
        return waits(x._data)
    turns = [prim.turns for prim, _ in x._view.chain]
    return sum(conj for conj, _ in turns) % 2 == 1, sum(neg for _, neg in turns) % 2 == 1


class Generated:
    """Slots that the compiler fills: generated kernels for eager calls."""

    cpu: Callable[[Callable, tuple], Any] | None = None
    """-> what a function of tensors makes of arrays, or NotImplemented where it should make it itself."""
    gpu: Callable[[Any, Sequence[Any]], Any] | None = None
    """-> what a call comes to on a GPU: _C.GpuProgram or None."""


generated = Generated()


def compiled(fn: Callable, *args: Any) -> Any:
    """What the generated kernel of `fn`, a function of tensors over primitives, makes of these arrays and other arguments; NotImplemented
    where none is worth its while, as the arrays are small, or there is none."""
    if generated.cpu is None or max([a.size for a in args if type(a) is np.ndarray], default=0) <= SMALL:
        return NotImplemented
    return generated.cpu(fn, args)


def on_gpu(record: Any, args: Sequence[Any]) -> Any:
    """The program of generated kernels for such a call on a GPU, or None."""
    return None if generated.gpu is None else generated.gpu(record, args)


def first_tensor(args: Sequence) -> Tensor:
    for a in args:
        if isinstance(a, Tensor):
            return a
        if type(a) in (tuple, list):
            for item in a:
                if isinstance(item, Tensor):
                    return item
    raise TypeError(f"expected at least one Tensor among the arguments, got {[type(a).__name__ for a in args]}")


def read(t: Tensor, *methods: str) -> tuple:
    """What these methods of its array come to (`read(t, "min", "max")`), for checks of what it holds; () if it is fake, or empty."""
    if t._data is None or not t._data.size:
        return ()
    with at(t.device):
        return tuple([getattr(t._data, method)().item() for method in methods])


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


def is_fake(args: Sequence) -> bool:
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


def array_of(a: Any) -> Any:
    if isinstance(a, Tensor):
        return resolved(a._data)
    if type(a) in (tuple, list) and any(isinstance(item, Tensor) for item in a):
        return [array_of(item) for item in a]
    return a


def _wrap(out: Any, spec: Spec, where: Any) -> Tensor:
    if spec.shape[:1] == _UNKNOWN:
        return from_array(out, spec.dtype, where)
    if where.type == "cpu" and (type(out) is not np.ndarray or (spec.strides is None and not out.flags.c_contiguous)):
        out = np.asarray(out, order="C")  # NumPy keeps its inputs' memory order where it can; the shape rule decides here
    if where.type == "cpu" and spec.strides is not None:
        out = _in_order(out, spec.strides)
    return laid_out(out, spec.dtype, spec.strides, where)


_UNKNOWN = (-1,)    # the size of what hangs on the values; such a kernel decides the memory order too
_C.know_kernels(Spec, _wrap)


def _fake_outputs(prim: Primitive, args: tuple, specs: Any, like: Tensor) -> Any:
    if (out := dispatch.ask(prim, args)) is not NotImplemented:
        return out
    if type(specs) is tuple:
        return tuple(pretended(s, like.device) for s in specs)
    return pretended(specs, like.device)


def pretended(spec: Spec, where: Any) -> Tensor:
    """The fake tensor that a shape rule answers. TypeError where a size is a tensor, which operators then read (`with_numbers`)."""
    if Tensor in map(type, spec.shape):
        raise TypeError(f"sizes are ints, got {spec.shape}")
    return fake(spec.shape, spec.dtype, where, spec.strides, spec.offset)


PRIMITIVES: dict[str, Primitive] = {}
_WHERE: dict[str, str] = {}


def primitive_named(name: str) -> Primitive:
    """The primitive called `name`; KeyError if there is none."""
    return PRIMITIVES[name]


def register(table: dict, name: str, record: Any) -> Any:
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
    shape = tensors[0]._layout.shape
    operands = telling(shape, [t._layout.strides for t in tensors])
    if all(is_contiguous(shape, strides) for strides in operands):
        return None
    strides = elementwise_strides(shape, operands)
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


def _native(operation: str | None) -> _C.Elementwise | None:
    """The native loop of a scalar operation, if there is one."""
    try:
        return None if operation is None else _C.Elementwise(operation)
    except ValueError:
        return None


def pointwise(name: str, loop: Callable, *, result: Any = None, kernel: Callable | None = None,
              d: dict[str, Any] | None = None, tensors: int | None = None, samples: Callable | None = None,
              tags: Iterable[str] = (), doc: str = "", why_absent: dict[str, str] | None = None, aten: InAten = InAten()) -> Primitive:
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
        kind="pointwise", tensors=len(params) if tensors is None else tensors, why_absent=why_absent,
        scalar=_native(operation))
    record.params, record.aten = params, aten
    if operation is not None and (TABLE[operation].of_bits or TABLE[operation].of_fractions):
        record.refuses = NO_BITS if TABLE[operation].of_bits else NO_FRACTIONS
    return register(PRIMITIVES, name, record)


def view(name: str, *, derivative: Derivative, loop: Callable | str | None = None, samples: Callable | None = None,
         tags: Iterable[str] = (), batch: batching.Rule = batching.by_names, sharding: str | Callable | None = None,
         why_absent: dict[str, str] | None = None, aten: InAten = InAten()) -> Callable[[Callable], Any]:
    """Decorate a shape rule that answers with strides and offset: registers a view primitive. `sharding`: as for `primitive`."""
    def add(shape: Callable) -> Primitive:
        record = ViewPrimitive(name, shape, loop=loop, derivative=derivative, batch=batch, samples=samples, doc=shape.__doc__ or "",
                               tags={"view", "recomputable", "linear", *tags}, kind="view", why_absent=why_absent, views=True)
        record.sharding, record.aten = sharding, aten
        return register(PRIMITIVES, name, record)
    return add


def primitive(name: str, *, kernel: Callable | None = None, loop: Any = None, derivative: Derivative | None = None,
              tags: Iterable[str] = (), tensors: int = 1, batch: batching.Rule = batching.by_names, samples: Callable | None = None,
              why_absent: dict[str, str] | None = None, doc: str = "", flops: Flops | None = None, library: str = "",
              sharding: str | Callable | None = None, aten: InAten = InAten(), small: str | None = None) -> Callable[[Callable], Any]:
    """Decorate a shape rule: registers a primitive whose first `tensors` parameters are tensors (or lists of them). `small`: the name of
    a library's call in native code, for small tensors on the CPU (csrc/products.cpp). `library`: see Primitive.

    `sharding`: a letter for each dimension, "nk,km->nm", * for those that are needed whole; or a function of the arguments that
    gives `distributed.tensor.rules.Axis`es as (dimensions of the tensors, dimension of the result, reduction, which tensors add up).
    """
    def add(shape: Callable) -> Primitive:
        record = Primitive(name, shape, kernel=kernel, loop=loop, derivative=derivative, tags=tags, tensors=tensors,
                           batch=batch, samples=samples, doc=doc or shape.__doc__ or "", why_absent=why_absent, small=small)
        record.flops, record.sharding, record.aten, record.library = flops, sharding, aten, library
        return register(PRIMITIVES, name, record)
    return add
