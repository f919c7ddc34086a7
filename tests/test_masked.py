"""torch.masked beside torch: every function, with masks of several shapes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")
X = np.array([[1.0, -2.0, 3.5, 0.5], [4.0, 5.0, -6.0, 2.0], [0.1, 0.2, 0.3, 0.4]])
MASKS = {"none": None, "full": X > 0.3, "row": np.array([True, False, True, False]), "nothing": X > 99,
         "numbers": (X > 0).astype(np.float64)}
REDUCTIONS = ["amax", "amin", "argmax", "argmin", "logsumexp", "mean", "norm", "prod", "std", "sum", "var"]


def mask(m, name):
    return None if MASKS[name] is None else m.tensor(MASKS[name])


def same(call):
    """The same from both libraries."""
    mine, theirs = call(fl), call(torch)
    assert str(mine.dtype) == str(theirs.dtype)
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("which", MASKS)
@pytest.mark.parametrize("dim", [None, 0, 1, -1, (0, 1)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions(name, which, dim, keepdim):
    if name.startswith("arg") and (isinstance(dim, tuple) or (dim is None and keepdim)):
        pytest.skip("one dimension")
    args = (2.0,) if name == "norm" else ()
    same(lambda m: getattr(m.masked, name)(m.tensor(X), *args, dim, keepdim=keepdim, mask=mask(m, which)))


@pytest.mark.parametrize("name", ["cumprod", "cumsum", "log_softmax", "softmax", "softmin", "median", "normalize"])
@pytest.mark.parametrize("which", MASKS)
@pytest.mark.parametrize("dim", [0, 1])
def test_along_a_dimension(name, which, dim):
    args = (2.0,) if name == "normalize" else ()
    same(lambda m: getattr(m.masked, name)(m.tensor(X), *args, dim, mask=mask(m, which)))


def test_other_dtypes_and_arguments():
    keep = X > 0
    for name in ("sum", "amax", "amin", "argmin", "prod"):
        same(lambda m: getattr(m.masked, name)(m.tensor(X).int(), 1, mask=m.tensor(keep)))
    same(lambda m: m.masked.sum(m.tensor(X).float(), 1, dtype=m.float64, mask=m.tensor(keep)))
    same(lambda m: m.masked.mean(m.tensor(X).int(), 1, dtype=m.float32, mask=m.tensor(keep)))
    same(lambda m: m.masked.var(m.tensor(X), 1, False, mask=m.tensor(keep)))
    same(lambda m: m.masked.var(m.tensor(X), 1, correction=2, mask=m.tensor(keep)))
    same(lambda m: m.masked.norm(m.tensor(X), float("inf"), 1, mask=m.tensor(keep)))
    same(lambda m: m.masked.logaddexp(m.tensor(X), m.tensor(X + 1), input_mask=m.tensor(keep), other_mask=m.tensor(~keep)))


def test_gradients():
    for m in (fl, torch):
        x = m.tensor(X, requires_grad=True)
        (m.masked.softmax(x, 1, mask=m.tensor(X > 0.2)) * m.tensor(X)).nansum().backward()
        if m is fl:
            mine = x.grad
    np.testing.assert_allclose(np.nan_to_num(mine.numpy()), np.nan_to_num(x.grad.numpy()), atol=1e-8)


def test_what_is_refused():
    x = fl.ones(2, 3)
    with pytest.raises(ValueError, match="Could not infer output dtype"):
        fl.masked.mean(x.int(), 1)
    with pytest.raises(IndexError, match="broadcastable mask"):
        fl.masked.sum(x, 1, mask=fl.ones(1, 2, 3))
    assert not fl.masked.is_masked_tensor(x)


ARGUMENTS = [
    *(f"m.{name}(x, {dim}, mask=k)" for name in ("softmax", "log_softmax", "softmin", "cumsum", "cumprod", "median")
      for dim in ("(0, 1)", "[0]", "()", "None", "(0, 0)", "2")),
    *(f"m.{name}(i, 0, mask=k)" for name in ("softmax", "log_softmax", "median", "amax", "argmin")),
    *(f"m.{name}(i > 0, 0, mask=k)" for name in ("amax", "amin", "argmax", "median", "logsumexp")),
    *(f"m.{name}(i, 2.0, 1, mask=k)" for name in ("norm", "normalize")), "m.median(i, 1, mask=t.zeros_like(k))", "m.sum(x, (0, 0), mask=k)",
    "m.norm(x, -1, 1, mask=k)", "m.norm(x, float('-inf'), 1, mask=k)", "m.norm(x, 2.0, 1, dtype=t.float32, mask=k)",
    *(f"m.{name}(x.to_sparse(), 1, mask=k.to_sparse())" for name in ("argmax", "var", "median", "softmax", "cumsum", "logsumexp", "mean")),
    *(f"m.{name}(x, {dim}, mask=k.to_sparse()).to_dense()" for name in ("sum", "amin") for dim in (0, None)),
    *(f"m.{name}({x}.to_sparse(), {dim}, keepdim={kept}, mask={k}).to_dense()" for name in ("sum", "prod", "amax", "amin")
      for dim in (0, 1, (0, 1)) for kept in (True, False) for x, k in (("x.relu()", "k"), ("x", "k.to_sparse()"), ("x", "None"))),
    *(f"m.{name}({x}.to_sparse_csr(), {dim}, keepdim=True, mask={k}).to_dense()" for name in ("sum", "prod", "mean") for dim in (0, (0, 1))
      for x, k in (("x.relu()", "k"), ("x", "k.to_sparse_csr()"), ("x", "None"))), "m.sum(x.to_sparse_csr(), 0, mask=k)",
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("expression", ARGUMENTS)
def test_arguments_as_torch(expression):
    def found(t):
        known = {"t": t, "m": t.masked, "x": t.tensor(X), "i": t.tensor(X * 10).long(), "k": t.tensor(MASKS["full"])}
        try:
            out = eval(expression, known)
        except Exception as error:
            return type(error)
        return str(out.dtype), out.tolist()
    mine, theirs = found(fl), found(torch)
    if isinstance(theirs, type):
        assert mine is theirs
    else:
        assert mine[0] == theirs[0]
        np.testing.assert_allclose(mine[1], theirs[1], rtol=1e-6)
