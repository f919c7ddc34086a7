"""What holds for every file that is saved or loaded: torch's get_ and set_ functions, and `skip_data`."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from mmap import MAP_PRIVATE, MAP_SHARED
from types import TracebackType
from typing import Any


class LoadEndianness(enum.Enum):
    """The byte order of files that say nothing of theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Load:
    """How files are read (torch.utils.serialization.config.load)."""

    mmap: bool = False
    endianness: LoadEndianness | None = None
    mmap_flags: int = MAP_PRIVATE
    calculate_storage_offsets: bool = False     # changes nothing: where a storage lies is always read from its own header


class _Save:
    """How files are written (torch.utils.serialization.config.save)."""

    compute_crc32: bool = True
    use_pinned_memory_for_d2h: bool = False     # changes nothing: copies from a GPU go through the driver's own pinned memory
    storage_alignment: int = 64


class _Skipping:
    """Whether the bytes of storages are left out, and whether fake tensors are saved as if they had some: `skip_data`."""

    on = materialize = False


loading, saving, skipping = _Load(), _Save(), _Skipping()


@contextlib.contextmanager
def patch(name: str | dict[str, Any], value: Any = None) -> Iterator[None]:
    """Other settings for a block or a function: `patch("load.mmap", True)`, `patch({"save.storage_alignment": 4096})`."""
    changes = name if isinstance(name, dict) else {name: value}
    before = []
    try:
        for path, new in changes.items():
            group, _, key = path.partition(".")
            place: Any = {"load": loading, "save": saving}[group]
            before.append((place, key, getattr(place, key)))
            setattr(place, key, new)
        yield
    finally:
        for place, key, old in reversed(before):
            setattr(place, key, old)


def get_crc32_options() -> bool:
    """Whether `save` writes checksums."""
    return saving.compute_crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Whether `save` computes and writes a checksum of each member. Without them unzip complains, and `load` checks nothing."""
    saving.compute_crc32 = compute_crc32


def get_default_load_endianness() -> LoadEndianness | None:
    """What `set_default_load_endianness` has set."""
    return loading.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """The byte order of files that don't tell it; None: little."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError(f"Invalid argument type in function set_default_load_endianness: {type(endianness).__name__}")
    loading.endianness = endianness


def get_default_mmap_options() -> int:
    """How `load(mmap=True)` maps a file."""
    return loading.mmap_flags


class _Put:
    """An option that is set at once, and put back at the end of a `with` block if it is used as one."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.before = name, getattr(loading, name)
        setattr(loading, name, value)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        setattr(loading, self.name, self.before)


class set_default_mmap_options(_Put):
    """How `load(mmap=True)` maps a file: MAP_PRIVATE (writes stay in memory) or MAP_SHARED (they reach the file); a context
    manager too."""

    def __init__(self, flags: int) -> None:
        if flags not in (MAP_PRIVATE, MAP_SHARED):
            raise ValueError("Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, "
                             f"but got {flags}")
        super().__init__("mmap_flags", flags)


class skip_data:
    """In the block `save` leaves the bytes of storages out, their places empty, and `load` makes tensors without reading them. With
    `materialize_fake_tensors` fake tensors are saved like others."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self.before = skipping.on, skipping.materialize
        skipping.on, skipping.materialize = True, self.materialize_fake_tensors

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        skipping.on, skipping.materialize = self.before
