"""Tensors around arrays of NumPy and of libraries that describe their arrays as NumPy does."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl
from flambeau import _C


def test_the_dtype_is_asked_of_other_libraries_arrays():
    class Array:
        dtype, shape = np.dtype(np.float16), (2,)

    assert _C.tensor_around(Array()).dtype is fl.float16
    assert _C.tensor_around(np.zeros(2, np.int8)).dtype is fl.int8


def test_what_has_no_dtype_is_refused():
    with pytest.raises(TypeError, match="expected a NumPy array, got <class 'int'>"):
        _C.tensor_around(3)
