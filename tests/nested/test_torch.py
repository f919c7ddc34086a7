"""Nested tensors beside torch's: expressions.txt lists what both compute, or refuse with the same kind of error."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")
EXPRESSIONS = (Path(__file__).parent / "expressions.txt").read_text(encoding="utf-8").splitlines()


def names(t: Any) -> dict[str, Any]:
    """What expressions are made of, of either library."""
    a, b, c = t.arange(1.0, 5).reshape(2, 2), t.arange(5.0, 11).reshape(3, 2), t.arange(11.0, 13).reshape(1, 2)
    off = t.tensor([0, 2, 5, 6])
    made = t.nested.nested_tensor_from_jagged
    j = t.nested.nested_tensor([a, b, c], layout=t.jagged)
    return {
        "torch": t, "T": t.tensor, "F": t.nn.functional, "a": a, "b": b, "c": c, "d": t.arange(18.0).reshape(3, 3, 2) + 0.5, "off": off, "j": j,
        "n": t.nested.nested_tensor([a, b, c]), "k": j.shape[1],
        "jl": made(t.arange(14.0).reshape(7, 2), t.tensor([0, 3, 5, 7]), lengths=t.tensor([2, 1, 2])),
        "jt": made(t.arange(36.0).reshape(6, 3, 2), t.tensor([0, 2, 3, 6])).transpose(1, 2),
        "j2": made(t.arange(12.0).reshape(6, 2), off), "j3": made(t.arange(12.0).reshape(6, 2), off),
        "q": made(t.arange(48.0).reshape(6, 2, 4) / 48, off).transpose(1, 2),
        "q2": made(t.arange(64.0).reshape(8, 2, 4) / 64, t.tensor([0, 1, 5, 8])).transpose(1, 2)}


def value(t: Any, program: str) -> Any:
    """The last expression of a line, after its statements; an exception as such."""
    tree, space = ast.parse(program), names(t)
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    try:
        exec(compile(tree, "line", "exec"), space)
        return described(eval(compile(ast.Expression(last.value), "line", "eval"), space))
    except Exception as error:
        return [type(error).__name__]


def described(x: Any) -> Any:
    """A value as data that both libraries come to alike."""
    if isinstance(x, (tuple, list)):
        return [described(v) for v in x]
    if not hasattr(x, "is_nested"):
        return x if isinstance(x, (int, float, bool, type(None))) else str(x).replace("flambeau", "torch") if "j" not in str(x) else "j"
    if x.is_nested:
        return [str(x.layout), str(x.dtype), x.requires_grad, *map(described, x.detach().unbind())]
    return [str(x.dtype), x.requires_grad, x.detach().double().numpy()]


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b), f"{a} and {b}"
    if isinstance(a, list):
        assert len(a) == len(b), f"{a} and {b}"
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
    else:
        assert a == b or (a != a and b != b), f"{a} and {b}"


@pytest.mark.parametrize("name", ["j", "jl", "jt", "n"])
def test_files(name: str, tmp_path: Path) -> None:
    """Each library reads what the other wrote."""
    for writes, reads in ((fl, torch), (torch, fl)):
        wanted = names(writes)[name]
        writes.save(wanted, tmp_path / "file.pt")
        for weights_only in (True, False):
            found = reads.load(tmp_path / "file.pt", weights_only=weights_only)
            same(described(found), described(wanted))


@pytest.mark.parametrize("line", EXPRESSIONS)
def test_expressions(line: str) -> None:
    same(value(fl, line), value(torch, line))
