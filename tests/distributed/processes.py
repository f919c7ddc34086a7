"""Real processes for tests: a program runs as several ranks, on Flambeau or on torch, and none of them outlives the test."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import socket
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flambeau import distributed

needs_mpi = pytest.mark.skipif(not distributed.is_mpi_available(), reason="needs an MPI: pip install mpi4py mpich")


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# All are forked off one process that has imported the libraries, which takes longer than most programs here.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["pytest", "flambeau.distributed", "flambeau.inductor.graph", "torch.distributed.rpc"])


def _main(program: Callable, rank: int, world: int, library: str, env: dict[str, str], args: tuple, out: str) -> None:
    os.environ.clear()
    os.environ.update(env, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    torch = importlib.import_module(library)
    torch.set_num_threads(1)
    try:
        result: tuple = ("ok", program(torch, rank, world, *args))
    except Exception:
        result = ("error", traceback.format_exc())
    Path(f"{out}.new").write_bytes(pickle.dumps(result))
    os.replace(f"{out}.new", out)
    os._exit(0 if result[0] == "ok" else 1)


class Ranks:
    """Processes of one run, ended with it."""

    def __init__(self, program: Callable, world: int, *args: Any, library: str = "flambeau", env: dict[str, str] | None = None) -> None:
        self.folder = tempfile.TemporaryDirectory()
        env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", **(env or {})}
        self.files = [Path(self.folder.name) / str(rank) for rank in range(world)]
        self.processes = [
            _context.Process(target=_main, args=(program, rank, world, library, env, args, str(self.files[rank])), daemon=True)
            for rank in range(world)
        ]

    def __enter__(self) -> Ranks:
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        self.folder.cleanup()

    def result(self, rank: int) -> tuple[str, Any] | None:
        """("ok", what the program returned), ("error", a traceback), or None for a process that left nothing."""
        return pickle.loads(self.files[rank].read_bytes()) if self.files[rank].exists() else None

    def wait(self, timeout: float = 60) -> list:
        """The results of all; AssertionError with the traceback of the first rank that failed, or is late."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and any(p.is_alive() for p in self.processes):
            for rank, process in enumerate(self.processes):
                if not process.is_alive() and process.exitcode:
                    raise AssertionError(f"rank {rank} ended with {process.exitcode}: {(self.result(rank) or ('', 'nothing said'))[1]}")
            time.sleep(0.01)
        found = [self.result(rank) for rank in range(len(self.processes))]
        late = [rank for rank, result in enumerate(found) if result is None]
        assert not late, f"ranks {late} did not end within {timeout} s"
        assert all(kind == "ok" for kind, _ in found), next(text for kind, text in found if kind != "ok")  # type: ignore[misc]
        return [value for _, value in found]  # type: ignore[misc]


def run(program: Callable, world: int, *args: Any, library: str = "flambeau", env: dict[str, str] | None = None,
        timeout: float = 60) -> list:
    """What `program(torch, rank, world, *args)` returns in each of `world` processes."""
    with Ranks(program, world, *args, library=library, env=env) as ranks:
        return ranks.wait(timeout)
