"""CTC loss: the kernel, the body over operators and finite differences agree."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau.autograd import gradcheck, gradgradcheck
from flambeau.nn import functional
from flambeau.ops.nn import losses
from flambeau.ops.registry import COMPOSITES

TARGETS, STEPS, LABELS = [[1, 2, 2], [3, 3, 0], [1, 2, 3]], [6, 5, 2], [3, 2, 3]     # the last row is impossible


def _logits() -> fl.Tensor:
    fl.manual_seed(0)
    return fl.randn(6, 3, 4, dtype=fl.float64).requires_grad_()


def _loss(x: fl.Tensor) -> fl.Tensor:
    return functional.ctc_loss(x, fl.tensor(TARGETS), STEPS, LABELS, reduction="none")[:2]


def test_finite_differences():
    assert gradcheck(_loss, (_logits(),))
    assert gradgradcheck(_loss, (_logits(),))


def test_body_is_the_kernel():
    x, steps, labels = _logits().detach(), fl.tensor(STEPS), fl.tensor(LABELS)
    path = losses._ctc_path(fl.tensor(TARGETS), LABELS, labels, 0, False)
    args = (x, path, steps, labels, 0)
    for op, given in ((losses._ctc, args), (losses._ctc_backward, (fl.tensor([1.0, 2.0, 3.0], dtype=x.dtype), *args))):
        assert fl.allclose(op(*given), COMPOSITES[op.__name__].fn(*given))


def test_an_impossible_row():
    x = _logits()
    losses = functional.ctc_loss(x, fl.tensor(TARGETS), STEPS, LABELS, reduction="none")
    assert losses.isinf().tolist() == [False, False, True]
    functional.ctc_loss(x, fl.tensor(TARGETS), STEPS, LABELS, reduction="sum", zero_infinity=True).backward()
    assert x.grad.isfinite().all() and not x.grad[:, 2].any()


def test_targets_in_a_row_and_no_batch():
    x = _logits()
    row = functional.ctc_loss(x[:, :2], fl.tensor([1, 2, 2, 3, 3]), [6, 5], [3, 2], reduction="none")
    assert fl.allclose(row, _loss(x))
    single = functional.ctc_loss(x[:, 0], fl.tensor([1, 2, 2]), fl.tensor(6), fl.tensor(3), reduction="none")
    assert fl.allclose(single, row[0])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_compiled(reduction):
    def loss(x):
        return functional.ctc_loss(x[:, :2], fl.tensor(TARGETS[:2]), STEPS[:2], LABELS[:2], reduction=reduction)

    x, y = _logits(), _logits()
    fl.compile(loss)(x).backward()
    loss(y).backward()
    assert fl.allclose(x.grad, y.grad)
