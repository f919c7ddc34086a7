"""Events of launchers and processes, written as JSON to a logging handler that has a name."""

from __future__ import annotations

import functools
import json
import logging
import os
import socket
import traceback
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

_HANDLERS: dict[str, logging.Handler] = {"console": logging.StreamHandler(), "null": logging.NullHandler(),
                                         "dynamic_rendezvous": logging.NullHandler()}
EventMetadataValue = str | int | float | bool | None


class EventSource(str, Enum):  # noqa: UP042 - shown as torch's
    """Who says it."""

    AGENT, WORKER = "AGENT", "WORKER"


class NodeState(str, Enum):  # noqa: UP042 - shown as torch's
    """How it goes with a machine in a rendezvous."""

    INIT, RUNNING, SUCCEEDED, FAILED = "INIT", "RUNNING", "SUCCEEDED", "FAILED"


class _Written:
    """Dataclasses to JSON and back."""

    def serialize(self) -> str:
        """As JSON."""
        return json.dumps({k: v.value if isinstance(v, Enum) else v for k, v in asdict(self).items()})  # type: ignore[call-overload]

    __str__ = serialize

    @classmethod
    def deserialize(cls, data: Any) -> Any:
        """The event of a JSON text; an event is itself."""
        return data if isinstance(data, cls) else cls(**json.loads(data))


@dataclass
class Event(_Written):
    """Something that happened: its name, who says it, milliseconds since 1970, and whatever else there is to know."""

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, EventMetadataValue] = field(default_factory=dict)

    __str__ = _Written.serialize

    def __post_init__(self) -> None:
        self.source = EventSource(self.source)


@dataclass
class RdzvEvent(_Written):
    """A step of a rendezvous, on this machine."""

    name: str
    run_id: str
    message: str
    hostname: str
    pid: int
    node_state: NodeState
    master_endpoint: str = ""
    rank: int | None = None
    local_id: int | None = None
    error_trace: str = ""

    __str__ = _Written.serialize

    def __post_init__(self) -> None:
        self.node_state = NodeState(self.node_state)


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """The handler of that name: "console", "null", or one entered in `_HANDLERS`."""
    if destination not in _HANDLERS:
        raise KeyError(f"no handler of events is called {destination!r}; there are {', '.join(_HANDLERS)}")
    return _HANDLERS[destination]


@functools.cache
def _logger(destination: str) -> logging.Logger:
    logger = logging.getLogger(f"torchelastic-events-{destination}")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(get_logging_handler(destination))
    return logger


def record(event: Event, destination: str = "null") -> None:
    """Write an event to the handler called `destination`."""
    _logger(destination).info(event.serialize())


def record_rdzv_event(event: RdzvEvent) -> None:
    """Write a step of a rendezvous to "dynamic_rendezvous"."""
    _logger("dynamic_rendezvous").info(event.serialize())


def construct_and_record_rdzv_event(run_id: str, message: str, node_state: NodeState, name: str = "", hostname: str = "",
                                    pid: int | None = None, master_endpoint: str = "", local_id: int | None = None,
                                    rank: int | None = None) -> None:
    """The same, of its parts: this machine and process, and the traceback of the exception that is being handled."""
    error = traceback.format_exc() if node_state == NodeState.FAILED else ""
    record_rdzv_event(RdzvEvent(name, run_id, message, hostname or socket.getfqdn(), pid or os.getpid(), node_state, master_endpoint, rank,
                                local_id, error))
