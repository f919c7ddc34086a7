"""torch.save and torch.load: round trips, what they keep, where they write, and files that are not right."""

from __future__ import annotations

import io
import os
import pickle
import signal
import struct
import subprocess
import sys
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.core.dtypes import DTYPES
from flambeau.core.tensor import Layout, Tensor, from_array, view_tensor
from flambeau.nn.parameter import Parameter
from flambeau.serialization import archive


def tensor(values: Any, dtype: str = "float32") -> Tensor:
    return from_array(np.array(values).astype(DTYPES[dtype].numpy))


def numbers(dtype: str, shape: tuple[int, ...]) -> Tensor:
    count = int(np.prod(shape))
    return tensor(np.arange(count).reshape(shape) % 5, dtype)


def array(t: Tensor) -> np.ndarray:
    return t._data


def through_file(obj: Any, **options: Any) -> Any:
    buffer = io.BytesIO()
    flambeau.save(obj, buffer)
    buffer.seek(0)
    return flambeau.load(buffer, **options)


def same(a: Tensor, b: Tensor) -> bool:
    return a.dtype is b.dtype and a.shape == b.shape and array(a).tobytes() == array(b).tobytes()


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (1, 4, 1)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    saved = numbers(dtype, shape)
    assert same(saved, through_file(saved))


def test_python_data() -> None:
    data = {
        "none": None, "flags": [True, False], "ints": (1, -1, 10**30), "float": 1.5, "complex": 1 + 2j, "text": "ü\n",
        "bytes": b"\x00\xff", "set": {1, 2}, "nested": [{"a": [()]}], 3: OrderedDict(b=1, a=2),
        "dtype": flambeau.bfloat16, "device": flambeau.device("cpu"), "size": flambeau.Size([2, 3]),
        "bytearray": bytearray(b"x"), "empty": [b"", bytearray(), set(), (), Counter("aab")],
    }  # fmt: skip
    loaded = through_file(data)
    assert loaded == data
    assert list(loaded[3]) == ["b", "a"] and type(loaded[3]) is OrderedDict and type(loaded["size"]) is flambeau.Size


@pytest.mark.parametrize("value", [range(3), slice(1, 2), frozenset("a"), {1: frozenset()}], ids=repr)
def test_data_that_pytorch_refuses_too_needs_trust(value: Any) -> None:
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
        through_file(value)
    assert through_file(value, weights_only=False) == value


def test_shared_storage_stays_shared() -> None:
    base = tensor(np.arange(12.0).reshape(3, 4))
    column = view_tensor(base, base.dtype, Layout((3,), (4,), 1))
    loaded, loaded_column, again = through_file([base, column, base])
    assert again is loaded
    assert array(loaded_column).tolist() == [1, 5, 9] and loaded_column.stride() == (4,)
    array(loaded)[1, 1] = 100
    assert array(loaded_column).tolist() == [1, 100, 9]


def test_a_view_keeps_its_strides() -> None:
    transposed = from_array(np.arange(6.0, dtype=np.float32).reshape(2, 3).T)
    loaded = through_file(transposed)
    assert loaded.stride() == transposed.stride() == (1, 3)
    assert np.array_equal(array(loaded), array(transposed))


def test_parameters_and_requires_grad() -> None:
    leaf = tensor([1.0, 2.0])
    leaf.requires_grad = True
    weight, frozen = Parameter(tensor([[1.0]])), Parameter(tensor([2.0]), requires_grad=False)
    a, b, c = through_file([leaf, weight, frozen])
    assert type(a) is Tensor and a.requires_grad and a.is_leaf
    assert type(b) is Parameter and b.requires_grad and type(c) is Parameter and not c.requires_grad


def test_attributes_of_a_state_dict() -> None:
    state = OrderedDict(weight=tensor([1.0]))
    state._metadata = {"": {"version": 1}}  # type: ignore[attr-defined]
    assert through_file(state)._metadata == {"": {"version": 1}}


def test_meta_tensors() -> None:
    loaded = through_file(tensor([[1.0, 2.0]]), map_location="meta")
    assert loaded.is_meta and loaded.shape == (1, 2)
    assert through_file(loaded).is_meta


def test_data_are_aligned_and_stored(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    flambeau.save([tensor([1.0] * n) for n in range(1, 6)], path)
    raw = path.read_bytes()
    with zipfile.ZipFile(path) as archive_file:
        assert archive_file.testzip() is None
        for info in archive_file.infolist():
            name_length, extra_length = struct.unpack("<HH", raw[info.header_offset + 26 : info.header_offset + 30])
            assert (info.header_offset + 30 + name_length + extra_length) % 64 == 0
            assert info.compress_type == zipfile.ZIP_STORED and info.filename.startswith("x/")


def test_different_dtypes_of_one_storage_are_refused() -> None:
    base = tensor([1.0, 2.0])
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        through_file([base, view_tensor(base, flambeau.int32, Layout((2,), (1,), 0))])


@pytest.mark.parametrize("mmap", [False, True])
def test_paths(tmp_path: Path, mmap: bool) -> None:
    path = tmp_path / "checkpoint.pt"
    for name in (path, str(path)):
        flambeau.save({"w": tensor([1.0, 2.0]), "empty": numbers("int64", (0,))}, name)
        loaded = flambeau.load(name, mmap=mmap)
        assert array(loaded["w"]).tolist() == [1, 2]
    array(loaded["w"])[0] = 7
    assert array(flambeau.load(path)["w"]).tolist() == [1, 2]


def test_mmap_needs_a_path() -> None:
    with pytest.raises(ValueError, match="file path"):
        flambeau.load(io.BytesIO(b"x"), mmap=True)


# -- map_location -------------------------------------------------------------------------------------------------------
def from_cuda() -> io.BytesIO:
    """A file that says its tensor was saved from a GPU."""
    buffer, changed = io.BytesIO(), io.BytesIO()
    flambeau.save(tensor([1.0]), buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(changed, "w") as new:
        for info in old.infolist():
            data = old.read(info).replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            new.writestr(info.filename, data)
    changed.seek(0)
    return changed


@pytest.mark.parametrize("where", ["cpu", flambeau.device("cpu"), {"cuda:0": "cpu"}, lambda storage, name: storage])
def test_map_location(where: Any) -> None:
    loaded = flambeau.load(from_cuda(), map_location=where)
    assert loaded.device == flambeau.device("cpu") and array(loaded).tolist() == [1.0]


def test_a_cuda_file_without_cuda() -> None:
    with pytest.raises(RuntimeError, match=r"CUDA device \(cuda:0\).*map_location=torch.device\('cpu'\)"):
        flambeau.load(from_cuda())


# -- writing ------------------------------------------------------------------------------------------------------------
def test_an_interrupted_save_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.pt"
    flambeau.save({"epoch": 1}, path)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        flambeau.save({"f": lambda: 0}, path)

    def full_disk(self: Any, member: str, data: Any) -> None:
        if member.startswith("data/"):
            raise OSError(28, "No space left on device")
        original(self, member, data)

    original = archive.ArchiveWriter.write
    monkeypatch.setattr(archive.ArchiveWriter, "write", full_disk)
    with pytest.raises(OSError, match=r"No space left.*c\.pt"):
        flambeau.save({"t": tensor([1.0])}, path)
    assert flambeau.load(path) == {"epoch": 1}
    assert os.listdir(tmp_path) == ["c.pt"]


KILLED = """
import os, signal, sys
import flambeau
from flambeau.serialization import archive
original = archive.ArchiveWriter.write
def write(self, member, data):
    original(self, member, data)
    if member == "data/0":
        os.kill(os.getpid(), signal.SIGKILL)
archive.ArchiveWriter.write = write
if sys.argv[2] == "named":
    archive._open_nameless = lambda folder: None
flambeau.save([flambeau.ones(100_000)], sys.argv[1])
"""


@pytest.mark.parametrize("kind", ["nameless", "named"])
def test_a_killed_save_leaves_nothing(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once where the file system has files without names, else when the same file is next written."""
    path = tmp_path / "c.pt"
    flambeau.save(1, path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), kind], timeout=120)
    assert done.returncode == -signal.SIGKILL and flambeau.load(path) == 1
    nameless = archive._open_nameless(tmp_path)
    if nameless is not None:
        nameless.close()
    assert (len(os.listdir(tmp_path)) == 1) == (kind == "nameless" and nameless is not None)
    other = tmp_path / ".c.pt.of-somebody-12345678"
    other.touch()
    if kind == "named":
        monkeypatch.setattr(archive, "_open_nameless", lambda folder: None)
    flambeau.save(2, path)
    other.unlink()
    assert os.listdir(tmp_path) == ["c.pt"] and flambeau.load(path) == 2
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"Parent directory .* does not exist"):
        flambeau.save({}, tmp_path / "nowhere" / "c.pt")
    with pytest.raises(FileNotFoundError):
        flambeau.load(tmp_path / "nowhere.pt")


def test_a_link_is_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target.pt", tmp_path / "link.pt"
    flambeau.save(1, target)
    link.symlink_to(target)
    flambeau.save(2, link)
    assert link.is_symlink() and flambeau.load(target) == 2


def test_arguments_of_the_wrong_kind() -> None:
    with pytest.raises(AttributeError, match="'write' attribute, got int"):
        flambeau.save({}, 3)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="seekable"):
        flambeau.load(3)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="Pickler"):
        flambeau.save({}, io.BytesIO(), pickle_module=object())


# -- files that are not right -------------------------------------------------------------------------------------------
def checkpoint() -> bytes:
    buffer = io.BytesIO()
    flambeau.save({"w": tensor([[1.0, 2.0], [3.0, 4.0]]), "n": [1, "a", 2.5]}, buffer)
    return buffer.getvalue()


def test_every_truncation_is_noticed() -> None:
    whole = checkpoint()
    for length in range(0, len(whole), 7):
        expected = EOFError if not length else pickle.UnpicklingError if length == 1 else RuntimeError
        with pytest.raises(expected, match=r"empty|truncated|not a checkpoint"):
            flambeau.load(io.BytesIO(whole[:length]))


def test_damaged_bytes_are_noticed() -> None:
    whole, random, noticed = checkpoint(), np.random.default_rng(0), 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[random.integers(len(damaged))] ^= int(random.integers(1, 256))
        try:
            flambeau.load(io.BytesIO(bytes(damaged)))
        except (RuntimeError, pickle.UnpicklingError):
            noticed += 1
    assert noticed > 100  # the rest hit padding and fields that nobody reads


@pytest.mark.parametrize(("content", "error", "says"), [
    (b"", EOFError, "empty"),
    (b"PK\x03\x04 and then nothing", RuntimeError, "truncated"),
    (b"\x93NUMPY\x01\x00", pickle.UnpicklingError, "not a checkpoint"),
    (b'{"a": 1}', pickle.UnpicklingError, "not a checkpoint"),
    (pickle.dumps({"a": 1}), pickle.UnpicklingError, "not a checkpoint"),
    (pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + b"...", RuntimeError, "before version 1.6"),
])
def test_foreign_files(content: bytes, error: type[Exception], says: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(error, match=says):
        flambeau.load(path)


def test_files_opened_as_text() -> None:
    with pytest.raises(TypeError, match="binary mode"):
        flambeau.load(io.StringIO("text"))


@pytest.mark.parametrize(("members", "says"), [
    ({"word/document.xml": b""}, "no member is called data.pkl"),
    ({"a/data.pkl": b"", "a/constants.pkl": b""}, "TorchScript"),
    ({"a/data.pkl": b"\x80\x02N"}, "truncated"),
    ({"a/data.pkl": b"\x80\x02N.", "a/byteorder": b"mixed"}, "byte order"),
])
def test_foreign_zip_archives(members: dict[str, bytes], says: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    buffer.seek(0)
    with pytest.raises((RuntimeError, pickle.UnpicklingError), match=says):
        flambeau.load(buffer)


def rewritten(old: bytes, new: bytes) -> io.BytesIO:
    """The checkpoint with a change in its pickle."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(checkpoint())) as source, zipfile.ZipFile(changed, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            assert old in data or not info.filename.endswith("data.pkl")
            target.writestr(info.filename, data.replace(old, new) if info.filename.endswith("data.pkl") else data)
    changed.seek(0)
    return changed


def test_a_tensor_outside_its_storage_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"size \[200, 2\].*does not fit its storage of 16 bytes"):
        flambeau.load(rewritten(b"K\x02K\x02\x86", b"K\xc8K\x02\x86"))


def test_a_missing_storage_is_named() -> None:
    with pytest.raises(RuntimeError, match="no member 'data/7'"):
        flambeau.load(rewritten(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x007"))
