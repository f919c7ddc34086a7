"""What an operator keeps for backward decides which in-place writes a program may do afterwards.

Every function that both libraries have is called, its result or one of its inputs is written to, and backward runs. Wherever
torch allows the write Flambeau does, with the same gradients; where torch refuses, Flambeau may know better.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional

RNG = np.random.default_rng(0)


def uniform(*shape):
    return RNG.uniform(0.2, 0.9, shape)


MATRIX = RNG.standard_normal((3, 3))
INDEX, ROWS, IMAGE = RNG.integers(0, 3, (3, 3)), np.array([0, 2, 1]), uniform(2, 4, 6, 6)
MASK = uniform(3, 3) > 0.5
SQUARE, OTHER, THIRD, VECTOR = uniform(3, 3), uniform(3, 3), uniform(3, 3), uniform(3)

# Arguments to try a function on: the first few that it accepts are taken.
ARGUMENTS = [
    (SQUARE, ROWS), (IMAGE, np.zeros(4), np.ones(4), uniform(4), uniform(4), True),
    (SQUARE,), (SQUARE, OTHER), (SQUARE, OTHER, THIRD), (SQUARE, 0), (SQUARE, 2), (SQUARE, 0.5), (SQUARE, -1), (2.0, SQUARE),
    (SQUARE, 0, INDEX), (SQUARE, 0, INDEX, OTHER), (SQUARE, 0, ROWS, OTHER), (SQUARE, 0, ROWS), (SQUARE, MASK, 0.5),
    (MASK, SQUARE, OTHER), (SQUARE, MASK), (VECTOR, VECTOR), (SQUARE, VECTOR), (SQUARE, OTHER, VECTOR), ([SQUARE, OTHER],),
    (uniform(2, 3, 3), uniform(2, 3, 3)), (uniform(2, 3, 3), uniform(2, 3, 3), uniform(2, 3, 3)), (SQUARE, (3, 3)),
    (IMAGE, uniform(4, 4, 3, 3), uniform(4)), (IMAGE, 2), (IMAGE, 2, uniform(4), uniform(4)), (IMAGE,),
    (uniform(2, 4, 6), uniform(4, 4, 3), uniform(4)), (uniform(2, 4, 5, 5, 5), uniform(4, 4, 2, 2, 2), uniform(4)),
    (SQUARE, (3,), VECTOR, VECTOR), (ROWS, SQUARE),
    (MATRIX @ MATRIX.T + 3 * np.eye(3),), (SQUARE, (ROWS, ROWS), VECTOR), (SQUARE, 0.1, 0.6), (np.array([[0, 1], [2, 0]]), SQUARE),
]  # fmt: skip

RANDOM = ("dropout", "rand", "bernoulli", "normal", "exponential", "cauchy", "geometric", "uniform", "multinomial", "rrelu", "gumbel",
          "poisson", "binomial")
UNLIKE = {  # functions that are not compared
    "sym_sum": "takes numbers", "backward": "is what is tested", "compile": "a function's",
    "linalg.lstsq": "its residuals depend on the rank", "unsafe_chunk": "torch forgets that its results are views",
    "unsafe_split": "torch forgets that its results are views", "roll": "an alias for a shift by 0", "diff": "an alias for n=0",
    "median": "how ties share", "pca_lowrank": "less its mean a square matrix is singular: its gradient is rounding",
}  # fmt: skip

# What Flambeau keeps and torch does not: refused at backward, loudly.
KEPT = {
    "kron": "an input seen in another shape; torch keeps the same memory, but misses the write and computes a wrong gradient",
    "cross_entropy": "the logits, where torch keeps as large an array of its own",
    "scaled_dot_product_attention": "query and key, where torch's composite form keeps scaled copies of both",
    "__rtruediv__": "the input, where torch keeps its reciprocal, and rounds twice",
}


def functions(torch):
    """(name, ours, theirs) of every function and in-place method that both have."""
    homes = [(fl, torch, ""), (fl.nn.functional, torch.nn.functional, "F."), (fl.linalg, torch.linalg, "linalg."),
             (fl.special, torch.special, "special."), (fl.fft, torch.fft, "fft."), (fl.Tensor, torch.Tensor, "")]  # fmt: skip
    for mine, theirs, prefix in homes:
        for name in sorted(dir(theirs)):
            method = theirs is torch.Tensor
            if name.startswith("_") and name not in ("__rpow__", "__rtruediv__", "__rsub__", "__pow__", "__truediv__", "__getitem__"):
                continue
            fn = getattr(theirs, name)
            if not callable(fn) or inspect.isclass(fn) or inspect.ismodule(fn) or not hasattr(mine, name):
                continue
            if name.startswith("set_") or (method and not name.endswith("_")):
                continue
            if any(word in name for word in RANDOM) or UNLIKE.keys() & {name, prefix + name}:
                continue
            yield prefix + name, getattr(mine, name), fn


def fits(fn, arguments):
    """Whether a function has places for that many arguments."""
    try:
        signature(fn).bind(*arguments)
    except TypeError:
        return False
    return True


@functools.cache
def signature(fn):
    return inspect.signature(fn)


def leaves(a):
    if isinstance(a, (tuple, list)):
        return [leaf for item in a for leaf in leaves(item)]
    return [a] if hasattr(a, "requires_grad") else []


def each(fn, a):
    return type(a)(each(fn, item) for item in a) if isinstance(a, (tuple, list)) else fn(a)


def write(t):
    if t.dtype.is_floating_point or t.dtype.is_complex:
        t.mul_(2)
    elif str(t.dtype) == "torch.bool":
        t.logical_not_()
    else:
        t.zero_()


def attempt(lib, fn, arguments, wanted, what):
    """("ok", gradients and results), or where it was refused: "call", "write" or "backward"."""
    count = itertools.count()
    lib.manual_seed(0)  # some decompositions begin at random

    def made(a):
        if not isinstance(a, np.ndarray):
            return a
        t = lib.tensor(a)
        return t.requires_grad_() if a.dtype.kind == "f" and wanted in (None, next(count)) else t

    given = each(made, arguments)
    inputs = each(lambda t: t * 1 if getattr(t, "requires_grad", False) else t.clone() if hasattr(t, "clone") else t, given)
    stage = "call"
    try:
        outs = leaves(fn(*inputs))
        stage = "write"
        if what is not None:
            targets = outs if what[0] == "result" else leaves(inputs)
            with lib.set_grad_enabled(what[0] == "result"):
                write(targets[what[1]])
        stage, total = "backward", 0
        for o in outs:
            if o.requires_grad:
                o = lib.view_as_real(o) if o.is_complex() else o
                weights = np.cos(np.arange(o.numel()) + 0.5).reshape(tuple(o.shape))
                total = total + (o * lib.tensor(weights, dtype=o.dtype)).sum()
        if hasattr(total, "backward"):
            total.backward()
    except Exception:
        return stage, []
    grads = [t.grad for t in leaves(given)]
    return "ok", [None if t is None else t.detach().to_dense().numpy(force=True) for t in (*grads, *outs)]


def agree(mine, theirs):
    def same(a, b):
        if a is None or b is None:  # no gradient is a gradient of zero
            present = a if b is None else b
            return present is None or not present.any()
        return a.shape == b.shape and np.allclose(a, b, 1e-7, 1e-9, equal_nan=True)

    return len(mine) == len(theirs) and all(map(same, mine, theirs))


@pytest.mark.timeout(600)
def test_writes_that_torch_allows_are_allowed():
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    tried, refused, wrong = 0, {}, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, mine, theirs in functions(torch):
            found = 0
            enough = 1 if theirs is getattr(torch.Tensor, name, None) else 2
            for arguments in filter(functools.partial(fits, mine), ARGUMENTS):
                if found == enough:
                    break
                floats = sum(a.dtype.kind == "f" for a in flat(arguments))
                want, values = attempt(torch, theirs, arguments, None, None)
                if want != "ok" or all(v is None for v in values[: len(flat(arguments))]):
                    continue
                have, also = attempt(fl, mine, arguments, None, None)
                if have != "ok" or not agree(also, values):
                    continue    # that they agree at all is for the tests of the operators
                found += 1
                places = [("result", 0), *(("input", k) for k in range(len(flat(arguments))))]
                for wanted, what in itertools.product([None, *range(floats)] if floats > 1 else [None], places):
                    want, values = attempt(torch, theirs, arguments, wanted, what)
                    have, also = attempt(fl, mine, arguments, wanted, what) if want == "ok" else ("ok", [])
                    tried += want == "ok"
                    if have != "ok":
                        bare = name.split(".")[-1]
                        refused.setdefault(bare if bare.endswith("__") else bare.rstrip("_"), []).append((wanted, what))
                    elif want == "ok" and not agree(also, values) and name not in KEPT:
                        wrong.append((name, [np.shape(a) for a in arguments], wanted, what))
    assert tried > 2000
    assert not wrong
    assert refused.keys() == KEPT.keys(), {name: places for name, places in refused.items() if name not in KEPT}


def flat(arguments):
    """The arrays among the arguments."""
    if isinstance(arguments, (tuple, list)):
        return [a for item in arguments for a in flat(item)]
    return [arguments] if isinstance(arguments, np.ndarray) else []


# Programs with retain_grad: a function of a library gives the gradients that it finds.
def retained(lib, change):
    x = lib.ones(4, requires_grad=True)
    y = x * 2
    y.retain_grad()
    z = change(lib, x, y)
    (z * lib.arange(1.0, z.numel() + 1)).sum().backward()
    return y.grad, x.grad


@pytest.mark.parametrize("change", [
    lambda lib, x, y: y.mul_(3),
    lambda lib, x, y: y.exp_(),
    lambda lib, x, y: y.mul_(2).mul_(2),
    lambda lib, x, y: (y[:2].mul_(3), y)[1],
    lambda lib, x, y: (y.zero_(), y.add_(x))[1],
    lambda lib, x, y: (y.retain_grad(), y.mul_(3), y.retain_grad(), y)[3],
    lambda lib, x, y: (y.register_hook(lambda g: g * 10), y)[1],
    lambda lib, x, y: (y.register_hook(lambda g: g * 10), y.mul_(3))[1],
    lambda lib, x, y: y.detach().clone().requires_grad_() * y,
    lambda lib, x, y: (y.expand(3, 4)[1].mul_(3), y)[1],
    lambda lib, x, y: y.expand(4).mul_(3),
])  # fmt: skip
def test_retained_gradients_follow_the_tensor(change):
    """They are those of what the tensor holds in the end, after all hooks."""
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    for mine, theirs in zip(retained(fl, change), retained(torch, change), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


def test_a_view_retains_its_own_gradient():
    """Writes to its base give it a new history; torch says the same."""
    x = fl.ones(4, requires_grad=True)
    y = x * 2
    v = y[:2]
    v.retain_grad()
    y.mul_(3)
    (v * fl.tensor([1.0, 2.0])).sum().backward()
    assert v.retains_grad
    assert v.grad.tolist() == [1, 2]
