"""What happens to jobs that lose a process in the middle of their work, or share their machine with another; with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.processes import Ranks, needs_mpi

TRAIN = """
import os, sys
import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

folder, fails = sys.argv[1], [int(n) for n in sys.argv[2:]]     # at which steps, in the first attempts
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
ddp = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1e-4)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
begin = 0
if os.path.exists(os.path.join(folder, ".metadata")):
    state = dict(zip(("model", "optim"), get_state_dict(ddp, optimizer)), step=0)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(ddp, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    begin = state["step"]
for step in range(begin, 6):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * step + rank))
    loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
    if attempt < len(fails) and step == fails[attempt] and rank == attempt % 2:
        net[0].weight.register_post_accumulate_grad_hook(lambda p: os.kill(os.getpid(), 9))     # the last gradient to come
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dcp.save(dict(zip(("model", "optim"), get_state_dict(ddp, optimizer)), step=step + 1), checkpoint_id=folder)
    dist.all_reduce(loss := loss.detach())
if rank == 0:
    os.write(1, f"from {begin} to {loss.item():.9g}\\n".encode())
dist.destroy_process_group()
"""


def job(folder: Path, *arguments: str, restarts: int = 0, script: str = TRAIN) -> subprocess.Popen:
    """A job of two processes, under the launcher."""
    folder.mkdir()
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-m", "flambeau.distributed.run", "--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}",
               str(folder / "script.py"), str(folder / "saved"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def said(process: subprocess.Popen) -> str:
    try:
        out, err = process.communicate(timeout=110)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out


@needs_mpi
def test_a_job_that_starts_again_ends_as_one_that_was_not_disturbed(tmp_path: Path) -> None:
    """Rank 0 is killed in the backward pass of step 2, and rank 1 in that of step 4 when all have started again."""
    calm = said(job(tmp_path / "calm"))
    disturbed = said(job(tmp_path / "disturbed", "2", "4", restarts=2))
    assert calm.startswith("from 0 to ") and disturbed.startswith("from 4 to ") and calm.split()[-1] == disturbed.split()[-1]


@needs_mpi
def test_two_jobs_of_one_machine(tmp_path: Path) -> None:
    """Each has its own store, port and memory."""
    jobs = [job(tmp_path / name) for name in "ab"]
    ended = [said(one) for one in jobs]
    assert ended[0] == ended[1] and ended[0].startswith("from 0 to ")


def _backward(torch: Any, rank: int, doomed: Callable[[], None]) -> None:
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)), bucket_cap_mb=1e-5)
    if rank == 1:
        ddp.module[0].weight.register_hook(lambda g: doomed())
    for _ in range(3):
        ddp(torch.ones(2, 4)).sum().backward()


def _gathered(torch: Any, rank: int, doomed: Callable[[], None]) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    for layer in net:
        torch.distributed.fsdp.fully_shard(layer)
    if rank == 1:
        net[1].register_forward_hook(lambda m, args, out: doomed())
    for _ in range(3):
        net(torch.ones(2, 4)).sum().backward()


def _saved(torch: Any, rank: int, doomed: Callable[[], None]) -> None:
    class Last:
        def __reduce__(self) -> Any:
            doomed()
            return (int, ())

    dcp = torch.distributed.checkpoint
    dcp.save({"w": torch.ones(3), "last": Last() if rank == 1 else 0}, checkpoint_id=os.environ["CHECKPOINT"])


def _sent(torch: Any, rank: int, doomed: Callable[[], None]) -> None:
    if rank == 1:
        doomed()
    torch.distributed.recv(torch.zeros(1), 1)


def _killed(torch: Any, rank: int, world: int, what: Callable, raises: bool) -> str:
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=2))

    def doomed() -> None:
        if raises:
            raise ArithmeticError("enough")
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        what(torch, rank, doomed)
    except BaseException as error:      # a CheckpointException is none of Exception's
        return f"{type(error).__name__}: {error}"
    return "nothing"


@needs_mpi
@pytest.mark.parametrize("what", [_backward, _gathered, _saved, _sent])
def test_a_process_is_killed_in(what: Callable, tmp_path: Path) -> None:
    """The other one learns of it when the group's time is over, by an error that names the rank."""
    with Ranks(_killed, 2, what, False, env={"CHECKPOINT": str(tmp_path / "saved")}) as ranks:
        ranks.processes[1].join(60)
        assert ranks.processes[1].exitcode == -signal.SIGKILL
        ranks.processes[0].join(30)
        kind, text = ranks.result(0)  # type: ignore[misc]
    assert kind == "ok" and "timed out after 2 s" in text and "DistBackendError" in text, text
    assert "rank(s) 1" in text or what is _sent, text
    assert not (tmp_path / "saved" / ".metadata").exists()


@needs_mpi
@pytest.mark.parametrize("what", [_backward, _gathered])
def test_a_process_raises_in(what: Callable) -> None:
    """It sees its own error, the other one waits in vain for it."""
    with Ranks(_killed, 2, what, True) as ranks:
        other, raising = ranks.wait()
    assert raising == "ArithmeticError: enough" and "DistBackendError" in other and "rank(s) 1" in other
