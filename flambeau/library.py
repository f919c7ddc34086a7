"""torch.library: operators of one's own, which eager, autograd and torch.compile treat as a whole.

@torch.library.custom_op("mine::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.sin(x.numpy()))

@sine.register_fake
def _(x):
    return torch.empty_like(x)
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import re
import types
import typing
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ._absent import absent_names
from ._settings import _check
from .amp.autocast_mode import is_autocast_available
from .autograd.function import FunctionCtx
from .core.device import device
from .core.dtypes import dtype
from .core.lazy import LazyModule
from .core.schema import parse_schema
from .core.symbolic import unknown_size
from .core.tensor import Tensor
from .ops import custom
from .ops.custom import CustomOperator

_DEVICE_OF_KEY = {"CPU": "cpu", "CUDA": "cuda", "CompositeImplicitAutograd": "implicit", "CompositeExplicitAutograd": "any", "": "implicit"}

_AUTOGRAD_OF_KEY = {"Autograd": "any", "AutogradCPU": "cpu", "AutogradCUDA": "cuda"}

_AUTOCAST_OF_KEY = {"AutocastCPU": "cpu", "AutocastCUDA": "cuda", "AutocastXPU": "xpu", "AutocastMPS": "mps"}


class _Context(FunctionCtx):
    """The `ctx` of a custom operator's backward: what setup_context saves, it finds."""

    @property
    def saved_tensors(self) -> tuple:
        return self._to_save


class CustomOpDef:
    """What `custom_op` makes of a function: call it, or register more about it."""

    def __init__(self, operator: CustomOperator) -> None:
        self._opoverload = self._operator = operator
        self.__name__, self._qualname = operator.__name__, operator.qualname

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._operator(*args, **kwargs)

    def register_fake(self, fn: Callable) -> Callable:
        """`fn` gives empty tensors of the results' shapes and dtypes, for tracing."""
        self._operator.fake = fn
        return fn

    register_meta = register_fake

    def register_kernel(self, device_types: str | Iterable[str] | None, fn: Callable | None = None) -> Any:
        """`fn` computes the operator on these devices."""
        return register_kernel(self._qualname, device_types, fn)

    def register_autograd(self, backward: Callable, /, *, setup_context: Callable | None = None) -> None:
        """`backward(ctx, *grads)` gives a gradient for each argument (None where there is none)."""
        register_autograd(self._qualname, backward, setup_context=setup_context)

    def register_vmap(self, fn: Callable | None = None) -> Any:
        """`fn(info, in_dims, *args)` computes a batch; see `register_vmap`."""
        return register_vmap(self._qualname, fn)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Cast the inputs within autocast; see `register_autocast`."""
        register_autocast(self._qualname, device_type, cast_inputs)


def custom_op(
    name: str,
    fn: Callable | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Make a function the operator `namespace::name`.

    `mutates_args`: the names of the arguments that it writes to. `schema`: the signature as text, where annotations do not tell.
    Raises ValueError for a name without namespace.
    """

    def decorate(fn: Callable) -> CustomOpDef:
        text = infer_schema(fn, mutates_args=mutates_args) if schema is None else schema[schema.index("("):]
        written = parse_schema(name + text)
        signature = inspect.signature(fn) if schema is None else written.signature
        mutated = tuple(signature.parameters) if mutates_args == "unknown" else tuple(mutates_args)
        unknown = set(mutated) - set(signature.parameters)
        if unknown:
            raise ValueError(f"{name}: mutates_args names {sorted(unknown)}, which are not arguments of {fn.__name__}{signature}")
        operator = custom.define(written, signature, mutated)
        operator.makes_new = True
        _add_kernel(operator, device_types, fn)
        return CustomOpDef(operator)

    custom.split(name)
    return decorate if fn is None else decorate(fn)


def triton_op(name: str, fn: Callable | None = None, /, *, mutates_args: str | Iterable[str], schema: str | None = None) -> Any:
    """Make a function that launches Triton's kernels, each through `wrap_triton`, the operator `namespace::name`. It is kept whole; shapes
    are found by running it on tensors without elements, for which nothing is launched."""
    def decorate(fn: Callable) -> CustomOpDef:
        made = custom_op(name, fn, mutates_args=mutates_args, schema=schema)
        made.register_fake(fn)
        return made

    return decorate if fn is None else decorate(fn)


class _Kernel:
    """A kernel of Triton's that isn't launched on tensors without elements."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            fake = any(isinstance(a, Tensor) and a.is_fake for a in (*args, *kwargs.values()))
            return None if fake else self.kernel[grid](*args, **kwargs)
        return launch


def wrap_triton(triton_kernel: Any, /) -> Any:
    """The kernel, to be launched within a `triton_op`."""
    return _Kernel(triton_kernel)


def _add_kernel(operator: CustomOperator, device_types: Any, fn: Callable) -> None:
    devices = ("any",) if device_types is None else (device_types,) if isinstance(device_types, str) else tuple(device_types)
    for where in devices:
        operator.kernels[where] = fn


def _name(op: Any) -> str:
    """The qualified name of what the register functions take: a name, a CustomOpDef or an operator of torch.ops."""
    if isinstance(op, str):
        return op
    if isinstance(op, CustomOpDef):
        return op._qualname
    if isinstance(op, CustomOperator):
        return op.qualname
    raise ValueError(f"expected an operator's name or a custom operator, got {type(op).__name__}")


def register_fake(
    op: Any, fn: Callable | None = None, /, *, lib: Any = None, _stacklevel: int = 1, allow_override: bool = True
) -> Any:
    """`fn` gives empty tensors of the results' shapes and dtypes. Also a decorator; may come before the definition.

    RuntimeError where there are such already, unless `allow_override`.
    """

    def put(operator: CustomOperator, fn: Callable) -> None:
        if operator.fake is not None and not allow_override:
            raise RuntimeError(f"register_fake(...): the operator {operator.qualname} already has a fake impl; allow_override=True "
                               "replaces it")
        operator.fake = fn

    def register(fn: Callable) -> Callable:
        custom.when_defined(_name(op), lambda operator: put(operator, fn))
        return fn

    return register if fn is None else register(fn)


def impl_abstract(qualname: Any, *, func: Callable | None = None, lib: Any = None, _stacklevel: int = 1) -> Any:
    """`register_fake`, by its old name."""
    warnings.warn("torch.library.impl_abstract was renamed to torch.library.register_fake. Please use that instead; we will remove "
                  "torch.library.impl_abstract in a future version of PyTorch.", FutureWarning, stacklevel=_stacklevel + 1)
    return register_fake(qualname, func, lib=lib)


def fallthrough_kernel() -> None:
    """Given to `Library.impl`: nothing is registered for that key. Never called."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class FakeImplCtx:
    """What `get_ctx()` gives inside of a function of shapes."""

    def __init__(self, operator: CustomOperator, values: tuple) -> None:
        self._operator, self._values = operator, values

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        """A size of a result that hangs on values, between these bounds."""
        if not isinstance(min, int) or not isinstance(max, (int, type(None))):
            raise ValueError(f"ctx.new_dynamic_size(min={min}, max={max}): expected min and max to be statically known ints but got SymInt."
                             " This is not supported.")
        if min < 0:
            raise ValueError(f"ctx.new_dynamic_size(min={min}, ...): expected min to be greater than or equal to 0: this API can only "
                             "create non-negative sizes.")
        size = unknown_size(self._operator.qualname, next(v for v in self._values if isinstance(v, Tensor)))
        _check(size >= min)
        if max is not None:
            _check(size <= max)
        return size

    create_unbacked_symint = new_dynamic_size


def get_ctx() -> FakeImplCtx:
    """Within a function given to `register_fake`: how to say that a size hangs on values. RuntimeError elsewhere."""
    if not custom.shapes_of:
        raise RuntimeError("get_ctx() can only be called inside a fake impl (torch.library.register_fake).")
    return FakeImplCtx(*custom.shapes_of[-1])


class OperatorKernel:
    """An operator's function for one kind of device: call it, or `call_boxed(keyset, *args)`."""

    def __init__(self, fn: Callable) -> None:
        self._fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fn(*args, **kwargs)

    def call_boxed(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        """The function's result; there is one way to call it, whatever the keys."""
        del keyset
        return self._fn(*args, **kwargs)


def get_kernel(op: Any, dispatch_key: Any) -> OperatorKernel:
    """An operator's function for a key (CPU, CUDA, CompositeImplicitAutograd ...). RuntimeError where it has none."""
    key = str(getattr(dispatch_key, "name", dispatch_key))
    found: list[CustomOperator] = []
    custom.when_defined(_name(op), found.append)
    fn = found[0].kernels.get(_DEVICE_OF_KEY[key]) if found and key in _DEVICE_OF_KEY else None
    if fn is None:
        raise RuntimeError(f"get_kernel(): {_name(op)} has no kernel for the dispatch key {key!r}" + (
            f"; it has some for {sorted(found[0].kernels)}" if found else ", and is no operator of the program's own"))
    return OperatorKernel(fn)


def register_kernel(op: Any, device_types: Any, fn: Callable | None = None, /, *, lib: Any = None) -> Any:
    """`fn` computes the operator on `device_types` (None: on all). Also a decorator."""

    def register(fn: Callable) -> Callable:
        custom.when_defined(_name(op), lambda operator: _add_kernel(operator, device_types, fn))
        return fn

    return register if fn is None else register(fn)


def register_autograd(op: Any, backward: Callable, /, *, setup_context: Callable | None = None, lib: Any = None) -> None:
    """`backward(ctx, *grads)` is the gradient; `setup_context(ctx, inputs, output)` saves what it needs."""
    custom.when_defined(_name(op), lambda operator: operator.set_backward(backward, setup_context, _Context))


def register_vmap(op: Any, func: Callable | None = None, /, *, lib: Any = None) -> Any:
    """`func(info, in_dims, *args)` computes a whole batch and answers with (outputs, out_dims). Also a decorator.

    `in_dims` tells for each argument which dimension runs over the `info.batch_size` examples, `out_dims` for each output; None: it is
    the same for all. Without a rule vmap calls the operator once for each example.
    """

    def register(fn: Callable) -> Callable:
        custom.when_defined(_name(op), lambda operator: operator.set_vmap(fn))
        return fn

    return register if func is None else register(func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Within autocast on such devices, cast floating-point inputs to the dtype `cast_inputs`, and run the operator without autocast."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if not is_autocast_available(device_type):
        raise ValueError(f"Unknown device type: {device_type}; autocast knows 'cpu' and 'cuda'")
    custom.when_defined(_name(op), lambda operator: operator.autocast.__setitem__(device_type, cast_inputs))


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """Define `namespace::name` with a schema such as "(Tensor x, int n=1) -> Tensor"; `impl` gives its function."""
    custom.split(qualname)
    custom.define(parse_schema(qualname + schema[schema.index("("):]))


def impl(qualname: Any, types: str | Iterable[str], func: Any = None, *, lib: Any = None) -> Any:
    """Give a defined operator its function, for dispatch keys or device types ("cpu", "default"). The older form is
    `impl(library, name, dispatch_key="")`, a decorator."""
    if isinstance(qualname, Library):

        def give(fn: Callable) -> Callable:
            qualname.impl(types, fn, func or "")
            return fn

        return give

    def register(fn: Callable) -> Callable:
        for kind in (types,) if isinstance(types, str) else types:
            where = "any" if kind == "default" else _DEVICE_OF_KEY.get(kind, kind)
            custom.when_defined(qualname, functools.partial(_add_kernel, device_types=where, fn=fn))
        return fn

    return register if func is None else register(func)


class Library:
    """Operators of one namespace. `kind`: "DEF" and "FRAGMENT" define, "IMPL" gives functions to what is defined."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise ValueError(f"Unsupported kind: {kind}; expected 'DEF', 'FRAGMENT' or 'IMPL'")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._defined: list[str] = []

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator from "name(Tensor x) -> Tensor"; its name comes back."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        operator = custom.define(parse_schema(schema if "::" in schema.partition("(")[0] else f"{self.ns}::{schema.lstrip()}"))
        self._defined.append(operator.__name__)
        return operator.__name__

    def impl(
        self, op_name: Any, fn: Callable, dispatch_key: str = "", *, with_keyset: bool = False, allow_override: bool = True
    ) -> None:
        """Give an operator its function for one dispatch key (CPU, CUDA, Meta, CompositeExplicitAutograd, ...). RuntimeError where
        there is one already, unless `allow_override`. A function for Autograd is called in the operator's place, and the operator that it
        calls is the one without it: an autograd.Function around the operator, as a rule. One for an Autocast key is called in its place
        within autocast on that kind of device, and nothing that it calls is cast."""
        if with_keyset:
            raise NotImplementedError("Library.impl(with_keyset=True) is not implemented: there are no sets of dispatch keys here; give "
                                      "a function of the operator's own arguments")
        qualname = op_name.qualname if isinstance(op_name, CustomOperator) else op_name
        if "::" not in qualname:
            qualname = f"{self.ns}::{qualname}"
        key = dispatch_key or self.dispatch_key
        if fn is fallthrough_kernel:
            return
        if qualname.startswith("aten::"):
            raise NotImplementedError(f"Library.impl({qualname}): operators of torch's own keep their kernels; take them over in a "
                                      "TorchDispatchMode or TorchFunctionMode")
        if key == "Meta":
            register_fake(qualname, fn, allow_override=allow_override)
        elif key in _DEVICE_OF_KEY:
            def put(operator: CustomOperator) -> None:
                if not allow_override and _DEVICE_OF_KEY[key] in operator.kernels:
                    raise RuntimeError(f"{qualname} already has a kernel for {key or 'all keys'}; allow_override=True replaces it")
                _add_kernel(operator, _DEVICE_OF_KEY[key], fn)

            custom.when_defined(qualname, put)
        elif key in _AUTOGRAD_OF_KEY:
            custom.when_defined(qualname, lambda operator: operator.differentiated.__setitem__(_AUTOGRAD_OF_KEY[key], fn))
        elif key in _AUTOCAST_OF_KEY:
            custom.when_defined(qualname, lambda operator: operator.autocast.__setitem__(_AUTOCAST_OF_KEY[key], fn))
        else:
            raise NotImplementedError(
                f"dispatch key {key!r} does not exist here; use one of {sorted(filter(None, _DEVICE_OF_KEY))}, Meta, "
                "or torch.library.register_autograd for gradients"
            )

    def _destroy(self) -> None:
        """Take back what it defined."""
        for name in self._defined:
            custom.undefine(f"{self.ns}::{name}")
        self._defined.clear()

    def _register_fake(self, op_name: str, fn: Callable, _stacklevel: int = 1, *, allow_override: bool = True) -> None:
        register_fake(f"{self.ns}::{op_name}", fn, allow_override=allow_override)


_checks: Any = LazyModule("flambeau._opcheck")      # which compiles


def opcheck(op: Any, args: tuple, kwargs: dict | None = None, *, test_utils: Any = None, raise_exception: bool = True,
            atol: float | None = None, rtol: float | None = None) -> dict[str, Any]:
    """Is a custom operator, called so, what it says it is: its schema (writes, aliases), gradients, shapes without data, and compiled with
    sizes that vary? {check: "SUCCESS"}; OpCheckError says what failed, or is the check's value if not `raise_exception`."""
    named = {} if test_utils is None else {"test_utils": test_utils}
    return _checks.opcheck(op, args, kwargs, raise_exception=raise_exception, atol=atol, rtol=rtol, **named)


# -- schemas as text ---------------------------------------------------------------------------------------
# The types of a schema; all but Tensor, in lists and None too, as far as PyTorch has them.
_NAMES: dict[Any, str] = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", dtype: "ScalarType",
                          device: "Device"}
_LISTS = (Tensor, int, float, bool)


def _type_text(kind: Any) -> str | None:
    """A type as schemas write it; None if they have no word for it."""
    parts = typing.get_args(kind)
    if kind in _NAMES:
        return _NAMES[kind]
    if typing.get_origin(kind) in (list, collections.abc.Sequence) and len(parts) == 1:
        inner = _type_text(parts[0])
        return f"{inner}[]" if parts[0] in _LISTS or inner == "Tensor?" else None
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        some = [part for part in parts if part is not type(None)]
        if set(some) == {int, float, bool}:
            inner = "Scalar"
        else:
            inner = _type_text(some[0]) if len(some) == 1 else None
        return inner if len(some) == len(parts) or inner is None else f"{inner}?"
    return None


def _default_text(value: Any) -> str | None:
    if value is None or isinstance(value, (bool, int, float)):
        return re.sub(r"\.0$", ".", str(value))
    return f'"{value}"' if isinstance(value, str) else str(value).rpartition(".")[2] if isinstance(value, dtype) else None


def infer_schema(prototype_function: Callable, /, *, mutates_args: Any, op_name: str | None = None, tags: Any = ()) -> str:
    """The schema that a function's annotations come to: "(Tensor x, SymInt n=1) -> Tensor". ValueError for what schemas can't say."""
    signature = inspect.signature(prototype_function)
    hints = typing.get_type_hints(prototype_function)

    def fail(why: str) -> typing.NoReturn:
        raise ValueError(f"infer_schema(func): {why} Got func with signature {signature})")

    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ValueError("mutates_args must either be a sequence of the names of the arguments that are mutated or the string 'unknown'. ")
    unknown = set() if mutates_args == "unknown" else set(mutates_args) - set(signature.parameters)
    if unknown:
        fail(f"{unknown} in mutates_args were not found in the custom op's signature. mutates_args should contain the names of all args "
             "that the custom op mutates, or just the string 'unknown' if you don't know.")
    texts, written = [], 0
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            fail("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        if name not in hints:
            fail(f"Parameter {name} must have a type annotation.")
        kind = _type_text(hints[name])
        if kind is None:
            fail(f"Parameter {name} has unsupported type {hints[name]}; use Tensor, numbers, bool, str, dtype, device, Optional or lists.")
        if name in mutates_args or (mutates_args == "unknown" and kind.startswith("Tensor")):
            if not kind.startswith("Tensor"):
                fail(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated")
            kind, written = f"Tensor(a{written}!){kind.removeprefix('Tensor')}", written + 1
        default = "" if parameter.default is parameter.empty else _default_text(parameter.default)
        if default is None:
            fail(f"Parameter {name} has an unsupported default value type {type(parameter.default)}.")
        texts.append(f"{kind} {name}" + (f"={default}" if parameter.default is not parameter.empty else ""))
    if "return" not in hints:
        fail("No return type annotation was provided. Please add one.")
    found = hints["return"]
    several = typing.get_origin(found) is tuple
    results = [_type_text(kind) for kind in (typing.get_args(found) if several else [] if found is type(None) else [found])]
    if None in results:
        fail(f"Return has unsupported type {found}; use Tensor, numbers, lists of tensors or tuples of these.")
    answer = str(results[0]) if len(results) == 1 and not several else f"({', '.join(map(str, results))})"
    return f"{op_name or ''}({', '.join(texts)}) -> {answer}"


__getattr__ = absent_names("torch.library", ("register_torch_dispatch",), "write the operator with torch.library.custom_op")

__all__ = [
    "FakeImplCtx", "fallthrough_kernel", "get_ctx", "get_kernel",
    "custom_op", "CustomOpDef", "Library", "define", "impl", "impl_abstract", "infer_schema", "opcheck", "register_autocast",
    "register_autograd", "register_fake", "register_kernel", "register_vmap",
    "triton_op", "wrap_triton",
]
