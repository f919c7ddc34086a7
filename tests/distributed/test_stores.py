"""Stores: values under names, shared by threads, by processes through a file, and over TCP."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import flambeau.distributed as dist
from flambeau.distributed import tcp_store
from tests.distributed.processes import free_port

KINDS = ("hash", "file", "tcp", "prefix", "torch")
SHORT = timedelta(milliseconds=60)


def make(kind: str, folder: Path, library: Any = dist) -> Any:
    if kind == "file":
        return library.FileStore(str(folder / "store"), 1)
    if kind == "tcp":
        return library.TCPStore("127.0.0.1", 0, 1, True)
    return library.PrefixStore("part", library.HashStore()) if kind == "prefix" else library.HashStore()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "torch":  # the tests themselves, on the oracle
        yield pytest.importorskip("torch.distributed").HashStore()
        return
    made = make(request.param, tmp_path)
    yield made
    if isinstance(made, dist.TCPStore):
        made.close()


def error(store: Any, name: str = "DistStoreError") -> type[Exception]:
    return RuntimeError if type(store).__module__.startswith("torch") else getattr(dist, name)


def test_values(store: Any) -> None:
    store.set("a", "1")
    store.set("b", b"\0\xff")
    assert store.get("a") == b"1" and store.get("b") == b"\0\xff"
    assert store.check(["a", "b"]) and not store.check(["a", "c"])
    store.append("a", "23")
    assert store.get("a") == b"123" and store.num_keys() == 2 and sorted(store.list_keys()) == ["a", "b"]
    assert store.delete_key("a") is True and store.delete_key("a") is False
    store.multi_set(["x", "y"], ["7", "8"])
    assert store.multi_get(["y", "x"]) == [b"8", b"7"] and store.has_extended_api()


def test_counting(store: Any) -> None:
    assert [store.add("n", k) for k in (3, -1, 0)] == [3, 2, 2]
    assert store.get("n") == b"2"
    store.set("word", "x")
    with pytest.raises((ValueError, RuntimeError)):
        store.add("word", 1)
    assert store.get("word") == b"x"


def test_compare_set(store: Any) -> None:
    assert store.compare_set("k", "", "a") == b"a"
    assert store.compare_set("k", "b", "c") == b"a"
    assert store.compare_set("k", "a", "c") == b"c"
    assert store.compare_set("none", "a", "c") == b"a" and not store.check(["none"])


def test_queues(store: Any) -> None:
    store.queue_push("q", "first")
    store.queue_push("q", "second")
    assert store.queue_len("q") == 2
    assert store.queue_pop("q") == b"first" and store.queue_pop("q") == b"second"
    with pytest.raises(error(store, "QueueEmptyError"), match="empty"):
        store.queue_pop("q", False)


def test_waiting_ends(store: Any) -> None:
    begun = time.monotonic()
    with pytest.raises(error(store), match=r"[Ww]ait timeout"):
        store.wait(["never"], SHORT)
    store.set_timeout(SHORT)
    assert store.timeout == SHORT
    with pytest.raises(error(store), match=r"[Ww]ait timeout"):
        store.get("never")
    assert 0.1 < time.monotonic() - begun < 10


def test_waiting_for_another(store: Any) -> None:
    other = store.clone() if isinstance(store, dist.TCPStore) else store
    thread = threading.Timer(0.05, lambda: other.set("late", "here"))
    thread.start()
    assert store.get("late") == b"here"
    thread.join()


def test_prefixes_are_parts(tmp_path: Path) -> None:
    whole = dist.HashStore()
    part = dist.PrefixStore("p", dist.PrefixStore("q", whole))
    part.set("k", "v")
    assert whole.get("q/p/k") == b"v" and part.underlying_store.prefix == "q" and part.list_keys() == ["k"]


def test_a_file_is_shared_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    first, second = dist.FileStore(str(path), 2), dist.FileStore(str(path), 2)
    first.set("k", "1")
    assert second.add("k", 4) == 5 and first.get("k") == b"5"
    del first
    assert path.exists()
    del second
    assert not path.exists()
    path.write_bytes(b"something else" * 10)
    with pytest.raises((ValueError, RuntimeError)):
        dist.FileStore(str(path))


@pytest.fixture
def server() -> Iterator[dist.TCPStore]:
    made = dist.TCPStore("127.0.0.1", 0, None, True)
    yield made
    made.close()


def test_several_clients(server: dist.TCPStore) -> None:
    clients = [dist.TCPStore("127.0.0.1", server.port) for _ in range(4)]

    def count(client: dist.TCPStore) -> None:
        for _ in range(50):
            client.add("n", 1)

    threads = [threading.Thread(target=count, args=(c,)) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.get("n") == b"200"
    server.set("big", b"x" * 3_000_000)
    assert len(clients[0].get("big")) == 3_000_000
    for client in clients:
        client.close()
    with pytest.raises(dist.DistNetworkError, match="closed"):
        clients[0].get("n")


def received(connection: socket.socket) -> bytes:
    """All that comes until the other side closes, or resets."""
    got = b""
    with contextlib.suppress(OSError):  # reset
        while part := connection.recv(1000):
            got += part
    return got


STRANGERS = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x80\x04\x95pickle" * 20, b"\xff" * 1000, b"\0" * 64]


@pytest.mark.parametrize("hello", STRANGERS)
def test_strangers_are_cut_off(server: dist.TCPStore, hello: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as stranger:
        with contextlib.suppress(OSError):  # cut off before all was said
            stranger.sendall(hello)
            stranger.shutdown(socket.SHUT_WR)
        assert len(received(stranger)) <= len(tcp_store._MAGIC) + 32  # a random number, and nothing else
    server.set("k", "v")
    assert server.get("k") == b"v"


def test_a_client_that_turns_bad(server: dist.TCPStore) -> None:
    for bad in (b"\xff" * 8, b"\x05\0\0\0\xff\0\0\0abcde", tcp_store.pack(b"__init__", b"5"), tcp_store.pack(b"get")):
        client = dist.TCPStore("127.0.0.1", server.port)
        assert client._connection is not None
        client._connection.sendall(bad)
        assert received(client._connection) == b""
    assert server.add("n", 1) == 1


def test_another_jobs_secret(server: dist.TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_store, "_secret", iter([b"one", b"two", b"three"] * 9).__next__)
    with pytest.raises(dist.DistNetworkError, match="not this job's store"):
        dist.TCPStore("127.0.0.1", server.port)


@pytest.mark.parametrize(("call", "kind", "message"), [
    (lambda: dist.TCPStore("127.0.0.1", free_port(), timeout=SHORT), "DistNetworkError", "timed out after 60ms while trying to connect"),
    (lambda: dist.TCPStore("127.0.0.1", 0, 3, True, SHORT), "DistStoreError", "1/3 clients joined"),
])
def test_who_does_not_come(call: Callable, kind: str, message: str) -> None:
    with pytest.raises(getattr(dist, kind), match=message):
        call()


def test_a_taken_port(server: dist.TCPStore) -> None:
    with pytest.raises(dist.DistNetworkError, match=r"failed to listen.*in use.*MASTER_PORT"):
        dist.TCPStore("127.0.0.1", server.port, None, True)


def test_a_server_that_ends(server: dist.TCPStore) -> None:
    client = dist.TCPStore("127.0.0.1", server.port, timeout=timedelta(seconds=20))
    threading.Timer(0.1, server.close).start()
    with pytest.raises(dist.DistError):
        client.get("never")


def test_bad_arguments(server: dist.TCPStore) -> None:
    with pytest.raises(TypeError, match="bytes"):
        server.set("k", 5)
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        server.multi_set(["a", "b"], ["1"])
    with pytest.raises(TypeError, match="timedelta"):
        server.set_timeout(5)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="get"):
        dist.Store().get("k")


def test_the_store_of_a_job_before_that_closes() -> None:
    """Who meets a store that goes without a word waits for the one that comes."""
    before = socket.create_server(("127.0.0.1", 0))
    port = before.getsockname()[1]
    found: list = []
    client = threading.Thread(target=lambda: found.append(dist.TCPStore("127.0.0.1", port, timeout=timedelta(seconds=20))))
    client.start()
    before.accept()[0].close()
    before.close()
    server = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    client.join()
    server.set("k", "v")
    assert found[0].get("k") == b"v"
    server.close()
