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
    "digamma": "torch's trigamma has no poles", "psi": "as digamma",
    "elu": "the slope at NaN is NaN", "celu": "the slope at NaN is NaN", "selu": "the slope at NaN is NaN",
    "i1": "the slope at NaN is NaN", "i1e": "the slope at NaN is NaN", "var": "of a single element",
    "dequantize": "a float is its own, and has a derivative",
    "heaviside": "torch has no derivative", "detach_copy": "torch has no derivative",
    "unique": "has none", "unique_consecutive": "has none",
}  # fmt: skip


def gradients(t, fn, values, wanted, g=1.0):
    """What comes to each wanted argument of a gradient of the result, or the exception's type."""
    given = [t.tensor([v], dtype=t.float64).requires_grad_() if w else v for v, w in zip(values, wanted)]
    try:
        out = fn(t, *given)
        found = t.autograd.grad(out, [x for x, w in zip(given, wanted) if w], t.full_like(out, g), allow_unused=True)
    except Exception as error:
        return type(error)
    return [None if g is None else g.item() for g in found]


def apart(fn, choices, wanted):
    """Where the libraries differ: the arguments, and what each says. An infinite gradient, and none, pass where there is a slope alone."""
    found = []
    for *values, g in itertools.product(*choices, (1.0, 0.0, INF)):
        ours, right = gradients(fl, fn, values, wanted, g), gradients(theirs, fn, values, wanted, g)
        same = ours == right if isinstance(right, type) or isinstance(ours, type) else all(
            a is b if None in (a, b) else math.isnan(b) or a == b or math.isclose(a, b, rel_tol=1e-7) for a, b in zip(ours, right))
        if not same:
            found.append((values, g, ours, right))
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
        fl._dynamo.reset()
        call = fl.compile(lambda x, a, b, scale=scale: getattr(fl, name)(x, a, b, **scale), backend="aot_eager")
        a, b = (fl.ones(shape, requires_grad=True) for shape in shapes)
        x = fl.ones(1, requires_grad=True)
        assert [g.tolist() for g in fl.autograd.grad(call(x, a, b).sum(), [x, a, b])] == [
            g.tolist() for g in fl.autograd.grad(getattr(fl, name)(x, a, b, **scale).sum(), [x, a, b])]


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


def test_the_slope_of_sinc():
    """-pi^2 x / 3 near 0, where cosine less sine over x cancels; the series and the formula meet."""
    for kind, digits in ((fl.float32, 2e-5), (fl.float64, 1e-12), (fl.complex128, 1e-12)):
        x = fl.tensor([1e-30, 1e-12, 1e-6, -1e-4], dtype=kind, requires_grad=True)
        assert x.sinc().sum().backward(fl.ones((), dtype=kind)) is None
        assert fl.allclose(x.grad, -math.pi**2 / 3 * x.detach(), rtol=1e-4, atol=0)
        edge = fl.tensor([1 / math.pi * (1 - 1e-6), 1 / math.pi * (1 + 1e-6)], dtype=kind, requires_grad=True)
        edge.sinc().sum().backward(fl.ones((), dtype=kind))
        assert abs(edge.grad[0] - edge.grad[1]) < 1e-5 * abs(edge.grad[0]) + digits


@pytest.mark.parametrize("layout", [lambda t, x: x[:1].expand(3, 4), lambda t, x: x, lambda t, x: x.mT, lambda t, x: x[:, :1].expand(4, 4)])
def test_windows_of_what_is_repeated(layout):
    """An expanded leaf's elements have gradients of their own."""
    for dim, size, step in itertools.product((0, 1), (1, 2, 3), (1, 2, 3)):
        made = []
        for t in (fl, theirs):
            x = layout(t, t.arange(16.0).reshape(4, 4)).requires_grad_()
            y = x.unfold(dim, size, step)
            made.append((y.tolist(), t.autograd.grad(y, x, 1 + t.arange(y.numel()).reshape(y.shape).to(y.dtype))[0].tolist()))
        assert made[0] == made[1], (dim, size, step)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("p", [1, 2, 3, INF])
def test_the_norm_of_what_is_tiny(kind, p):
    """The quotient by a norm that is subnormal in a narrow float is no infinity."""
    x = fl.tensor([[1e-6, -2e-6], [0.0, 1e-6]], dtype=getattr(fl, kind))
    made = [fl.func.grad(lambda x: fl.linalg.vector_norm(x, p, -1).sum())(y) for y in (x, x.double())]
    assert made[0].flatten().tolist() == pytest.approx(made[1].flatten().tolist(), abs=0.02)


def test_a_row_that_is_not_scaled_passes_its_gradient_on():
    """renorm, also where the norm is NaN."""
    for p, largest in itertools.product((1, 2, 3.5, INF), (0.5, 3.0)):
        made = []
        for t in (fl, theirs):
            x = t.tensor([[1.0, 2.0, -2.0], [NAN, 1.0, 0.5], [0.1, 0.2, 0.1], [0.0, 0.0, 0.0]], dtype=t.float64).requires_grad_()
            made.append(t.autograd.grad(x.renorm(p, 0, largest), x, t.tensor([[1.0, 0.0, 2.0]] * 4).double())[0].flatten().tolist())
        assert made[0] == pytest.approx(made[1], nan_ok=True), (p, largest)


def test_no_element_is_the_largest_of_nan():
    for values in ([1.0, NAN, 2.0], [NAN], [INF, -INF, 1.0], [0.0, 0.0]):
        made = []
        for t in (fl, theirs):
            x = t.tensor(values, dtype=t.float64).requires_grad_()
            made.append(t.autograd.grad(t.linalg.vector_norm(x, INF), x)[0].tolist())
        assert made[0] == pytest.approx(made[1]), values


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, INF])
def test_no_row_is_far_from_itself(p):
    """Distances between rows of one matrix: a row that holds an infinity spoils those of its own elements alone."""
    made = []
    for t in (fl, theirs):
        x = t.tensor([[1.0, 2.0], [INF, 3.0], [-4.0, 1.0]], dtype=t.float64).requires_grad_()
        made.append(t.autograd.grad(t.pdist(x, p).sum(), x)[0].flatten().tolist())
    assert all(math.isnan(right) or mine == pytest.approx(right) for mine, right in zip(*made)), made


def test_who_made_a_mask_may_write_to_it():
    """A write of one value under a mask keeps a copy of the mask for backward, as torch does of some."""
    for value in (2.0, fl.tensor(2.0)):
        x, mask = fl.ones(3, requires_grad=True), fl.tensor([True, False, True])
        y = x * 3
        y[mask] = value
        mask[:] = False
        assert fl.autograd.grad(y.sum(), x)[0].tolist() == [0, 3, 0]


# What a gradient that is not finite must not spoil: elements that have no part in the result.
WITHOUT_PART = {
    "median": lambda t, x: t.median(x), "nanmedian": lambda t, x: t.nanmedian(x), "max": lambda t, x: t.max(x),
    "amin": lambda t, x: t.amin(x), "kthvalue": lambda t, x: t.kthvalue(x, 2)[0],
    "the power 0": lambda t, x: x ** 0, "a norm that counts": lambda t, x: t.linalg.vector_norm(x, 0),
    "distances that count": lambda t, x: t.cdist(x.reshape(-1, 1), t.ones(2, 1, dtype=t.float64), p=0),
    "a product from a zero on": lambda t, x: t.cumprod(x, 0)[2:], "a part": lambda t, x: x[1:],
}


@pytest.mark.parametrize("g", [INF, NAN])
@pytest.mark.parametrize("name", WITHOUT_PART)
def test_what_has_no_part_has_no_gradient(name, g):
    for values in ([1.0, 0.0, 3.0, 5.0], [2.0, 1.0, 0.0, 4.0]):
        x = fl.tensor(values, dtype=fl.float64, requires_grad=True)
        y = WITHOUT_PART[name](fl, x)
        part = fl.autograd.grad(y, x, fl.ones_like(y))[0] != 0
        found = fl.autograd.grad(WITHOUT_PART[name](fl, x), x, fl.full_like(y, g))[0]
        assert found[~part].tolist() == [0] * int((~part).sum()), values


@pytest.mark.parametrize("values", [[NAN], [INF], [0.0], [0.0, 2.0, -INF], [-INF, 0.0, 3.0], [2.0, 0.0, INF, 0.0], [0.0, NAN]])
def test_a_running_product_of_what_is_not_finite(values):
    made = []
    for t in (fl, theirs):
        x = t.tensor(values, dtype=t.float64).requires_grad_()
        made.append(t.autograd.grad(t.cumprod(x, 0).sum(), x)[0].tolist())
    assert all(math.isnan(right) or mine == right for mine, right in zip(*made)), made


@pytest.mark.parametrize("mode, low", [("amax", -INF), ("amin", INF)])
@pytest.mark.parametrize("call", ["scatter_reduce", "index_reduce"])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_extremes_without_self_share_with_nobody_else(call, mode, low):
    """Also where all sources are what an extremum starts from. torch shares with what is left out, if that is as large."""
    for values, at, right in (([low, low], [0, 2], [1, 1]), ([low, low], [1, 1], [0.5, 0.5]), ([low, 3.0], [1, 1], [0, 1]),
                              ([1.0, 1.0], [0, 0], [0.5, 0.5]), ([-low, 2.0], [0, 1], [1, 1])):
        x, s = fl.ones(3, requires_grad=True), fl.tensor(values, requires_grad=True)
        y = getattr(x, call)(0, fl.tensor(at), s, mode, include_self=False)
        mine, found = fl.autograd.grad(y.sum(), [x, s])
        assert found.tolist() == right and mine.tolist() == [0.0 if i in at else 1.0 for i in range(3)], (values, at)


@pytest.mark.parametrize("values", [[[0, 1, 2], [2, -1, 2], [3, -2, 2]], [[1, 2, 3], [4, 5, 6], [7, 8, 10]], [[0, 0, 0]] * 3])
def test_answers_that_say_what_is_singular_never_raise(values):
    """Nor does their gradient; it is NaN with the answer, and the same where it is captured."""
    b = fl.ones(3, 1, dtype=fl.float64, requires_grad=True)
    for f in (lambda a, b: fl.linalg.solve_ex(a, b)[0], lambda a, b: fl.linalg.inv_ex(a)[0] @ b):
        made = []
        for call in (f, fl.compile(f, backend="aot_eager")):
            a = fl.tensor(values, dtype=fl.float64, requires_grad=True)
            y = call(a, b)
            made.append([y, *fl.autograd.grad(y.sum(), [a, b])])
        for eager, captured in zip(*made, strict=True):
            fl.testing.assert_close(eager, captured, equal_nan=True)
        assert bool(made[0][0].isnan().any()) == bool(made[0][1].isnan().any()) == bool(made[0][2].isnan().any())


TINY = [1e-310, -1e-310, 1e-200, 0.0, 2.0]     # what is divided by it overflows


@pytest.mark.parametrize("name", ["xlogy", "special.xlog1py", "dist", "pow", "div", "atan2", "norm", "linalg.vector_norm"])
def test_slopes_beside_what_is_hardly_anything(name):
    *place, last = name.split(".")

    def fn(t, x, y):
        call = getattr(getattr(t, place[0]) if place else t, last)
        return call(t.stack([x, y])).reshape(1) if "norm" in last else call(x, y).reshape(1)

    for *values, g in itertools.product(TINY, TINY, (1.0, 0.0)):
        ours, right = gradients(fl, fn, values, [True, True], g), gradients(theirs, fn, values, [True, True], g)
        assert all(math.isnan(b) or a == pytest.approx(b) for a, b in zip(ours, right)), (values, g, ours, right)


@pytest.mark.parametrize("kind", [fl.float32, fl.float64])
def test_the_slope_of_a_spherical_bessel_function(kind):
    x = fl.tensor([1e-310, 1e-200, 1e-20, 1e-10, 1e-5, 1e-3, 0.0, INF, 1.5], dtype=kind, requires_grad=True)
    found = fl.autograd.grad(fl.special.spherical_bessel_j0(x).sum(), x)[0].double()
    z = x.detach().double()
    near = -z / 3 + z ** 3 / 30
    assert found[:6].tolist() == pytest.approx(near[:6].tolist(), rel=1e-6) and found[6:8].tolist() == [0, 0]
    assert found[8].item() == pytest.approx(math.cos(1.5) / 1.5 - math.sin(1.5) / 1.5**2, rel=1e-6)


@pytest.mark.parametrize("loss", ["smooth_l1_loss", "huber_loss", "mse_loss"])
def test_the_slope_of_a_loss_of_nan_is_nan(loss):
    x = fl.tensor([NAN, 0.5, 3.0, -3.0, INF], requires_grad=True)
    found = fl.autograd.grad(getattr(fl.nn.functional, loss)(x, fl.zeros(5), reduction="sum"), x)[0]
    assert found[0].isnan() and found[1:4].isfinite().all()


@pytest.mark.parametrize("eps", [None, 0.0, 0.2, 0.5, 0.7, -0.2])
def test_the_slope_of_logit_beyond_its_limits(eps):
    """NaN where the value is, 0 where it is limited."""
    values = [-INF, -1.0, 0.0, 0.1, 0.2, 0.5, 0.8, 0.9, 1.0, 2.0, INF, NAN]
    found = []
    for t in (fl, theirs):
        x = t.tensor(values, dtype=t.float64, requires_grad=True)
        found.append(t.autograd.grad(t.logit(x, eps).sum(), x)[0].tolist())
    assert found[0] == pytest.approx(found[1], nan_ok=True)


def test_a_factor_makes_up_for_a_small_divisor():
    for value in (1e-3, 2.0, 2.5):
        found = []
        for t in (fl, theirs):
            start, x, y = (t.tensor(v, requires_grad=True) for v in ([[0.0], [1.0]], [-0.755, 3.0], [1e-40 if value < 1 else 0.25, -2.0]))
            out = t.addcdiv(start, x, y, value=value)
            found.append([g.tolist() for g in t.autograd.grad(out, (start, x, y), t.ones(2, 2))])
        assert found[0][0] == found[1][0] and found[0][1] == pytest.approx(found[1][1]) and found[0][2] == pytest.approx(found[1][2])
