"""The format of event files: protocol buffers in records that carry checksums (TFRecord)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

# -- protocol buffers: a message is a list of fields, each its number, its kind and its content ---------------------------------------


def varint(value: int) -> bytes:
    """A number in groups of 7 bits, least first; negative ones as 64 bits."""
    value &= (1 << 64) - 1
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def integer(number: int, value: int) -> bytes:
    """An int, bool or enum field."""
    return varint(number << 3) + varint(int(value))


def double(number: int, value: float) -> bytes:
    """A double field."""
    return varint(number << 3 | 1) + struct.pack("<d", value)


def single(number: int, value: float) -> bytes:
    """A float field; what is too large for one is infinite."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return varint(number << 3 | 5) + packed


def content(number: int, value: bytes | str) -> bytes:
    """A field of bytes, text or a message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def doubles(number: int, values: Iterable[float]) -> bytes:
    """A repeated double field, packed."""
    items = list(values)
    return content(number, struct.pack(f"<{len(items)}d", *items))


def singles(number: int, values: Iterable[float]) -> bytes:
    """A repeated float field, packed."""
    items = list(values)
    return content(number, struct.pack(f"<{len(items)}f", *items))


# -- records --------------------------------------------------------------------------------------------------------------------------
def _table() -> tuple[int, ...]:
    entries = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (0x82F63B78 if entry & 1 else 0)     # Castagnoli's polynomial, reflected
        entries.append(entry)
    return tuple(entries)


_CRC = _table()


def _masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and moved so that checksums of checksums differ."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """One record: length, checksum of it, data, checksum of that."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked_crc(length)) + data + struct.pack("<I", _masked_crc(data))


def event(wall_time: float, step: int | None = None, *, summary: bytes | None = None, version: str | None = None) -> bytes:
    """One event: when, at which step, and what."""
    parts = [double(1, wall_time)]
    if step is not None:
        parts.append(integer(2, step))
    if version is not None:
        parts.append(content(3, version))
    if summary is not None:
        parts.append(content(5, summary))
    return b"".join(parts)
