"""Elementwise operators against torch: values, promotion, broadcasting, gradients, in-place forms, out=, refusals."""

from __future__ import annotations

import inspect
import itertools

import ml_dtypes
import numpy as np
import pytest

import flambeau as fl
from flambeau.core import dispatch

RNG = np.random.default_rng(9)
X = RNG.standard_normal((3, 4))
Y = RNG.standard_normal((3, 4))
P = RNG.uniform(0.3, 2.5, (3, 4))
U = RNG.uniform(-0.9, 0.9, (3, 4))
I, J = RNG.integers(-9, 10, (3, 4)), RNG.integers(1, 10, (3, 4))
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e300, -1e-300])

UNARY = {
    **dict.fromkeys(("neg", "abs", "exp", "exp2", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh",
                     "sigmoid", "erf",
                     "erfc", "relu", "floor", "ceil", "trunc", "round", "sign", "sgn", "square", "frac", "deg2rad", "rad2deg",
                     "sinc", "positive", "angle", "nan_to_num"), X),
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "reciprocal", "lgamma", "digamma"), P),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), U),
    "acosh": P + 1, "logit": np.abs(U) * 0.9 + 0.05,
}
TESTS = ("isnan", "isinf", "isfinite", "signbit", "logical_not")


@pytest.mark.parametrize("name", UNARY)
def test_unary(agrees, name):
    agrees(lambda t, x: getattr(t, name)(x), UNARY[name])
    agrees(lambda t, x: getattr(x, name)(), UNARY[name].astype(np.float32), grad=False, tolerance=1e-5)


@pytest.mark.parametrize("name", [*(n for n in UNARY if n not in ("angle", "digamma", "lgamma")), *TESTS])
def test_unary_at_special_values(agrees, name):
    if name in ("sin", "cos", "tan"):
        agrees(lambda t, x: getattr(t, name)(x), SPECIAL[:8], grad=False)
    else:
        agrees(lambda t, x: getattr(t, name)(x), SPECIAL, grad=False)


@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("positive", "sgn", "deg2rad", "rad2deg", "logit", "angle",
                                                                "frac", "lgamma",
                                                               "digamma", "acosh", "log", "log2", "log10", "log1p", "rsqrt")])
def test_unary_of_integers(agrees, name):
    agrees(lambda t, x: getattr(t, name)(x), J if name in ("sqrt", "reciprocal") else I % 2 if name in ("asin", "acos") else
           I * 0 if name in ("atanh", "erfinv") else I)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "sqrt", "neg", "abs", "log", "rsqrt", "erf"])
def test_unary_of_narrow_floats(agrees, name, kind):
    agrees(lambda t, x: getattr(t, name)(x), UNARY[name].astype(kind), grad=False, tolerance=1e-2)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sin", "cos", "tanh", "abs", "neg", "reciprocal", "square", "sgn",
                                  "angle", "conj_physical"])
def test_unary_of_complex_numbers(agrees, name):
    agrees(lambda t, x: getattr(t, name)(x), X + 1j * P, tolerance=1e-8)


BINARY = {
    "add": (X, Y), "sub": (X, Y), "mul": (X, Y), "div": (X, P), "pow": (P, X), "maximum": (X, Y), "minimum": (X, Y), "fmax": (X, Y),
    "fmin": (X, Y), "atan2": (X, Y), "hypot": (X, Y), "copysign": (X, Y), "remainder": (X, P), "fmod": (X, P), "logaddexp": (X, Y),
    "xlogy": (X, P), "float_power": (P, X), "heaviside": (X, Y), "true_divide": (X, P), "rsub": (X, Y),
}
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")


@pytest.mark.parametrize("name", BINARY)
def test_binary(agrees, name):
    agrees(lambda t, x, y: getattr(t, name)(x, y), *BINARY[name], grad=name != "heaviside")


@pytest.mark.parametrize("name", BINARY)
def test_binary_broadcasts(agrees, name):
    x, y = BINARY[name]
    agrees(lambda t, x, y: getattr(t, name)(x, y), x[:, :1], y[0], grad=name != "heaviside")
    agrees(lambda t, x, y: getattr(t, name)(x, y), x[:0], y[0], grad=name != "heaviside")


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "remainder", "fmod", "atan2", *COMPARE])
def test_binary_at_special_values(agrees, name):
    agrees(lambda t, x, y: getattr(t, name)(x, y), SPECIAL[:8, None], SPECIAL[None, :8], grad=False)


@pytest.mark.parametrize("name", [*COMPARE, "floor_divide", "remainder", "fmod", "gcd", "lcm", "bitwise_and", "bitwise_or",
                                  "bitwise_xor",
                                  "add", "sub", "mul", "maximum", "div", "atan2"])
def test_binary_of_integers(agrees, name):
    agrees(lambda t, x, y: getattr(t, name)(x, y), I, J)


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
def test_rounded_division(agrees, mode):
    agrees(lambda t, x, y: t.div(x, y, rounding_mode=mode), X, P, grad=mode is None)
    agrees(lambda t, x, y: t.div(x, y, rounding_mode=mode), I, J)


@pytest.mark.parametrize("fn", [lambda t, x: x << 2, lambda t, x: x >> 1, lambda t, x: ~x, lambda t, x: x & 3, lambda t, x: 5 | x,
                                lambda t, x: x ^ x.flip(0), lambda t, x: 1 << (x & 7)])
def test_bits(agrees, fn):
    agrees(fn, I)
    agrees(lambda t, x: ~(x > 0) & (x < 3) | (x == 5), I)


PYTHON = [lambda t, x: x + 2, lambda t, x: 2 + x, lambda t, x: x - 2.5, lambda t, x: 2 - x, lambda t, x: x * 3, lambda t, x: 3 * x,
          lambda t, x: x / 2, lambda t, x: 2 / x, lambda t, x: x**2, lambda t, x: x**3, lambda t, x: x**0.5, lambda t, x: x**-1,
          lambda t, x: 2**x, lambda t, x: x // 2, lambda t, x: 7 // x, lambda t, x: x % 3, lambda t, x: 7 % x, lambda t, x: -x,
          lambda t, x: +x, lambda t, x: abs(x), lambda t, x: x > 1, lambda t, x: 1 >= x,  # noqa: SIM300 - the reflected comparison
          lambda t, x: x == 2, lambda t, x: x != 2,
          lambda t, x: divmod(7, 2) and x * True, lambda t, x: x + 1j]


@pytest.mark.parametrize("fn", PYTHON)
@pytest.mark.parametrize("array", [P, J, P.astype(np.float32), J.astype(np.uint8)], ids=lambda a: str(a.dtype))
def test_numbers(agrees, fn, array):
    rough = 1e-4 if array.dtype == np.float32 else None
    try:
        import torch
        fn(torch, torch.tensor(array))
    except (RuntimeError, NotImplementedError):
        pytest.skip("torch refuses this")
    agrees(fn, array, grad=array.dtype.kind == "f" and fn not in PYTHON[13:17], tolerance=rough)


KINDS = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize(("a", "b"), list(itertools.product(KINDS, KINDS)))
def test_promotion(a, b):
    torch = pytest.importorskip("torch")
    for make_a, make_b in itertools.product((lambda t, k: t.ones(2, dtype=k), lambda t, k: t.ones((), dtype=k)), repeat=2):
        found = [str((make_a(t, getattr(t, a)) + make_b(t, getattr(t, b))).dtype) for t in (fl, torch)]
        if "complex32" in found[1]:
            pytest.skip("there is no complex32 here: complex64 stands for it")
        assert found[0] == found[1]
        assert str(fl.result_type(make_a(fl, getattr(fl, a)), make_b(fl, getattr(fl, b)))) == found[1]
    assert str(fl.promote_types(getattr(fl, a), getattr(fl, b))) == str(torch.promote_types(getattr(torch, a), getattr(torch, b)))


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [True, 2, 2.5, 1j], ids=repr)
def test_promotion_with_numbers(kind, number):
    torch = pytest.importorskip("torch")
    for shape in ((2,), ()):
        mine, theirs = (str((t.ones(shape, dtype=getattr(t, kind)) * number).dtype) for t in (fl, torch))
        assert mine == theirs.replace("complex32", "complex64")


OTHERS = {
    "where": lambda t, x, y: t.where(x > 0, x, y),
    "where numbers": lambda t, x, y: t.where(x > 0, 1.0, y),
    "where method": lambda t, x, y: x.where(x > y, 0),
    "masked_fill": lambda t, x, y: x.masked_fill(x > 0, -2),
    "masked_fill broadcast": lambda t, x, y: x.masked_fill(x[0] > 0, -2),
    "masked_fill tensor": lambda t, x, y: x.masked_fill(x > 0, t.tensor(3.0, dtype=x.dtype)),
    "clamp": lambda t, x, y: x.clamp(-0.5, 0.5),
    "clamp min": lambda t, x, y: x.clamp(min=0),
    "clamp tensors": lambda t, x, y: x.clamp(y - 0.5, y + 0.5),
    "clip": lambda t, x, y: t.clip(x, max=0.25),
    "clamp_min": lambda t, x, y: x.clamp_min(0.1),
    "addcmul": lambda t, x, y: t.addcmul(x, y, y, value=0.5),
    "addcdiv": lambda t, x, y: t.addcdiv(x, y, y.abs() + 1, value=0.5),
    "lerp": lambda t, x, y: t.lerp(x, y, 0.3),
    "lerp far": lambda t, x, y: t.lerp(x, y, 0.8),
    "lerp tensor": lambda t, x, y: t.lerp(x, y, t.sigmoid(y.detach())),
    "add alpha": lambda t, x, y: t.add(x, y, alpha=2),
    "sub alpha": lambda t, x, y: x.sub(y, alpha=0.5),
    "round decimals": lambda t, x, y: t.round(x, decimals=2),
    "nan_to_num": lambda t, x, y: t.nan_to_num(x / 0, 1, 2, 3),
    "complex": lambda t, x, y: t.complex(x, y),
    "type conversions": lambda t, x, y: (x.float(), y.half().double(), x.bool(), (x * 9).long(), x.bfloat16()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others(agrees, name):
    agrees(OTHERS[name], X, Y, tolerance=1e-3 if name == "type conversions" else None)


IN_PLACE = ["add_", "sub_", "mul_", "div_", "pow_", "remainder_", "fmod_", "atan2_", "copysign_", "lt_", "eq_", "floor_divide_"]


@pytest.mark.parametrize("name", IN_PLACE)
def test_binary_in_place(agrees, name):
    agrees(lambda t, x, y: [z := x * 1, getattr(z, name)(y), z][1:], P, P[::-1].copy(), grad=name not in ("floor_divide_",))
    agrees(lambda t, x, y: [getattr(x, name)(y), x], P.astype(np.float32), P[0].astype(np.float32), grad=False, tolerance=1e-5)


@pytest.mark.parametrize("name", ["neg_", "abs_", "exp_", "log_", "sqrt_", "tanh_", "sigmoid_", "relu_", "round_",
                                  "reciprocal_", "sin_", "square_"])
def test_unary_in_place(agrees, name):
    agrees(lambda t, x: [z := x * 1, getattr(z, name)(), z][1:], P)


def test_in_place_keeps_the_object_and_its_dtype():
    x = fl.ones(3, dtype=fl.float32)
    memory, version = x.data_ptr(), x._version
    assert x.add_(fl.ones(3, dtype=fl.float64)) is x
    assert x.data_ptr() == memory
    assert x.dtype is fl.float32
    assert x._version == version + 1


def test_out():
    out = fl.empty(3)
    assert fl.add(fl.ones(3), 1, out=out) is out
    assert out.tolist() == [2, 2, 2]
    fl.exp(fl.zeros(2, 2), out=(grown := fl.empty(0)))
    assert grown.shape == (2, 2)


@pytest.mark.parametrize("fn", [
    lambda t, x: x + t.ones(5), lambda t, x: x + "a", lambda t, x: t.add(x), lambda t, x: x.add_(t.ones(2, 3, 4)),
    lambda t, x: x.long().add_(1.5), lambda t, x: t.ones(3, dtype=t.bool) - t.ones(3, dtype=t.bool),
    lambda t, x: x & x, lambda t, x: ~x,
    lambda t, x: x.clamp(), lambda t, x: x.masked_fill(x, 1), lambda t, x: t.exp("a"), lambda t, x: x.long() ** -1,
    lambda t, x: t.div(x, 2, rounding_mode="up"), lambda t, x: x.masked_fill(x > 0, x), lambda t, x: x.long() // 0,
    lambda t, x: x.add_(1j), lambda t, x: x < 1j, lambda t, x: x.to(t.complex64) < 1,
    lambda t, x: t.ones(3, device="meta") + x[0, :3]])
def test_refused(both_refuse, fn):
    both_refuse(fn, X)


def test_comparison_with_strangers():
    assert (fl.ones(2) == "a") is False
    assert (fl.ones(2) != None) is True  # noqa: E711 - the point of the test
    assert len({fl.ones(1), fl.ones(1)}) == 2


def test_large_arrays_agree_with_small_ones():
    """Past a size a generated kernel may take over: same numbers."""
    x = fl.tensor(RNG.standard_normal(1 << 17).astype(np.float32))
    for fn in (fl.exp, fl.tanh, fl.sigmoid, lambda v: v * v + v, lambda v: v > 0):
        parts = fl.cat([fn(p) for p in x.split(1000)])
        assert fl.allclose(fn(x).float(), parts.float(), rtol=1e-6, atol=1e-6)


def test_operands_that_are_no_tensors_are_asked():
    """An operator leaves what it doesn't know to the other object's reflected method."""

    class Other:
        __radd__ = __rmul__ = __rmatmul__ = __rsub__ = __rtruediv__ = __rpow__ = __rand__ = __rmod__ = lambda self, x: x.shape
        __gt__ = lambda self, x: "greater"

    x, other = fl.ones(2), Other()
    for answer in (x + other, x * other, x @ other, x - other, x / other, x**other, x & other, x % other):
        assert answer == (2,)
    assert (x < other) == "greater"
    y = x
    y += other
    assert y == (2,)
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+: 'Tensor' and 'str'"):
        x + "a"
    with pytest.raises(TypeError, match="not supported between instances of 'Tensor' and 'NoneType'"):
        x < None  # noqa: B015
    assert (x + np.ones(2)).dtype is fl.float64


@pytest.mark.parametrize("number", [np.float64(2), np.float32(2), np.int64(2), np.bool_(True), np.float16(2)])
def test_numpy_numbers_do_not_promote(number):
    assert (fl.ones(2) * number).dtype is fl.float32
    assert (number * fl.ones(2)).dtype is fl.float32


@pytest.mark.parametrize("shape", [(3, 4), (300, 200)])
def test_logaddexp_of_equals_and_infinities(agrees, shape):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(shape) * 20, rng.standard_normal(shape) * 20
    y[0, :2], x[0, 2:4], y[0, 2:4] = x[0, :2], (np.inf, -np.inf), (1.0, 2.0)
    agrees(lambda t, x, y: t.logaddexp(x, y), x, y, tolerance=1e-12)
    agrees(lambda t, x, y: t.logaddexp(x, y[:1]), x, y, tolerance=1e-11)
    assert fl.logaddexp(fl.tensor([np.inf, -np.inf]), fl.tensor([np.inf, -np.inf])).tolist() == [np.inf, -np.inf]


def test_lerp_and_angle_of_large_arrays(agrees):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((300, 200)), rng.standard_normal((300, 200))
    for weight in (0.2, 0.8, -3.0):
        agrees(lambda t, x, y, weight=weight: t.lerp(x, y, weight), x, y, tolerance=1e-12)
        agrees(lambda t, x, y, weight=weight: t.lerp(x, y[:1], weight), x, y, tolerance=1e-12)
    x[0, :3] = np.nan, -0.0, -np.inf
    agrees(lambda t, x: t.angle(x), x, grad=False)


# -- forms in place with keywords ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["addmm_", "addmv_", "addr_", "addbmm_", "baddbmm_", "index_add_", "add_", "sub_"])
def test_alpha_in_place(agrees, name):
    matrix, vector, batch = np.arange(4.0).reshape(2, 2), np.arange(2.0), np.arange(8.0).reshape(2, 2, 2)
    operands = {"addmm_": (matrix, matrix, matrix), "addmv_": (vector, matrix, vector), "addr_": (matrix, vector, vector),
                "addbmm_": (matrix, batch, batch), "baddbmm_": (batch, batch, batch), "add_": (matrix, matrix), "sub_": (matrix, matrix)}
    if name == "index_add_":
        agrees(lambda t, x: x.clone().index_add_(0, t.tensor([1]), x[:1], alpha=2), matrix)
    else:
        first, *rest = operands[name]
        agrees(lambda t, x, *others: getattr(x.clone(), name)(*others, alpha=2), first, *rest)


# -- out= ------------------------------------------------------------------------------------------------------------------
def _documented_with_out():
    torch = pytest.importorskip("torch")
    for module in ("", "linalg", "special", "fft"):
        there, ours = (getattr(lib, module) if module else lib for lib in (torch, fl))
        for name in sorted(n for n in dir(there) if not n.startswith("_") and hasattr(ours, n)):
            says = getattr(there, name).__doc__
            says = says.split("\n\n")[0] if isinstance(says, str) else ""
            if "out=" in says and callable(getattr(ours, name)) and not isinstance(getattr(there, name), type):
                yield f"{module}.{name}".strip("."), getattr(ours, name)


def test_every_out_that_torch_documents_is_taken():
    missing = {name for name, fn in _documented_with_out() if "out" not in inspect.signature(fn).parameters}
    # whose memory is new or sparse, or whose numbers are random: `copy_` serves
    assert missing <= {"bernoulli", "empty_like", "empty_permuted", "empty_strided", "full_like", "hspmm", "narrow_copy", "ones_like",
                       "rand_like", "randint_like", "randn_like", "sparse_compressed_tensor", "tril_indices", "triu_indices",
                       "zeros_like", "histogramdd", "from_file"}


OUT = {
    "one": lambda t, out: t.sign(t.tensor([1.0, -2.0]), out=out),
    "a number": lambda t, out: t.std(t.tensor([1.0, -2.0]), dim=0, out=out),
    "another dtype": lambda t, out: t.logical_and(t.tensor([1.0, -2.0]), t.tensor([0.0, 1.0]), out=out),
    "complex": lambda t, out: t.fft.fft(t.tensor([1.0, -2.0]), out=out.to(t.complex64)),
}


@pytest.mark.parametrize("beside_overriding_class", [False, True])
@pytest.mark.parametrize("name", OUT)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_is_written_and_answered(agrees, name, beside_overriding_class):
    if beside_overriding_class:  # operators then look for one among their arguments
        class Overriding(fl.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                raise AssertionError("no argument is of this class")
        assert Overriding and dispatch.override_classes
    agrees(lambda t: OUT[name](t, t.zeros(0)))
    given = fl.zeros(0)
    assert name == "complex" or OUT[name](fl, given) is given


def test_out_of_a_named_tuple():
    values, indices = fl.zeros(2), fl.zeros(2, dtype=fl.int64)
    made = fl.sort(fl.tensor([2.0, 1.0]), out=(values, indices))
    assert made.values is values and values.tolist() == [1, 2] and indices.tolist() == [1, 0]


def test_out_has_no_gradient():
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        fl.sign(fl.ones(2, requires_grad=True), out=fl.zeros(2))


# -- slopes at the edges ---------------------------------------------------------------------------------------------------
EDGES = {
    "0 to the power": (lambda t, y: t.pow(0, y), [0.0, 2.0, -1.0]),
    "zeros to the power": (lambda t, y: t.pow(t.zeros_like(y), y), [0.0, 2.0, -1.0]),
    "False to the power": (lambda t, y: t.pow(t.tensor([False]), y), [0.0, 2.0, -1.0]),
    "logit": (lambda t, x: t.logit(x), [0.0, 0.5, 0.25, 1.0]),
    "median": (lambda t, x: t.median(x), [1.0, 1.0, 2.0, 0.0, 1.0]),
    "median of a NaN": (lambda t, x: t.median(x), [1.0, np.nan, 2.0, 0.0, 1.0]),
    "nanmedian": (lambda t, x: t.nanmedian(x), [1.0, np.nan, 2.0, 0.0, 1.0]),
    "threshold": (lambda t, x: t.nn.functional.threshold(x, 0.5, 3.0), [1.0, np.nan, 0.5, np.inf]),
}


@pytest.mark.parametrize("name", EDGES)
def test_gradients_at_the_edges(agrees, name):
    fn, values = EDGES[name]
    agrees(fn, np.array(values))
    agrees(fn, np.array(values, np.float32))


def test_sinc_of_the_largest_half_is_no_nan(agrees):
    agrees(lambda t, x: t.sinc(x.half()), np.array([65504.0, 3.0, 0.0, -65504.0]), grad=False)


@pytest.mark.parametrize("write", [lambda t, x: x.pow_(-2), lambda t, x: x.__ipow__(-1)])
def test_integers_to_negative_powers_in_place_are_refused(both_refuse, write):
    both_refuse(lambda t: write(t, t.tensor([-4, 2])))


def test_nothing_is_divided_by_zero(agrees):
    for fn in ("fmod", "remainder", "floor_divide"):
        agrees(lambda t, x: getattr(t, fn)(x, 0), np.zeros((2, 0), np.int64))
        agrees(lambda t, x: getattr(x, fn)(t.tensor(0)), np.zeros((2, 0), np.int64))


def test_ternary_operators_round_to_the_common_dtype_first(agrees):
    x = np.array([7, -2**62, 2**62, 70000])
    for fn in ("addcmul", "addcdiv"):
        agrees(lambda t, x: getattr(t, fn)(x, t.tensor([6]), t.tensor(2.0).half()), x)


def test_nan_to_num_of_complex_numbers(agrees):
    x = np.array([complex(a, b) for a in (np.nan, np.inf, -np.inf, 1.5) for b in (np.nan, np.inf, -np.inf, -2.5)])
    for kind in (np.complex64, np.complex128):
        agrees(lambda t, x: t.nan_to_num(x), x.astype(kind), grad=False)
        agrees(lambda t, x: t.nan_to_num(x, 1.0, 2.0, -3.0), x.astype(kind), grad=False)


def test_a_scaled_bool_is_a_bool():
    for alpha in (True, -2, 0):
        for other in (True, fl.tensor(True)):
            total = fl.tensor([False, True]).add(other, alpha=alpha)
            assert total.dtype is fl.bool and total.tolist() == [bool(alpha), True]


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32", "int64"])
def test_an_exponent_that_the_integers_do_not_hold_is_refused(kind):
    """Wrapped around it would be another power: 2 ** 256 is not 2 ** 0."""
    torch = pytest.importorskip("torch")
    for power in (5, 7, 127, 128, 255, 256, 257, 2**15 - 1, 2**15, 2**31 - 1, 2**31, 2**40, 2**63 - 1):
        for name in ("pow", "pow_", "__pow__", "__ipow__"):
            ours, theirs = (lib.tensor([0, 1, 2, 3, 4], dtype=getattr(lib, kind)) for lib in (fl, torch))
            try:
                want = getattr(theirs, name)(power).tolist()
            except RuntimeError:
                with pytest.raises(RuntimeError, match="without overflow"):
                    getattr(ours, name)(power)
            else:
                assert getattr(ours, name)(power).tolist() == want
