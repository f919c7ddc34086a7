"""The file of a package: a zip archive whose members are stored as they are, so that weights are mapped from it.

`manifest.txt` has a line for each fact, the last being the SHA-256 of those before: version, the library's interface, machine and
instruction sets, size and SHA-256 of `library.so`, size and CRC-32 of `weights.bin`, and how Python calls it. flambeau/include/aoti.h
reads it.
"""

from __future__ import annotations

import hashlib
import platform
import zipfile
import zlib
from collections.abc import Iterable
from typing import IO

VERSION = 1
_PLACES = 4096      # the weights begin at a multiple of that many bytes


def manifest(facts: Iterable[tuple[str, str]]) -> bytes:
    """The lines of words and facts, and their checksum."""
    text = "".join(f"{line}\n" for line in ("flambeau package", *(f"{word} {fact}" for word, fact in facts))).encode()
    return text + f"sha256 {hashlib.sha256(text).hexdigest()}\n".encode()


def write_package(file: IO[bytes], library: bytes, weights: bytes, *, abi: int, features: Iterable[str],
                  facts: Iterable[tuple[str, str]]) -> None:
    """Write a package; `facts` are further lines of its manifest."""
    told = manifest([
        ("version", str(VERSION)), ("abi", str(abi)), ("machine", platform.machine()), ("needs", " ".join(features)),
        ("library", f"{len(library)} {hashlib.sha256(library).hexdigest()}"), ("weights", f"{len(weights)} {zlib.crc32(weights)}"), *facts])
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("manifest.txt"), told)
        archive.writestr(zipfile.ZipInfo("library.so"), library)
        info = zipfile.ZipInfo("weights.bin")
        large = len(weights) >= zipfile.ZIP64_LIMIT
        start = file.tell() + 30 + len(info.filename) + 4 + 20 * large
        info.extra = b"\xff\xff" + (-start % _PLACES).to_bytes(2, "little") + bytes(-start % _PLACES)     # a field that nobody reads
        with archive.open(info, "w", force_zip64=large) as member:
            member.write(weights)
        info.extra = b""        # not in the directory
