"""Beginning and end of RPC, and calls."""

from __future__ import annotations

import functools
import json
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from ...futures import Future
from ..errors import DistNetworkError
from ..groups import _address
from ..listening import listen
from ..rendezvous import rendezvous
from ..stores import PrefixStore, Store
from ..tcp_store import TCPStore
from . import gradients, rref
from .agent import Address, Agent
from .calls import Here, agent, call, serve
from .options import UNSET_RPC_TIMEOUT, BackendType, WorkerInfo, options_of

_NAP = 0.01
_LONG = 300.0  # seconds to wait for the others, where calls may take any time


class _Job:
    """What `init_rpc` found, until `shutdown`."""

    store: Store | None = None
    here: Store | None = None  # this job's part of it
    begun = 0


def _require_initialized(fn: Callable) -> Callable:
    """`fn`, which raises RuntimeError where `init_rpc` was not called, or `shutdown` was."""
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        agent()
        return fn(*args, **kwargs)

    return wrapper


def is_available() -> bool:
    """True: calls need nothing that is not there."""
    return True


def init_rpc(name: str, backend: BackendType | None = None, rank: int = -1, world_size: int | None = None,
             rpc_backend_options: Any = None) -> None:
    """Join the workers of the job as `name`; comes back when all are there.

    They find each other by the options' `init_method` (env:// unless said otherwise), need no process group, and prove to each other
    that they know a secret that is drawn for the job and lies in its store.
    """
    if Here.agent is not None:
        raise RuntimeError("RPC is already initialized")
    if backend is not None and not isinstance(backend, BackendType):
        raise TypeError("Argument backend must be a member of BackendType")
    options = options_of(rpc_backend_options)
    WorkerInfo(name, max(rank, 0))  # is it a name?
    number, _Job.begun = _Job.begun, _Job.begun + 1
    deadline = time.monotonic() + (options.rpc_timeout or _LONG)
    while True:
        found = rendezvous(options.init_method, rank, -1 if world_size is None else world_size,
                           timeout=timedelta(seconds=max(1.0, deadline - time.monotonic())))
        store, place, size = next(found)
        if not 0 <= place < size:
            raise ValueError(f"rank {place} does not exist in a world of {size} workers")
        _Job.store, _Job.here = store, PrefixStore(f"rpc/{number}", store)
        try:
            return _join(_Job.here, WorkerInfo(name, place), size, _address(store, place), options)
        except BaseException as error:
            _leave()
            if not isinstance(error, DistNetworkError) or time.monotonic() > deadline:
                raise  # else it was the store of a job before at the same address, just before it went


def _join(store: Store, me: WorkerInfo, size: int, host: str, options: Any) -> None:
    """Say where this worker listens, and hear where the others do."""
    listener = listen(host)
    try:
        store.compare_set("secret", "", secrets.token_hex(32))
        store.set(f"worker/{me.id}", json.dumps([me.name, host, listener.getsockname()[1]]))
        places = [json.loads(store.get(f"worker/{r}")) for r in range(size)]
        everyone = [Address(WorkerInfo(name, r), *where) for r, (name, *where) in enumerate(places)]
        names = [a.worker.name for a in everyone]
        if twice := {name for name in names if names.count(name) > 1}:
            raise RuntimeError(f"RPC worker name {', '.join(sorted(twice))} is not unique: the workers are {names}")
    except BaseException:
        listener.close()
        raise
    Here.after = ThreadPoolExecutor(options.num_worker_threads, "flambeau-rpc-after")
    gradients.begin(me.id)
    Here.agent = Agent(listener, me, everyone, store.get("secret"), options.num_worker_threads, options.rpc_timeout, serve)
    rref.begin()
    if me.id:
        Here.agent.peer(everyone[0].worker)  # the first worker hears at once when one is gone
    _all_come(store, "begun", options.rpc_timeout or _LONG)


def _all_come(store: Store, what: str, seconds: float) -> None:
    """Wait until all workers have come here. RuntimeError, which names them, if some ended before or are late (0: whenever)."""
    here, deadline = agent(), time.monotonic() + seconds
    names = [f"{what}/{a.worker.id}" for a in here.everyone]
    store.set(names[here.me.id], "")
    while not store.check(names):
        missing = [a.worker for a, name in zip(here.everyone, names) if not store.check([name])]
        ended = [w for w in missing if w in here.gone or store.check([f"gone/{w.id}"])]
        if ended:
            for worker in ended:
                store.set(f"gone/{worker.id}", "")
            if [w for w in ended if not store.check([f"{what}/{w.id}"])]:
                raise RuntimeError(f"{', '.join(map(str, ended))} ended without rpc.shutdown(), for which {here.me} waited")
        if seconds > 0 and time.monotonic() > deadline:
            raise RuntimeError(f"timed out after {seconds:g} s: {', '.join(map(str, missing))} did not come to {what!r}, where {here.me} "
                               "waits")
        time.sleep(_NAP)


def _settle(store: Store, seconds: float) -> None:
    """Wait until no call runs anywhere, nor begins another: until nobody has begun one between two rounds."""
    here, before, number = agent(), None, 0
    while True:
        while not (here.idle() and rref.settled()):
            time.sleep(_NAP)
        store.set(f"asked/{number}/{here.me.id}", str(here.questions))
        _all_come(store, f"round {number}", seconds)
        asked = [store.get(f"asked/{number}/{r}") for r in range(len(here.everyone))]
        if asked == before:
            return
        before, number = asked, number + 1


def shutdown(graceful: bool = True, timeout: float = 0) -> None:
    """The end of RPC in this process. `graceful`: when all workers have come here and all calls have ended, within `timeout` seconds
    (0: whenever); RuntimeError names workers that died instead. Otherwise at once."""
    agent()
    try:
        if graceful:
            assert _Job.here is not None
            _all_come(_Job.here, "the end", timeout)
            _settle(_Job.here, timeout)
    finally:
        _leave()


def _leave() -> None:
    rref.end()
    gradients.begin(0)
    if Here.agent is not None:
        Here.agent.close()
    if Here.after is not None:
        Here.after.shutdown(wait=False, cancel_futures=True)
    store, _Job.store, _Job.here, Here.agent, Here.after = _Job.store, None, None, None, None
    inner = store._underlying_non_prefix_store if isinstance(store, PrefixStore) else store
    if isinstance(inner, TCPStore):
        inner.leave()


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """The worker of this name; this one if none is given."""
    here = agent()
    return here.me if worker_name is None else here.worker(worker_name)


def get_rpc_timeout() -> float:
    """Seconds that a call may take."""
    return agent().timeout


def _set_rpc_timeout(seconds: float) -> None:
    agent().timeout = seconds


def rpc_async(to: Any, func: Callable, args: Any = None, kwargs: dict | None = None, timeout: float = UNSET_RPC_TIMEOUT) -> Future:
    """A future of func(*args, **kwargs) in worker `to` (a name, a rank or a WorkerInfo). Exceptions there are raised by `wait()`, with the
    worker's name and traceback; one is raised if the answer is late, or the worker ends."""
    return call(to, func, args or (), kwargs, timeout)


def rpc_sync(to: Any, func: Callable, args: Any = None, kwargs: dict | None = None, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
    """func(*args, **kwargs) in worker `to`."""
    return rpc_async(to, func, args, kwargs, timeout).wait()


def _wait_all_workers(timeout: float = 0) -> None:
    assert _Job.here is not None
    _all_come(_Job.here, f"wait {_Job.here.add(f'waits/{agent().me.id}', 1)}", timeout)


