"""Prints the rows of csrc/scalar_loops.h, one for each scalar operation, or fold, of flambeau/core/scalar.py and dtype with a loop; and
those of what is done to products.

The build runs it, without Flambeau being there yet: of what the table's file imports only NumPy is real.
"""

from __future__ import annotations

import inspect
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

NARROW = ("uint8_t", "int8_t", "int16_t")     # integers that no fold is computed in
KINDS = {"B": ("bool",), "I": ("uint8_t", "int8_t", "int16_t", "int32_t", "int64_t"), "F": ("float", "double")}


def tables() -> tuple[dict[str, Any], ...]:
    """The tables of scalar operations, of folds and of operations on products."""
    for name in ("flambeau", "flambeau._C", "flambeau.core", "flambeau.core.dtypes"):
        sys.modules.setdefault(name, MagicMock())
    source = Path(__file__).parent.parent / "flambeau" / "core" / "scalar.py"
    module = types.ModuleType("scalar")
    sys.modules["scalar"] = module
    exec(compile(source.read_text(), str(source), "exec"), module.__dict__)
    return module.TABLE, module.FOLDS, module.POSTS


TABLE, FOLDS, POSTS = tables()


def rows(op: Any) -> list[str]:
    """The rows of one operation: FL_ROW(name, arity, operands' type, result's type, expression of x, y and z, cost)."""
    kinds = [kind for letter in op.native for kind in KINDS[letter]]
    made = []
    for kind in kinds:
        result = "bool" if op.result == "bool" else kind
        if op.far and kind in KINDS["F"]:
            made.append(f"FL_FAR_ROW{op.arity}({op.name}, {kind}, {op.cost})")
        else:
            reading = TABLE[op.truths] if op.truths and kind == "bool" else op
            expression = reading.cpp.format("x", "y", "z")
            if kind in KINDS["I"] and op.wraps:
                expression = f"fl::{op.name}({', '.join('xyz'[:op.arity])})"
            made.append(f"FL_ROW{op.arity}({op.name}, {kind}, {result}, ({expression}), {op.cost})")
    return made


def fold_rows(fold: Any) -> list[str]:
    """The rows of one fold: FL_FOLD(name, elements' type, total's type, expression of x and y)."""
    kinds = [kind for letter in fold.native for kind in KINDS[letter] if kind not in NARROW]
    return [f"FL_FOLD({fold.name}, {kind}, {'double' if kind == 'float' and not fold.exact else kind}, {fold.combine.cpp.format('x', 'y')})"
            for kind in kinds]


class Printer:
    """A handler that prints a loop body in C++, of float32."""

    def __getattr__(self, name: str) -> Any:
        return lambda *operands: f"({TABLE[name].cpp.format(*(x if isinstance(x, str) else f'{x!r}f' for x in operands))})"


def post_row(name: str, algorithm: str, body: Any) -> str:
    """The row of one operation on products: X(name, oneDNN's algorithm, unary or binary, parameters, expression)."""
    _, *names = inspect.signature(body).parameters
    elements = [x for x in names if x in "xy"]
    return (f"    X({name}, {algorithm}, {'binary' if 'y' in names else 'unary'}, ({', '.join(f'float {x}' for x in elements)}), "
            f"{body(Printer(), *names)})")


def write(lines: list[str], out: Path) -> None:
    """Write a file, unless it says so already: nothing is compiled anew then."""
    text = "\n".join(lines) + "\n"
    if not out.exists() or out.read_text() != text:
        out.write_text(text)


if __name__ == "__main__":
    write([line for op in TABLE.values() if op.native and op.name != "where" for line in rows(op)], Path(sys.argv[1]))
    write([line for fold in FOLDS.values() for line in fold_rows(fold)], Path(sys.argv[2]))
    posts = [post_row(name, row.algorithm, row.body) for name, row in POSTS.items()]
    write([" \\\n".join(["#define FL_POST_OPS(X)", *posts])], Path(sys.argv[3]))
