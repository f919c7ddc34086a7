"""Warnings that operators give: those of torch, of the line that calls, once or at each call."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import flambeau as fl
from flambeau.core import warned

CALLS: dict[str, Callable] = {
    "complex to real": lambda t, x: (x + 1j).float(), "complex to int": lambda t, x: (x + 1j).to(t.int32),
    "complex to bool": lambda t, x: (x + 1j).bool(), "complex copied": lambda t, x: t.ones(3, 3).copy_(x + 1j),
    "complex as tensor": lambda t, x: t.as_tensor(x + 1j, dtype=t.float64),
    "cholesky": lambda t, x: t.cholesky(t.eye(2)), "qr": lambda t, x: t.qr(x), "lu": lambda t, x: t.lu(t.eye(2)),
    "lu_solve": lambda t, x: t.lu_solve(x, *t.linalg.lu_factor(t.eye(3))), "triangular_solve": lambda t, x: t.triangular_solve(x, x),
    "chain_matmul": lambda t, x: t.chain_matmul(x, x), "nuclear_norm": lambda t, x: t.nuclear_norm(x),
    "frobenius_norm": lambda t, x: t.frobenius_norm(x, (0, 1)), "norm": lambda t, x: t.norm(x),
    "cross": lambda t, x: t.cross(x, x), "cross along": lambda t, x: t.cross(x, x, 1), "meshgrid": lambda t, x: t.meshgrid(x[0], x[1]),
    "T of three": lambda t, x: x.reshape(3, 1, 3).T, "T of a number": lambda t, x: x[0, 0].T, "mT of a number": lambda t, x: x[0, 0].mT,
    "H of a number": lambda t, x: x[0, 0].H, "mH of a number": lambda t, x: x[0, 0].mH, "adjoint of a number": lambda t, x: x[0, 0].adjoint(),
    "T of a matrix": lambda t, x: x.T, "cov of one": lambda t, x: t.cov(x[:, :1]), "cov of fewer": lambda t, x: t.cov(x, correction=5),
    "cov weighted": lambda t, x: t.cov(x[:, :1], aweights=t.ones(1)), "cov": lambda t, x: t.cov(x), "var of one": lambda t, x: x[0, :1].var(),
    "affine_grid": lambda t, x: t.nn.functional.affine_grid(x[None, :2], (1, 1, 1, 2), align_corners=True),
    "stft": lambda t, x: t.stft(t.ones(16), 4, return_complex=True),
    "stft pairs": lambda t, x: t.stft(t.ones(16), 4, window=t.ones(4), return_complex=False),
    "istft": lambda t, x: t.istft(t.ones(3, 9, dtype=t.complex64), 4),
    "scatter": lambda t, x: x.scatter(0, t.tensor([[0]]), x, reduce="add"), "where": lambda t, x: t.where(t.ones(2, dtype=t.uint8), 1.0, 2.0),
    "uint8 index": lambda t, x: x[t.tensor([1, 0, 1], dtype=t.uint8)], "tensor": lambda t, x: t.tensor(x),
    "new_tensor": lambda t, x: x.new_tensor(x), "range": lambda t, x: t.range(0, 2),
    "upsample_bilinear": lambda t, x: t.nn.functional.upsample_bilinear(x[None, None], 5),
    "upsample_nearest": lambda t, x: t.nn.functional.upsample_nearest(x[None, None], 5),
    "upsample": lambda t, x: t.nn.functional.upsample(x[None, None], 5), "gumbel": lambda t, x: t.nn.functional.gumbel_softmax(x, eps=0.1),
    "mse_loss": lambda t, x: t.nn.functional.mse_loss(x, x[0]), "kl_div": lambda t, x: t.nn.functional.kl_div(x, x),
    "clip_grad_norm": lambda t, x: t.nn.utils.clip_grad_norm([t.nn.Parameter(x)], 1.0), "NLLLoss2d": lambda t, x: t.nn.NLLLoss2d(),
    "list of indices": lambda t, x: x[[[0, 1], [1, 0]]],
    "list of slices": lambda t, x: x[[slice(0, 1), 0]], "list of places": lambda t, x: x[[0, 1]],
    "list of places to set": lambda t, x: x.__setitem__([[0, 1], [1, 0]], 5.0), "resize": lambda t, x: x.resize(9),
    "resize_as": lambda t, x: x.resize_as(t.ones(9)), "storage": lambda t, x: x.storage(), "untyped": lambda t, x: x.untyped_storage(),
    "even kernel": lambda t, x: t.nn.functional.conv1d(x[:1], t.ones(1, 1, 2), padding="same"),
    "odd kernel": lambda t, x: t.nn.functional.conv1d(x[:1], t.ones(1, 1, 3), padding="same"),
    "even dilation": lambda t, x: t.nn.functional.conv1d(x[:1], t.ones(1, 1, 2), padding="same", dilation=2),
    "use_cuda": lambda t, x: t.autograd.profiler.profile(use_cuda=True),
    "cuda.amp.GradScaler": lambda t, x: t.cuda.amp.GradScaler(enabled=False), "resized": lambda t, x: t.add(x, 1, out=t.ones(2)),
}


def _given(lib: Any, call: Callable) -> list[warnings.WarningMessage]:
    x = lib.arange(9.0).reshape(3, 3) + lib.eye(3)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        call(lib, x)
    return given


SCHEDULES = {"StepLR": (1,), "MultiStepLR": ([1],), "ExponentialLR": (0.5,), "CosineAnnealingLR": (5,), "LambdaLR": (lambda epoch: 1.0,),
             "PolynomialLR": (5,), "OneCycleLR": (5.0, 5), "CyclicLR": (0.1, 1.0), "ConstantLR": (), "LinearLR": (),
             "MultiplicativeLR": (lambda epoch: 1.0,), "CosineAnnealingWarmRestarts": (5,)}


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_asked_for_by_steps(name: str) -> None:
    def call(lib: Any, x: Any) -> list:
        optimizer = lib.optim.SGD([lib.ones(1, requires_grad=True)], lr=1.0, momentum=0.9)
        schedule = getattr(lib.optim.lr_scheduler, name)(optimizer, *SCHEDULES[name])
        optimizer.step()
        schedule.step()
        return schedule.get_lr()

    assert [w.category for w in _given(fl, call)] == [w.category for w in _given(torch, call)] == [UserWarning]


@pytest.mark.parametrize("name", CALLS)
def test_operators_warn_as_torch_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many, of the same categories, and of this file's line."""
    monkeypatch.setattr(warned.Repeated, "always", True)
    torch.set_warn_always(True)
    try:
        theirs = _given(torch, CALLS[name])
    finally:
        torch.set_warn_always(False)
    ours = _given(fl, CALLS[name])
    assert [w.category for w in ours] == [w.category for w in theirs]
    assert {w.filename for w in ours} <= {__file__}


def test_once_in_a_process_or_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warned, "_given", set())
    for always, counts in ((False, [1, 0, 0]), (True, [1, 1])):
        fl.set_warn_always(always)
        try:
            assert [len(_given(fl, CALLS["cholesky"])) for _ in counts] == counts
        finally:
            fl.set_warn_always(False)


def test_a_warning_shows_the_line_of_the_program(tmp_path: Path) -> None:
    """Below modules and functions of the package too."""
    script = tmp_path / "program.py"
    script.write_text("import flambeau as torch\nx = torch.ones(2, 3)\n\ntorch.nn.MSELoss()(x, x[0])\n")
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=os.environ | {"PYTHONWARNINGS": "default"})
    assert f"{script}:4: UserWarning: Using a target size" in out.stderr
