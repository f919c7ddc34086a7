"""torchrun: start a program as several processes, on one machine or several, and end them together.

    torchrun --standalone --nproc-per-node=4 train.py --lr 0.1
    torchrun --nnodes=2 --nproc-per-node=8 --rdzv-endpoint=host0:29400 --max-restarts=3 train.py

Each process finds RANK, LOCAL_RANK, WORLD_SIZE and its like in its environment. `import torch` means Flambeau in it. The launcher of the
first machine holds the store. When a process fails, or a launcher is stopped, all processes end: told to at first, killed after a while,
and killed by the system where a launcher itself is killed. With restarts left, all start again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ..multiprocessing import end_with_parent
from .errors import DistError
from .stores import PrefixStore, Store
from .tcp_store import TCPStore

_GRACE = 10.0  # seconds between telling processes to end and killing them
_PORT = 29400


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchrun", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def option(name: str, **how: Any) -> None:
        names = {name, "--" + name[2:].replace("-", "_")} if name.startswith("--") else {name}
        parser.add_argument(*sorted(names), **how)

    option("--nnodes", default="1", help="machines; all must come (MIN:MAX is taken as MAX where both are equal)")
    option("--nproc-per-node", default="1", help="processes on this machine: a number, or auto, cpu (one a core), gpu (one a GPU)")
    option("--standalone", action="store_true", help="one machine, any free port")
    option("--rdzv-backend", default="", choices=("", "c10d", "static"), help="static: machines are numbered by --node-rank")
    option("--rdzv-endpoint", default="", help="HOST[:PORT] of the first machine")
    option("--rdzv-id", default="", help="the job's name, the same on all machines")
    option("--rdzv-conf", default="", help="join_timeout=SECONDS, and is_host=0|1: whether this launcher holds the store")
    option("--max-restarts", type=int, default=0, help="how often all processes start again after one has failed")
    option("--monitor-interval", type=float, default=0.1, help="seconds between looks")
    option("--node-rank", type=int, default=None, help="this machine's number, where machines don't number themselves")
    option("--master-addr", default="", help="the first machine, with --node-rank")
    option("--master-port", type=int, default=None, help="its port")
    option("--local-addr", default="", help="this machine's address for the others")
    option("--role", default="default", help="the processes' ROLE_NAME")
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module's name")
    option("--no-python", action="store_true", help="the program is a command, not Python")
    option("training_script", help="the program")
    option("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


@dataclass
class Job:
    """What is to be started here, and with whom."""

    command: list[str]
    local: int
    nodes: int
    node_rank: int | None
    host: str
    port: int
    is_host: bool | None
    name: str
    restarts: int
    interval: float
    role: str
    timeout: timedelta
    address: str = ""
    processes: list[subprocess.Popen] = field(default_factory=list)


def _nodes(text: str) -> int:
    least, _, most = text.partition(":")
    if most and least != most:
        raise NotImplementedError(f"--nnodes={text}: a number of machines that changes is not implemented; say --nnodes={most}")
    return int(least)


def _local(text: str) -> int:
    if text in ("auto", "cpu"):
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if text == "gpu":
        raise NotImplementedError("--nproc-per-node=gpu: collectives between GPUs are not implemented; say how many processes")
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"Unsupported nproc_per_node value: {text}; it is a number, auto, cpu or gpu")
    return int(text)


def _job(args: argparse.Namespace) -> Job:
    conf: dict[str, str] = dict(part.split("=", 1) for part in args.rdzv_conf.split(",") if "=" in part)
    if unknown := conf.keys() - {"join_timeout", "timeout", "is_host", "last_call_timeout", "read_timeout"}:
        raise ValueError(f"--rdzv-conf: {', '.join(sorted(unknown))} mean nothing here; there are join_timeout, timeout and is_host")
    nodes = 1 if args.standalone else _nodes(args.nnodes)
    host, _, port = (args.rdzv_endpoint or args.master_addr).rpartition(":") if ":" in args.rdzv_endpoint else (
        args.rdzv_endpoint or args.master_addr, "", "")
    node_rank = args.node_rank if args.rdzv_backend != "c10d" else None
    if nodes > 1 and not host:
        raise ValueError(f"--nnodes={nodes} needs --rdzv-endpoint=HOST:PORT, the same on all machines")
    alone = args.standalone or (nodes == 1 and not host and args.master_port is None)
    is_host = {"1": True, "true": True, "0": False, "false": False}.get(conf.get("is_host", "").lower())
    return Job(
        command=_command(args), local=_local(args.nproc_per_node), nodes=nodes, node_rank=node_rank, host=host or "127.0.0.1",
        port=0 if alone else int(port or args.master_port or _PORT), is_host=True if nodes == 1 else is_host,
        name=args.rdzv_id or (uuid.uuid4().hex if nodes == 1 else "none"), restarts=args.max_restarts, interval=args.monitor_interval,
        role=args.role, timeout=timedelta(seconds=float(conf.get("join_timeout") or conf.get("timeout") or "600")), address=args.local_addr,
    )


def _command(args: argparse.Namespace) -> list[str]:
    if args.no_python:
        return [args.training_script, *args.training_script_args]
    module = ["-m"] if args.module else []
    return [sys.executable, "-u", "-m", "flambeau", "run", *module, args.training_script, *args.training_script_args]


# -- machines -------------------------------------------------------------------------------------------------------
def _store(job: Job) -> TCPStore:
    """The job's store, which this launcher holds if the endpoint is this machine's and nobody else holds it yet."""
    def made(master: bool) -> TCPStore:
        return TCPStore(job.host, job.port, None, master, job.timeout, wait_for_workers=False)

    if job.is_host is not None or job.node_rank is not None:
        return made(job.is_host if job.is_host is not None else job.node_rank == 0)
    if _is_here(job.host):
        with contextlib.suppress(DistError):  # another launcher of this machine may have it
            return made(True)
    return made(False)


def _is_here(host: str) -> bool:
    if host in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()):
        return True
    with contextlib.suppress(OSError):
        for family, kind, number, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, number) as probe:
                probe.bind(address)
                return True
    return False


def _node_rank(job: Job, store: Store) -> int:
    rank = store.add("nodes", 1) - 1 if job.node_rank is None else job.node_rank
    if rank >= job.nodes:
        raise ValueError(f"{rank + 1} launchers came to job {job.name!r}, which has {job.nodes} machines")
    return rank


def _environment(job: Job, store: TCPStore, node: int, counts: Sequence[int], attempt: int, i: int) -> dict[str, str]:
    before, world = sum(counts[:node]), sum(counts)
    told = {
        "RANK": before + i, "LOCAL_RANK": i, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": job.local, "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": job.nodes, "ROLE_RANK": before + i, "ROLE_WORLD_SIZE": world, "ROLE_NAME": job.role,
        "MASTER_ADDR": job.host, "MASTER_PORT": store.port, "TORCHELASTIC_RESTART_COUNT": attempt,
        "TORCHELASTIC_MAX_RESTARTS": job.restarts, "TORCHELASTIC_RUN_ID": job.name, "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    env = dict(os.environ) | {name: str(value) for name, value in told.items()}
    if job.local > 1:
        env.setdefault("OMP_NUM_THREADS", "1")
    return env


# -- processes ------------------------------------------------------------------------------------------------------
class _Stopped(Exception):
    """This launcher was told to end."""


def _stop(number: int, frame: Any) -> None:
    raise _Stopped(signal.Signals(number).name)


def _start(job: Job, environments: Sequence[dict[str, str]]) -> None:
    for env in environments:
        job.processes.append(subprocess.Popen(job.command, env=env, start_new_session=True, preexec_fn=end_with_parent))


def _end(job: Job) -> None:
    """End all processes of this machine, and what they started."""
    def tell(number: int) -> None:
        for process in job.processes:
            if number == signal.SIGKILL or process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)

    tell(signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    while time.monotonic() < deadline and any(process.poll() is None for process in job.processes):
        time.sleep(0.02)
    tell(signal.SIGKILL)
    for process in job.processes:
        process.wait()
    job.processes.clear()


def _watch(job: Job, store: Store, ranks: Sequence[int]) -> str:
    """Until all processes everywhere have ended well (""), or one has failed: what happened."""
    told = False
    while True:
        for rank, process in zip(ranks, job.processes):
            if process.poll():
                return store.compare_set("failed", "", _ending(rank, process)).decode()
        if store.check(["failed"]):
            return store.get("failed").decode()
        if not told and all(process.poll() == 0 for process in job.processes):
            store.add("ended", 1)
            told = True
        if told and store.add("ended", 0) >= job.nodes:
            return ""
        time.sleep(job.interval)


def _ending(rank: int, process: subprocess.Popen) -> str:
    code = process.returncode
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"rank {rank} (pid {process.pid} on {socket.gethostname()}) ended with {how}"


def _run(job: Job) -> int:
    store = _store(job)
    node = _node_rank(job, PrefixStore(job.name, store))
    for attempt in range(job.restarts + 1):
        place = PrefixStore(f"{job.name}/{attempt}", store)
        place.set(f"count/{node}", str(job.local))
        counts = [int(n) for n in place.multi_get([f"count/{n}" for n in range(job.nodes)])]
        _start(job, [_environment(job, store, node, counts, attempt, i) for i in range(job.local)])
        failure = _watch(job, place, range(sum(counts[:node]), sum(counts[: node + 1])))
        _end(job)
        if not failure:
            break
        left = job.restarts - attempt
        print(f"torchrun: {failure}; all processes were ended" + (f" and start again ({left} restarts left)" if left else ""),
              file=sys.stderr, flush=True)
    if store._server is not None:  # the others read what happened
        store._server.others_leave(2.0)
    return 1 if failure else 0


def main(args: Sequence[str] | None = None) -> None:
    """torchrun's command line; ends the process with 0, 1 (a process failed) or 130 and the like (stopped by a signal)."""
    try:
        job = _job(_parser().parse_args(args))
    except (ValueError, NotImplementedError) as error:
        raise SystemExit(f"torchrun: {error}") from None
    if job.nodes == 1:
        os.environ.setdefault("FLAMBEAU_JOB_SECRET", secrets.token_hex(16))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        code = _run(job)
    except _Stopped as stopped:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        code = 128 + signal.Signals[str(stopped)].value
    except DistError as error:
        raise SystemExit(f"torchrun: {error}") from None
    finally:
        _end(job)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
