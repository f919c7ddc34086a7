"""Subscripts: numbers, slices, None, Ellipsis, masks and index tensors, mixed; read and written."""

from __future__ import annotations

from typing import Any

from .draw import Draw


def _slice(d: Draw, n: int) -> slice:
    ends = (None, 0, 1, 2, -1, -2, n, n + 2)
    return slice(d.choice(ends), d.choice(ends), d.choice([None, None, None, 1, 2, 3]))


def _item(d: Draw, n: int, advanced: tuple[int, ...]) -> Any:
    """A subscript of one dimension of size n; index tensors have the shape `advanced` or broadcast with it."""
    r = d.rng.random()
    if r < 0.3 or n == 0:
        return _slice(d, n)
    if r < 0.5:
        return d.int(-n, n - 1)
    if r < 0.65:
        return slice(None)
    if r < 0.72:
        return d.indices((), n, d.choice(["int64", "int32", "uint8"]) if n > 1 else "int64")
    if r < 0.8:
        return [d.int(-n, n - 1) for _ in range(advanced[-1] if advanced else 1)]
    return d.indices(advanced, n, negative=True)


def index(d: Draw) -> Any:
    """A subscript for the first tensor."""
    shape = tuple(d.it.shape)
    if d.chance(0.12):
        return d.fresh(shape[: d.int(0, len(shape))], "bool")
    advanced = tuple(d.int(1, 3) for _ in range(d.int(0, 2)))
    if d.chance(0.12) and shape:
        return d.indices(advanced, shape[0], negative=True) if shape[0] else slice(None)
    items: list[Any] = []
    at, count = 0, d.int(0, len(shape))
    while at < count:
        if d.chance(0.12):
            items.append(None)
        if d.chance(0.07):
            items.append(d.fresh((shape[at],), "bool"))
        else:
            items.append(_item(d, shape[at], advanced))
        at += 1
    if d.chance(0.2):
        items.append(Ellipsis)
        items += [_item(d, n, advanced) for n in shape[max(at, len(shape) - d.int(0, 1)) :]]
    if d.chance(0.1):
        items.append(None)
    if d.chance(0.02):
        items.append(d.choice([True, False]))
    return items[0] if len(items) == 1 and d.chance(0.7) else tuple(items)


def reading(d: Draw) -> tuple[tuple, dict]:
    first = d.tensor(reuse=0.85)
    d.it = d.value(first)
    return (first, index(d)), {}


def writing(d: Draw) -> tuple[tuple, dict]:
    first = d.tensor(reuse=0.85)
    d.it = whole = d.value(first)
    where = index(d)
    if d.chance(0.4):
        return (first, where, d.number()), {}
    try:
        d.it = eval("it[i]", {"it": whole, "i": _evaluated(d, where)})
    except Exception:
        return (first, where, d.number()), {}
    return (first, where, d.beside()), {}


def _evaluated(d: Draw, where: Any) -> Any:
    if isinstance(where, tuple):
        return tuple(_evaluated(d, w) for w in where)
    return d.value(where) if hasattr(where, "root") else where
