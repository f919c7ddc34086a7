"""Servers of a job: a socket that listens, and a thread that meets who comes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


def listen(host: str, port: int = 0) -> socket.socket:
    """On all addresses, as a name like MASTER_ADDR may mean any of them; on the loopback alone where that is the host. 0: a free port."""
    local = host in ("localhost", "127.0.0.1", "::1")
    if not local and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    if host == "::1":
        return socket.create_server((host, port), family=socket.AF_INET6, backlog=1024)
    return socket.create_server(("127.0.0.1" if local else "", port), backlog=1024)


def welcome(listener: socket.socket, meet: Callable[[socket.socket], None], name: str) -> None:
    """Call `meet(connection)` for each who comes, in a thread of its own, until the listener is closed (`close`)."""
    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=meet, args=(connection,), name=f"{name}-client", daemon=True).start()

    threading.Thread(target=accept, name=name, daemon=True).start()


def close(listener: socket.socket) -> None:
    """Nobody is met any more."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
