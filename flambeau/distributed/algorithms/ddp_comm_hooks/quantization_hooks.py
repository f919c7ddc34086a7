"""Gradients travel as bytes: each process's numbers between their smallest and largest, in 255 steps, and are averaged where they come."""

from __future__ import annotations

from ....autograd.grad_mode import no_grad
from ....core.dtypes import uint8
from ....core.tensor import Tensor
from ....futures import Future
from ....ops.creation import empty
from ....ops.joining import cat, stack
from ...groups import default_group
from ...process_group import ProcessGroup
from ...reducer import GradBucket
from .default_hooks import done


def _gathered(x: Tensor, group: ProcessGroup) -> Tensor:
    out = empty((group.size(), *x.shape), dtype=x.dtype)
    group._allgather_base(out, x.contiguous()).wait()
    return out


def _mean(rows: Tensor, group: ProcessGroup) -> Tensor:
    """The mean of everyone's rows, each of which has a step and a zero of its own."""
    low, high = rows.amin(1).clamp(max=0.0), rows.amax(1).clamp(min=0.0)
    step = ((high - low) / 255).clamp(min=1e-30)
    zero = (-low / step).round()
    numbers = ((rows / step[:, None]).round() + zero[:, None]).clamp(0, 255).to(uint8)
    scales, every = _gathered(stack([step, zero]), group), _gathered(numbers, group)
    return ((every.float() - scales[:, 1, :, None]) * scales[:, 0, :, None]).mean(0)


def _hook(process_group: ProcessGroup | None, bucket: GradBucket, width: int) -> Future[Tensor]:
    buffer = bucket.buffer()
    with no_grad():
        flat = buffer.float()
        flat = cat([flat, flat.new_zeros(-flat.numel() % width)])
        mean = _mean(flat.view(-1, width), default_group(process_group))
        buffer.copy_(mean.reshape(-1)[: buffer.numel()])
    return done(buffer)


def quantization_pertensor_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """The mean of gradients in bytes, with one step for a whole bucket."""
    return _hook(process_group, bucket, max(1, bucket.buffer().numel()))


def quantization_perchannel_hook(process_group: ProcessGroup | None, bucket: GradBucket, bucket_size: int = 512) -> Future[Tensor]:
    """The mean of gradients in bytes, with a step for each `bucket_size` numbers."""
    return _hook(process_group, bucket, bucket_size)


__all__ = ["quantization_perchannel_hook", "quantization_pertensor_hook"]
