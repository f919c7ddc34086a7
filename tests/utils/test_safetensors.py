"""Safetensors files: round trips, exchange with the `safetensors` package, and files that are not right."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flambeau.core.dtypes import DTYPES
from flambeau.core.tensor import Layout, Tensor, from_array, view_tensor
from flambeau.utils import safetensors as st

HOLDABLE = [name for name in DTYPES if name != "complex128"]


def tensor(values: Any, dtype: str = "float32") -> Tensor:
    return from_array(np.array(values).astype(DTYPES[dtype].numpy))


@pytest.mark.parametrize("dtype", HOLDABLE)
def test_every_dtype(dtype: str, tmp_path: Path) -> None:
    tensors = {"a": tensor([[1, 2, 3]], dtype), "scalar": tensor(1, dtype), "empty": tensor(np.zeros((0, 2)), dtype)}
    path = tmp_path / "x.safetensors"
    st.save_file(tensors, path, metadata={"format": "pt"})
    for loaded in (st.load_file(path), st.load(path.read_bytes())):
        assert set(loaded) == set(tensors)
        for name, t in tensors.items():
            assert loaded[name].dtype is t.dtype and loaded[name].shape == t.shape
            assert loaded[name]._data.tobytes() == t._data.tobytes()


def test_views_are_written_in_order() -> None:
    loaded = st.load(st.save({"t": from_array(np.arange(6.0).reshape(2, 3).T)}))
    assert loaded["t"]._data.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_looking_into_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    st.save_file({"a": tensor([1.0, 2.0]), "b": tensor([3], "int64")}, path, metadata={"who": "me"})
    with st.safe_open(path) as file:
        assert sorted(file.keys()) == ["a", "b"] and file.metadata() == {"who": "me"}
        a = file.get_tensor("a")
        with pytest.raises(st.SafetensorError, match="no tensor 'c'; it has"):
            file.get_tensor("c")
    a._data[0] = 9  # copy on write: the file is not touched
    assert st.load_file(path)["a"]._data.tolist() == [1, 2]


def test_the_package_reads_our_files(tmp_path: Path) -> None:
    package = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "x.safetensors"
    st.save_file({"a": tensor([[1.5, 2.5]]), "b": tensor([True, False], "bool")}, path)
    loaded = package.load_file(path)
    assert loaded["a"].tolist() == [[1.5, 2.5]] and loaded["b"].tolist() == [True, False]
    package.save_file({"c": np.arange(3, dtype=np.int16)}, path)
    assert st.load_file(path)["c"]._data.tolist() == [0, 1, 2]


def test_torch_reads_our_bf16(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    package = pytest.importorskip("safetensors.torch")
    path = tmp_path / "x.safetensors"
    st.save_file({"a": tensor([1.5, -2.0], "bfloat16")}, path)
    assert package.load_file(path)["a"].float().tolist() == [1.5, -2.0]
    package.save_file(package.load_file(path), path)
    assert st.load_file(path)["a"]._data.astype(np.float32).tolist() == [1.5, -2.0]


def test_what_cannot_be_saved() -> None:
    a = tensor([1.0, 2.0])
    with pytest.raises(RuntimeError, match=r"share memory.*'a' and 'b'"):
        st.save({"a": a, "b": view_tensor(a, a.dtype, Layout((1,), (1,), 0))})
    with pytest.raises(ValueError, match="complex128"):
        st.save({"a": tensor([1], "complex128")})
    with pytest.raises(ValueError, match=r"expected torch.Tensor but received <class 'int'>"):
        st.save({"a": 1})  # type: ignore[dict-item]


def test_files_that_are_not_right(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    whole = st.save({"a": tensor([1.0, 2.0]), "b": tensor([1.0])})
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(RuntimeError, match=r"x.safetensors is (not a safetensors file|damaged)"):
            st.load_file(path)
    for header in ({"a": {"dtype": "F32", "shape": [5], "data_offsets": [0, 8]}},
                   {"a": {"dtype": "Q7", "shape": [2], "data_offsets": [0, 8]}},
                   {"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
                   {"a": 5}, [1]):
        text = json.dumps(header).encode()
        with pytest.raises(RuntimeError, match=r"damaged|does not know|cannot be read"):
            st.load(struct.pack("<Q", len(text)) + text + bytes(8))


def test_a_failed_save_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    st.save_file({"a": tensor([1.0])}, path)
    with pytest.raises(ValueError):
        st.save_file({"a": tensor([2.0]), "b": "text"}, path)  # type: ignore[dict-item]
    assert st.load_file(path)["a"]._data.tolist() == [1]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
