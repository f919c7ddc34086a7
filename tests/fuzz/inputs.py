"""Random inputs: dtypes, values (special ones too) and memory layouts."""

from __future__ import annotations

import math
from random import Random

from .program import LONGEST, Input

FLOATS = ("float32", "float64", "float16", "bfloat16")
COMPLEX = ("complex64", "complex128")
UNSIGNED = ("uint16", "uint32", "uint64")    # of which torch has few operators: it does not flip them
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", *UNSIGNED)
DTYPES = {
    "float32": 40,
    "float64": 10,
    "float16": 6,
    "bfloat16": 6,
    "int64": 12,
    "int32": 4,
    "int16": 3,
    "int8": 3,
    "uint8": 4,
    "bool": 7,
    "complex64": 5,
    "complex128": 3,
    **dict.fromkeys(UNSIGNED, 0.7),
}
SPECIAL = (
    math.nan,
    math.inf,
    -math.inf,
    -0.0,
    0.0,
    1e30,
    -1e30,
    1e-30,
    1e-40,
    65504.0,
    0.5,
    -0.5,
    1.0,
    -1.0,
    3.5,
    2.5,
    88.8,
    -104.0,
)
EXTREMES = {
    "int64": (2**63 - 1, -(2**63)),
    "int32": (2**31 - 1, -(2**31)),
    "int16": (2**15 - 1, -(2**15)),
    "int8": (127, -128),
    "uint8": (255, 0),
    "uint16": (2**16 - 1, 0),
    "uint32": (2**32 - 1, 0),
    "uint64": (2**64 - 1, 0),
}


def dtype(rng: Random) -> str:
    return rng.choices(list(DTYPES), list(DTYPES.values()))[0]


def _real(rng: Random, kind: str) -> float:
    if kind == "special" and rng.random() < 0.4:
        return rng.choice(SPECIAL)
    if kind == "unit":
        return round(rng.random(), 3)
    if kind == "whole":
        return float(rng.randint(-3, 3))
    return round(rng.gauss(0, 1.5), 3)


def values(rng: Random, dtype: str, count: int, kind: str | None = None) -> tuple:
    """Values for a dtype. `kind`: normal, unit (0 to 1), whole, or special."""
    kind = kind or rng.choices(["normal", "whole", "unit", "special"], [60, 15, 10, 15])[0]
    count = min(count, LONGEST)
    if dtype == "bool":
        return tuple(rng.random() < 0.5 for _ in range(count))
    if dtype in INTEGERS:
        low = 0 if dtype.startswith("uint") or kind == "unit" else -5
        drawn = [rng.randint(low, 9) for _ in range(count)]
        if kind == "special":
            drawn = [rng.choice(EXTREMES[dtype]) if rng.random() < 0.15 else v for v in drawn]
        return tuple(drawn)
    if dtype in COMPLEX:
        return tuple(complex(_real(rng, kind), _real(rng, kind)) for _ in range(count))
    return tuple(_real(rng, kind) for _ in range(count))


def _permuted(rng: Random, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    order = list(range(len(shape)))
    rng.shuffle(order)
    stored = [0] * len(shape)
    for position, d in enumerate(order):
        stored[d] = shape[position]
    return tuple(stored), (f".permute({tuple(order)})",)


def _sliced(rng: Random, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    d = rng.randrange(len(shape))
    step, start = rng.choice([(2, 0), (2, 1), (1, 1), (3, 2)])
    stored = shape[:d] + (start + step * shape[d],) + shape[d + 1 :]
    stop = "" if step > 1 else str(start + shape[d])
    text = f"{start}:{stop}:{step}" if step > 1 else f"{start}:{stop}"
    return stored, (f"[{':, ' * d}{text}]",)


def _expanded(rng: Random, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    stored = tuple(1 if rng.random() < 0.5 else n for n in shape)
    return stored, (f".expand({shape})",)


def _flipped(rng: Random, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    return shape, (f".flip({rng.randrange(len(shape))})",)


def _selected(rng: Random, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    d = rng.randint(0, len(shape))
    return shape[:d] + (2,) + shape[d:], (f".select({d}, {rng.randrange(2)})",)


def _channels_last(rng: Random, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    last = {4: "channels_last", 5: "channels_last_3d"}.get(len(shape))
    return shape, (f".contiguous(memory_format=torch.{last})",) if last else ()


LAYOUTS = ((_permuted, 10), (_sliced, 8), (_expanded, 5), (_flipped, 3), (_selected, 5), (_channels_last, 8))


def make(rng: Random, name: str, dtype: str, shape: tuple[int, ...], *, kind: str | None = None, plain: float = 0.6) -> Input:
    """An input of this dtype and shape. `plain`: how likely it is contiguous."""
    stored, views = tuple(shape), ()
    for chance in (1 - plain, 0.25):    # a view, and now and then one of a view
        if rng.random() >= chance:
            break
        ways = [(way, weight) for way, weight in LAYOUTS if (stored or way is _selected) and (way is not _flipped or dtype not in UNSIGNED)]
        stored, beneath = rng.choices([w for w, _ in ways], [w for _, w in ways])[0](rng, stored)
        views = beneath + views
    return Input(name, dtype, stored, values(rng, dtype, max(1, math.prod(stored)), kind), views)
