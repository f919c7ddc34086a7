"""Operators that programs define themselves (`torch.library`), by namespace: `torch.ops.NAMESPACE.NAME`.

Each is a primitive of its own: the user's function is its kernel, the registered fake function its shape rule, the
registered backward its derivative. So eager, autograd and capture treat it as they treat every primitive.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..core import dispatch
from ..core.dtypes import int32
from ..core.schema import FunctionSchema
from ..core.tensor import Tensor, bump_version, fake, from_array, refuse_inference_write
from . import batching
from .absent import absent_operator
from .registry import OPERATORS, General, Primitive, Spec, call_override

_below: list[CustomOperator] = []
"""Operators whose functions for autograd are at work: what these call is the operator itself."""


fake_collectives = [0]
"""How many operators in which other processes take part were run on tensors without elements."""

shapes_of: list[tuple[CustomOperator, tuple]] = []
"""Operators whose functions of shapes are at work, with their arguments."""


@contextlib.contextmanager
def _asked_for_shapes(operator: CustomOperator, values: Any) -> Iterator[None]:
    shapes_of.append((operator, tuple(values)))
    try:
        yield
    finally:
        shapes_of.pop()


def _above(operator: CustomOperator, fn: Callable, *args: Any, **kwargs: Any) -> Any:
    _below.append(operator)
    try:
        return fn(*args, **kwargs)
    finally:
        _below.pop()


class CustomOperator:
    """One operator `namespace::name`, callable with its function's own arguments."""

    tags = frozenset({"custom"})

    _overloadname = "default"

    def __init__(self, schema: FunctionSchema, signature: inspect.Signature, mutates: tuple[str, ...]) -> None:
        self._schema, self.qualname, self.signature, self.mutates = schema, schema.name, signature, mutates
        self.namespace, _, self.__name__ = schema.name.partition("::")
        self.kernels: dict[str, Callable] = {}
        self.differentiated: dict[str, Callable] = {}    # by device: what is called in the operator's place, and calls it in turn
        self.begin: Callable | None = None      # what begins it: (results, a function that waits until they are there)
        self.together: Callable | None = None   # the results of several calls: a function of a list of inputs and their other arguments
        self.fake: Callable | None = None
        self.makes_new = False      # whether all results have memory of their own, which is seen to
        self.autocast: dict[str, Any] = {}      # within autocast: device type -> dtype, or a function in the operator's place
        self.names = tuple(signature.parameters)
        self.primitive = self._make_primitive()
        self.default = self
        self._operator = self  # one node in a captured graph
        self._event = schema.name   # in profiles

    def __repr__(self) -> str:
        return f"<custom operator {self.qualname}{self.signature}>"

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}.default"

    def mark(self, tag: str) -> None:
        """Add a tag (docs/interfaces.md)."""
        self.tags = self.primitive.tags = self.tags | {tag}

    @property
    def overloadpacket(self) -> CustomOperator:
        """The operator, which has one overload."""
        return self

    _overloadpacket = overloadpacket

    def overloads(self) -> list[str]:
        """The names of its overloads."""
        return ["default"]

    def name(self) -> str:
        """`namespace::name`."""
        return self.qualname

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if dispatch.override_classes or dispatch.state.overrides:
            answer = call_override(self, args, kwargs)
            if answer is not NotImplemented:
                return answer
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = tuple(bound.arguments[name] for name in self.names)
        implicit = self._implicit(values)
        if implicit is not None:
            positional, keyword = self._call_arguments(values)
            return implicit(*positional, **keyword)
        if self.mutates:
            return self._in_place(values, bound.arguments)
        return self.primitive(*values)

    def _implicit(self, values: tuple) -> Callable | None:
        """A function made of other operators, whose gradients are the operator's; None where it has a kernel or gradient of its own."""
        if self.differentiated and self not in _below:
            where = next((v.device.type for v in values if isinstance(v, Tensor)), "cpu")
            above = self.differentiated.get(where) or self.differentiated.get("any")
            if above is not None:
                return functools.partial(_above, self, above)
        where = next((v.device.type for v in values if isinstance(v, Tensor)), "cpu")
        own = where in self.kernels or "any" in self.kernels or self.primitive.derivative is not None
        return None if own else self.kernels.get("implicit")

    def _in_place(self, values: tuple, arguments: Any) -> Any:
        """Run an operator that writes to its arguments; those of them that need a gradient are refused."""
        written = [arguments[name] for name in self.mutates if isinstance(arguments[name], Tensor)]
        if dispatch.state.grad_enabled and any(t.requires_grad for t in written):
            raise NotImplementedError(f"{self.qualname} writes to a tensor that requires grad; define it to return a new tensor instead")
        for tensor in written:
            refuse_inference_write(tensor)
        with dispatch.grad_enabled(False):
            out = self._computed(values)
        for tensor in written:
            bump_version(tensor)
        return out

    def _call_arguments(self, values: tuple) -> tuple[list, dict]:
        """Positional and keyword-only arguments for the user's functions."""
        positional, keyword = [], {}
        for (name, parameter), value in zip(self.signature.parameters.items(), values):
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                keyword[name] = value
            else:
                positional.append(value)
        return positional, keyword

    def _kernel_for(self, values: tuple) -> Callable:
        where = next((v.device.type for v in values if isinstance(v, Tensor)), "cpu")
        kernel = self.kernels.get(where) or self.kernels.get("any") or self.kernels.get("implicit")
        if kernel is None:
            raise NotImplementedError(f"{self.qualname}: no kernel for device '{where}'; register one for it (there "
                                      f"are kernels for {sorted(self.kernels)})")
        return kernel

    def _computed(self, values: tuple) -> Any:
        """What the operator's function makes of its arguments. RuntimeError where that is memory of an argument, or twice the same: what
        was compiled would go by results of their own."""
        positional, keyword = self._call_arguments(values)
        out = self._kernel_for(tuple(_flat(values)))(*positional, **keyword)
        if self.makes_new:
            seen = _memories(values)
            for place, memory in enumerate(_memories(out if type(out) in (list, tuple) else (out,))):
                if memory in seen:
                    raise RuntimeError(f"{self.qualname}: result {place} of this custom operator must not also be an input to it, a view "
                                       "of one or of another result; return a clone of it, or write the function outside of an operator")
                seen.append(memory)
        return out

    # -- the primitive ------------------------------------------------------------------------------------
    def _make_primitive(self) -> _CustomPrimitive:
        bare = inspect.Signature(_positional(self.names))

        def shape(*values: Any) -> Any:
            return self._specs(values)

        shape.__signature__ = bare  # type: ignore[attr-defined]
        return _CustomPrimitive(self, shape)

    def _specs(self, values: tuple) -> Any:
        if self.fake is None:
            raise NotImplementedError(f"{self.qualname} was called on tensors without data (a compiled graph is traced "
                                      "with them), but has no function for their shapes; add one with "
                                      f"torch.library.register_fake({self.qualname!r})")
        stand_ins = [_without_data(v) for v in values]
        positional, keyword = self._call_arguments(tuple(stand_ins))
        with dispatch.fake_mode(), _asked_for_shapes(self, values):
            return _specs_of(self.fake(*positional, **keyword))

    def set_backward(self, backward: Callable, setup_context: Callable | None, context: Callable[[], Any]) -> None:
        """Let `backward(ctx, *grads)` be the gradient; `setup_context(ctx, inputs, output)` runs after the operator."""

        def setup(inputs: tuple, outs: tuple) -> Any:
            ctx = context()
            ctx.needs_input_grad = tuple(isinstance(v, Tensor) and v.requires_grad for v in inputs)
            ctx._results = tuple((tuple(o.shape), o.dtype) if isinstance(o, Tensor) else None for o in outs)
            if setup_context is not None:
                plain, keyword = self._call_arguments(inputs)
                with dispatch.grad_enabled(False):
                    setup_context(ctx, tuple(plain), outs if len(outs) > 1 else outs[0],
                                  **({"keyword_only_inputs": keyword} if keyword else {}))
            return ctx

        def vjp(gs: tuple, context: list) -> tuple:
            ctx, *kept = context
            ctx._to_save = tuple(kept)
            try:
                answer = backward(ctx, *_dense(gs, ctx._results))
            finally:
                ctx._to_save = ()
            return answer if isinstance(answer, tuple) else (answer,)

        self.primitive.setup_context = setup
        self.primitive.derivative = General(vjp)


    def set_vmap(self, rule: Callable) -> None:
        """Let `rule(info, in_dims, *args, **kwargs)` compute a batch; it answers with results and where their batches are."""

        def vmap(info: Any, in_dims: tuple, *values: Any) -> Any:
            positional, keyword = self._call_arguments(values)
            if any(d is not None for d in in_dims[len(positional):]):
                raise NotImplementedError(f"{self.qualname}: vmap over a keyword-only argument is not implemented; pass it by position")
            return rule(info, in_dims[:len(positional)], *positional, **keyword)

        self.primitive.vmap = vmap


class _CustomPrimitive(Primitive):
    """The primitive behind a custom operator: its kernel works on tensors, and tensors may stand at every position."""

    def __init__(self, owner: CustomOperator, shape: Callable) -> None:
        self.setup_context: Callable[[tuple, tuple], Any] | None = None
        super().__init__(owner.qualname.replace("::", "_"), shape, kernel=self._run_kernel, tags=owner.tags,
                         tensors=len(owner.names), batch=batching.each, doc=f"The custom operator {owner.qualname}.")
        self.owner = owner

    @property
    def begin(self) -> Callable | None:
        """What begins the operator, if it can go on beside others."""
        return self.owner.begin

    @property
    def together(self) -> Callable | None:
        """What does the work of several calls by one, if that can be."""
        return self.owner.together

    def __reduce__(self) -> tuple:
        return _primitive_of, (self.owner.qualname,)

    def _run_kernel(self, *values: Any) -> Any:
        """For compiled graphs, which call kernels on arrays."""
        out = self.run(
            tuple(from_array(v) if hasattr(v, "__array_interface__") and not isinstance(v, Tensor) else v for v in values)
        )
        return tuple(t._data for t in out) if isinstance(out, tuple) else out._data

    def run(self, args: tuple) -> Any:
        if dispatch.state.fake or any(isinstance(a, Tensor) and a._data is None for a in _flat(args)):
            fake_collectives[0] += "communicates" in self.tags
            specs = self.owner._specs(args)
            where = next(a.device for a in _flat(args) if isinstance(a, Tensor))
            made = tuple(fake(s.shape, s.dtype, where, s.strides, s.offset) for s in (specs if type(specs) is tuple else (specs,)))
            return made if type(specs) is tuple else made[0]
        with dispatch.grad_enabled(False):
            return self.owner._computed(args)


def _positional(names: tuple[str, ...], prefix: str = "arg_") -> list[inspect.Parameter]:
    """Parameters for a rule of the primitive; the prefix keeps user's names apart from those that rules know (g, out, ...)."""
    return [inspect.Parameter(prefix + n, inspect.Parameter.POSITIONAL_ONLY) for n in names]


def _primitive_of(qualname: str) -> Primitive:
    namespace, _, name = qualname.partition("::")
    return getattr(NAMESPACES[namespace], name).primitive


def _flat(args: tuple) -> list:
    return [item for a in args for item in (a if type(a) in (list, tuple) else (a,))]


def _memories(values: Any) -> list:
    """The memory of the tensors among `values`, and of those in lists."""
    return [v._storage.memory for v in _flat(values) if isinstance(v, Tensor)]


def _without_data(value: Any) -> Any:
    if isinstance(value, Tensor):
        lay = value._layout
        return fake(lay.shape, value.dtype, value.device, lay.strides)
    return type(value)(_without_data(v) for v in value) if type(value) in (list, tuple) else value


def _specs_of(out: Any) -> Any:
    if isinstance(out, Tensor):
        lay = out._layout
        return Spec(lay.shape, out.dtype, lay.strides)
    return tuple(_specs_of(o) for o in out)


def _dense(gs: tuple, results: tuple) -> list:
    """Gradients of all results: zeros for those that nobody used."""
    some = next(g for g in gs if g is not None)
    return [
        some.new_zeros(spec[0], dtype=spec[1]) if g is None and spec is not None and spec[1].is_floating_point else g
        for g, spec in zip(gs, results)
    ]


class Namespace(SimpleNamespace):
    """`torch.ops.NAME`: the custom operators whose names begin with `NAME::`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        vars(self)["__name__"] = name

    def __getattr__(self, name: str) -> Any:
        found = absent_operator(self.__name__, name)
        if found is not None:
            setattr(self, name, found)
            return found
        raise AttributeError(f"'_OpNamespace' object has no attribute '{name}': no operator of that name has been defined here")


NAMESPACES: dict[str, Namespace] = {}
# What was registered for operators that are not defined (yet): qualified name -> list of functions of the operator.
PENDING: dict[str, list[Callable[[CustomOperator], None]]] = {}


def split(qualname: str) -> tuple[str, str]:
    """("namespace", "name") of "namespace::name"; ValueError for other forms."""
    namespace, separator, name = qualname.partition("::")
    if not separator or not namespace or not name:
        raise ValueError(f"expected an operator's name of the form 'namespace::name', got {qualname!r}")
    return namespace, name.partition(".")[0]


def define(schema: FunctionSchema, signature: inspect.Signature | None = None, mutates: tuple[str, ...] | None = None) -> CustomOperator:
    """Make the operator `namespace::name` and put it into its namespace. What `signature` and `mutates` don't say, the schema does."""
    namespace, name = split(schema.name)
    made = CustomOperator(schema, signature or schema.signature,
                          tuple(a.name for a in schema.arguments if a.is_write) if mutates is None else mutates)
    setattr(NAMESPACES.setdefault(namespace, Namespace(namespace)), name, made)
    for register in PENDING.pop(schema.name, ()):
        register(made)
    return made


def undefine(qualname: str) -> None:
    """Take the operator `namespace::name` out of its namespace."""
    namespace, name = split(qualname)
    vars(NAMESPACES[namespace]).pop(name, None)


def find(qualname: str) -> CustomOperator | None:
    """The operator `namespace::name`, or None."""
    namespace, name = split(qualname)
    found = getattr(NAMESPACES.get(namespace), name, None)
    return found if isinstance(found, CustomOperator) else None


def when_defined(qualname: str, register: Callable[[CustomOperator], None]) -> None:
    """Call `register(operator)` now, or when the operator comes to be defined."""
    found = find(qualname)
    if found is not None:
        register(found)
    else:
        PENDING.setdefault("::".join(split(qualname)), []).append(register)


EXTENSIONS = {
    # a library's folder: by the name of a binary in it, the module of `extensions` that has its operators
    "torchvision": {"_C": "vision", "_C_stable": "vision", "image": "images", "image_stable": "images"},
    "torchaudio": {"_torchaudio": "audio", "libtorchaudio": "audio"},
}


def _grouped(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    return OPERATORS["_grouped_mm"](input, weight, offs.to(int32))


MEANINGS: dict[str, Callable] = {"transformers::grouped_mm_fallback": _grouped}
"""Operators that libraries define in Python, by loops over data, and what the same is here: what leaves Python goes on with it."""


def load_library(path: Any) -> None:
    """Define the operators of a library's binary, if Flambeau has its own for them; OSError if not, as binaries are bound to PyTorch's
    C++ classes."""
    file = Path(path)
    name = file.name.partition(".")[0]
    module = next((EXTENSIONS[folder][name] for folder in file.parts if name in EXTENSIONS.get(folder, ())), None)
    if module is None:
        raise OSError(f"cannot load {path}: it holds operators compiled for PyTorch, which Flambeau does not run; write "
                      "them in Python with torch.library.custom_op")
    importlib.import_module(f"{__name__.partition('.')[0]}.extensions.{module}")     # it lies above this room and is reached when asked for
