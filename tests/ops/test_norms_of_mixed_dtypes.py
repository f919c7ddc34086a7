"""Norms whose parameters have another dtype than what they normalise: torch's errors, and its results where it has some."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import flambeau as torch
from flambeau.nn import functional

NORMS: dict[str, Callable] = {
    "layer_norm": lambda x, v: functional.layer_norm(x, (3,), v, v), "layer_norm, bias": lambda x, v: functional.layer_norm(x, (3,), None, v),
    "group_norm": lambda x, v: functional.group_norm(x, 3, v, v),
    "instance_norm": lambda x, v: functional.instance_norm(x[:, :, None].expand(2, 3, 4), weight=v),
    "batch_norm": lambda x, v: functional.batch_norm(x, torch.zeros(3, dtype=x.dtype), torch.ones(3, dtype=x.dtype), v, v),
    "batch_norm, statistics": lambda x, v: functional.batch_norm(x, v, v.clone()),
    "batch_norm in training": lambda x, v: functional.batch_norm(x, None, None, v, v, training=True),
}
KINDS = [torch.bool, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def refused(call: Callable) -> bool:
    try:
        call()
    except RuntimeError as error:
        return "mixed dtype" in str(error)
    return False


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_parameters_of_another_dtype(name: str, kind: torch.dtype) -> None:
    """Refused, but float32 beside a narrow input; never read as if they had the input's."""
    x = torch.tensor([[1.0, -2.0, 4.0], [0.5, 3.0, -1.0]], dtype=kind)
    for given in KINDS:
        fits = given is kind or (given is torch.float32 and kind.itemsize == 2)
        v = torch.ones(3, dtype=given)
        assert refused(lambda v=v: NORMS[name](x, v)) is not fits, given
        if fits:
            torch.testing.assert_close(NORMS[name](x, v), NORMS[name](x, v.to(kind)))


@pytest.mark.parametrize("given", KINDS, ids=str)
def test_rms_norm_takes_a_weight_of_any_dtype(given: torch.dtype) -> None:
    x, v = torch.tensor([[1.0, -2.0, 4.0], [0.5, 3.0, -1.0]]), torch.tensor([1, 0, 1], dtype=given)
    torch.testing.assert_close(functional.rms_norm(x, (3,), v), functional.rms_norm(x, (3,), v.float()))
