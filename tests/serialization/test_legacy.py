"""The formats of before PyTorch 1.6, read and written, and pickles of tensors."""

from __future__ import annotations

import io
import pickle
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch", reason="torch is the oracle")


def _many(t: Any, untyped: bool) -> dict[str, Any]:
    whole = t.arange(12.0).reshape(3, 4)
    kinds = [t.float64, t.bfloat16, t.int64, t.uint8, t.bool, t.complex64, *([t.float8_e4m3fn] if untyped else ())]
    return {"whole": whole, "part": whole[1:, ::2], "names": ["a", 1, 2.5, None, True], "empty": t.zeros(0),
            **{str(kind): t.ones(3).to(kind) for kind in kinds},
            "parameter": t.nn.Parameter(t.arange(3.0)), "size": t.Size([2, 3]), "state": t.nn.Linear(2, 3).state_dict()}


def _told(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: _told(value) for key, value in x.items()}
    if hasattr(x, "stride"):
        numbers = x.detach() if x.is_complex() or str(x.dtype) == "torch.bool" else x.detach().double()
        return str(x.dtype), tuple(x.shape), x.stride(), x.requires_grad, numbers.tolist()
    return x


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(("writer", "reader"), [(torch, flambeau), (flambeau, torch), (flambeau, flambeau)])
def test_both_ways(writer: Any, reader: Any, weights_only: bool) -> None:
    saved = _many(writer, untyped=reader is flambeau)  # PyTorch 2.13 cannot read its own files of these
    buffer = io.BytesIO(b"before")
    buffer.seek(6)
    writer.save(saved, buffer, _use_new_zipfile_serialization=False)
    buffer.write(b"after")
    buffer.seek(6)
    loaded = reader.load(buffer, weights_only=weights_only)
    assert buffer.read() == b"after"
    assert _told(saved) == _told(loaded)
    assert loaded["part"].data_ptr() == loaded["whole"].data_ptr() + 16


def test_places_and_whole_modules(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    torch.save(net, path, _use_new_zipfile_serialization=False)
    with pytest.raises(pickle.UnpicklingError, match="Sequential"):
        flambeau.load(path)
    ours = flambeau.load(path, weights_only=False)
    assert type(ours) is flambeau.nn.Sequential
    assert np.array_equal(ours(flambeau.ones(1, 2)).detach().numpy(), net(torch.ones(1, 2)).detach().numpy())
    assert flambeau.load(path, weights_only=False, map_location="meta")[0].weight.is_meta
    places = []
    flambeau.load(path, weights_only=False, map_location=lambda storage, place: places.append((place, storage.nbytes())))
    assert sorted(places) == [("cpu", 12), ("cpu", 24)]
    with pytest.raises(RuntimeError, match="mmap"):
        flambeau.load(path, mmap=True)


@pytest.mark.parametrize("damage", ["short", "count", "cut"])
def test_damaged_files(damage: str) -> None:
    buffer = io.BytesIO()
    torch.save({"a": torch.arange(4.0)}, buffer, _use_new_zipfile_serialization=False)
    data = buffer.getvalue()
    spoilt = {"short": data[:-3], "count": data[:-24] + struct.pack("<q", 1 << 60) + data[-16:], "cut": data[:150]}[damage]
    with pytest.raises(RuntimeError, match=r"before version 1\.6"):
        flambeau.load(io.BytesIO(spoilt))


def _tar() -> bytes:
    """An archive as PyTorch 0.1.9 wrote it: a storage of six numbers, a part of it, two tensors and a dict."""
    def dumped(*things: Any) -> bytes:
        return b"".join(pickle.dumps(thing, protocol=2) for thing in things)

    def named(pickled: bytes, text: str, name: str) -> bytes:
        return pickled.replace(b"X" + struct.pack("<I", len(text)) + text.encode() + b"q", f"ctorch\n{name}\nq".encode())

    kind, tensor = "@FloatStorage", "@FloatTensor"
    storages = dumped(1) + named(dumped((7, "cpu", kind)), kind, "FloatStorage") + struct.pack("<q", 6)
    storages += np.arange(6, dtype=np.float32).tobytes() + dumped([(8, 7, 2, 4)])
    tensors = dumped(2)
    for key, storage, numbers in ((1, 7, (2, 3, 3, 1, 0)), (2, 8, (2, 1, 1))):
        dims = len(numbers) // 2
        tensors += named(dumped((key, storage, tensor)), tensor, "FloatTensor") + struct.pack("<ii", dims, 0)
        tensors += struct.pack(f"<{len(numbers)}q", *numbers)

    class Refers(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return str(obj.number) if isinstance(obj, _Number) else None

    whole = io.BytesIO()
    Refers(whole, protocol=2).dump({"a": _Number(1), "b": _Number(2)})
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:") as archive:
        for name, data in (("storages", storages), ("tensors", tensors), ("pickle", whole.getvalue())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


class _Number:
    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize("library", [torch, flambeau], ids=["torch", "flambeau"])
def test_tar_archives(library: Any, tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    path.write_bytes(_tar())
    loaded = library.load(path, weights_only=False)
    assert loaded["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and loaded["b"].tolist() == [3, 4]
    loaded["b"].zero_()
    assert loaded["a"].tolist() == [[0, 1, 2], [0, 0, 5]]
    with pytest.raises((RuntimeError, pickle.UnpicklingError)):
        library.load(path, weights_only=True)


def test_pickles_of_torch_without_torch() -> None:
    """Plain pickles of PyTorch's tensors name `torch._utils` and `torch.storage`, which hold under as_torch."""
    things = {"a": torch.arange(6.0).reshape(2, 3).t(), "p": torch.nn.Parameter(torch.ones(2)), "d": torch.float16, "s": torch.Size([2]),
              "i": torch.tensor(3), "v": torch.device("cpu")}
    program = ("import sys, pickle, flambeau.as_torch, torch\nfound = pickle.load(sys.stdin.buffer)\n"
               "print({k: (type(v).__name__, v.tolist() if hasattr(v, 'tolist') else v) for k, v in found.items()})")
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(things), stdout=subprocess.PIPE, check=True)
    expected = {k: (type(v).__name__, v.tolist() if hasattr(v, "tolist") else v) for k, v in things.items()}
    assert done.stdout.decode().strip() == str(expected)
