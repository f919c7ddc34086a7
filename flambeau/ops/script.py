"""What `torch.NAME(...)` is in TorchScript's text: ATen's operators on tensors, and Python's on numbers, strings, lists and dicts.

A text names an operator and leaves out which overload it means; arguments tell. Numbers of 64 bits wrap around, dtypes, layouts and memory
formats are numbers, and arguments of tensors go to the first signature of `aten_schemas.txt` that takes them.
"""

from __future__ import annotations

import cmath
import inspect
import math
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from ..core import dispatch
from ..core.device import device
from ..core.dtypes import DTYPES, dtype
from ..core.memory_format import layout, layout_named, memory_format
from ..core.schema import MEMORY_FORMATS, Argument, FunctionSchema
from ..core.tensor import Tensor
from .aten import _overload
from .aten_forms import FORMS
from .aten_forms import PLAIN as PLAIN_FORMS
from .aten_schemas import _FITS, REDUCTIONS, Misfit, operation, schemas, take
from .generators import manual_seed
from .nn.recurrent import packed, padded, unpacked
from .registry import OPERATORS
from .script_types import result_of, values
from .writing import store_out

SCALAR_TYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128", "bool",
                "qint8", "quint8", "qint32", "bfloat16", "quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16",
                "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64")
"""dtypes as ATen numbers them."""
LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc")
REFUSED = frozenset(("from_file", "save"))
"""Operators that touch files: no archive may ask for them."""
LAST = 2**63 - 1


# -- enumerations ------------------------------------------------------------------------------------------------------------------
def number_of(value: Any) -> Any:
    """A dtype, a layout or a memory format as a number; anything else as it is."""
    if isinstance(value, dtype):
        return SCALAR_TYPES.index(value.name)
    if isinstance(value, layout):
        return LAYOUTS.index(str(value).removeprefix("torch."))
    return MEMORY_FORMATS.index(value) if isinstance(value, memory_format) else value


def dtype_of(number: Any) -> Any:
    """The dtype of a number of ATen's; None of None."""
    if number is None or isinstance(number, dtype):
        return number
    name = SCALAR_TYPES[number] if type(number) is int and 0 <= number < len(SCALAR_TYPES) else ""
    if name not in DTYPES:
        raise NotImplementedError(f"TorchScript asks for the dtype {name or number!r}, which Flambeau does not have")
    return DTYPES[name]


def _layout_of(number: int) -> layout:
    return layout_named(f"torch.{LAYOUTS[number]}")


_NUMBERED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "ScalarType": (dtype_of, len(SCALAR_TYPES)), "Layout": (_layout_of, len(LAYOUTS)),
    "MemoryFormat": (MEMORY_FORMATS.__getitem__, len(MEMORY_FORMATS)),
}


_EXACT: dict[str, type] = {"Tensor": Tensor, "int": int, "SymInt": int, "bool": bool, "float": float, "str": str}


def _take(argument: Argument, value: Any, numbers_for_tensors: bool, from_tensors: bool) -> Any:
    """`value` as this argument of an operator takes it; Misfit if it doesn't."""
    if _EXACT.get(argument.kind) is type(value):
        return value
    kind = argument.kind.removesuffix("?")
    if from_tensors and isinstance(value, Tensor) and kind in ("Scalar", "int", "float", "SymInt") and value.numel() == 1:
        value = value.item()
    numbered = _NUMBERED.get(kind)
    if numbered is not None and value is not None:
        read, count = numbered
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count:
            return read(value)
        return take(argument, value, False)
    if kind == "float" and isinstance(value, (int, bool)):
        raise Misfit
    if kind.endswith("[]") and kind[:-2].rstrip("?") not in _FITS:    # of any type
        raise Misfit
    return take(argument, value, numbers_for_tensors)


def _bound(schema: FunctionSchema, args: Sequence[Any], kwargs: Mapping[str, Any], *converting: bool) -> dict[str, Any] | None:
    """The arguments of this overload by name; None if it is another one."""
    try:
        given = schema.bind(args, kwargs)
        return {a.name: _take(a, given[a.name], *converting) for a in schema.arguments if a.name in given}
    except (Misfit, TypeError):
        return None


class _OnTensors:
    """An operator of ATen's at one place of a text: the first overload that takes the arguments, which are of the same types each time."""

    def __init__(self, name: str) -> None:
        known = [*schemas()[name], *(values()["to"] if name == "to" else ())]     # which graphs of operators don't have
        self.ways = [(schema, converting) for converting in ((False, False), (True, False), (False, True)) for schema in known]
        self.name, self.last = name, self.ways[0]

    def direct(self, args: Sequence[Any]) -> Callable[..., Any] | None:
        """What computes the last call again for arguments of the same types; None where that must be looked at each time."""
        return _direct(*self.last, args) if not any(isinstance(a, list) and not a for a in args) else None

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if "out" in kwargs:
            return store_out(kwargs["out"], self(args, {name: v for name, v in kwargs.items() if name != "out"}))
        for way in (self.last, *self.ways):
            schema, converting = way
            given = _bound(schema, args, kwargs, *converting)
            if given is not None:
                self.last = way
                positional = [given.pop(a.name) for a in schema.arguments[:len(args)]]
                made = _overload(schema)(*positional, **given)
                return list(made) if type(made) is tuple and result_of(schema) == "Tensor[]" else made
        raise Unfit(self.name, args, kwargs)


class _ArgumentPlace(NamedTuple):
    """The place of an argument."""

    at: int


def _converter(argument: Argument, value: Any) -> Callable[[Any], Any] | None:
    """What makes of a value of this type what the operator here takes; None where that is the value."""
    kind = argument.kind.removesuffix("?")
    sized = re.fullmatch(r"\w+\[(\d+)\]", kind)
    if sized and not isinstance(value, (list, tuple, type(None))):
        count = int(sized[1])
        return lambda v: [v] * count
    if kind in _NUMBERED and isinstance(value, int):
        return _NUMBERED[kind][0]
    if kind == "Device" and isinstance(value, str):
        return device
    return (lambda v: v.item()) if isinstance(value, Tensor) and kind in ("Scalar", "int", "float", "SymInt") else None


def _direct(schema: FunctionSchema, converting: tuple[bool, bool], args: Sequence[Any]) -> Callable[..., Any] | None:
    """The operator here that an overload is, with its arguments in the order of a call; None where more is to be done."""
    slots = [_ArgumentPlace(at) for at in range(len(args))]
    if any(a.name == "reduction" for a in schema.arguments):
        return None
    fn: Callable[..., Any]
    positional: list[Any] = list(slots)
    named: dict[str, Any] = {}
    if schema.operator in FORMS and len(args) != PLAIN_FORMS.get(schema.operator):
        fn = FORMS[schema.operator]
    else:
        fn, positional, named = operation(schema, slots, {})
        if any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(fn).parameters.values()):
            return None
    converters = [_converter(a, value) for a, value in zip(schema.arguments, args)]
    several = result_of(schema) == "Tensor[]"
    if positional == slots and not named and not several and not any(converters):
        return fn
    order, names = [s.at for s in positional], {key: s.at for key, s in named.items()}

    def call(*given: Any) -> Any:
        ready = [value if convert is None else convert(value) for convert, value in zip(converters, given)]
        made = fn(*[ready[at] for at in order], **{key: ready[at] for key, at in names.items()})
        return list(made) if several and type(made) is tuple else made

    return call


class Unfit(RuntimeError):
    """Arguments that no overload of an operator takes."""

    def __init__(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        seen = ", ".join([*map(_kind, args), *(f"{key}={_kind(value)}" for key, value in kwargs.items())])
        known = "".join(f"\n  {s.text}" for s in schemas().get(name, ()))
        super().__init__(f"Arguments for call are not valid: aten::{name} was given ({seen})." + (f" Known are:{known}" if known else ""))


def _kind(value: Any) -> str:
    return f"List[{_kind(value[0])}]" if isinstance(value, list) and value else type(value).__name__


# -- numbers -----------------------------------------------------------------------------------------------------------------------
def wrapped(value: Any) -> Any:
    """Ints as 64 bits hold them."""
    return value if type(value) is not int or -2**63 <= value < 2**63 else (value + 2**63) % 2**64 - 2**63


def _power(a: Any, b: Any) -> Any:
    made = float(a) ** b if isinstance(a, (int, bool)) and isinstance(b, (int, bool)) else a ** b
    if isinstance(made, complex) and not isinstance(a, complex) and not isinstance(b, complex):
        return math.nan
    return made


def _divided(a: Any, b: Any) -> Any:
    if b == 0 and isinstance(b, float):
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _shifted(by: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def shift(a: int, b: int) -> int:
        if not 0 <= b < 64:
            raise RuntimeError(f"cannot shift an int of 64 bits by {b}")
        return wrapped(by(a, b))

    return shift


def _repeated(value: Any, times: Any) -> Any:
    """A product; of a list or a string and an int its repetition."""
    if isinstance(times, (list, str)):
        value, times = times, value
    return wrapped(value * times)


def _real(fn: Callable[..., float], of_complex: Callable[..., complex] | None = None) -> Callable[..., Any]:
    """A function of `math`, that answers NaN where it has no value."""
    def of(*args: Any) -> Any:
        try:
            if of_complex is not None and any(isinstance(a, complex) for a in args):
                return of_complex(*args)
            return fn(*args)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return of


# -- texts, lists and dicts ----------------------------------------------------------------------------------------------------------
def _in_place(change: Callable[..., None]) -> Callable[..., Any]:
    """A function that changes its first argument, and answers with it."""
    def changed(target: Any, *args: Any) -> Any:
        change(target, *args)
        return target

    return changed


def _remove(items: list, value: Any) -> None:
    """Take out the first element that is equal."""
    for at, item in enumerate(items):
        if same(item, value):
            del items[at]
            return
    raise ValueError("list.remove(x): x not in list")


def same(a: Any, b: Any) -> bool:
    """Whether values are equal; tensors where they have equal elements."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and bool(OPERATORS["equal"](a, b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def _index(items: list, value: Any) -> int:
    found = next((at for at, item in enumerate(items) if same(item, value)), None)
    if found is None:
        raise ValueError(f"{value!r} is not in list")
    return found


def _count(items: Any, value: Any, *bounds: int) -> int:
    return items.count(value, *bounds) if isinstance(items, str) else sum(same(item, value) for item in items)


def _format(text: str, *values: Any) -> str:
    """`text` with values in the places of its `{}`, as str() shows them."""
    parts = text.split("{}")
    if len(parts) - 1 > len(values):
        raise RuntimeError(f"Too few arguments for format string: {text!r}")
    return "".join(part + (text_of(value) if at < len(parts) - 1 else "") for at, (part, value) in enumerate(zip(parts, [*values, None])))


_SPECIFIER = re.compile(r"%[-+ #0-9.]*(.?)", re.DOTALL)
_SPECIFIERS = frozenset("sdifFeEc%")


def _percent(text: str, *values: Any) -> str:
    """`text % values`, where `%s` shows a value as str() does."""
    flat = values[0] if len(values) == 1 and isinstance(values[0], tuple) else values
    if any(len(run) > 4 for run in re.split(r"\D+", text)):
        raise RuntimeError(f"format of more than 9999 places: {text[:40]!r}")
    asked = _SPECIFIER.findall(text)
    for one in asked:
        if one not in _SPECIFIERS:
            raise RuntimeError(f"The specifier %{one} is not supported in TorchScript format strings")
    asked = [one for one in asked if one != "%"]
    if len(asked) != len(flat):
        raise RuntimeError(f"Too {'few' if len(asked) > len(flat) else 'many'} arguments for format string")
    return text % tuple([text_of(value) if one == "s" else value for one, value in zip(asked, flat)])


def _float_text(value: float) -> str:
    """Seventeen digits, or an integer of 64 bits with its point."""
    return f"{int(value)}." if value.is_integer() and abs(value) <= LAST else f"{value:.17g}"


def _sequence_text(values: Sequence[Any]) -> str:
    return ", ".join(map(text_of, values))


_TEXTS: list[tuple[type, Callable[[Any], str]]] = [
    (float, _float_text),
    (complex, lambda v: f"{_float_text(v.real)}{'' if v.imag < 0 else '+'}{_float_text(v.imag)}j"),
    (list, lambda v: f"[{_sequence_text(v)}]"),
    (tuple, lambda v: f"({_sequence_text(v)}{',' if len(v) == 1 else ''})"),
    (dict, lambda v: "{" + ", ".join(f"{text_of(key)}: {text_of(item)}" for key, item in v.items()) + "}"),
    (Enum, lambda v: f"Enum<{v}>"),
]


def text_of(value: Any) -> str:
    """What `str` and `print` show of a value: texts within others have no quotes, floats a point."""
    return next((show(value) for kind, show in _TEXTS if isinstance(value, kind)), None) or str(value)


def show(*values: Any) -> None:
    """`print` of a program."""
    print(*map(text_of, values))


def _updated(target: dict, other: dict) -> dict:
    target.update(other)
    return target


def _with_item(target: Any, key: Any, value: Any) -> Any:
    target[key] = value
    return target


def _without_item(target: Any, key: Any) -> Any:
    del target[key]
    return target


def _inner(value: Any) -> list:
    """A list or nested tuple of numbers, as `tensor` takes it."""
    return [_inner(v) for v in value] if isinstance(value, (list, tuple)) else value


_STR = {name: getattr(str, name) for name in ["upper", "lower", "strip", "lstrip", "rstrip", "startswith", "endswith", "find", "rfind",
    "rindex", "replace", "split", "rsplit", "splitlines", "isdigit", "isalpha", "isalnum", "isspace", "istitle", "isupper", "islower",
    "isidentifier", "isnumeric", "isdecimal", "isprintable", "title", "capitalize", "swapcase", "partition", "rpartition"]}
_PADDED = {name: getattr(str, name) for name in ("center", "ljust", "rjust", "zfill", "expandtabs")}


def _padded(pad: Callable[..., str]) -> Callable[..., str]:
    def made(text: str, width: int = 8, *fill: str) -> str:       # the default is that of expandtabs
        if width > 1_000_000:
            raise RuntimeError(f"a text of {width} characters")
        return pad(text, width, *fill)

    return made


ON_VALUES: dict[str, Callable[..., Any]] = {
    "pad_sequence": lambda xs, batch_first=False, padding=0.0, side="right": padded(xs, batch_first, padding, side),
    **_STR, **{name: _padded(pad) for name, pad in _PADDED.items()}, "join": lambda between, parts: between.join(parts),
    "add": lambda a, b, *alpha: wrapped(a + b), "sub": lambda a, b, *alpha: wrapped(a - b), "mul": _repeated, "div": _divided,
    "floordiv": lambda a, b: wrapped(a // b), "remainder": operator.mod, "fmod": math.fmod, "pow": _power, "neg": lambda a: wrapped(-a),
    "abs": abs, "fabs": math.fabs, "divmod": divmod, "__round_to_zero_floordiv": lambda a, b: wrapped(int(a / b)),
    "__lshift__": _shifted(operator.lshift), "__rshift__": _shifted(operator.rshift),
    "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
    "round": lambda a, digits=None: float(round(a)) if digits is None else round(a, digits),
    **{name: _real(getattr(math, name), getattr(cmath, name, None)) for name in ["sqrt", "exp", "log", "log2", "log10", "log1p", "expm1",
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "gamma", "lgamma", "erf", "erfc",
        "degrees", "radians", "hypot", "atan2", "copysign", "factorial", "gcd", "ldexp", "isnan", "isinf", "isfinite"]},
    "mathremainder": math.remainder, "modf": math.modf, "frexp": math.frexp,
    "eq": same, "ne": lambda a, b: not same(a, b), "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "bitwise_not": operator.invert,
    "__not__": operator.not_, "__is__": operator.is_, "__isnot__": operator.is_not,
    "len": len, "append": _in_place(list.append), "extend": _in_place(list.extend), "insert": _in_place(list.insert),
    "add_": _in_place(list.extend), "mul_": _in_place(list.__imul__),
    "clear": lambda x: _in_place(type(x).clear)(x), "copy": lambda x: x.copy(), "reverse": _in_place(list.reverse), "sort": _in_place(
        lambda x, reverse=False: x.sort(reverse=reverse)),
    "Size": list,
    "sorted": lambda items, reverse=False: sorted(items, reverse=reverse),
    "pop": lambda x, *at: x.pop(*at), "remove": _in_place(_remove), "index": _index, "count": _count, "list": lambda x: list(x),
    "slice": lambda x, start=None, end=None, step=1: x[start:end:step],
    "__contains__": lambda x, value: value in x if isinstance(x, (dict, str)) else any(same(item, value) for item in x),
    "__getitem__": operator.getitem, "_set_item": _with_item, "Delete": _without_item,
    "keys": lambda d: list(d), "values": lambda d: list(d.values()), "items": lambda d: list(d.items()), "get": dict.get,
    "setdefault": dict.setdefault, "update": _updated, "popitem": dict.popitem, "dict": dict,
    "str": text_of, "ord": ord, "chr": chr, "hex": hex, "oct": oct, "bin": bin, "format": _format, "percentFormat": _percent,
    "any": any, "all": all, "sum": lambda x: wrapped(sum(x)), "hash": hash,
    "Int": int, "Float": float, "Bool": bool, "Complex": complex,
    "__range_length": lambda lo, hi, step: len(range(lo, hi, step)), "__derive_index": lambda at, start, step: start + at * step,
}
"""What operators do to anything but tensors."""


# -- tensors, where ATen has no operator of the table ------------------------------------------------------------------------------------
def _tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of numbers, or of a list of them."""
    made = OPERATORS["tensor"](_inner(data), dtype=dtype_of(dtype), device=device)
    return made.requires_grad_() if requires_grad else made


def _as_tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor itself where it is one of this dtype and device; otherwise one of its elements."""
    return OPERATORS["as_tensor"](data if isinstance(data, Tensor) else _inner(data), dtype=dtype_of(dtype), device=device)


def _set_grad_enabled(on: bool) -> None:
    dispatch.state.grad_mode = on


def _warn(text: str, stacklevel: int = 2) -> None:
    warnings.warn(text, UserWarning, stacklevel=stacklevel + 8)


def _asked(method: str) -> Callable[..., Any]:
    """A method of tensors that is no operator of the table."""
    return lambda x, *args, **kwargs: number_of(getattr(x, method)(*args, **kwargs))


def _backward(x: Any, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False) -> None:
    if not isinstance(x, Tensor):
        raise NotImplementedError("TorchScript: torch.autograd.backward of several tensors; call backward of their sum")
    x.backward(gradient, retain_graph, create_graph)


def _consecutive(x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> tuple[Tensor, ...]:
    """The distinct values in a row, with two tensors more, empty where they are not asked for."""
    found = OPERATORS["unique_consecutive"](x, return_inverse, return_counts, dim)
    parts = iter(found if isinstance(found, tuple) else (found,))
    empty = OPERATORS["empty"]((0,), dtype=DTYPES["int64"])
    return next(parts), next(parts) if return_inverse else empty, next(parts) if return_counts else empty


def _unique(x: Tensor, dim: int | None, order: bool, return_inverse: bool, return_counts: bool) -> tuple[Tensor, ...]:
    """The distinct values, with two tensors more."""
    found = OPERATORS["unique"](x, order, True, True, dim)
    return found[0], found[1] if return_inverse else found[1].new_empty((0,)), found[2] if return_counts else found[2].new_empty((0,))


def _rrelu(x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None) -> Tensor:
    """x, and below 0 a part of it: between two bounds at random, or half way between them."""
    slope = OPERATORS["rand_like"](x, generator=generator) * (upper - lower) + lower if training else (lower + upper) / 2
    return OPERATORS["where"](x >= 0, x, x * slope)


def _padded_from(data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int) -> tuple[Tensor, Tensor]:
    counts = batch_sizes.tolist()
    out, lengths = unpacked(data, counts, max(len(counts), total_length), padding_value)
    return (out.transpose(0, 1) if batch_first else out), lengths


_SPECIAL = {"special_expit": "sigmoid", "special_gammaln": "lgamma", "special_psi": "digamma"}

GIVES_SEVERAL = frozenset((*(f"adaptive_max_pool{n}d" for n in (1, 2, 3)), *(f"atleast_{n}d" for n in (1, 2, 3)), "unique_consecutive"))
"""Operators that give one tensor in a program of Python's, and are the first of several in ATen."""

_SPARSE = ("values", "_values", "_indices", "_nnz", "crow_indices", "col_indices", "ccol_indices", "row_indices", "to_sparse",
           "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc", "sparse_mask")

ON_TENSORS: dict[str, Callable[..., Any]] = {
    "_unique2": lambda x, order=True, inverse=False, counts=False: _unique(x, None, order, inverse, counts),
    "unique_dim": lambda x, dim, order=True, inverse=False, counts=False: _unique(x, dim, order, inverse, counts),
    "numpy_T": lambda x: x.T, "mT": lambda x: x.mT, "mH": lambda x: x.mH, "matrix_H": lambda x: x.H,
    "tensordot": lambda a, b, of_a, of_b: OPERATORS["tensordot"](a, b, (of_a, of_b)), "_conj": lambda x: x.conj(),
    "_pack_padded_sequence": lambda x, lengths, batch_first: packed(x.transpose(0, 1) if batch_first else x, lengths.tolist()),
    "_pad_packed_sequence": _padded_from, "rrelu": _rrelu,
    "_weight_norm": lambda v, g, dim=0: v * (g / OPERATORS["norm_except_dim"](v, 2, dim)),
    **dict.fromkeys(("nll_loss", "nll_loss_nd", "nll_loss2d"), lambda x, target, weight=None, reduction=1, ignore_index=-100:
        OPERATORS["nll_loss"](x, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction])),
    "embedding_bag": FORMS["_embedding_bag"],
    **{f"adaptive_max_pool{n}d": lambda x, *args, pool=f"adaptive_max_pool{n}d": OPERATORS[pool](x, *args, return_indices=True)
       for n in (1, 2, 3)}, "unique_consecutive": _consecutive,
    "size": lambda x, dim=None: list(x.shape) if dim is None else x.shape[dim],
    "stride": lambda x, dim=None: list(x.stride()) if dim is None else x.stride(dim),
    "len": len, "dim": lambda x: x.ndim, "list": lambda x: list(x.unbind(0)),
    **{name: _asked(name) for name in ["numel", "is_floating_point", "is_complex", "is_signed", "is_contiguous", "type_as", "get_device",
        "storage_offset", "element_size", "requires_grad_", "retain_grad", "detach_", "squeeze_", "unsqueeze_", "transpose_", "t_",
        "swapaxes_", "swapdims_", "resize_", "resize_as_", "set_", "is_pinned", "pin_memory", "is_set_to", "sum_to_size", "cpu", "cuda",
        "is_conj", "is_neg", "is_inference", "is_leaf", "to_dense", "coalesce", "indices", "is_coalesced", "sparse_dim", "dense_dim",
        *_SPARSE]},
    **{f"_cast_{theirs}": lambda self, non_blocking=False, kind=DTYPES[ours]: self.to(kind, non_blocking=non_blocking) for theirs, ours in (
        ("Byte", "uint8"), ("Char", "int8"), ("Short", "int16"), ("Int", "int32"), ("Long", "int64"), ("Half", "float16"),
        ("Float", "float32"), ("Double", "float64"))},
    "Int": int, "Float": float, "Bool": bool, "Complex": complex, "IntImplicit": int, "FloatImplicit": float,
    "ScalarImplicit": lambda x: x.item(),
    "ComplexImplicit": complex, "__contains__": lambda x, value: bool((x == value).any()), "hash": id, "backward": _backward,
    "__isnot__": operator.is_not, "__is__": operator.is_, "__not__": lambda x: not x, "floordiv": lambda a, b: a // b,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "__lshift__": operator.lshift, "__rshift__": operator.rshift,
    "__iand__": operator.iand, "__ior__": operator.ior, "__ixor__": operator.ixor, "str": text_of,
}
"""What operators that have no signature in the table do to tensors."""

def _of_each(name: str) -> Callable[[Any], Any]:
    """An operator of a tensor, or of each of a list."""
    return lambda x: [OPERATORS[name](t) for t in x] if isinstance(x, list) else OPERATORS[name](x)


PLAIN: dict[str, Callable[..., Any]] = {
    **{f"atleast_{n}d": _of_each(f"atleast_{n}d") for n in (1, 2, 3)},
    "is_grad_enabled": lambda: dispatch.state.grad_enabled, "set_grad_enabled": _set_grad_enabled, "device": device, "warn": _warn,
    "manual_seed": lambda seed: (manual_seed(seed), None)[1], "tensor": _tensor,
    "as_tensor": _as_tensor, "is_scripting": lambda: True, "_get_tracing_state": lambda: False,
    "wait": lambda future: future.wait(),
    "has_torch_function": lambda *args: False, "is_autocast_enabled": lambda: bool(dispatch.state.autocast), "_print": print,
    "is_autocast_cpu_enabled": lambda: bool(dispatch.state.autocast), "append": ON_VALUES["append"], "format": _format,
    "percentFormat": _percent, "_set_item": _with_item, "insert": ON_VALUES["insert"], "extend": ON_VALUES["extend"],
    "__is__": operator.is_, "__isnot__": operator.is_not, "_unwrap_optional": lambda value: _unwrapped(value),
    "remove": ON_VALUES["remove"],
    "get": dict.get, "setdefault": dict.setdefault, "count": _count, "items": ON_VALUES["items"], "keys": ON_VALUES["keys"],
}
"""Operators that mean one thing, whatever they are given."""


def _unwrapped(value: Any) -> Any:
    if value is None:
        raise RuntimeError("Unwrapping null optional")
    return value


def _attribute(read: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    return lambda x: number_of(read(x))


def _least(choose: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*args: Any) -> Any:
        if any(isinstance(a, Tensor) for a in args):
            return OPERATORS["minimum" if choose is min else "maximum"](*args)
        lists = len(args) == 2 and all(isinstance(a, list) for a in args)
        return choose(*args) if lists or len(args) > 1 else choose(args[0])

    return chosen


PRIM: dict[str, Callable[..., Any]] = {
    "NumToTensor": lambda x: x if isinstance(x, Tensor) else OPERATORS["tensor"](x),
    "min": _least(min), "max": _least(max), "abs": abs, "dtype": _attribute(lambda x: x.dtype),
    "device": lambda x: x.device, "layout": _attribute(lambda x: x.layout), "shape": lambda x: list(x.shape), "type": lambda d: d.type,
    "index": lambda d: d.index,
    "data": lambda x: x.data, "grad": lambda x: x.grad, "ndim": lambda x: x.ndim, "T": lambda x: x.T, "mT": lambda x: x.mT,
    "H": lambda x: x.H,
    "mH": lambda x: x.mH, "real": lambda x: x.real, "imag": lambda x: x.imag, "itemsize": lambda x: x.itemsize,
    "nbytes": lambda x: x.nbytes,
    **{name: _attribute(operator.attrgetter(name)) for name in ["requires_grad", "is_cuda", "is_cpu", "is_xpu", "is_ipu", "is_mps",
        "is_meta", "is_sparse", "is_sparse_csr", "is_mkldnn", "is_quantized", "is_nested", "is_leaf", "is_hpu", "is_vulkan", "is_maia",
        "is_mtia", "is_xla"]},
    "name": lambda x: x.name, "value": lambda x: x.value, "unchecked_unwrap_optional": _unwrapped, "unchecked_cast": lambda value: value,
    "IfThenElse": lambda test, a, b: a if test else b, "tolist": lambda x, *shape: x.tolist(), "rangelist": lambda n: list(range(n)),
    "StringIndex": lambda text, at: text[at], "is_compiling": lambda: False,
}
"""`ops.prim.NAME`: properties of tensors, devices and enums, and Python's min and max."""


def allowed(name: str) -> bool:
    """Whether a text may name this operator; one that is not here raises where it is called."""
    return name.isidentifier() and name not in REFUSED


_NEWER = {"div": 4, "div_": 4, "full": 5}
"""Operators that divided, or made, integers otherwise in archives of versions below."""


def _holds_integers(name: str, args: tuple, kwargs: dict) -> bool:
    if name == "full":
        return kwargs.get("dtype") is None and not isinstance(args[1], float)
    return isinstance(args[0], Tensor) and not any(
        isinstance(a, float) or (isinstance(a, Tensor) and a.dtype.is_floating_point) for a in args[:2])


def _of_before(name: str, version: int) -> Callable[..., Any]:
    """An operator that a newer version gave another meaning, where both agree."""
    now = function(name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if _holds_integers(name, args, kwargs):
            raise NotImplementedError(f"the archive's format has version {version}, in which torch.{name} of integers had another meaning; "
                                      "load the archive with PyTorch and save it again")
        return now(*args, **kwargs)

    return call


def function(name: str, version: int = 10) -> Callable[..., Any]:
    """What `torch.NAME` computes, as a function of the arguments in a text of this version of the format."""
    if version < _NEWER.get(name, 0):
        return _of_before(name, version)
    plain = PLAIN.get(name)
    if plain is not None:
        return plain
    on_values, on_tensors, aten = ON_VALUES.get(name), ON_TENSORS.get(name), _OnTensors(name) if name in schemas() else None
    known: dict[tuple, Callable[..., Any] | None] = {}      # by the types of the arguments

    def call(*args: Any, **kwargs: Any) -> Any:
        types = tuple(map(type, args))
        direct = known.get(types) if not kwargs else None
        if direct is not None:
            return direct(*args)
        if on_values is not None and not any(isinstance(a, Tensor) for a in (args[:1] if name in _OF_CONTAINERS else args)):
            known[types] = on_values
            return on_values(*args, **kwargs)
        if on_tensors is not None and args and (isinstance(args[0], Tensor) or aten is None):
            known[types] = on_tensors
            return on_tensors(*args, **kwargs)
        if aten is not None:
            made = aten(args, kwargs)
            if not kwargs and types not in known:
                known[types] = aten.direct(args)
            return made
        if name in FORMS:
            return FORMS[name](*args, **kwargs)
        if name.startswith("special_"):
            return function(_SPECIAL.get(name, name.removeprefix("special_")), version)(*args, **kwargs)
        if on_values is None and on_tensors is None:
            raise NotImplementedError(f"Unknown builtin op: aten::{name}: Flambeau has no such operator")
        raise Unfit(name, args, kwargs)

    return call


_OF_CONTAINERS = frozenset(("len", "clear", "copy", "reverse", "pop", "slice", "__contains__", "__getitem__", "Delete", "values", "sort",
                            "list", "update", "index", "dict", "popitem", "count", "remove"))
"""Operators that ask only whether their first argument is a tensor."""
