"""A rendezvous of machines that come and go, by a small state that all of them change by compare-and-set.

A round fills up until it has the most machines, or at least the fewest and nobody new for a while (`last_call`). Who comes later waits;
the launchers of the round see that, end their processes, and begin the next one, in which all meet. So does who wants another round
because a process failed. Signs of life are counters, watched with one's own clock: machines' clocks need not agree.
"""

from __future__ import annotations

import abc
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from ...stores import PrefixStore, Store
from ...tcp_store import TCPStore
from . import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

_PAUSE = 0.1  # seconds between looks at the state


class RendezvousBackend(abc.ABC):
    """Keeps the state of a rendezvous: bytes, with a token that tells which write they are of."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What it is called."""

    @abc.abstractmethod
    def get_state(self) -> tuple[bytes, Any] | None:
        """The state and its token, if there is one."""

    @abc.abstractmethod
    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        """Write, if the state is still that of `token`; the state now, its token, and whether it was written."""

    def close(self) -> bool:
        """It is used no more; whether there was something to close."""
        return False


class RendezvousTimeout:
    """How long things may take: to `join` (10 minutes); the `last_call` after enough have come (30 s); to `close` (30 s); one `heartbeat`
    (5 s)."""

    def __init__(self, join: timedelta | None = None, last_call: timedelta | None = None, close: timedelta | None = None,
                 heartbeat: timedelta | None = None) -> None:
        given = {"join": (join, 600), "last_call": (last_call, 30), "close": (close, 30), "heartbeat": (heartbeat, 5)}
        self._times = {name: timedelta(seconds=usual) if time is None else time for name, (time, usual) in given.items()}
        for name, length in self._times.items():
            if length <= timedelta(0):
                raise ValueError(f"The {name} timeout ({length}) must be positive.")

    join = property(lambda self: self._times["join"])
    last_call = property(lambda self: self._times["last_call"])
    close = property(lambda self: self._times["close"])
    heartbeat = property(lambda self: self._times["heartbeat"])


@dataclass(frozen=True)
class RendezvousSettings:
    """A job's name, how many machines it has, how long things may take, and how often machines give a sign of life and may miss it."""

    run_id: str
    min_nodes: int
    max_nodes: int
    timeout: RendezvousTimeout
    keep_alive_interval: timedelta
    keep_alive_max_attempt: int


@dataclass
class _State:
    """What all machines see: `members` of the round in the order of their ranks, `waiting` for the next one, and signs of life."""

    round: int = 0
    complete: bool = False
    closed: bool = False
    members: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    beats: dict[str, int] = field(default_factory=dict)


class DynamicRendezvousHandler(RendezvousHandler):
    """A machine in a dynamic rendezvous; made by `from_backend` or `create_handler`."""

    _made = itertools.count()

    def __init__(self, node: str, settings: RendezvousSettings, backend: RendezvousBackend, store: Store, local_addr: str | None) -> None:
        if not settings.run_id:
            raise ValueError("The run id must be a non-empty string.")
        if settings.min_nodes < 1 or settings.max_nodes < settings.min_nodes:
            raise ValueError(f"The number of nodes must be positive and the maximum ({settings.max_nodes}) no less than the minimum "
                             f"({settings.min_nodes}).")
        self._node, self._settings, self._backend, self._store, self._addr = node, settings, backend, store, local_addr
        self._round, self._was_waiting = -1, False  # the round that this machine is in
        self._seen: dict[str, tuple[int, float]] = {}  # the last sign of each machine, and when it was seen
        self._grown: tuple[tuple[str, ...], float] = ((), 0.0)  # the members of a round that fills, and when the last one came
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._heart: threading.Thread | None = None

    @classmethod
    def from_backend(cls, run_id: str, store: Store, backend: RendezvousBackend, min_nodes: int, max_nodes: int,
                     local_addr: str | None = None, timeout: RendezvousTimeout | None = None, keep_alive_interval: int = 5,
                     keep_alive_max_attempt: int = 3) -> DynamicRendezvousHandler:
        """A handler of this machine (`local_addr`), whose state is in `backend`; rounds get their own parts of `store`."""
        node = f"{local_addr or socket.getfqdn()}_{os.getpid()}_{next(cls._made)}"
        settings = RendezvousSettings(run_id, min_nodes, max_nodes, timeout or RendezvousTimeout(), timedelta(seconds=keep_alive_interval),
                                      keep_alive_max_attempt)
        return cls(node, settings, backend, store, local_addr)

    @property
    def settings(self) -> RendezvousSettings:
        """What it was made with."""
        return self._settings

    def get_backend(self) -> str:
        return self._backend.name

    def get_run_id(self) -> str:
        return self._settings.run_id

    @property
    def use_agent_store(self) -> bool:
        return isinstance(self._store, TCPStore)

    # -- the state ----------------------------------------------------------------------------------------------------------------
    def _change(self, change: Callable[[_State], Any]) -> Any:
        """What `change(state)` returns, once what it did to the state is everyone's."""
        with self._lock:
            found = self._backend.get_state()
            while True:
                text, token = found or (b"", None)
                state = self._decoded(text)
                answer = change(state)
                made = json.dumps(asdict(state)).encode()
                if made == text:
                    return answer
                written = self._backend.set_state(made, token)
                if written is not None and written[2]:
                    return answer
                found = written[:2] if written is not None else self._backend.get_state()

    @staticmethod
    def _decoded(text: bytes) -> _State:
        try:
            return _State(**json.loads(text)) if text else _State()
        except (ValueError, TypeError) as error:
            raise RendezvousStateError(f"The rendezvous state is corrupt. See inner exception for details: {error}") from error

    def _gone(self, state: _State) -> list[str]:
        """The machines that have given no sign for too long."""
        now, patience = time.monotonic(), self._settings.keep_alive_interval.total_seconds() * self._settings.keep_alive_max_attempt
        known = {*state.members, *state.waiting} - {self._node}
        self._seen = {node: seen for node, seen in self._seen.items() if node in known}
        for node in known:
            if self._seen.get(node, (-1, 0.0))[0] != (beat := state.beats.get(node, 0)):
                self._seen[node] = (beat, now)
        return [node for node, (_, when) in self._seen.items() if now - when > patience]

    # -- a round ------------------------------------------------------------------------------------------------------------------
    def next_rendezvous(self) -> RendezvousInfo:
        """The next round, once it is complete. RendezvousTimeoutError after the time to join; RendezvousClosedError, or for a machine that
        only waited RendezvousGracefulExitError, when it is over."""
        self._beat_on()
        deadline = time.monotonic() + self._settings.timeout.join.total_seconds()
        while not (state := self._change(self._join)):
            if time.monotonic() > deadline:
                self._change(self._leave)
                raise RendezvousTimeoutError(f"rendezvous {self.get_run_id()!r} of {self._settings.min_nodes} to {self._settings.max_nodes} "
                                             f"machines is not complete after {self._settings.timeout.join.total_seconds():g} s")
            time.sleep(_PAUSE)
        self._round, self._was_waiting = state.round, False
        rank, place = state.members.index(self._node), PrefixStore(f"{self.get_run_id()}/{state.round}", self._store)
        where = RendezvousStoreInfo(self._store.host, self._store.port) if isinstance(self._store, TCPStore) else (
            RendezvousStoreInfo.build(rank, place, self._addr))
        return RendezvousInfo(place, rank, len(state.members), where)

    def _join(self, state: _State) -> _State | None:
        """A step towards a round with this machine; the state, if there is one."""
        me, gone, settings = self._node, self._gone(state), self._settings
        if state.closed:
            self._leave(state)
            raise (RendezvousGracefulExitError if self._was_waiting else RendezvousClosedError)(
                f"rendezvous {self.get_run_id()!r} is over")
        state.waiting = [node for node in state.waiting if node not in gone]
        state.beats.setdefault(me, 0)
        if state.complete and me in state.members and state.round != self._round:
            return state
        if state.complete and (me in state.members or all(node in gone for node in state.members)):
            later = [node for node in state.waiting if node != me]
            state.round, state.complete, state.members = state.round + 1, False, [me, *later][: settings.max_nodes]
            state.waiting = later[settings.max_nodes - 1 :]
        elif state.complete or (me not in state.members and len(state.members) >= settings.max_nodes):
            self._was_waiting = True
            if me not in state.waiting:
                state.waiting.append(me)
            return None
        else:
            state.members = [node for node in state.members if node not in gone]
            if me not in state.members:
                state.members.append(me)
        state.beats = {node: n for node, n in state.beats.items() if node in state.members or node in state.waiting}
        if self._is_full(state.members):
            state.complete = True
            state.members.sort(key=lambda node: (*(part.zfill(9) if part.isdigit() else part for part in node.rsplit("_", 2)),))
            return state
        return None

    def _is_full(self, members: list[str]) -> bool:
        if self._grown[0] != (now := tuple(members)):
            self._grown = (now, time.monotonic())
        waited = time.monotonic() - self._grown[1]
        enough = len(members) >= self._settings.min_nodes and waited >= self._settings.timeout.last_call.total_seconds()
        return len(members) >= self._settings.max_nodes or enough

    def _leave(self, state: _State) -> None:
        for nodes in (state.waiting, *(() if state.complete else (state.members,))):
            if self._node in nodes:
                nodes.remove(self._node)

    def num_nodes_waiting(self) -> int:
        """How many wait for this machine to begin the next round, or have begun it; 0 if all places are taken."""
        def look(state: _State) -> int:
            gone = self._gone(state)
            if state.round != self._round:
                return max(1, len(state.members))
            if sum(node not in gone for node in state.members) >= self._settings.max_nodes:
                return 0
            return sum(node not in gone for node in state.waiting)
        return self._change(look)

    def lost_nodes(self) -> list[str]:
        """Machines of this round that have given no sign of life for too long."""
        return self._change(lambda state: [node for node in self._gone(state) if node in state.members and state.round == self._round])

    # -- signs of life, and the end -----------------------------------------------------------------------------------------------
    def _beat_on(self) -> None:
        if self._heart is None:
            self._heart = threading.Thread(target=self._beat, name="flambeau-rendezvous", daemon=True)
            self._heart.start()

    def _beat(self) -> None:
        def sign(state: _State) -> None:
            if self._node in state.beats:
                state.beats[self._node] += 1

        while not self._ended.wait(self._settings.keep_alive_interval.total_seconds()):
            try:
                self._change(sign)
            except RendezvousError:
                continue  # whoever waits for the state says so

    def is_closed(self) -> bool:
        return self._change(lambda state: state.closed)

    def set_closed(self) -> None:
        self._change(lambda state: setattr(state, "closed", True))

    def shutdown(self) -> bool:
        """Close it, for all; False if that could not be told. Who serves the store lets the others read it first."""
        self._ended.set()
        try:
            self.set_closed()
        except RendezvousError:
            return False
        self._backend.close()
        if isinstance(self._store, TCPStore):
            self._store.leave()
        return True


def create_handler(store: Store, backend: RendezvousBackend, params: RendezvousParameters) -> DynamicRendezvousHandler:
    """A handler by parameters; of the settings: join_timeout, last_call_timeout, close_timeout, heartbeat_timeout, keep_alive_interval,
    keep_alive_max_attempt, all in seconds but the last."""
    def seconds(name: str) -> timedelta | None:
        value = params.get(f"{name}_timeout")
        return None if value is None else timedelta(seconds=float(value))

    timeout = RendezvousTimeout(seconds("join"), seconds("last_call"), seconds("close"), seconds("heartbeat"))
    return DynamicRendezvousHandler.from_backend(
        params.run_id, store, backend, params.min_nodes, params.max_nodes, params.local_addr, timeout,
        keep_alive_interval=params.get_as_int("keep_alive_interval", 5) or 5,
        keep_alive_max_attempt=params.get_as_int("keep_alive_max_attempt", 3) or 3)
