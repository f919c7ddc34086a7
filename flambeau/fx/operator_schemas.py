"""Calls with their arguments under the names of the parameters: `normalize_function`, `normalize_module`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

_BESIDE = ("out", "named")      # parameters of operators that no graph says


class ArgsKwargsPair(NamedTuple):
    """The arguments of a call."""

    args: tuple
    kwargs: dict[str, Any]


def get_signature_for_torch_op(op: Callable, return_schemas: bool = False) -> list[inspect.Signature] | None:
    """The signatures of an operator; None if nothing tells them."""
    if return_schemas:
        raise NotImplementedError("get_signature_for_torch_op(return_schemas=True) is not implemented; overloads have `_schema`")
    try:
        return [inspect.signature(op)]
    except (TypeError, ValueError):
        return None


def _normalized(function: Callable, args: tuple, kwargs: dict[str, Any], only_kwargs: bool) -> ArgsKwargsPair | None:
    schema = getattr(function, "_schema", None)
    if schema is not None:      # an overload of ATen's: as it says, without defaults
        given = schema.bind(args, kwargs)
        named = set() if only_kwargs else set(list(given)[:len(args)])
        return ArgsKwargsPair(tuple(v for k, v in given.items() if k in named), {k: v for k, v in given.items() if k not in named})
    signatures = get_signature_for_torch_op(function)
    if signatures is None:
        return None
    try:
        bound = signatures[0].bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    for name in _BESIDE:
        if bound.arguments.get(name, 0) is None:
            del bound.arguments[name]
    kinds = {name: parameter.kind for name, parameter in signatures[0].parameters.items()}
    if inspect.Parameter.VAR_POSITIONAL in kinds.values() or not only_kwargs:
        positional = bound.args[:len(args)] if inspect.Parameter.VAR_POSITIONAL not in kinds.values() else bound.args
        names = [name for name, kind in kinds.items() if kind is not inspect.Parameter.VAR_POSITIONAL][:len(positional)]
        return ArgsKwargsPair(positional, {k: v for k, v in _flat(bound.arguments, kinds).items() if k not in names})
    return ArgsKwargsPair((), _flat(bound.arguments, kinds))


def _flat(arguments: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
    """By name, what was given beside the parameters among the others."""
    beside = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    made = {name: v for name, v in arguments.items() if kinds[name] not in beside}
    for name, kind in kinds.items():
        made |= arguments.get(name, {}) if kind is inspect.Parameter.VAR_KEYWORD else {}
    return made


def normalize_function(target: Callable, args: tuple, kwargs: dict[str, Any] | None = None, arg_types: tuple | None = None,
                       kwarg_types: dict[str, Any] | None = None, normalize_to_only_use_kwargs: bool = False) -> ArgsKwargsPair | None:
    """A call's arguments in the order of the parameters, with their defaults; or all by name. None if the function has no signature, or
    it does not fit. An operator has one signature here, so the types of the arguments decide nothing."""
    del arg_types, kwarg_types
    return _normalized(target, tuple(args), dict(kwargs or {}), normalize_to_only_use_kwargs)


def normalize_module(root: Any, target: str, args: tuple, kwargs: dict[str, Any] | None = None,
                     normalize_to_only_use_kwargs: bool = False) -> ArgsKwargsPair | None:
    """The same of a call of the submodule `target`."""
    return _normalized(root.get_submodule(target).forward, tuple(args), dict(kwargs or {}), normalize_to_only_use_kwargs)


__all__ = ["ArgsKwargsPair", "get_signature_for_torch_op", "normalize_function", "normalize_module"]
