"""Stores: small values under names that the processes of a job share. They find each other through one.

What a store can do is written once, as operations on a `Table`. A HashStore does them on its own table; a FileStore on one that it reads
from a file, where it notes what changes; a TCPStore sends them to the process that has the table (`tcp_store`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, BinaryIO

from ..core import locks
from .errors import DistStoreError, QueueEmptyError

DEFAULT_TIMEOUT = timedelta(seconds=300)


class Table:
    """The values, and what can be done with them. Each operation takes bytes and returns a list of bytes."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.queues: dict[bytes, list[bytes]] = {}

    def has(self, *keys: bytes) -> bool:
        """Whether all these are there."""
        return all(key in self.values or self.queues.get(key) for key in keys)

    def set(self, *pairs: bytes) -> list[bytes]:
        """Put values under keys: key, value, key, value, ..."""
        self.values.update(zip(pairs[::2], pairs[1::2]))
        return []

    def get(self, *keys: bytes) -> list[bytes]:
        """The values under these keys."""
        return [self.values[key] for key in keys]

    def check(self, *keys: bytes) -> list[bytes]:
        """Are they all there?"""
        return [b"1" if self.has(*keys) else b""]

    def add(self, key: bytes, amount: bytes) -> list[bytes]:
        """Count: the new sum."""
        try:
            total = int(self.values.get(key, b"0")) + int(amount)
        except ValueError:
            raise ValueError(f"add({key.decode()!r}): the value is not a number but {self.values[key][:50]!r}") from None
        self.values[key] = b"%d" % total
        return [self.values[key]]

    def compare_set(self, key: bytes, expected: bytes, desired: bytes) -> list[bytes]:
        """Put `desired` where `expected` is, or where nothing is and "" was expected. What is there then (or was expected)."""
        have = self.values.get(key)
        if have == expected or (have is None and not expected):
            self.values[key] = have = desired
        return [expected if have is None else have]

    def delete_key(self, key: bytes) -> list[bytes]:
        """Forget one; was it there?"""
        return [b"1" if self.values.pop(key, None) is not None else b""]

    def num_keys(self) -> list[bytes]:
        """How many there are."""
        return [b"%d" % len(self.values)]

    def list_keys(self) -> list[bytes]:
        """Their names."""
        return sorted(self.values)

    def append(self, key: bytes, value: bytes) -> list[bytes]:
        """Write behind what is there."""
        self.values[key] = self.values.get(key, b"") + value
        return []

    def queue_push(self, key: bytes, value: bytes) -> list[bytes]:
        """Put a value at the end of a queue."""
        self.queues.setdefault(key, []).append(value)
        return []

    def queue_pop(self, key: bytes) -> list[bytes]:
        """Take the first value of a queue."""
        queue = self.queues.get(key)
        if not queue:
            raise QueueEmptyError("queue is empty")
        return [queue.pop(0)]

    def queue_len(self, key: bytes) -> list[bytes]:
        """How many values a queue has."""
        return [b"%d" % len(self.queues.get(key, ()))]


# Operations that leave the table as it is; those that wait until all keys (or the first only) are there.
READING = frozenset({"get", "check", "num_keys", "list_keys", "queue_len"})
OPERATIONS = frozenset(name for name in vars(Table) if not name.startswith("_") and name != "has")


def waits_for(operation: str, args: Sequence[bytes]) -> Sequence[bytes]:
    """The keys without which an operation has to wait."""
    return args if operation == "get" else ()


def _bytes(value: Any, what: str = "value") -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (list, tuple)) and all(isinstance(v, int) for v in value):
        return bytes(value)
    raise TypeError(f"a store's {what} is a str or bytes, not {type(value).__name__}")


class Store:
    """What all stores share. One of your own overrides `set`, `get`, `add`, `wait`, `check` ..., or `_do` alone."""

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT

    def _do(self, operation: str, args: Sequence[bytes], timeout: timedelta) -> list[bytes]:
        """One operation of `Table`; DistStoreError when what it needs is not there in time."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to {operation}()")

    def _now(self, operation: str, *args: bytes) -> list[bytes]:
        return self._do(operation, args, self.timeout)

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait."""
        return getattr(self, "_timeout", DEFAULT_TIMEOUT)

    def set_timeout(self, timeout: timedelta) -> None:
        """Wait at most so long from now on."""
        if not isinstance(timeout, timedelta):
            raise TypeError(f"set_timeout() takes a datetime.timedelta, not {type(timeout).__name__}")
        self._timeout = timeout

    def set(self, key: str, value: Any) -> None:
        """Put a value (bytes, or text) under `key`."""
        self._now("set", _bytes(key, "key"), _bytes(value))

    def get(self, key: str) -> bytes:
        """The value under `key`, once it is there."""
        return self._now("get", _bytes(key, "key"))[0]

    def add(self, key: str, amount: int) -> int:
        """Add to the number under `key` (0 if there is none); the sum."""
        return int(self._now("add", _bytes(key, "key"), b"%d" % amount)[0])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Until all `keys` are there."""
        self._do("get", [_bytes(key, "key") for key in keys], self.timeout if timeout is None else timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all `keys` are there."""
        return bool(self._now("check", *(_bytes(key, "key") for key in keys))[0])

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        """Put `desired_value` where `expected_value` is (or nothing is, and "" was expected); the value afterwards."""
        return self._now("compare_set", _bytes(key, "key"), _bytes(expected_value), _bytes(desired_value))[0]

    def delete_key(self, key: str) -> bool:
        """Forget `key`; whether it was there."""
        return bool(self._now("delete_key", _bytes(key, "key"))[0])

    def num_keys(self) -> int:
        """How many keys there are."""
        return int(self._now("num_keys")[0])

    def list_keys(self) -> list[str]:
        """All keys."""
        return [key.decode() for key in self._now("list_keys")]

    def append(self, key: str, value: Any) -> None:
        """Write behind the value that `key` has."""
        self._now("append", _bytes(key, "key"), _bytes(value))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, once all are there."""
        return self._now("get", *(_bytes(key, "key") for key in keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        """Put several values at once."""
        if len(keys) != len(values):
            raise ValueError(f"multi_set(): {len(keys)} keys and {len(values)} values")
        self._now("set", *(part for k, v in zip(keys, values) for part in (_bytes(k, "key"), _bytes(v))))

    def queue_push(self, key: str, value: Any) -> None:
        """Put a value at the end of the queue `key`."""
        self._now("queue_push", _bytes(key, "key"), _bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of the queue `key`: the next one to come, or QueueEmptyError at once unless `block`."""
        deadline = time.monotonic() + self.timeout.total_seconds()
        while True:
            try:
                return self._now("queue_pop", _bytes(key, "key"))[0]
            except QueueEmptyError:
                if not block:
                    raise
                if time.monotonic() > deadline:
                    raise late([_bytes(key, "key")], self.timeout) from None
                time.sleep(0.005)

    def queue_len(self, key: str) -> int:
        """How many values the queue `key` has."""
        return int(self._now("queue_len", _bytes(key, "key"))[0])

    def has_extended_api(self) -> bool:
        """Whether it knows `append`, `multi_get` and `multi_set`."""
        return True

    def clone(self) -> Store:
        """The same store over a connection of its own, for another thread."""
        return self


def late(keys: Sequence[bytes], timeout: timedelta) -> DistStoreError:
    """What to raise when keys did not come."""
    names = ", ".join("/" + key.decode(errors="replace") for key in keys)
    return DistStoreError(f"wait timeout after {int(timeout.total_seconds() * 1000)}ms, keys: {names}")


class SharedTable:
    """A table that several threads use: an operation waits until the keys that it needs are there."""

    def __init__(self) -> None:
        self.table, self.changed = Table(), threading.Condition(locks.reentrant_lock())

    def do(self, operation: str, args: Sequence[bytes], timeout: timedelta, alive: Callable[[], bool] = lambda: True) -> list[bytes]:
        """One operation; DistStoreError when it would have to wait longer."""
        needed, deadline = waits_for(operation, args), time.monotonic() + timeout.total_seconds()
        with self.changed:
            while not self.table.has(*needed):
                left = deadline - time.monotonic()
                if not alive():
                    raise ConnectionError("the store was closed")
                if left <= 0:
                    raise late([key for key in needed if not self.table.has(key)], timeout)
                self.changed.wait(min(left, 1.0))
            answer = getattr(self.table, operation)(*args)
            if operation not in READING:
                self.changed.notify_all()
        return answer


class HashStore(Store):
    """A store of one process (and its threads)."""

    def __init__(self) -> None:
        super().__init__()
        self._shared = SharedTable()

    def _do(self, operation: str, args: Sequence[bytes], timeout: timedelta) -> list[bytes]:
        return self._shared.do(operation, args, timeout)


class FileStore(Store):
    """A store in a file on a disk that all processes see. The file is a log of what was done, read on from where one stopped.

    With `world_size`, the last of so many stores to be let go of removes the file.
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path, self._world_size = os.fspath(file_name), world_size
        self._table, self._position, self._lock = Table(), 0, locks.lock()
        self.num_keys()  # a file that is none of a store's is told at once

    def _do(self, operation: str, args: Sequence[bytes], timeout: timedelta) -> list[bytes]:
        needed, deadline = waits_for(operation, args), time.monotonic() + timeout.total_seconds()
        while True:
            with self._lock, self._locked(writing=operation not in READING) as file:
                self._read_on(file)
                if self._table.has(*needed):
                    answer = getattr(self._table, operation)(*args)
                    if operation not in READING:
                        self._note(file, operation, args)
                    return answer
            if time.monotonic() > deadline:
                raise late([key for key in needed if not self._table.has(key)], timeout)
            time.sleep(0.01)

    @contextlib.contextmanager
    def _locked(self, writing: bool) -> Iterator[BinaryIO]:
        flags = os.O_RDWR | os.O_CREAT
        with os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX if writing else fcntl.LOCK_SH)
            yield file

    def _read_on(self, file: BinaryIO) -> None:
        file.seek(self._position)
        data = file.read()
        at = 0
        while at < len(data):
            parts, at = unpack(data, at)
            if len(parts) < 1 or parts[0].decode(errors="replace") not in OPERATIONS:
                raise DistStoreError(f"{self.path} is not a FileStore's")
            getattr(self._table, parts[0].decode())(*parts[1:])
        self._position += at

    def _note(self, file: BinaryIO, operation: str, args: Sequence[bytes]) -> None:
        record = pack(operation.encode(), *args)
        file.seek(0, os.SEEK_END)
        file.write(record)
        self._position += len(record)

    def __del__(self) -> None:
        if getattr(self, "_world_size", 0) > 0:
            with contextlib.suppress(Exception):
                self.queue_push(_LEFT, "")  # a queue: no key
                if self.queue_len(_LEFT) >= self._world_size:
                    os.remove(self.path)


_LEFT = "&left"


class PrefixStore(Store):
    """A part of another store: its keys begin with `prefix/` there."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self.prefix, self.underlying_store = prefix, store

    @property
    def timeout(self) -> timedelta:
        """The store's."""
        return self.underlying_store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """The store's."""
        self.underlying_store.set_timeout(timeout)

    @property
    def _underlying_non_prefix_store(self) -> Store:
        store = self.underlying_store
        return store._underlying_non_prefix_store if isinstance(store, PrefixStore) else store

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    def _keys(self, keys: Sequence[str]) -> list[str]:
        return [self._key(key) for key in keys]

    def set(self, key: str, value: Any) -> None:
        """Put a value under `key`."""
        self.underlying_store.set(self._key(key), value)

    def get(self, key: str) -> bytes:
        """The value under `key`, once it is there."""
        return self.underlying_store.get(self._key(key))

    def add(self, key: str, amount: int) -> int:
        """Add to the number under `key`; the sum."""
        return self.underlying_store.add(self._key(key), amount)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Until all `keys` are there."""
        rest = () if timeout is None else (timeout,)
        self.underlying_store.wait(self._keys(keys), *rest)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all `keys` are there."""
        return self.underlying_store.check(self._keys(keys))

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        """Put `desired_value` where `expected_value` is; the value afterwards."""
        return self.underlying_store.compare_set(self._key(key), expected_value, desired_value)

    def delete_key(self, key: str) -> bool:
        """Forget `key`; whether it was there."""
        return self.underlying_store.delete_key(self._key(key))

    def num_keys(self) -> int:
        """How many keys the whole store has, as in torch."""
        return self.underlying_store.num_keys()

    def list_keys(self) -> list[str]:
        """The keys of this part."""
        start = f"{self.prefix}/"
        return [key[len(start):] for key in self.underlying_store.list_keys() if key.startswith(start)]

    def append(self, key: str, value: Any) -> None:
        """Write behind the value that `key` has."""
        self.underlying_store.append(self._key(key), value)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, once all are there."""
        return self.underlying_store.multi_get(self._keys(keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        """Put several values at once."""
        self.underlying_store.multi_set(self._keys(keys), values)

    def queue_push(self, key: str, value: Any) -> None:
        """Put a value at the end of the queue `key`."""
        self.underlying_store.queue_push(self._key(key), value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of the queue `key`."""
        return self.underlying_store.queue_pop(self._key(key), block)

    def queue_len(self, key: str) -> int:
        """How many values the queue `key` has."""
        return self.underlying_store.queue_len(self._key(key))

    def has_extended_api(self) -> bool:
        """As the store."""
        return self.underlying_store.has_extended_api()

    def clone(self) -> Store:
        """The same part, over a connection of its own."""
        return PrefixStore(self.prefix, self.underlying_store.clone())


# -- how an operation is written, in a file or on a wire -------------------------------------------------------
_HEAD = struct.Struct("<II")  # bytes that follow, number of parts
LIMIT = 1 << 28


def pack(*parts: bytes) -> bytes:
    """Parts as one frame."""
    body = b"".join(struct.pack("<I", len(part)) + part for part in parts)
    return _HEAD.pack(len(body), len(parts)) + body


def unpack(data: bytes, at: int = 0) -> tuple[list[bytes], int]:
    """The parts of the frame at `at`, and where it ends; ValueError for bytes that are none."""
    if len(data) - at < _HEAD.size:
        raise ValueError("a frame is cut off")
    size, count = _HEAD.unpack_from(data, at)
    at += _HEAD.size
    return parts_of(data[at : at + size], size, count), at + size


def parts_of(body: bytes, size: int, count: int) -> list[bytes]:
    """The parts of a frame's body."""
    parts, at = [], 0
    for _ in range(count):
        if at + 4 > len(body):
            break
        (length,) = struct.unpack_from("<I", body, at)
        parts.append(body[at + 4 : at + 4 + length])
        at += 4 + length
    if at != size or len(body) != size or len(parts) != count:
        raise ValueError("a frame's parts do not fill it")
    return parts


HEAD_SIZE = _HEAD.size


def head_of(data: bytes) -> tuple[int, int]:
    """(bytes, parts) that a frame's head promises."""
    size, count = _HEAD.unpack(data)
    if size > LIMIT or count > size:
        raise ValueError(f"a frame of {size} bytes in {count} parts is not a store's (at most {LIMIT} bytes)")
    return size, count
