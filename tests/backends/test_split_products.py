"""f32 products from bf16 parts: as accurate as f32, and plain f32 where values do not split."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import flambeau as torch
from flambeau import _C
from flambeau.backends.cpu import onednn
from flambeau.backends.cpu.onednn import PostOp, operand

if onednn.available():
    onednn.split_products(onednn.split_products(6) or 6)
USABLE = onednn.available() and onednn.split_products(6) == 6
pytestmark = pytest.mark.skipif(not USABLE, reason="needs oneDNN and a processor with bf16 tiles (AMX)")
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _six_products() -> Iterator[None]:
    onednn.split_products(6)
    yield
    onednn.split_products(6)


def matrix(rows: int, columns: int, turned: bool = False) -> np.ndarray:
    x = RNG.standard_normal((columns, rows) if turned else (rows, columns)).astype(np.float32)
    return x.T if turned else x


def error(result: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """The largest error, relative to the sum of magnitudes that rounding errors are proportional to."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.max(np.abs(result - exact) / (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))))


def product(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None, bias: np.ndarray | None = None, post=(), tensors=()) -> np.ndarray:
    out = np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), np.float32) if out is None else out
    op = onednn.matmul(operand(a), operand(b), operand(out), None if bias is None else operand(bias), post)
    assert onednn.implementation(op) == "amx:split_f32"
    onednn.run(op, a, b, out, *([] if bias is None else [bias]), *tensors)
    return out


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("size", [(128, 128, 128), (129, 257, 113), (200, 1100, 145), (4200, 40, 190), (150, 64, 4100)])
def test_products_are_as_accurate_as_f32(size: tuple[int, int, int], turned: tuple[bool, bool]) -> None:
    m, k, n = size
    a, b = matrix(m, k, turned[0]), matrix(k, n, turned[1])
    assert error(product(a, b), a, b) < 2.5e-7  # rounding once at the end would give 6e-8


def test_as_accurate_as_f32_for_values_of_any_size() -> None:
    a, b = matrix(150, 300) * np.float32(10.0) ** RNG.integers(-12, 12, (150, 300)), matrix(300, 150)
    a = a.astype(np.float32)
    before = onednn.split_products(0)
    plain = np.empty((150, 150), np.float32)
    onednn.run(onednn.matmul(operand(a), operand(b), operand(plain)), a, b, plain)
    onednn.split_products(before)
    assert error(product(a, b), a, b) <= max(error(plain, a, b), 2.5e-7)


def test_integers_come_out_exactly() -> None:
    a = RNG.integers(-1000, 1000, (160, 160)).astype(np.float32)
    b = RNG.integers(-10, 10, (160, 160)).astype(np.float32)
    assert np.array_equal(product(a, b), a @ b)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.0e38])
@pytest.mark.parametrize("place", ["a", "b"])
def test_values_that_do_not_split_are_multiplied_in_f32(value: float, place: str) -> None:
    a, b = matrix(160, 160), matrix(160, 160)
    (a if place == "a" else b)[70, 40] = value
    with np.errstate(all="ignore"):
        expected = a @ b
    np.testing.assert_allclose(product(a, b), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-36, 1e-30, 1e30])
def test_matrices_of_minute_and_of_large_values(scale: float) -> None:
    a, b = (matrix(160, 160) * np.float32(scale)).astype(np.float32), matrix(160, 160)
    assert error(product(a, b), a, b) < 2.5e-7


def test_subnormal_numbers_count_as_zero_beside_larger_ones() -> None:
    a, b = matrix(160, 160), matrix(160, 160)
    a[3, :] = 1e-39
    result = product(a, b)
    assert np.all(np.abs(result[3]) < 1e-36)
    assert error(np.delete(result, 3, 0), np.delete(a, 3, 0), b) < 2.5e-7


def test_batches_broadcast_and_share_out_over_threads() -> None:
    a, b = RNG.standard_normal((3, 1, 128, 64)).astype(np.float32), RNG.standard_normal((1, 5, 64, 192)).astype(np.float32)
    np.testing.assert_allclose(product(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_operands_and_result_are_views() -> None:
    room = np.zeros((160, 400), np.float32)
    a, b = matrix(160, 900)[:, 100:260], matrix(500, 400)[3:163, 7:207]
    out = room[:, 50:250]
    product(a, b, out)
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)
    assert not room[:, :50].any() and not room[:, 250:].any()


def test_a_result_that_lies_column_by_column() -> None:
    a, b, bias = matrix(160, 130), matrix(130, 200), matrix(1, 200)[0]
    out = np.zeros((200, 160), np.float32).T
    product(a, b, out, bias, [PostOp("mul", operand=operand(a.mean(1, keepdims=True)))], [a.mean(1, keepdims=True)])
    np.testing.assert_allclose(out, (a @ b + bias) * a.mean(1, keepdims=True), rtol=1e-4, atol=1e-4)


UNARY = {
    "relu": lambda x: np.maximum(x, 0), "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "linear": lambda x: 0.5 * x - 2, "gelu_erf": lambda x: 0.5 * x * (1 + _C.Elementwise("erf").arrays(x * np.sqrt(0.5))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


@pytest.mark.parametrize("kind", sorted(UNARY))
def test_functions_of_the_result(kind: str) -> None:
    a, b, bias = matrix(150, 96), matrix(96, 170) * np.float32(0.2), matrix(1, 170)[0]
    post = PostOp(kind, 0.5, -2.0) if kind == "linear" else PostOp(kind)
    exact = UNARY[kind](a.astype(np.float64) @ b.astype(np.float64) + bias)
    np.testing.assert_allclose(product(a, b, bias=bias, post=[post]), exact, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kind", sorted(BINARY))
@pytest.mark.parametrize("shape", [(150, 170), (1, 170), (150, 1), (1, 1)])
def test_tensors_joined_to_the_result(kind: str, shape: tuple[int, int]) -> None:
    a, b, other = matrix(150, 600), matrix(600, 170), np.abs(matrix(*shape)) + 1
    expected = BINARY[kind](a.astype(np.float64) @ b.astype(np.float64), other)
    result = product(a, b, post=[PostOp(kind, operand=operand(other))], tensors=[other])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_the_result_does_not_depend_on_the_threads() -> None:
    a, b, threads = matrix(500, 700), matrix(700, 300), torch.get_num_threads()
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(product(a, b))
    torch.set_num_threads(threads)
    assert all(np.array_equal(results[0], r) for r in results)


def test_float32_matmul_precision_chooses_the_number_of_products() -> None:
    a, b = torch.from_numpy(matrix(256, 256)), torch.from_numpy(matrix(256, 256))
    errors = []
    for precision in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(precision)
        errors.append(error((a @ b).numpy(), a.numpy(), b.numpy()))
    torch.set_float32_matmul_precision("highest")
    assert errors[0] < 2.5e-7 < errors[1] < 2e-5 < errors[2] < 5e-3


def test_other_numbers_of_products_are_refused() -> None:
    with pytest.raises(ValueError, match="0, 1, 3 or 6"):
        onednn.split_products(2)
