"""Connectionist temporal classification over NumPy arrays: the forward-backward algorithm (Graves et al. 2006).

A path holds a row's labels with blanks between, around and (as padding) behind them. The recursion runs over time, for all
rows and all places of their paths at once, in the logarithm.
"""

from __future__ import annotations

import math

import numpy as np

LOW = -1e30     # the logarithm of no probability: finite, so that differences of two are no NaN


def loss(log_probs: np.ndarray, path: np.ndarray, steps: np.ndarray, labels: np.ndarray, blank: int) -> np.ndarray:
    """-log of the probability of all alignments of each row: log_probs (time, n, classes), path (n, places), lengths (n,)."""
    if not _taken(log_probs):
        return NotImplemented
    emit = _emitted(log_probs, path)
    start = np.arange(path.shape[1]) < 2
    alpha = _sums(emit, _skips(path, blank), np.broadcast_to(start, path.shape), np.zeros_like(steps))
    return _read(alpha, steps, labels)


def gradient(g: np.ndarray, log_probs: np.ndarray, path: np.ndarray, steps: np.ndarray, labels: np.ndarray, blank: int) -> np.ndarray:
    """The gradient of `loss` for log_probs: -g times the posterior probability of each class at each time."""
    if not _taken(log_probs):
        return NotImplemented
    time, rows, classes = log_probs.shape
    places = path.shape[1]
    emit, skips = _emitted(log_probs, path), _skips(path, blank)
    start, ends = np.broadcast_to(np.arange(places) < 2, path.shape), _ends(places, labels)
    # The sums from the end are the same recursion with time and places reversed: both run as one.
    back = np.full_like(skips, LOW)
    back[:, 2:] = skips[:, :1:-1]
    both = _sums(np.concatenate((emit, emit[::-1, :, ::-1]), 1), np.concatenate((skips, back)),
                 np.concatenate((start, ends[:, ::-1])), np.concatenate((np.zeros_like(steps), time - steps)))
    alpha, beta = both[:, :rows], both[::-1, rows:, ::-1]
    total = _read(alpha, steps, labels)
    possible = np.isfinite(total) & (steps > 0)
    posterior = np.exp(alpha + beta - emit + np.where(possible, total, 0)[:, None])
    weight = np.where(possible, -g, 0)
    seen = (np.arange(time)[:, None] < steps) & possible
    posterior = np.where(seen[:, :, None], posterior * weight[:, None], 0)
    at = (np.arange(time)[:, None, None] * rows + np.arange(rows)[:, None]) * classes + path
    out = np.bincount(at.ravel(), posterior.ravel(), time * rows * classes)
    return out.astype(log_probs.dtype).reshape(log_probs.shape)


def _taken(log_probs: np.ndarray) -> bool:
    return log_probs.dtype in (np.float32, np.float64) and log_probs.size > 0


def _emitted(log_probs: np.ndarray, path: np.ndarray) -> np.ndarray:
    return np.maximum(log_probs[:, np.arange(path.shape[0])[:, None], path], LOW)


def _skips(path: np.ndarray, blank: int) -> np.ndarray:
    """0 where a place may be entered from two before it (another label, past the blank), LOW elsewhere."""
    out = np.full(path.shape, LOW)
    out[:, 2:][(path[:, 2:] != blank) & (path[:, 2:] != path[:, :-2])] = 0
    return out


def _ends(places: int, labels: np.ndarray) -> np.ndarray:
    """The places where a row may end: the last label and the blank behind it."""
    gap = 2 * labels[:, None] - np.arange(places)
    return (gap == 0) | (gap == 1)


def _sums(emit: np.ndarray, skips: np.ndarray, start: np.ndarray, start_at: np.ndarray) -> np.ndarray:
    """log of the probability of all ways to each place at each time, which begin at the places `start` at the time `start_at`."""
    out, skips = np.empty_like(emit), skips.astype(emit.dtype)
    before = np.full((emit.shape[1], emit.shape[2] + 2), LOW, emit.dtype)
    begin = np.where(start, 0, LOW).astype(emit.dtype)
    starting = set(start_at.tolist())
    for t, here in enumerate(out):
        np.logaddexp(before[:, 2:], before[:, 1:-1], out=here)
        np.logaddexp(here, before[:, :-2] + skips, out=here)
        if t in starting:
            np.copyto(here, begin, where=(start_at == t)[:, None])
        here += emit[t]
        np.maximum(here, LOW, out=here)
        before[:, 2:] = here
    return out


def _read(alpha: np.ndarray, steps: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The losses, from the sums at each row's last time and places; with no time, only no labels are possible."""
    last = alpha[np.maximum(steps - 1, 0), np.arange(len(steps))]
    ends = np.where(_ends(alpha.shape[2], labels), last, LOW)
    total = np.logaddexp.reduce(ends, axis=1)
    total = np.where(steps > 0, total, np.where(labels == 0, 0, LOW))
    return np.where(total < LOW / 2, math.inf, -total).astype(alpha.dtype)
