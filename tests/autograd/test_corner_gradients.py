"""Gradients at corners: ties, zeros, bounds, infinities and NaN, of every function that both libraries have and of one to three arguments.

A number that torch has is the number here; where torch has NaN Flambeau may know one.
"""

from __future__ import annotations

import itertools
import math
import warnings

import pytest

import flambeau as fl

theirs = pytest.importorskip("torch", reason="torch is the oracle")

NAN, INF = math.nan, math.inf
LINE = [-INF, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, INF, NAN]
GRID, BOUNDS = [-1.0, 0.0, 2.0, INF, NAN], [-1.0, 0.0, 1.0, NAN]
PLACES = {"": lambda t: t, "nn.functional.": lambda t: t.nn.functional, "special.": lambda t: t.special}

RANDOM = ("rand", "drop", "gumbel", "rrelu", "bernoulli", "poisson", "normal", "binomial")
ELSEWHERE = {  # what torch says there, and why it is not followed
    "acosh": "below 1 torch takes the root of x^2 - 1: a slope where there is no value", "arccosh": "as acosh",
    "digamma": "torch's trigamma has no poles", "psi": "as digamma",
    "elu": "the slope at NaN is NaN", "celu": "the slope at NaN is NaN", "selu": "the slope at NaN is NaN",
    "i1": "the slope at NaN is NaN", "i1e": "the slope at NaN is NaN", "var": "of a single element",
    "dequantize": "a float is its own, and has a derivative",
    "heaviside": "torch has no derivative", "detach_copy": "torch has no derivative",
    "unique": "has none", "unique_consecutive": "has none",
}  # fmt: skip


def gradients(t, fn, values, wanted):
    """The gradient of each wanted argument, or the exception's type."""
    given = [t.tensor([v], dtype=t.float64).requires_grad_() if w else v for v, w in zip(values, wanted)]
    try:
        out = fn(t, *given)
        found = t.autograd.grad(out.sum(), [x for x, w in zip(given, wanted) if w], allow_unused=True)
    except Exception as error:
        return type(error)
    return [None if g is None else g.item() for g in found]


def apart(fn, choices, wanted):
    """Where the libraries differ: the arguments, and what each says."""
    found = []
    for values in itertools.product(*choices):
        ours, right = gradients(fl, fn, values, wanted), gradients(theirs, fn, values, wanted)
        same = ours == right if isinstance(right, type) or isinstance(ours, type) else all(
            a is b if None in (a, b) else math.isnan(b) or a == b or math.isclose(a, b, rel_tol=1e-7) for a, b in zip(ours, right))
        if not same:
            found.append((values, ours, right))
    return found


def of_one_argument():
    for prefix, place in PLACES.items():
        for name in sorted(dir(place(theirs))):
            if name.startswith("_") or name.endswith("_") or any(word in name for word in RANDOM) or name in ELSEWHERE:
                continue
            if hasattr(getattr(place(fl), name, None), "_operator"):      # and no setting, which others would see
                yield prefix + name, lambda t, x, place=place, name=name: getattr(place(t), name)(x)


def test_of_one_argument():
    tried, wrong = 0, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, fn in of_one_argument():
            if isinstance(gradients(theirs, fn, [0.5], [True]), list):
                tried += 1
                if found := apart(fn, [LINE], [True]):
                    wrong[name] = found
    assert tried > 100
    assert not wrong


PAIRS = ("xlogy", "atan2", "hypot", "copysign", "fmod", "remainder", "pow", "logaddexp", "logaddexp2", "div", "mul", "maximum", "minimum",
         "fmax", "fmin", "clamp_min", "clamp_max")


@pytest.mark.parametrize("name", [*PAIRS, "special.xlog1py"])
def test_of_two_arguments(name):
    *place, last = name.split(".")

    def fn(t, x, y):
        return getattr(getattr(t, place[0]) if place else t, last)(x, y)

    assert not apart(fn, [GRID, GRID], [True, True])


@pytest.mark.parametrize("wanted", [(True, True, True), (True, False, False)], ids=["tensors", "numbers"])
@pytest.mark.parametrize("name", ["clamp", "lerp"])
def test_of_three_arguments(name, wanted):
    if name == "lerp" and not wanted[1]:
        return
    assert not apart(lambda t, *given: getattr(t, name)(*given), [BOUNDS] * 3, wanted)


@pytest.mark.parametrize("bounds", [{"min": 0.0}, {"max": 0.0}, {"min": NAN}, {"max": NAN}], ids=str)
def test_of_one_bound(bounds):
    """What meets a bound has its gradient to itself, be the bound a number or a tensor, of the shape or broadcast."""
    assert not apart(lambda t, x: t.clamp(x, **bounds), [BOUNDS], [True])
    assert not apart(lambda t, x: t.clamp(x, **{k: t.tensor([[v]]) for k, v in bounds.items()}), [BOUNDS], [True])
    assert not apart(lambda t, x: t.clamp(x, **{k: t.tensor(int(v)) for k, v in bounds.items() if v == v} or {"min": 0}), [BOUNDS], [True])


def test_the_exponent_of_a_number():
    """Also of a negative or complex one."""
    for base, exponent in itertools.product([-2, 2.5, 0, 1 - 2j, 3j], [-1.831 + 1.287j, 2.0 + 0j]):
        made = []
        for t in (fl, theirs):
            x = t.tensor([exponent], dtype=t.complex128).requires_grad_()
            made.append(t.autograd.grad(t.view_as_real(base**x).sum(), x)[0].item())
        assert made[0] == pytest.approx(made[1], nan_ok=True), (base, exponent)


def test_the_direction_of_a_real_number_does_not_turn():
    """The gradient of sgn is exactly 0 along the number itself, whatever its length."""
    x = fl.arange(1, 200).to(fl.complex128).requires_grad_()
    assert not fl.autograd.grad(x.sgn().real.sum(), x)[0].real.any()


@pytest.mark.parametrize("name", ["addmm", "addmv", "addr", "baddbmm", "addbmm"])
def test_what_is_not_read_has_zeros(name):
    """beta=0: the tensor that is not added has a gradient all the same, also through a write in place."""
    shapes = {"addmm": ((2, 3), (3, 4)), "addmv": ((2, 3), (3,)), "addr": ((2,), (4,)), "baddbmm": ((2, 2, 3), (2, 3, 4)),
              "addbmm": ((2, 2, 3), (2, 3, 4))}[name]
    for scale in ({"beta": 0}, {"alpha": 0}, {"beta": 0, "alpha": 0}, {"beta": -0.0}):
        for target in ((), (1,), None):
            made = []
            for t in (fl, theirs):
                a, b = (t.ones(shape, dtype=t.float64).requires_grad_() for shape in shapes)
                whole = getattr(t, name)(t.zeros(()).double(), a, b).shape
                x = t.full(whole if target is None else target, NAN, dtype=t.float64).requires_grad_()
                out = getattr(x.clone(), name + "_")(a, b, **scale) if target is None else getattr(t, name)(x, a, b, **scale)
                assert out.requires_grad
                made.append([g.tolist() for g in t.autograd.grad(out.sum(), [x, a, b])])
            assert made[0] == made[1], (scale, target)


def test_asarray_keeps_the_history():
    x = fl.ones(2, requires_grad=True)
    assert fl.asarray(x) is x
    assert fl.asarray(x * 2, dtype=fl.float64, copy=True).grad_fn is not None


@pytest.mark.filterwarnings("ignore:degrees of freedom", "ignore:var", "ignore:std")
@pytest.mark.parametrize("name", ["var", "std"])
def test_where_no_freedom_is_left(name):
    """The correction may be a float, and larger than there are elements."""
    for values in ([1.0, 2.0], [1.0, 1.0], [3.0], [1.0, 2.0, 6.0]):
        for correction in (0, 1, 2, 2.5, 17, 17.0, 1.0, 2.0):
            made = []
            for t in (fl, theirs):
                x = t.tensor(values, dtype=t.float64).requires_grad_()
                y = getattr(t, name)(x, correction=correction)
                made.append([y.item(), *t.autograd.grad(y, x)[0].tolist()])
            assert made[0] == pytest.approx(made[1], nan_ok=True), (values, correction)


def test_a_quantile_is_of_both_its_neighbours():
    """Also where they are equal."""
    for interpolation in ("linear", "midpoint", "lower", "higher", "nearest"):
        made = []
        for t in (fl, theirs):
            x = t.tensor([1.0, 2.0, 2.0, 2.0, 5.0], dtype=t.float64).requires_grad_()
            y = t.quantile(x, t.tensor([0.1, 0.3, 0.4], dtype=t.float64), interpolation=interpolation)
            made.append(sorted(t.autograd.grad(y.sum(), x)[0].tolist()))
        assert made[0] == pytest.approx(made[1])
