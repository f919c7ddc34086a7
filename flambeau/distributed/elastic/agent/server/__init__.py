"""A launcher: it meets the others in a rendezvous, starts its processes, watches them, and begins anew where one has failed or a machine
has come or gone, until all have ended well or there are no restarts left."""

from __future__ import annotations

import abc
import logging
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ....errors import DistError
from ....stores import Store
from ...events import Event, EventSource, record
from ...multiprocessing import RunProcsResult, SignalException, signals_raise
from ...multiprocessing.errors import ProcessFailure
from ...rendezvous import RendezvousConnectionError, RendezvousGracefulExitError, RendezvousHandler, RendezvousInfo

_log = logging.getLogger(__name__)


@dataclass
class WorkerSpec:
    """The processes of a machine: `local_world_size` of them run `entrypoint`, a function or a program, with `args`; they meet others'
    through `rdzv_handler`, and start again up to `max_restarts` times. `fn` is `entrypoint` by its older name."""

    role: str
    local_world_size: int
    rdzv_handler: RendezvousHandler
    fn: Callable | None = None
    entrypoint: Callable | str | None = None
    args: tuple = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    master_port: int | None = None
    master_addr: str | None = None
    local_addr: str | None = None
    event_log_handler: str = "null"

    def __post_init__(self) -> None:
        if self.local_world_size < 1 or self.monitor_interval <= 0:
            raise ValueError(f"WorkerSpec needs at least one process and a positive monitor_interval, not {self.local_world_size} and "
                             f"{self.monitor_interval}")
        self.entrypoint = self.entrypoint or self.fn
        if not self.entrypoint:
            raise ValueError("WorkerSpec needs an entrypoint")

    def get_entrypoint_name(self) -> str:
        """What the function or program is called."""
        return self.entrypoint if isinstance(self.entrypoint, str) else getattr(self.entrypoint, "__qualname__", str(self.entrypoint))


@dataclass
class Worker:
    """A process: its numbers on the machine, in the job and in its role, and how many these have."""

    local_rank: int
    global_rank: int = -1
    role_rank: int = -1
    world_size: int = -1
    role_world_size: int = -1
    id: Any = None


class WorkerState(str, Enum):  # noqa: UP042 - shown as torch's
    """How it goes with the processes of a machine."""

    UNKNOWN, INIT, HEALTHY, UNHEALTHY = "UNKNOWN", "INIT", "HEALTHY", "UNHEALTHY"
    STOPPED, SUCCEEDED, FAILED = "STOPPED", "SUCCEEDED", "FAILED"

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        """Whether they run, well or not."""
        return state in (WorkerState.HEALTHY, WorkerState.UNHEALTHY)


class WorkerGroup:
    """The processes of a machine, and its round of the rendezvous."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec, self.state = spec, WorkerState.INIT
        self.workers = [Worker(i) for i in range(spec.local_world_size)]
        self.store: Store | None = None
        self.group_rank: int | None = None
        self.group_world_size: int | None = None
        self.master_addr: str | None = None
        self.master_port: int | None = None


@dataclass
class RunResult:
    """How a job ended on this machine: by global rank what functions returned, or which processes failed."""

    state: WorkerState
    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    message: str = ""

    def is_failed(self) -> bool:
        """Whether it failed, here or on another machine."""
        return self.state == WorkerState.FAILED


class ElasticAgent(abc.ABC):
    """A launcher."""

    @abc.abstractmethod
    def run(self, role: str = "default") -> RunResult:
        """Run the job to its end."""

    @abc.abstractmethod
    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        """Its processes."""


class _Ending(Enum):
    """Why a round is over."""

    WELL, FAILED, MACHINES = "all ended well", "a process failed", "machines came or went"


class SimpleElasticAgent(ElasticAgent):
    """What launchers have in common; how processes are started, looked at and ended is a subclass's."""

    def __init__(self, spec: WorkerSpec, exit_barrier_timeout: float = 300, shutdown_timeout: int = 10) -> None:
        self._worker_group, self._exit_barrier_timeout, self._shutdown_timeout = WorkerGroup(spec), exit_barrier_timeout, shutdown_timeout
        self._restarts = 0  # of all processes, because one failed
        self._round = -1

    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        del role  # there is one
        return self._worker_group

    # -- how processes are handled ------------------------------------------------------------------------------------------------
    @abc.abstractmethod
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """Start them; an id for each local rank."""

    @abc.abstractmethod
    def _stop_workers(self, worker_group: WorkerGroup, death_sig: signal.Signals | None = None) -> None:
        """End them."""

    @abc.abstractmethod
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunProcsResult | None:
        """How they ended, if they have, by local rank."""

    # -- a job --------------------------------------------------------------------------------------------------------------------
    def run(self, role: str = "default") -> RunResult:
        """Round after round. SignalException if this launcher is told to end; the processes have ended then, too."""
        del role  # the specification has it
        group, spec = self._worker_group, self._worker_group.spec
        try:
            with signals_raise(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                result = self._rounds()
        except RendezvousGracefulExitError:
            return RunResult(WorkerState.STOPPED)
        except SignalException as stopped:
            self._stop_workers(group, stopped.sigval)
            raise
        finally:
            self._stop_workers(group)
            spec.rdzv_handler.shutdown()
        record(Event(f"torchelastic.agent.{result.state.value.lower()}", EventSource.AGENT, int(time.time() * 1000),
                     {"run_id": spec.rdzv_handler.get_run_id(), "restarts": self._restarts}), spec.event_log_handler)
        return result

    def _rounds(self) -> RunResult:
        group, spec = self._worker_group, self._worker_group.spec
        while True:
            self._begin(spec.rdzv_handler.next_rendezvous())
            for worker, id in zip(group.workers, self._start_workers(group).values()):
                worker.id = id
            group.state = WorkerState.HEALTHY
            ending, what, result = self._watch()
            self._stop_workers(group)
            if ending is _Ending.WELL:
                group.state = WorkerState.SUCCEEDED
                return RunResult(group.state, self._by_rank(result.return_values if result else {}))
            if ending is _Ending.MACHINES:
                _log.warning("%s: %s; all processes were ended and start again", spec.role, what)
                continue
            left = spec.max_restarts - self._restarts
            _log.warning("%s; all processes were ended%s", what, f" and start again ({left} restarts left)" if left > 0 else "")
            if left <= 0:
                group.state = WorkerState.FAILED
                return RunResult(group.state, {}, self._by_rank(result.failures if result else {}), what)
            self._restarts += 1

    def _by_rank(self, values: dict[int, Any]) -> dict[int, Any]:
        return {self._worker_group.workers[i].global_rank: value for i, value in values.items()}

    def _begin(self, info: RendezvousInfo) -> None:
        """Number this machine's processes among everyone's."""
        group, spec = self._worker_group, self._worker_group.spec
        self._round += 1
        group.store, group.group_rank, group.group_world_size = info.store, info.rank, info.world_size
        group.master_addr = spec.master_addr or info.bootstrap_store_info.master_addr
        group.master_port = spec.master_port or info.bootstrap_store_info.master_port
        info.store.set(f"machine/{info.rank}", f"{spec.local_world_size} {self._restarts} {self._round} {spec.role}")
        told = [text.decode().split(" ", 3) for text in info.store.multi_get([f"machine/{i}" for i in range(info.world_size)])]
        self._restarts, self._round = max(int(restarts) for _, restarts, _, _ in told), max(int(number) for _, _, number, _ in told)
        counts, roles = [int(count) for count, _, _, _ in told], [role for _, _, _, role in told]
        before, of_role = sum(counts[: info.rank]), sum(n for n, role in zip(counts[: info.rank], roles) if role == spec.role)
        in_role = sum(n for n, role in zip(counts, roles) if role == spec.role)
        group.workers = [Worker(i, before + i, of_role + i, sum(counts), in_role) for i in range(spec.local_world_size)]

    def _watch(self) -> tuple[_Ending, str, RunProcsResult | None]:
        """Until the round is over: why, what happened, and how this machine's processes ended, if they did by themselves."""
        group, spec = self._worker_group, self._worker_group.spec
        store: Any = group.store
        result, told = None, 0.0
        while True:
            result = result or self._monitor_workers(group)
            try:
                if result is not None and result.is_failed():
                    i = min(result.failures, key=lambda i: result.failures[i].timestamp)
                    mine = f"rank {group.workers[i].global_rank} {result.failures[i]}"
                    return _Ending.FAILED, store.compare_set("failed", "", mine).decode(), result
                if store.check(["failed"]):
                    return _Ending.FAILED, store.get("failed").decode(), None
                if result is not None and not told:
                    store.add("ended", 1)
                    told = time.monotonic()
                if (ended := store.add("ended", 0)) >= (group.group_world_size or 1):
                    return _Ending.WELL, "", result
                if told and time.monotonic() - told > self._exit_barrier_timeout:
                    return _Ending.WELL, "", result  # the others go on
                if not ended and spec.rdzv_handler.num_nodes_waiting() > 0:
                    return _Ending.MACHINES, "machines wait", None
                if lost := spec.rdzv_handler.lost_nodes():
                    return _Ending.MACHINES, f"no sign of life from {', '.join(lost)}", None
            except (DistError, RendezvousConnectionError) as error:
                return _Ending.FAILED, f"the launcher that holds the store can't be reached from {socket.gethostname()}: {error}", result
            time.sleep(spec.monitor_interval)


def environment(agent: SimpleElasticAgent, worker: Worker) -> dict[str, str]:
    """What a process is told of itself and the others."""
    group, spec = agent._worker_group, agent._worker_group.spec
    told = {
        "RANK": worker.global_rank, "LOCAL_RANK": worker.local_rank, "WORLD_SIZE": worker.world_size,
        "LOCAL_WORLD_SIZE": spec.local_world_size, "GROUP_RANK": group.group_rank, "GROUP_WORLD_SIZE": group.group_world_size,
        "ROLE_RANK": worker.role_rank, "ROLE_WORLD_SIZE": worker.role_world_size, "ROLE_NAME": spec.role,
        "MASTER_ADDR": group.master_addr, "MASTER_PORT": group.master_port, "TORCHELASTIC_RESTART_COUNT": agent._restarts,
        "TORCHELASTIC_MAX_RESTARTS": spec.max_restarts, "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
        "TORCHELASTIC_USE_AGENT_STORE": spec.rdzv_handler.use_agent_store, "FLAMBEAU_ROUND": agent._round,
    }
    return {name: str(value) for name, value in told.items()}

