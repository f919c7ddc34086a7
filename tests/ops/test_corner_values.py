"""Operators at the edges: numbers that do not fit, signed zeros, NaN and infinities, ints divided by zero, bools in arithmetic.
torch is the oracle; both refuse, or both give the same dtype, shape and values."""

import itertools

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

def words(text: str) -> list[str]:
    return text.split()


NAN, INF = float("nan"), float("inf")
FLOATS = np.array([0.0, -0.0, 1, -1, 0.5, -2.5, 3.7, 88.5, -88.5, -95.0, -103.0, 1e30, -1e30, NAN, INF, -INF])
INTS = np.array([0, 1, 2, 3, 7, 100, -1, -2, -3, -7, -100, 127, -128])

UNARY = {name: (lambda name: lambda t, x: getattr(t, name)(x))(name) for name in words(
    "neg abs sqrt rsqrt exp expm1 log log1p sin cos tanh sigmoid erf relu floor ceil trunc round sign reciprocal square "
    "isnan isinf isfinite logical_not sum mean prod max min argmax all any cumsum softmax log_softmax logsumexp norm "
    "sort unique diff clone")}
for _name in ("cumsum", "softmax", "log_softmax", "logsumexp"):
    UNARY[_name] = (lambda name: lambda t, x: getattr(t, name)(x, 0))(_name)
UNARY["sort"] = lambda t, x: t.sort(x, stable=True)
for _name in ("silu", "hardtanh", "relu6", "softsign", "tanhshrink", "softplus", "elu"):
    UNARY[_name] = (lambda name: lambda t, x: getattr(t.nn.functional, name)(x))(_name)
UNARY |= {
    "clamp": lambda t, x: t.clamp(x, 0, 1), "clamp to NaN": lambda t, x: t.clamp(x, max=NAN),
    "clamp between NaN": lambda t, x: t.clamp(x, 0.0, NAN), "masked_fill": lambda t, x: x.masked_fill(x != x, 0),
}
BINARY = {name: (lambda name: lambda t, x, y: getattr(t, name)(x, y))(name) for name in words(
    "add sub mul div maximum minimum pow remainder fmod floor_divide eq lt ge logical_and bitwise_and bitwise_xor "
    "bitwise_left_shift copysign hypot nextafter")}
BINARY |= {
    "div trunc": lambda t, x, y: t.div(x, y, rounding_mode="trunc"), "where": lambda t, x, y: t.where(x == x, x, y),
    "add alpha": lambda t, x, y: t.add(x, y, alpha=2), "rsub": lambda t, x, y: t.rsub(x, y),
}
KINDS = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
# Where torch's answer hangs on how it computes, not on what (a quotient or an integer's absolute value that overflows), or where
# more dtypes are taken here.
LEFT_OUT = {("nextafter", "float16"), ("remainder", "float32"), ("fmod", "float32"), ("argmax", "bool"),
            ("round", "bool"), ("pow", "bool"), ("hardtanh", "uint8"), ("hardtanh", "bool"), ("relu6", "bool"), ("softsign", "int8"),
            ("softsign", "uint8"), ("softsign", "bool"), ("tanhshrink", "bool"), ("tanhshrink", "bfloat16"),
            *(("hypot", kind) for kind in ("int64", "int32", "int8", "uint8", "bool"))}


def pair(values: np.ndarray, kind: str) -> tuple:
    made = torch.tensor(values).to(getattr(torch, kind))
    return made, fl.tensor(made.float().numpy() if kind == "bfloat16" else made.numpy()).to(getattr(fl, kind))


def numbers(kind: str) -> np.ndarray:
    return FLOATS if "float" in kind else INTS


def outcome(fn, t, *args):
    try:
        out = fn(t, *args)
    except (RuntimeError, TypeError, NotImplementedError, IndexError) as error:
        return type(error).__name__
    return [(str(o.dtype), tuple(o.shape), (o.float() if "bfloat16" in str(o.dtype) else o).numpy())
            for o in (out if isinstance(out, tuple) else (out,))]


def agree(ours, theirs) -> None:
    if isinstance(theirs, str) or isinstance(ours, str):
        assert isinstance(theirs, str) and isinstance(ours, str), (ours, theirs)
        return
    for (kind, shape, value), (expected_kind, expected_shape, expected) in zip(ours, theirs, strict=True):
        assert (kind, shape) == (expected_kind, expected_shape)
        if value.dtype.kind == "f":
            digits = {"torch.float16": 2e-3, "torch.bfloat16": 1.6e-2, "torch.float32": 2e-5}.get(kind, 1e-10)
            np.testing.assert_allclose(value.astype(np.float64), expected.astype(np.float64), rtol=digits, atol=1e-36)
        else:
            np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", UNARY)
def test_of_one(name, kind):
    if (name, kind) in LEFT_OUT:
        pytest.skip("hangs on how it is computed")
    for values in (numbers(kind), numbers(kind)[4], np.zeros((0, 3)), np.zeros(0), numbers(kind)[:12].reshape(3, 4).T, numbers(kind)[::2]):
        if name == "softmax" or (name == "log_softmax" and not values.size):
            values = values.astype(np.float64)
            if "float" not in kind:
                continue
        theirs, ours = pair(values, kind)
        agree(outcome(UNARY[name], fl, ours), outcome(UNARY[name], torch, theirs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BINARY)
def test_of_two(name, kind):
    if (name, kind) in LEFT_OUT:
        pytest.skip("hangs on how it is computed")
    values = numbers(kind)
    other = np.nan_to_num(np.roll(values, 3), posinf=1, neginf=1) % 8 if "shift" in name else np.roll(values, 3)
    for x, y in ((values, other), (values, other[2]), (values[:, None], other[:4]), (np.zeros((0, 3)), np.zeros((1, 3))),
                 (values[:12].reshape(3, 4).T, other[:12].reshape(4, 3)), (values[3], other[2])):
        (theirs, ours), (their_other, our_other) = pair(x, kind), pair(y, kind)
        agree(outcome(BINARY[name], fl, ours, our_other), outcome(BINARY[name], torch, theirs, their_other))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BINARY)
def test_with_a_number(name, kind):
    if (name, kind) in LEFT_OUT or (name, kind) == ("div trunc", "bool"):
        pytest.skip("hangs on how it is computed")
    theirs, ours = pair(numbers(kind), kind)
    for number in (2, -3, 0, 2.5, -0.5, 0.5, True):
        if (name == "pow" and kind == "bfloat16") or (name == "bitwise_left_shift" and (number == -3 or kind == "bool")):
            continue
        if name == "add alpha" and kind == "bool":
            continue
        agree(outcome(BINARY[name], fl, ours, number), outcome(BINARY[name], torch, theirs, number))


# What would overflow on another way, and zeros and NaNs that decide.
ON_THE_WAY = {
    "addcmul": lambda t, big: t.addcmul(big * 0, big, big, value=2 ** -14),
    "addr of nothing": lambda t, big: t.addr(big, big, big, alpha=0),
    "addr": lambda t, big: t.addr(big[0] * 0, big, big, alpha=2 ** -14),
    "addcdiv": lambda t, big: t.addcdiv(big * 0, big, 1 / big, value=2 ** -14),
    "gaussian_nll_loss": lambda t, big: t.nn.functional.gaussian_nll_loss(big * 0, big * 0, big * t.tensor([INF, 0.0]).to(big.dtype),
                                                                          reduction="none"),
    "bilinear": lambda t, big: t.nn.functional.bilinear(big[None] / big * 2, t.stack([big, -big])[:, 0][None], big.new_ones(1, 2, 2)),
    "elu": lambda t, big: t.stack([t.nn.functional.elu(big * 0, a) for a in (NAN, INF)]),
    "elu_": lambda t, big: t.nn.functional.elu_(big * 0, NAN), "celu": lambda t, big: t.nn.functional.celu(big * 0, INF),
    "cdist": lambda t, big: t.cdist(t.stack([big, big * NAN]), t.stack([big * INF, -big]), p=0),
    "pdist": lambda t, big: t.pdist(t.stack([big, big * NAN, -big, big * INF]), p=0),
}


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ON_THE_WAY)
def test_on_the_way(name, kind):
    if name in ("cdist", "pdist") and "16" in kind:
        pytest.skip("torch has no such kernel")
    root = {"float32": 1e19, "float64": 1e154, "float16": 256.0, "bfloat16": 1e19}[kind] * 8
    theirs, ours = pair(np.array([root, root]), kind)
    agree(outcome(ON_THE_WAY[name], fl, ours), outcome(ON_THE_WAY[name], torch, theirs))


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_complex_powers(kind):
    """Of what is infinite and to what is huge: 0 where the power is, by numbers and tensors alike; a product that overflows is not NaN."""
    parts = [INF, -INF, 1.0, -0.5, 1e30]
    values = np.array([complex(a, b) for a in parts for b in parts])
    for power in (-1, -2, -5, -0.5, -1.5):
        for lib in (fl, torch):
            x = lib.tensor(values.tolist(), dtype=getattr(lib, kind))
            for out in (x ** power, x ** lib.full((25,), power, dtype=x.dtype), x.clone().pow_(power)):
                out = out.resolve_conj().numpy()
                small = np.array([abs(v) > 1e29 for v in values])
                if lib is fl:
                    ours = np.abs(out[small])
                    assert (ours < 1e-14).all(), (power, ours)
                else:       # torch's NaNs are of the way it goes
                    assert ((np.abs(out[small]) < 1e-14) | np.isnan(out[small])).all()


def test_block_diag_of_dtypes():
    """A tensor without dimensions decides less than those that have some, as everywhere but in cat."""
    for kind in KINDS:
        for other in KINDS:
            (theirs, ours), (their_other, our_other) = (pair(np.array([[1.0, 2]]), k) for k in (kind, other))
            for last in ((0, 0), 0):
                agree(outcome(fl.block_diag, ours, our_other[last]), outcome(torch.block_diag, theirs, their_other[last]))


@pytest.mark.parametrize("name", ["add", "mul", "add alpha", "where", "div", "eq", "rsub"])
def test_of_two_dtypes(name):
    for kind in KINDS:
        for other in KINDS:
            (theirs, ours), (their_other, our_other) = pair(numbers(kind)[:13], kind), pair(numbers(other)[:13][::-1].copy(), other)
            agree(outcome(BINARY[name], fl, ours, our_other), outcome(BINARY[name], torch, theirs, their_other))
            agree(outcome(BINARY[name], fl, ours, our_other[3]), outcome(BINARY[name], torch, theirs, their_other[3]))


STEPWISE = {
    "remainder": lambda t, x: t.remainder(x, 0.3), "fmod": lambda t, x: t.fmod(x, -0.7), "of a number": lambda t, x: 7.3 % x,
    "in place": lambda t, x: x.clone().remainder_(0.3), "by a huge number": lambda t, x: x % 1e39,
    "tanhshrink": lambda t, x: t.nn.functional.tanhshrink(x), "softsign": lambda t, x: t.nn.functional.softsign(x),
}


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_narrow_floats_are_rounded_after_each_step(kind):
    """Also the number that a remainder is taken of, to the bit."""
    theirs, ours = pair(np.random.default_rng(0).standard_normal(3000), kind)
    fl.compiler.reset()
    compiled = fl.compile(lambda x: [step(fl, x) for step in STEPWISE.values()])(ours)
    for (name, step), native in zip(STEPWISE.items(), compiled, strict=True):
        want = repr(step(torch, theirs).float().tolist())
        assert repr(step(fl, ours).float().tolist()) == want == repr(native.float().tolist()), name


def test_hardtanh_in_place_with_bounds_in_the_wrong_order():
    for x in ([-3.0, 0.0, 3.0], [1, 5]):
        theirs, ours = torch.tensor(x), fl.tensor(x)
        assert fl.nn.functional.hardtanh_(ours, 3, 2).tolist() == torch.nn.functional.hardtanh_(theirs, 3, 2).tolist()
    with pytest.raises(ValueError, match="min_val"):
        fl.nn.functional.hardtanh(fl.ones(2), 3, 2)


def test_differences_along_nothing_are_the_input():
    for lib in (torch, fl):
        x = lib.zeros(0, 3)
        assert lib.diff(x, dim=0) is x and lib.diff(x, n=0, dim=0) is not x and lib.diff(x, dim=1).shape == (0, 2)


@pytest.mark.parametrize("shape, order", [((2, 4, 6), (0, 2, 1)), ((1, 6, 4), (0, 2, 1)), ((4, 6, 2), (2, 1, 0)), ((2, 4, 6), (0, 1, 2))])
def test_pools_that_need_a_gradient_keep_the_order(shape, order):
    """Of one dimension: torch's max_pool1d lies in rows unless a gradient will ask where the maxima stood."""
    for grad in (False, True):
        theirs, ours = (lib.ones(shape).permute(order).requires_grad_(grad) for lib in (torch, fl))
        assert fl.nn.functional.max_pool1d(ours, 2).stride() == torch.nn.functional.max_pool1d(theirs, 2).stride(), grad


EMPTY = {
    **{f"tensorinv {shape} {ind}": (lambda t, shape=shape, ind=ind: t.linalg.tensorinv(t.zeros(shape), ind)) for shape, ind in (
        ((1, 0, 0), 2), ((0, 0), 1), ((0, 1, 0), 2), ((0, 2, 0), 1), ((1, 0, 0, 3), 2), ((0, 2, 2, 0), 2), ((2, 0, 0), 1))},
    **{f"addmm {kind} {scale}": (lambda t, kind=kind, scale=scale: [t.addmm(
        t.zeros(1, dtype=getattr(t, kind)), *(t.ones(s, dtype=getattr(t, kind)) for s in shapes), **scale)
        for shapes in (((0, 0), (0, 1)), ((0, 2), (2, 3)), ((2, 3), (3, 0)))]) for kind in ("uint8", "int64", "float32")
       for scale in ({"beta": 1e30}, {"alpha": 300}, {"beta": NAN})},
    **{f"cat {dim}": (lambda t, dim=dim: [t.cat([t.zeros(0)] * n, dim) for n in (1, 3)] + [t.cat([t.zeros(0), t.zeros(0).long()], dim)])
       for dim in (-9, -1, 0, 1, 5)},
    **{f"cat {dim} with a row": (lambda t, dim=dim: t.cat([t.zeros(0), t.ones(1, 2)], dim)) for dim in (-3, 1, 2)},
}


@pytest.mark.parametrize("name", EMPTY)
def test_of_nothing(name):
    assert outcomes(EMPTY[name], fl) == outcomes(EMPTY[name], torch)


def outcomes(call, t):
    try:
        found = call(t)
    except Exception as error:
        return type(error)
    return [(tuple(r.shape), str(r.dtype)) for r in (found if isinstance(found, list) else [found])]


def test_a_distance_of_integers_has_a_float_added():
    for eps in (-9, 2, -9.0, 0.5):
        x, y = ([t.tensor(v, dtype=t.uint8) for v in ([[1, 7]], [[0, 2]])] for t in (fl, torch))
        ours, right = (t.nn.functional.pairwise_distance(*v, eps=eps) for t, v in ((fl, x), (torch, y)))
        assert ours.dtype is fl.float32 and ours.tolist() == pytest.approx(right.tolist())


@pytest.mark.parametrize("spatial", [2, 3])
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_sizes_for_more_dimensions_than_there_are(kind, spatial):
    name = f"adaptive_{kind}_pool{spatial}d"
    for rank in (spatial + 1, spatial + 2):
        for sizes in ([2] * rank, [2] * (rank + 1)):
            with pytest.raises(ValueError, match="Input dimension should be at least"):
                getattr(fl.nn.functional, name)(fl.ones([2] * rank), sizes)
            with pytest.raises(ValueError, match="Input dimension should be at least"):
                getattr(fl.nn.functional, name)(fl.ones([2] * rank), fl.ones(len(sizes)))


def test_a_weight_is_looked_at_before_the_input():
    for norm in ("layer_norm", "rms_norm"):
        for t in (fl, torch):
            with pytest.raises(RuntimeError, match="Expected weight to be of same shape"):
                getattr(t.nn.functional, norm)(t.ones(1), (1, 2), t.ones(1))


LOSSES = {
    "hinge_embedding_loss": ("margin", lambda F, x, y, v, **kw: F.hinge_embedding_loss(x, y, **kw)),
    "margin_ranking_loss": ("margin", lambda F, x, y, v, **kw: F.margin_ranking_loss(x, y, v, **kw)),
    "gaussian_nll_loss": ("eps", lambda F, x, y, v, **kw: F.gaussian_nll_loss(x, y, v, **kw)),
    "pairwise_distance": ("eps", lambda F, x, y, v, **kw: F.pairwise_distance(x[None], y[None], **{n: k for n, k in kw.items()
                                                                                              if n != "reduction"})),
}


@pytest.mark.parametrize("kind", ["int64", "uint8", "int8", "float16", "float32"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_number_in_a_loss_of_integers(name, kind):
    """A float parameter is a float though an integer is given for it; what is scaled in the dtype of integers is an integer."""
    parameter, loss = LOSSES[name]
    for number, reduction in itertools.product((2, 2.0, 0.5, 1, 0, -3), ("none", "sum")):
        if ("int" in kind and (isinstance(number, float), name) == (True, "gaussian_nll_loss")) or (kind, number) == ("uint8", -3):
            continue    # which torch takes in no integer
        found = []
        for t in (fl, torch):
            given = [t.tensor(v).to(getattr(t, kind)) for v in ([1, 3, 2], [1, 1, 2], [1, 3, 2])]
            found.append(outcome(lambda t, *given, n=number, r=reduction: loss(t.nn.functional, *given, **{parameter: n}, reduction=r),
                                 t, *given))
        agree(*found)


@pytest.mark.parametrize("kind, most", [("float16", 2 ** 13), ("bfloat16", 2 ** 16)])
def test_narrow_quotients_are_rounded_down_before_they_are_narrow(kind, most):
    """The quotient as it is, rounded down and then to the dtype; torch's is rounded to the dtype first where both are tensors, so that
    5.1875 / 0.0928 = 55.9 is 56 rounded down there."""
    rng = np.random.default_rng(3)
    x, y = (fl.tensor(rng.integers(-2**15, 2**15, 200_000), dtype=fl.int16).view(getattr(fl, kind)) for _ in range(2))
    with np.errstate(all="ignore"):
        a, b = (v.double().numpy() for v in (x, y))
        fits = np.isfinite(a) & np.isfinite(b) & (b != 0) & (np.abs(a / b) < most)
        x, y, a, b = x[fl.tensor(fits)], y[fl.tensor(fits)], a[fits], b[fits]
        rest = np.fmod(a, b)
    trunc = np.rint((a - rest) / b)
    for mode, want in (("trunc", trunc), ("floor", trunc - ((rest != 0) & ((rest < 0) != (b < 0))))):
        assert fl.equal(x.div(y, rounding_mode=mode).abs(), fl.tensor(want).to(x.dtype).abs())
    assert fl.equal(x.fmod(y), fl.tensor(rest).to(x.dtype)) and fl.equal(x // y, x.floor_divide(y))
