"""Calls of functions in other workers: what `rpc_sync`, RRefs and distributed autograd stand on."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ...futures import Future
from . import gradients, wire
from .agent import Agent, complete
from .functions import is_async
from .options import UNSET_RPC_TIMEOUT, WorkerInfo


class Here:
    """This process's agent, once there is one; `after` runs what users hang on futures."""

    agent: Agent | None = None
    after: ThreadPoolExecutor | None = None


class Reply(Future):
    """A call's answer. What is to be done with it runs in a thread of its own: it may call the same worker and wait."""

    def __init__(self, after: ThreadPoolExecutor) -> None:
        super().__init__()
        self._after = after

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of `callback(this)`."""
        following: Future = Reply(self._after)

        def run() -> None:
            try:
                complete(following, callback(self))
            except Exception as error:
                complete(following, error=error)

        self._state.add_done_callback(lambda _: self._after.submit(run))
        return following

    def add_done_callback(self, callback: Callable[[Future], None]) -> None:
        """Call `callback(this)` once it is complete."""
        self._state.add_done_callback(lambda _: self._after.submit(callback, self))


class Raised(NamedTuple):
    """An exception on its way back: its class, if it can travel, and the text with its traceback."""

    kind: type[BaseException]
    text: str

    def error(self) -> Exception:
        """The exception to raise here."""
        try:
            made = self.kind(self.text)
        except Exception:  # a class that wants other arguments
            made = None
        if isinstance(made, Exception):
            return made
        return RuntimeError(f"Failed to create original exception type {self.kind.__name__}. Original exception on remote side was "
                            f"{self.text}")


def agent() -> Agent:
    """This process's agent; RuntimeError where there is none."""
    if Here.agent is None:
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return Here.agent


def call(to: Any, fn: Callable, args: Any = (), kwargs: dict | None = None, timeout: float = UNSET_RPC_TIMEOUT) -> Reply:
    """A future of fn(*args, **kwargs) in worker `to`. RRefs and tensors in the arguments live until the answer is there."""
    here = agent()
    worker, seconds = here.worker(to), here.timeout if timeout == UNSET_RPC_TIMEOUT else timeout
    if not callable(fn):
        raise TypeError("function should be callable.")
    if seconds < 0:
        raise ValueError(f"timeout is a number of seconds, or 0 for no end; got {timeout}")
    assert Here.after is not None
    context = gradients.current()
    body = wire.pack((fn, tuple(args or ()), kwargs or {}), worker, None if context is None else context.id)
    reply, kept = Reply(Here.after), [args, kwargs]

    def receive(done: Any) -> None:
        kept.clear()
        try:
            value = wire.unpack(done.result(), worker)
        except Exception as error:
            complete(reply, error=error)
            return
        complete(reply, None if isinstance(value, Raised) else value, value.error() if isinstance(value, Raised) else None)

    here.ask(worker, body, seconds)._state.add_done_callback(receive)
    return reply


def serve(who: WorkerInfo, body: bytes) -> Future:
    """A future of the answer to a call of `who`."""
    answer: Future = Future()
    context: int | None = None

    def send(value: Any) -> None:
        try:
            packed = wire.pack(value, who, context)
        except Exception as error:  # it can't be pickled
            packed = wire.pack(_raised(error), who, None)
        complete(answer, packed)

    def finish(done: Any) -> None:
        error = done.exception()
        send(done.result() if error is None else _raised(error))

    try:
        context = wire.context_of(body)
        fn, args, kwargs = wire.unpack(body, who)
        with gradients.within(context):
            value = fn(*args, **kwargs)
        if is_async(fn) and not isinstance(value, Future):
            raise TypeError(f"Functions decorated with @rpc.functions.async_execution should return a torch.futures.Future, but got "
                            f"{type(value).__name__}")
    except BaseException as error:  # SystemExit too: it is the caller who asked for it
        send(_raised(error))
        return answer
    if is_async(fn):  # not in the thread that completes it: one that reads must not wait until another reads
        value._state.add_done_callback(lambda done: Here.after is not None and Here.after.submit(finish, done))
    else:
        send(value)
    return answer


def _raised(error: BaseException) -> Raised:
    text = f"On {agent().me}:\n{error!r}\n{''.join(traceback.format_exception(error))}"
    kind: type[BaseException] = type(error)
    try:
        pickle.loads(pickle.dumps(kind))
    except Exception:  # a class that the other side can't have
        return Raised(RuntimeError, text)
    return Raised(kind, text)
