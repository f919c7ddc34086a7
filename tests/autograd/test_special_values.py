"""Gradients at zeros, infinities, NaN, subnormal and largest numbers, of rows and of pairs, in every float dtype.

Where torch has a number, in the dtype or in float64, it is the number here; where it has NaN Flambeau may know one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")

# the least subnormal, the least normal and the largest number, its root and the root's reciprocal; how many digits
KINDS = {"float64": (5e-324, 2.3e-308, 1.79e308, 1e154, 1e-154, 1e-9), "float32": (1e-45, 1.2e-38, 3.4e38, 1e19, 1e-19, 3e-5),
         "bfloat16": (1e-40, 1.2e-38, 3.38e38, 1e19, 1e-19, 3e-2), "float16": (6e-8, 6.2e-5, 65504.0, 256.0, 1 / 256, 4e-3)}


def _along(name: str) -> Callable:
    return lambda t, x: getattr(t, name)(x, dim=1)


def _loss(name: str, **options: Any) -> Callable:
    return lambda t, *args: getattr(t.nn.functional, name)(*args, reduction="none", **options)


def _classes(t: Any, x: Any) -> Any:
    return t.zeros(x.shape[0], dtype=t.int64)


def _first(t: Any, x: Any) -> Any:
    return t.zeros(x.shape, dtype=t.int64)


ROWS: dict[str, tuple[int, Callable]] = {
    **{name: (1, _along(name)) for name in (
        "sum", "mean", "prod", "nansum", "nanmean", "var", "std", "logsumexp", "norm", "cumsum", "cummax", "cummin", "logcumsumexp", "max",
        "min", "amax", "amin", "sort", "diff", "trapezoid", "var_mean", "softmax", "log_softmax")},
    "cross_entropy": (1, lambda t, x: t.nn.functional.cross_entropy(x, _classes(t, x), reduction="none")),
    "smoothed": (1, lambda t, x: t.nn.functional.cross_entropy(x, _classes(t, x), reduction="none", label_smoothing=0.5)),
    "to probabilities": (2, lambda t, x, y: t.nn.functional.cross_entropy(x, y.detach().sigmoid(), reduction="none")),
    **{name: (1, lambda t, x, name=name, to=to: getattr(t.nn.functional, name)(t.nan_to_num(x), to(t, x), reduction="none"))
       for name, to in (("multi_margin_loss", _classes), ("multilabel_margin_loss", _first))},
    "scatter_reduce": (2, lambda t, x, y: t.scatter_reduce(x, 1, _first(t, x), y, "prod")),
    "index_reduce": (2, lambda t, x, y: t.index_reduce(x, 1, t.tensor([0, 0, 1]), y, "prod")),
    "vecdot": (2, lambda t, x, y: t.linalg.vecdot(x, y)),
    "gaussian_nll_loss": (2, lambda t, x, y: t.nn.functional.gaussian_nll_loss(x, y, t.ones_like(x), reduction="none")),
}
PAIRS: dict[str, Callable] = {
    **{name: (lambda t, x, y, name=name: getattr(t, name)(x, y)) for name in (
        "add", "mul", "div", "atan2", "hypot", "logaddexp", "logaddexp2", "maximum", "minimum", "fmax", "fmin", "xlogy", "remainder",
        "fmod", "pow")},
    **{name: _loss(name) for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss")},
}


def _values(kind: str) -> np.ndarray:
    positive = np.array([0.0, *KINDS[kind][:-1], 0.5, 1.0, 2.0, 3.0, math.inf])
    return np.array([*positive, *-positive, math.nan])


def _gradients(t: Any, fn: Callable, arrays: list[np.ndarray], kind: str) -> list:
    given = [t.tensor(a.tolist(), dtype=t.float64).to(getattr(t, kind)).requires_grad_() for a in arrays]
    out = fn(t, *given)
    outs = [o for o in (out if isinstance(out, (tuple, list)) else (out,)) if o.requires_grad]
    found = t.autograd.grad(outs, given, [t.ones_like(o) for o in outs], allow_unused=True)
    return [None if g is None else g.double().numpy() for g in found]


def _like(ours: np.ndarray, right: np.ndarray, kind: str) -> np.ndarray:
    tiny, digits = 8 * KINDS[kind][1 if kind != "float16" else 0], KINDS[kind][-1]
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(right), 0.5 if "16" in kind else 1e-2)     # of a sum that cancels, its terms
        return (ours == right) | np.isnan(right) | (np.abs(ours - right) <= digits * size + tiny)


def _wrong(fn: Callable, arrays: list[np.ndarray], kind: str) -> list:
    """Where the gradient is neither torch's nor torch's of the same numbers in float64."""
    same = [torch.tensor(a).to(getattr(torch, kind)).double().numpy() for a in arrays]
    try:
        theirs = _gradients(torch, fn, arrays, kind)
    except NotImplementedError:     # of margins in narrow floats, in which what meets one hangs on rounding
        return []
    ours, wide = _gradients(fl, fn, arrays, kind), _gradients(torch, fn, same, "float64")
    wrong = []
    for place, (mine, narrow, exact) in enumerate(zip(ours, theirs, wide)):
        if mine is None or narrow is None:
            assert mine is narrow
            continue
        rounded = torch.tensor(exact).to(getattr(torch, kind)).double().numpy()
        apart = np.argwhere(~(_like(mine, narrow, kind) | _like(mine, rounded, kind)))[:3]
        wrong += [(place, [a[i[0]].tolist() for a in same], mine[tuple(i)], narrow[tuple(i)]) for i in apart]
    return wrong


@functools.cache
def _drawn(kind: str, small: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    values = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, math.inf, -math.inf, math.nan]) if small else _values(kind)
    return [rng.choice(values, (200, 3)) for _ in range(2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.filterwarnings("ignore")
def test_of_rows(name, kind):
    arguments, fn = ROWS[name]
    for small in (True, False):
        if not small and name in ("norm", "var", "std", "var_mean", "vecdot", "gaussian_nll_loss"):
            continue    # squares that overflow
        assert not _wrong(fn, _drawn(kind, small)[:arguments], kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.filterwarnings("ignore")
def test_of_pairs(name, kind):
    x, y = np.meshgrid(_values(kind), _values(kind))
    assert not _wrong(PAIRS[name], [x.reshape(-1), y.reshape(-1)], kind)


def test_a_product_of_several_zeros_has_second_derivatives():
    for values in ([0.0, 0.0, 3.0], [2.0, 0.0, 5.0], [0.0, 0.0, 0.0], [2.0, 3.0, math.inf]):
        made = []
        for t in (fl, torch):
            x = t.tensor([values, values[::-1]], dtype=t.float64).requires_grad_()
            first, = t.autograd.grad(x.prod(1).sum() + x.prod() / 7, x, create_graph=True)
            made.append(t.autograd.grad((first * t.arange(1.0, 7).reshape(2, 3)).sum(), x)[0].tolist())
        np.testing.assert_allclose(*[np.where(np.isnan(made[1]), 0, m) for m in made])


def test_equally_large_logits_share():
    """However large they are: what their sum's logarithm is above them is kept apart."""
    x = fl.tensor([[3e7, 3e7, 1.0], [1e30, 1.0, 1e30]], requires_grad=True)
    losses = fl.nn.functional.cross_entropy(x, fl.tensor([0, 2]), reduction="none")
    losses.sum().backward()
    assert losses.tolist() == [pytest.approx(math.log(2))] * 2
    assert x.grad.tolist() == [[-0.5, 0.5, 0], [0.5, 0, -0.5]]
