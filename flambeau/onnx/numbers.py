"""Sizes and other numbers that only a run knows: tensors of one element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.dtypes import float64, int64
from .elementwise import Scalars
from .forms import form, short
from .writer import Number, Value, Writer


def _operands(o: Writer, args: tuple, fractions: bool = False) -> list[Value]:
    kinds = {x.dtype for x in args if isinstance(x, Value)} | {float64 for x in args if isinstance(x, float)}
    kind = float64 if fractions or float64 in kinds else int64
    return [o.Cast(x, to=11, _dtype=float64) if isinstance(x, Value) and x.dtype is not kind else
            x if isinstance(x, Value) else o.constant([x], kind) for x in args]


def _arithmetic(name: str) -> Callable:
    def write(o: Writer, *args: Any) -> Value:
        return getattr(Scalars(o), name)(*_operands(o, args, name == "truediv"))

    return write


for _python, _scalar in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "truediv"), ("floordiv", "floordiv"),
                         ("mod", "remainder"), ("pow", "pow"), ("neg", "neg")):
    form(f"python:{_python}")(_arithmetic(_scalar))
form("sym_max")(_arithmetic("maximum"))
form("sym_min")(_arithmetic("minimum"))


short({
    "sym_float": lambda o, x: _operands(o, (x,), True)[0],  # A size as a float
    "sym_size size": lambda o, x, dim: o.size(x, dim % x.rank),  # One size of a tensor
    "sym_numel": lambda o, x: o.Unsqueeze(o.Size(x), [0]),  # How many elements a tensor has
    "getitem": lambda o, several, place: several[place],  # One of several results
})


@form("item", "_local_scalar_dense")
def item(o: Writer, x: Value) -> Number:
    """The number in a tensor of one element."""
    kind = float64 if x.dtype.is_floating_point else int64
    return Number(o.cast(o.Reshape(x, [1]), kind).name, kind)
