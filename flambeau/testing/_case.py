"""`TestCase`: unittest's, whose `assertEqual` compares tensors, arrays and what holds them as `assert_close` does."""

from __future__ import annotations

import unittest
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..ops.registry import OPERATORS
from ._comparison import BooleanPair, NonePair, NumberPair, ObjectPair, TensorLikePair, not_close_error_metas
from ._creation import make_tensor as make_tensor

_KINDS = (NonePair, BooleanPair, NumberPair, TensorLikePair, ObjectPair)


def _beside(x: Any, other: Any) -> Any:
    """Numbers and arrays as tensors beside a tensor."""
    made = isinstance(other, Tensor) and not isinstance(x, Tensor) and isinstance(x, (int, float, complex, np.ndarray, np.generic, Sequence))
    return OPERATORS["as_tensor"](x, dtype=other.dtype, device=other.device) if made and not isinstance(x, str) else x


class TestCase(unittest.TestCase):
    """A test case for tensors."""

    def assertEqual(self, x: Any, y: Any, msg: Any = None, *, atol: float | None = None, rtol: float | None = None,
                    equal_nan: bool = True, exact_dtype: bool = True, exact_device: bool = False, exact_stride: bool = False) -> None:
        """Fail unless x is close to y; NaN is equal to NaN. Beside a tensor a number or a sequence is taken as one."""
        found = not_close_error_metas(
            _beside(x, y), _beside(y, x), pair_types=_KINDS, sequence_types=(Sequence,), mapping_types=(Mapping,), atol=atol, rtol=rtol,
            equal_nan=equal_nan, check_dtype=exact_dtype and isinstance(x, Tensor), check_device=exact_device, check_stride=exact_stride)
        if found:
            raise found[0].to_error(msg if msg is None or callable(msg) else lambda made: f"{made}\n{msg}")

    def assertNotEqual(self, x: Any, y: Any, msg: Any = None, **options: Any) -> None:  # type: ignore[override]
        """Fail where `assertEqual` does not."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(x, y, msg, **options)


def run_tests(argv: list[str] | None = None) -> None:
    """Run the tests of the program."""
    unittest.main(argv=argv)
