"""Operators on fake tensors: capture asks every operator for shape and dtype alone, and gets what the real call gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.core import dispatch
from flambeau.core.symbolic import DataDependentSize, ShapeEnv, SymInt, unknown_sizes
from flambeau.core.tensor import Tensor, fake

from .calls import CALLS, arrays, evaluate, names_in

ONLY_VALUES_TELL = {
    "allclose": "gives a bool", "equal": "gives a bool", "item": "gives a number", "tolist": "gives numbers", "histogram": "its edges",
    "is_nonzero": "gives a bool",
    "one_hot": "classes are counted", "cholesky_ex": "tells whether it succeeded", "matrix_rank": "compares with the largest value",
}


def leaves(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, (tuple, list)) else [value]


def described(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return type(value)
    return value.dtype, tuple("?" if isinstance(n, SymInt) else n for n in value.shape)


def like(one: Any, other: Any) -> bool:
    if not isinstance(one, tuple):
        return one == other
    return one[0] is other[0] and len(one[1]) == len(other[1]) and all(a == b or a == "?" for a, b in zip(one[1], other[1], strict=True))


@pytest.mark.filterwarnings("ignore")      # some calls are of what is old
@pytest.mark.parametrize("call", [call for call in CALLS if not any(name in call for name in ONLY_VALUES_TELL)])
def test_shapes_and_dtypes_are_those_of_the_real_call(call: str) -> None:
    given = arrays()
    real = {name: fl.tensor(given[name]) for name in names_in(call) if name in given}
    try:
        want = leaves(evaluate(fl, call, real))
    except Exception as error:
        pytest.skip(f"refused: {error}")
    env = ShapeEnv()
    fakes = {name: fake(tuple(t.shape), t.dtype, t.device) for name, t in real.items()}
    try:
        with dispatch.fake_mode(), unknown_sizes(lambda operator, tensor: env.create_unbacked()):
            got = leaves(evaluate(fl, call, fakes))
    except DataDependentSize:
        return
    assert len(got) == len(want)
    assert all(like(described(a), described(b)) for a, b in zip(got, want, strict=True)), ([*map(described, got)], [*map(described, want)])


@pytest.mark.parametrize("draw", [
    lambda a: fl._standard_gamma(a), lambda a: fl._sample_dirichlet(a), lambda a: fl.poisson(a),
    lambda a: fl.binomial(a.round() + 3, a / 4),
    lambda a: fl.normal(a, a), lambda a: a.clone().cauchy_(), lambda a: a.clone().exponential_(), lambda a: a.clone().geometric_(0.5),
    lambda a: a.clone().log_normal_(), lambda a: fl.multinomial(a, 2), lambda a: fl.bernoulli(a / 4),
    lambda a: fl.distributions.Gamma(a, a).sample(),
    lambda a: fl.distributions.Beta(a, a).rsample(), lambda a: fl.distributions.StudentT(a).sample(),
    lambda a: fl.distributions.Chi2(a).rsample(),
])  # fmt: skip
def test_draws_are_in_one_graph(draw) -> None:
    a = fl.rand(5) + 1
    got = fl.compile(draw, fullgraph=True)(a)
    assert got.shape == draw(a).shape and bool(got.isfinite().all())


@pytest.mark.parametrize("shape", [0.05, 0.5, 1.0, 3.0, 50.0])
def test_gamma_numbers_that_are_drawn_in_a_graph(shape: float) -> None:
    fl.manual_seed(0)
    found = fl.compile(lambda a: fl._standard_gamma(a), fullgraph=True)(fl.full((100_000,), shape))
    error = shape ** 0.5 / 100_000 ** 0.5
    assert abs(float(found.mean()) - shape) < 5 * error and abs(float(found.var()) / shape - 1) < 0.1
    a = fl.full((), shape, requires_grad=True)
    fl.compile(lambda a: fl._standard_gamma(a.expand(100_000)).mean(), fullgraph=True)(a).backward()
    assert abs(float(a.grad) - 1) < 0.05     # the mean is the shape


@pytest.mark.parametrize("name", sorted(name for name in vars(fl.special) if "polynomial" in name and name[0] != "_"))
def test_polynomials_of_degrees_in_a_tensor(name: str) -> None:
    function = getattr(fl.special, name)
    x, n = fl.linspace(-1, 1, 7), fl.tensor([0, 1, 2, 5, 3, -1, 4])
    assert np.array_equal(fl.compile(function, fullgraph=True)(x, n).numpy(), function(x, n).numpy(), equal_nan=True)


def test_what_istft_must_not_divide_by_is_checked_when_it_runs() -> None:
    def there_and_back(signal, window):
        return fl.istft(fl.stft(signal, 16, 4, window=window, return_complex=True), 16, 4, window=window)

    compiled, signal = fl.compile(there_and_back, fullgraph=True), fl.randn(64)
    assert fl.allclose(compiled(signal, fl.hann_window(16)), signal, atol=1e-5)
    with pytest.raises(RuntimeError, match="window overlap add min"):
        compiled(signal, fl.zeros(16))


@pytest.mark.parametrize("line", [fl.linspace, fl.logspace], ids=["linspace", "logspace"])
@pytest.mark.parametrize("how", [
    {"steps": 5}, {"steps": 1}, {"steps": 4, "dtype": fl.int64}, {"steps": 0}, {"steps": 3, "dtype": fl.float64}])  # fmt: skip
def test_lines_between_tensors(line, how) -> None:
    fl._dynamo.reset()
    compiled = fl.compile(lambda a, b: (line(a, b, **how), line(a, 3, **how), line(1.5, b, **how)), fullgraph=True)
    for a, b in ((fl.tensor(0.5), fl.tensor(2.25)), (fl.tensor(1), fl.tensor(3)), (fl.tensor(-1.0), fl.tensor(0.25))):
        got, want = compiled(a, b), (line(a, b, **how), line(a, 3, **how), line(1.5, b, **how))
        for one, other in zip(got, want, strict=True):
            assert one.dtype is other.dtype
            fl.testing.assert_close(one, other)
