"""Post-local SGD (Lin et al. 2018): from some step on gradients are averaged within small groups, and now and then the parameters."""

from __future__ import annotations

from ....core.tensor import Tensor
from ....futures import Future
from ...groups import new_subgroups
from ...process_group import ProcessGroup
from ...reducer import GradBucket
from .default_hooks import allreduce_hook, done


class PostLocalSGDState:
    """Gradients are averaged in `process_group` until step `start_localSGD_iter`, then in `subgroup` (that of this machine's processes, if
    not given: all make the state then), or not at all without `post_local_gradient_allreduce`."""

    def __init__(self, process_group: ProcessGroup | None, subgroup: ProcessGroup | None, start_localSGD_iter: int,
                 post_local_gradient_allreduce: bool = True) -> None:
        if post_local_gradient_allreduce and subgroup is None:
            subgroup = new_subgroups()[0]
        self.process_group, self.subgroup, self.start_localSGD_iter = process_group, subgroup, start_localSGD_iter
        self.post_local_gradient_allreduce, self.iter = post_local_gradient_allreduce, 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step when its last bucket comes."""
        self.iter += bucket.is_last()


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Tensor]:
    """The mean of the gradients of all, or of the subgroup."""
    late = state.iter >= state.start_localSGD_iter
    state.maybe_increase_iter(bucket)
    if late and not state.post_local_gradient_allreduce:
        return done(bucket.buffer())
    return allreduce_hook(state.subgroup if late else state.process_group, bucket)


__all__ = ["PostLocalSGDState", "post_localSGD_hook"]
