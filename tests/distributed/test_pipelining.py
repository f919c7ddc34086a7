"""Pipelines in real processes beside one process, and schedules by themselves."""

from __future__ import annotations

import functools
import os
import re
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau.distributed import pipelining
from flambeau.distributed.fsdp import fully_shard
from flambeau.distributed.pipelining import PipelineStage, SplitPoint, microbatch, pipeline, schedules
from tests.distributed.processes import Ranks, needs_mpi, run


class Net(fl.nn.Module):
    """Blocks of any number, with a value that is used far behind."""

    def __init__(self, blocks: int = 4, split: int | None = None) -> None:
        super().__init__()
        self.split = split
        self.inner = fl.nn.Embedding(7, 6)
        self.blocks = fl.nn.ModuleList(fl.nn.Sequential(fl.nn.Linear(6, 6), fl.nn.Tanh()) for _ in range(blocks))
        self.weight = fl.nn.Parameter(fl.ones(6))
        self.head = fl.nn.Linear(6, 3)
        rng = np.random.default_rng(0)
        with fl.no_grad():
            for p in self.parameters():
                p.copy_(fl.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32)))

    def forward(self, ids: Any, scale: float = 1.0) -> Any:
        first = x = self.inner(ids)
        for i, block in enumerate(self.blocks):
            if i == self.split:
                pipelining.pipe_split()
            x = x + block(x)
        return self.head((x + first * self.weight * scale).sum(1))


CUTS = {f"blocks.{i}": SplitPoint.BEGINNING for i in range(1, 4)}


def data(step: int, size: int = 8) -> tuple:
    rng = np.random.default_rng(step)
    return fl.from_numpy(rng.integers(0, 7, (size, 2))), fl.from_numpy(rng.integers(0, 3, size))


def loss_of(out: Any, target: Any, weight: float = 1.0) -> Any:
    return fl.nn.functional.cross_entropy(out, target) * weight


def train(torch: Any, rank: int, world: int, *plans: tuple) -> list:
    """Steps of schedules; what this process's stages come to."""
    dist.init_process_group("gloo")
    return [both_ways(wrap, *plan) if wrap else steps(rank, world, *plan) for *plan, wrap in plans]


def steps(rank: int, world: int, name: str, stages: int, count: int) -> dict:
    made = pipeline(Net(), data(0)[:1], split_spec=dict(list(CUTS.items())[: stages - 1]))
    kind = getattr(pipelining, name)
    mine = [made.build_stage(i, "cpu") for i, process in enumerate(kind.place(world, stages)) if process == rank]
    schedule = kind(mine[0] if stages == world else mine, count, loss_fn=loss_of)
    found: dict[str, Any] = {"losses": [], "outputs": []}
    sgd = fl.optim.SGD([p for s in mine for p in s.submod.parameters()], lr=0.1, momentum=0.9)
    for step in range(3):
        ids, target = data(step, 8 + 8 * step)
        losses: list = []
        given: tuple = (ids,) if rank == 0 else ()
        sgd.zero_grad()
        if step == 1:
            schedule.eval(*given, target=target, losses=losses)  # leaves no gradients
            assert all(p.grad is None for s in mine for p in s.submod.parameters())
        out = schedule.step(*given, target=target, losses=losses, loss_kwargs={"weight": 2.0})
        sgd.step()
        if any(s.is_last for s in mine):
            found["losses"].append([x.item() for x in losses])
            found["outputs"].append(out.tolist())
        else:
            assert out is None and not losses
    found["parameters"] = {n: p.tolist() for s in mine for n, p in s.submod.named_parameters()}
    return found


WRAPS: dict[str, Callable] = {
    "DDP": lambda module, mesh: fl.nn.parallel.DistributedDataParallel(module, process_group=mesh.get_group()),
    "fully_shard": lambda module, mesh: fully_shard(module, mesh=mesh),
}


def both_ways(wrap: str, name: str) -> dict:
    """Two stages, each in two processes that share the batch: gradients, and how often they were reduced."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    part, place = mesh["dp"].get_local_rank(), mesh["pp"].get_local_rank()
    made = pipeline(Net(), data(0)[:1], split_spec={"blocks.2": SplitPoint.BEGINNING})
    module = WRAPS[wrap](made.get_stage_module(place), mesh["dp"])
    stage = PipelineStage(module, place, 2, "cpu", group=mesh["pp"].get_group())
    ids, target = (t.tensor_split(2)[part] for t in data(3, 16))
    kind = getattr(pipelining, name)
    kind(stage if name == "Schedule1F1B" else [stage], 4, loss_fn=loss_of).step(*((ids,) if place == 0 else ()), target=target)
    grads = {n.removeprefix("module."): p.grad for n, p in module.named_parameters()}
    return {n: (g.full_tensor() if hasattr(g, "full_tensor") else g).tolist() for n, g in grads.items()}


def alone(count: int) -> dict:
    """The same by one process."""
    net, found = Net(), {"losses": [], "outputs": []}
    sgd = fl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        ids, target = data(step, 8 + 8 * step)
        sgd.zero_grad()
        out = net(ids)
        loss_of(out, target, 2.0).backward()
        found["losses"].append([loss_of(o, t, 2.0).item() for o, t in zip(out.tensor_split(count), target.tensor_split(count))])
        found["outputs"].append(out.tolist())
        sgd.step()
    return {**found, "parameters": {n: p.tolist() for n, p in net.named_parameters()}}


@needs_mpi
@pytest.mark.parametrize(("world", "plans"), [
    (2, [("ScheduleGPipe", 2, 4, ""), ("ScheduleInterleaved1F1B", 4, 4, ""), ("ScheduleLoopedBFS", 4, 2, ""),
         ("ScheduleInterleavedZeroBubble", 4, 4, ""), ("ScheduleZBVZeroBubble", 4, 4, ""), ("ScheduleDualPipeV", 4, 4, "")]),
    (4, [("Schedule1F1B", 4, 8, ""), *((name, wrap) for wrap in WRAPS for name in ("Schedule1F1B", "ScheduleInterleavedZeroBubble"))])])
def test_training_is_that_of_one_process(world: int, plans: list) -> None:
    for plan, ranks in zip(plans, zip(*run(train, world, *plans, timeout=100))):
        if plan[-1]:
            net, (ids, target) = Net(), data(3, 16)
            loss_of(net(ids), target).backward()
            for name, p in net.named_parameters():
                found = [rank[name] for rank in ranks if name in rank]
                assert len(found) == 2
                np.testing.assert_allclose(found, [p.grad.tolist()] * 2, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            check(ranks, alone(plan[-2]))


def check(ranks: tuple, expected: dict) -> None:
    last = next(rank for rank in ranks if rank["losses"])
    found = {"losses": last["losses"], "outputs": last["outputs"], "parameters": {}}
    for rank in ranks:
        assert not found["parameters"].keys() & rank["parameters"].keys()
        found["parameters"] |= rank["parameters"]
    assert found["parameters"].keys() == expected["parameters"].keys()
    for ours, theirs in zip((*found["losses"], *found["outputs"]), (*expected["losses"], *expected["outputs"])):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    for key, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][key], value, rtol=1e-5, atol=1e-5, err_msg=key)


def left_alone(torch: Any, rank: int, world: int) -> str:
    """Process 1 is killed in its first stage."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    stage = pipeline(Net(), data(0)[:1], split_spec={"blocks.2": SplitPoint.BEGINNING}).build_stage(rank, "cpu")
    if rank:
        stage.submod.register_forward_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    try:
        pipelining.ScheduleGPipe(stage, 2, loss_fn=loss_of).step(*data(0)[:1])
    except RuntimeError as error:
        return str(error)
    return ""


@needs_mpi
def test_a_dead_stage_is_named() -> None:
    with Ranks(left_alone, 2) as ranks:
        ranks.processes[0].join(30)
        assert re.search(r"rank\(?s?\)? 1", ranks.result(0)[1]), ranks.result(0)


# -- schedules by themselves ------------------------------------------------------------------------------------------
class Played(NamedTuple):
    """What it came to: the microbatches that each process keeps at most, and for how many ticks the last one is at work."""

    kept: list[int]
    ticks: int


NEEDS = {"F": lambda s, last: [("F", s - 1)] if s else [], "I": lambda s, last: [("F", s), *([("I", s + 1)] if s < last else [])],
         "W": lambda s, last: [("I", s)]}


def played(order: Callable, processes: int, each: int, count: int, place: Callable = schedules.round_about) -> Played:
    """All processes do their lists, a pass a tick, of which a whole backward pass takes two. AssertionError where none can go on."""
    stages = processes * each
    where = place(processes, stages)
    mine = [[s for s in range(stages) if where[s] == p] for p in range(processes)]
    lists = [order(m, processes, count) for m in mine]
    for m, actions in zip(mine, lists):
        halves = [(part, s, i) for way, s, i in actions for part in {"B": "IW"}.get(schedules._LETTERS[way], schedules._LETTERS[way])]
        assert sorted(halves) == sorted((part, s, i) for part in "FIW" for s in m for i in range(count))
    ended: dict = {}
    kept, most, at, free = [0] * processes, [0] * processes, [0] * processes, [0] * processes
    while any(at[p] < len(lists[p]) for p in range(processes)):
        moved = False
        for p in range(processes):
            while at[p] < len(lists[p]):
                action = lists[p][at[p]]
                parts = {"B": "IW"}.get(letter := schedules._LETTERS[action.way], letter)
                needs = [(way, s, action.number) for way, s in NEEDS[parts[0]](action.stage, stages - 1)]
                if not ended.keys() >= set(needs):
                    break
                start = max([free[p], *(ended[n] for n in needs)])
                free[p] = start + len(parts)
                ended.update(((part, action.stage, action.number), free[p]) for part in parts)
                kept[p] += (parts == "F") - (parts[-1] == "W")
                most[p] = max(most[p], kept[p])
                at[p], moved = at[p] + 1, True
        assert moved, [actions[k:k + 2] for k, actions in zip(at, lists)]
    assert kept == [0] * processes
    return Played(most, max(free))


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("count", [1, 2, 4, 7, 8, 12, 15])
def test_schedules_go_through(processes: int, count: int) -> None:
    assert played(schedules.gpipe, processes, 1, count).kept == [count] * processes
    assert played(schedules.one_f_one_b, processes, 1, count).kept == [min(count, processes - p) for p in range(processes)]
    for each in (1, 2, 3):
        assert played(schedules.gpipe, processes, each, count).kept == [each * count] * processes
        for order in (schedules.interleaved, schedules.zero_bubble):
            if count % max(1, count // processes):
                with pytest.raises(ValueError, match="multiple of the number of rounds"):
                    played(order, processes, each, count)
            else:
                assert max(played(order, processes, each, count).kept) <= each * count
    folded = functools.partial(played, processes=processes, each=2, count=count, place=schedules.there_and_back)
    assert max(folded(schedules.zero_bubble_v).kept) <= 2 * processes
    if count < 2 * processes:
        with pytest.raises(ValueError, match="at least as many microbatches as stages"):
            folded(schedules.dual_pipe_v)
    else:
        assert max(folded(schedules.dual_pipe_v).kept) <= 2 * processes + 1


def test_interleaved_keeps_fewer() -> None:
    """In each of four processes with two stages, of 32 microbatches."""
    assert max(played(schedules.interleaved, 4, 2, 32).kept) <= 4 + 2 * 3 + 1
    assert played(schedules.gpipe, 4, 2, 32).kept == [64] * 4


@pytest.mark.parametrize("processes", [2, 4, 6])
def test_who_waits_less(processes: int) -> None:
    """Ticks beside those of the work: with halves of backward passes as many as it takes the first microbatch to reach the last process."""
    count = 4 * processes
    for name, each, place, expected in (
            ("one_f_one_b", 1, schedules.round_about, 3), ("interleaved", 2, schedules.round_about, 3),
            ("zero_bubble", 2, schedules.round_about, 1), ("zero_bubble", 3, schedules.round_about, 1),
            ("zero_bubble_v", 2, schedules.there_and_back, 1), ("dual_pipe_v", 2, schedules.there_and_back, 1)):
        found = played(getattr(schedules, name), processes, each, count, place)
        assert found.ticks - 3 * each * count == expected * (processes - 1), name
        assert name == "interleaved" or max(found.kept) <= each * processes + (name == "dual_pipe_v"), name


def test_lists_of_actions_are_files(tmp_path: Path) -> None:
    dist.init_process_group("fake", rank=1, world_size=2)
    try:
        stages = [PipelineStage(Net(), i, 4, "cpu") for i in (1, 2)]
        made = pipelining.ScheduleZBVZeroBubble(stages, 4)
        made._dump_csv(str(tmp_path / "order.csv"))
        again = schedules._PipelineScheduleRuntime(stages, 4)
        again._load_csv(str(tmp_path / "order.csv"))
        assert again.pipeline_order == made.pipeline_order and stages[0].processes == [0, 1, 1, 0]
        assert str(made.pipeline_order[1][0]) == "1F0" and schedules.Action.from_str("3W12") == (schedules.WEIGHT, 3, 12)
        with pytest.raises(ValueError, match="an action is"):
            schedules.Action.from_str("3X5")
        with pytest.raises(NotImplementedError, match="compute_only"):
            again._load_csv("order.csv", "compute_comms")
        with pytest.warns(FutureWarning, match="use_full_backward"):
            schedules.PipelineScheduleMulti([stages[0], PipelineStage(Net(), 3, 4, "cpu")], 4, use_full_backward=True)
    finally:
        dist.destroy_process_group()
    assert schedules.get_schedule_class("zbvzerobubble") is pipelining.ScheduleZBVZeroBubble
    with pytest.raises(ValueError, match="Unknown schedule name"):
        schedules.get_schedule_class("none")


# -- cutting -----------------------------------------------------------------------------------------------------------
class Whole(fl.nn.Module):
    """Nothing that can be traced."""

    def forward(self, x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x - 1


@pytest.mark.parametrize("cuts", [
    {"blocks.1": SplitPoint.BEGINNING}, {"blocks.1": SplitPoint.END, "head": SplitPoint.BEGINNING}, {"inner": SplitPoint.END}, CUTS,
    {"blocks.2.1": SplitPoint.BEGINNING}])
def test_stages_are_the_module(cuts: dict) -> None:
    net, (ids, _) = Net(), data(0)
    net.blocks[0].append(Whole())
    pipe = pipeline(net, (ids,), split_spec=cuts)
    assert pipe.num_stages == len(cuts) + 1
    assert bool((pipe(ids) == net(ids)).all())
    names = [n for i in range(pipe.num_stages) for n, _ in pipe.get_stage_module(i).named_parameters()]
    assert sorted(names) == sorted(n for n, _ in net.named_parameters())
    assert all(p is dict(net.named_parameters())[n] for i in range(pipe.num_stages) for n, p in pipe.get_stage_module(i).named_parameters())


def test_pipe_split_and_policies() -> None:
    ids, _ = data(0)
    assert pipeline(Net(split=2), (ids,)).num_stages == 2
    assert pipeline(Net(), (ids,), {"scale": 2.0}).num_stages == 1

    def halves(traced: Any) -> Any:
        nodes = list(traced.graph.nodes)
        with traced.graph.inserting_before(nodes[len(nodes) // 2]):
            traced.graph.call_function(pipelining.pipe_split)
        return traced

    net = Net()
    pipe = pipeline(net, (ids,), split_policy=halves)
    assert pipe.num_stages == 2 and bool((pipe(ids) == net(ids)).all())


def test_what_is_refused() -> None:
    ids, _ = data(0)
    tied = Net()
    tied.head.weight, tied.blocks[0][0].weight = (tied.blocks[3][0].weight,) * 2
    for cuts, net, error, match in (
        ({"nowhere": SplitPoint.END}, Net(), ValueError, "no modules"),
        ({"head": SplitPoint.END}, Net(), ValueError, "nothing to do"),
        (CUTS, tied, NotImplementedError, "can't share"),
    ):
        with pytest.raises(error, match=match):
            pipeline(net, (ids,), split_spec=cuts)
    dist.init_process_group("fake", rank=1, world_size=2)
    try:
        with pytest.raises(ValueError, match="out of range"):
            PipelineStage(Net(), 2, 2, "cpu")
        with pytest.raises(ValueError, match=r"has stages \[1\] of 2; given are \[0\]"):
            pipelining.ScheduleGPipe(PipelineStage(Net(), 0, 2, "cpu"), 2)
        with pytest.raises(ValueError, match="exactly 2 stages"):
            pipelining.ScheduleZBVZeroBubble([PipelineStage(Net(), 1, 2, "cpu")], 2)
        with pytest.raises(ValueError, match="cannot be larger"):
            PipelineStage(Net(), 0, 1, "cpu")
        stage = PipelineStage(Net(), 1, 4, "cpu")
        with pytest.raises(ValueError, match=r"has stages \[1, 3\]"):
            pipelining.ScheduleInterleaved1F1B([stage], 2)
        with pytest.raises(ValueError, match="positive"):
            pipelining.ScheduleGPipe(stage, 0)
        schedule = pipelining.Schedule1F1B(PipelineStage(Net(), 1, 2, "cpu"), 3, loss_fn=loss_of)
        with pytest.raises(ValueError, match="equal microbatches"):
            schedule.step(target=fl.ones(4))
    finally:
        dist.destroy_process_group()


def test_chunks() -> None:
    x, y = fl.arange(12).reshape(4, 3), fl.arange(4)
    args, kwargs = microbatch.split_args_kwargs_into_chunks((x, [y, "text"]), {"k": x}, 2, None, {"k": microbatch.TensorChunkSpec(0)})
    assert args[1][0].tolist() == x[2:].tolist() and args[0][1][0].tolist() == [0, 1] and args[0][1][1] == "text"
    assert kwargs[1]["k"].tolist() == x[2:].tolist()
    columns, _ = microbatch.split_args_kwargs_into_chunks((x,), None, 3, microbatch.TensorChunkSpec.from_tuple((1,)))
    assert columns[2][0].tolist() == x[:, 2:].tolist()
    assert microbatch.merge_chunks([c[0] for c in columns], microbatch.TensorChunkSpec(1)).tolist() == x.tolist()
    assert [t.tolist() for t in microbatch.merge_chunks(args, None)[0:1]] == [x.tolist()]
