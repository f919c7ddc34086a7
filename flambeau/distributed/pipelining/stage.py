"""A stage: a part of a model in one process, what it keeps of microbatches, and its links to the stages beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from ...autograd import backward
from ...autograd.halves import input_gradients
from ...core.device import device as Device
from ...core.tensor import Tensor
from ...nn import Module
from ...nn.parallel import DistributedDataParallel
from ...ops.creation import empty, zeros_like
from ..collectives import irecv, isend
from ..fsdp import FSDPModule, FullyShardedDataParallel
from ..groups import default_group, get_process_group_ranks
from ..objects import recv_object_list, send_object_list
from ..process_group import ProcessGroup

FORWARD, BACKWARD = range(2)
Description = tuple[tuple[int, ...], Any, bool]  # shape, dtype, requires_grad


def _tensors(value: Any, stage: int) -> tuple[Tensor, ...]:
    """What a stage returns, as it travels."""
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if wrong := [type(v).__name__ for v in found if not isinstance(v, Tensor)]:
        raise TypeError(f"stage {stage} returns {', '.join(wrong)}: between stages travel a tensor, or tuples of tensors")
    return found


class PipelineStage:
    """Stage `stage_index` of `num_stages`: `submodule` gets what the stage before returned, a tensor or a tuple of tensors.

    A schedule says in which process each stage lies (`processes`; stage i in process i % size until then). Shapes are told with the first
    microbatch of a batch; of `input_args` and `output_args` the number of tensors is compared. With a `dw_builder`, the module's backward
    leaves the gradients of parameters to a function that `dw_builder()` returns.
    """

    def __init__(self, submodule: Module, stage_index: int, num_stages: int, device: Any, input_args: Any = None, output_args: Any = None,
                 output_grads: Any = None, input_grads: Any = None, group: ProcessGroup | None = None,
                 dw_builder: Callable | None = None, get_mesh: Callable | None = None) -> None:
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        given = {"get_mesh": get_mesh, "output_grads": output_grads, "input_grads": input_grads}
        if isinstance(submodule, FullyShardedDataParallel):
            raise NotImplementedError("a PipelineStage of FullyShardedDataParallel is not implemented; use fully_shard")
        if said := [name for name, value in given.items() if value is not None]:
            raise NotImplementedError(f"PipelineStage({said[0]}=) is not implemented; leave it out")
        self.submod, self.stage_index, self.num_stages, self.device = submodule, stage_index, num_stages, Device(device)
        self.group = default_group(group)
        self.group_rank, self.group_size = self.group.rank(), self.group.size()
        if self.group_size > num_stages:
            raise ValueError(f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}")
        self.processes, self.dw_builder = [s % self.group_size for s in range(num_stages)], dw_builder
        self.is_first, self.is_last = stage_index == 0, stage_index == num_stages - 1
        self._said = [None if a is None else len(a) if isinstance(a, (tuple, list)) else 1 for a in (input_args, output_args)]
        self.clear_runtime_states(0)

    def __repr__(self) -> str:
        return f"PipelineStage({self.stage_index} of {self.num_stages}, {type(self.submod).__name__})"

    def clear_runtime_states(self, count: int = 0) -> None:
        """Forget all microbatches; so many come."""
        self.left = count      # whose gradients of parameters are still to come
        self.inputs: dict[int, tuple[Tensor, ...]] = {}
        self.outputs: dict[int, tuple[Tensor, ...]] = {}
        self.results: dict[int, Any] = {}
        self.later: dict[int, tuple[Callable[[], Any], Sequence[Tensor]]] = {}  # gradients of parameters, and the roots of their graph
        self.inputs_like: list[Description] | None = None  # of one microbatch, once the stage before has said so
        self.outputs_like: list[Description] | None = None

    # -- computing -------------------------------------------------------------------------------------------------
    def forward_one_chunk(self, number: int, args: tuple, kwargs: dict[str, Any], keep: bool) -> tuple[Tensor, ...]:
        """The output of a microbatch. `keep` it, and what came in, for its gradients."""
        if not self.is_first and self._said[0] not in (None, len(args)):
            raise RuntimeError(f"stage {self.stage_index} gets {len(args)} tensors, and its input_args have {self._said[0]}")
        with self.submod.no_sync() if isinstance(self.submod, DistributedDataParallel) else contextlib.nullcontext():
            value = self.submod(*args, **kwargs)
        if self.is_last:
            self.results[number] = value
        outputs = () if self.is_last else _tensors(value, self.stage_index)
        if not self.is_last and self._said[1] not in (None, len(outputs)):
            raise RuntimeError(f"stage {self.stage_index} returns {len(outputs)} tensors, and its output_args have {self._said[1]}")
        if keep:
            self.inputs[number], self.outputs[number] = args, outputs
        return outputs

    def backward_one_chunk(self, number: int, loss: Tensor | None, grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Gradients of what came in, from those of the outputs or of the loss. Those of parameters go where they always do; modules that
        reduce them between processes do so with the last one of a batch."""
        roots, seeds = self._roots(number, loss, grads)
        self._one_less(self.outputs.pop(number) if loss is None else (loss,))
        if roots:
            backward(roots, seeds)
        if self.dw_builder is not None:
            self.dw_builder()()
        inputs = () if self.is_first else [t for t in self.inputs.pop(number) if t.requires_grad]
        return tuple(zeros_like(t) if t.grad is None else t.grad for t in inputs)

    def backward_input_one_chunk(self, number: int, loss: Tensor | None, grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Gradients of what came in alone. Those of parameters come with `backward_weight_one_chunk`; but for fully_shard, whose parameters
        are here once, and for modules with a `dw_builder` the whole graph is done now."""
        roots, seeds = self._roots(number, loss, grads)
        if self.dw_builder is not None or isinstance(self.submod, FSDPModule):
            building, self.dw_builder = self.dw_builder, None
            try:
                found = self.backward_one_chunk(number, loss, grads)
            finally:
                self.dw_builder = building
            self.later[number] = (building() if building else lambda: None), ()
            return found
        inputs = [] if self.is_first else [t for t in self.inputs.pop(number) if t.requires_grad]
        came, others = input_gradients(roots, seeds, inputs)
        self.later[number] = others, self.outputs.pop(number) if loss is None else (loss,)
        return tuple(zeros_like(t) if g is None else g for t, g in zip(inputs, came))

    def backward_weight_one_chunk(self, number: int) -> None:
        """The gradients of parameters that the first half left."""
        others, roots = self.later.pop(number)
        if roots:
            self._one_less(roots)
        others()

    def _roots(self, number: int, loss: Tensor | None, grads: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
        """What backward begins with."""
        if loss is not None:
            return [loss], [None]
        pairs = list(zip((o for o in self.outputs[number] if o.requires_grad), grads))
        return [o for o, _ in pairs], [g for _, g in pairs]

    def _one_less(self, roots: Sequence[Tensor]) -> None:
        """Gradients of parameters are about to come, from these roots."""
        self.left -= 1
        if isinstance(self.submod, FSDPModule):
            self.submod.set_requires_gradient_sync(not self.left)
        elif isinstance(self.submod, DistributedDataParallel) and not self.left:
            self.submod.reducer.prepare(roots)
            self.submod.require_forward_param_sync = True

    # -- travelling ------------------------------------------------------------------------------------------------
    def _peer(self, stage: int) -> int:
        return get_process_group_ranks(self.group)[self.processes[stage]]

    def tag(self, way: int, stage: int, number: int) -> int:
        """Of what comes to `stage` on one of both ways, in microbatch `number`; the first ones are other messages'."""
        return 16 + (number * self.num_stages + stage) * 2 + way

    def send(self, way: int, number: int, tensors: Sequence[Tensor]) -> list:
        """Begin to send outputs onward, or gradients back; the works, with what must stay until they end."""
        to = self.stage_index + (1 if way == FORWARD else -1)
        if way == FORWARD and self.outputs_like is None:
            self.outputs_like = describe(tensors)
            send_object_list([self.outputs_like], self._peer(to), self.group)
        elif way == FORWARD and self.outputs_like != (now := describe(tensors)):
            raise RuntimeError(f"stage {self.stage_index} returns {now} for microbatch {number} and returned {self.outputs_like} before "
                               "(shape, dtype, requires_grad): microbatches of one batch are alike")
        data = [t.detach().contiguous() for t in tensors]
        return [(isend(t, self._peer(to), self.group, self.tag(way, to, number)), t) for t in data]

    def receive(self, way: int, number: int) -> list:
        """Begin to receive what a microbatch needs here: [(tensor, work, requires_grad), ...]."""
        source = self.stage_index + (-1 if way == FORWARD else 1)
        like = self._awaited(way, number)
        made = [(empty(shape, dtype=dtype, device=self.device), wants) for shape, dtype, wants in like]
        return [(t, irecv(t, self._peer(source), self.group, self.tag(way, self.stage_index, number)), wants) for t, wants in made]

    def knows(self, way: int, number: int) -> bool:
        """Whether it can tell what `receive` will receive, without waiting for another process."""
        return self.inputs_like is not None if way == FORWARD else number in self.outputs

    def _awaited(self, way: int, number: int) -> list[Description]:
        if way == BACKWARD:
            return [(tuple(o.shape), o.dtype, False) for o in self.outputs[number] if o.requires_grad]
        if self.inputs_like is None:
            box: list[Any] = [None]
            recv_object_list(box, self._peer(self.stage_index - 1), self.group)
            self.inputs_like = [(shape, dtype, wants) for shape, dtype, wants in box[0]]
        return self.inputs_like


def describe(tensors: Sequence[Tensor]) -> list[Description]:
    """What another process must know to receive them."""
    return [(tuple(t.shape), t.dtype, t.requires_grad) for t in tensors]
