"""torch.testing.make_tensor draws what torch's draws, dtype by dtype, and refuses the same."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
ARGUMENTS: list[dict[str, Any]] = [
    {}, {"noncontiguous": True}, {"low": 0, "high": 2, "exclude_zero": True}, {"low": 2, "high": 5}, {"low": 5, "high": 2},
    {"low": -1e9, "high": 1e9}, {"low": float("-inf"), "high": float("inf")}, {"low": float("nan"), "high": 2}, {"requires_grad": True},
    {"low": 0.3, "high": 1.7}, {"low": -3}, {"noncontiguous": True, "memory_format": "channels_last"},
]


def made(t: Any, dtype: str, arguments: dict[str, Any]) -> Any:
    t.manual_seed(0)
    if "memory_format" in arguments:
        arguments = {**arguments, "memory_format": getattr(t, arguments["memory_format"])}
    try:
        x = t.testing.make_tensor((2, 3), dtype=getattr(t, dtype), device="cpu", **arguments)
    except Exception as error:
        return type(error).__name__
    return str(x.detach().tolist()), x.stride(), x.requires_grad


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_drawn(dtype: str) -> None:
    for arguments in ARGUMENTS:
        assert made(fl, dtype, arguments) == made(torch, dtype, arguments), arguments


@pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])
def test_an_empty_interval_of_floats_warns(t: Any) -> None:
    with pytest.warns(FutureWarning):
        assert t.testing.make_tensor(2, dtype=t.float32, device="cpu", low=2, high=2).tolist() == [2, 2]


@pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])
def test_texts_are_checked_in_order(t: Any) -> None:
    text = "a = 1\nb = a + 1\nreturn b\n"
    t.testing.FileCheck().check("a =").check_next("b =").check_same("+ 1").check_not("c").check("return").run(text)
    t.testing.FileCheck().check_dag("return").check_dag("a =").check_not("a =").run(text)
    t.testing.FileCheck().check_count("b", 2, exactly=True).run(text)
    t.testing.FileCheck().check_regex(r"b = \w").run(text)
    for check in (t.testing.FileCheck().check("return").check("a ="), t.testing.FileCheck().check_not("b").check("return"),
                  t.testing.FileCheck().check("a =").check_next("return"), t.testing.FileCheck().check("a =").check_same("return"),
                  t.testing.FileCheck().check_count("b", 1, exactly=True), t.testing.FileCheck().check("a").check_not("return")):
        with pytest.raises(RuntimeError, match="xpected to"):
            check.run(text)
