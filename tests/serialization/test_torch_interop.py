"""PyTorch reads what Flambeau writes, and the other way round."""

from __future__ import annotations

import io
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.core.dtypes import DTYPES
from flambeau.core.tensor import Layout, Tensor, from_array, view_tensor
from flambeau.nn.parameter import Parameter

torch = pytest.importorskip("torch")

KNOWN = [name for name in DTYPES if hasattr(torch, name)]


def theirs_to_bytes(t: Any) -> bytes:
    return t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def ours_to_bytes(t: Tensor) -> bytes:
    return t._data.tobytes()


def to_torch(obj: Any, **options: Any) -> Any:
    buffer = io.BytesIO()
    flambeau.save(obj, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


def from_torch(obj: Any, **options: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    buffer.seek(0)
    return flambeau.load(buffer, **options)


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize("dtype", KNOWN)
def test_every_dtype_both_ways(dtype: str, shape: tuple[int, ...]) -> None:
    values = (np.arange(int(np.prod(shape))).reshape(shape) % 5).astype(DTYPES[dtype].numpy)
    ours = from_array(np.array(values))
    theirs = to_torch(ours)
    assert str(theirs.dtype) == f"torch.{dtype}" and tuple(theirs.shape) == shape
    assert theirs_to_bytes(theirs) == ours_to_bytes(ours)
    back = from_torch(theirs)
    assert back.dtype is ours.dtype and back.shape == ours.shape and ours_to_bytes(back) == ours_to_bytes(ours)


def test_a_checkpoint_to_torch() -> None:
    base = from_array(np.arange(6, dtype=np.float32).reshape(2, 3))
    row = view_tensor(base, base.dtype, Layout((3,), (1,), 3))
    state = OrderedDict([("weight", Parameter(base)), ("row", row)])
    checkpoint = {"model": state, "epoch": 3, "size": base.shape, "dtype": flambeau.float16, "rates": [1e-3, (1, None)],
                  "device": flambeau.device("cpu"), "raw": b"\xff", "set": {1}}  # fmt: skip
    loaded = to_torch(checkpoint)
    weight, row = loaded["model"]["weight"], loaded["model"]["row"]
    assert type(weight) is torch.nn.Parameter and weight.requires_grad and not row.requires_grad
    assert weight.untyped_storage().data_ptr() == row.untyped_storage().data_ptr() and row.tolist() == [3, 4, 5]
    assert loaded["size"] == torch.Size([2, 3]) and loaded["dtype"] is torch.float16 and loaded["rates"] == [1e-3, (1, None)]
    assert loaded["device"] == torch.device("cpu") and loaded["raw"] == b"\xff" and loaded["set"] == {1}


def test_a_checkpoint_from_torch() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 1, 5, 5)).sum().backward()
    optimizer.step()
    loaded = from_torch({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()})
    for name, value in model.state_dict().items():
        assert ours_to_bytes(loaded["model"][name]) == theirs_to_bytes(value), name
    assert loaded["model"]._metadata == model.state_dict()._metadata
    state = optimizer.state_dict()
    assert loaded["optimizer"]["param_groups"] == state["param_groups"]
    for index, slots in state["state"].items():
        for name, value in slots.items():
            assert ours_to_bytes(loaded["optimizer"]["state"][index][name]) == theirs_to_bytes(value)


def test_views_from_torch() -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    loaded_base, loaded = from_torch([base, base[:, 1:, ::2].transpose(0, 1)])
    assert loaded.stride() == (4, 12, 2) and loaded.storage_offset() == 4
    assert np.array_equal(loaded._data, base[:, 1:, ::2].transpose(0, 1).numpy())
    assert loaded._storage is loaded_base._storage


def test_meta_tensors_both_ways() -> None:
    loaded = from_torch(torch.empty(2, 3, device="meta"))
    assert loaded.is_meta and loaded.shape == (2, 3)
    assert to_torch(loaded).is_meta


def test_torch_maps_our_files(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    flambeau.save({"w": from_array(np.arange(5, dtype=np.float32))}, path)
    assert torch.load(path, mmap=True)["w"].tolist() == [0, 1, 2, 3, 4]
    torch.save({"w": torch.arange(5.0)}, path)
    assert flambeau.load(path, mmap=True)["w"]._data.tolist() == [0, 1, 2, 3, 4]


def test_whole_modules_both_ways() -> None:
    """Pickled modules name their classes; each library finds its own by those names."""
    nn = pytest.importorskip("flambeau.nn")
    ours = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    theirs = to_torch(ours, weights_only=False)
    assert type(theirs) is torch.nn.Sequential and type(theirs[0]) is torch.nn.Linear
    x = np.ones((1, 3), np.float32)
    expected = ours(from_array(x.copy())).detach()._data
    assert np.allclose(theirs(torch.from_numpy(x)).detach().numpy(), expected, atol=1e-6)
    again = from_torch(theirs, weights_only=False)
    assert type(again[0]) is nn.Linear
    assert np.allclose(again(from_array(x.copy())).detach()._data, expected, atol=1e-6)


MODULES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "LSTM": (lambda nn: nn.LSTM(3, 4, 2, bidirectional=True), (5, 2, 3)),
    "GRU": (lambda nn: nn.GRU(3, 4), (5, 2, 3)),
    "attention": (lambda nn: nn.TransformerEncoderLayer(8, 2, 16), (3, 2, 8)),
    "encoder": (lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True), 2), (3, 2, 8)),
    "convolutions": (lambda nn: nn.Sequential(nn.Conv2d(2, 4, 3, padding="same", padding_mode="circular"), nn.ConvTranspose2d(4, 2, 3)),
                     (1, 2, 5, 5)),
    "norms": (lambda nn: nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LayerNorm(3)),
              (2, 4, 3, 3)),
    "initialised lazily": (lambda nn: _after(nn.LazyLinear(3), (2, 3)), (2, 3)),
    "lists and dictionaries": (lambda nn: nn.Sequential(OrderedDict(a=nn.Linear(3, 3), b=nn.PReLU())), (2, 3)),
}


def _after(module: Any, shape: tuple[int, ...]) -> Any:
    library = torch if isinstance(module, torch.nn.Module) else flambeau
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module(library.ones(shape))
    return module


def _outputs(module: Any, shape: tuple[int, ...]) -> np.ndarray:
    library = torch if isinstance(module, torch.nn.Module) else flambeau
    with library.no_grad():
        out = module.eval()(library.linspace(-1, 1, int(np.prod(shape))).reshape(shape))
    return (out[0] if isinstance(out, tuple) else out).numpy()


@pytest.mark.filterwarnings("ignore")     # torch's about nested tensors, lazy modules and the fused encoder
@pytest.mark.parametrize("kind", MODULES)
def test_modules_that_keep_more_than_parameters_both_ways(kind: str) -> None:
    make, shape = MODULES[kind]
    ours, theirs = make(flambeau.nn), make(torch.nn)
    there, here = to_torch(ours, weights_only=False), from_torch(theirs, weights_only=False)
    assert set(there.__dict__) == set(theirs.__dict__) and repr(there) == repr(theirs) == repr(here)
    assert [type(m) for m in here.modules()] == [type(m) for m in ours.modules()]
    assert [type(m) for m in there.modules()] == [type(m) for m in theirs.modules()]
    assert np.allclose(_outputs(there, shape), _outputs(ours, shape), atol=1e-5)
    assert np.allclose(_outputs(here, shape), _outputs(theirs, shape), atol=1e-5)


@pytest.mark.parametrize("make, shape", [(lambda nn: nn.LazyConv2d(3, 3), (1, 2, 5, 5)), (lambda nn: nn.LazyBatchNorm1d(), (2, 3))])
def test_lazy_modules_both_ways_learn_their_sizes_afterwards(make: Any, shape: tuple[int, ...]) -> None:
    for module in (to_torch(make(flambeau.nn), weights_only=False), from_torch(make(torch.nn), weights_only=False),
                   pickle.loads(pickle.dumps(make(flambeau.nn)))):
        assert module.has_uninitialized_params()
        assert "Lazy" not in type(_after(module, shape)).__name__ and not module._load_state_dict_pre_hooks


THINGS: dict[str, Callable[[Any], Any]] = {
    "functions": lambda t: [t.relu, t.nn.functional.relu, t.nn.functional.gelu, t.add, t.nn.init.xavier_uniform_, t.nn.functional.softmax],
    "classes": lambda t: [t.Tensor, t.nn.Linear, t.nn.Parameter, t.Size, t.device, t.dtype, t.nn.Module, t.Generator],
    "a distribution": lambda t: t.distributions.Normal(t.zeros(2), t.ones(2)),
    "results with names": lambda t: t.max(t.eye(2), 0),
    "sequences": lambda t: t.nn.utils.rnn.pack_sequence([t.ones(3), t.ones(2)]),
    "an averaged model": lambda t: t.optim.swa_utils.AveragedModel(t.nn.Linear(2, 2)),
}


@pytest.mark.parametrize("kind", THINGS)
def test_names_of_the_library_both_ways(kind: str) -> None:
    ours, theirs = THINGS[kind](flambeau), THINGS[kind](torch)
    here, there = from_torch(theirs, weights_only=False), to_torch(ours, weights_only=False)
    assert type(here) is type(ours) and type(there) is type(theirs)
    if isinstance(ours, list):
        assert here == ours and there == theirs
    else:
        assert str(here) == str(theirs if kind != "an averaged model" else ours) and str(there) == str(theirs)


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_generators_and_storages_both_ways() -> None:
    ours, theirs = flambeau.Generator().manual_seed(7), torch.Generator().manual_seed(7)
    here, there = from_torch(theirs, weights_only=False), to_torch(ours, weights_only=False)
    expected = torch.rand(3, generator=theirs).tolist()
    assert flambeau.rand(3, generator=here).tolist() == torch.rand(3, generator=there).tolist() == expected
    for storage in (lambda t: t.tensor([1.0, 2.0]).storage(), lambda t: t.tensor([1, 2], dtype=t.uint8).untyped_storage()):
        back = (from_torch(storage(torch), weights_only=False), flambeau.load(_saved(storage(flambeau)), weights_only=False))
        assert all(isinstance(s, flambeau.storage.TypedStorage) and s.tolist() == [1, 2] for s in back)
        assert list(to_torch(storage(flambeau), weights_only=False)) == [1, 2]


def _saved(thing: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    flambeau.save(thing, buffer)
    buffer.seek(0)
    return buffer
