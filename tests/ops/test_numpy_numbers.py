"""A NumPy number as an operator's attribute is that number: nothing is computed in its dtype."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import flambeau as fl

SPACES = (fl, fl.nn.functional, fl.special)


def takers() -> Iterator[tuple[str, Callable, int, str]]:
    """Functions with an attribute that is a float, how many tensors they need, and the attribute's name."""
    for space in SPACES:
        for name in dir(space):
            fn = getattr(space, name, None)
            if name.startswith("_") or inspect.isclass(fn) or not callable(fn) or name in ("set_printoptions", "set_default_device"):
                continue
            try:
                parameters = inspect.signature(fn).parameters.values()
            except ValueError:
                continue
            tensors = sum(p.default is inspect.Parameter.empty and "Tensor" in str(p.annotation) for p in parameters)
            for p in parameters if tensors else ():
                if isinstance(p.default, float):
                    yield f"{name}({p.name})", fn, tensors, p.name


@pytest.mark.filterwarnings("ignore")
def test_attributes() -> None:
    x = fl.linspace(0.1, 2, 6, dtype=fl.float64).reshape(2, 3)
    looked_at = 0
    for what, fn, tensors, attribute in takers():
        for value in (np.float32(0.3), np.float16(0.7), np.float32(1.1)):
            made = []
            for number in (float(value), value):
                fl.manual_seed(0)
                try:
                    made.append(fn(*[x] * tensors, **{attribute: number}))
                except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
                    made.append(None)
            if isinstance(made[0], fl.Tensor):
                looked_at += 1
                assert made[0].dtype is made[1].dtype and fl.equal(made[0].nan_to_num(), made[1].nan_to_num()), (what, value)
    assert looked_at > 60


def test_scale_of_celu() -> None:
    x = fl.tensor([-2.0], dtype=fl.float64)
    assert fl.nn.functional.celu(x, np.float32(1.5)).item() == fl.nn.functional.celu(x, 1.5).item()
