"""Many jobs, each of which loses a process at any time: nothing of them is left, no process, port or shared memory."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import flambeau as fl
from flambeau.distributed import checkpoint as dcp
from tests.distributed.processes import free_port, needs_mpi

KILLS = int(os.environ.get("FLAMBEAU_KILLS", "3"))     # FLAMBEAU_KILLS=50 for the long run: some minutes
BUSY = """
import sys
import flambeau as fl
from flambeau import distributed as dist
from flambeau.distributed import checkpoint as dcp

dist.init_process_group("gloo")
ddp = fl.nn.parallel.DistributedDataParallel(fl.nn.Linear(64, 64))
for n in range(1, 10**6):
    ddp(fl.ones(4, 64)).sum().backward()
    dist.all_reduce(fl.ones(1 << 12))
    dcp.save({"w": fl.full((1000,), float(n)), "n": n}, checkpoint_id=sys.argv[1])
"""


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "mpich" in name or "flambeau" in name}


def listening(port: int) -> bool:
    return any(int(line.split()[1].rpartition(":")[2], 16) == port and line.split()[3] == "0A"
               for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:])


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def killed(script: Path, folder: Path, draw: random.Random, late: bool) -> tuple[list[int], int]:
    """The processes of a job that has lost one, at the beginning or (`late`) when it has saved, and its port."""
    port, begun = free_port(), time.time()
    job = subprocess.Popen([sys.executable, "-m", "flambeau.distributed.run", "--nproc-per-node=2", f"--master-port={port}", str(script),
                            str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        file = folder / ".metadata"
        while time.time() < begun + 60 and (len(children(job.pid)) < 2 or (late and not (
                file.exists() and file.stat().st_mtime > begun))):
            time.sleep(0.01)
        time.sleep(draw.random() * (0.2 if late else 2))
        workers = children(job.pid)
        os.kill(draw.choice(workers), signal.SIGKILL)
        assert job.wait(timeout=60) != 0
    finally:
        job.kill()
        job.wait()
    return [job.pid, *workers], port


@needs_mpi
@pytest.mark.timeout(120 + 20 * KILLS)
def test_random_kills_leave_nothing(tmp_path: Path) -> None:
    draw, before, script = random.Random(11), shared_memory(), tmp_path / "busy.py"
    script.write_text(BUSY)
    for attempt in range(KILLS):
        folder = tmp_path / f"saved{attempt % 2}"
        pids, port = killed(script, folder, draw, attempt % 2 == 0)
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert not listening(port)
        if attempt % 2 == 0:    # a kill while MPI begins may leave the name of a file
            assert shared_memory() <= before
        before = shared_memory()
        if attempt % 2 == 0:
            room = {"w": fl.zeros(1000), "n": 0}
            dcp.load(room, checkpoint_id=folder)
            assert room["n"] > 0 and bool((room["w"] == room["n"]).all())


ALONE = """
import os, sys
from flambeau import distributed as dist

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
os._exit(0)
"""


@needs_mpi
def test_a_process_alone_leaves_nothing(tmp_path: Path) -> None:
    """Even if it ends without MPI's end, as killed ones and those of process pools do."""
    with subprocess.Popen([sys.executable, "-c", ALONE, str(tmp_path / "store")]) as job:
        assert job.wait(timeout=60) == 0
    assert not [name for name in shared_memory() if f"_{job.pid:x}_" in name]
