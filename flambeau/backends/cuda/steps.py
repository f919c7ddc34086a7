"""Optimizer steps over many tensors in one launch per dtype: tables of addresses for the kernels of `step_kernels.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np

from ...core.dtypes import bfloat16, float16, float32, float64
from ...core.size import is_dense
from . import step_kernels
from .cubins import Kernel

BLOCK = 2048
_FLOATS = frozenset(d.numpy for d in (float32, float64, bfloat16, float16))
_adam, _sgd, _squares, _scale, _copy = (Kernel(getattr(step_kernels, n)) for n in ("adam", "sgd", "squares", "scale", "copy"))
_blocks: dict[tuple, Any] = {}      # (device, sizes) -> which program does what; sizes hardly ever change

Arrays = Sequence[Any]


def _blocks_of(sizes: tuple[int, ...]) -> Any:
    key = (cupy.cuda.runtime.getDevice(), sizes)
    found = _blocks.get(key)
    if found is None:
        if len(_blocks) >= 16:
            _blocks.clear()
        counts = [-(-n // BLOCK) for n in sizes]
        pairs = np.stack([np.repeat(np.arange(len(sizes)), counts), np.concatenate([np.arange(c) for c in counts])], 1)
        found = _blocks[key] = cupy.asarray(pairs.astype(np.int32))
    return found


class Batch:
    """Tensors of one dtype that one launch works on: `parts` are lists of arrays, row by row laid out alike."""

    def __init__(self, parts: Sequence[Arrays], numbers: Sequence[Sequence[float]] = ()):
        first = parts[0]
        sizes = tuple([a.size for a in first])
        words = np.zeros((len(first), 1 + len(parts) + len(numbers)), np.int64)
        words[:, 0] = sizes
        for k, part in enumerate(parts):
            words[:, 1 + k] = [a.data.ptr for a in part]
        for k, column in enumerate(numbers):
            words[:, 1 + len(parts) + k] = np.asarray(column, np.float64).view(np.int64)
        self.table, self.blocks, self.like, self.width = cupy.asarray(words), _blocks_of(sizes), first[0], words.shape[1]

    def run(self, kernel: Kernel, args: Sequence[Any], **constants: Any) -> None:
        """Launch over all blocks."""
        kernel((len(self.blocks),), (self.table, self.blocks, self.like, *args),
               {"WIDTH": self.width, "BLOCK": BLOCK, **constants}, num_warps=4)


def _groups(parts: Sequence[Sequence[Any]]) -> list[list[int]] | None:
    """Positions by dtype, without empty tensors; None where some tensor and its companions are not laid out alike."""
    found: dict[Any, list[int]] = {}
    device = parts[0][0].device
    for k, tensors in enumerate(zip(*[[t._data for t in part] for part in parts])):
        first = tensors[0]
        if not isinstance(first, cupy.ndarray) or first.dtype not in _FLOATS or parts[0][k].device != device:
            return None
        if not (first.flags.c_contiguous or is_dense(first.shape, tuple([s // first.itemsize for s in first.strides]))):
            return None
        for other in tensors[1:]:
            if not isinstance(other, cupy.ndarray) or other.dtype != first.dtype or other.shape != first.shape or \
                    other.device != first.device:
                return None
            if other.strides != first.strides and not (other.flags.c_contiguous and first.flags.c_contiguous):
                return None
        if first.size:
            found.setdefault(first.dtype, []).append(k)
    return list(found.values())


def _take(parts: Sequence[Sequence[Any]], group: Sequence[int]) -> list[list[Any]]:
    return [[part[k]._data for k in group] for part in parts]


def adam_step(params: Sequence, grads: Sequence, means: Sequence, squares: Sequence, max_squares: Sequence | None,
              steps: Sequence[float], lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, decoupled: bool,
              maximize: bool) -> bool:
    """`ops.nn_steps.adam_step_` on the GPU; False where the formula has to do it."""
    parts = [params, grads, means, squares, max_squares or squares]
    groups = _groups(parts)
    if groups is None:
        return False
    numbers = [[1 - lr * weight_decay] * len(steps), [lr / (1 - beta1**t) for t in steps], [math.sqrt(1 - beta2**t) for t in steps]]
    decay = 0 if not weight_decay else 2 if decoupled else 1
    for group in groups:
        batch = Batch(_take(parts, group), [[column[k] for k in group] for column in numbers])
        batch.run(_adam, [np.float64(x) for x in (beta1, beta2, eps, weight_decay)], DECAY=decay,
                  AMSGRAD=max_squares is not None, MAXIMIZE=bool(maximize))
    return True


def sgd_step(params: Sequence, grads: Sequence, buffers: Sequence | None, fresh: Sequence[bool], lr: float, momentum: float,
             dampening: float, weight_decay: float, nesterov: bool, maximize: bool) -> bool:
    """`ops.nn_steps.sgd_step_` on the GPU; False where the formula has to do it."""
    parts = [params, grads, buffers or grads]
    groups = _groups(parts)
    if groups is None:
        return False
    for group in groups:
        batch = Batch(_take(parts, group), [[float(fresh[k]) for k in group]])
        batch.run(_sgd, [np.float64(x) for x in (lr, momentum, dampening, weight_decay)], BUFFERS=buffers is not None,
                  NESTEROV=bool(nesterov), MAXIMIZE=bool(maximize))
    return True


def total_norm(tensors: Sequence) -> Any:
    """The 2-norm of all elements together as a 0-dim array of the first tensor's dtype; None where the formula has to do it."""
    groups = _groups([tensors])
    if groups is None:
        return None
    sums = []
    for group in groups:
        batch = Batch(_take([tensors], group))
        partial = cupy.empty(len(batch.blocks), np.float64 if batch.like.dtype == np.float64 else np.float32)
        batch.run(_squares, [partial])
        sums.append(partial.sum())
    total = sums[0] if len(sums) == 1 else sum(s.astype(np.float64) for s in sums) if sums else cupy.zeros((), np.float32)
    return cupy.sqrt(total).astype(tensors[0].dtype.numpy)


def scale_all(tensors: Sequence, factor: Any) -> bool:
    """Multiply the tensors in place by a number or 0-dim tensor; False where the formula has to do it."""
    groups = _groups([tensors])
    array = getattr(factor, "_data", factor)
    if groups is None or (isinstance(array, cupy.ndarray) and array.device != tensors[0]._data.device):
        return False
    for group in groups:
        batch = Batch(_take([tensors], group))
        kind = np.float64 if batch.like.dtype == np.float64 else np.float32
        batch.run(_scale, [cupy.asarray(array).astype(kind)])
    return True


def write_all(targets: Sequence, values: Sequence) -> bool:
    """Copy each value into its target, of whole 32-bit words; False where they are not laid out alike."""
    arrays = [(t._data, v._data) for t, v in zip(targets, values)]
    device = targets[0].device
    for (target, value), t in zip(arrays, targets):
        if not isinstance(target, cupy.ndarray) or not isinstance(value, cupy.ndarray) or t.device != device or value.nbytes % 4 or \
                target.dtype != value.dtype or target.shape != value.shape or target.data.device_id != value.data.device_id or \
                not (target.flags.c_contiguous and value.flags.c_contiguous):
            return False
    arrays = [pair for pair in arrays if pair[0].size]
    if not arrays:
        return True
    sizes = tuple([target.nbytes // 4 for target, _ in arrays])
    words = np.array([(n, target.data.ptr, value.data.ptr) for n, (target, value) in zip(sizes, arrays)], np.int64)
    blocks = _blocks_of(sizes)
    _copy((len(blocks),), (cupy.asarray(words), blocks, blocks), {"WIDTH": 3, "BLOCK": BLOCK}, num_warps=4)
    return True


STEPS: dict[str, Callable[..., Any]] = {
    "adam_step": adam_step, "sgd_step": sgd_step, "total_norm": total_norm, "scale_all": scale_all, "write_all": write_all,
}
