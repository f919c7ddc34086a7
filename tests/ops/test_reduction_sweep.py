"""Seeded random calls of reductions, norms, losses and running operators against torch: dtype, shape, value, refusal.

Sizes lie around every threshold of the code, values are special ones too; `python -m tests.ops.test_reduction_sweep N SEED` goes on.
"""

from __future__ import annotations

import math
import sys
import warnings

import ml_dtypes
import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

SIZES = (0, 1, 2, 7, 255, 256, 257, 16383, 16385, 32768, 70000)
FLOATS = ("float16", "bfloat16", "float32", "float64")
REAL = (*FLOATS, "bool", "uint8", "int8", "int32", "int64")
ALL = (*REAL, "complex64", "complex128")
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "complex64": 2e-5}

# name -> (dtypes, keywords to choose from); "dims": one, several or none; "dim": one
OPERATORS = {
    "sum": (ALL, ("dims", "keepdim", "dtype")), "mean": (ALL, ("dims", "keepdim", "dtype")), "nansum": (REAL, ("dims", "keepdim")),
    "nanmean": (FLOATS, ("dims", "keepdim")), "prod": (ALL, ("dim", "dtype")), "amax": (REAL, ("dims", "keepdim")),
    "amin": (REAL, ("dims", "keepdim")), "argmax": (REAL, ("dim", "keepdim")), "argmin": (REAL, ("dim", "keepdim")),
    "any": (ALL, ("dims", "keepdim")), "all": (ALL, ("dims", "keepdim")), "count_nonzero": (ALL, ("dims",)),
    "var": ((*FLOATS, "complex64", "int64"), ("dims", "keepdim", "correction")),
    "std": ((*FLOATS, "complex64"), ("dims", "keepdim", "correction")),
    "var_mean": (FLOATS, ("dims", "keepdim", "correction")), "logsumexp": ((*FLOATS, "int64", "complex64"), ("dims!", "keepdim")),
    "norm": ((*FLOATS, "complex64", "int64"), ("p", "dims", "keepdim")),
    "linalg.vector_norm": ((*FLOATS, "complex64"), ("ord", "dims", "keepdim", "dtype")),
    "median": (REAL, ("dim", "keepdim")), "nanmedian": (FLOATS, ("dim", "keepdim")), "aminmax": (REAL, ("*dim", "keepdim")),
    "cumsum": (ALL, ("dim!", "dtype")), "cumprod": (ALL, ("dim!", "dtype")), "cummax": (REAL, ("dim!",)), "cummin": (REAL, ("dim!",)),
    "logcumsumexp": (FLOATS, ("dim!",)), "softmax": (FLOATS, ("dim!", "dtype")), "log_softmax": (FLOATS, ("dim!",)),
    "nn.functional.l1_loss": (FLOATS, ("other", "reduction")), "nn.functional.mse_loss": (FLOATS, ("other", "reduction")),
    "nn.functional.smooth_l1_loss": (FLOATS, ("other", "reduction")), "nn.functional.huber_loss": (FLOATS, ("other", "reduction")),
    "nn.functional.normalize": (FLOATS, ("dim!",)), "dist": (FLOATS, ("other", "p")),
}
SPECIAL = ("plain", "plain", "positive", "offset", "huge", "tiny", "inf", "nan", "zeros")


def values(rng, count, kind):
    """A kind of data, in float64 that the dtype can hold more or less."""
    x = rng.standard_normal(count)
    x = {"positive": abs(x) + 0.1, "offset": x + 100, "huge": x * 1e4, "tiny": x * 1e-5, "zeros": x * 0 * np.sign(x)}.get(kind, x)
    if kind in ("inf", "nan") and count:
        x[rng.integers(0, count, 1 + count // 100)] = {"inf": np.inf, "nan": np.nan}[kind] * (1 if rng.random() < 0.7 else -1)
    return x


def draw(rng):
    """(operator, numpy array, how it is laid out, second array or None, keywords)."""
    name = str(rng.choice(list(OPERATORS)))
    kinds, keywords = OPERATORS[name]
    kind, special, size = str(rng.choice(kinds)), str(rng.choice(SPECIAL)), int(rng.choice(SIZES))
    shape = [(size,), (3, size), (size, 3), (2, size, 2), ()][rng.choice(5, p=(0.25, 0.25, 0.25, 0.2, 0.05))]
    if "int" in kind or kind == "bool":
        special = "zeros" if special == "zeros" else "plain"
    scale = 40 if "int" in kind else 1

    def array():
        x = values(rng, math.prod(shape), special).reshape(shape)
        x = x + 1j * values(rng, math.prod(shape), special).reshape(shape) if kind.startswith("complex") else x * scale
        x = x > 0 if kind == "bool" else np.abs(x) if kind == "uint8" else x
        return x.astype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)
    with np.errstate(all="ignore"):
        x, other = array(), array()
    layout = str(rng.choice(["contiguous", "contiguous", "transposed", "strided", "expanded"]))
    given = {}
    rank = len(shape)
    for word in keywords:
        must = word.endswith("!")
        word = word.strip("!*")
        if word in ("dim", "dims"):
            if rank and (must or rng.random() < 0.8):
                count = int(rng.integers(1, rank + 1)) if word == "dims" else 1
                dims = [int(d) - rank * int(rng.integers(0, 2)) for d in rng.permutation(rank)[:count]]
                given["dim"] = dims[0] if count == 1 else dims
            elif must:
                given["dim"] = 0
        elif word == "keepdim" and rng.random() < 0.4 and "dim" in given:
            given["keepdim"] = True
        elif word == "dtype" and rng.random() < 0.3:
            floats = "loat" in kind or "complex" in kind
            given["dtype"] = str(rng.choice(["float32", "float64", "complex64"] if floats else ["int32", "int64", "float32"]))
        elif word == "correction" and rng.random() < 0.5:
            given["correction"] = int(rng.integers(0, 3))
        elif word in ("p", "ord"):
            given[word] = float(rng.choice([0, 1, 2, 3, 0.5, np.inf, -np.inf, -1]))
        elif word == "reduction":
            given[word] = str(rng.choice(["mean", "sum", "none"]))
    return name, x, layout, other if "other" in keywords else None, given


def laid_out(module, x, layout):
    """The array as a tensor of the module."""
    kind = x.dtype.name
    wide = x.astype(np.float32) if kind == "bfloat16" else x
    t = module.from_numpy(np.ascontiguousarray(wide)).to(getattr(module, kind))
    if layout == "transposed" and t.ndim >= 2:
        return t.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "strided" and t.ndim:
        return module.stack([t, t], -1)[..., 0]
    if layout == "expanded" and t.ndim and t.shape[0]:
        return t[:1].expand(t.shape)
    return t


def outcome(module, name, x, layout, other, given):
    fn = module
    for part in name.split("."):
        fn = getattr(fn, part)
    given = {k: getattr(module, v) if k == "dtype" else v for k, v in given.items()}
    args = [laid_out(module, a, layout) for a in (x, other) if a is not None]
    try:
        out = fn(*args, **given)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return error
    return tuple(out) if isinstance(out, tuple) else (out,)


def difference(case) -> str | None:
    """What torch and Flambeau disagree about, or None."""
    name, x, layout, other, given = case
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want, got = outcome(torch, *case), outcome(fl, *case)
        if isinstance(want, Exception) or isinstance(got, Exception):
            return None if isinstance(want, Exception) and isinstance(got, Exception) else f"{want!r:.150} against {got!r:.150}"
        texts = [_difference(case, want, got)]
        if texts[0] is not None and x.dtype.name in TOLERANCE:    # who is right?
            wide = "complex128" if x.dtype.kind == "c" else "float64"
            exact = outcome(torch, name, x.astype(wide), layout, None if other is None else other.astype(wide), given)
            texts.append(_difference(case, [e.to(a.dtype) for e, a in zip(exact, want, strict=True)], got))
        return None if None in texts else texts[0]


def _difference(case, want, got) -> str | None:
    name, x, layout, *_ = case
    if "median" in name:      # torch's index is any of equals; along expanded dimensions its values are others' as well
        want, got = ((), ()) if layout == "expanded" else (want[:1], got[:1])
    if name == "var_mean" and not np.isfinite(x.astype(np.float64)).all():      # torch's mean of infinities is NaN
        want, got = want[:1], got[:1]
    for a, b in zip(want, got, strict=True):
        kind = str(a.dtype).split(".")[-1]
        if kind != str(b.dtype).split(".")[-1] or tuple(a.shape) != tuple(b.shape):
            return f"{a.dtype} {tuple(a.shape)} against {b.dtype} {tuple(b.shape)}"
        p, q = a.to(torch.complex128).numpy(), b.to(fl.complex128).numpy()
        limit = TOLERANCE.get(x.dtype.name, 1e-9) if "int" not in kind and kind != "bool" else 0
        limit = max(limit, TOLERANCE.get(kind, 0)) if limit else 0
        size = float(np.abs(x.astype(np.complex128)[np.isfinite(x)]).max(initial=0)) if name in ("sum", "mean", "nansum", "cumsum") else 0
        near = np.isclose(q, p, rtol=limit, atol=limit * (1e-3 + size * math.sqrt(max(x.size, 1)) * (name != "mean")), equal_nan=True)
        if not near.all():
            at = tuple(np.argwhere(~near)[0]) if p.ndim else ()
            return f"{p[at]} against {q[at]} at {at}, {int((~near).sum())} of {p.size}"
    return None


def sweep(count: int, seed: int) -> list[str]:
    """The differences of `count` calls."""
    found = []
    for number in range(count):
        case = draw(np.random.default_rng((seed, number)))
        if (text := difference(case)) is not None:
            name, x, layout, _, given = case
            found.append(f"{(seed, number)}: {name} {x.dtype.name}{list(x.shape)} {layout} {given}: {text}")
    return found


@pytest.mark.parametrize("seed", range(4))
def test_sweep(seed) -> None:
    assert not sweep(100, seed)


if __name__ == "__main__":
    for line in sweep(int(sys.argv[1]), int(sys.argv[2])):
        print(line, flush=True)
