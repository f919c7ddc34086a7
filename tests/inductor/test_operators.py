"""Generated eager kernels: one kernel for all sizes, floats as parameters, and nothing where nothing is gained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flambeau.backends.cpu.onednn import BFLOAT16
from flambeau.core.dtypes import dtype_of_numpy, float32
from flambeau.core.tensor import Tensor, from_array
from flambeau.inductor import graph as graphs
from flambeau.inductor import operators
from flambeau.inductor.cpu import compile as build
from flambeau.ops import primitives, prims
from flambeau.ops.registry import COMPOSITES

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")
rng = np.random.default_rng(0)


@pytest.fixture
def compiled() -> Any:
    """The graphs that are compiled meanwhile."""
    seen: list[Any] = []
    graphs.listening.append(seen.append)
    yield seen
    graphs.listening.remove(seen.append)


def array(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def body(name: str, *args: Any) -> tuple[np.ndarray, ...]:
    out = COMPOSITES[name].fn(*[from_array(a) if isinstance(a, np.ndarray) else a for a in args])
    return tuple(t._data for t in (out if isinstance(out, tuple) else (out,)))


@pytest.mark.parametrize(("name", "args"), [
    ("_softmax", (array(300, 70), 1)),
    ("_softmax", (array(70, 300), 0)),
    ("_log_softmax", (array(300, 70), 1)),
    ("_gelu", (array(300, 70), "none")),
    ("gelu_backward", (array(300, 70), array(300, 70), "tanh")),
    ("_layer_norm", (array(8, 40, 70), array(70), array(70), 1, 1e-5)),
    ("attention_weights", (array(6, 64, 64), None, True, 0.125)),
    ("_logsumexp", (array(300, 70), (0,), False)),
    ("_nansum", (np.where(array(300, 70) > 1, np.float32(np.nan), array(300, 70)), (0,), False)),
    ("glu", (array(300, 70), 1)),
    ("glu_backward", (array(300, 35), array(300, 70), 1)),
    ("softshrink", (array(300, 70), 0.3)),
    ("shrink_backward", (array(300, 70), array(300, 70), 0.3)),
    ("nan_to_num", (np.where(array(300, 70) > 1, np.float32(np.inf), array(300, 70)), 1.0, None, None)),
])
def test_kernel_agrees_with_the_body(name: str, args: tuple) -> None:
    got = operators.operator_kernel(COMPOSITES[name].fn)(*args)
    assert got is not NotImplemented
    for g, w in zip(got if isinstance(got, tuple) else (got,), body(name, *args), strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)


def test_what_depends_on_a_fold_by_columns_is_vectorised(compiled: list) -> None:
    """A truth value that varies along the columns is none from outside of their loop."""
    operators.operator_kernel(COMPOSITES["_logsumexp"].fn)(array(300, 70), (0,), False)
    assert "FL_FORGET" not in compiled[-1].unit.source and "acc1[j]" in compiled[-1].unit.source


@pytest.mark.parametrize("kind", [np.float16, BFLOAT16], ids=str)
def test_narrow_floats_are_stored_without_temporaries(kind: Any, compiled: list) -> None:
    """GCC does not vectorise over temporaries of a class. Rounding is that of ml_dtypes, NaN and infinities included."""
    x = np.append(array(300, 70), np.float32([np.nan, np.inf, -np.inf, 3.4e38, 1e-40, 65520, 1.00390625, 1.01171875]))
    kernel = operators.operator_kernel(lambda x, kind: prims.convert(prims.convert(prims.mul(x, 1.0), kind), float32))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(kernel(x, dtype_of_numpy(np.dtype(kind))), x.astype(kind).astype(np.float32))
        narrow = operators.operator_kernel(lambda x, kind: prims.convert(x, kind))(x, dtype_of_numpy(np.dtype(kind)))
        np.testing.assert_array_equal(narrow.astype(np.float32), x.astype(kind).astype(np.float32))
    assert all("fl::bfloat16(" not in graph.unit.source for graph in compiled)


@pytest.mark.parametrize("expanded", [(0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2)])
def test_expanded_arrays_are_read_where_they_are(expanded: tuple, compiled: list) -> None:
    """One kernel reads the few elements of a broadcast operand again and again; it holds for other sizes too."""
    kernel = operators.operator_kernel(prims.sub)
    for shape in ((30, 40, 50), (70, 20, 30)):
        x = array(*shape)
        y = array(*(1 if d in expanded else n for d, n in enumerate(shape)))
        for order in ((0, 1, 2), (2, 0, 1)):
            left, right = x.transpose(order), np.broadcast_to(y, shape).transpose(order)
            np.testing.assert_array_equal(kernel(left, right), left - right)
            np.testing.assert_array_equal(kernel(right, left), right - left)
    assert len(compiled) == 4


def test_one_kernel_for_all_sizes_and_floats(compiled: list) -> None:
    kernel = operators.operator_kernel(lambda x, lr: prims.mul(prims.add(x, lr), 1.0 - lr))
    for shape, lr in (((300, 100), 0.1), ((77, 500), 0.2), ((1000, 33), -3.5)):
        x = array(*shape)
        np.testing.assert_allclose(kernel(x, lr), (x + np.float32(lr)) * np.float32(1 - lr), rtol=1e-6, atol=1e-6)
    assert len(compiled) == 1


def test_a_float_that_decides_is_part_of_the_key(compiled: list) -> None:
    kernel = operators.operator_kernel(lambda x, decay: prims.mul(x, decay) if decay != 0 else prims.neg(x))
    x = array(300, 100)
    np.testing.assert_array_equal(kernel(x, 0.0), -x)
    np.testing.assert_array_equal(kernel(x, 2.0), 2 * x)
    assert len(compiled) == 2


def test_a_size_that_decides_is_checked(compiled: list) -> None:
    def fn(x: Tensor) -> Tensor:
        return prims.neg(x) if x.shape[0] > 200 else prims.mul(x, 2.0)
    kernel = operators.operator_kernel(fn)
    large, small = array(300, 100), array(100, 300)
    for _ in range(2):
        np.testing.assert_array_equal(kernel(large), -large)
        np.testing.assert_array_equal(kernel(small), 2 * small)
    assert len(compiled) == 2


def test_permuted_arrays_keep_their_order() -> None:
    kernel = operators.operator_kernel(prims.exp)
    x = np.ascontiguousarray(array(200, 300)).T
    got = kernel(x)
    np.testing.assert_allclose(got, np.exp(x), rtol=1e-6)
    assert got.strides == x.strides


def test_small_arrays_and_complex_numbers_are_left_alone() -> None:
    assert primitives.compiled(prims.exp, array(4)) is NotImplemented
    assert primitives.compiled(prims.exp, array(300, 100).astype(np.complex64)) is NotImplemented
