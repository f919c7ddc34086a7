"""TCPStore: one process has the table and serves it in threads, the others ask over TCP.

Frames have a length and a limit, hold plain bytes and are never unpickled. Before anything is done, both sides show that they know the
job's secret (`FLAMBEAU_JOB_SECRET`, which torchrun draws; empty where processes are started by hand) by a keyed hash of a random
number of the other's: whoever sends something else is cut off.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ..core import locks
from ..core.settings import told
from .errors import DistNetworkError, DistStoreError, QueueEmptyError
from .listening import close, listen, welcome
from .stores import DEFAULT_TIMEOUT, HEAD_SIZE, OPERATIONS, SharedTable, Store, head_of, pack, parts_of

_MAGIC = b"flambeau store 1\n"
_ERRORS: dict[str, type[Exception]] = {c.__name__: c for c in (DistStoreError, QueueEmptyError, ValueError)}
_PATIENCE = 10.0  # seconds for a handshake


def _secret() -> bytes:
    return told("FLAMBEAU_JOB_SECRET").encode()


def _proof(challenge: bytes, who: bytes) -> bytes:
    return hmac.digest(_secret(), _MAGIC + who + challenge, "sha256")


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        got = connection.recv_into(view[at:])
        if not got:
            raise ConnectionError("the connection was closed")
        at += got
    return bytes(data)


def _receive_frame(connection: socket.socket) -> list[bytes]:
    size, count = head_of(_receive(connection, HEAD_SIZE))
    return parts_of(_receive(connection, size), size, count)


class Server:
    """The table and the threads that serve it, one for each connection."""

    def __init__(self, host: str, port: int, listen_fd: int | None = None) -> None:
        self.shared, self.clients, self._open = SharedTable(), 0, set[socket.socket]()
        self._closed, self._lock, self.tenants = False, locks.lock(), 0
        try:
            self._listener = listen(host, port) if listen_fd is None else socket.socket(fileno=listen_fd)
        except OSError as error:
            raise DistNetworkError(
                f"The server socket has failed to listen on any local network address. port: {port}, code: {-(error.errno or 0)}, "
                f"message: {os.strerror(error.errno or 0).lower()}; another job uses it: choose another MASTER_PORT (0: a free one)"
            ) from None
        self.port = self._listener.getsockname()[1]
        welcome(self._listener, self._serve, "flambeau-store")

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(_PATIENCE)
            self._greet(connection)
            connection.settimeout(None)
            with self._lock:
                self._open.add(connection)
            try:
                while True:
                    connection.sendall(self._answer(_receive_frame(connection)))
            finally:
                with self._lock:
                    self._open.discard(connection)
                with self.shared.changed:
                    self.shared.changed.notify_all()

    def _greet(self, connection: socket.socket) -> None:
        """ValueError for a stranger, who learns a random number and no more."""
        challenge = secrets.token_bytes(32)
        connection.sendall(_MAGIC + challenge)
        theirs = _receive(connection, 64)
        if not hmac.compare_digest(theirs[:32], _proof(challenge, b"client")):
            raise ValueError("not of this job")
        connection.sendall(_proof(theirs[32:], b"server"))
        with self.shared.changed:
            self.clients += 1
            self.shared.changed.notify_all()

    def _answer(self, parts: list[bytes]) -> bytes:
        if len(parts) < 2 or (operation := parts[0].decode("ascii", "replace")) not in OPERATIONS:
            raise ValueError("not a store's operation")
        try:
            answer = self.shared.do(operation, parts[2:], timedelta(milliseconds=int(parts[1])), lambda: not self._closed)
        except TypeError:
            raise ValueError(f"{operation} with {len(parts) - 2} arguments") from None
        except (DistStoreError, ValueError) as error:
            return pack(type(error).__name__.encode(), str(error).encode())
        return pack(b"", *answer)

    def wait_for_clients(self, count: int, timeout: timedelta) -> None:
        """Until `count` connections were made, this process's own among them."""
        deadline = time.monotonic() + timeout.total_seconds()
        with self.shared.changed:
            while self.clients < count:
                if (left := deadline - time.monotonic()) <= 0:
                    raise DistStoreError(f"Timed out after {timeout.total_seconds():g} seconds waiting for clients. "
                                         f"{self.clients}/{count} clients joined.")
                self.shared.changed.wait(left)

    def others_leave(self, seconds: float) -> None:
        """Until one connection is left, this process's own, or so many seconds have passed."""
        deadline = time.monotonic() + seconds
        with self.shared.changed:
            while len(self._open) > 1 and (left := deadline - time.monotonic()) > 0:
                self.shared.changed.wait(left)

    def close(self) -> None:
        """Serve nobody any more."""
        self._closed = True
        close(self._listener)
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class TCPStore(Store):
    """A store that the process with `is_master` serves at `host_name:port` (0: a free port, then to be read in `.port`).

    `wait_for_workers`: come back when `world_size` processes are there. With `multi_tenant` a second master of this process and port
    uses the first one's table, which is there until both are closed. `use_libuv` changes nothing.
    """

    _servers: dict[int, Server] = {}

    def __init__(
        self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False, timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True, multi_tenant: bool = False, master_listen_fd: int | None = None, use_libuv: bool = True,
    ) -> None:
        super().__init__()
        self.set_timeout(timeout)
        self.host, self._server, self._lock = host_name, None, locks.lock()
        self.libuvBackend = use_libuv
        if is_master:
            self._server = self._servers.get(port) if multi_tenant else None
            if self._server is None:
                self._server = Server(host_name, port, master_listen_fd)
                if multi_tenant:
                    self._servers[self._server.port] = self._server
            self._server.tenants += 1
            port = self._server.port
        self.port = port
        self._connection: socket.socket | None = self._connect(timeout)
        if self._server is not None and wait_for_workers and world_size is not None and world_size > 0:
            self._server.wait_for_clients(world_size, timeout)

    def _connect(self, timeout: timedelta) -> socket.socket:
        deadline = time.monotonic() + timeout.total_seconds()
        host, pause, last = "127.0.0.1" if self._server is not None else self.host, 0.01, ""
        if self._server is not None and self.host == "::1":
            host = "::1"
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise DistNetworkError(f"The client socket has timed out after {int(timeout.total_seconds() * 1000)}ms while trying "
                                       f"to connect to ({self.host}, {self.port}): {last}")
            try:
                connection = socket.create_connection((host, self.port), timeout=left)
                hello = self._hello(connection)
            except OSError as error:  # it may not be there yet; or the one of a job before has just closed, which says no word
                last = str(error)
                time.sleep(min(pause, max(left, 0)))
                pause = min(pause * 2, 0.5)
                continue
            try:
                return self._greet(connection, hello)
            except (OSError, ValueError) as error:
                connection.close()
                raise DistNetworkError(f"what answers at ({self.host}, {self.port}) is not this job's store: {error}; another job "
                                       "or program uses the port, or FLAMBEAU_JOB_SECRET differs") from None

    @staticmethod
    def _hello(connection: socket.socket) -> bytes:
        """What a server says first; TimeoutError is no reason to try again: it is none of a store's."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(_PATIENCE)
        try:
            return _receive(connection, len(_MAGIC) + 32)
        except TimeoutError:
            return b""
        except OSError:
            connection.close()
            raise

    @staticmethod
    def _greet(connection: socket.socket, hello: bytes) -> socket.socket:
        if not hello.startswith(_MAGIC):
            raise ValueError("it speaks another protocol")
        mine = secrets.token_bytes(32)
        connection.sendall(_proof(hello[len(_MAGIC):], b"client") + mine)
        if not hmac.compare_digest(_receive(connection, 32), _proof(mine, b"server")):
            raise ValueError("it does not know the job's secret")
        connection.settimeout(None)
        return connection

    def _do(self, operation: str, args: Sequence[bytes], timeout: timedelta) -> list[bytes]:
        frame = pack(operation.encode(), b"%d" % max(0, int(timeout.total_seconds() * 1000)), *args)
        head_of(frame[:HEAD_SIZE])  # too large? say so before the server does
        with self._lock:
            if self._connection is None:
                raise DistNetworkError(f"the connection to the store at ({self.host}, {self.port}) is closed")
            try:
                self._connection.sendall(frame)
                self._connection.settimeout(timeout.total_seconds() + _PATIENCE)
                kind, *answer = _receive_frame(self._connection)
            except BaseException as error:  # an interrupt too: what comes next would be the answer to this
                self._connection.close()
                self._connection = None
                if isinstance(error, (OSError, ValueError)):
                    raise DistNetworkError(f"the store at ({self.host}, {self.port}) does not answer: {error or 'no reason'}; has the "
                                           "process that serves it (rank 0, or the launcher) ended?") from None
                raise
        if kind:
            raise _ERRORS.get(kind.decode(), DistStoreError)(answer[0].decode())
        return answer

    def address(self) -> str:
        """This end of the connection: an address of this machine that the store's machine can reach."""
        if self._connection is None:
            raise DistNetworkError("the connection to the store is closed")
        return self._connection.getsockname()[0]

    def clone(self) -> Store:
        """The same store over a connection of its own."""
        return TCPStore(self.host, self.port, None, False, self.timeout)

    def close(self) -> None:
        """Close the connection, and stop serving."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        server, self._server = self._server, None
        if server is not None:
            server.tenants -= 1
            if not server.tenants:
                self._servers.pop(self.port, None)
                server.close()

    def leave(self) -> None:
        """Close; the last store of the process that serves stays a moment, until the others need it no more."""
        if self._server is not None and self._server.tenants == 1:
            self._server.others_leave(2.0)
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_lock", None) is not None and hasattr(self, "_connection"):
            with contextlib.suppress(Exception):
                self.close()

    def __reduce__(self) -> Any:
        return TCPStore, (self.host, self.port, None, False, self.timeout)
