"""torchaudio's operators beside their definitions: all paths are gone through, filters written out sample by sample."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau as fl

fl.ops.load_library("site-packages/torchaudio/lib/libtorchaudio.abi3.so")
fl.ops.load_library("site-packages/torchaudio/lib/_torchaudio.abi3.so")
audio = fl.ops.torchaudio


def scores(*shape: int, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal(shape)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_what_the_binary_says_of_itself() -> None:
    assert fl.ops._torchaudio.is_align_available() is True
    assert fl.ops._torchaudio.cuda_version() is None


def test_recursive_filter() -> None:
    rng = np.random.default_rng(1)
    wave, taps = rng.standard_normal((2, 3, 20)), np.concatenate([rng.standard_normal((3, 2)) * 0.4, np.ones((3, 1))], 1)
    expected = np.zeros((2, 3, 22))
    for b, c, t in np.ndindex(wave.shape):
        expected[b, c, t + 2] = wave[b, c, t] - taps[c, 1] * expected[b, c, t + 1] - taps[c, 0] * expected[b, c, t]
    made = fl.zeros(2, 3, 22, dtype=fl.float64)
    before = made._version
    audio._lfilter_core_loop(fl.tensor(wave), fl.tensor(taps), made)
    np.testing.assert_allclose(made.numpy(), expected, atol=1e-12)
    assert made._version > before


def test_overdrive() -> None:
    rng = np.random.default_rng(2)
    wave, temp = rng.standard_normal((2, 2, 15))
    last_in, last_out, expected = np.zeros(2), np.zeros(2), np.zeros((2, 15))
    for i in range(15):
        last_out = temp[:, i] - last_in + 0.995 * last_out
        last_in = temp[:, i]
        expected[:, i] = wave[:, i] * 0.5 + last_out * 0.75
    states = [fl.zeros(2, dtype=fl.float64), fl.zeros(2, dtype=fl.float64), fl.zeros(2, 15, dtype=fl.float64)]
    audio._overdrive_core_loop(fl.tensor(wave), fl.tensor(temp), *states)
    for got, wanted in zip(states, (last_in, last_out, expected)):
        np.testing.assert_allclose(got.numpy(), wanted, atol=1e-12)


def spells(path: tuple[int, ...], target: list[int]) -> bool:
    return [label for label, _ in itertools.groupby(path) if label] == target


@pytest.mark.parametrize("target", [[1], [1, 2], [2, 2], [1, 2, 1]])
def test_forced_alignment_is_the_best_of_all_paths(target: list[int]) -> None:
    p = scores(1, 6, 3, seed=len(target))
    paths = [path for path in itertools.product(range(3), repeat=6) if spells(path, target)]
    best = max(paths, key=lambda path: sum(p[0, t, label] for t, label in enumerate(path)))
    got, same = audio.forced_align(fl.tensor(p), fl.tensor([target]), fl.tensor([6]), fl.tensor([len(target)]), 0)
    assert tuple(got[0].tolist()) == best and got.dtype is fl.int64
    np.testing.assert_array_equal(same.numpy(), p)


def test_alignments_that_cannot_be() -> None:
    with pytest.raises(RuntimeError, match="too long"):
        audio.forced_align(fl.zeros(1, 2, 3), fl.tensor([[1, 1]]), fl.tensor([2]), fl.tensor([2]), 0)
    with pytest.raises(ValueError, match="blank"):
        audio.forced_align(fl.zeros(1, 4, 3), fl.tensor([[1, 0]]), fl.tensor([4]), fl.tensor([2]), 0)
    with pytest.raises(RuntimeError, match="one sequence"):
        audio.forced_align(fl.zeros(2, 4, 3), fl.tensor([[1], [1]]), fl.tensor([4, 4]), fl.tensor([1, 1]), 0)


def transduced(p: np.ndarray, target: list[int], blank: int) -> float:
    """Minus the log of the sum over all orders of frames and labels; a path ends with a frame."""
    frames, total = len(p), 0.0
    for places in itertools.combinations(range(frames - 1 + len(target)), len(target)):
        t = u = 0
        score = 0.0
        for k in range(frames - 1 + len(target)):
            if k in places:
                score, u = score + p[t, u, target[u]], u + 1
            else:
                score, t = score + p[t, u, blank], t + 1
        total += np.exp(score + p[t, u, blank])
    return -np.log(total)


@pytest.mark.parametrize("fused", [False, True])
def test_transducer_loss(fused: bool) -> None:
    targets, frames, counts = [[1, 2, 1], [2, 0, 0]], [4, 3], [3, 1]
    x = np.random.default_rng(3).standard_normal((2, 4, 4, 4)) if fused else scores(2, 4, 4, 4)
    logits = fl.tensor(x, requires_grad=True)
    arguments = (fl.tensor(targets, dtype=fl.int32), fl.tensor(frames, dtype=fl.int32), fl.tensor(counts, dtype=fl.int32))

    def losses(x: np.ndarray) -> list[float]:
        p = x - np.log(np.exp(x).sum(-1, keepdims=True)) if fused else x
        return [transduced(p[k, :frames[k], :counts[k] + 1], targets[k][:counts[k]], 3) for k in range(2)]

    costs, _ = audio.rnnt_loss_forward(logits, *arguments, 3, -1.0, fused)
    np.testing.assert_allclose(costs.detach().numpy(), losses(x), atol=1e-9)
    (costs * fl.tensor([1.0, 2.0])).sum().backward()
    way = np.random.default_rng(4).standard_normal(x.shape)
    ahead, behind = (np.dot([1, 2], losses(x + step * way)) for step in (1e-6, -1e-6))
    assert (logits.grad.numpy() * way).sum() == pytest.approx((ahead - behind) / 2e-6, rel=1e-5)
    _, gradient = audio.rnnt_loss_forward(logits, *arguments, -1, 0.1, fused)
    assert float(gradient.abs().max()) <= 0.1
