"""Endpoints, as launchers write them."""

from __future__ import annotations

import contextlib
import socket


def parse_rendezvous_endpoint(endpoint: str | None, default_port: int) -> tuple[str, int]:
    """(host, port) of "HOST", "HOST:PORT" or "[IPv6]:PORT"; the host is localhost without one, the port `default_port`."""
    host, colon, port = (endpoint or "").strip().rpartition(":")
    if not colon or port.endswith("]"):
        host, port = (endpoint or "").strip(), ""
    if port and not (port.isdigit() and int(port) < 1 << 16):
        raise ValueError(f"The port number of the rendezvous endpoint '{endpoint}' must be an integer between 0 and 65536.")
    return host.strip("[]") or "localhost", int(port or default_port)


def is_this_machine(host: str) -> bool:
    """Whether `host` names this machine: one of its names, or an address that a socket here can have."""
    if host in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()):
        return True
    with contextlib.suppress(OSError):
        for family, kind, number, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, number) as probe:
                probe.bind(address)
                return True
    return False
