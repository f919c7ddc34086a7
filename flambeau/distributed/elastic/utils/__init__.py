"""Small things that launchers need: free ports, and meetings of processes in a store."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import string
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from ....core.settings import told
from ...stores import Store
from ...tcp_store import TCPStore


def get_env_variable_or_raise(env_name: str) -> str:
    """What a variable of the environment says; ValueError if it is not set."""
    if (value := os.environ.get(env_name)) is None:
        raise ValueError(f"Environment variable {env_name} expected, but not set")
    return value


class macros:
    """What may stand in the arguments of a program, in the place of what only its process knows."""

    local_rank = "${local_rank}"

    @staticmethod
    def substitute(args: list[Any], local_rank: str) -> list[str]:
        """The arguments of the process with that local rank."""
        return [string.Template(arg).safe_substitute(local_rank=local_rank) if isinstance(arg, str) else arg for arg in args]


def get_socket_with_port() -> socket.socket:
    """A socket that has a free port of this machine: close it, and use the port at once."""
    found = socket.socket()
    found.bind(("localhost", 0))
    found.listen(0)
    return found


def get_free_port() -> int:
    """A port that is free now."""
    with get_socket_with_port() as found:
        return found.getsockname()[1]


def create_c10d_store(is_server: bool, server_addr: str, server_port: int = -1, world_size: int = 1, timeout: float = 600,
                      wait_for_workers: bool = True, retries: int = 3, use_libuv: bool | None = None) -> TCPStore:
    """A TCPStore, which this process serves with `is_server`, on any free port without one. `retries` and `use_libuv` change nothing: a
    client tries until `timeout`, and a free port is the system's choice."""
    del retries, use_libuv
    if not is_server and server_port < 1:
        raise ValueError(f"server_port must be specified when starting a client; it is {server_port}")
    return TCPStore(server_addr, max(server_port, 0), world_size, is_server, timedelta(seconds=timeout), wait_for_workers)


def get_logger(name: str | None = None) -> logging.Logger:
    """A logger, at the level that LOGLEVEL says."""
    logger = logging.getLogger(name or __name__)
    logger.setLevel(told("LOGLEVEL", "WARNING").upper())
    return logger


@contextlib.contextmanager
def store_timeout(store: Store, timeout: float) -> Iterator[None]:
    """Within, `store` waits so many seconds."""
    before = store.timeout
    store.set_timeout(timedelta(seconds=timeout))
    try:
        yield
    finally:
        store.set_timeout(before)


def get_all(store: Store, rank: int, prefix: str, world_size: int) -> list[bytes]:
    """Everyone's `prefix + rank`, once all are there; the process with rank 0 does not leave before all have read them."""
    found = store.multi_get([f"{prefix}{i}" for i in range(world_size)])
    if store.add(f"{prefix}.read", 1) == world_size:
        store.set(f"{prefix}.all", "1")
    if rank == 0:
        store.wait([f"{prefix}.all"])
    return found


def synchronize(store: Store, data: bytes, rank: int, world_size: int, key_prefix: str, timeout: float = 300) -> list[bytes]:
    """Everyone's `data`, by rank. DistStoreError after `timeout` seconds."""
    with store_timeout(store, timeout):
        store.set(f"{key_prefix}{rank}", data)
        return get_all(store, rank, key_prefix, world_size)


def barrier(store: Store, world_size: int, key_prefix: str, barrier_timeout: float = 300, rank: int | None = None,
            rank_tracing_decoder: Callable[[int], str] | None = None, trace_timeout: float = 10) -> None:
    """Until `world_size` processes are here. DistStoreError after `barrier_timeout` seconds, with the ranks that are not, if `rank` says
    who this is (`rank_tracing_decoder` names them)."""
    if rank is not None:
        store.set(f"{key_prefix}.here.{rank}", "1")
    with store_timeout(store, barrier_timeout):
        if store.add(f"{key_prefix}.count", 1) == world_size:
            store.set(f"{key_prefix}.last", "1")
        try:
            store.wait([f"{key_prefix}.last"])
        except RuntimeError as error:
            if rank is None:
                raise
            with store_timeout(store, trace_timeout):
                late = [r for r in range(world_size) if not store.check([f"{key_prefix}.here.{r}"])]
            names = ", ".join(map(rank_tracing_decoder or str, late))
            raise type(error)(f"{error}; not in the barrier: {names}") from None
