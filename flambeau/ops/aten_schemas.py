"""The signatures of `torch.ops.aten`'s overloads, and how they and the operators' own parameters belong together.

`aten_schemas.txt` has each signature once, in the notation of torch's documentation, behind the names of all overloads that have it. It
is read in both directions: `overload_of` says which overload a call of an operator is, with arguments as the overload takes them (capture
writes graphs so); `Overload.__call__` goes from there to the operator.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from pathlib import Path
from typing import Any

from ..core.device import device
from ..core.dtypes import dtype
from ..core.memory_format import layout, memory_format, preserve_format
from ..core.schema import REQUIRED, Argument, FunctionSchema
from ..core.symbolic import SymBool, SymFloat, SymInt
from ..core.tensor import Tensor
from .registry import OPERATORS

REDUCTIONS = ("none", "mean", "sum")        # as ATen numbers them
ALIASES = {"cross_entropy": "cross_entropy_loss", "logsigmoid": "log_sigmoid", "truediv": "div", "functional_embedding": "embedding",
           "functional_batch_norm": "batch_norm", "functional_instance_norm": "instance_norm",
           "__abs__": "abs", "__neg__": "neg", "__invert__": "bitwise_not", "unfold_windows": "im2col", "fold": "col2im"}
"""Operators that ATen has another name for."""
@functools.cache
def _behind() -> dict[str, str]:
    return {aten: ours for ours, aten in ALIASES.items() if aten not in OPERATORS}


class Misfit(Exception):
    """Arguments that an overload does not take."""


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, SymInt)) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (Number, SymInt, SymFloat, SymBool))


_FITS: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda v: isinstance(v, Tensor), "Scalar": _is_number, "int": _is_int, "SymInt": _is_int,
    "float": lambda v: _is_number(v) and not isinstance(v, complex), "bool": lambda v: isinstance(v, bool),
    "str": lambda v: isinstance(v, str), "ScalarType": lambda v: isinstance(v, dtype), "Layout": lambda v: isinstance(v, layout),
    "Device": lambda v: isinstance(v, (device, str)), "MemoryFormat": lambda v: isinstance(v, memory_format),
    "complex": lambda v: isinstance(v, complex), "Generator": lambda v: type(v).__name__ == "Generator",
}


def take(argument: Argument, value: Any, numbers_for_tensors: bool) -> Any:
    """`value` as ATen takes it for this argument; Misfit if it doesn't."""
    kind, optional = argument.kind.removesuffix("?"), argument.kind.endswith("?")
    if value is None:
        if optional:
            return None
        raise Misfit
    if argument.name == "reduction" and kind == "int" and value in REDUCTIONS:
        return REDUCTIONS.index(value)
    listed = re.fullmatch(r"(\w+\??)\[(\d*)\]", kind)
    if listed is None:
        if not _FITS.get(kind, _never)(value) and not (numbers_for_tensors and kind == "Tensor" and _is_number(value)):
            raise Misfit
        return device(value) if kind == "Device" else value
    element, size = listed.groups()
    if size and not isinstance(value, (tuple, list)):
        value = [value] * int(size)
    if not isinstance(value, (tuple, list)):
        raise Misfit
    if any(not (v is None and element.endswith("?")) and not _FITS.get(element.rstrip("?"), _never)(v) for v in value):
        raise Misfit
    return list(value)


def _never(value: Any) -> bool:
    return False


@functools.cache
def schemas() -> dict[str, list[FunctionSchema]]:
    """All overloads by operator, those of fewest arguments first."""
    found: dict[str, list[FunctionSchema]] = {}
    text = Path(__file__).with_name("aten_schemas.txt").read_text()
    for names, signature in re.findall(r"^([\w.\s]+)\((.*)\)$", text, re.MULTILINE):
        for name in names.split():
            operator, _, overload = name.partition(".")
            found.setdefault(operator, []).append(FunctionSchema(f"aten::{operator}", overload, signature))
    for several in found.values():
        several.sort(key=lambda s: len(s.arguments))
    return found


def schema_of(name: str, overload: str) -> FunctionSchema | None:
    """The signature of `aten.NAME.OVERLOAD`."""
    return next((s for s in schemas().get(name, ()) if (s.overload_name or "default") == overload), None)


# -- the operators' own parameters -----------------------------------------------------------------------------------------------
def behind(name: str) -> Callable | None:
    """The operator of the table that computes `aten.NAME`."""
    return OPERATORS.get(_behind().get(name, name))


@functools.cache
def _pairs(schema: FunctionSchema, fn: Callable) -> dict[str, str]:
    """Names of an overload's arguments -> the operator's parameters: equal names, and what is left over in order."""
    ours = [p for p in inspect.signature(fn).parameters if p not in ("out", "named", "inplace", "generator")]
    theirs = [a.name for a in schema.arguments]
    same = {name: name for name in theirs if name in ours}
    free = [p for p in ours if p not in same.values()]
    if theirs and theirs[0] not in same and ours and ours[0] in free:
        same[theirs[0]] = ours[0]
        free.remove(ours[0])
    rest = [name for name in theirs if name not in same and name not in ("layout", "pin_memory")]     # which stand for nothing else
    return same | dict(zip(rest, free))


@functools.cache
def _parameters(fn: Callable) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(fn).parameters.values())


def operation(schema: FunctionSchema, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Callable, list[Any], dict[str, Any]]:
    """A call of an overload as one of the operator behind it: (operator, args, kwargs). NotImplementedError of an argument that this
    has no place for, and that would change what comes out."""
    fn = behind(schema.operator)
    if fn is None:
        raise NotImplementedError(f"{schema.text} is not implemented; call the function of torch that it belongs to")
    given = schema.bind(args, kwargs)
    if {p.kind for p in _parameters(fn)} >= {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        keywords = {a.name for a in schema.arguments if a.kwarg_only}      # it takes the overload's own arguments
        return fn, [v for k, v in given.items() if k not in keywords], {k: v for k, v in given.items() if k in keywords}
    pairs = _pairs(schema, fn)
    for a in schema.arguments:
        if a.name in given and a.name not in pairs and a.kind in ("Scalar", "float") and not _equal(given[a.name], a.default):
            raise NotImplementedError(f"{schema.text}: {fn.__name__} takes no {a.name}={given[a.name]!r}")
    named = {pairs[k]: v for k, v in given.items() if k in pairs}
    if isinstance(named.get("reduction"), int):
        named["reduction"] = REDUCTIONS[named["reduction"]]
    positional: list[Any] = []
    for at, p in enumerate(_parameters(fn)):
        name = p.name
        if name in named and (p.kind is p.VAR_POSITIONAL or (p.kind < p.VAR_POSITIONAL and len(positional) == at)):
            value = named.pop(name)
            if p.kind is p.VAR_POSITIONAL and isinstance(value, list):
                positional.extend(value)
            else:
                positional.append(value)
    return fn, positional, named


def bound(fn: Callable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call of an operator by name, but those that are its defaults."""
    signature = inspect.signature(fn)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    out = {}
    for name, value in given.items():
        p = signature.parameters[name]
        if p.kind is p.VAR_KEYWORD and value:
            return None
        if p.kind is p.VAR_POSITIONAL:
            value = list(value[0]) if len(value) == 1 and isinstance(value[0], (tuple, list)) else \
                value[0] if len(value) == 1 and isinstance(value[0], dtype) else list(value)
        elif p.kind is p.VAR_KEYWORD or (value is p.default or (type(value) is type(p.default) and not isinstance(value, Tensor)
                                                                and _is_plain(value) and value == p.default)):
            continue
        out[name] = value
    return out


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, str, tuple)) and (
        not isinstance(value, tuple) or all(type(v) in (int, float, str) for v in value))


def _range(given: dict[str, Any]) -> dict[str, Any]:
    """`arange(n)` tells its end."""
    return given if "end" in given else {"end": given.pop("start"), **given} if "step" not in given else given | {"start": 0}


def _conversion(given: dict[str, Any]) -> dict[str, Any]:
    """`to(dtype or device or tensor, non_blocking, copy)` by name."""
    first = given.pop("args", None)
    if isinstance(first, Tensor):
        return {**given, "args": first}
    flags = iter(("non_blocking", "copy"))
    for value in first if isinstance(first, list) else [] if first is None else [first]:
        kind = "dtype" if isinstance(value, dtype) else "device" if isinstance(value, (device, str)) else next(flags, "args")
        given[kind] = value
    return given


def _resizing(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """`interpolate` as the operator for its mode and number of dimensions, which takes lists."""
    dims, mode = given["input"].ndim - 2, given.get("mode", "nearest")
    smooth = "_aa" if given.get("antialias") else ""
    given = {name: value for name, value in given.items() if name not in ("mode", "antialias")}
    sizes, factor = given["input"].shape[2:], given.get("scale_factor")
    if not given.get("recompute_scale_factor"):
        given.pop("recompute_scale_factor", None)
    elif factor is not None and all(isinstance(n, int) for n in sizes):
        factors = factor if isinstance(factor, (tuple, list)) else [factor] * dims
        given = {"input": given["input"], "size": [int(n * f) for n, f in zip(sizes, factors)],
                 **{name: value for name, value in given.items() if name == "align_corners"}}
    if mode not in ("nearest", "nearest-exact"):
        given["align_corners"] = bool(given.get("align_corners"))
    for name, kind in (("size", int), ("scale_factor", float)):
        if name in given:
            value = given[name]
            one = value if isinstance(value, (tuple, list)) or (kind is int and isinstance(value, (SymInt, int))) else kind(value)
            given[name] = list(one) if isinstance(one, (tuple, list)) else [one] * dims
    exact = "_" if smooth or mode == "nearest-exact" else ""
    return f"{exact}upsample_{mode.replace('-', '_')}{dims}d{smooth}", given


def _sampling(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """`grid_sample` with numbers for its modes."""
    mode, padding = given.get("mode", "bilinear"), given.get("padding_mode", "zeros")
    return "grid_sampler", given | {"mode": ("bilinear", "nearest", "bicubic").index(mode), "padding_mode": (
        "zeros", "border", "reflection").index(padding), "align_corners": bool(given.get("align_corners"))}


def _grid(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """`affine_grid` with a bool."""
    return "affine_grid_generator", given | {"align_corners": bool(given.get("align_corners"))}


def _pooling(name: str) -> Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]:
    """`max_pool` by whether it gives indices."""
    def renamed(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return (name, given) if not given.pop("return_indices", False) else (f"{name}_with_indices", given)

    return renamed


_RENAMED: dict[str, Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]] = {
    "interpolate": _resizing, "grid_sample": _sampling, "affine_grid": _grid, "max_pool2d": _pooling("max_pool2d"),
    "max_pool3d": _pooling("max_pool3d")}
_PREPARED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "arange": _range, "to": _conversion, "stft": lambda given: {"center": True, "pad_mode": "reflect", **given}}


def overload_of(name: str, fn: Callable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[FunctionSchema, list, dict] | None:
    """Which of ATen's overloads a call of the operator `name` is: (signature, args, kwargs); None if it is none of them."""
    given = bound(fn, args, kwargs)
    if given is None:
        return None
    given = _PREPARED.get(name, lambda g: g)(given)
    name = ALIASES.get(name, name)
    if name in _RENAMED:
        name, given = _RENAMED[name](given)
    if name[0] == "_" and name not in schemas() and name[1:] in schemas() and behind(name[1:]) is not None:
        theirs = {a.name for a in schemas()[name[1:]][0].arguments}
        name = name[1:] if set(list(inspect.signature(fn).parameters)[1:]) <= theirs else name    # what an operator is inside
    for numbers_for_tensors in (False, True):
        for schema in schemas().get(name, ()):
            try:
                return schema, *_arguments(schema, fn, given, numbers_for_tensors)
            except Misfit:
                continue
    return None


def _arguments(schema: FunctionSchema, fn: Callable, given: dict[str, Any], numbers_for_tensors: bool) -> tuple[list, dict]:
    """The call as this overload; Misfit if it isn't one."""
    pairs = _pairs(schema, fn)
    if given.keys() - set(pairs.values()):
        raise Misfit
    defaults = inspect.signature(fn).parameters
    positional: list[Any] = []
    keyword: dict[str, Any] = {}
    last = 0
    for a in schema.arguments:
        ours = pairs.get(a.name)
        if ours in given:
            value = take(a, given[ours], numbers_for_tensors)
        elif a.default is not REQUIRED and (ours is None or _same_default(a, defaults[ours].default)):
            value = a.default
        elif ours is not None and defaults[ours].default is not REQUIRED:
            value = take(a, defaults[ours].default, numbers_for_tensors)
        elif a.kind == "bool":      # which kernels to take
            value = False
        else:
            raise Misfit
        changed = a.default is REQUIRED or not (_equal(value, a.default) or (value is preserve_format and a.default is None))
        if a.kwarg_only:
            keyword |= {a.name: value} if changed else {}
        else:
            positional.append(value)
            last = len(positional) if changed else last
    return positional[:last], keyword


def _same_default(a: Argument, ours: Any) -> bool:
    try:
        return ours is REQUIRED or ours is None or (ours is False and a.default is None) or _equal(take(a, ours, False), a.default)
    except Misfit:
        return False


def _equal(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if isinstance(value, (list, tuple)) and isinstance(default, (list, tuple)):
        return len(value) == len(default) and all(_equal(v, d) for v, d in zip(value, default))
    plain = (int, float, str)
    return isinstance(value, plain) and isinstance(default, plain) and isinstance(value, bool) == isinstance(default, bool) \
        and value == default
