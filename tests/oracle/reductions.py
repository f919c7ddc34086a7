"""The reading of reductions: every form of dimensions, `keepdim`, `dtype=` and `out=`, in every dtype, of shapes that are edges."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from .database import named
from .wrong import SOURCES, Calls, Wrong, enter

ONE = (0, -1, 1, 3, -4, None, 1.5, "x", True, (0,), ())
"""What is given as a dimension where there is one."""
SEVERAL = (*ONE, (0, 1), (-1, 0), (0, 0), (0, -1), (5,), [1], (1.5,), (None,))
DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "uint8", "bool", "complex64")
RESULTS = (torch.float64, torch.int64, torch.bool, torch.complex64, torch.float16)
SHAPES = ((), (0,), (3,), (2, 3), (2, 0), (0, 3), (2, 3, 2))


class Reduction(NamedTuple):
    """A function, how it is called besides, and which keywords it has."""

    name: str
    dims: tuple[Any, ...]
    keywords: tuple[str, ...] = ("keepdim",)
    first: tuple[Any, ...] = ()
    whole: bool = True

    @property
    def op(self) -> Any:
        return _of_torch(self.name)


def _of_torch(name: str) -> Any:
    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part)
    return found


_ALL = [
    *(Reduction(name, SEVERAL, ("keepdim", "dtype", "out")) for name in ("sum", "mean", "nansum", "nanmean")),
    *(Reduction(name, SEVERAL, ("keepdim", "out")) for name in ("amax", "amin", "all", "any", "logsumexp", "var", "std")),
    *(Reduction(name, SEVERAL) for name in ("var_mean", "std_mean")), Reduction("count_nonzero", SEVERAL, ()),
    *(Reduction(name, SEVERAL, ("keepdim", "dtype", "out"), (2,)) for name in ("norm", "linalg.vector_norm")),
    *(Reduction(name, SEVERAL, ("keepdim", "dtype", "out")) for name in ("linalg.norm", "linalg.matrix_norm")),
    Reduction("prod", ONE, ("keepdim", "dtype", "out")), Reduction("argmax", ONE, ("keepdim", "out")), Reduction("argmin", ONE),
    *(Reduction(name, ONE) for name in ("max", "min", "median", "nanmedian", "mode", "aminmax")),
    *(Reduction(name, ONE, ("dtype", "out")) for name in ("cumsum", "cumprod")),
    *(Reduction(name, ONE, ()) for name in ("cummax", "cummin", "sort", "argsort", "diff", "trapezoid", "unique_consecutive")),
    Reduction("logcumsumexp", ONE, ("out",)), *(Reduction(name, ONE, ("dtype",)) for name in ("softmax", "log_softmax")),
    *(Reduction(name, ONE, ("keepdim", "out"), (q,)) for name in ("quantile", "nanquantile") for q in (0.5,)),
    *(Reduction(name, ONE, ("keepdim",), (1,)) for name in ("kthvalue",)), Reduction("topk", ONE, (), (1,)),
]


def reductions() -> dict[str, Reduction]:
    """The functions, by name."""
    return {entry.name: entry for entry in _ALL}


def _forms(entry: Reduction) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """What is given behind the tensor."""
    yield entry.first, {}
    for dim in entry.dims:
        yield entry.first, {"dim": dim}
        yield (*entry.first, dim), {}
        if "keepdim" in entry.keywords:
            yield entry.first, {"dim": dim, "keepdim": True}
    for dim in ({}, {"dim": 0}):
        if "dtype" in entry.keywords:
            yield from ((entry.first, {**dim, "dtype": kind}) for kind in RESULTS)
        if "out" in entry.keywords:
            yield from ((entry.first, {**dim, "out": torch.empty(0, dtype=kind)}) for kind in (torch.float32, *RESULTS))
    if "keepdim" in entry.keywords:
        yield entry.first, {"keepdim": True}
        yield entry.first, {"dim": 0, "keepdim": 1}


def _calls(entry: Reduction, most: int) -> Calls:
    found = []
    for kind in DTYPES:
        for shape in SHAPES:
            generator = torch.Generator().manual_seed(len(shape))
            x = torch.randn(shape, generator=generator, dtype=torch.float64).mul(3).abs().to(getattr(torch, kind))
            found += [(entry.op, named(entry.name), Wrong("", (x, *args), kwargs)) for args, kwargs in _forms(entry)]
    yield from random.Random(entry.name).sample(found, min(len(found), 30 * most or len(found)))


SOURCES["reductions"] = _calls, reductions
enter("reductions")
