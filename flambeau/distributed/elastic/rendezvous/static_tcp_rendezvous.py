"""Machines that number themselves: all come, always the same."""

from __future__ import annotations

from datetime import timedelta

from ...stores import PrefixStore
from ...tcp_store import TCPStore
from . import RendezvousHandler, RendezvousInfo, RendezvousParameters, RendezvousStoreInfo
from .utils import parse_rendezvous_endpoint


class StaticTCPRendezvous(RendezvousHandler):
    """Machine `rank` of `world_size`; number 0 serves the store at `master_addr:master_port`."""

    def __init__(self, master_addr: str, master_port: int, rank: int, world_size: int, run_id: str, timeout: float) -> None:
        self.master_addr, self.master_port, self.rank, self.world_size = master_addr, master_port, rank, world_size
        self.run_id, self.timeout = run_id, timedelta(seconds=timeout)
        self._store: TCPStore | None = None
        self._round = -1

    def get_backend(self) -> str:
        return "static"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        if self._store is None:
            self._store = TCPStore(self.master_addr, self.master_port, None, self.rank == 0, self.timeout, wait_for_workers=False)
        self._round += 1
        return RendezvousInfo(PrefixStore(f"{self.run_id}/{self._round}", self._store), self.rank, self.world_size,
                              RendezvousStoreInfo(self.master_addr, self._store.port))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Nothing: each machine's launcher is told by the others' failures."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.run_id

    def shutdown(self) -> bool:
        if self._store is not None:
            self._store.leave()
        return True


def create_rdzv_handler(params: RendezvousParameters) -> StaticTCPRendezvous:
    """The handler for `endpoint`, `max_nodes` and the setting `rank`."""
    if (rank := params.get_as_int("rank")) is None or not 0 <= rank < params.max_nodes:
        raise ValueError(f"a static rendezvous needs rank=, this machine's number among {params.max_nodes}; it is {rank}")
    host, port = parse_rendezvous_endpoint(params.endpoint, -1)
    if port < 0:
        raise ValueError(f"a static rendezvous needs HOST:PORT as its endpoint, not {params.endpoint!r}")
    return StaticTCPRendezvous(host, port, rank, params.max_nodes, params.run_id, params.get("timeout", 600))
