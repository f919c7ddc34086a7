"""torchrun: start a program as several processes, on one machine or several, and end them together.

    torchrun --standalone --nproc-per-node=4 train.py --lr 0.1
    torchrun --nnodes=2 --nproc-per-node=8 --rdzv-endpoint=host0:29400 --max-restarts=3 train.py
    torchrun --nnodes=1:4 --nproc-per-node=8 --rdzv-endpoint=host0:29400 --max-restarts=3 train.py

Each process finds RANK, LOCAL_RANK, WORLD_SIZE and its like in its environment. `import torch` means Flambeau in it. The launcher of the
first machine holds the store. When a process fails, or a launcher is stopped, all processes end: told to at first, killed after a while,
and killed by the system where a launcher itself is killed. With restarts left, all start again; with --nnodes=MIN:MAX they also do when
a machine comes or goes, which counts as no restart.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from ..cuda.library import device_count
from .elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from .elastic.multiprocessing.errors import ChildFailedError
from .elastic.rendezvous import RendezvousError
from .errors import DistError
from .launcher import LaunchConfig, launch_agent

_PORT = 29400
_SETTINGS = {"join_timeout", "timeout", "is_host", "last_call_timeout", "read_timeout", "close_timeout", "heartbeat_timeout",
             "keep_alive_interval", "keep_alive_max_attempt", "store_type"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchrun", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def option(name: str, **how: Any) -> None:
        names = {name, "--" + name[2:].replace("-", "_")} if name.startswith("--") else {name}
        parser.add_argument(*sorted(names), **how)

    option("--nnodes", default="1", help="machines: how many, or MIN:MAX")
    option("--nproc-per-node", default="1", help="processes on this machine: a number, or auto, cpu (one a core), gpu (one a GPU)")
    option("--standalone", action="store_true", help="one machine, any free port")
    option("--rdzv-backend", default="", help="c10d, or one that is registered; static: machines are numbered by --node-rank")
    option("--rdzv-endpoint", default="", help="HOST[:PORT] of the first machine")
    option("--rdzv-id", default="", help="the job's name, the same on all machines")
    option("--rdzv-conf", default="", help=f"NAME=VALUE,...: {', '.join(sorted(_SETTINGS))}")
    option("--max-restarts", type=int, default=0, help="how often all processes start again after one has failed")
    option("--monitor-interval", type=float, default=0.1, help="seconds between looks")
    option("--node-rank", type=int, default=None, help="this machine's number, where machines don't number themselves")
    option("--master-addr", default="", help="the first machine, with --node-rank")
    option("--master-port", type=int, default=None, help="its port")
    option("--local-addr", default="", help="this machine's address for the others")
    option("--role", default="default", help="the processes' ROLE_NAME")
    option("--start-method", default="spawn", choices=("spawn", "fork", "forkserver"), help="how processes of functions are started")
    option("--log-dir", default=None, help="the folder for what processes print and for their errors")
    option("--redirects", default="0", help="what goes there instead of being shown: 1 output, 2 errors, 3 both, or RANK:0..3,...")
    option("--tee", default="0", help="what goes there and is shown as well, with a prefix")
    option("--local-ranks-filter", default="", help="local ranks that are shown at all: 0,1")
    option("--event-log-handler", default="null", help="where events are written: null, console, or one that is registered")
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module's name")
    option("--no-python", action="store_true", help="the program is a command, not Python")
    option("training_script", help="the program")
    option("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def _nodes(text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    if not least.isdigit() or not (most or least).isdigit():
        raise ValueError(f"nnodes={text} is not in \"MIN:MAX\" format, nor a number")
    return int(least), int(most or least)


def _local(text: str) -> int:
    gpus = device_count() if text in ("auto", "gpu") else 0
    if gpus:
        return gpus
    if text in ("auto", "cpu"):
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if text == "gpu":
        raise ValueError("--nproc-per-node=gpu: there is no GPU here")
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"Unsupported nproc_per_node value: {text}; it is a number, auto, cpu or gpu")
    return int(text)


def _config(args: argparse.Namespace) -> LaunchConfig:
    conf: dict[str, Any] = dict(part.split("=", 1) for part in args.rdzv_conf.split(",") if "=" in part)
    backend = args.rdzv_backend or ("static" if args.node_rank is not None and not args.standalone else "c10d")
    if backend in ("c10d", "static") and (unknown := conf.keys() - _SETTINGS):
        raise ValueError(f"--rdzv-conf: {', '.join(sorted(unknown))} mean nothing here; there are {', '.join(sorted(_SETTINGS))}")
    least, most = (1, 1) if args.standalone else _nodes(args.nnodes)
    endpoint = "" if args.standalone else args.rdzv_endpoint or args.master_addr
    if most > 1 and not endpoint and backend in ("c10d", "static"):
        raise ValueError(f"--nnodes={args.nnodes} needs --rdzv-endpoint=HOST:PORT, the same on all machines")
    if not endpoint and (args.master_port is not None or backend == "static"):
        endpoint = "127.0.0.1"
    if endpoint and ":" not in endpoint:
        endpoint = f"{endpoint}:{args.master_port or _PORT}"
    if backend == "static":
        if most > 1 and args.node_rank is None:
            raise ValueError("--rdzv-backend=static needs --node-rank, this machine's number")
        conf["rank"] = args.node_rank or 0
    elif most == 1:
        conf.setdefault("is_host", "1")
    if backend == "c10d" and "timeout" in conf:
        conf.setdefault("join_timeout", conf["timeout"])
    shown = {int(rank) for rank in args.local_ranks_filter.split(",")} if args.local_ranks_filter else None
    return LaunchConfig(
        min_nodes=least, max_nodes=most, nproc_per_node=_local(args.nproc_per_node), run_id=args.rdzv_id or (
            uuid.uuid4().hex if most == 1 else "none"), role=args.role, rdzv_endpoint=endpoint, rdzv_backend=backend, rdzv_configs=conf,
        max_restarts=args.max_restarts, monitor_interval=args.monitor_interval, start_method=args.start_method,
        local_addr=args.local_addr or None, event_log_handler=args.event_log_handler,
        logs_specs=DefaultLogsSpecs(args.log_dir, Std.from_str(args.redirects), Std.from_str(args.tee), shown))


def _command(args: argparse.Namespace) -> list[str]:
    if args.no_python:
        return [args.training_script, *args.training_script_args]
    module = ["-m"] if args.module else []
    return [sys.executable, "-u", "-m", "flambeau", "run", *module, args.training_script, *args.training_script_args]


def main(args: Sequence[str] | None = None) -> None:
    """torchrun's command line; ends the process with 0, 1 (a process failed) or 130 and the like (stopped by a signal)."""
    given = _parser().parse_args(args)
    try:
        config = _config(given)
    except ValueError as error:
        raise SystemExit(f"torchrun: {error}") from None
    if config.max_nodes == 1:
        os.environ.setdefault("FLAMBEAU_JOB_SECRET", secrets.token_hex(16))
    program, *rest = _command(given)
    try:
        launch_agent(config, program, rest)
    except ChildFailedError:
        raise SystemExit(1) from None  # the launcher has said which process, the process why
    except SignalException as stopped:
        raise SystemExit(128 + stopped.sigval) from None
    except (DistError, RendezvousError, ValueError) as error:
        raise SystemExit(f"torchrun: {error}") from None
    raise SystemExit(0)


if __name__ == "__main__":
    main()
