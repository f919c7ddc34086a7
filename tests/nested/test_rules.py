"""Every operator of the table, called with nested tensors: it computes what it computes of each component, or refuses. It never gives
anything else."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops.registry import OPERATORS

REFUSALS = (NotImplementedError, RuntimeError, ValueError, TypeError, IndexError, AttributeError)
ROWS = [np.array([[0.3, -1.2], [2.0, 0.7]], "f"), np.array([[1.5, 0.2], [-0.4, 3.1], [0.9, -2.2]], "f"), np.array([[0.6, 1.1]], "f")]
CHECKED_ELSEWHERE = {"unbind"}      # which has components as its results
SIZE_OF_EACH = {"squeeze"}      # of a row of one element: the size of the ragged dimension is never 1
MAKES_UP = {"empty_like", "new_empty"}


def rows(kind: Any = None) -> list[Any]:
    return [fl.tensor(row, dtype=kind) for row in ROWS]


def nested(layout: Any, kind: Any = None) -> Any:
    return fl.nested.nested_tensor(rows(kind), layout=layout)


def required(name: str) -> list[str]:
    parameters = inspect.signature(OPERATORS[name]).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def default(name: str) -> Any:
    """The default of the parameter `dim`, which is counted differently of a component."""
    parameter = inspect.signature(OPERATORS[name]).parameters.get("dim")
    return None if parameter is None else parameter.default


def unary() -> Iterator[str]:
    for name, operator in OPERATORS.items():
        tags = operator._operator.tags
        if not {"random", "inplace"} & set(tags) and not name.startswith("_") and not name.endswith("_") and "rand" not in name \
                and name not in CHECKED_ELSEWHERE | MAKES_UP and len(required(name)) == 1 and "dropout" not in name \
                and type(default(name)) is not int:
            yield name


def along() -> Iterator[str]:
    for name, operator in OPERATORS.items():
        first, *more = required(name) or ["", "", ""]
        if "dim" in inspect.signature(operator).parameters and first in ("input", "self") and more in ([], ["dim"]) \
                and not name.startswith("_") and not name.endswith("_") and name not in CHECKED_ELSEWHERE | SIZE_OF_EACH:
            yield name


def parts(value: Any) -> list[list[Any]]:
    """Results as lists of components: of a tuple's tensors one after another."""
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [list(v.unbind()) if isinstance(v, fl.Tensor) and v.is_nested else v for v in values]


def same(a: Any, b: Any) -> None:
    if not isinstance(b, fl.Tensor):
        assert a == b
        return
    assert a.dtype == b.dtype
    np.testing.assert_allclose(a.detach().resolve_conj().numpy(), b.detach().resolve_conj().numpy(), rtol=1e-5, atol=1e-6, equal_nan=True)


def of_each(call: Any) -> list[list[Any]]:
    """What the call gives of each component: results in columns."""
    found = [call(row) for row in rows()]
    found = [list(f) if isinstance(f, (tuple, list)) else [f] for f in found]
    return [list(column) for column in zip(*found, strict=True)]


@pytest.mark.parametrize("layout", [fl.jagged, fl.strided], ids=str)
def test_operators_of_one_tensor(layout: Any) -> None:
    computed = []
    for name in unary():
        operator, x = OPERATORS[name], nested(layout)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                out = operator(x)
            except REFUSALS:
                continue
            computed.append(name)
            found = parts(out)
            if isinstance(found[0], list):
                for column, wanted in zip(found, of_each(operator), strict=True):
                    for a, b in zip(column, wanted, strict=True):
                        same(a, b)
            elif isinstance(found[0], fl.Tensor):     # a reduction of everything
                everything = operator(fl.cat([row.reshape(-1) for row in rows()]))
                for a, b in zip(found, everything if isinstance(everything, tuple) else (everything,), strict=True):
                    same(a, b)
    assert len(computed) > 100, computed


@pytest.mark.parametrize("layout", [fl.jagged, fl.strided], ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_operators_along_a_dimension(layout: Any, dim: int) -> None:
    computed = []
    for name in along():
        operator, x = OPERATORS[name], nested(layout)
        grown = 4 if name == "unsqueeze" else 3
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                out = operator(x, dim=dim)
            except REFUSALS:
                continue
            computed.append(name)
            inner = dim % grown - 1
            assert inner >= 0, (name, dim)     # nothing is done along the batch alone
            for column, wanted in zip(parts(out), of_each(lambda row: operator(row, dim=inner)), strict=True):
                for a, b in zip(column, wanted, strict=True):     # of a dense result, its slices
                    same(a, b)
    assert len(computed) > 5 or dim % 3 == 0, computed


def test_every_operator_along_a_dimension_is_tried() -> None:
    assert {"sum", "softmax", "cumsum", "sort", "unsqueeze", "amax", "logsumexp"} <= set(along())
