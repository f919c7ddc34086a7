"""C++'s words for dtypes and numbers."""

from __future__ import annotations

from typing import Any

from flambeau.core.dtypes import bool_, dtype
from flambeau.core.symbolic import SymFloat

CPP_TYPES = {
    "bool": "bool", "uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "uint32": "uint32_t", "uint64": "uint64_t", "float16": "fl::float16", "bfloat16": "fl::bfloat16", "float32": "float",
    "float64": "double",
}
MEMORY_TYPES = {**CPP_TYPES, "bool": "uint8_t"}  # as what it is loaded and stored: GCC 12 does not vectorise over bool loads


def constant_text(value: Any, kind: dtype) -> str:
    """A number as C++."""
    name = CPP_TYPES[kind.name]
    if isinstance(value, SymFloat):
        return f"{name}({value.to_cpp()})"
    if kind is bool_:
        return "true" if value else "false"
    if kind.is_floating_point:
        suffix = "f" if name == "float" else ""
        value = float(value)
        if value != value:
            return f"__builtin_nan{suffix}(\"\")"
        if value in (float("inf"), float("-inf")):
            return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
        return f"{value!r}{suffix}" if value >= 0 and repr(value)[0] != "-" else f"({value!r}{suffix})"
    if name == "int64_t":
        return "(-9223372036854775807L - 1)" if value == -2**63 else f"{value}L" if value >= 0 else f"({value}L)"
    return f"{name}({value}{'UL' if name == 'uint64_t' else ''})"
