"""PowerSGD (Vogels, Karimireddy and Jaggi 2019): of each gradient that is a matrix, two thin factors are averaged.

What a factorisation leaves out is added to the next gradient. Both reductions of a bucket are waited for at once: buckets are reduced
in one order in all processes, and a second reduction that began whenever the first is done would not be.
"""

from __future__ import annotations

import math
from typing import Any

from ....autograd.grad_mode import no_grad
from ....core.tensor import Tensor
from ....futures import Future
from ....linalg import qr
from ....ops.creation import zeros_like
from ....ops.joining import cat
from ....ops.random import randn
from ....random import Generator
from ...groups import default_group
from ...process_group import ProcessGroup
from ...reducer import GradBucket
from .default_hooks import allreduce_hook, done


class PowerSGDState:
    """What PowerSGD knows between two steps.

    Matrices are approximated with rank `matrix_approximation_rank` from step `start_powerSGD_iter` on, if that is smaller by a factor of
    `min_compression_rate`. `use_error_feedback`: what was left out is added the next time; `warm_start`: the last factors begin the
    next ones.
    """

    def __init__(self, process_group: ProcessGroup | None, matrix_approximation_rank: int = 1, start_powerSGD_iter: int = 1000,
                 min_compression_rate: float = 2, use_error_feedback: bool = True, warm_start: bool = True,
                 orthogonalization_epsilon: float = 0, random_seed: int = 0, compression_stats_logging_frequency: int = 10_000,
                 batch_tensors_with_same_shape: bool = False) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError("Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD can "
                             f"only be applied after the first two iterations in DDP; it is {start_powerSGD_iter}")
        del orthogonalization_epsilon, compression_stats_logging_frequency, batch_tensors_with_same_shape   # factors come from a QR
        self.process_group, self.matrix_approximation_rank = process_group, matrix_approximation_rank
        self.start_powerSGD_iter, self.min_compression_rate = start_powerSGD_iter, min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.generator, self.iter = Generator().manual_seed(random_seed), 0
        self.errors: dict[int, Tensor] = {}
        self.factors: dict[tuple[int, int], Tensor] = {}

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step when its last bucket comes."""
        self.iter += bucket.is_last()

    def _factor(self, key: tuple[int, int], rows: int, rank: int, like: Tensor) -> Tensor:
        """What the columns of a matrix are combined with first: the same in all processes."""
        if self.warm_start and key in self.factors and self.factors[key].shape[1] == rank:
            return self.factors[key]
        return orthogonal(randn(rows, rank, generator=self.generator).to(like.dtype))


def orthogonal(matrix: Tensor) -> Tensor:
    """Columns that span the same space, orthogonal and of length 1."""
    return qr(matrix.float())[0].to(matrix.dtype)


def _averaged(tensors: list[Tensor], group: ProcessGroup) -> list[Tensor]:
    """The means of everyone's tensors, in one reduction."""
    if not tensors:
        return []
    flat = cat([t.reshape(-1) for t in tensors])
    group.allreduce(flat).wait()
    flat.div_(group.size())
    return [part.reshape(t.shape) for part, t in zip(flat.split([t.numel() for t in tensors]), tensors)]


def _compressed(state: PowerSGDState, bucket: GradBucket, matrices: list[Tensor], others: list[Tensor]) -> None:
    """Leave the mean of everyone's `others`, and about that of `matrices`, in them."""
    group = default_group(state.process_group)
    ranks = [min(m.shape[0], m.shape[1], state.matrix_approximation_rank) for m in matrices]
    right = [state._factor((bucket.index(), i), m.shape[1], r, m) for i, (m, r) in enumerate(zip(matrices, ranks))]
    means = _averaged(others + [m @ q for m, q in zip(matrices, right)], group)
    for other, mean in zip(others, means):
        other.copy_(mean)
    left = [orthogonal(p) for p in means[len(others):]]
    right = _averaged([m.t() @ p for m, p in zip(matrices, left)], group)
    for i, (m, p, q) in enumerate(zip(matrices, left, right)):
        m.copy_(p @ q.t())
        if state.warm_start:
            state.factors[bucket.index(), i] = orthogonal(q)


def _is_compressed(state: PowerSGDState, n: int, m: int) -> bool:
    return (n + m) * min(n, m, state.matrix_approximation_rank) * state.min_compression_rate < n * m


def _step(state: PowerSGDState, bucket: GradBucket, views: list[Tensor], others: list[Tensor]) -> Future[Tensor]:
    buffer = bucket.buffer()
    with no_grad():
        if state.use_error_feedback:
            error = state.errors.setdefault(bucket.index(), zeros_like(buffer))
            buffer.add_(error)
            error.copy_(buffer)
        _compressed(state, bucket, views, others)
        if state.use_error_feedback:
            _leave_error(error, buffer, bucket, others)
    state.maybe_increase_iter(bucket)
    return done(buffer)


def _leave_error(error: Tensor, buffer: Tensor, bucket: GradBucket, others: list[Tensor]) -> None:
    """What was left out of the matrices; of what was averaged as it is, nothing."""
    error.sub_(buffer)
    exact, at = {id(o) for o in others}, 0
    for view in bucket.gradients():
        if id(view) in exact:
            error[at : at + view.numel()].zero_()
        at += view.numel()


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """Each gradient of two dimensions or more as a matrix, where that is worth it; the rest as it is."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    chosen = [g.ndim > 1 and _is_compressed(state, g.shape[0], g[0].numel()) for g in bucket.gradients()]
    matrices = [g.view(g.shape[0], -1) for g, yes in zip(bucket.gradients(), chosen) if yes]
    return _step(state, bucket, matrices, [g for g, yes in zip(bucket.gradients(), chosen) if not yes])


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """The whole bucket as one square matrix: faster, and less exact."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    buffer: Any = bucket.buffer()
    side = math.ceil(math.sqrt(buffer.numel()))
    square = cat([buffer, buffer.new_zeros(side * side - buffer.numel())])
    with no_grad():
        if state.use_error_feedback:
            square.add_(state.errors.setdefault(bucket.index(), zeros_like(square)))
        whole = square.clone()
        _compressed(state, bucket, [square.view(side, side)], [])
        if state.use_error_feedback:
            state.errors[bucket.index()] = whole - square
        buffer.copy_(square[: buffer.numel()])
    state.maybe_increase_iter(bucket)
    return done(buffer)


__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]
