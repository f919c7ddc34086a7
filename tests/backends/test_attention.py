"""Attention by bf16 parts against its definition in f64, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.cpu import attention, onednn
from flambeau.ops.nn.attention import scaled_dot_product_attention

onednn.available() and onednn.split_products(onednn.split_products_set() or 6)
pytestmark = pytest.mark.skipif(onednn.split_products_set() != 6, reason="needs oneDNN and a processor with bf16 tiles (AMX)")
RNG = np.random.default_rng(0)
SIZES = [(2, 3, 3, 64, 64, 32), (1, 2, 2, 100, 100, 64), (2, 4, 2, 130, 300, 48), (1, 2, 1, 257, 40, 80), (1, 1, 1, 33, 500, 256)]


def heads(batch: int, count: int, rows: int, e: int, scale: float = 1.0) -> np.ndarray:
    """(batch, heads, rows, e), in memory (batch, rows, heads, e)."""
    return (RNG.standard_normal((batch, rows, count, e)) * scale).astype(np.float32).transpose(0, 2, 1, 3)


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, causal: bool, scale: float) -> list[np.ndarray]:
    """out and the gradients of q, k and v, by the formulas in f64."""
    group = q.shape[1] // k.shape[1]
    q, k, v, g = (x.astype(np.float64) for x in (q, k.repeat(group, 1), v.repeat(group, 1), g))
    scores = scale * q @ k.swapaxes(2, 3)
    if causal:
        scores = np.where(np.tri(q.shape[2], k.shape[2], dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    gp = g @ v.swapaxes(2, 3)
    gs = scale * p * (gp - (p * gp).sum(-1, keepdims=True))

    def shared(x: np.ndarray) -> np.ndarray:
        return x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2)

    return [p @ v, gs @ k, shared(gs.swapaxes(2, 3) @ q), shared(p.swapaxes(2, 3) @ g)]


def computed(q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, causal: bool, scale: float) -> list[np.ndarray]:
    out, lse = attention.forward(q, k, v, causal, scale)
    return [x.transpose(0, 2, 1, 3) for x in (out, *attention.backward(g.transpose(0, 2, 1, 3), q, k, v, out, lse, causal, scale))]


def close(results: list[np.ndarray], expected: list[np.ndarray], tolerance: float = 3e-6) -> None:
    for result, exact in zip(results, expected, strict=True):
        assert np.max(np.abs(result - exact)) < tolerance * np.max(np.abs(exact))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_forward_and_backward(size: tuple[int, ...], causal: bool) -> None:
    batch, count, key_count, rows, columns, e = size
    q, g = heads(batch, count, rows, e), heads(batch, count, rows, e)
    k, v = heads(batch, key_count, columns, e), heads(batch, key_count, columns, e)
    close(computed(q, k, v, g, causal, 0.2), reference(q, k, v, g, causal, 0.2))


def test_large_scores_and_a_negative_scale() -> None:
    q, k, v, g = (heads(1, 2, 70, 64, s) for s in (4, 4, 1, 1))
    close(computed(q, k, v, g, True, -0.5), reference(q, k, v, g, True, -0.5), 3e-5)  # f32 scores of up to 200


def test_a_scale_of_zero_weighs_all_alike() -> None:
    q, k, v, g = (heads(1, 1, 40, 32) for _ in range(4))
    close(computed(q, k, v, g, True, 0.0)[:1], reference(q, k, v, g, True, 0.0)[:1])


def test_the_result_does_not_depend_on_the_threads() -> None:
    arrays = [heads(1, 1, 200, 64) for _ in range(4)]
    threads, results = torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(computed(*arrays, True, 0.1))
    torch.set_num_threads(threads)
    for others in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], others, strict=True))


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_values_that_do_not_split_are_computed_in_f32(value: float, place: int) -> None:
    arrays = [heads(1, 2, 64, 32, 0.1) for _ in range(4)]
    arrays[place][0, 1, 5, 7] = value
    with np.errstate(all="ignore"):
        expected = reference(*arrays, True, 0.2)
        results = computed(*arrays, True, 0.2)
    for result, exact in zip(results, expected, strict=True):
        assert np.max(np.abs(result[:, 0] - exact[:, 0])) < 1e-5  # the other head is computed as ever
        # The reference spreads NaN to rows that may not look at it, and f32 overflows where f64 does not.
        fine = np.isfinite(exact) & (np.abs(exact) < 1e38) & (np.isfinite(result) | np.isnan(value))
        np.testing.assert_allclose(result[fine], exact[fine], rtol=2e-3, atol=1e-5)
    if np.isnan(value):
        assert np.isnan(results[0 if place < 3 else 1]).any()


def test_the_operator_takes_the_kernel_and_can_do_without() -> None:
    arrays = [heads(2, 2, 96, 64) for _ in range(4)]
    both = []
    for products in (6, 0):
        onednn.split_products(products)
        q, k, v = (torch.from_numpy(x.copy()).requires_grad_() for x in arrays[:3])
        out = scaled_dot_product_attention(q, k, v, is_causal=True)
        assert out.grad_fn.name().startswith("Permute") == (products == 6)  # else it ends in a reshape
        out.backward(torch.from_numpy(arrays[3]))
        both.append([out.detach().numpy(), *(x.grad.numpy() for x in (q, k, v))])
    onednn.split_products(6)
    close(both[0], both[1])


def test_compiled_equals_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        q, k, v = x.view(2, 64, 3, 4, 32).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 64, 128)

    x = torch.from_numpy(RNG.standard_normal((2, 64, 384)).astype(np.float32))
    grads = []
    for fn in (f, torch.compile(f)):
        leaf = x.clone().requires_grad_()
        fn(leaf).square().sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-5)
