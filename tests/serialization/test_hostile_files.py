"""Damaged and hostile files: every outcome is the right value or a LoadError, nothing outside the file is looked at, and little
memory is asked for."""

from __future__ import annotations

import io
import itertools
import pickle
import pickletools
import random
import struct
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.serialization import LoadError
from flambeau.serialization import api as serialization_api
from flambeau.utils import safetensors as st

MB = 1 << 20


def contents() -> dict[str, Any]:
    base = fl.arange(12.0)
    return {"w": fl.nn.Parameter(base.reshape(3, 4)), "view": base[2:8], "n": fl.arange(5, dtype=fl.int16),
            "f8": fl.zeros(3).to(fl.float8_e5m2), "meta": fl.empty(2, 3, device="meta"), "size": fl.Size([2, 3]),
            "data": OrderedDict(a=[1, "b", 2.5, (None, True)], b={1, 2}, c=b"xyz", d=1 + 2j)}


@pytest.fixture(scope="module")
def whole() -> bytes:
    buffer = io.BytesIO()
    fl.save(contents(), buffer)
    return buffer.getvalue()


def comparable(value: Any) -> Any:
    if isinstance(value, fl.Tensor):
        return type(value).__name__, value.dtype, tuple(value.shape), value.stride(), None if value.is_meta else value._data.tobytes()
    if isinstance(value, dict):
        return {key: comparable(part) for key, part in value.items()}
    return value


def tensors(value: Any) -> Iterator[fl.Tensor]:
    if isinstance(value, fl.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)


def load(data: bytes, path: Path, mmap: bool) -> Any:
    if not mmap:
        return fl.load(io.BytesIO(data))
    path.write_bytes(data)
    return fl.load(path, mmap=True)


def members(data: bytes, name: str) -> Iterator[tuple[int, int]]:
    """Where the data of the members called `name`... lie."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if name in info.filename:
                lengths = struct.unpack("<HH", data[info.header_offset + 26 : info.header_offset + 30])
                begin = info.header_offset + 30 + sum(lengths)
                yield begin, begin + info.file_size


def mutations(whole: bytes, rng: random.Random, count: int, spared: list[tuple[int, int]]) -> Iterator[bytes]:
    places = [i for i in range(len(whole)) if not any(begin <= i < end for begin, end in spared)]
    for _ in range(count):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.choice(places)
            damaged[at] = rng.choice((damaged[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0, 255))
        if rng.random() < 0.1:
            del damaged[rng.choice(places) :]
        if rng.random() < 0.1:
            at = rng.choice(places)
            damaged[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 64))))
        yield bytes(damaged)


@pytest.mark.parametrize("mmap", [False, True])
def test_damage_anywhere(whole: bytes, tmp_path: Path, mmap: bool) -> None:
    expected, refused = comparable(contents()), 0
    spared = list(members(whole, "/data/")) if mmap else []  # mapped data have no checksum
    tracemalloc.start()
    for damaged in mutations(whole, random.Random(1), 600, spared):
        try:
            loaded = load(damaged, tmp_path / "x.pt", mmap)
        except LoadError:
            refused += 1
        else:
            assert comparable(loaded) == expected
    assert tracemalloc.get_traced_memory()[1] < 64 * MB
    tracemalloc.stop()
    assert refused > 250


@pytest.mark.parametrize("mmap", [False, True])
def test_every_truncation(whole: bytes, tmp_path: Path, mmap: bool) -> None:
    for length in range(0, len(whole), 23):
        with pytest.raises(LoadError):
            load(whole[:length], tmp_path / "x.pt", mmap)


@pytest.mark.parametrize("mmap", [False, True])
def test_every_bit_of_the_directory(whole: bytes, tmp_path: Path, mmap: bool) -> None:
    expected = comparable(contents())
    for at, bit in itertools.product(range(whole.index(b"PK\x01\x02"), len(whole)), (1, 6)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << bit
        try:
            assert comparable(load(bytes(damaged), tmp_path / "x.pt", mmap)) == expected
        except LoadError:
            pass


def packed(whole: bytes, pickled: bytes) -> bytes:
    """The archive with another pickle, its checksum right."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as source, zipfile.ZipFile(changed, "w") as target:
        for info in source.infolist():
            target.writestr(info.filename, pickled if info.filename.endswith("data.pkl") else source.read(info))
    return changed.getvalue()


@pytest.mark.parametrize("mmap", [False, True])
def test_pickles_that_lie(whole: bytes, tmp_path: Path, mmap: bool) -> None:
    """Each result, where there is one, lies within its storage."""
    (begin, end), = members(whole, "data.pkl")
    pickled = whole[begin:end]
    loaded = 0
    tracemalloc.start()
    for damaged in mutations(pickled, random.Random(2), 600, []):
        try:
            found = load(packed(whole, damaged), tmp_path / "x.pt", mmap)
        except LoadError:
            continue
        for tensor in tensors(found):
            assert all(n >= 0 for n in (*tensor.shape, *tensor.stride(), tensor.storage_offset()))
            if not tensor.is_meta and tensor.numel():
                low, high = np.lib.array_utils.byte_bounds(tensor._data)
                start = tensor.untyped_storage().data_ptr()
                assert start <= low and high <= start + tensor.untyped_storage().nbytes() <= start + 64
        loaded += 1
    assert tracemalloc.get_traced_memory()[1] < 64 * MB
    tracemalloc.stop()
    assert loaded


# -- a directory that lies ----------------------------------------------------------------------------------------------
CENTRAL = {"packed": 20, "size": 24, "name length": 28, "header": 42}


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("value", [0, 1, 4, 1 << 12, (1 << 31) - 1, (1 << 32) - 2])
@pytest.mark.parametrize("fields", [("packed", "size"), ("size",), ("header",), ("packed", "size", "header"), ("name length",)])
def test_sizes_and_places_outside_the_file(tmp_path: Path, mmap: bool, value: int, fields: tuple[str, ...]) -> None:
    """Every storage's extent is compared with the file, mapped or not, whether or not the pickle tells the same lie."""
    for count in (4, value // 4):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("archive/data/0", bytes(range(16)))
            archive.writestr("archive/data.pkl", over_storage(f"I{count}\n", "I1\n").replace(b"K\x04", f"I{count}\n".encode()))
        damaged = bytearray(buffer.getvalue())
        at = damaged.index(b"PK\x01\x02")
        for field in fields:
            struct.pack_into("<H" if "name" in field else "<I", damaged, at + CENTRAL[field], value & (0xFFFF if "name" in field else ~0))
        try:
            found = load(bytes(damaged), tmp_path / "x.pt", mmap)
        except LoadError:
            continue
        assert found._data.tobytes() == bytes(range(16))[: 4 * count]


def test_members_that_share_their_bytes(whole: bytes) -> None:
    """A directory that names the same megabyte again and again would fill any memory."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps([], protocol=2))
        archive.writestr("archive/data/0", bytes(MB))
        for i in range(1, 20):
            info = zipfile.ZipInfo(f"archive/data/{i}")
            same = archive.getinfo("archive/data/0")
            info.header_offset, info.file_size, info.compress_size, info.CRC = same.header_offset, MB, MB, same.CRC
            archive.filelist.append(info)
            archive.NameToInfo[info.filename] = info
    with pytest.raises(LoadError, match="overlap"):
        fl.load(io.BytesIO(buffer.getvalue()))


# -- pickles that ask for much ------------------------------------------------------------------------------------------
def tensor_of(size: str, stride: str, offset: str = "I0\n", kind: str = "_rebuild_meta_tensor_no_storage") -> bytes:
    return f"ctorch._utils\n{kind}\n(ctorch\nfloat32\n({size}t({stride}tI00\ntR.".encode()


def over_storage(size: str, stride: str, offset: str = "I0\n") -> bytes:
    return (f"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ"
            f"{offset}({size}t({stride}tI00\nccollections\nOrderedDict\n)RtR.").encode("latin1")


BIG = "L4611686018427387904L\n"
HOSTILE = {
    "list of a range": b"cbuiltins\nlist\n(cbuiltins\nrange\n(J\0\xca\x9a\x3btRtR.",
    "a range": b"c__builtin__\nxrange\n(J\0\xca\x9a\x3btR.",
    "a big bytearray": b"cbuiltins\nbytearray\n(J\xff\xff\xff\x7ftR.",
    "a big Tensor": b"ctorch\nTensor\n(J\xff\xff\xff\x7ftR.",
    "tuples in tuples": b"(I1\n" + b"t2\x86" * 60 + b".",
    "tuples of one tuple": b")" + b"2\x86" * 60 + b".",
    "lists of one list": b"]" + b"q\x00]q\x01h\x00ah\x00a0h\x01" * 60 + b".",
    "nested tuples": b")" + b"\x85" * 100_000 + b".",
    "nested lists": b"]q\x00" * 5000 + b"a" * 4999 + b".",
    "a nested key": b"})" + b"\x85" * 100_000 + b"Ns.",
    "a wide key": b"})" + b"2\x86" * 60 + b"Ns.",
    "a wide name": b")" + b"2\x86" * 60 + b"q\x00h\x00\x93.",
    "a wide storage": b")" + b"2\x86" * 60 + b"Q.",
    "a wide call": b")" + b"2\x86" * 60 + b")R.",
    "a wide part of a set": b"cbuiltins\nset\n(](" + b")" + b"2\x86" * 60 + b"etR.",
    "a long text encoded often": (b"X\x00\x00\x10\x00" + b"a" * MB + b"q\x000("
                                  + b"c_codecs\nencode\nh\x00X\x06\0\0\0latin1\x86R" * 2000 + b"t."),
    "a negative meta size": tensor_of("I-1\n", "I1\n"),
    "a meta tensor past 2^63": tensor_of(BIG + BIG, "I1\nI1\n"),
    "a meta tensor of 65 dimensions": tensor_of("I1\n" * 65, "I1\n" * 65),
    "a negative stride": over_storage("I2\n", "I-1\n", "I3\n"),
    "a negative offset": over_storage("I2\n", "I1\n", "I-4\n"),
    "an offset past the end": over_storage("I1\n", "I1\n", "I4\n"),
    "an offset past the end, no elements": over_storage("I0\n", "I1\n", "I99\n"),
    "a stride that wraps around": over_storage("I3\n", BIG),
    "a size past 2^63 without stride": over_storage(BIG, "I0\n"),
    "sizes whose product wraps around": over_storage(BIG + "I4\n", "I0\nI0\n"),
    "no elements, and a product that wraps around": over_storage("I0\n" + BIG * 2, "I1\nI1\nI1\n"),
    "more sizes than strides": over_storage("I1\nI1\n", "I1\n"),
    "a size that is no number": over_storage("X\x01\0\0\0a", "I1\n"),
    "a subclass made by a call": b"ctorch._tensor\n_rebuild_from_type_v2\n(cbuiltins\nset\nctorch\nTensor\n)NtR.",
    "a tensor that is walked over": over_storage("I1099511627776\nI2\n", "I0\nI0\n")[:-1].join([b"cbuiltins\nset\n(", b"tR."]),
    "an int of many digits": b"I" + b"9" * 100_000 + b"\n.",
    "no opcode": b"\xff.",
}


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickles(case: str, mmap: bool, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", HOSTILE[case])
        archive.writestr("archive/data/0", bytes(16))
    tracemalloc.start()
    with pytest.raises(LoadError) as caught:
        load(buffer.getvalue(), tmp_path / "x.pt", mmap)
    assert tracemalloc.get_traced_memory()[1] < 128 * MB
    tracemalloc.stop()
    assert len(str(caught.value)) < 2000


def test_both_of_pytorchs_error_types_catch_it() -> None:
    for expected in (RuntimeError, pickle.UnpicklingError):
        with pytest.raises(expected):
            fl.load(io.BytesIO(b"PK"))
    with pytest.raises(EOFError):
        fl.load(io.BytesIO(b""))


def test_data_that_refer_to_themselves() -> None:
    a: list[Any] = [1]
    a.append(a)
    found = serialization_api.restricted_load(pickle.dumps(a, protocol=2), lambda reference: None, {})
    assert found[0] == 1 and found[1] is found


def test_much_data_that_are_what_they_seem() -> None:
    shape = (2, 3)
    data = {"numbers": list(range(200_000)), "shared": [shape] * 200_000, "keys": {(i, shape): i for i in range(5000)}}
    buffer = io.BytesIO()
    fl.save(data, buffer)
    assert fl.load(io.BytesIO(buffer.getvalue())) == data


# -- safetensors --------------------------------------------------------------------------------------------------------
def test_damaged_safetensors(tmp_path: Path) -> None:
    saved = {"a": fl.arange(6.0).reshape(2, 3), "b": fl.arange(3, dtype=fl.int16)}
    data = st.save(saved, {"who": "me"})
    path, start = tmp_path / "x.safetensors", 8 + struct.unpack("<Q", data[:8])[0]
    for damaged in mutations(data, random.Random(3), 500, [(start, len(data))]):
        path.write_bytes(damaged)
        for read in (lambda: st.load(damaged), lambda: st.load_file(path)):
            try:
                found = read()
            except st.SafetensorError:
                continue
            assert sum(t.nbytes for t in found.values()) <= len(damaged)


def header(text: bytes, payload: int = 8) -> bytes:
    return struct.pack("<Q", len(text)) + text + bytes(payload)


@pytest.mark.parametrize("data", [
    header(b'{"a":' + b"[" * 100_000),
    header(b'{"a":{"dtype":"F32","shape":[-1,-2],"data_offsets":[0,8]}}'),
    header(b'{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}'),
    header(b'{"a":{"dtype":"F32","shape":"ab","data_offsets":[0,8]}}'),
    header(b'{"a":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}}'),
    header(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":["0",8]}}'),
    header(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}}'),
    header(b'{"a":{"dtype":"F32","shape":[0,4611686018427387904,4611686018427387904],"data_offsets":[0,0]}}', 0),
    header(b'{"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}', 0),
    header(b'{"a":{"dtype":"F32","shape":[' + b"1," * 99 + b'2],"data_offsets":[0,8]}}'),
    header(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
    header(b'{"__metadata__":5,"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
    header(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}}'),
    header(b"\xff\xfe"), header(b"5"), struct.pack("<Q", (1 << 64) - 1) + b"{}", b"",
])
def test_safetensors_headers_that_lie(data: bytes) -> None:
    with pytest.raises(st.SafetensorError) as caught:
        st.load(data)
    assert len(str(caught.value)) < 1000


SPARSE = {
    "coo": lambda i: fl.sparse_coo_tensor(i, fl.ones(i.shape[1]), (5, 5)),
    "coalesced": lambda i: fl.sparse_coo_tensor(i, fl.ones(i.shape[1]), (5, 5)).coalesce(),
    "csr": lambda i: fl.sparse_coo_tensor(i, fl.ones(i.shape[1]), (5, 5)).to_sparse_csr(),
    "csc": lambda i: fl.sparse_coo_tensor(i, fl.ones(i.shape[1]), (5, 5)).to_sparse_csc(),
}
INDICES = {
    "coo": lambda s: [s._indices()], "coalesced": lambda s: [s.indices()],
    "csr": lambda s: [s.crow_indices(), s.col_indices()], "csc": lambda s: [s.ccol_indices(), s.row_indices()],
}
FORMATS = {"zip": True, "before 1.6": False}


def _saved(value, zipped):
    file = io.BytesIO()
    fl.save(value, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


@pytest.mark.parametrize("zipped", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("kind", SPARSE)
def test_indices_of_sparse_tensors_are_checked_when_they_are_read(kind, zipped):
    """In the older format the bytes come behind the pickle: what lies in their place before is nobody's, and says nothing."""
    sparse = SPARSE[kind](fl.tensor([[0, 1, 4], [2, 0, 3]]))
    data = _saved({"a": sparse, "again": [sparse]}, zipped)
    for dirt in (0, 0xFF):      # freed memory that the loader may be given
        junk = [np.full(size, dirt, np.uint8) for size in (8, 16, 24, 48) * 50]
        del junk
        assert fl.load(io.BytesIO(data))["a"].to_dense().equal(sparse.to_dense())


@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_indices_that_lie_are_refused_in_both_formats(kind):
    sparse = SPARSE[kind](fl.tensor([[0, 1, 4], [2, 0, 3]]))
    for part, index, wrong in itertools.product(INDICES[kind](sparse), range(3), (-1, 5, 2**40)):
        flat = part.view(-1)
        right = int(flat[index])
        flat[index] = wrong
        files = [_saved(sparse, zipped) for zipped in FORMATS.values()]
        flat[index] = right
        for data in files:
            with pytest.raises(LoadError, match="cannot be"):
                fl.load(io.BytesIO(data))


def test_a_storage_without_bytes_is_refused():
    """The list of storages behind the pickle leaves one out: its memory would be what lay there before."""
    data = _saved({"a": fl.arange(3.0), "b": fl.arange(4.0)}, False)
    file = io.BytesIO(data)
    for _ in range(4):      # magic number, version, facts, object
        *_, _ = pickletools.genops(file)
    with pytest.raises(LoadError, match="no bytes"):
        fl.load(io.BytesIO(data[:file.tell()] + pickle.dumps([], protocol=2)))
