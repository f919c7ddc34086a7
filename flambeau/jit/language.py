"""What programs say to TorchScript, and what it is in ordinary Python: marks on functions and classes, types of values, tasks."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, get_args, get_origin

from ..futures import Future, settled
from .module import MARK

OVERLOADS: dict[str, list[Callable]] = {}
"""Declarations of `_overload` and `_overload_method` by module and qualified name."""



@contextmanager
def _disable_emit_hooks() -> Iterator[None]:
    """A block in which nobody is told of what is compiled: nobody is in any case."""
    yield


def _marked(fn: Any, mark: str) -> Any:
    target = fn.fget if builtins.isinstance(fn, property) else fn
    setattr(target, MARK, mark)
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator for a method or function that is called as Python, and that no archive holds; with `drop=True` calls raise."""
    if callable(drop):
        return _marked(drop, "ignore")
    return lambda fn: _marked(fn, "drop" if drop else "ignore")


def unused(fn: Callable) -> Callable:
    """`fn`, which TorchScript doesn't compile: a call of it raises."""
    return _marked(fn, "unused")


def export(fn: Callable) -> Callable:
    """`fn`, a method that TorchScript compiles although `forward` may not call it."""
    return _marked(fn, "export")


def _overload(fn: Callable) -> Callable:
    """`fn`, the declaration of one way to call the function that follows."""
    OVERLOADS.setdefault(f"{fn.__module__}.{fn.__qualname__}", []).append(fn)
    return fn


_overload_method = _overload


def _copy_to_script_wrapper(fn: Callable) -> Callable:
    """`fn` itself: scripted modules have all Python methods."""
    return fn


def interface(obj: Any) -> Any:
    """`obj`, a class whose methods say what other classes must have to stand for it."""
    obj._script_interface = True
    return obj


def is_scripting() -> bool:
    """False; True in what is compiled by torch.jit.script."""
    return False


def annotate(the_type: Any, the_value: Any) -> Any:
    """`the_value`, which TorchScript takes for a `the_type`."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether `obj` is of `target_type`, types of elements included (those of an empty list or dict fit)."""
    if builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, kind) for kind in target_type)
    origin: Any = get_origin(target_type)
    args, value = get_args(target_type), obj     # type: tuple[Any, ...], Any
    if origin is None:
        return obj is None if target_type is None else builtins.isinstance(obj, target_type)
    if not builtins.isinstance(origin, type):     # Optional, Union
        return any(isinstance(obj, kind) for kind in args)
    if not builtins.isinstance(obj, origin):
        return False
    if origin is dict:
        return all(isinstance(k, args[0]) and isinstance(v, args[1]) for k, v in value.items())
    if origin is tuple:
        return len(value) == len(args) and all(map(isinstance, value, args))
    return all(isinstance(item, args[0]) for item in value) if args else True


def fork(func: Callable, *args: Any, **kwargs: Any) -> Future:
    """`func(*args, **kwargs)`, run at once, as a Future."""
    return settled(lambda: func(*args, **kwargs))


def wait(future: Future) -> Any:
    """The value of a future."""
    return future.wait()


class Attribute:
    """A value of a module with its type: `self.names = torch.jit.Attribute([], List[str])`."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type


__all__ = ["MARK", "OVERLOADS", "Attribute", "Final", "annotate", "export", "fork", "ignore", "interface", "is_scripting", "isinstance",
           "unused", "wait"]
