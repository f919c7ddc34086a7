"""Bytes from worker to worker: a question, and its answer within a time.

Connections are those of Python's `multiprocessing.connection`, whose two ends prove to each other by HMAC that they know the key of the
job before anything is read. A worker that asks another for the first time connects to it; answers come back on the same connection.
A connection that ends fails all that was asked over it, with the name of the worker at its other end.
"""

from __future__ import annotations

import contextlib
import heapq
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, NamedTuple

from ...core import locks
from ...futures import Future
from ..listening import close, welcome
from .options import WorkerInfo

_PATIENCE = 10  # seconds for a stranger to prove that it is none
_HEAD = struct.Struct("<QB")  # number of the question, and what follows
_ASK, _TELL, _FAIL = range(3)


class Address(NamedTuple):
    """Where a worker listens."""

    worker: WorkerInfo
    host: str
    port: int


def _connection(plain: socket.socket, key: bytes, first: bool) -> Connection:
    """The authenticated connection over a socket; OSError, EOFError or AuthenticationError for a stranger."""
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setblocking(True)
    patience = struct.pack("ll", _PATIENCE, 0)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
    made = Connection(plain.detach())
    try:
        for step in (deliver_challenge, answer_challenge) if first else (answer_challenge, deliver_challenge):
            step(made, key)
        with socket.socket(fileno=made.fileno()) as borrowed:
            borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
            borrowed.detach()
    except BaseException:
        made.close()
        raise
    return made


class Peer:
    """One connection to another worker: what was asked over it, and a thread that reads."""

    def __init__(self, agent: Agent, worker: WorkerInfo, connection: Connection) -> None:
        self.agent, self.worker, self.connection = agent, worker, connection
        self.asked: dict[int, Future] = {}
        self.broken, self._numbers = False, count()
        self._sending, self._lock = locks.lock(), locks.lock()
        self._reader = threading.Thread(target=self._read, name=f"flambeau-rpc-{worker.name}", daemon=True)
        self._reader.start()

    def ask(self, body: bytes, seconds: float) -> Future:
        """A future of the answer; RuntimeError in it when it does not come in `seconds` (0: whenever)."""
        answer: Future = Future()
        number = next(self._numbers)
        with self._lock:
            if self.broken:
                answer.set_exception(self._gone())
                return answer
            self.asked[number] = answer
        self.agent.limit(answer, self.worker, seconds, lambda error: self._finish(number, error=error))
        self._send(number, _ASK, body)
        return answer

    def _send(self, number: int, kind: int, body: bytes) -> None:
        try:
            with self._sending:
                self.connection.send_bytes(_HEAD.pack(number, kind))
                self.connection.send_bytes(body)
        except (OSError, ValueError):
            self.lose()

    def _read(self) -> None:
        with contextlib.suppress(OSError, EOFError, TypeError):  # TypeError: of a connection that is closed meanwhile
            while True:
                number, kind = _HEAD.unpack(self.connection.recv_bytes(_HEAD.size))
                body = self.connection.recv_bytes()
                if kind == _ASK:
                    self.agent.work(self, number, body)
                elif kind == _TELL:
                    self._finish(number, body)
                else:
                    self._finish(number, error=RuntimeError(body.decode()))
        self.lose()

    def answer(self, number: int, answer: Future) -> None:
        """Send what a question came to."""
        try:
            body, kind = answer.value(), _TELL
        except Exception as error:
            body, kind = f"{self.agent.me}: {type(error).__name__}: {error}".encode(), _FAIL
        self._send(number, kind, body)

    def _finish(self, number: int, value: bytes | None = None, error: Exception | None = None) -> None:
        with self._lock:
            future = self.asked.pop(number, None)
        if future is None:  # it was late
            return
        complete(future, value, error)

    def _gone(self) -> RuntimeError:
        return RuntimeError(f"{self.worker} has ended, or its connection to {self.agent.me} has: it answers no more")

    def lose(self) -> None:
        """The other end is gone: what was asked fails."""
        with self._lock:
            known, self.broken = self.broken, True
            numbers = list(self.asked)
        if not known:
            self.close()
            self.agent.lost(self.worker)
        for number in numbers:
            self._finish(number, error=self._gone())

    def close(self) -> None:
        """Wake the reader, who ends."""
        with contextlib.suppress(OSError), socket.socket(fileno=self.connection.fileno()) as borrowed:
            with contextlib.suppress(OSError):
                borrowed.shutdown(socket.SHUT_RDWR)
            borrowed.detach()
        if threading.current_thread() is self._reader:
            self.connection.close()


class Clock:
    """A thread that tells futures when their time is over."""

    _FEW = 1000

    def __init__(self) -> None:
        self._due: list[tuple[float, int]] = []
        self._late: dict[int, Callable[[], None]] = {}  # of futures to come: one that is complete, and its value, are let go of
        self._numbers, self._changed, self._closed, self._many = count(), threading.Condition(locks.lock()), False, self._FEW
        threading.Thread(target=self._run, name="flambeau-rpc-clock", daemon=True).start()

    def at(self, when: float, future: Future, late: Callable[[], None]) -> None:
        """Call `late` at this time of `time.monotonic`, if `future` is not complete then."""
        with self._changed:
            number = next(self._numbers)
            if len(self._due) > self._many:  # forget those that came in time
                self._due = [entry for entry in self._due if entry[1] in self._late]
                heapq.heapify(self._due)
                self._many = max(self._FEW, 2 * len(self._due))
            self._late[number] = late
            heapq.heappush(self._due, (when, number))
            self._changed.notify()
        future.add_done_callback(lambda _: self._forget(number))

    def _forget(self, number: int) -> None:
        self._late.pop(number, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._due or self._due[0][0] > time.monotonic()):
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                if self._closed:
                    return
                late = self._late.pop(heapq.heappop(self._due)[1], None)
            if late is not None:
                late()

    def close(self) -> None:
        """Nothing is late any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()


class Agent:
    """This process's part: its listener, its connections, and the threads that run what others ask.

    `serve(who, body)` has a future of the answer.
    """

    def __init__(self, listener: socket.socket, me: WorkerInfo, everyone: list[Address], key: bytes, threads: int, timeout: float,
                 serve: Callable[[WorkerInfo, bytes], Future]) -> None:
        self.me, self.everyone, self.key, self.timeout, self.serve = me, everyone, key, timeout, serve
        self.names = {a.worker.name: a for a in everyone}
        self.clock, self.gone = Clock(), set[WorkerInfo]()
        self.questions, self._running = 0, 0  # begun here, and what runs here for others
        self._peers: dict[int, Peer] = {}
        self._guests: list[Peer] = []
        self._lock, self._connecting, self._closed = locks.lock(), locks.lock(), False
        self._pool = ThreadPoolExecutor(threads, "flambeau-rpc-call")
        self._listener = listener
        welcome(listener, self._greet, "flambeau-rpc")

    # -- who comes -------------------------------------------------------------------------------------------------
    def _greet(self, plain: socket.socket) -> None:
        """A worker of this job says which; anyone else is cut off, and nothing of his is read but the length of a proof."""
        try:
            connection = _connection(plain, self.key, first=True)
        except Exception:  # a stranger's bytes: whatever they are
            return
        with contextlib.suppress(OSError, EOFError, ValueError, IndexError):
            who = self.everyone[int(connection.recv_bytes(20))].worker
            with self._lock:
                self._guests.append(Peer(self, who, connection))

    def peer(self, to: WorkerInfo) -> Peer:
        """The connection over which `to` is asked; RuntimeError, with its name, if there can't be one."""
        with self._connecting:
            if to.id in self._peers:
                return self._peers[to.id]
            if self._closed:
                raise RuntimeError("RPC has been shut down in this process")
            host, port = self.everyone[to.id][1:]
            try:
                connection = _connection(socket.create_connection((host, port), timeout=self.timeout or None), self.key, first=False)
                connection.send_bytes(b"%d" % self.me.id)
            except (OSError, EOFError, ValueError) as error:
                raise RuntimeError(f"{to} does not answer at {host}:{port}: {error or type(error).__name__}") from None
            except Exception as error:  # AuthenticationError
                raise RuntimeError(f"who answers for {to} at {host}:{port} does not know this job's secret: {error}") from None
            made = self._peers[to.id] = Peer(self, to, connection)
            return made

    # -- questions and answers -------------------------------------------------------------------------------------
    def worker(self, to: Any) -> WorkerInfo:
        """The worker of a name, a rank or a WorkerInfo; RuntimeError for one that is not there."""
        if isinstance(to, WorkerInfo):
            return to
        if isinstance(to, str):
            if to in self.names:
                return self.names[to].worker
            raise RuntimeError(f"name:{self.me.name},rank:{self.me.id} could not find destination name {to}; there are {list(self.names)}")
        if isinstance(to, int) and not isinstance(to, bool):
            if 0 <= to < len(self.everyone):
                return self.everyone[to].worker
            raise RuntimeError(f"name:{self.me.name},rank:{self.me.id} could not find destination id {to}; there are 0 to "
                               f"{len(self.everyone) - 1}")
        raise TypeError(f"a worker is named by a string, a rank or a WorkerInfo, not {type(to).__name__}")

    def ask(self, to: WorkerInfo, body: bytes, seconds: float) -> Future:
        """A future of the answer of `to`; it fails when `to` is gone or late."""
        with self._lock:
            self.questions += 1
        if to == self.me:
            answer: Future = Future()
            self.limit(answer, to, seconds, lambda error: complete(answer, error=error))
            self._do(to, body, lambda done: done.add_done_callback(lambda f: _pass_on(f, answer)))
            return answer
        try:
            return self.peer(to).ask(body, seconds)
        except RuntimeError as error:
            failed: Future = Future()
            failed.set_exception(error)
            return failed

    def limit(self, answer: Future, to: WorkerInfo, seconds: float, late: Callable[[Exception], None]) -> None:
        """Call `late` with an error when `answer` takes longer than `seconds`; 0 is no limit."""
        if seconds > 0:
            self.clock.at(time.monotonic() + seconds, answer, lambda: late(RuntimeError(
                f"RPC ran for more than set timeout ({int(seconds * 1000)} ms) and will now be marked with an error: {self.me} waited for "
                f"{to}")))

    def work(self, peer: Peer, number: int, body: bytes) -> None:
        """Run a question of `peer` in a thread, and answer it."""
        self._do(peer.worker, body, lambda done: done.add_done_callback(lambda f: peer.answer(number, f)))

    def _do(self, who: WorkerInfo, body: bytes, then: Callable[[Future], None]) -> None:
        with self._lock:
            self._running += 1

        def run() -> None:
            done = self.serve(who, body)
            then(done)
            done.add_done_callback(self._one_less)

        with contextlib.suppress(RuntimeError):  # of a pool that is closed: nobody waits for an answer
            self._pool.submit(run)

    def _one_less(self, _: Future) -> None:
        with self._lock:
            self._running -= 1

    def idle(self) -> bool:
        """Whether nothing runs here for others, nor was asked and not answered."""
        with self._lock:
            busy = self._running
        return not busy and not any(peer.asked for peer in list(self._peers.values()))

    # -- the end ----------------------------------------------------------------------------------------------------
    def lost(self, worker: WorkerInfo) -> None:
        """A connection with `worker` has ended."""
        if not self._closed:
            self.gone.add(worker)

    def close(self) -> None:
        """Serve nobody any more, and ask nobody."""
        self._closed = True
        close(self._listener)
        for peer in [*self._peers.values(), *self._guests]:
            peer.lose()
        self.clock.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def complete(future: Future, value: Any = None, error: Exception | None = None) -> None:
    """With an error, if there is one, or a value; a future that is complete (it was late) stays as it is."""
    with contextlib.suppress(RuntimeError):
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


def _pass_on(done: Future, to: Future) -> None:
    try:
        complete(to, done.value())
    except Exception as error:
        complete(to, error=error)
