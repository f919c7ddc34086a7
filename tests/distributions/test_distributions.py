"""Distributions against PyTorch's: densities, moments, entropies, divergences; samples against their moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

A, B = [0.7, 1.5, 3.0], [2.0, 0.4, 1.1]
P = [0.2, 0.5, 0.9]
ROWS = [[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]]
CASES: dict[str, tuple[str, tuple, dict, Any]] = {
    "normal": ("Normal", (A, B), {}, [0.1, -2.0, 4.0]),
    "laplace": ("Laplace", (A, B), {}, [0.1, -2.0, 4.0]),
    "gumbel": ("Gumbel", (A, B), {}, [0.1, 0.9, 4.0]),
    "cauchy": ("Cauchy", (A, B), {}, [0.1, -2.0, 4.0]),
    "lognormal": ("LogNormal", (A, B), {}, [0.1, 2.0, 4.0]),
    "logistic_normal": ("LogisticNormal", (A, B), {}, [0.1, 0.2, 0.3, 0.4]),
    "half_normal": ("HalfNormal", (A,), {}, [0.1, 2.0, 4.0]),
    "half_cauchy": ("HalfCauchy", (A,), {}, [0.1, 2.0, 4.0]),
    "pareto": ("Pareto", (B, [0.7, 4.5, 5.0]), {}, [2.1, 2.0, 4.0]),
    "weibull": ("Weibull", (B, A), {}, [0.1, 2.0, 4.0]),
    "kumaraswamy": ("Kumaraswamy", (A, [2.0, 0.4, 1.0]), {}, [0.1, 0.5, 0.9]),
    "inverse_gamma": ("InverseGamma", ([0.7, 1.5, 6.0], B), {}, [0.1, 2.0, 4.0]),
    "student": ("StudentT", ([0.7, 1.5, 6.0], B, A), {}, [0.1, -2.0, 4.0]),
    "fisher_snedecor": ("FisherSnedecor", (A, [1.5, 3.0, 9.0]), {}, [0.1, 2.0, 4.0]),
    "uniform": ("Uniform", ([0.0, -1.0, 2.0], [1.0, 3.0, 2.5]), {}, [0.5, 0.0, 2.2]),
    "exponential": ("Exponential", (A,), {}, [0.1, 2.0, 4.0]),
    "gamma": ("Gamma", (A, B), {}, [0.1, 2.0, 4.0]),
    "chi2": ("Chi2", (A,), {}, [0.1, 2.0, 4.0]),
    "beta": ("Beta", (A, B), {}, [0.1, 0.5, 0.9]),
    "dirichlet": ("Dirichlet", ([A, B],), {}, ROWS),
    "bernoulli": ("Bernoulli", (), {"probs": P}, [0.0, 1.0, 1.0]),
    "bernoulli_logits": ("Bernoulli", (), {"logits": A}, [0.0, 1.0, 1.0]),
    "geometric": ("Geometric", (), {"probs": P}, [0.0, 1.0, 4.0]),
    "categorical": ("Categorical", (), {"probs": ROWS}, [0, 2]),
    "categorical_logits": ("Categorical", (), {"logits": [A, B]}, [0, 2]),
    "one_hot": ("OneHotCategorical", (), {"probs": ROWS}, [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    "poisson": ("Poisson", (A,), {}, [0.0, 1.0, 4.0]),
    "negative_binomial": ("NegativeBinomial", (A,), {"probs": P}, [0.0, 1.0, 4.0]),
    "von_mises": ("VonMises", ([0.3, 1.0, -3.0], [0.5, 50.0, 2.0]), {}, [0.1, 2.0, 3.0]),
    "generalized_pareto": ("GeneralizedPareto", (A, B, [0.2, 0.0, -0.7]), {}, [0.9, 2.0, 3.5]),
    "continuous_bernoulli": ("ContinuousBernoulli", (), {"probs": [0.2, 0.5003, 0.9]}, [0.3, 0.4, 0.8]),
    "low_rank": ("LowRankMultivariateNormal", ([0.5, -1.0, 2.0], [[1.0, 0.3], [-0.5, 2.0], [0.7, 0.1]], [0.5, 1.0, 2.0]), {},
                 [0.1, 0.2, 3.0]),
    "wishart": ("Wishart", ([4.5, 3.2],), {"covariance_matrix": [[2.0, 0.3], [0.3, 0.7]]}, [[1.0, 0.2], [0.2, 3.0]]),
    "wishart_of_precision": ("Wishart", (4.5,), {"precision_matrix": [[2.0, 0.3], [0.3, 0.7]]}, [[1.0, 0.2], [0.2, 3.0]]),
    "lkj": ("LKJCholesky", (3, [0.5, 1.0, 3.0]), {}, [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]]),
    "binomial": ("Binomial", ([5.0, 5.0, 5.0],), {"probs": P}, [0.0, 5.0, 3.0]),
    "binomial_logits": ("Binomial", (), {"total_count": [5.0, 5.0, 5.0], "logits": [2.0, -3.0, 0.1]}, [0.0, 5.0, 3.0]),
    "multinomial": ("Multinomial", (4,), {"probs": ROWS}, [[1.0, 2.0, 1.0], [0.0, 0.0, 4.0]]),
    "straight_through": ("OneHotCategoricalStraightThrough", (), {"probs": ROWS}, [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    "relaxed_bernoulli": ("RelaxedBernoulli", (0.7,), {"probs": P}, [0.3, 0.9, 0.5]),
    "relaxed_one_hot": ("RelaxedOneHotCategorical", (0.7,), {"probs": ROWS}, ROWS),
    "multivariate": ("MultivariateNormal", ([0.5, -1.0],), {"covariance_matrix": [[2.0, 0.3], [0.3, 0.7]]}, [0.1, 0.2]),
}
NO_ENTROPY = {"poisson", "negative_binomial", "logistic_normal", "fisher_snedecor", "relaxed_bernoulli", "relaxed_one_hot",
              "von_mises", "lkj"}
NO_MOMENTS = {"lkj", "categorical", "categorical_logits", "logistic_normal", "relaxed_bernoulli", "relaxed_one_hot"}
HEAVY_TAILS = {"cauchy", "lognormal", "half_cauchy", "pareto", "inverse_gamma", "student", "fisher_snedecor", "logistic_normal",
               "relaxed_bernoulli", "relaxed_one_hot", "von_mises", "lkj"}


def make(library: Any, name: str) -> Any:
    kind, args, kwargs, _ = CASES[name]
    return getattr(library.distributions, kind)(
        *[a if isinstance(a, int) else library.tensor(a) for a in args], **{k: library.tensor(v) for k, v in kwargs.items()}
    )


def same(mine: Any, theirs: Any) -> None:
    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_facts_are_torch_s(name: str) -> None:
    mine, theirs = make(fl, name), make(torch, name)
    assert tuple(mine.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(mine.event_shape) == tuple(theirs.event_shape)
    value = CASES[name][3]
    same(mine.log_prob(fl.tensor(value)), theirs.log_prob(torch.tensor(value)))
    if name not in NO_ENTROPY:
        same(mine.entropy(), theirs.entropy())
    if name not in NO_MOMENTS:
        same(mine.mean, theirs.mean)
        same(mine.variance, theirs.variance)


@pytest.mark.parametrize("name", ["half_normal", "half_cauchy", "pareto", "inverse_gamma", "student"])
def test_modes(name: str) -> None:
    same(make(fl, name).mode, make(torch, name).mode)


def test_modes_at_the_ends() -> None:
    """Where densities fall from 0 on, or rise up to 1: PyTorch has NaN there."""
    assert make(fl, "weibull").mode[0] == 0
    mode = make(fl, "kumaraswamy").mode
    assert bool(mode[:2].isnan().all()) and mode[2] == 1
    for kind in (fl.distributions.Weibull, fl.distributions.Kumaraswamy):
        made, points = kind(2.5, 1.7), fl.linspace(0.001, 0.999, 999) * (1 if kind is fl.distributions.Kumaraswamy else 5)
        assert abs(points[made.log_prob(points).argmax()] - made.mode) < 0.01


@pytest.mark.parametrize("name", sorted(HEAVY_TAILS - {"lkj"}))
def test_samples_of_heavy_tails_have_the_quantiles(name: str) -> None:
    fl.manual_seed(3)
    torch.manual_seed(3)
    mine, theirs = (make(lib, name).expand((2, *make(lib, name).batch_shape)).sample((20000,)) for lib in (fl, torch))
    assert tuple(mine.shape) == tuple(theirs.shape)
    for share in (0.2, 0.5, 0.8):
        np.testing.assert_allclose(np.quantile(mine.numpy(), share, 0), np.quantile(theirs.numpy(), share, 0), rtol=0.1, atol=0.03)


def _mixture(t: Any, kind: str) -> Any:
    d = t.distributions
    if kind == "numbers":
        return d.MixtureSameFamily(d.Categorical(probs=t.tensor(ROWS)), d.Normal(t.tensor([A, B]), t.tensor(B)))
    return d.MixtureSameFamily(d.Categorical(logits=t.tensor(A)), d.Independent(d.Normal(t.tensor([[0.0, 1], [2, 3], [4, -9]]), 1.5), 1))


@pytest.mark.parametrize("kind", ["numbers", "vectors"])
def test_mixtures(kind: str) -> None:
    mine, theirs = _mixture(fl, kind), _mixture(torch, kind)
    value = [0.3, 1.5]
    assert tuple(mine.batch_shape) == tuple(theirs.batch_shape) and tuple(mine.event_shape) == tuple(theirs.event_shape)
    same(mine.log_prob(fl.tensor(value)), theirs.log_prob(torch.tensor(value)))
    same(mine.mean, theirs.mean)
    same(mine.variance, theirs.variance)
    if kind == "numbers":
        same(mine.cdf(fl.tensor(value)), theirs.cdf(torch.tensor(value)))
    fl.manual_seed(1)
    drawn = mine.expand((4, *mine.batch_shape)).sample((8000,))
    assert tuple(drawn.shape) == (8000, 4, *theirs.batch_shape, *theirs.event_shape)
    np.testing.assert_allclose(drawn.numpy().mean((0, 1)), theirs.mean.numpy(), atol=0.1)
    np.testing.assert_allclose(drawn.numpy().var((0, 1)), theirs.variance.numpy(), rtol=0.1)


def test_relaxed_samples_have_gradients() -> None:
    for kind in ("RelaxedBernoulli", "RelaxedOneHotCategorical", "OneHotCategoricalStraightThrough"):
        logits = fl.tensor([0.1, 0.2, 0.3], requires_grad=True)
        temperature = () if kind[0] == "O" else (fl.tensor(0.5),)
        drawn = getattr(fl.distributions, kind)(*temperature, logits=logits).rsample((5,))
        (drawn * fl.tensor([1.0, 2.0, 4.0])).sum().backward()
        assert logits.grad is not None and bool((logits.grad != 0).all())


def test_matrices() -> None:
    """PyTorch 2.13 draws the later rows of LKJCholesky too short, so that the correlations' variances are the theory's here."""
    fl.manual_seed(2)
    d = make(fl, "lkj")
    drawn = d.sample((4000,))
    assert bool(d.support.check(drawn).all())
    correlation = (drawn @ drawn.mT)[..., [1, 2, 2], [0, 0, 1]].numpy()     # in [-1, 1] by Beta(a, a), a = concentration + 1 / 2
    np.testing.assert_allclose(correlation.var(0), 1 / (2 * np.array([[0.5], [1.0], [3.0]]) + 2) * np.ones((1, 3)), rtol=0.1)
    same(make(fl, "wishart").mode, make(torch, "wishart").mode)
    same(make(fl, "wishart").precision_matrix, make(torch, "wishart").precision_matrix)
    for call in (lambda d: d.LKJCholesky(1), lambda d: d.Wishart(1.0, fl.eye(3)), lambda d: d.Wishart(4.5, fl.ones(2))):
        with pytest.raises(ValueError, match=r"dim=1|ndim - 1 = 2|at least two-dimensional"):
            call(fl.distributions)


def test_covariances_of_low_rank() -> None:
    mine, theirs = make(fl, "low_rank"), make(torch, "low_rank")
    for fact in ("covariance_matrix", "precision_matrix", "scale_tril"):
        same(getattr(mine, fact), getattr(theirs, fact))
    assert tuple(mine.expand((2, 4)).rsample((5,)).shape) == (5, 2, 4, 3)
    with pytest.raises(ValueError, match="3 x m"):
        fl.distributions.LowRankMultivariateNormal(fl.zeros(3), fl.zeros(2, 1), fl.ones(3))


def test_binomials_of_several_counts() -> None:
    for lib in (fl, torch):
        d = lib.distributions.Binomial(lib.tensor([5, 3]), probs=lib.tensor([0.2, 0.5]))
        for fact in (d.entropy, d.enumerate_support):
            with pytest.raises(NotImplementedError, match="Inhomogeneous total count"):
                fact()
        with pytest.raises(NotImplementedError, match="inhomogeneous total_count"):
            lib.distributions.Multinomial(lib.tensor([4]), probs=lib.tensor(ROWS))
    same(fl.distributions.Binomial(2, probs=fl.tensor(P)).enumerate_support(),
         torch.distributions.Binomial(2, probs=torch.tensor(P)).enumerate_support())


def test_expanded_one_hot() -> None:
    assert tuple(make(fl, "one_hot").expand((3, 2)).sample((4,)).shape) == (4, 3, 2, 3)


def test_expanded_distributions_are_of_their_class() -> None:
    wide = make(fl, "lognormal").expand((4, 3))
    assert type(wide) is fl.distributions.LogNormal and tuple(wide.sample().shape) == tuple(wide.mean.shape) == (4, 3)


@pytest.mark.parametrize("name", ["normal", "laplace", "gumbel", "cauchy", "uniform", "exponential", "half_normal", "half_cauchy", "pareto",
                                  "weibull", "kumaraswamy", "lognormal", "generalized_pareto", "continuous_bernoulli"])
def test_cdf_and_its_inverse(name: str) -> None:
    mine, theirs = make(fl, name), make(torch, name)
    value = CASES[name][3]
    same(mine.cdf(fl.tensor(value)), theirs.cdf(torch.tensor(value)))
    same(mine.icdf(fl.tensor(P)), theirs.icdf(torch.tensor(P)))


@pytest.mark.parametrize("name", [n for n in CASES if n not in HEAVY_TAILS])
def test_samples_have_the_moments(name: str) -> None:
    fl.manual_seed(3)
    mine = make(fl, name)
    drawn = mine.sample((20000,))
    assert tuple(drawn.shape) == (20000, *mine.batch_shape, *mine.event_shape)
    if name in NO_MOMENTS:
        shares = np.stack([(drawn.numpy() == k).mean(0) for k in range(3)], -1)
        np.testing.assert_allclose(shares, mine.probs.numpy(), atol=0.02)
        return
    error = mine.variance.sqrt().numpy() / np.sqrt(20000)
    assert (np.abs(drawn.numpy().mean(0) - mine.mean.numpy()) < 6 * error).all()
    np.testing.assert_allclose(drawn.numpy().var(0), mine.variance.numpy(), rtol=0.2)


@pytest.mark.parametrize(
    "name",
    [
        "normal",
        "laplace",
        "exponential",
        "gamma",
        "beta",
        "dirichlet",
        "bernoulli",
        "categorical",
        "poisson",
        "multivariate",
        "one_hot",
    ],
)
def test_divergence(name: str) -> None:
    kind, args, kwargs, _ = CASES[name]

    def pair(library: Any) -> Any:
        other_args = [library.tensor(a) * 1.3 for a in args]
        other = {k: library.tensor(v) * 1.1 if k != "probs" else library.tensor(v) ** 2 for k, v in kwargs.items()}
        p, q = make(library, name), getattr(library.distributions, kind)(*other_args, **other)
        return library.distributions.kl_divergence(p, q)

    same(pair(fl), pair(torch))


def test_gradients_through_samples_and_densities() -> None:
    def gradient(library: Any) -> Any:
        scale = library.tensor(1.5, requires_grad=True)
        d = library.distributions.Normal(library.tensor(0.3), scale)
        (d.log_prob(library.tensor(2.0)) + d.entropy()).backward()
        return scale.grad

    same(gradient(fl), gradient(torch))
    loc = fl.tensor([1.0, 2.0], requires_grad=True)
    fl.distributions.Normal(loc, 1.0).rsample((5,)).sum().backward()
    assert loc.grad.tolist() == [5.0, 5.0]


def test_independent_sums_over_its_event() -> None:
    def value(library: Any) -> Any:
        d = library.distributions.Independent(library.distributions.Normal(library.tensor(A), library.tensor(B)), 1)
        assert tuple(d.event_shape) == (3,)
        return d.log_prob(library.tensor([0.0, 1.0, 2.0]))

    same(value(fl), value(torch))


def test_expand() -> None:
    d = make(fl, "normal").expand((4, 3))
    assert tuple(d.sample().shape) == (4, 3)
    same(d.log_prob(fl.tensor([0.1, -2.0, 4.0]))[2], make(torch, "normal").log_prob(torch.tensor([0.1, -2.0, 4.0])))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fl.distributions.Normal(0.0, -1.0), "parameter scale"),
        (lambda: fl.distributions.Uniform(1.0, 0.0), "LessThan"),
        (lambda: fl.distributions.Bernoulli(probs=fl.tensor(1.5)), "parameter probs"),
        (lambda: fl.distributions.Bernoulli(), "but not both"),
        (lambda: fl.distributions.Binomial(-1, probs=fl.tensor([0.5])), "parameter total_count"),
        (lambda: fl.distributions.Multinomial(4, probs=fl.tensor(ROWS)).log_prob(fl.tensor([1.0, 2.0, 2.0])), "within the support"),
        (lambda: fl.distributions.MixtureSameFamily(make(fl, "normal"), make(fl, "normal")), "instance of torch.distributions.Categorical"),
        (lambda: fl.distributions.MixtureSameFamily(fl.distributions.Categorical(fl.ones(2)), make(fl, "normal")), "does not equal"),
        (lambda: fl.distributions.Categorical(probs=fl.tensor([0.5, 0.5])).log_prob(fl.tensor(7)), "within the support"),
        (lambda: fl.distributions.Normal(fl.zeros(3), 1.0).log_prob(fl.zeros(2)), "not broadcastable"),
    ],
)
def test_bad_arguments(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_what_is_missing_says_so() -> None:
    with pytest.raises(NotImplementedError, match="No KL"):
        fl.distributions.kl_divergence(fl.distributions.Normal(0.0, 1.0), fl.distributions.Poisson(1.0))


def test_every_class_has_the_module_where_torch_keeps_it() -> None:
    import flambeau.distributions.one_hot_categorical as home
    from flambeau.distributions.utils import broadcast_all

    assert home.OneHotCategorical is fl.distributions.OneHotCategorical
    assert fl.distributions.log_normal.LogNormal is fl.distributions.LogNormal
    assert [t.shape for t in broadcast_all(0.0, fl.ones(2))] == [(2,), (2,)]


@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_shape_of_the_batch(name: str) -> None:
    """Also of parameters of no dimension."""
    kind, args, kwargs, _ = CASES[name]
    for first in (False, True):
        def given(value: Any, first: bool = first) -> Any:
            return fl.tensor(value[0] if first and isinstance(value, list) else value) if isinstance(value, (list, float)) else value

        made = getattr(fl.distributions, kind)(*map(given, args), **{k: given(v) for k, v in kwargs.items()})
        assert made.sample().shape == made.batch_shape + made.event_shape
        assert made.sample((2, 0)).shape == (2, 0) + made.batch_shape + made.event_shape
        if made.event_shape:    # a parameter of fewer dimensions is none
            break
