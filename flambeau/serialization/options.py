"""What holds for every file that is saved or loaded: torch's get_ and set_ functions, and `skip_data`."""

from __future__ import annotations

import enum
import mmap
from types import TracebackType
from typing import Any


class LoadEndianness(enum.Enum):
    """The byte order of files that say nothing of theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Options:
    """The options as they are now."""

    compute_crc32: bool = True
    mmap_flags: int = mmap.MAP_PRIVATE
    endianness: LoadEndianness | None = None
    skipping: bool = False


now = _Options()


def get_crc32_options() -> bool:
    """Whether `save` writes checksums."""
    return now.compute_crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Whether `save` computes and writes a checksum of each member. Without them unzip complains, and `load` checks nothing."""
    now.compute_crc32 = compute_crc32


def get_default_load_endianness() -> LoadEndianness | None:
    """What `set_default_load_endianness` has set."""
    return now.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """The byte order of files that don't tell it; None: little."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError(f"Invalid argument type in function set_default_load_endianness: {type(endianness).__name__}")
    now.endianness = endianness


def get_default_mmap_options() -> int:
    """How `load(mmap=True)` maps a file."""
    return now.mmap_flags


class _Put:
    """An option that is set at once, and put back at the end of a `with` block if it is used as one."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.before = name, getattr(now, name)
        setattr(now, name, value)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        setattr(now, self.name, self.before)


class set_default_mmap_options(_Put):
    """How `load(mmap=True)` maps a file: mmap.MAP_PRIVATE (writes stay in memory) or mmap.MAP_SHARED (they reach the file); a context
    manager too."""

    def __init__(self, flags: int) -> None:
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError("Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, "
                             f"but got {flags}")
        super().__init__("mmap_flags", flags)


class skip_data:
    """In the block `save` leaves the bytes of storages out, their places empty, and `load` makes tensors without reading them."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        if materialize_fake_tensors:
            raise NotImplementedError("skip_data(materialize_fake_tensors=True): save tensors that have elements (torch.empty_like)")

    def __enter__(self) -> None:
        self.before, now.skipping = now.skipping, True

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        now.skipping = self.before
