"""Small helpers of the layers: parameters by shape, a number once per spatial dimension, padding in `F.pad`'s order, printing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...ops.creation import empty
from .. import functional as F
from ..parameter import Parameter
from .applied import FunctionModule
from .module import Module


def add_parameters(module: Module, device: Any, dtype: Any, **shapes: Any) -> None:
    """Register an uninitialised parameter of each shape (a tuple or a length); None stands for a parameter left out."""
    for name, shape in shapes.items():
        module.register_parameter(name, None if shape is None else Parameter(empty(shape, device=device, dtype=dtype)))


def chosen(module: Module, **usual: Any) -> list[str]:
    """`name=value` of each attribute of `module` that differs from the usual value."""
    return [f"{name}={getattr(module, name)}" for name, value in usual.items() if getattr(module, name) != value]


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple]:
    def parse(x: Any) -> tuple:
        return tuple(x) if isinstance(x, Iterable) and not isinstance(x, str) else (x,) * n

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple, n: int) -> tuple:
    """(a, b) -> (b, b, a, a) for n = 2: padding per dimension as F.pad takes it."""
    return tuple(x for x in reversed(t) for _ in range(n))


def spatial_family(base: type, name: str, doc: str, *, function: str | None = None, ranks: Sequence[int] = (1, 2, 3),
                   **attributes: Any) -> list[Any]:
    """The classes `name`1d, 2d and 3d (or those of `ranks`) below `base`: `spatial` is their number of dimensions, `_function` the
    function of nn.functional that begins with `function`. `doc` may speak of {n} and of {dims}, the input's dimensions."""
    made = []
    for n in ranks:
        dims = ("(n, c, l)", "(n, c, h, w)", "(n, c, d, h, w)")[n - 1]
        members = {"spatial": n, "__module__": base.__module__, "__doc__": doc.format(n=n, dims=dims), **attributes}
        options = {}
        if function is not None:
            of_n = getattr(F, f"{function}{n}d")
            members["_function"] = staticmethod(of_n)
            options = {"function": of_n} if issubclass(base, FunctionModule) else {}
        made.append(type(f"{name}{n}d", (base,), members, **options))
    return made


def consume_prefix_in_state_dict_if_present(state_dict: dict, prefix: str) -> None:
    """Remove `prefix` from the keys that begin with it, in place."""
    for key in [k for k in state_dict if k.startswith(prefix)]:
        state_dict[key[len(prefix):]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for key in [k for k in metadata if k]:
            if key == prefix.replace(".", "") or key.startswith(prefix):
                metadata[key[len(prefix):]] = metadata.pop(key)
