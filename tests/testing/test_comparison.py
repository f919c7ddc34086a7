"""torch.testing.assert_close and the pairs behind it: what each kind of input says when it differs, beside torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")

CALLS: list[Callable[[Any, Any], Any]] = [
    lambda t, close: close(t.tensor([1.0, 2]), t.tensor([1.0, 3])),
    lambda t, close: close(t.tensor([1, 2]), t.tensor([1, 3])),
    lambda t, close: close(t.tensor([0, 255], dtype=t.uint8), t.tensor([255, 1], dtype=t.uint8)),
    lambda t, close: close(t.tensor([[True, False]]), t.tensor([[True, True]])),
    lambda t, close: close(t.tensor([1j, 2]), t.tensor([1j, 3])),
    lambda t, close: close(t.tensor(1), t.tensor(3)),
    lambda t, close: close(1, 3),
    lambda t, close: close(1.0, 3.0),
    lambda t, close: close(1, 3.0),
    lambda t, close: close(1, 1.0, check_dtype=False),
    lambda t, close: close(float("inf"), 1.0),
    lambda t, close: close(True, False),
    lambda t, close: close(None, 1),
    lambda t, close: close("a", "b"),
    lambda t, close: close({1}, {1}),
    lambda t, close: close([1, 2], [1, 3]),
    lambda t, close: close([1, 2], [1]),
    lambda t, close: close((t.tensor(1),), [t.tensor(1)]),
    lambda t, close: close({"a": 1, "c": 2}, {"b": 1}),
    lambda t, close: close({"a": [1, 2]}, {"a": [1, 4]}),
    lambda t, close: close([[t.tensor([1.0])]], [[t.tensor([2.0])]], msg=lambda made: f"X{made}"),
    lambda t, close: close(t.tensor([1.0]), t.tensor([2.0]), msg="mine"),
    lambda t, close: close(t.tensor([1.0]), [1.0]),
    lambda t, close: close(t.tensor([1.0]), t.tensor([1])),
    lambda t, close: close(t.tensor([1.0]), t.tensor([1.0, 2])),
    lambda t, close: close(t.tensor([1.0]), t.tensor([1.0], device="meta")),
    lambda t, close: close(t.ones(2, device="meta"), t.ones(2, device="meta")),
    lambda t, close: close(t.tensor([[1.0, 2]]), t.tensor([[1.0], [2]]).T, check_stride=True),
    lambda t, close: close(t.tensor([1.0]), t.tensor([2.0]), rtol=0),
    lambda t, close: close(t.tensor([0.0]), t.tensor([0.1]), rtol=0, atol=0.01),
    lambda t, close: close(t.tensor([float("nan")]), t.tensor([float("nan")])),
    lambda t, close: close(t.tensor([float("nan")]), t.tensor([float("nan")]), equal_nan=True),
    lambda t, close: close(t.nn.Parameter(t.tensor([1.0])), t.tensor([1.0]), allow_subclasses=False),
    lambda t, close: close(np.array([1.0]), np.array([2.0])),
    lambda t, close: close(np.float32(1), np.float32(2)),
    lambda t, close: close(t.tensor([1.0]).to_sparse(), t.tensor([1.0])),
    lambda t, close: close(t.tensor([1.0]).to_sparse(), t.tensor([2.0]), check_layout=False),
    lambda t, close: close(t.tensor([1.0, 2]).to_sparse(), t.tensor([1.0, 0]).to_sparse()),
    lambda t, close: close(t.tensor([1.0, 0]).to_sparse(), t.tensor([0, 1.0]).to_sparse()),
    lambda t, close: close(t.tensor([[1.0, 2]]).to_sparse_csc(), t.tensor([[1.0, 3]]).to_sparse_csc()),
]


def told(t: Any, call: Callable[[Any, Any], Any]) -> tuple[str, str]:
    """The type of what the call raises and its message, with torch's name of the library."""
    try:
        call(t, t.testing.assert_close)
    except Exception as error:
        return type(error).__name__, str(error).replace("flambeau.", "torch.").replace("core.tensor.", "")
    return "nothing", ""


@pytest.mark.filterwarnings("ignore:Sparse CS")
@pytest.mark.parametrize("call", CALLS)
def test_it_says_what_torch_says(call: Callable[[Any, Any], Any]) -> None:
    theirs, ours = told(torch, call), told(fl, call)
    assert ours[0] == theirs[0]
    if theirs[0] == "AssertionError":
        assert ours == theirs


@pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])
def test_kinds_of_pairs_of_ones_own(t: Any) -> None:
    pairs = importlib.import_module(f"{t.__name__}.testing._comparison")

    class Near(pairs.NumberPair):  # type: ignore[name-defined, misc]
        """Numbers and strings of digits, within a half."""

        def __init__(self, actual: Any, expected: Any, *, near: float = 0.0, **other: Any) -> None:
            super().__init__(actual, expected, **other)
            self.atol = max(self.atol, near)

        def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...]) -> Any:
            self._check_inputs_isinstance(actual, expected, cls=(*self._supported_types, str))
            return [self._to_number(float(x), id=id) for x in (actual, expected)]

    def metas(one: Any, other: Any) -> list[str]:
        found = pairs.not_close_error_metas(
            one, other, pair_types=(pairs.NonePair, Near, pairs.ObjectPair), sequence_types=(list,), mapping_types=(dict,), near=0.5)
        return [str(meta.to_error()).partition("\n")[0] for meta in found]

    assert metas([1, "2"], [1.4, 2.2]) == []
    assert metas({"a": ["3", None]}, {"a": [4, 5]}) == ["Scalars are not close!", "None mismatch: None is not 5"]
    assert metas({1}, {2}) == ["{1} != {2}"]
    with pytest.raises(AssertionError, match="length"):
        metas([1], [])
    assert "rtol=0.0" in repr(pairs.NumberPair(1, 2))
