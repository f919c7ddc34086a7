"""RRef: a value that lives in one worker, and references to it in any.

Each reference to a value, in its owner or elsewhere, is a *fork* with an id of its own. The owner keeps a value while it has forks. Who
sends a reference tells the owner of the new fork, and keeps its own until the owner has answered; who lets go of one says so. Which
of the two messages about a fork comes first does not matter: the owner counts the one against the other.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from ...autograd import backward
from ...core import locks
from ...core.tensor import Tensor
from ...futures import Future
from . import backward as distributed
from . import gradients, wire
from .agent import complete
from .calls import Here, agent, call
from .functions import async_execution, is_async
from .options import UNSET_RPC_TIMEOUT, WorkerInfo


class Id(NamedTuple):
    """Of a value or a fork: its maker's rank and a number."""

    created_on: int
    local_id: int

    def __repr__(self) -> str:
        return f"GloballyUniqueId(created_on={self.created_on}, local_id={self.local_id})"


class _Held:
    """What the owner has: the value to come, and the forks that it knows."""

    def __init__(self) -> None:
        self.value: Future = Future()
        self.forks: Counter[Id] = Counter()


class _Values:
    """The values that this process owns, and the thread that tells owners of forks that are gone."""

    held: dict[Id, _Held] = {}
    lock = locks.lock()
    numbers = count()
    gone: queue.SimpleQueue = queue.SimpleQueue()


def new_id() -> Id:
    """One that no other has."""
    return Id(agent().me.id, next(_Values.numbers))


def _held(value: Id) -> _Held:
    with _Values.lock:
        return _Values.held.setdefault(value, _Held())


def count_fork(value: Id, fork: Id, by: int) -> None:
    """In the owner: a fork is there (1) or gone (-1). Without any the value goes."""
    with _Values.lock:
        held = _Values.held.setdefault(value, _Held())
        held.forks[fork] += by
        if not held.forks[fork]:
            del held.forks[fork]
        gone = not held.forks  # by the first message or the second
        if gone:
            del _Values.held[value]
    del held  # outside of the lock: the value may hold RRefs itself


def begin() -> None:
    """Values of an earlier job are gone; the thread that says which forks are starts."""
    _Values.held.clear()
    _Values.gone = queue.SimpleQueue()
    threading.Thread(target=_tell, args=(_Values.gone,), name="flambeau-rpc-rrefs", daemon=True).start()


def end() -> None:
    """The thread ends."""
    _Values.gone.put(None)
    _Values.held.clear()


def settled() -> bool:
    """Whether the owners have been told of all forks that are gone."""
    return _Values.gone.empty()


def _tell(gone: queue.SimpleQueue) -> None:
    while (item := gone.get()) is not None:
        owner, value, fork = item
        here = Here.agent
        if here is None:
            return
        if owner == here.me:
            count_fork(value, fork, -1)
        else:
            with contextlib.suppress(RuntimeError):  # the end has come
                call(owner, count_fork, (value, fork, -1))


@async_execution
def _fetch(value: Id) -> Future:
    return _held(value).value


@async_execution
def _create(caller: WorkerInfo, value: Id, fork: Id, body: bytes) -> Future:
    """In the owner: the value of a call that is packed in `body`; the answer comes when it is there."""
    held, done = _held(value), Future[None]()
    count_fork(value, fork, 1)
    try:
        fn, args, kwargs = wire.unpack(body, caller)
        made = fn(*args, **kwargs)
    except Exception as error:
        complete(held.value, error=error)
        complete(done)
        return done

    def finish(ended: Any) -> None:
        error = ended.exception()
        complete(held.value, None if error else ended.result(), error)
        complete(done)

    if is_async(fn):
        made._state.add_done_callback(finish)
    else:
        complete(held.value, made)
        complete(done)
    return done


class RRef:
    """A reference to a value of this process (`RRef(value)`), or of another (`rpc.remote` makes one, and calls carry it).

    Copies travel within calls alone. The value lives as long as there are references to it anywhere.
    """

    def __init__(self, value: Any, type_hint: Any = None) -> None:
        me = agent().me
        if type_hint is not None and not isinstance(value, type_hint):
            raise TypeError(f"RRef(type_hint={type_hint.__name__}) of a {type(value).__name__}")
        self._hold(me, new_id(), new_id())
        count_fork(self._id, self._fork, 1)
        _held(self._id).value.set_result(value)

    def _hold(self, owner: WorkerInfo, value: Id, fork: Id, created: Future | None = None) -> RRef:
        self._owner, self._id, self._fork, self._created, self._agent = owner, value, fork, created, agent()
        return self

    def __del__(self) -> None:
        if Here.agent is not None and getattr(self, "_agent", None) is Here.agent:
            _Values.gone.put((self._owner, self._id, self._fork))

    def __reduce__(self) -> Any:
        raise RuntimeError("Can not pickle rref in python pickler, rref can only be pickled when using RPC")

    def __repr__(self) -> str:
        if self.is_owner():
            return f"OwnerRRef({self._id})"
        return f"UserRRef(RRefId = {self._id}, ForkId = {self._fork})"

    def owner(self) -> WorkerInfo:
        """The worker that has the value."""
        return self._owner

    def owner_name(self) -> str:
        """Its name."""
        return self._owner.name

    def is_owner(self) -> bool:
        """Whether the value lives in this process."""
        return self._owner == self._agent.me

    def confirmed_by_owner(self) -> bool:
        """Whether the owner is known to know of this reference."""
        return self.is_owner() or self._created is None or self._created.done()

    def to_here(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """The value itself in its owner; a copy elsewhere. Exceptions of what should have made it are raised."""
        if self.is_owner():
            return self.local_value()
        return self._ask(_fetch, (), timeout).wait()

    def _ask(self, fn: Callable, args: tuple, timeout: float = UNSET_RPC_TIMEOUT) -> Future:
        """A future of fn(the value's id, *args) in the owner; this reference lives until it is complete."""
        if self._created is not None and self._created.done() and (error := self._created._state.exception()) is not None:
            raise RuntimeError(f"RRef creation via rpc.remote() timed out, and it is possible that the RRef on the owner node does not "
                               f"exist: {error}")
        kept = [self]
        answer = call(self._owner, fn, (self._id, *args), timeout=timeout)
        answer._state.add_done_callback(lambda _: kept.clear())
        return answer

    def local_value(self) -> Any:
        """The value, in its owner; RuntimeError elsewhere."""
        if not self.is_owner():
            raise RuntimeError(f"For {self!r}, can't call localValue() on user {self._agent.me}. Call it on owner {self._owner}")
        return _held(self._id).value.wait()

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Gradients of the value, a tensor of one element (or a tuple that begins with one): in the context, or in the leaves' `.grad`."""
        if not self.is_owner():
            self._ask(_backward, (dist_autograd_ctx_id, retain_graph)).wait()
        else:
            _backward(self._id, dist_autograd_ctx_id, retain_graph)

    def _get_type(self, timeout: float = UNSET_RPC_TIMEOUT, blocking: bool = True) -> Any:
        found = self._ask(_type_of, (), timeout)
        return found.wait() if blocking else found

    def rpc_sync(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """The value's methods, called in its owner: `rref.rpc_sync().method(...)` has the result."""
        return _Methods(lambda *what: self._ask(_invoke, what, timeout).wait())

    def rpc_async(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """Likewise; the call has a future."""
        return _Methods(lambda *what: self._ask(_invoke, what, timeout))

    def remote(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """Likewise; the call has an RRef."""
        return _Methods(lambda *what: remote(self._owner, _invoke_on, (self, *what), timeout=timeout))


class _Methods:
    """Names of methods as calls of them: `do(name, args, kwargs)`."""

    def __init__(self, do: Callable[[str, tuple, dict], Any]) -> None:
        self._do = do

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._do(name, args, kwargs)


# -- in the owner --------------------------------------------------------------------------------------------------
@async_execution
def _invoke(value: Id, name: str, args: tuple, kwargs: dict) -> Future:
    """A method of the value, which may be one that answers later."""
    method = getattr(_held(value).value.wait(), name)
    made = method(*args, **kwargs)
    if is_async(method):
        return made
    done: Future = Future()
    done.set_result(made)
    return done


@async_execution
def _invoke_on(rref: RRef, name: str, args: tuple, kwargs: dict) -> Future:
    return _invoke(rref._id, name, args, kwargs)


def _type_of(value: Id) -> type:
    return type(_held(value).value.wait())


def _backward(value: Id, context: int, retain_graph: bool) -> None:
    held = _held(value).value.wait()
    root = held[0] if isinstance(held, (tuple, list)) and held else held
    if not isinstance(root, Tensor):
        raise RuntimeError(f"RRef should contain a tensor for .backward(), not a {type(held).__name__}")
    if context == -1:
        backward(root, retain_graph=retain_graph)
    else:
        distributed.backward(context, [root], retain_graph)


def remote(to: Any, func: Callable, args: Any = None, kwargs: dict | None = None, timeout: float = UNSET_RPC_TIMEOUT) -> RRef:
    """A reference, at once, to func(*args, **kwargs) in worker `to`."""
    here = agent()
    worker = here.worker(to)
    if not callable(func):
        raise TypeError("function should be callable.")
    context = gradients.current()
    value, fork = new_id(), new_id()
    body = wire.pack((func, tuple(args or ()), kwargs or {}), worker, None if context is None else context.id)
    made = RRef.__new__(RRef)
    created = call(worker, _create, (here.me, value, fork, body), timeout=timeout)
    kept = [args, kwargs]
    created._state.add_done_callback(lambda _: kept.clear())
    return made._hold(worker, value, fork, created)


# -- on the way ----------------------------------------------------------------------------------------------------
def _send(rref: RRef, message: wire.Message) -> tuple:
    """A new fork for the receiver; this one lives until the owner knows of it."""
    del message
    fork = new_id()
    if rref.is_owner():
        count_fork(rref._id, fork, 1)
    else:
        kept = [rref]
        with gradients.within(None):
            call(rref._owner, count_fork, (rref._id, fork, 1))._state.add_done_callback(lambda _: kept.clear())
    return rref._owner, rref._id, fork


def _receive(data: tuple, message: wire.Message) -> RRef:
    del message
    return RRef.__new__(RRef)._hold(*data)


wire.WAYS[RRef] = wire.Way(_send, _receive)
