"""Rendezvous: the launchers of a job's machines agree on who takes part in a round, and in which order."""

from __future__ import annotations

import abc
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ...stores import Store
from ..utils import get_free_port


class RendezvousError(Exception):
    """Something is wrong with a rendezvous."""


class RendezvousClosedError(RendezvousError):
    """It is over."""


class RendezvousTimeoutError(RendezvousError):
    """Not enough machines came in time."""


class RendezvousConnectionError(RendezvousError):
    """What it is held in can't be reached."""


class RendezvousStateError(RendezvousError):
    """Its state makes no sense."""


class RendezvousGracefulExitError(RendezvousError):
    """It is over, and this machine was never needed: no failure."""


@dataclass
class RendezvousStoreInfo:
    """Where the processes of a round find their store."""

    MASTER_ADDR_KEY: ClassVar[str] = "MASTER_ADDR"
    MASTER_PORT_KEY: ClassVar[str] = "MASTER_PORT"

    master_addr: str
    master_port: int

    @staticmethod
    def build(rank: int, store: Store, local_addr: str | None = None, server_port: int | None = None) -> RendezvousStoreInfo:
        """This machine's address and a free port (or `server_port`) where `rank` is 0; the others read them in `store`."""
        if rank == 0:
            store.set(RendezvousStoreInfo.MASTER_ADDR_KEY, local_addr or socket.getfqdn())
            store.set(RendezvousStoreInfo.MASTER_PORT_KEY, str(server_port or get_free_port()))
        where = store.multi_get([RendezvousStoreInfo.MASTER_ADDR_KEY, RendezvousStoreInfo.MASTER_PORT_KEY])
        return RendezvousStoreInfo(where[0].decode(), int(where[1]))


@dataclass
class RendezvousInfo:
    """A round: its own part of the store, this machine's number, how many there are, and where their processes find each other."""

    store: Store
    rank: int
    world_size: int
    bootstrap_store_info: RendezvousStoreInfo


class RendezvousHandler(abc.ABC):
    """A launcher's side of a rendezvous."""

    @abc.abstractmethod
    def get_backend(self) -> str:
        """What it is held in."""

    @property
    def use_agent_store(self) -> bool:
        """Whether processes use the launcher's store, rather than make one of their own."""
        return False

    @abc.abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Take part in the next round, once it is complete. RendezvousClosedError, RendezvousTimeoutError."""

    @abc.abstractmethod
    def is_closed(self) -> bool:
        """Whether it is over: no further round will be."""

    @abc.abstractmethod
    def set_closed(self) -> None:
        """End it for all."""

    @abc.abstractmethod
    def num_nodes_waiting(self) -> int:
        """How many machines wait for the next round: who sees some begins one."""

    @abc.abstractmethod
    def get_run_id(self) -> str:
        """The job's name."""

    @abc.abstractmethod
    def shutdown(self) -> bool:
        """End it, and what was used for it; whether that went well."""

    def lost_nodes(self) -> list[str]:
        """Machines of this round that give no sign any more, if such a thing is noticed here."""
        return []


class RendezvousParameters:
    """What a handler is made of: `backend`, its `endpoint` (HOST[:PORT]), the job's name, how many machines, and further settings."""

    def __init__(self, backend: str, endpoint: str, run_id: str, min_nodes: int, max_nodes: int, local_addr: str | None = None,
                 **kwargs: Any) -> None:
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        if min_nodes < 1:
            raise ValueError(f"The minimum number of rendezvous nodes ({min_nodes}) must be greater than zero.")
        if max_nodes < min_nodes:
            raise ValueError(f"The maximum number of rendezvous nodes ({max_nodes}) must be greater than or equal to the minimum number of "
                             f"rendezvous nodes ({min_nodes}).")
        self.backend, self.endpoint, self.run_id, self.config = backend, endpoint, run_id, kwargs
        self.min_nodes, self.max_nodes, self.local_addr = min_nodes, max_nodes, local_addr

    def get(self, key: str, default: Any = None) -> Any:
        """A further setting."""
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        """The same as True or False; ValueError if it is neither."""
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        words = {"1": True, "true": True, "t": True, "yes": True, "y": True, "0": False, "false": False, "f": False, "no": False, "n": False}
        if str(value).lower() not in words:
            raise ValueError(f"The rendezvous configuration option '{key}' does not represent a valid boolean value: {value!r}")
        return words[str(value).lower()]

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        """The same as a number; ValueError if it is none."""
        value = self.get(key, default)
        try:
            return value if value is None else int(value)
        except ValueError as error:
            raise ValueError(f"The rendezvous configuration option '{key}' does not represent a valid integer value: {value!r}") from error


RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Who makes the handlers of a backend."""

    def __init__(self) -> None:
        self._creators: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Let `creator(parameters)` make the handlers of `backend`."""
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        if self._creators.get(backend, creator) is not creator:
            raise ValueError(f"The rendezvous backend '{backend}' cannot be registered with '{creator}' as it is already registered with "
                             f"'{self._creators[backend]}'.")
        self._creators[backend] = creator

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """A handler for these parameters."""
        if params.backend not in self._creators:
            raise ValueError(f"The rendezvous backend '{params.backend}' is not registered; there are {', '.join(sorted(self._creators))}")
        handler = self._creators[params.backend](params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(f"The rendezvous backend '{handler.get_backend()}' does not match the requested backend '{params.backend}'.")
        return handler


rendezvous_handler_registry = RendezvousHandlerRegistry()
