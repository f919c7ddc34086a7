"""The state of a rendezvous in a store of the job: a TCPStore that the launcher of the first machine holds, or a file."""

from __future__ import annotations

import contextlib
import tempfile
from datetime import timedelta
from typing import Any

from ...errors import DistError
from ...stores import FileStore, Store
from ...tcp_store import TCPStore
from . import RendezvousConnectionError, RendezvousParameters
from .dynamic_rendezvous import RendezvousBackend
from .utils import is_this_machine, parse_rendezvous_endpoint

DEFAULT_PORT = 29400


class C10dRendezvousBackend(RendezvousBackend):
    """The state is a value of `store`; its token is that value."""

    def __init__(self, store: Store, run_id: str) -> None:
        if not run_id:
            raise ValueError("The run id must be a non-empty string.")
        self._store, self._key = store, f"torch.rendezvous.{run_id}"

    @property
    def name(self) -> str:
        return "c10d"

    def get_state(self) -> tuple[bytes, Any] | None:
        with _reachable():
            state = self._store.get(self._key) if self._store.check([self._key]) else b""
        return (state, state) if state else None

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, Any, bool] | None:
        with _reachable():
            now = self._store.compare_set(self._key, token or b"", state)
        return (now, now, now == state) if now else None

    def close(self) -> bool:
        if isinstance(self._store, TCPStore):
            self._store.leave()
        return isinstance(self._store, TCPStore)


@contextlib.contextmanager
def _reachable() -> Any:
    try:
        yield
    except (DistError, OSError) as error:
        raise RendezvousConnectionError(f"The connection to the C10d store has failed. See inner exception for details: {error}") from error


def create_backend(params: RendezvousParameters) -> tuple[C10dRendezvousBackend, Store]:
    """The backend that `params` describe, and its store: "tcp" (served here if the endpoint is this machine's and nobody serves it yet;
    `is_host` says so), or "file" with `store_type=file`; `read_timeout` seconds."""
    kind = str(params.get("store_type", "tcp")).strip().lower()
    if kind not in ("tcp", "file"):
        raise ValueError(f"Invalid store type {kind!r} given. Currently only file and tcp are supported.")
    seconds = params.get_as_int("read_timeout", 60)
    if seconds is None or seconds <= 0:
        raise ValueError(f"The read timeout must be a positive integer; it is {seconds}")
    with _reachable():
        store = _tcp(params, seconds) if kind == "tcp" else FileStore(params.endpoint or tempfile.mkstemp()[1])
    return C10dRendezvousBackend(store.clone(), params.run_id), store  # signs of life go on while somebody waits for a key of `store`


def _tcp(params: RendezvousParameters, seconds: int) -> TCPStore:
    host, port = parse_rendezvous_endpoint(params.endpoint, DEFAULT_PORT)

    def made(serves: bool) -> TCPStore:
        return TCPStore(host, port, None, serves, timedelta(seconds=seconds), wait_for_workers=False)

    serves = params.get_as_bool("is_host")
    if serves is None and is_this_machine(host):
        with contextlib.suppress(DistError):  # another launcher of this machine may have it
            return made(True)
    return made(bool(serves))
