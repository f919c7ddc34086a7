"""Optimizer steps over many tensors in one launch per dtype: tables of addresses for the kernels of `step_kernels.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np

from ... import _C
from ...core.device import at
from ...core.dtypes import bfloat16, float16, float32, float64
from . import step_kernels
from .arrays import copied
from .cubins import Kernel
from .recording import under_way

BLOCK = 2048
_LAYOUTS = 1024     # lists of sizes that are remembered: a model has a few for each of its buckets of gradients
_FLOATS = (float32, float64, bfloat16, float16)
_adam, _sgd, _squares, _scale, _copy = (Kernel(getattr(step_kernels, n)) for n in ("adam", "sgd", "squares", "scale", "copy"))
_blocks: dict[tuple, Any] = {}      # (device, sizes) -> which program does what; sizes hardly ever change


def _blocks_of(sizes: np.ndarray) -> Any:
    key = (cupy.cuda.runtime.getDevice(), sizes.tobytes())
    found = _blocks.get(key)
    if found is None:
        if len(_blocks) >= _LAYOUTS:
            _blocks.clear()
        counts = -(-sizes // BLOCK)
        pairs = np.stack([np.repeat(np.arange(len(sizes)), counts), np.concatenate([np.arange(c) for c in counts])], 1)
        found = copied(pairs.astype(np.int32))
        if not under_way:   # what a recording copies is there when it is replayed
            _blocks[key] = found
    return found


class Batch:
    """Tensors of one dtype that one launch works on: `words` has their sizes and addresses (see `_C.gpu_rows`), `like` is one of
    their arrays, `numbers` has columns of f64."""

    def __init__(self, words: np.ndarray, like: Any, numbers: Sequence[Sequence[float]] = ()):
        columns = [np.asarray(column, np.float64).view(np.int64)[:, None] for column in numbers]
        table = np.concatenate([words, *columns], 1)
        self.table, self.blocks, self.like, self.width = copied(table), _blocks_of(words[:, 0].copy()), like, table.shape[1]

    def run(self, kernel: Kernel, args: Sequence[Any], **constants: Any) -> None:
        """Launch over all blocks."""
        kernel((len(self.blocks),), (self.table, self.blocks, self.like, *args),
               {"WIDTH": self.width, "BLOCK": BLOCK, **constants}, num_warps=4)


def _batches(parts: Sequence[Sequence[Any]], numbers: Sequence[Sequence[float]] = ()) -> list[Batch] | None:
    """One for each dtype; None where some tensor and its companions are not laid out alike. `numbers`: a column each."""
    groups = _C.gpu_rows(tuple(parts))
    if groups is None or not all(dtype in _FLOATS for dtype, _, _ in groups):
        return None
    return [Batch(words, parts[0][positions[0]]._data, [[column[k] for k in positions] for column in numbers])
            for _, positions, words in groups]


def adam_step(params: Sequence, grads: Sequence, means: Sequence, squares: Sequence, max_squares: Sequence | None,
              steps: Sequence[float], lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, decoupled: bool,
              maximize: bool) -> bool:
    """`ops.nn.steps.adam_step_` on the GPU; False where the formula has to do it."""
    parts = [params, grads, means, squares, max_squares or squares]
    numbers = [[1 - lr * weight_decay] * len(steps), [lr / (1 - beta1**t) for t in steps], [math.sqrt(1 - beta2**t) for t in steps]]
    decay = 0 if not weight_decay else 2 if decoupled else 1
    batches = _batches(parts, numbers)
    for batch in batches or ():
        batch.run(_adam, [np.float64(x) for x in (beta1, beta2, eps, weight_decay)], DECAY=decay,
                  AMSGRAD=max_squares is not None, MAXIMIZE=bool(maximize))
    return batches is not None


def sgd_step(params: Sequence, grads: Sequence, buffers: Sequence | None, fresh: Sequence[bool], lr: float, momentum: float,
             dampening: float, weight_decay: float, nesterov: bool, maximize: bool) -> bool:
    """`ops.nn.steps.sgd_step_` on the GPU; False where the formula has to do it."""
    parts = [params, grads, buffers or grads]
    batches = _batches(parts, [[float(f) for f in fresh]])
    for batch in batches or ():
        batch.run(_sgd, [np.float64(x) for x in (lr, momentum, dampening, weight_decay)], DECAY=weight_decay != 0,
                  BUFFERS=buffers is not None, NESTEROV=bool(nesterov), MAXIMIZE=bool(maximize))
    return batches is not None


def total_norm(tensors: Sequence) -> Any:
    """The 2-norm of all elements together as a 0-dim array of the first tensor's dtype; None where the formula has to do it."""
    batches = _batches([tensors])
    if batches is None:
        return None
    sums = []
    for batch in batches:
        partial = cupy.empty(len(batch.blocks), np.float64 if batch.like.dtype == np.float64 else np.float32)
        batch.run(_squares, [partial])
        sums.append(partial.sum())
    total = sums[0] if len(sums) == 1 else sum(s.astype(np.float64) for s in sums) if sums else cupy.zeros((), np.float32)
    return cupy.sqrt(total).astype(tensors[0].dtype.numpy)


def scale_all(tensors: Sequence, factor: Any) -> bool:
    """Multiply the tensors in place by a number or 0-dim tensor; False where the formula has to do it."""
    array = getattr(factor, "_data", factor)
    batches = _batches([tensors])
    if batches is None or (isinstance(array, cupy.ndarray) and array.device != tensors[0]._data.device):
        return False
    for batch in batches:
        kind = np.float64 if batch.like.dtype == np.float64 else np.float32
        batch.run(_scale, [(array if isinstance(array, cupy.ndarray) else copied(np.asarray(array))).astype(kind)])
    return True


def write_all(targets: Sequence, values: Sequence) -> bool:
    """Copy each value into its target, of whole 32-bit words; False where they are not laid out alike."""
    groups = _C.gpu_rows((targets, values))
    if not groups:
        return groups is not None
    words = np.concatenate([table for _, _, table in groups])
    words[:, 0] *= np.repeat([dtype.itemsize for dtype, _, _ in groups], [len(table) for _, _, table in groups])
    if (words % 4).any():       # sizes and addresses
        return False
    words[:, 0] //= 4
    blocks = _blocks_of(words[:, 0].copy())
    _copy((len(blocks),), (copied(words), blocks, blocks), {"WIDTH": 3, "BLOCK": BLOCK}, num_warps=4)
    return True


def _where_they_are(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` on the GPU of its tensors."""
    def run(tensors: Sequence, *rest: Any, **options: Any) -> Any:
        with at(tensors[0].device):
            return step(tensors, *rest, **options)
    return run


STEPS: dict[str, Callable[..., Any]] = {
    step.__name__: _where_they_are(step) for step in (adam_step, sgd_step, total_norm, scale_all, write_all)}
