"""Communication hooks that average gradients, as they are or in half precision. MPI adds in float32 whatever a bucket's dtype, so that
compression bounds what is kept, not what is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core.dtypes import DTYPES, dtype
from ....core.tensor import Tensor
from ....futures import Future
from ...groups import default_group
from ...process_group import ProcessGroup
from ...reducer import GradBucket

Hook = Callable[[Any, GradBucket], Future]


def done(value: Any) -> Future:
    """A future that has its value."""
    future: Future = Future()
    future.set_result(value)
    return future


def _averaged(group: ProcessGroup | None, buffer: Tensor) -> Future:
    which = default_group(group)
    buffer.div_(which.size())
    return which.allreduce(buffer).get_future()


def allreduce_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future:
    """The mean over all processes, as without a hook."""
    return _averaged(process_group, bucket.buffer()).then(lambda done: done.value()[0])


def _narrow(group: ProcessGroup | None, bucket: GradBucket, kind: dtype) -> Future:
    def widen(done: Future) -> Tensor:
        bucket.buffer().copy_(done.value()[0])
        return bucket.buffer()

    return _averaged(group, bucket.buffer().to(kind)).then(widen)


def fp16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future:
    """The mean of gradients rounded to float16."""
    return _narrow(process_group, bucket, DTYPES["float16"])


def bf16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future:
    """The mean of gradients rounded to bfloat16."""
    return _narrow(process_group, bucket, DTYPES["bfloat16"])


def in_dtype(hook: Hook, kind: dtype) -> Hook:
    """`hook` on gradients rounded to `kind`."""
    def compressed(state: Any, bucket: GradBucket) -> Future:
        narrow = GradBucket(bucket.index(), bucket.buffer().to(kind), bucket.parameters(), bucket.gradients(), bucket.is_last())

        def widen(done: Future) -> Tensor:
            value = done.value()
            bucket.buffer().copy_(value[0] if isinstance(value, (list, tuple)) else value)
            return bucket.buffer()

        return hook(state, narrow).then(widen)

    return compressed


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """`hook` on gradients rounded to float16."""
    return in_dtype(hook, DTYPES["float16"])


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """`hook` on gradients rounded to bfloat16."""
    return in_dtype(hook, DTYPES["bfloat16"])
