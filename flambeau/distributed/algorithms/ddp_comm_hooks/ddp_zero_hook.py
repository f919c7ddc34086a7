"""Hooks by which ZeroRedundancyOptimizer updates a bucket as soon as it is reduced, beside the reductions of the others.

All processes reduce, update and send buckets in one order, so the first step is one already: nothing has to be found out before it.
"""

from __future__ import annotations

from typing import Any

from ...optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer
from ...reducer import GradBucket
from ...work import Work
from .default_hooks import Hook


class _Reduction:
    """A bucket that is being reduced, and updated when that is waited for."""

    def __init__(self, zero: ZeroRedundancyOptimizer, bucket: GradBucket, future: Any, sent: list[Work]) -> None:
        self.zero, self.bucket, self.future, self.sent, self.updated = zero, bucket, future, sent, False

    def update(self) -> None:
        """Once reduced, update this process's part and begin to send it."""
        if self.updated:
            return
        self.updated = True
        self.bucket._keep(self.future.wait())
        self.sent.extend(self.zero._step_bucket(self.bucket))

    def wait(self) -> None:
        """Update; with the last bucket, also until all parameters are those of their owners."""
        self.update()
        if self.bucket.is_last():
            for work in self.sent:
                work.wait()
            self.sent.clear()

    def value(self) -> Any:
        """The reduced gradients."""
        return self.bucket.buffer()


def _overlapping(hook: Hook, ddp: Any, zero: ZeroRedundancyOptimizer, split: bool, while_backward: bool) -> Any:
    zero._follow(ddp.reducer.buckets, split)
    under_way: list[_Reduction] = []
    sent: list[Work] = []

    def reduce_and_update(state: Any, bucket: GradBucket) -> _Reduction:
        if bucket.index() == 0:
            under_way.clear()
        if while_backward and under_way:
            under_way[-1].update()
        under_way.append(_Reduction(zero, bucket, hook(state, bucket), sent))
        return under_way[-1]

    ddp.reducer.takes_early = ddp.reducer.takes_early and not while_backward
    return reduce_and_update


def hook_with_zero_step(hook: Hook, ddp: Any, zero: ZeroRedundancyOptimizer, shard_buckets: bool = False) -> Any:
    """`hook`, with which a bucket's parameters are updated at the end of backward, while later buckets are still being reduced.

    For `ddp.register_comm_hook`, `ddp` a DistributedDataParallel and `zero` made with `overlap_with_ddp=True`. A bucket belongs to one
    process, or with `shard_buckets` to all, a part each.
    """
    return _overlapping(hook, ddp, zero, shard_buckets, while_backward=False)


def hook_with_zero_step_interleaved(hook: Hook, ddp: Any, zero: ZeroRedundancyOptimizer,
                                    shard_buckets: bool = False) -> Any:
    """`hook`, with which a bucket's parameters are updated while backward goes on, when the next bucket is full.

    What is computed after that must not need these parameters any more (a gradient that does raises the error of a saved tensor
    that was changed); `hook_with_zero_step` waits for the end of backward.
    """
    return _overlapping(hook, ddp, zero, shard_buckets, while_backward=True)


__all__ = ["hook_with_zero_step", "hook_with_zero_step_interleaved"]
