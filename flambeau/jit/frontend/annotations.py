"""Annotations of Python as TorchScript's types."""

from __future__ import annotations

import ast
import enum
import inspect
import numbers
import types
import typing
from collections.abc import Callable
from typing import Any

from ...core.device import device
from ...core.dtypes import dtype
from ...core.memory_format import layout, memory_format
from ...core.size import Size
from ...core.tensor import Tensor
from ...futures import Future
from ...ops.generators import Generator
from .static import ANY, BOOL, COMPLEX, DEVICE, FLOAT, INT, NONE, NUMBER, STR, TENSOR, Type, optional

_PLAIN: dict[Any, Type] = {
    int: INT, float: FLOAT, bool: BOOL, str: STR, complex: COMPLEX, None: NONE, type(None): NONE, Any: ANY, device: DEVICE,
    **dict.fromkeys((dtype, layout, memory_format), INT), Size: Type("List", (INT,)), Generator: Type("Generator"),
    numbers.Number: NUMBER, inspect.Parameter.empty: TENSOR, list: Type("AnyList"), tuple: Type("AnyTuple"),
}
_CONTAINERS: dict[Any, str] = {list: "List", dict: "Dict", tuple: "Tuple", Future: "Future"}


class Unknown(Exception):
    """An annotation that is no type of TorchScript."""


def type_from(annotation: Any, class_of: Callable[[type], Type | None]) -> Type:
    """The type that an annotation means; `class_of` answers for classes of the program."""
    if annotation is typing.Callable:
        raise Unknown("functions are no values of TorchScript")
    if isinstance(annotation, typing.Hashable) and annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, Type):
        return annotation
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Final or origin is typing.ClassVar or origin is typing.Annotated:
        return type_from(args[0], class_of)
    if origin in (typing.Union, types.UnionType):
        return _union([type_from(arg, class_of) for arg in args])
    if origin in _CONTAINERS:
        if origin is tuple and args in ((), ((),)):
            return Type("Tuple")
        if origin is tuple and args[-1] is ...:
            raise Unknown("a tuple has a fixed number of elements; List has any")
        return Type(_CONTAINERS[origin], tuple(type_from(arg, class_of) for arg in args))
    if isinstance(annotation, type):
        if issubclass(annotation, Tensor):
            return TENSOR
        found = class_of(annotation)
        if found is not None:
            return found
    raise Unknown(f"Unknown type annotation: '{getattr(annotation, '__name__', annotation)}'")


def _union(parts: list[Type]) -> Type:
    flat: list[Type] = []
    for part in parts:
        for one in (*part.args, NONE) if part.name == "Optional" else part.args if part.name == "Union" else (part,):
            if one not in flat:
                flat.append(one)
    rest = [part for part in flat if part != NONE]
    if len(rest) == len(flat):
        return rest[0] if len(rest) == 1 else Type("Union", tuple(rest))
    if not rest:
        return NONE
    return optional(rest[0]) if len(rest) == 1 else Type("Union", tuple(flat))


def type_of_value(value: Any, class_of: Callable[[type], Type | None]) -> Type | None:
    """The type of a value of Python's, such as an attribute of a module; None of what TorchScript can't hold."""
    if isinstance(value, Tensor):
        return TENSOR
    if value is None or (isinstance(value, (bool, int, float, complex, str)) and not isinstance(value, enum.Enum)):
        plain = next(k for k in (type(None), bool, int, float, complex, str) if isinstance(value, k))
        return _PLAIN[plain]
    if isinstance(value, (device, dtype, layout, memory_format, Generator)):
        return _PLAIN[next(k for k in (device, dtype, layout, memory_format, Generator) if isinstance(value, k))]
    if isinstance(value, Size):
        return Type("List", (INT,))
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return _all_known("Tuple", [type_of_value(v, class_of) for v in value])
    if isinstance(value, list) and value:
        return _one_kind("List", [value], class_of)
    if isinstance(value, dict) and value:
        return _one_kind("Dict", [list(value), list(value.values())], class_of)
    return class_of(type(value))


def _all_known(name: str, parts: list[Type | None]) -> Type | None:
    return None if None in parts else Type(name, tuple(p for p in parts if p is not None))


def _one_kind(name: str, columns: list[list], class_of: Callable[[type], Type | None]) -> Type | None:
    kinds = [{type_of_value(v, class_of) for v in column} for column in columns]
    for kind in kinds:
        if NONE in kind and len(kind) == 2:
            kind.remove(NONE)
            kind.add(optional(kind.pop()))  # type: ignore[arg-type]
    return _all_known(name, [kind.pop() if len(kind) == 1 else None for kind in kinds])


def evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    """An annotation that may be a text, or a tree, as the object that it means among these names."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, ast.AST):
        annotation = ast.unparse(annotation)
    if not isinstance(annotation, str):
        return annotation
    try:
        found = eval(annotation, {**vars(typing), "Tensor": Tensor, **names})    # the user's own program, as Python would evaluate it
    except Exception as error:
        raise Unknown(f"Unknown type annotation: '{annotation}' ({error})") from None
    return evaluated(found, names) if isinstance(found, str) else found
