"""MaskedTensor beside torch's: what counts and what it is worth, of each operator; the others are refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")
DATA = [[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]]
MASK = [[True, False, True], [False, False, True]]
UNARY = [
    "abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "ceil", "cos", "cosh", "deg2rad", "digamma", "erf", "erfc", "exp", "exp2",
    "expm1", "floor", "frac", "isnan", "isfinite", "lgamma", "log", "log10", "log1p", "log2", "logit", "nan_to_num", "neg", "positive",
    "rad2deg", "reciprocal", "round", "rsqrt", "sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh",
    "trunc"]
IN_PLACE = ["abs_", "exp_", "neg_", "sigmoid_", "square_"]
BINARY = [
    "add", "sub", "mul", "div", "floor_divide", "fmod", "remainder", "atan2", "logaddexp", "maximum", "minimum", "fmax", "fmin", "eq", "ne",
    "lt", "le", "gt", "ge", "nextafter", "true_divide"]
REDUCTIONS = ["sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "std", "var", "all", "norm"]
MOVES = [
    "x[0]", "x[:, 1]", "x[m]", "x[0, 1]", "x.t()", "x.mT", "x.transpose(0, 1)", "x.reshape(-1)", "x.view(3, 2)", "x.flatten()",
    "x.unsqueeze(0)", "x.expand(2, 2, 3)", "x.select(0, 1)", "x.narrow(1, 0, 2)", "x.chunk(2)[1]", "x.split(1)[0]", "x.unfold(1, 2, 1)",
    "x.clone()", "x.double()", "x.to(t.float64)", "x.int()", "t.cat([x, y])", "t.stack([x, y])", "t.hstack([x, y])", "t.column_stack([x, y])",
    "t.where(m, x, y)", "t.where(m, x, d)", "x.softmax(1)", "t.nn.functional.softmax(x, dim=1)", "t.nn.functional.log_softmax(x, dim=0)",
    "x + 2", "2 * x", "2 / x", "x ** 2", "x + d", "d - x", "x > 1", "x.clamp(0, 2)", "x.to_tensor(7)", "x.get_data()", "x.get_mask()",
    "x.shape", "x.ndim", "x.numel()", "x.is_floating_point()", "x.copy_(y)", "x[0].copy_(y[1])",
    "t.masked.masked_tensor(t.tensor(3.0), t.tensor(True)).item()"]
REFUSED = ["t.add(x, z)", "x @ y.mT", "t.sort(x)", "x.tolist()", "t.cat([x, d])", "x.unique()",
           "x.nonzero()", "t.masked.masked_tensor(d, m.int())", "t.masked.masked_tensor(d, m[0])", "t.masked.masked_tensor(d, m[:1])",
           "t.masked.masked_tensor(x, m)", "t.masked.masked_tensor(d + 0j, m)", "t.masked.masked_tensor([1.0], m)"]
GRADIENTS = ["x.sum()", "(x * 2).sum()", "(x * y).sum()", "x.exp().sum()", "x.mean()", "x.mean(1).sum()", "x.prod()", "x.amax(1).sum()",
             "x.to_tensor(0).sum()", "x.t().sum()", "x.var()"]


def names(t: Any, requires_grad: bool = False) -> dict[str, Any]:
    d, m = t.tensor(DATA), t.tensor(MASK)
    return {"t": t, "d": d, "m": m, "x": t.masked.masked_tensor(d, m, requires_grad), "y": t.masked.masked_tensor(d * 2 + 1, m),
            "z": t.masked.masked_tensor(d, ~m)}


def described(value: Any) -> Any:
    if hasattr(value, "get_mask"):
        mask = value.get_mask()
        return described(value.get_data().detach().masked_fill(~mask, 0)), mask.tolist()
    return (str(value.dtype), tuple(value.shape), value.detach().numpy()) if hasattr(value, "numpy") else value


def same(a: Any, b: Any) -> None:
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        for one, other in zip(a, b):
            same(one, other)
    elif isinstance(a, np.ndarray):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    else:
        assert a == b or (a != a and b != b)


def value(t: Any, expression: str) -> Any:
    return described(eval(expression, names(t)))


EXPRESSIONS = [*(f"t.{name}(x)" for name in UNARY), *(f"x.{name}()" for name in IN_PLACE), *(f"t.{name}(x, y)" for name in BINARY),
               *(f"x.{name}({args})" for name in REDUCTIONS for args in ("", "dim=0", "dim=-1, keepdim=True")
                 if (name, args) not in (("norm", "dim=0"), ("norm", "dim=-1, keepdim=True"))), *MOVES]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_torch(expression: str) -> None:
    try:
        expected = value(torch, expression)
    except (TypeError, NotImplementedError) as error:      # what torch has no form for may have one here
        pytest.skip(f"torch: {error}"[:80])
    same(value(fl, expression), expected)


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_refused(expression: str) -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        value(torch, expression)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        value(fl, expression)


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradients_are_masked(expression: str) -> None:
    found = []
    for t in (fl, torch):
        known = names(t, True)
        eval(expression, known).backward()
        found.append(described(known["x"].grad))
    same(*found)


def test_gradients_reach_what_was_masked() -> None:
    data = fl.tensor(DATA, requires_grad=True)
    fl.masked.as_masked_tensor(data, fl.tensor(MASK)).exp().sum().backward()
    assert data.grad.tolist()[0][1] == 0 and data.grad.tolist()[0][0] == pytest.approx(np.e)


@pytest.mark.parametrize("expression", ["x", "x.int()", "x[0]", "x[0, 1]", "x[0, 0]", "t.stack([x, y])", "x > 1"])
def test_how_they_print(expression: str) -> None:
    assert repr(eval(expression, names(fl))) == repr(eval(expression, names(torch)))


def test_copies() -> None:
    x = names(fl, True)["x"]
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert fl.masked.is_masked_tensor(made) and made.requires_grad
        same(described(made), described(x))
    assert isinstance(x, fl.Tensor) and not fl.masked.is_masked_tensor(x.get_data())


def test_gradients_that_are_asked_for_are_masked() -> None:
    for t in (fl, torch):
        x = names(t, True)["x"]
        found, = t.autograd.grad((x * 2).sum(), x)
        assert t.masked.is_masked_tensor(found) and found.get_mask().tolist() == MASK


def test_what_is_masked_out_has_no_value() -> None:
    for t in (fl, torch):
        hidden = t.masked.masked_tensor(t.tensor(2.0), t.tensor(False))
        for ask in (bool, lambda x: x.item()):
            with pytest.raises(ValueError, match="mask"):
                ask(hidden)


@pytest.mark.parametrize("data", [[[1e6, 2e6], [0.5, 3e5]], [[1e6, 2e6], [5e5, 3.0]]])
def test_columns_are_as_wide_as_the_widest_number(data: list) -> None:
    mask = [[True, False], [False, True]]
    mine, theirs = (repr(t.masked.masked_tensor(t.tensor(data), t.tensor(mask))) for t in (fl, torch))
    assert mine == theirs
