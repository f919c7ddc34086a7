"""Compiled optimizer steps are the eager ones, to the digits of the parameters' dtype."""

from __future__ import annotations

import pytest

import flambeau as fl

OPTIMIZERS = ("Adam", "AdamW", "NAdam", "RAdam", "Adagrad", "Adadelta", "Adamax", "ASGD", "RMSprop", "Rprop", "SGD")
DIGITS = {fl.float64: 1e-9, fl.float32: 1e-6}   # NAdam keeps a product in float32


def _parameters(name: str, kind: fl.dtype, compiled: bool) -> list[fl.Tensor]:
    fl._dynamo.reset()
    parameters = [fl.nn.Parameter(fl.linspace(-1, 2, 7, dtype=kind)), fl.nn.Parameter(fl.tensor(0.5, dtype=kind))]
    optimizer = getattr(fl.optim, name)(parameters, lr=0.01)
    step = fl.compile(optimizer.step) if compiled else optimizer.step
    for k in range(6):
        for p in parameters:
            p.grad = (p.detach() * (k + 1)).sin()
        step()
    return [p.detach() for p in parameters]


@pytest.mark.parametrize("kind", DIGITS, ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_as_the_eager_step(name: str, kind: fl.dtype) -> None:
    """Corrections by powers of the count of steps too, which is kept in float32."""
    for got, want in zip(_parameters(name, kind, True), _parameters(name, kind, False)):
        assert got.dtype is kind
        fl.testing.assert_close(got, want, rtol=DIGITS[kind], atol=DIGITS[kind])
