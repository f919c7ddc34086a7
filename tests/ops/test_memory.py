"""Which results share memory with an operand: exactly those that do so in torch, of operands of every size."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from tests.ops.calls import CALLS, arrays, evaluate

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")


def of_size_one() -> dict[str, np.ndarray]:
    """The same values with dimensions of size 1 where the calls allow."""
    made = arrays()
    cuts = {"I": np.s_[:, :, :1, :1], "J": np.s_[:, :, :1], "V": np.s_[:, :, :1, :1, :1]} | dict.fromkeys("xyzPUijbcrXY", np.s_[:1])
    return made | {name: made[name][cut] for name, cut in cuts.items()}


def flat(value: Any) -> list:
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, (tuple, list)) else [value]


def sharing(lib: Any, call: str, values: dict[str, np.ndarray]) -> list | None:
    """For each result the operand whose memory it shows; None if the call fails."""
    tensors = {name: lib.tensor(v.astype(np.float32) if v.dtype.kind == "f" else v) for name, v in values.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = flat(evaluate(lib, call, tensors))
        except Exception:
            return None
    owners = {t.untyped_storage().data_ptr(): name for name, t in tensors.items()}
    return [owners.get(r.untyped_storage().data_ptr()) if isinstance(r, lib.Tensor) and r.numel() else None for r in results]


@pytest.mark.parametrize("values", [arrays, of_size_one], ids=["plain", "of size one"])
def test_results_share_memory_where_they_do_in_torch(values: Any) -> None:
    wrong = []
    for call in CALLS:
        mine, theirs = sharing(fl, call, values()), sharing(torch, call, values())
        if mine is not None and theirs is not None and mine != theirs:
            wrong.append(f"{call}: shows {mine}, in torch {theirs}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("typed", [False, True])
def test_set_from_a_storage_shares_it(typed):
    a = fl.arange(6.0)
    storage = a._typed_storage() if typed else a.untyped_storage()
    whole = fl.empty(0).set_(storage)
    part = fl.ones(2, 3).set_(storage, 1, (2, 2), (2, 1))
    assert whole.shape == (6,) and part.tolist() == [[1, 2], [3, 4]] and part.storage_offset() == 1
    part[0, 0] = 9
    assert a.tolist() == whole.tolist() == [0, 9, 2, 3, 4, 5]
    if typed:
        with pytest.raises(RuntimeError, match=r"Expected a Storage of type torch\.int32"):
            fl.empty(0, dtype=fl.int32).set_(storage)
    else:
        assert fl.empty(0, dtype=fl.int32).set_(storage).shape == (6,)
    with pytest.raises(RuntimeError, match="the storage has 6"):
        fl.empty(0).set_(storage, 4, (2, 2))
    with pytest.raises(TypeError, match="a storage"):
        fl.empty(0).set_([1.0])
