"""Safetensors files: named tensors and nothing else, the format in which most published weights travel.

    save_file({"weight": tensor}, "model.safetensors");  load_file("model.safetensors")

The format: eight bytes with the header's length, a JSON header (name -> dtype, shape, data_offsets), then the bytes of
all tensors without gaps; see the format section of https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.device import device
from ..core.dtypes import DTYPES
from ..core.tensor import Tensor, from_array
from ..core.unresolved import resolved
from ..serialization.archive import replacing


class SafetensorError(RuntimeError):
    """A file is not a safetensors file, or a damaged one, or tensors cannot be written to one."""


LONGEST_HEADER = 100_000_000  # bytes, the format's own limit
MOST_DIMENSIONS = 64          # NumPy's

_CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64",
    "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
}  # fmt: skip
_OF_CODE = {code: DTYPES[name] for name, code in _CODES.items()}


def _bytes_of(name: str, tensor: Any) -> np.ndarray:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
    if tensor.is_fake:
        raise ValueError(f"Key `{name}` is a tensor without elements (device {tensor.device}) and cannot be saved")
    if tensor.dtype.name not in _CODES:
        raise ValueError(f"Key `{name}` has dtype {tensor.dtype}, which safetensors cannot hold. It holds: {', '.join(_CODES)}")
    return np.ascontiguousarray(resolved(tensor._data)).reshape(-1).view(np.uint8)


def _check_unshared(tensors: Mapping[str, Tensor]) -> None:
    """The format cannot say that two tensors share memory: refuse to write them twice in silence."""
    owners: dict[int, str] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor) and not tensor.is_fake and tensor._storage.nbytes:
            first = owners.setdefault(tensor._storage.buffer.__array_interface__["data"][0], name)
            if first != name:
                raise SafetensorError(f"Some tensors share memory, this will lead to duplicate memory on disk and "
                                      f"potential differences when loading them again: {first!r} and {name!r}. Save only "
                                      "one of them, or clone() it.")


def _parts(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> Iterator[Any]:
    """The header, then each tensor's bytes. Wider elements come first, so that all lie at multiples of their size."""
    _check_unshared(tensors)
    arrays = {name: _bytes_of(name, tensor) for name, tensor in tensors.items()}
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        begin, end = end, end + arrays[name].nbytes
        tensor = tensors[name]
        header[name] = {"dtype": _CODES[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    yield from (arrays[name] for name in names)


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file that holds `tensors`. ValueError for what it cannot hold."""
    return b"".join(memoryview(part) for part in _parts(tensors, metadata))


def save_file(tensors: Mapping[str, Tensor], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
    """Write `tensors` to a safetensors file, which replaces an older one only once it is complete."""
    with replacing(filename) as file:
        for part in _parts(tensors, metadata):
            file.write(part)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name occurs twice")
    return made


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r:.40} is no size or place")
    return value


def _check_metadata(metadata: Any) -> None:
    if metadata is not None and not (isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())):
        raise ValueError("__metadata__ is to map text to text")


@dataclass(frozen=True)
class _Entry:
    """What a header says of one tensor."""

    code: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @classmethod
    def of(cls, described: Any) -> _Entry:
        code, shape, (begin, end) = described["dtype"], described["shape"], described["data_offsets"]
        if not isinstance(code, str) or not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
            raise ValueError(f"dtype {code!r:.40} and shape {shape!r:.40}")
        return cls(code, tuple(map(_number, shape)), _number(begin), _number(end))


def _header_of(data: Any, source: str) -> tuple[dict[str, _Entry], dict[str, str] | None, int]:
    """The header of a file whose bytes are `data`, its metadata, and where the tensors begin. SafetensorError if it is no such
    file, or does not account for each of its bytes once."""
    length = struct.unpack("<Q", bytes(data[:8]))[0] if len(data) >= 8 else len(data)
    start = 8 + length
    if start > len(data) or length > LONGEST_HEADER:
        raise SafetensorError(f"{source} is not a safetensors file, or a truncated one: its header would end at byte "
                              f"{start} of {len(data)}")
    try:
        header = json.loads(bytes(data[8:start]), object_pairs_hook=_once)
        metadata = header.pop("__metadata__", None)
        _check_metadata(metadata)
        entries = {name: _Entry.of(described) for name, described in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SafetensorError(f"{source} is not a safetensors file: its header cannot be read ({type(error).__name__} {error})"
                              ) from error
    spans = sorted((entry.begin, entry.end) for entry in entries.values())
    ends = [0, *(end for _, end in spans)]
    if [begin for begin, _ in spans] != ends[:-1] or start + ends[-1] != len(data):
        raise SafetensorError(f"{source} is damaged: its header describes {start + ends[-1]} bytes and it has {len(data)}")
    for name, entry in entries.items():
        _check_entry(name, entry)
    return entries, metadata, start


def _check_entry(name: str, entry: _Entry) -> None:
    if entry.code not in _OF_CODE:
        raise SafetensorError(f"tensor {name!r} has the safetensors dtype {entry.code}, which Flambeau does not know. It knows: "
                              f"{', '.join(_OF_CODE)}")
    itemsize = _OF_CODE[entry.code].itemsize
    fits = math.prod(entry.shape) * itemsize == entry.end - entry.begin
    if not fits or math.prod(n for n in entry.shape if n) * itemsize >= 1 << 63:
        raise SafetensorError(f"tensor {name!r} is damaged: shape {list(entry.shape)} of {entry.code} does not fit in "
                              f"{entry.end - entry.begin} bytes")


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors in the bytes of a safetensors file. SafetensorError if they are not one."""
    copy = np.frombuffer(bytearray(data), np.uint8)
    entries, _, start = _header_of(copy, "the data")
    return {name: _tensor(copy[start:], entry) for name, entry in entries.items()}


def _tensor(data: np.ndarray, entry: _Entry) -> Tensor:
    kind = _OF_CODE[entry.code]
    return from_array(data[entry.begin:entry.end].view(kind.numpy).reshape(entry.shape))


def _gives_arrays(framework: str) -> bool:
    if framework in ("np", "numpy"):
        return True
    if framework in ("pt", "torch", "pytorch"):
        return False
    if framework in ("tf", "tensorflow", "jax", "flax", "mlx", "paddle"):
        raise NotImplementedError(f"safe_open(framework={framework!r}) is not implemented; use 'np' and convert the arrays")
    raise SafetensorError(f"framework {framework!r} is invalid; use 'pt' for tensors or 'np' for NumPy arrays")


class safe_open:
    """Look into a safetensors file without reading it whole: `keys()`, `get_tensor(name)`, `metadata()`.

    The file is mapped into memory, copy on write: a tensor's bytes are read when they are used. `framework`: "pt" for tensors, "np"
    for NumPy arrays.
    """

    def __init__(self, filename: str | os.PathLike[str], framework: str = "pt", device: str | device = "cpu") -> None:
        self.filename, self.device = Path(filename), device
        self._arrays = _gives_arrays(framework)
        whole = np.memmap(self.filename, np.uint8, mode="c") if self.filename.stat().st_size else np.empty(0, np.uint8)
        self._header, self._metadata, start = _header_of(whole, str(filename))
        self._data = np.asarray(whole)[start:]

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *error: object) -> None:
        pass  # tensors may still look into the mapping; it ends with the last of them

    def keys(self) -> list[str]:
        """The tensors' names."""
        return list(self._header)

    def metadata(self) -> dict[str, str] | None:
        """The file's own text annotations."""
        return self._metadata

    def get_tensor(self, name: str) -> Any:
        """The tensor (or array) called `name`; SafetensorError if there is none."""
        if name not in self._header:
            raise SafetensorError(f"{self.filename} has no tensor {name!r}; it has {', '.join(self._header)}")
        tensor = _tensor(self._data, self._header[name])
        if self._arrays:
            return tensor.numpy()
        return tensor if str(self.device) == "cpu" else tensor.to(self.device)


def load_file(filename: str | os.PathLike[str], device: str | device = "cpu") -> dict[str, Tensor]:
    """All tensors of a safetensors file. SafetensorError if it is not one."""
    with safe_open(filename, device=device) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
