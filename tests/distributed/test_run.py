"""torchrun: processes that work, fail, start again and are stopped; none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flambeau.distributed import run as torchrun
from tests.distributed.processes import free_port, needs_mpi

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
from pathlib import Path

rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
Path(sys.argv[1], f"{rank}.pid").write_text(str(os.getpid()))
what = sys.argv[2]
def say(text):      # in one piece: processes share the output
    os.write(1, (text + "\\n").encode())
if what == "env":
    names = ("LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    say(" ".join([str(rank), torch.__file__.split("/")[-2], *(os.environ[n] for n in names)]))
    sys.exit()
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
say(f"rank {rank} of {dist.get_world_size()} sums {x.item():g} in attempt {attempt}")
if what == "restart" and attempt == 0 and rank == 1:
    os._exit(3)
if what == "die" and rank == 1:
    os.kill(os.getpid(), 9)
if what in ("hang", "die"):
    dist.all_reduce(x) if what == "die" else time.sleep(100)
dist.destroy_process_group()
"""


class Launcher:
    """A launcher, its script and the processes that it started."""

    def __init__(self, folder: Path, what: str, *options: str) -> None:
        self.begin(folder, SCRIPT, [*options, str(folder / "script.py"), str(folder), what])

    def begin(self, folder: Path, script: str, arguments: list[str]) -> None:
        """Write the script, and start with these arguments."""
        self.folder = folder
        (folder / "script.py").write_text(script)
        command = [sys.executable, "-m", "flambeau.distributed.run", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)

    def end(self) -> tuple[int, str, str]:
        """(exit code, output, errors)"""
        out, err = self.process.communicate(timeout=100)
        return self.process.returncode, out, err

    def pids(self) -> list[int]:
        return [int(path.read_text() or "0") for path in self.folder.glob("*.pid")]

    def started(self, count: int) -> list[int]:
        """The processes, once there are so many."""
        deadline = time.monotonic() + 60
        while (len(pids := self.pids()) < count or 0 in pids) and time.monotonic() < deadline:
            time.sleep(0.02)
        return pids


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def none_left(pids: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(is_alive, pids))


@pytest.fixture
def launchers() -> Iterator[list[Launcher]]:
    made: list[Launcher] = []
    yield made
    for launcher in made:
        launcher.process.kill()
        launcher.process.communicate()
        for pid in launcher.pids():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_what_processes_are_told(tmp_path: Path, launchers: list) -> None:
    launchers.append(launcher := Launcher(tmp_path, "env", "--standalone", "--nproc-per-node=2"))
    code, out, err = launcher.end()
    assert code == 0, err
    assert sorted(out.split("\n")) == ["", "0 flambeau 0 2 2 0", "1 flambeau 1 2 2 0"]


@needs_mpi
def test_two_machines(tmp_path: Path, launchers: list) -> None:
    """Two launchers that find each other at one port."""
    options = ("--nnodes=2", "--nproc_per_node", "1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=7")
    for name in "ab":
        (tmp_path / name).mkdir()
        launchers.append(Launcher(tmp_path / name, "work", *options))
    ended = [launcher.end() for launcher in launchers]
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert sorted(out for _, out, _ in ended) == [f"rank {r} of 2 sums 2 in attempt 0\n" for r in (0, 1)]


@needs_mpi
def test_all_start_again(tmp_path: Path, launchers: list) -> None:
    launchers.append(launcher := Launcher(tmp_path, "restart", "--standalone", "--nproc-per-node=2", "--max-restarts=1"))
    code, out, err = launcher.end()
    assert code == 0, err
    assert "rank 1 (pid" in err and "exit code 3" in err and "1 restarts left" in err
    last = [line for line in sorted(out.splitlines()) if line.endswith("attempt 1")]    # of the first, rank 0 may end before it speaks
    assert last == [f"rank {r} of 2 sums 2 in attempt 1" for r in (0, 1)]


@needs_mpi
def test_a_dead_rank_ends_all(tmp_path: Path, launchers: list) -> None:
    launchers.append(launcher := Launcher(tmp_path, "die", "--standalone", "--nproc-per-node=2"))
    code, _, err = launcher.end()
    assert code == 1 and "rank 1" in err and "SIGKILL" in err
    assert len(launcher.pids()) == 2 and none_left(launcher.pids())


@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_launcher_ends_all(tmp_path: Path, launchers: list, number: signal.Signals) -> None:
    launchers.append(launcher := Launcher(tmp_path, "hang", "--standalone", "--nproc-per-node=2"))
    pids = launcher.started(2)
    assert len(pids) == 2
    launcher.process.send_signal(number)
    code, _, _ = launcher.end()
    assert code == (-9 if number is signal.SIGKILL else 128 + number)
    assert none_left(pids)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--nproc-per-node=x", "s.py"], "Unsupported nproc_per_node value: x"),
    (["--nnodes=2", "s.py"], "needs --rdzv-endpoint"),
    (["--nnodes=1:4", "s.py"], "needs --rdzv-endpoint"),
    (["--nnodes=1:x", "s.py"], "MIN:MAX"),
    (["--rdzv-backend=static", "--nnodes=2", "--master-addr=a", "s.py"], "needs --node-rank"),
    (["--redirects=7:9:1", "s.py"], "which streams"),
    (["--rdzv-conf=speed=1", "s.py"], "speed mean nothing"),
])
def test_what_it_refuses(arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        torchrun.main(arguments)
