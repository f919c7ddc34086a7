"""How processes find each other: a URL or the environment leads to a store, a rank and a number of processes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from ..core.settings import told
from .engines import mpi
from .stores import DEFAULT_TIMEOUT, FileStore, PrefixStore, Store
from .tcp_store import TCPStore

Found = tuple[Store, int, int]
_handlers: dict[str, Callable[..., Iterator[Found]]] = {}


def register_rendezvous_handler(scheme: str, handler: Callable[..., Iterator[Found]]) -> None:
    """Let `handler(url, timeout=...)` yield (store, rank, world size) for URLs `scheme://...`."""
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[Found]:
    """(store, rank, world size) for a URL such as env://, tcp://host:port?rank=0&world_size=2 or file:///path."""
    if not isinstance(url, str):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    if not isinstance(rank, int) or not isinstance(world_size, int):
        raise RuntimeError(f"`rank` and `world_size` must be integers, not {rank!r} and {world_size!r}")
    parts = urlsplit(url)
    if parts.scheme not in _handlers:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://; there are {', '.join(sorted(_handlers))}")
    given = {"rank": rank, "world_size": world_size}
    query = dict(parse_qsl(parts.query)) | {name: str(value) for name, value in given.items() if value != -1}
    if query:
        url = parts._replace(query="&".join(f"{name}={value}" for name, value in query.items())).geturl()
    return _handlers[parts.scheme](url, **kwargs)


def _missing(url: str, what: str) -> ValueError:
    return ValueError(f"Error initializing torch.distributed using {urlsplit(url).scheme}:// rendezvous: {what}")


def _from_env(url: str, timeout: timedelta = DEFAULT_TIMEOUT) -> Iterator[Found]:
    query = dict(parse_qsl(urlsplit(url).query))
    if not {"rank", "world_size"} <= query.keys() and not told("RANK") and mpi.launched() and mpi.available():
        yield _from_mpi(timeout)
        return

    def value(name: str, argument: str | None = None) -> str:
        found = query.get(argument or "") or told(name) or _slurm().get(name)
        if found is None:
            raise _missing(url, f"environment variable {name} expected, but not set")
        return found

    rank, size = int(value("RANK", "rank")), int(value("WORLD_SIZE", "world_size"))
    host, port = value("MASTER_ADDR"), int(value("MASTER_PORT"))
    served = told("TORCHELASTIC_USE_AGENT_STORE") == "True"  # the launcher has the store
    store: Store = TCPStore(host, port, size, rank == 0 and not served, timeout, wait_for_workers=False, multi_tenant=True)
    if served:
        store = PrefixStore(f"attempt_{told('FLAMBEAU_ROUND') or told('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    yield store, rank, size


def _slurm() -> dict[str, str]:
    """What `srun` tells a process, by torch's names."""
    names = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "MASTER_ADDR": "SLURM_LAUNCH_NODE_IPADDR"}
    found = {name: told(theirs) for name, theirs in names.items() if told(theirs)}
    return found | ({"MASTER_PORT": str(20000 + int(job) % 20000)} if (job := told("SLURM_JOB_ID")) else {})


def _from_mpi(timeout: timedelta) -> Found:
    """Under mpiexec: rank and size are MPI's, rank 0 has the store at any free port."""
    rank, size = mpi.launched_as()
    world = mpi.load().COMM_WORLD
    store = TCPStore(socket.gethostname(), 0, size, True, timeout, wait_for_workers=False) if rank == 0 else None
    host, port = world.bcast((store.host, store.port) if store is not None else None)
    return store or TCPStore(host, port, size, False, timeout, wait_for_workers=False), rank, size


def _parsed(url: str) -> tuple[SplitResult, int, int]:
    """The parts of a URL, and the rank and world size that it names."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    for what in ("rank", "world_size"):
        if what not in query:
            raise _missing(url, f"{what.replace('_', ' ')} parameter missing")
    return parts, int(query["rank"]), int(query["world_size"])


def _from_tcp(url: str, timeout: timedelta = DEFAULT_TIMEOUT) -> Iterator[Found]:
    parts, rank, size = _parsed(url)
    if parts.port is None or parts.hostname is None:
        raise _missing(url, "port number missing")
    yield TCPStore(parts.hostname, parts.port, size, rank == 0, timeout, wait_for_workers=False, multi_tenant=True), rank, size


def _from_file(url: str, timeout: timedelta = DEFAULT_TIMEOUT) -> Iterator[Found]:
    parts, rank, size = _parsed(url)
    if not parts.path or parts.netloc:
        raise _missing(url, "path missing (file:///path/of/a/file)")
    store = FileStore(parts.path, size)
    store.set_timeout(timeout)
    yield store, rank, size


register_rendezvous_handler("env", _from_env)
register_rendezvous_handler("tcp", _from_tcp)
register_rendezvous_handler("file", _from_file)
