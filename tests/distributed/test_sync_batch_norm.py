"""SyncBatchNorm in real processes beside BatchNorm in one that has all their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau.nn.parallel import DistributedDataParallel
from tests.distributed.processes import needs_mpi, run

MEMBERS = (0, 2)     # of three processes


class Case(NamedTuple):
    """A batch's shape without its rows, how many of these each member has in each step, and the norm's options."""

    shape: tuple[int, ...]
    rows: tuple[tuple[int, int], ...] = ((4, 4), (4, 4))
    options: dict = {}
    dtype: str = "float32"
    compiled: bool = False


CASES = {
    "1d": Case((3,)), "2d": Case((3, 2, 5)), "3d": Case((2, 2, 1, 3)), "uneven": Case((3, 4), ((5, 1), (1, 2))),
    "none": Case((3,), ((4, 0), (0, 3))), "one each": Case((3,), ((1, 1),)),
    "plain": Case((3,), options={"affine": False}), "no bias": Case((3,), options={"bias": False}),
    "not kept": Case((3,), options={"track_running_stats": False}), "averaged": Case((3,), options={"momentum": None}),
    "bfloat16": Case((3, 4), dtype="bfloat16"), "float64": Case((3, 4), dtype="float64"), "compiled": Case((3, 4), compiled=True),
}


def _net(case: Case, kind: Callable) -> Any:
    norm = kind(case.shape[0], **case.options)
    with fl.no_grad():
        for i, p in enumerate(norm.parameters()):
            p.copy_(fl.linspace(1, 2, p.numel()) + i)
    return norm.to(getattr(fl, case.dtype))


def _rows(case: Case, step: int, member: int | None) -> Any:
    """The rows of one member, or all."""
    whole = np.random.default_rng(step).standard_normal((sum(case.rows[step]), *case.shape)) * 2 + 5
    first = case.rows[step][0]
    mine = whole if member is None else whole[first:] if member else whole[:first]
    return fl.from_numpy(mine).to(getattr(fl, case.dtype)).requires_grad_()


def trained(case: Case, norm: Any, member: int | None) -> tuple[list, list]:
    """What belongs to rows (outputs, gradients), and what is of all (parameters' gradients, statistics)."""
    call, rows = fl.compile(norm, fullgraph=True) if case.compiled else norm, []
    for step in range(len(case.rows)):
        x = _rows(case, step, member)
        out = call(x)
        (out.float().sin() * 3).sum().backward()
        rows += [out.detach().double().numpy(), x.grad.double().numpy()]
    if norm.track_running_stats:    # without, a process normalizes by its own rows when it does not train
        rows.append(norm.eval()(_rows(case, 0, member)).detach().double().numpy())
    return rows, [p.grad.double().numpy() for p in norm.parameters()] + [b.double().numpy() for b in norm.buffers()]


def members(torch: Any, rank: int, world: int) -> dict:
    dist.init_process_group("gloo")
    group, alone = dist.new_group(MEMBERS), dist.new_group([1])
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        def kind(*args: Any, **options: Any) -> Any:
            return fl.nn.SyncBatchNorm(*args, process_group=group if rank in MEMBERS else alone, **options)
        found[name] = trained(case, _net(case, kind), MEMBERS.index(rank) if rank in MEMBERS else None)
    made = fl.nn.SyncBatchNorm.convert_sync_batchnorm(images(), None)
    found["DDP"] = _step(DistributedDataParallel(made), rank, world)
    return found


def images() -> Any:
    fl.manual_seed(0)
    return fl.nn.Sequential(fl.nn.Conv2d(2, 4, 3), fl.nn.BatchNorm2d(4), fl.nn.Flatten(), fl.nn.Linear(36, 3))


def _step(net: Any, rank: int, world: int) -> list:
    x = fl.from_numpy(np.random.default_rng(7).standard_normal((6, 2, 5, 5)).astype(np.float32)).tensor_split(world)[rank]
    net(x).square().mean().backward()
    return [p.grad.numpy() for p in net.parameters()] + [b.numpy() for b in net.buffers()]


@needs_mpi
def test_several_processes_are_one() -> None:
    ranks = run(members, 3, timeout=150)
    for name, case in CASES.items():
        rows, whole = trained(case, _net(case, getattr(fl.nn, f"BatchNorm{max(1, len(case.shape) - 1)}d")), None)
        tolerance = {"bfloat16": 4e-2, "float32": 1e-4, "float64": 1e-10}[case.dtype]
        parts = [ranks[r][name] for r in MEMBERS]
        for i, expected in enumerate(rows):
            np.testing.assert_allclose(np.concatenate([part[0][i] for part in parts]), expected, tolerance, tolerance, err_msg=f"{name} {i}")
        count = len(list(_net(case, fl.nn.SyncBatchNorm).parameters()))
        for i, expected in enumerate(whole):
            found = sum(part[1][i] for part in parts) if i < count else parts[0][1][i]
            np.testing.assert_allclose(found, expected, tolerance, tolerance, err_msg=f"{name} {i}")
        for ours, theirs in zip(ranks[1][name][0], rows):     # a group of one
            np.testing.assert_allclose(ours, theirs, tolerance, tolerance, err_msg=name)
    whole = _step(images(), 0, 1)
    for rank in ranks:
        for ours, theirs in zip(rank["DDP"], whole, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_converted_modules_keep_what_they_are() -> None:
    made = fl.nn.SyncBatchNorm.convert_sync_batchnorm(
        fl.nn.ModuleList([fl.nn.BatchNorm2d(3).eval(), fl.nn.BatchNorm1d(2, affine=False), fl.nn.BatchNorm1d(2, bias=False)]), "a group")
    assert [type(m) for m in made] == [fl.nn.SyncBatchNorm] * 3 and [m.process_group for m in made] == ["a group"] * 3
    assert [m.training for m in made] == [False, True, True] and [m.bias is None for m in made] == [False, True, True]
    with pytest.raises(ValueError, match="at least 2D"):
        fl.nn.SyncBatchNorm(3)(fl.ones(3))
