"""Prints the rows of csrc/scalar_loops.h: one for each scalar operation of flambeau/ops/scalar.py and dtype that it has a loop for.

The build runs it, without Flambeau being there yet: of what the table's file imports only NumPy is real.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

KINDS = {"B": ("bool",), "I": ("uint8_t", "int8_t", "int16_t", "int32_t", "int64_t"), "F": ("float", "double")}


def table() -> dict[str, Any]:
    """The table of scalar operations."""
    for name in ("flambeau", "flambeau._C", "flambeau.core", "flambeau.core.dtypes"):
        sys.modules.setdefault(name, MagicMock())
    source = Path(__file__).parent.parent / "flambeau" / "ops" / "scalar.py"
    module = types.ModuleType("scalar")
    sys.modules["scalar"] = module
    exec(compile(source.read_text(), str(source), "exec"), module.__dict__)
    return module.TABLE


def rows(op: Any) -> list[str]:
    """The rows of one operation: FL_ROW(name, arity, operands' type, result's type, expression of x, y and z, cost)."""
    kinds = [kind for letter in op.native for kind in KINDS[letter]]
    made = []
    for kind in kinds:
        result = "bool" if op.result == "bool" else kind
        if op.far and kind in KINDS["F"]:
            made.append(f"FL_FAR_ROW{op.arity}({op.name}, {kind}, {op.cost})")
        else:
            expression = "x & y" if op.name == "mul" and kind == "bool" else op.cpp.format("x", "y", "z")
            if kind in KINDS["I"] and op.name in ("add", "sub", "mul", "neg"):
                expression = f"fl::{op.name}({', '.join('xyz'[:op.arity])})"
            made.append(f"FL_ROW{op.arity}({op.name}, {kind}, {result}, ({expression}), {op.cost})")
    return made


if __name__ == "__main__":
    lines = [line for op in table().values() if op.native and op.name != "where" for line in rows(op)]
    text, out = "\n".join(lines) + "\n", Path(sys.argv[1])
    if not out.exists() or out.read_text() != text:  # else nothing is compiled anew
        out.write_text(text)
