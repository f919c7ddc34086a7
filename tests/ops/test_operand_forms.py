"""Which operands may be numbers, what `out=` may share, and other forms in which operators are called: as torch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import flambeau as fl

NAMES = [
    "add", "mul", "sub", "div", "floor_divide", "remainder", "fmod", "pow", "float_power", "xlogy", "copysign", "eq", "ne", "lt",
    "le", "gt", "ge", "rsub", "ldexp", "heaviside", "gcd", "lcm", "igamma", "igammac", "maximum", "minimum", "fmax", "atan2", "hypot",
    "logaddexp", "nextafter", "logical_and", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
    "clamp_min", "clamp_max", "polar", "special.zeta", "special.xlog1py",
]


def outcome(lib: Any, name: str, order: str) -> str:
    fn = lib
    for part in name.split("."):
        fn = getattr(fn, part)
    t = lib.tensor([1, 2, 3])
    x, y = {"number, tensor": (2, t), "tensor, number": (t, 2), "numbers": (2, 3)}[order]
    try:
        fn(x, y)
    except Exception as error:
        return type(error).__name__
    return "fine"


@pytest.mark.parametrize("order", ["number, tensor", "tensor, number", "numbers"])
@pytest.mark.parametrize("name", NAMES)
def test_a_number_in_the_place_of_a_tensor(name: str, order: str) -> None:
    assert outcome(fl, name, order) == outcome(torch, name, order)


READERS: dict[str, Callable] = {
    "take": lambda lib, x, i, out: lib.take(x, i, out=out), "gather": lambda lib, x, i, out: lib.gather(x, 0, i, out=out),
    "index_select": lambda lib, x, i, out: lib.index_select(x, 0, i, out=out),
    "masked_select": lambda lib, x, i, out: lib.masked_select(x, x == x, out=out),
    "kthvalue": lambda lib, x, i, out: lib.kthvalue(x, 2, out=(out, lib.empty(0, dtype=lib.int64))),
    "complex": lambda lib, x, i, out: lib.complex(x, x, out=out),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("place", ["apart", "the input", "a part of it", "repeated"])
@pytest.mark.parametrize("name", READERS)
def test_out_is_apart_and_of_the_results_dtype(name: str, place: str, dtype: str) -> None:
    def kind(lib: Any) -> str:
        x, i = lib.arange(6.0), lib.tensor([0, 1, 2, 3, 4, 5])
        out = {"apart": lambda: lib.zeros(() if name == "kthvalue" else 6, dtype=getattr(lib, dtype)), "the input": lambda: x,
               "a part of it": lambda: x[:1][0] if name == "kthvalue" else x[:6],
               "repeated": lambda: lib.zeros(1, dtype=getattr(lib, dtype)).expand(6)}[place]()
        try:
            READERS[name](lib, x, i, out)
        except Exception as error:
            return type(error).__name__
        return "fine"
    if name == "kthvalue" and place in ("repeated", "the input"):
        pytest.skip("of another shape")
    assert kind(fl) == kind(torch)


@pytest.mark.parametrize("names", ["", "fweights", "aweights", "fweights aweights"])
@pytest.mark.parametrize("correction", [0, 1])
def test_cov_with_weights(names: str, correction: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5))
    weights = {"fweights": np.array([1, 2, 0, 3, 1]), "aweights": np.array([0.5, 1.0, 0.25, 2.0, 1.5])}
    results = [lib.cov(lib.from_numpy(x), correction=correction, **{n: lib.from_numpy(weights[n]) for n in names.split()}).numpy()
               for lib in (fl, torch)]
    np.testing.assert_allclose(*results, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_cov_of_one_weighted_observation_is_not_a_number(kind: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):    # its mean is itself: no rounding divided by nothing
        x, weight = (fl.tensor(rng.random(1), dtype=getattr(fl, kind)) for _ in range(2))
        assert not fl.cov(x, aweights=weight).isinf()


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64", "int64"])
@pytest.mark.parametrize("weights", [dict(fweights=[2, 1]), dict(aweights=[0.5, 1.0])])
def test_cov_of_any_dtype_with_weights(kind: str, weights: dict) -> None:
    kinds = [str(lib.cov(lib.tensor([[1, 2], [3, 5]], dtype=getattr(lib, kind)), **{
        name: lib.tensor(w, dtype=lib.int64 if name == "fweights" else getattr(lib, kind if kind != "int64" else "float32"))
        for name, w in weights.items()}).dtype) for lib in (fl, torch)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("weights", [dict(fweights=[0, 0]), dict(aweights=[0.0, 0.0]), dict(fweights=[0, 1], aweights=[1.0, 0.0])])
def test_cov_of_weights_that_sum_to_zero_is_refused(both_refuse, weights: dict) -> None:
    both_refuse(lambda t, x: t.cov(x, **{name: t.tensor(w) for name, w in weights.items()}), np.ones((2, 2), np.float32))


@pytest.mark.parametrize("name", ["hfft2", "hfftn", "ihfft2", "ihfftn"])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_hermitian_transforms_over_several_dimensions(name: str, norm: str | None) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    results = []
    for lib in (fl, torch):
        t = lib.from_numpy(x).requires_grad_()
        out = getattr(lib.fft, name)(t if name.startswith("i") else t * (1 + 2j), norm=norm)
        (out.abs() ** 2).sum().backward()
        results.append((out.detach().numpy(), t.grad.numpy(), out.stride()))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_index_fill_counts_a_repeated_index_once() -> None:
    grads = []
    for lib in (fl, torch):
        x, value = lib.ones(3, 4, requires_grad=True), lib.tensor(2.0, requires_grad=True)
        (x.index_fill(1, lib.tensor([1, 1, 3]), value) * lib.arange(12.0).reshape(3, 4)).sum().backward()
        grads.append((x.grad.tolist(), value.grad.item()))
    assert grads[0] == grads[1]


@pytest.mark.parametrize("call", [
    lambda lib: lib.arange(0.1, -7.9, -4.0, dtype=lib.int64), lambda lib: lib.arange(0.5, 9, 1.7, dtype=lib.int64),
    lambda lib: lib.ones(1, 2, 1).squeeze(()), lambda lib: lib.nn.functional.avg_pool2d(lib.arange(-8, 8).reshape(1, 1, 4, 4), 2),
    lambda lib: lib.norm(lib.arange(6.0).reshape(2, 3), "nuc"), lambda lib: lib.linalg.norm(lib.ones(0, 3), float("inf")),
    lambda lib: lib.linalg.vander(lib.tensor(3.0), N=3), lambda lib: lib.tensor(lib.broadcast_shapes((5, 1), 5)),
    lambda lib: lib.gather(lib.ones(5), 0, lib.zeros(0, dtype=lib.uint8)), lambda lib: lib.masked.var(lib.arange(4), 0),
    lambda lib: lib.masked.prod(lib.ones(3).bool(), 0), lambda lib: lib.unravel_index(lib.arange(6), (2, 3))[0],
    lambda lib: lib.ops.aten._safe_softmax(lib.full((2, 2), -float("inf")), -1),
    lambda lib: lib.nn.functional.linear_cross_entropy(lib.arange(6.0).reshape(2, 3), lib.eye(3), lib.tensor([0, 2]),
                                                       linear_bias=lib.ones(3)),
    lambda lib: lib.istft(lib.arange(20.0).reshape(10, 2) * (1 + 1j), 10, window=lib.ones(10)),
])
def test_forms_of_calls(call: Callable) -> None:
    ours, theirs = call(fl), call(torch)
    assert (str(ours.dtype), tuple(ours.shape), ours.stride()) == (str(theirs.dtype), tuple(theirs.shape), theirs.stride())
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


KINDS = ("bool", "uint8", "int32", "int64", "float16", "float32", "complex64")


@pytest.mark.parametrize("name", ["cat", "stack", "diff", "hstack", "column_stack", "cartesian_prod", "block_diag", "isin", "searchsorted",
                                  "bucketize", "where", "cdist", "cross", "meshgrid", "new_cat"])
def test_tensors_of_several_dtypes_are_never_read_as_one(name: str) -> None:
    calls: dict[str, Callable] = {
        "diff": lambda lib, x, y: (lib.diff(x, prepend=y, append=y[:1]), lib.diff(x, n=2, append=y)),
        "isin": lambda lib, x, y: lib.isin(x, y),
        "searchsorted": lambda lib, x, y: lib.searchsorted(x, y),
        "bucketize": lambda lib, x, y: lib.bucketize(x, y),
        "where": lambda lib, x, y: lib.where(x == x, x, y),
        "cdist": lambda lib, x, y: lib.cdist(x[None], y[None]),
        "cross": lambda lib, x, y: lib.linalg.cross(x, y),
        "new_cat": lambda lib, x, y: lib.concat([x, y]),
        "cartesian_prod": lambda lib, x, y: lib.cartesian_prod(x, y),
        "meshgrid": lambda lib, x, y: lib.meshgrid(x, y, indexing="ij"),
        "block_diag": lambda lib, x, y: lib.block_diag(x, y),
    }
    call = calls.get(name) or (lambda lib, x, y: getattr(lib, name)([x, y]))

    def outcome(lib: Any, a: str, b: str) -> Any:
        try:
            out = call(lib, lib.tensor([0, 1, 2]).to(getattr(lib, a)), lib.tensor([1, 0, 3]).to(getattr(lib, b)))
        except (RuntimeError, ValueError, NotImplementedError):
            return "refused"
        return [(str(t.dtype), t.tolist()) for t in (out if isinstance(out, (tuple, list)) else [out])]

    for a in KINDS:
        for b in KINDS:
            wanted = outcome(torch, a, b)
            assert outcome(fl, a, b) == wanted or wanted == "refused", (a, b)


@pytest.mark.parametrize("call", [
    lambda lib: lib.arange(end=3), lambda lib: lib.arange(end=5, start=1),
    lambda lib: lib.arange(start=0, end=5, step=2),
    lambda lib: lib.randint(high=5, size=(40,)), lambda lib: lib.randint(low=3, high=5, size=(40,)), lambda lib: lib.randint(5, (40,)),
    lambda lib: lib.randint(5, size=(40,)), lambda lib: lib.randint_like(lib.zeros(40), high=3),
    lambda lib: lib.randint_like(lib.zeros(40), 1, 3)])
def test_bounds_by_name(call: Callable) -> None:
    results = []
    for lib in (fl, torch):
        lib.manual_seed(3)
        results.append(call(lib).tolist())
    assert results[0] == results[1]


@pytest.mark.parametrize("call", [lambda: fl.arange(), lambda: fl.randint(size=(2,)), lambda: fl.randint_like(fl.zeros(2))])
def test_no_bound(call: Callable) -> None:
    with pytest.raises(TypeError, match="upper bound"):
        call()
