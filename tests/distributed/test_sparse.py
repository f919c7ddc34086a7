"""Sums of sparse tensors over processes, and DistributedDataParallel of modules with sparse gradients, beside the dense ones."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks
from flambeau.nn.parallel import DistributedDataParallel
from flambeau.nn.parallel.distributed import _MixedPrecision
from tests.distributed.processes import needs_mpi, run


def entries(rank: int, kind: str, dtype: Any) -> Any:
    """A COO tensor (5, 3) whose places and number of entries differ from rank to rank."""
    of = fl.Generator().manual_seed(rank)
    count = {"none here": 3 * rank, "nowhere": 0}.get(kind, 2 + 2 * rank)
    rows, columns = fl.randint(0, 5, (count,), generator=of), fl.randint(0, 3, (count,), generator=of)
    if kind == "hybrid":
        return fl.sparse_coo_tensor(rows[None], fl.randint(0, 9, (count, 3), generator=of).to(dtype), (5, 3))
    return fl.sparse_coo_tensor(fl.stack([rows, columns]), fl.randint(0, 9, (count,), generator=of).to(dtype), (5, 3))


def sums(torch: Any, rank: int, world: int) -> list:
    dist.init_process_group("gloo")
    wrong = []
    some = dist.new_group([0, 1])
    for dtype in (fl.float32, fl.float64, fl.int64, fl.int8, fl.bool, fl.bfloat16, fl.complex64):
        for kind in ("plain", "hybrid", "none here", "nowhere"):
            for group, wait in ((None, True), (None, False), (some, True)):
                x = entries(rank, kind, dtype)
                if group is some and rank > 1:
                    continue
                dense = x.to_dense() if dtype != fl.bool else x.to_dense().int()
                dist.all_reduce(dense, group=group)
                work = dist.all_reduce(x, group=group, async_op=not wait)
                if not wait:
                    work.wait()
                    wrong += [] if work.result()[0] is x else ["result"]
                if not (x.is_coalesced() and x.dtype == dtype and fl.equal(x.to_dense(), dense.to(dtype))):
                    wrong.append((str(dtype), kind, group is some, wait, x.to_dense().tolist(), dense.tolist()))
    return wrong


@needs_mpi
def test_sums() -> None:
    assert run(sums, 3) == [[], [], []]


def refused(torch: Any, rank: int, world: int) -> list:
    dist.init_process_group("gloo")
    found = []
    x = fl.eye(3).to_sparse()
    for call in (lambda: dist.all_reduce(x, dist.ReduceOp.MAX), lambda: dist.all_reduce(x.to_sparse_csr()), lambda: dist.broadcast(x, 0),
                 lambda: dist.reduce(x, 0), lambda: dist.all_gather([fl.zeros(3, 3)] * 2, x),
                 lambda: dist.all_reduce(fl.eye(3 + rank).to_sparse())):
        try:
            call()
            found.append("nothing")
        except (RuntimeError, NotImplementedError) as error:
            found.append((type(error).__name__, str(error)))
    return found


@needs_mpi
def test_what_is_refused() -> None:
    for found in run(refused, 2):
        assert [kind for kind, _ in found] == ["RuntimeError", *["NotImplementedError"] * 4, "RuntimeError"]
        assert "only works with ReduceOp.SUM" in found[0][1] and "to_sparse_coo()" in found[1][1]
        assert "rank 0: [3, 3]" in found[5][1] and "rank 1: [4, 4]" in found[5][1]


class Tables(fl.nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        fl.manual_seed(1)
        self.words, self.bags = fl.nn.Embedding(12, 4, sparse=sparse), fl.nn.EmbeddingBag(12, 4, mode="sum", sparse=sparse)
        self.last, self.spare = fl.nn.Linear(4, 2), fl.nn.Embedding(3, 2, sparse=sparse)

    def forward(self, ids: Any, spare: bool = False) -> Any:
        out = self.last(self.words(ids).sum(1) * self.bags(ids))
        return out + self.spare(ids[:, 0] % 3) if spare else out


WAYS: dict[str, dict] = {
    "plain": {}, "unused": {"find_unused_parameters": True}, "views": {"gradient_as_bucket_view": True}, "static": {"static_graph": True},
    "small": {"bucket_cap_mb": 1e-5}, "mixed": {"mixed_precision": _MixedPrecision(fl.float64, fl.float64)}, "hook": {}, "compiled": {},
}


def train(way: str, sparse: bool, rank: int) -> tuple[list, list]:
    """Parameters after steps of SGD, and whether gradients of tables are sparse."""
    module: Any = Tables(sparse)
    ddp = DistributedDataParallel(fl.compile(module) if way == "compiled" else module, **WAYS[way])
    if way == "hook":
        ddp.register_comm_hook(None, default_hooks.allreduce_hook)
    of, optimizer, kinds = fl.Generator().manual_seed(rank), fl.optim.SGD(module.parameters(), lr=0.003), set()
    with ddp.join():
        for step in range(4 + rank):
            ids = fl.randint(0, 12, (3, 2), generator=of)
            if step % 2 == 0 and way != "static":
                with ddp.no_sync():
                    ddp(ids, True).square().sum().backward()
            if step < 3:
                optimizer.zero_grad()
            ddp(ids, way != "unused" or step % 2 == 0).square().sum().backward()
            optimizer.step()
            kinds.add(module.words.weight.grad.is_sparse and module.bags.weight.grad.is_sparse)
    return [p.detach() for p in module.parameters()], [*kinds]


def trained(torch: Any, rank: int, world: int) -> list:
    dist.init_process_group("gloo")
    wrong = []
    for way in WAYS:
        (ours, kinds), (dense, _) = train(way, True, rank), train(way, False, rank)
        if kinds != [True] or not all(fl.allclose(a, b, 1e-5, 1e-6) for a, b in zip(ours, dense)):
            wrong.append((way, kinds, [(a - b).abs().max().item() for a, b in zip(ours, dense)]))
    return wrong


@needs_mpi
@pytest.mark.parametrize("world", [2, 3])
def test_training(world: int) -> None:
    assert run(trained, world, timeout=120) == [[]] * world
