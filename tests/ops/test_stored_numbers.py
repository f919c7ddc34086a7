"""Numbers that are stored, or that integers are multiplied with: what does not fit is refused, as torch does; nothing wraps in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

# Expressions over a tensor x of three elements, a mask b, indices r and a number n.
STORED = ["x.masked_fill(b, n)", "x.clone().masked_fill_(b, n)", "x.clone().fill_(n)", "t.full((2,), n, dtype=x.dtype)",
          "t.full_like(x, n)", "x.new_full((2,), n)", "x.index_fill(0, r, n)", "t.where(b, x, n)", "t.where(b, n, x)",
          "x.clamp(max=n)", "x.clamp(min=n)", "x.clip(0, n)",
          "x.scatter(0, r, n)", "t.tensor(n, dtype=x.dtype)", "t.tensor([n], dtype=x.dtype)", "x.new_tensor(n)",
          "set_(x.clone(), 0, n)", "set_(x.clone(), b, n)", "set_(x.clone(), r, n)",
          "t.nn.functional.threshold(x, 1, n)"]
# The same where a tensor of one element stands for the number, of the dtype that it gets by itself (w: of float64).
BY_TENSORS = ["x.masked_fill(b, t.tensor(n))", "x.clone().masked_fill_(b, t.tensor(n))", "x.index_fill(0, r, t.tensor(n))",
              "x.clone().index_fill_(0, r, t.tensor(n))", "set_(x.clone(), b, t.tensor(n))", "set_(x.clone(), b, t.tensor([n]))",
              "set_(x.clone(), 0, t.tensor(n))", "x.clone().fill_(t.tensor(n))", "x.masked_fill(b, w(n))", "x.index_fill(0, r, w(n))"]
COMPUTED = ["x + n", "x - n", "n - x", "x * n", "x == n", "x < n", "x.clone().add_(n)", "x.clone().mul_(n)", "t.add(x, x, alpha=n)",
            "t.sub(x, x, alpha=n)", "t.addcmul(x, x, x, value=n)", "t.addmm(m, m, m, alpha=n)", "t.addmm(m, m, m, beta=n)",
            "t.addr(m, x, x, alpha=n)",
            "t.addmv(x, m, x, alpha=n)", "t.baddbmm(m[None], m[None], m[None], beta=n)", "x.index_add(0, r, x, alpha=n)", "t.vander(x)",
            "t.float_power(x, n)", "t.floor_divide(x, n)", "x & n"]
KINDS = ["uint8", "int8", "int16", "int32", "int64", "bool", "float32", "float16", "bfloat16"]
NUMBERS = [300, -1, -300, 2**40, 1.5, -1.5, True, 0, 2.0, float("inf"), float("nan"), 1j]


# Beside floats: what the dtype of the elements doesn't hold, or the one in which they are computed with.
LARGE = [*(f"t.nn.functional.{call}" for call in (
    "elu(x, n)", "celu(x, n)", "leaky_relu(x, n)", "softplus(x, n)", "softplus(x, 1, n)", "hardtanh(x, -1.0, n)", "threshold(x, n, 1.0)",
    "threshold(x, 1.0, n)", "hardshrink(x, n)", "softshrink(x, abs(n))")), "x ** n", "x.clone().pow_(n)", "n ** x", "t.where(b, x, n)",
    "t.where(b, n, x)", "x.where(b, n)", "t.addcmul(x, x, x, value=n)", "t.addcdiv(x, x, x, value=n)", "t.lerp(x, x, n)",
    "t.addmm(m, m, m, alpha=n)", "t.addmm(m, m, m, beta=n)", "t.addbmm(m, m[None], m[None], alpha=n)", "x.index_add(0, r, x, alpha=n)",
    "t.add(x, x, alpha=n)", "t.rsub(x, x, alpha=n)", "x.clamp(max=n)", "t.nan_to_num(x, nan=n)", "t.nan_to_num(x / 0, n, n, n)", "x + n",
    "x * n", "x / n", "n - x", "x == n", "x < n", "t.clamp(x, n, n)", "t.fmod(x, n)", "t.remainder(x, n)", "t.copysign(x, n)"]


def set_(x: Any, index: Any, value: Any) -> Any:
    x[index] = value
    return x


def value(lib: Any, expression: str, kind: str, number: Any) -> Any:
    x = lib.tensor([1, 0, 3]).to(getattr(lib, kind))
    names = {"t": lib, "x": x, "m": lib.outer(x, x), "b": lib.tensor([True, False, True]), "r": lib.tensor([0, 2, 1]), "n": number,
             "set_": set_, "w": lambda n: lib.tensor(n, dtype=lib.complex128 if isinstance(n, complex) else lib.float64)}
    with np.errstate(all="ignore"):
        return eval(expression, names)


@pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:Casting complex")
@pytest.mark.parametrize("expression", STORED + BY_TENSORS + COMPUTED)
def test_numbers_follow_one_rule(expression: str) -> None:
    wrong = []
    for kind in KINDS if expression in STORED + BY_TENSORS else KINDS[:5] if "addr" in expression else KINDS[:6]:
        for number in NUMBERS:
            found: list = []
            for lib in (fl, torch):
                try:
                    found.append(value(lib, expression, kind, number))
                except (RuntimeError, TypeError, OverflowError, ValueError) as error:
                    found.append(error)
            mine, theirs = found
            if isinstance(theirs, Exception) or isinstance(mine, Exception):
                # what torch cannot do with bools and halves may work here
                allowed = "not implemented for" in str(theirs) or "Boolean alpha" in str(theirs) or (kind == "bool" and number == 1j)
                if isinstance(mine, Exception) != isinstance(theirs, Exception) and not allowed:
                    wrong.append(f"{kind}, {number}: {mine!r}, in torch {theirs!r}")
            elif theirs.dtype is torch.complex32:    # there is none here: complex64 stands for it
                continue
            elif str(mine.dtype) != str(theirs.dtype) or \
                    not np.allclose(mine.tolist(), theirs.tolist(), rtol=1e-12, atol=0, equal_nan=True):
                wrong.append(f"{kind}, {number}: {mine}, in torch {theirs}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64", "complex64", "int32"])
@pytest.mark.parametrize("expression", LARGE)
def test_what_no_element_holds(expression: str, kind: str) -> None:
    """Refused where torch refuses it, infinite elsewhere: never an exponent, slope or bound that is another number in silence."""
    for number in (1e300, -1e39, 70000.0, 2.0**-10, float("inf"), 3):
        found = []
        for lib in (fl, torch):
            try:
                found.append(np.asarray(value(lib, expression, kind, number).to(lib.complex128).tolist()))
            except (RuntimeError, NotImplementedError, OverflowError, ValueError) as error:
                found.append(error)
        mine, theirs = found
        if isinstance(mine, Exception) or isinstance(theirs, Exception):
            assert isinstance(mine, Exception) == isinstance(theirs, Exception) or "not implemented" in str(theirs), (number, mine, theirs)
        elif kind != "complex64":   # where torch has NaN beside infinity
            assert np.allclose(mine, theirs, rtol=0.02, equal_nan=True), (number, mine, theirs)
