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
