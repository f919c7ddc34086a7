"""Integers are taken from tensors that hold one, wherever an operator takes integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau.ops.telling import with_numbers

F = torch.nn.functional
X = torch.arange(24.0).reshape(2, 3, 4)
IMAGE = torch.arange(64.0).reshape(1, 1, 8, 8)


@pytest.mark.parametrize(("call", "number"), [
    (lambda n: F.one_hot(torch.tensor([0, 2, 1]), n), 4), (lambda n: X.roll(n, 1), 2), (lambda n: X.sum(n), 1),
    (lambda n: X.std((n,)), 1), (lambda n: X.var(0, correction=n), 0), (lambda n: X.logsumexp((0, n)), 1), (lambda n: X.nansum(n), 2),
    (lambda n: torch.diag(X[0], n), 1), (lambda n: torch.diag_embed(X, offset=n), -1), (lambda n: F.glu(X, n), 2),
    (lambda n: F.normalize(X, dim=n), 2), (lambda n: F.cosine_similarity(X, X + 1, dim=n), 0), (lambda n: torch.trapezoid(X, dim=n), 1),
    (lambda n: torch.fft.rfft(X, n=n).abs(), 6), (lambda n: torch.fft.rfft2(X, s=(3, n)).abs(), 6), (lambda n: torch.kthvalue(X, n)[0], 2),
    (lambda n: torch.linalg.vander(X[0, 0], N=n), 3), (lambda n: torch.linalg.vector_norm(X, dim=n), 1), (lambda n: X.norm(2, n), 1),
    (lambda n: torch.mvlgamma(X + 9, n), 2), (lambda n: F.local_response_norm(IMAGE, n), 3), (lambda n: X.softmax(n), 1),
    (lambda n: F.layer_norm(X, (n,)), 4), (lambda n: F.interpolate(IMAGE, size=(n, 5)), 3), (lambda n: X.repeat_interleave(n, 0), 2),
    (lambda n: F.avg_pool2d(IMAGE, n), 2), (lambda n: torch.diagonal_copy(X, n), 1), (lambda n: X.unflatten(2, (n, 2)), 2),
    (lambda n: torch.zeros(n, 2), 3), (lambda n: F.pad(X, (n, 0)), 2), (lambda n: X.clone().unsqueeze_(n), 1)])
def test_a_tensor_that_holds_one_integer_is_that(call: Callable[[Any], Any], number: int) -> None:
    wanted, got = call(number), call(torch.tensor(number))
    assert not got.is_fake and all(type(n) is int for n in got.shape)
    torch.testing.assert_close(got, wanted)


def test_others_are_refused_as_before() -> None:
    for wrong in (torch.tensor(1.0), torch.tensor([1, 2])):
        with pytest.raises((TypeError, RuntimeError)):
            X.roll(wrong, 1)
    assert with_numbers(torch.add, (X, torch.tensor(1)), {}) is None     # where a tensor may stand, one stays


@pytest.mark.parametrize(("old", "new"), [
    (lambda x, y, v: torch.add(x, 3, y), lambda x, y, v: torch.add(x, y, alpha=3)),
    (lambda x, y, v: x.clone().add_(torch.tensor(3.0), y), lambda x, y, v: torch.add(x, y, alpha=3)),
    (lambda x, y, v: x.clone().sub_(3, other=y), lambda x, y, v: x.sub(y, alpha=3)),
    (lambda x, y, v: x.clone().addcmul_(3, y, y), lambda x, y, v: torch.addcmul(x, y, y, value=3)),
    (lambda x, y, v: torch.addcdiv(x, 0.5, y, y), lambda x, y, v: torch.addcdiv(x, y, y, value=0.5)),
    (lambda x, y, v: torch.addmm(2, x, 3, y, y), lambda x, y, v: torch.addmm(x, y, y, beta=2, alpha=3)),
    (lambda x, y, v: x.clone().addmm_(2, y, y), lambda x, y, v: torch.addmm(x, y, y, beta=2)),
    (lambda x, y, v: torch.addmv(2, v, y, v), lambda x, y, v: torch.addmv(v, y, v, beta=2)),
    (lambda x, y, v: torch.addr(2, x, 3, v, v), lambda x, y, v: torch.addr(x, v, v, beta=2, alpha=3)),
    (lambda x, y, v: torch.baddbmm(2, x[None], 3, y[None], y[None]), lambda x, y, v: torch.baddbmm(x[None], y[None], y[None], beta=2, alpha=3)),
    (lambda x, y, v: torch.addbmm(2, x, y[None], y[None]), lambda x, y, v: torch.addbmm(x, y[None], y[None], beta=2)),
    (lambda x, y, v: torch.add(x, 3, y, out=torch.empty(2, 2)), lambda x, y, v: torch.add(x, y, alpha=3))])
def test_factors_may_stand_before_the_tensors(old: Callable, new: Callable) -> None:
    """As in programs of PyTorch's first years."""
    x, y, v = torch.rand(2, 2), torch.rand(2, 2) + 1, torch.rand(2)
    with pytest.warns(UserWarning, match="before the tensors is deprecated"):
        got = old(x, y, v)
    torch.testing.assert_close(got, new(x, y, v))


@pytest.mark.parametrize("wrong", [
    lambda x, y: x.add(y, 3), lambda x, y: torch.add(3, x, y), lambda x, y: torch.addcmul(x, y, y, 3), lambda x, y: torch.addmm(x, y, y, 3),
    lambda x, y: x.addmm(3, y, 2, y), lambda x, y: x.mul(3, y),
    lambda x, y: x.add(torch.tensor(2.0), 3), lambda x, y: torch.addmm(1, x, 2, y, 3, y)])
def test_other_places_are_refused(wrong: Callable) -> None:
    with pytest.raises(TypeError):
        wrong(torch.rand(2, 2), torch.rand(2, 2))


def test_results_are_written_where_a_call_is_read_anew() -> None:
    out = torch.zeros(3)
    torch.sum(torch.ones(3, 2), torch.tensor(1), out=out)
    assert out.tolist() == [2.0, 2.0, 2.0]
