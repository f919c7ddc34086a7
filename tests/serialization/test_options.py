"""Options of all files, places of storages, and storages themselves, against torch's answers."""

from __future__ import annotations

import gzip
import io
import mmap
import pickle
import zipfile
from collections import Counter, deque
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau

oracle = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("torch", [oracle, flambeau], ids=["torch", "flambeau"])


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    for torch in (oracle, flambeau):
        torch.serialization.set_crc32_options(True)
        torch.serialization.set_default_load_endianness(None)
        torch.serialization.set_default_mmap_options(mmap.MAP_PRIVATE)


def _bytes(torch: Any, thing: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return buffer.getvalue()


@LIBRARIES
def test_checksums(torch: Any) -> None:
    options = torch.serialization
    assert options.get_crc32_options() is True
    options.set_crc32_options(False)
    data = _bytes(torch, {"a": torch.arange(4.0)})
    assert not any(info.CRC for info in zipfile.ZipFile(io.BytesIO(data)).infolist())
    for reader in (oracle, flambeau):
        assert reader.load(io.BytesIO(data))["a"].tolist() == [0, 1, 2, 3]


@LIBRARIES
def test_skipped_data(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    with torch.serialization.skip_data():
        torch.save({"a": torch.arange(4.0), "b": torch.ones(2, 2)}, path)
        assert torch.load(path)["b"].shape == (2, 2)
    for reader in (oracle, flambeau):
        assert reader.load(path)["a"].tolist() == [0, 0, 0, 0]
    torch.save({"a": torch.arange(4.0)}, path)
    assert torch.load(path)["a"].tolist() == [0, 1, 2, 3]


@LIBRARIES
def test_mapped_files(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save(torch.zeros(3), path)
    options = torch.serialization
    with options.set_default_mmap_options(mmap.MAP_SHARED):
        assert options.get_default_mmap_options() == mmap.MAP_SHARED
        torch.load(path, mmap=True).fill_(5)
    assert options.get_default_mmap_options() == mmap.MAP_PRIVATE
    torch.load(path, mmap=True).fill_(7)
    assert torch.load(path, mmap=True).tolist() == [5, 5, 5]
    with pytest.raises(ValueError, match="MAP_PRIVATE"):
        options.set_default_mmap_options(0)


def test_byte_orders() -> None:
    data = _bytes(flambeau, flambeau.arange(3.0))
    parts = {info.filename: zipfile.ZipFile(io.BytesIO(data)).read(info) for info in zipfile.ZipFile(io.BytesIO(data)).infolist()}
    parts["archive/data/0"] = np.arange(3, dtype=">f4").tobytes()
    for order in (b"big", None):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, part in parts.items():
                if name != "archive/byteorder" or order:
                    archive.writestr(name, order if name == "archive/byteorder" else part)
        for torch in (oracle, flambeau):
            torch.serialization.set_default_load_endianness(torch.serialization.LoadEndianness.BIG)
            assert torch.load(io.BytesIO(buffer.getvalue())).tolist() == [0, 1, 2]


@LIBRARIES
def test_unsafe_names(torch: Any) -> None:
    data = _bytes(torch, [Fraction(1), deque([torch.ones(1)]), Decimal(1)])
    ask = torch.serialization.get_unsafe_globals_in_checkpoint
    assert sorted(ask(io.BytesIO(data))) == ["collections.deque", "decimal.Decimal", "fractions.Fraction"]
    with torch.serialization.safe_globals([Fraction, deque]):
        assert ask(io.BytesIO(data)) == ["decimal.Decimal"]
    assert ask(io.BytesIO(_bytes(torch, {"a": torch.ones(2)}))) == []


@LIBRARIES
def test_places(torch: Any) -> None:
    ser = torch.serialization
    storage = torch.ones(2).untyped_storage()
    assert ser.location_tag(storage) == "cpu" and ser.location_tag(torch.ones(2, device="meta").untyped_storage()) == "meta"
    assert ser.default_restore_location(storage, "cpu").tolist() == storage.tolist()
    with pytest.raises(RuntimeError, match="foo"):
        ser.default_restore_location(storage, "foo")
    with pytest.raises(ValueError, match="cpu"):
        ser.validate_cuda_device("cpu")
    with pytest.raises(RuntimeError, match="CUDA"):
        ser.validate_cuda_device("cuda:0")
    ser.register_package(5, lambda s: None, lambda s, place: s.clone().fill_(0) if place == "nowhere" else None)
    assert torch.load(io.BytesIO(_bytes(torch, torch.ones(2))), map_location={"cpu": "nowhere"}).tolist() == [0, 0]
    assert ser.normalize_storage_type(torch.cuda.FloatStorage) is torch.FloatStorage


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@LIBRARIES
def test_storages(torch: Any) -> None:
    x = torch.ones(2)
    bytes_, typed = x.untyped_storage(), x.storage()
    assert not isinstance(bytes_, torch.FloatStorage) and isinstance(typed, torch.FloatStorage) and isinstance(typed, torch.TypedStorage)
    assert not isinstance(typed, torch.DoubleStorage) and torch.is_storage(typed) and torch.is_storage(bytes_)
    bytes_.fill_(0)
    assert x.tolist() == [0, 0]
    bytes_.copy_(torch.arange(2.0).untyped_storage())
    assert x.tolist() == [0, 1] and bytes_.clone().tolist() == bytes_.tolist() and bytes_.clone().data_ptr() != x.data_ptr()
    with pytest.raises(RuntimeError, match="size does not match"):
        bytes_.copy_(torch.zeros(5).untyped_storage())
    typed.fill_(3)
    typed[1] = 4
    assert x.tolist() == [3, 4] and typed.double().tolist() == [3, 4] and typed.type() == "torch.FloatStorage"
    assert typed.copy_(torch.tensor([5.0, 6.0]).storage()).tolist() == [5, 6] and typed.int().dtype is torch.int32
    assert torch.FloatStorage([1, 2]).tolist() == [1, 2] and torch.TypedStorage([1, 2], dtype=torch.int32).size() == 2
    assert torch.tensor([]).set_(torch.FloatStorage([1, 2])).tolist() == [1, 2]
    assert torch.UntypedStorage([1, 2, 3]).tolist() == [1, 2, 3] and torch.UntypedStorage(4, device="meta").device.type == "meta"
    assert torch.UntypedStorage.from_buffer(b"abcd", dtype=torch.uint8).tolist() == [97, 98, 99, 100]
    assert torch.FloatStorage.from_buffer(b"\x3f\x80\0\0" * 2, "big").tolist() == [1, 1]
    with pytest.raises(ValueError, match="element size"):
        torch.UntypedStorage.from_buffer(b"abc", "little", dtype=torch.float32)
    with pytest.raises(IndexError, match="7"):
        typed[7]
    assert bytes_.to(device="cpu").data_ptr() == x.data_ptr() and bytes_.resizable()
    assert torch.TypedStorage(wrap_storage=bytes_, dtype=torch.int32, _internal=True)._cdata == bytes_._cdata
    assert bytes_.new().size() == 0 and typed.pickle_storage_type() == "FloatStorage" and len(typed) == 2 and not typed.is_cuda


def test_a_pickle_module_is_asked_for_names(tmp_path: Path) -> None:
    asked = []

    class Module:
        class Unpickler(pickle.Unpickler):
            def find_class(self, module: str, name: str) -> Any:
                asked.append(f"{module}.{name}")
                if module == "fractions":
                    raise pickle.UnpicklingError("no fractions")
                return super().find_class(module, name)

    flambeau.save({"x": flambeau.arange(3), "d": Counter("aab")}, tmp_path / "x.pt")
    found = flambeau.load(tmp_path / "x.pt", pickle_module=Module)
    assert found["x"].tolist() == [0, 1, 2] and found["d"]["a"] == 2 and "collections.Counter" in asked
    flambeau.save(Fraction(1, 2), tmp_path / "y.pt")
    with pytest.raises(pickle.UnpicklingError, match="no fractions"):
        flambeau.load(tmp_path / "y.pt", pickle_module=Module, weights_only=False)
    with pytest.raises(RuntimeError, match="explicit pickle_module"):
        flambeau.load(tmp_path / "x.pt", pickle_module=Module, weights_only=True)


class Plain:
    """A file object with the fewest methods that reading needs."""

    def __init__(self, data: bytes) -> None:
        inner = io.BytesIO(data)
        self.read, self.seek, self.tell, self.readline = inner.read, inner.seek, inner.tell, inner.readline


@LIBRARIES
def test_files_of_few_methods(torch: Any) -> None:
    for zipped in (True, False):
        buffer = io.BytesIO()
        torch.save(torch.arange(3.0), buffer, _use_new_zipfile_serialization=zipped)
        assert torch.load(Plain(buffer.getvalue())).tolist() == [0, 1, 2]


@LIBRARIES
@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_protocols_and_pickle_modules(torch: Any, protocol: int) -> None:
    thing = {"a": torch.arange(3.0), "b": [torch.ones(2)] * 2, "c": (range(3), torch.float32), "d": torch.nn.Linear(1, 1)}
    for module in (pickle, PythonPicklers):
        buffer = io.BytesIO()
        torch.save(thing, buffer, pickle_module=module, pickle_protocol=protocol)
        for reader in (oracle, flambeau):
            buffer.seek(0)
            found = reader.load(buffer, weights_only=False)
            assert found["a"].tolist() == [0, 1, 2] and found["b"][0] is found["b"][1] and found["c"] == (range(3), reader.float32)
            assert isinstance(found["d"], reader.nn.Linear)


class PythonPicklers:
    """A pickle module of its own, as dill is one."""

    __name__ = "pickles"

    class Pickler(pickle._Pickler):  # type: ignore[name-defined]
        pass


def test_pickle_modules_in_c() -> None:
    class Other:
        Pickler = int

    with pytest.raises(NotImplementedError, match=r"_Pickler"):
        flambeau.save(1, io.BytesIO(), pickle_module=Other)


@LIBRARIES
def test_names_of_builtins(torch: Any) -> None:
    data = _bytes(torch, range(3))
    for reader in (oracle, flambeau):
        with pytest.raises(pickle.UnpicklingError, match="GLOBAL range was not an allowed global"):
            reader.load(io.BytesIO(data))
        with reader.serialization.safe_globals([range]):
            assert reader.load(io.BytesIO(data)) == range(3)
            assert reader.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data)) == []


@LIBRARIES
def test_what_files_may_hold_further(torch: Any) -> None:
    scheme = torch.per_tensor_affine
    assert torch.load(io.BytesIO(_bytes(torch, scheme))) is scheme
    inner = torch.ones(2, requires_grad=True) * 2
    for found in (torch.load(io.BytesIO(_bytes(torch, inner))), pickle.loads(pickle.dumps(inner))):
        assert found.tolist() == [2, 2] and found.requires_grad and found.is_leaf


@LIBRARIES
def test_fake_tensors_saved_as_others(torch: Any) -> None:
    with torch._subclasses.fake_tensor.FakeTensorMode():
        fake = torch.empty(2, 3)
    with torch.serialization.skip_data(materialize_fake_tensors=True):
        data = _bytes(torch, fake)
    for reader in (oracle, flambeau):
        assert reader.load(io.BytesIO(data)).tolist() == [[0, 0, 0], [0, 0, 0]]


@LIBRARIES
def test_settings_of_utils_serialization(torch: Any, tmp_path: Path) -> None:
    config, path = torch.utils.serialization.config, tmp_path / "w.pt"
    assert (config.load.mmap, config.load.endianness, config.load.mmap_flags) == (False, None, mmap.MAP_PRIVATE)
    assert config.save.compute_crc32
    config.save.storage_alignment, config.load.mmap = 4096, True
    try:
        torch.save([torch.ones(1), torch.ones(2)], path)
        assert 28000 < path.stat().st_size < 36000
        assert [x.tolist() for x in torch.load(path)] == [[1], [1, 1]]
        with pytest.raises(ValueError, match="mmap"):
            torch.load(io.BytesIO(path.read_bytes()))
    finally:
        config.save.storage_alignment, config.load.mmap = 64, False


@LIBRARIES
def test_storages_over_files_that_are_made(torch: Any, tmp_path: Path) -> None:
    storage = torch.UntypedStorage.from_file(str(tmp_path / "new"), True, 4)
    storage.fill_(7)
    assert (tmp_path / "new").read_bytes() == b"\7\7\7\7"
    assert repr(storage).splitlines() == [" 7", " 7", " 7", " 7", "[torch.storage.UntypedStorage(device=cpu) of size 4]"]


@LIBRARIES
def test_members_of_an_archive(torch: Any, tmp_path: Path) -> None:
    torch.save([torch.ones(2), torch.zeros(3)], tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        names = ["data.pkl", ".format_version", ".storage_alignment", "byteorder", "data/0", "data/1", "version", ".data/serialization_id"]
        assert archive.namelist() == [f"a/{name}" for name in names]
        number = archive.read("a/.data/serialization_id")
    assert len(number) == 40 and number.isdigit()


def test_the_id_of_an_archive_follows_from_its_contents() -> None:
    def number(value: Any) -> bytes:
        file = io.BytesIO()
        flambeau.save(value, file)
        return zipfile.ZipFile(file).read("archive/.data/serialization_id")
    assert number(flambeau.ones(2)) == number(flambeau.ones(2)) != number(flambeau.zeros(2))


@LIBRARIES
def test_a_compressed_file_is_written_forward(torch: Any, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        torch.save([torch.arange(5)], file)
    for reader in (oracle, flambeau):
        with gzip.open(tmp_path / "a.gz") as file:
            assert reader.load(file)[0].tolist() == [0, 1, 2, 3, 4]


@LIBRARIES
def test_the_environment_says_what_is_read(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(Counter(a=deque([1])), path := tmp_path / "a.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.warns(UserWarning, match="FORCE_NO_WEIGHTS_ONLY"):
        assert torch.load(path)["a"] == deque([1])
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=True)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "yes")
    with pytest.raises(RuntimeError, match="both"):
        torch.load(path)
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=False)


@LIBRARIES
@pytest.mark.parametrize("place", [0, 1.5, [], lambda storage, location: location, lambda storage, location: 1 / 0])
def test_errors_of_map_location_reach_the_caller(torch: Any, place: Any, tmp_path: Path) -> None:
    torch.save(torch.ones(2), path := tmp_path / "a.pt")
    with pytest.raises((TypeError, ZeroDivisionError)):
        torch.load(path, map_location=place)


@LIBRARIES
def test_options_hold_for_a_block(torch: Any, tmp_path: Path) -> None:
    config = torch.utils.serialization.config
    torch.save(torch.ones(2), path := tmp_path / "a.pt")
    with config.patch("load.mmap", True):
        assert config.load.mmap and torch.load(path).tolist() == [1, 1]
    assert not config.load.mmap
    with config.patch({"save.compute_crc32": False}):
        assert not torch.serialization.get_crc32_options()
    assert torch.serialization.get_crc32_options()
