"""torch.testing: `assert_close`, and tensors of random numbers for tests."""

from __future__ import annotations

from typing import Any

from ._comparison import assert_close, default_tolerances
from ._creation import make_tensor
from ._file_check import FileCheck


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True, msg: str = ""
) -> None:
    """The old form of `assert_close`: dtypes and devices may differ."""
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=False, check_dtype=False, msg=msg or None
    )


__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]
