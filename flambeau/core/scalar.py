"""The scalar operations and the folds of the loop IR: one row per operation, one column per reading.

A loop body is a Python function over a handler `o` (`lambda o, x, y: o.exp(o.sub(x, y))`). Which handler it is called
with decides what the body means: `NumpyScalars` computes on NumPy arrays (the definition, and the eager kernel of a
pointwise primitive), the inductor's handlers print C++ or Triton. Operands of one operation have one dtype (`where`'s
condition and `to_dtype` aside); a Python number among them is a constant of that dtype.

Beside the rows of `TABLE` every handler offers
- `constant(value, dtype)`: the number `value` as an element of `dtype`;
- `to_dtype(x, dtype)`: conversion (float to int truncates, number to bool is `!= 0`, complex to real drops a part);
- `bitcast(x, dtype)`: the same bits under another dtype of the same size.

16-bit and 8-bit floats are computed in float32 and rounded once, where the body's result is stored: see `evaluate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from flambeau import _C
from flambeau.core.dtypes import DTYPES, bool_, dtype, dtype_of_numpy, float32, float64, uint32

# Result rules: how an operation's dtype follows from its operands'.
SAME, BOOL, REAL, COMPLEX, UINT32, FLOAT32 = "same", "bool", "real", "complex", "uint32", "float32"


@dataclass(frozen=True)
class ScalarOp:
    """One scalar operation: its arity, dtype rule and readings. `{0} {1} {2}` in a template are the operands' names."""

    name: str
    arity: int
    result: str
    native: str     # the dtypes of operands that have native loops (csrc/scalar_rows.py): Bools, Integers, Floats
    numpy: Callable[..., Any]  # for those that have none; of what NumPy lacks `_native`
    cpp: str
    triton: str
    cost: int = 1   # relative to an addition; what fusion weighs when it considers computing a value twice
    far: str = ""  # in C++, floats far from zero take a slow way (remote.h), whose vectors a source asks for under this name (vectors.h)
    wraps: bool = False  # in C++, of integers through the function of the same name: overflow is undefined
    ordered: bool = False  # is said of numbers on a line, not of complex ones
    truths: str = ""  # the operation that it is of truth values
    triton64: str = ""  # Triton's function of float64, where it is another one
    exact: bool = False  # of numbers of a narrow dtype it gives one
    wide_on_gpu: bool = False  # autocast computes it in float32 there
    cupy: str = ""  # a function of cupyx.scipy.special, where the NumPy reading is not of NumPy's functions, which CuPy takes over

    @property
    def of_bits(self) -> bool:
        """Whether it is said of integers (and bools) alone."""
        return "I" in self.native and "F" not in self.native

    @property
    def of_fractions(self) -> bool:
        """Whether it is said of floats (and complex numbers) alone, and gives one."""
        return self.native == "F" and self.result == SAME and not self.ordered

    @property
    def keeps_zero(self) -> bool:
        """Whether it is a function of one number that gives 0 for 0."""
        with np.errstate(all="ignore"):
            return self.arity == 1 and "F" in self.native and not _C.Elementwise(self.name).arrays(np.zeros(1, np.float32)).any()


# --- NumPy readings that are not one ufunc ---


def _sign(x: Any) -> Any:
    """-1, 0 or 1; 0 for NaN; x / |x| for complex numbers."""
    if np.iscomplexobj(x):
        magnitude = np.abs(x)
        return np.where(magnitude == 0, x, x / np.where(magnitude == 0, 1, magnitude))
    result = np.sign(x)
    return np.where(np.isnan(x), np.zeros_like(x), result) if result.dtype.kind in "fV" else result


def _truncdiv(x: Any, y: Any) -> Any:
    """Division rounded towards zero; an integer divided by zero gives 0."""
    if np.issubdtype(np.result_type(x, y), np.floating):
        return np.trunc(np.divide(x, y))
    quotient = np.floor_divide(x, y)
    inexact = np.multiply(quotient, y) != x
    return quotient + (inexact & (np.less(x, 0) != np.less(y, 0))).astype(quotient.dtype)


def _floordiv(x: Any, y: Any) -> Any:
    """Division rounded down; for floats by zero the quotient's infinity or NaN, for integers by zero 0."""
    return np.floor_divide(x, y)


def _native(name: str) -> Callable[..., Any]:
    """Stands where the native loops are all there is."""
    def refuse(*operands: Any) -> Any:
        raise NotImplementedError(f'"{name}_cpu" not implemented for {", ".join(str(getattr(x, "dtype", type(x))) for x in operands)}')

    return refuse


def _log1p(x: Any) -> Any:
    """log(1 + x); near 0 that of a complex number by |1 + x|^2 - 1, which keeps the digits that 1 + x drops."""
    if not np.iscomplexobj(x):
        return np.log1p(x)
    a, b = np.real(x), np.imag(x)
    near = np.hypot(a, b) < 0.5
    square = np.where(near, a * (2 + a) + b * b, 0)
    return np.where(near, np.log1p(square) / 2 + 1j * np.arctan2(b, 1 + a), np.log1p(x)).astype(np.result_type(x))


def _pow(x: Any, y: Any) -> Any:
    """x^y; a negative power of an integer is 0 but for 1 and -1. Of complex numbers NumPy takes whole powers as products: where those
    overflow, the exponential of the logarithm."""
    kind = np.result_type(x, y)
    if kind.kind == "c":
        products = np.power(x, y)
        return products if np.isfinite(products).all() else np.where(np.isfinite(products), products, np.exp(y * np.log(x))).astype(kind)
    if kind.kind != "i":
        return np.power(x, y)
    ones = np.where(np.equal(x, 1), 1, np.where(np.equal(x, -1), 1 - 2 * np.bitwise_and(y, 1), 0))
    return np.where(np.less(y, 0), ones, np.power(x, np.maximum(y, 0))).astype(kind)


_PHILOX_M0, _PHILOX_M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_PHILOX_W0, _PHILOX_W1 = 0x9E3779B9, 0xBB67AE85
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox_word(seed: Any, block: Any, lane: Any) -> Any:
    """Word `lane` of Philox 4x32-10 (Salmon et al., SC'11) with key `seed` and 128-bit counter `(block, 0)`.

    `seed`, `block` and `lane` (0 to 3) are int64 scalars or arrays; the words are uint32. csrc/philox.cpp says which block
    and lane an element of a draw takes.
    """
    seed, block = np.asarray(seed).astype(np.uint64), np.asarray(block).astype(np.uint64)
    k0, k1 = seed & _LOW, seed >> _SHIFT
    c0, c1 = block & _LOW, block >> _SHIFT
    c2 = c3 = np.zeros_like(c0)
    for round_ in range(10):
        key0 = (k0 + np.uint64(_PHILOX_W0 * round_ & 0xFFFFFFFF)) & _LOW
        key1 = (k1 + np.uint64(_PHILOX_W1 * round_ & 0xFFFFFFFF)) & _LOW
        p0, p1 = c0 * _PHILOX_M0, c2 * _PHILOX_M1
        c0, c1, c2, c3 = (p1 >> _SHIFT) ^ c1 ^ key0, p1 & _LOW, (p0 >> _SHIFT) ^ c3 ^ key1, p0 & _LOW
    return np.choose(lane, [c0, c1, c2, c3]).astype(np.uint32)


def _unit(bits: Any) -> Any:
    """uint32 bits to a float32 in [0, 1): the top 24 bits, so that every value is exact and 1 is never reached."""
    return np.right_shift(bits, np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


# --- the table ---


def _slots(arity: int) -> str:
    return ", ".join(f"{{{i}}}" for i in range(arity))


def _fn(name: str, arity: int = 1) -> str:
    """The C++ template calling `fl::name` of the kernel header."""
    return f"fl::{name}({_slots(arity)})"


def _helper(name: str, arity: int = 1) -> str:
    """The Triton template calling a function of inductor/gpu/triton.py's prologue."""
    return f"{name}({_slots(arity)})"


def _lib(name: str, arity: int = 1) -> str:
    return f"libdevice.{name}({_slots(arity)})"


_ROWS = [
    # name, arity, result, native loops, NumPy, C++, Triton, cost
    # arithmetic
    ScalarOp("add", 2, SAME, "BIF", np.add, "{0} + {1}", "{0} + {1}", wraps=True, truths="logical_or"),
    ScalarOp("sub", 2, SAME, "IF", np.subtract, "{0} - {1}", "{0} - {1}", wraps=True),
    ScalarOp("mul", 2, SAME, "BIF", np.multiply, "{0} * {1}", "{0} * {1}", wraps=True, truths="logical_and"),
    ScalarOp("truediv", 2, SAME, "F", np.true_divide, "{0} / {1}", _helper("exact_quotient", 2), 4),
    ScalarOp("floordiv", 2, SAME, "IF", _floordiv, _fn("floordiv", 2), _helper("floordiv", 2), 6, far="FMOD"),
    ScalarOp("truncdiv", 2, SAME, "IF", _truncdiv, _fn("truncdiv", 2), _helper("truncdiv", 2), 6),
    ScalarOp("remainder", 2, SAME, "IF", np.remainder, _fn("remainder", 2), _helper("remainder", 2), 8, far="FMOD"),
    ScalarOp("fmod", 2, SAME, "IF", np.fmod, _fn("fmod", 2), _helper("fmod", 2), 8, far="FMOD"),
    ScalarOp("fma", 3, SAME, "IF", lambda x, y, z: np.add(np.multiply(x, y), z), "{0} * {1} + {2}", "{0} * {1} + {2}"),
    ScalarOp("neg", 1, SAME, "IF", np.negative, "-{0}", _helper("negative"), wraps=True, exact=True),
    ScalarOp("abs", 1, REAL, "IF", lambda x: x if getattr(x, "dtype", None) == np.bool_ else np.abs(x), _fn("abs"), "tl.abs({0})", exact=True),
    ScalarOp("sign", 1, SAME, "IF", _sign, _fn("sign"), _helper("sign"), ordered=True, exact=True),
    ScalarOp("reciprocal", 1, SAME, "F", np.reciprocal, "1 / {0}", _helper("inverse"), 4, wide_on_gpu=True),
    ScalarOp("pow", 2, SAME, "IF", _pow, _fn("pow", 2), _helper("power", 2), 20),
    ScalarOp("minimum", 2, SAME, "BIF", np.minimum, _fn("minimum", 2), _helper("smallest", 2), ordered=True, exact=True),
    ScalarOp("maximum", 2, SAME, "BIF", np.maximum, _fn("maximum", 2), _helper("largest", 2), ordered=True, exact=True),
    ScalarOp("fmin", 2, SAME, "IF", np.fmin, _fn("fmin", 2), "tl.minimum({0}, {1})", ordered=True, exact=True),
    ScalarOp("fmax", 2, SAME, "IF", np.fmax, _fn("fmax", 2), "tl.maximum({0}, {1})", ordered=True, exact=True),
    ScalarOp("hypot", 2, SAME, "F", np.hypot, _fn("hypot", 2), _lib("hypot", 2), 10),
    ScalarOp("copysign", 2, SAME, "F", np.copysign, _fn("copysign", 2), _lib("copysign", 2)),
    ScalarOp("nextafter", 2, SAME, "F", np.nextafter, _fn("nextafter", 2), _lib("nextafter", 2), 10),
    # roots, exponentials, logarithms
    ScalarOp("sqrt", 1, SAME, "F", np.sqrt, _fn("sqrt"), "tl.sqrt_rn({0})", 4, triton64=_lib("sqrt")),
    ScalarOp("rsqrt", 1, SAME, "F", lambda x: np.reciprocal(np.sqrt(x)), _fn("rsqrt"), _lib("rsqrt"), 6, wide_on_gpu=True),
    ScalarOp("exp", 1, SAME, "F", np.exp, _fn("exp"), "tl.exp({0})", 10, wide_on_gpu=True),
    ScalarOp("exp2", 1, SAME, "F", np.exp2, _fn("exp2"), "tl.exp2({0})", 10),
    ScalarOp("expm1", 1, SAME, "F", np.expm1, _fn("expm1"), _lib("expm1"), 12, wide_on_gpu=True),
    ScalarOp("log", 1, SAME, "F", np.log, _fn("log"), "tl.log({0})", 10, wide_on_gpu=True),
    ScalarOp("log2", 1, SAME, "F", np.log2, _fn("log2"), "tl.log2({0})", 10, wide_on_gpu=True),
    ScalarOp("log10", 1, SAME, "F", np.log10, _fn("log10"), _lib("log10"), 12, wide_on_gpu=True),
    ScalarOp("log1p", 1, SAME, "F", _log1p, _fn("log1p"), _lib("log1p"), 12, wide_on_gpu=True),
    # trigonometric and hyperbolic functions
    ScalarOp("sin", 1, SAME, "F", np.sin, _fn("sin"), "tl.sin({0})", 14, far="SIN"),
    ScalarOp("cos", 1, SAME, "F", np.cos, _fn("cos"), "tl.cos({0})", 14, far="COS"),
    ScalarOp("tan", 1, SAME, "F", np.tan, _fn("tan"), _lib("tan"), 20, far="TAN", wide_on_gpu=True),
    ScalarOp("asin", 1, SAME, "F", np.arcsin, _fn("asin"), _lib("asin"), 16, wide_on_gpu=True),
    ScalarOp("acos", 1, SAME, "F", np.arccos, _fn("acos"), _lib("acos"), 16, wide_on_gpu=True),
    ScalarOp("atan", 1, SAME, "F", np.arctan, _fn("atan"), _lib("atan"), 16),
    ScalarOp("atan2", 2, SAME, "F", np.arctan2, _fn("atan2", 2), _lib("atan2", 2), 20),
    ScalarOp("sinh", 1, SAME, "F", np.sinh, _fn("sinh"), _lib("sinh"), 16, wide_on_gpu=True),
    ScalarOp("cosh", 1, SAME, "F", np.cosh, _fn("cosh"), _lib("cosh"), 16, wide_on_gpu=True),
    ScalarOp("tanh", 1, SAME, "F", np.tanh, _fn("tanh"), _lib("tanh"), 12),
    ScalarOp("asinh", 1, SAME, "F", np.arcsinh, _fn("asinh"), _lib("asinh"), 20),
    ScalarOp("acosh", 1, SAME, "F", np.arccosh, _fn("acosh"), _lib("acosh"), 20),
    ScalarOp("atanh", 1, SAME, "F", np.arctanh, _fn("atanh"), _lib("atanh"), 20),
    # special functions
    ScalarOp("sigmoid", 1, SAME, "F", lambda x: 1 / (1 + np.exp(-x)), _fn("sigmoid"), "tl.sigmoid({0})", 12, cupy="expit"),
    ScalarOp("relu", 1, SAME, "IF", lambda x: np.maximum(x, 0), _fn("relu"), _helper("relu"), ordered=True, exact=True),
    ScalarOp("erf", 1, SAME, "F", _native("erf"), _fn("erf"), "tl.erf({0})", 14, cupy="erf"),
    ScalarOp("erfc", 1, SAME, "F", _native("erfc"), _fn("erfc"), _lib("erfc"), 18, cupy="erfc"),
    ScalarOp("erfinv", 1, SAME, "F", _native("erfinv"), _fn("erfinv"), _lib("erfinv"), 25, cupy="erfinv", wide_on_gpu=True),
    ScalarOp("lgamma", 1, SAME, "F", _native("lgamma"), _fn("lgamma"), _lib("lgamma"), 40, cupy="gammaln"),
    ScalarOp("digamma", 1, SAME, "F", _native("digamma"), _fn("digamma"), _helper("digamma"), 40, cupy="digamma"),
    # rounding
    ScalarOp("floor", 1, SAME, "F", np.floor, _fn("floor"), "tl.floor({0})", ordered=True, exact=True),
    ScalarOp("ceil", 1, SAME, "F", np.ceil, _fn("ceil"), "tl.ceil({0})", ordered=True, exact=True),
    ScalarOp("trunc", 1, SAME, "F", np.trunc, _fn("trunc"), _lib("trunc"), ordered=True, exact=True),
    ScalarOp("round", 1, SAME, "F", np.rint, _fn("round"), _lib("nearbyint"), ordered=True, exact=True),
    # comparisons and classification
    ScalarOp("eq", 2, BOOL, "BIF", np.equal, "{0} == {1}", "{0} == {1}"),
    ScalarOp("ne", 2, BOOL, "BIF", np.not_equal, "{0} != {1}", "{0} != {1}"),
    ScalarOp("lt", 2, BOOL, "BIF", np.less, "{0} < {1}", "{0} < {1}", ordered=True),
    ScalarOp("le", 2, BOOL, "BIF", np.less_equal, "{0} <= {1}", "{0} <= {1}", ordered=True),
    ScalarOp("gt", 2, BOOL, "BIF", np.greater, "{0} > {1}", "{0} > {1}", ordered=True),
    ScalarOp("ge", 2, BOOL, "BIF", np.greater_equal, "{0} >= {1}", "{0} >= {1}", ordered=True),
    ScalarOp("isnan", 1, BOOL, "F", np.isnan, _fn("isnan"), "{0} != {0}"),
    ScalarOp("isinf", 1, BOOL, "F", np.isinf, _fn("isinf"), _lib("isinf")),
    ScalarOp("signbit", 1, BOOL, "IF", np.signbit, _fn("signbit"), _helper("signbit"), ordered=True),
    # logic and bits
    ScalarOp("logical_and", 2, BOOL, "BIF", np.logical_and, "({0} != 0) & ({1} != 0)", "({0} != 0) & ({1} != 0)"),
    ScalarOp("logical_or", 2, BOOL, "BIF", np.logical_or, "({0} != 0) | ({1} != 0)", "({0} != 0) | ({1} != 0)"),
    ScalarOp("logical_xor", 2, BOOL, "BIF", np.logical_xor, "({0} != 0) != ({1} != 0)", "({0} != 0) != ({1} != 0)"),
    ScalarOp("logical_not", 1, BOOL, "BIF", np.logical_not, "!{0}", "{0} == 0"),
    ScalarOp("bitwise_and", 2, SAME, "BI", np.bitwise_and, "{0} & {1}", "{0} & {1}"),
    ScalarOp("bitwise_or", 2, SAME, "BI", np.bitwise_or, "{0} | {1}", "{0} | {1}"),
    ScalarOp("bitwise_xor", 2, SAME, "BI", np.bitwise_xor, "{0} ^ {1}", "{0} ^ {1}"),
    ScalarOp("bitwise_not", 1, SAME, "BI", np.invert, _fn("bitwise_not"), "~{0}"),
    ScalarOp("shl", 2, SAME, "I", np.left_shift, _fn("shl", 2), _helper("shl", 2)),
    ScalarOp("shr", 2, SAME, "I", np.right_shift, _fn("shr", 2), _helper("shr", 2)),
    ScalarOp("where", 3, SAME, "BIF", np.where, "{0} ? {1} : {2}", "tl.where({0}, {1}, {2})", exact=True),
    # complex numbers
    ScalarOp("real", 1, REAL, "", np.real, _fn("real"), _helper("real")),
    ScalarOp("imag", 1, REAL, "", np.imag, _fn("imag"), _helper("imag")),
    ScalarOp("conj", 1, SAME, "", np.conj, _fn("conj"), _helper("conj")),
    ScalarOp("complex", 2, COMPLEX, "", lambda x, y: x + y * np.complex64(1j), _fn("complex", 2), _helper("complex", 2)),
    # random numbers: pure functions of an i64 seed, an i64 block and a lane in it
    ScalarOp("philox", 3, UINT32, "", philox_word, _fn("philox", 3), _helper("philox", 3), 60),
    ScalarOp("unit", 1, FLOAT32, "", _unit, _fn("unit"), _helper("unit"), 2),
]
TABLE: dict[str, ScalarOp] = {row.name: row for row in _ROWS}


# --- folds ---


@dataclass(frozen=True)
class Fold:
    """One reduction: the scalar operation that takes one more element in, and what is particular to folds."""

    name: str
    op: str             # of TABLE; its NumPy, C++ and Triton readings combine a total with an element, or two totals
    empty: float        # folding nothing gives it; an infinity stands for the dtype's least or largest value
    openmp: str         # what OpenMP calls the reduction; a name is one that generated sources declare
    tile: str           # Triton: a tile {0} folded along the axis {1}
    native: str         # the dtypes that have native loops (csrc/scalar_rows.py): Bools, wide Integers, Floats
    exact: bool = True  # else totals of floats are kept in float64, so that errors do not grow with the number of elements
    truths: str = ""    # the fold that comes to the same for truth values, if there is another
    meet: str = ""      # CUDA: of `a` in memory and `b` what is stored there; CuPy, which has every fold by its name, adds by itself

    @property
    def combine(self) -> ScalarOp:
        """The scalar operation."""
        return TABLE[self.op]

    @property
    def ufunc(self) -> np.ufunc:
        """Its NumPy reading."""
        return cast(np.ufunc, self.combine.numpy)

    @property
    def of_truths(self) -> bool:
        """Whether it folds truth values alone."""
        return "B" in self.native

    @property
    def of_numbers(self) -> Fold:
        """The fold of numbers that comes to the same for 0 and 1."""
        return next((fold for fold in FOLDS.values() if fold.truths == self.name), self)

    def nothing(self, kind: dtype) -> Any:
        """What folding no elements of `kind` gives."""
        if kind is bool_:
            return self.empty > 0
        if kind.is_floating_point or np.isfinite(self.empty):
            return self.empty
        limits = np.iinfo(kind.numpy)
        return limits.max if self.empty > 0 else limits.min

    def total(self, kind: dtype) -> dtype:
        """The dtype of a long fold's total, made of short ones in their own dtype."""
        return kind if self.exact or not kind.is_floating_point else float64


FOLDS: dict[str, Fold] = {fold.name: fold for fold in (
    # name, operation, of nothing, OpenMP, Triton's tile, native loops
    Fold("sum", "add", 0, "+", "tl.sum({0}, {1})", "IF", exact=False),
    Fold("prod", "mul", 1, "*", "tl.reduce({0}, {1}, product)", "IF", meet="a * b"),
    Fold("max", "maximum", -np.inf, "nanmax", "tl.reduce({0}, {1}, largest)", "IF", truths="any",
         meet="a > b || a != a ? a : b"),
    Fold("min", "minimum", np.inf, "nanmin", "tl.reduce({0}, {1}, smallest)", "IF", truths="all",
         meet="a < b || a != a ? a : b"),
    Fold("any", "bitwise_or", 0, "|", "tl.max({0}, {1})", "B"),
    Fold("all", "bitwise_and", 1, "&", "tl.min({0}, {1})", "B"),
)}
# How scatter, index_put and their like name the folds that elements meet at one place; "set" keeps the last.
SCATTERED_BY: dict[str, Fold] = {"add": FOLDS["sum"], "prod": FOLDS["prod"], "amax": FOLDS["max"], "amin": FOLDS["min"]}
REDUCE = {**{name: name for name in SCATTERED_BY}, "sum": "add", "multiply": "prod"}     # and what their `reduce` may say


# --- what libraries do to a product before they store it ---


def gelu_erf(o: Any, x: Any) -> Any:
    """x times the integral of the normal distribution up to x."""
    return o.mul(o.mul(x, 0.5), o.add(o.erf(o.mul(x, math.sqrt(0.5))), 1.0))


def gelu_tanh(o: Any, x: Any) -> Any:
    """Its usual approximation (Hendrycks and Gimpel 2016)."""
    inner = o.mul(o.mul(x, o.add(o.mul(o.mul(x, x), 0.044715), 1.0)), math.sqrt(2 / math.pi))
    return o.mul(o.mul(x, 0.5), o.add(o.tanh(inner), 1.0))


class PostRow(NamedTuple):
    """An operation on a product: oneDNN's algorithm, the loop body over the result and a tensor's element or the numbers alpha and beta
    (csrc/scalar_rows.py prints it for Flambeau's own products), and whether oneDNN's is right on what is not finite or huge too."""

    algorithm: str
    body: Callable[..., Any]
    exact: bool = True


POSTS: dict[str, PostRow] = {
    "add": PostRow("binary_add", lambda o, x, y: o.add(x, y)), "sub": PostRow("binary_sub", lambda o, x, y: o.sub(x, y)),
    "mul": PostRow("binary_mul", lambda o, x, y: o.mul(x, y)),
    "linear": PostRow("eltwise_linear", lambda o, x, alpha, beta: o.add(o.mul(x, alpha), beta)),
    "relu": PostRow("eltwise_relu", lambda o, x: o.relu(x), exact=False),        # 0 of NaN
    "tanh": PostRow("eltwise_tanh", lambda o, x: o.tanh(x)),
    "sigmoid": PostRow("eltwise_logistic", lambda o, x: o.sigmoid(x), exact=False),      # 0 of NaN on processors without AVX
    "gelu_erf": PostRow("eltwise_gelu_erf", gelu_erf, exact=False),              # NaN of infinity, infinity of 3e38
    "gelu_tanh": PostRow("eltwise_gelu_tanh", gelu_tanh),
}


class _Compares:
    """A loop-body handler that notes whether an operation compares numbers."""

    found = False

    def __getattr__(self, name: str) -> Callable:
        self.found |= name in TABLE and TABLE[name].ordered
        return lambda *operands: None


def compares(loop: Callable, arity: int) -> bool:
    """Whether a body puts numbers in order."""
    handler = _Compares()
    try:
        loop(handler, *(None,) * arity)
    except (TypeError, AttributeError, KeyError, IndexError, ValueError):
        pass    # a body that looks at its operands; what it did until then counts
    return handler.found


def result_dtype(op: ScalarOp, operands: list[dtype]) -> dtype:
    """The dtype of `op` on operands of these dtypes (`where`'s condition is left out of the rule)."""
    if op.result == SAME:
        return operands[1] if op.name == "where" else operands[0]
    if op.result == REAL:
        return operands[0].to_real()
    if op.result == COMPLEX:
        return operands[0].to_complex()
    return {BOOL: bool_, UINT32: uint32, FLOAT32: float32}[op.result]


# --- the NumPy reading ---


class NumpyScalars:
    """The handler that computes, on NumPy arrays and scalars. Use it through `evaluate`."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"the loop IR has no scalar operation {name!r}; it has {', '.join(sorted(TABLE))}")

    @staticmethod
    def constant(value: Any, kind: dtype) -> Any:
        return np.asarray(value).astype(kind.numpy)[()]

    @staticmethod
    def to_dtype(x: Any, kind: dtype) -> Any:
        x = np.asarray(x)
        if x.dtype.kind == "c" and not kind.is_complex and kind is not bool_:
            x = x.real
        if kind is uint32 and x.dtype.kind not in "biu":
            x = x.astype(np.int64)      # as in include/convert.h; NumPy's own way hangs on the place in the array
        return x.astype(kind.numpy, copy=False)

    @staticmethod
    def bitcast(x: Any, kind: dtype) -> Any:
        return np.asarray(x).view(kind.numpy)


def _reading(op: ScalarOp) -> Callable[..., Any]:
    """The native loop of an operation, whose values are those of generated code; NumPy's where there is none."""
    if not op.native:
        return op.numpy
    native, other = _C.Elementwise(op.name).arrays, op.numpy

    def call(*operands: Any) -> Any:
        result = native(*operands)
        return other(*operands) if result is NotImplemented else result

    return call


for _op in _ROWS:
    setattr(NumpyScalars, _op.name, staticmethod(_reading(_op)))

NUMPY = NumpyScalars()
_NARROW = frozenset(d.numpy for d in DTYPES.values() if d.is_floating_point and d.itemsize < 4)


def compute_dtype(kind: dtype) -> dtype:
    """The dtype in which values stored as `kind` are computed: float32 for narrower floats, else `kind` itself."""
    return float32 if kind.numpy in _NARROW else kind


def evaluate(body: Callable[..., Any], *args: Any, out: dtype | None = None) -> Any:
    """`body(NUMPY, *args)` quietly (no warnings for infinities, NaNs), narrow floats in float32 and rounded once.

    `args` are arrays (or attributes, passed through). `out` is the result's dtype; by default that of the first narrow
    array where the body returned float32, and whatever the body returns otherwise.
    """
    narrow = None
    wide = []
    for arg in args:
        if isinstance(arg, (np.ndarray, np.generic)) and arg.dtype in _NARROW:
            narrow = narrow or arg.dtype
            arg = arg.astype(np.float32)
        wide.append(arg)
    with np.errstate(all="ignore"):
        result = body(NUMPY, *wide)
        if out is not None:
            return NumpyScalars.to_dtype(result, out)
        if narrow is not None and getattr(result, "dtype", None) == np.float32:
            return NumpyScalars.to_dtype(result, dtype_of_numpy(narrow))
    return result
