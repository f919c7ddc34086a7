"""Window functions, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

NAMES = fl.signal.windows.__all__
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "exponential": [{"tau": 3.0}, {"center": 1.5, "sym": False}],
    "gaussian": [{"std": 2.5}],
    "general_cosine": [{"a": [0.4, 0.5, 0.1]}, {"a": (1.0,)}],
    "general_hamming": [{"alpha": 0.7}],
    "kaiser": [{"beta": 3.0}, {"beta": 0.0}],
}


def both(name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    kind = options.pop("dtype", "float32")
    return tuple(getattr(t.signal.windows, name)(*args, dtype=getattr(t, kind), **options) for t in (fl, torch))  # type: ignore[return-value]


@pytest.mark.parametrize("name", NAMES)
def test_values(name: str) -> None:
    for options in [*OPTIONS.get(name, []), *([] if name == "general_cosine" else [{}])]:
        for points in (0, 1, 2, 7, 20):
            for sym in [False] if "center" in options else [True, False]:
                for kind, tolerance in (("float32", 1e-6), ("float64", 1e-12)):
                    ours, theirs = both(name, points, **{"sym": sym, **options, "dtype": kind})
                    assert str(ours.dtype) == str(theirs.dtype) and tuple(ours.shape) == tuple(theirs.shape)
                    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=tolerance)


def test_every_window_of_torch_is_there() -> None:
    assert sorted(NAMES) == sorted(torch.signal.windows.__all__)


def test_options() -> None:
    assert fl.signal.windows.hann(4, requires_grad=True).requires_grad
    assert fl.signal.windows.hann(4, device="meta").device.type == "meta"
    compiled = fl.compile(lambda x: x * fl.signal.windows.hann(8), fullgraph=True, backend="eager")
    np.testing.assert_allclose(compiled(fl.ones(8)).numpy(), fl.signal.windows.hann(8).numpy())


@pytest.mark.parametrize(("name", "args", "options"), [
    ("bartlett", (-1,), {}),
    ("cosine", (3,), {"dtype": "int32"}),
    ("kaiser", (3,), {"beta": -1}),
    ("gaussian", (3,), {"std": 0}),
    ("exponential", (3,), {"tau": -1}),
    ("exponential", (3,), {"center": 1.0}),
    ("general_cosine", (3,), {"a": []}),
    ("general_cosine", (3,), {"a": 3}),
    ("nuttall", (3,), {"dtype": "float16"}),
])  # fmt: skip
def test_errors(name: str, args: tuple, options: dict) -> None:
    found = []
    for t in (fl, torch):
        given = {k: getattr(t, v) if k == "dtype" else v for k, v in options.items()}
        with pytest.raises((ValueError, TypeError)) as error:
            getattr(t.signal.windows, name)(*args, **given)
        found.append((error.type, str(error.value)))
    assert found[0] == found[1]
