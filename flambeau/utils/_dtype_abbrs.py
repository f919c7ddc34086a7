"""Short names of dtypes, as graphs are printed with: `f32`, `bf16`, `i64`, `b8`."""

from __future__ import annotations

from ..core.dtypes import DTYPES

dtype_abbrs = {kind: kind.code for kind in DTYPES.values()}

__all__: list[str] = []
