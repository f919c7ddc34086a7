"""Constraints of values and of parameters, beside torch's: which values they take, what they say of themselves, what they refuse."""

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

CONSTRAINTS = ["multinomial(3)", "simplex", "symmetric", "positive_definite", "positive_semidefinite", "square", "corr_cholesky",
               "independent(c.positive, 1)", "real_vector", "cat([c.positive, c.real], 0, [1, 2])", "stack([c.positive, c.real], 0)"]
VALUES = [[0.5, 1.5, 0.2], [1.0, 2.0, 0.0], [-1.0, 2.0, 1.0], [[2.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]],
          [[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]]
SUPPORTS = ["Binomial", "Categorical", "GeneralizedPareto", "Independent", "MixtureSameFamily", "Multinomial", "Pareto",
            "TransformedDistribution", "Uniform"]


def told(lib, constraint, value):
    c = lib.distributions.constraints
    try:
        return eval(f"c.{constraint}", {"c": c}).check(lib.tensor(value)).tolist()
    except Exception as error:
        return IndexError if isinstance(error, RuntimeError) else type(error)     # too few dimensions: torch's tuple index


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_values_that_constraints_take(constraint):
    for value in VALUES:
        assert told(fl, constraint, value) == told(torch, constraint, value), value


@pytest.mark.parametrize("name", SUPPORTS)
def test_classes_tell_that_their_support_depends_on_parameters(name):
    for lib in (fl, torch):
        c = lib.distributions.constraints
        assert isinstance(getattr(lib.distributions, name).support, c.dependent_property)
        assert c.is_dependent(getattr(lib.distributions, name).support)


def constrained(lib):
    d, t = lib.distributions, lib.tensor
    d.Distribution.set_default_validate_args(True)      # torch's compiler turns it off for good
    uniform, wishart = d.Uniform(t([0.0, 1.0]), 2.0), d.Wishart(t(3.0), lib.eye(2))
    mixture = d.MixtureSameFamily(d.Categorical(t([0.3, 0.7])), d.Poisson(t([1.0, 2.0])))
    yield from (repr(uniform.arg_constraints), repr(wishart.arg_constraints), repr(mixture.support))
    yield repr(d.Independent(d.Normal(t([0.0]), 1.0), 0).support)
    refused = (lambda: d.Uniform(2.0, 1.0), lambda: d.constraints.real_vector.check(t(0.5)), lambda: d.transforms.CatTransform([3]),
               lambda: d.transforms.StackTransform([3]), lambda: d.transforms.StackTransform([d.ExpTransform()])(t([0.5, 1.0])),
               lambda: d.transforms.CatTransform([d.ExpTransform()])(t([0.5, 1.0])))
    for call in refused:
        with pytest.raises((ValueError, AssertionError)) as error:
            call()
        yield error.type


def test_constraints_of_parameters_and_what_is_refused():
    assert list(constrained(fl)) == list(constrained(torch))


def drawn(lib):
    d, t = lib.distributions, lib.tensor
    lib.manual_seed(3)
    yield d.VonMises(t([0.0, 1.0]), t([0.5, 20.0])).sample((4,))
    yield d.Gamma(t([0.5]), t([2.0])).log_prob(t([1.0], dtype=lib.float64))
    yield d.MultivariateNormal(lib.zeros(2), lib.eye(2)).log_prob(t([1.0, 0.5], dtype=lib.float64))
    double = [[[3.0, 0.5], [0.5, 1.0]], [[1.0, -0.3], [-0.3, 2.0]]]
    p, q = (d.Wishart(t(df, dtype=lib.float64), t(m, dtype=lib.float64)) for df, m in zip((3.0, 4.5), double))
    yield d.kl_divergence(p, q).detach()


def test_draws_densities_and_divergences():
    for ours, theirs in zip(drawn(fl), drawn(torch), strict=True):
        assert str(ours.dtype)[len("flambeau."):] == str(theirs.dtype)[len("torch."):] or str(ours.dtype) == str(theirs.dtype)
        assert ours.reshape(-1).tolist() == pytest.approx(theirs.reshape(-1).tolist(), rel=1e-5)
