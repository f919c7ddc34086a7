"""Schedules: in which order a process does the forward and backward passes of its stages' microbatches.

A schedule is a list of actions for each process (`actions`); how one is done is the same for all (`_Schedule._do`). Nothing waits for a
message to be taken: a list that can be done in some order by all processes together is done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...autograd import set_grad_enabled
from ...core.tensor import Tensor
from .microbatch import chunks, merged, split_args_kwargs_into_chunks
from .stage import BACKWARD, FORWARD, PipelineStage, describe


class Action(NamedTuple):
    """One pass of one microbatch through a stage."""

    way: int
    stage: int
    number: int


def gpipe(stages: Sequence[int], processes: int, count: int) -> list[Action]:
    """All forward passes, then all backward ones; stage after stage where there are several."""
    del processes
    return [Action(FORWARD, s, i) for s in stages for i in range(count)] + [
        Action(BACKWARD, s, i) for s in reversed(stages) for i in range(count)]


def one_f_one_b(stages: Sequence[int], processes: int, count: int) -> list[Action]:
    """As many forward passes as there are stages from here on, then one backward and one forward in turn: no more microbatches than
    that are kept."""
    stage, = stages
    ahead = min(count, processes - stage)
    return _in_turn([Action(FORWARD, stage, i) for i in range(count)], [Action(BACKWARD, stage, i) for i in range(count)], ahead - 1)


def interleaved(stages: Sequence[int], processes: int, count: int) -> list[Action]:
    """1F1B of several stages in each process: rounds of as many microbatches as there are processes, through one stage after the other."""
    rounds = max(1, count // processes)
    if count % rounds:
        raise ValueError(f"Interleaved 1F1B requires the number of microbatches to be a multiple of the number of rounds ({rounds}), but "
                         f"got {count}.")
    each, mine = count // rounds, len(stages)
    place = [(k // each % mine, k // (each * mine) * each + k % each) for k in range(count * mine)]
    forwards = [Action(FORWARD, stages[s], i) for s, i in place]
    backwards = [Action(BACKWARD, stages[mine - 1 - s], i) for s, i in place]
    return _in_turn(forwards, backwards, min((mine - 1) * each + 2 * (processes - 1 - stages[0] % processes), len(forwards)))


def _in_turn(forwards: list[Action], backwards: list[Action], ahead: int) -> list[Action]:
    """`ahead` forward passes, then one forward and one backward in turn, then the other backward ones."""
    order = forwards[:ahead]
    for f, b in zip(forwards[ahead:], backwards):
        order += [f, b]
    return order + backwards[len(forwards) - ahead :]


class _Schedule:
    """What schedules share."""

    order: Callable[[Sequence[int], int, int], list[Action]] = staticmethod(gpipe)

    def __init__(self, stages: Sequence[PipelineStage], n_microbatches: int, loss_fn: Callable | None, args_chunk_spec: Any,
                 kwargs_chunk_spec: Any, output_merge_spec: Any, scale_grads: bool) -> None:
        if n_microbatches < 1:
            raise ValueError(f"n_microbatches must be positive, got {n_microbatches}")
        self._stages = {s.stage_index: s for s in stages}
        first = stages[0]
        expected = list(range(first.group_rank, first.num_stages, first.group_size))
        if sorted(self._stages) != expected:
            raise ValueError(f"process {first.group_rank} of {first.group_size} has stages {expected} of {first.num_stages}; given are "
                             f"{sorted(self._stages)}")
        self._count, self._loss_fn, self._scale = n_microbatches, loss_fn, scale_grads
        self._specs, self._merge = (args_chunk_spec, kwargs_chunk_spec), output_merge_spec
        self._actions = type(self).order(expected, first.group_size, n_microbatches)

    def step(self, *args: Any, target: Any = None, losses: list | None = None, return_outputs: bool = True,
             loss_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        """One batch: the first stage's process gives `args`, the last one's `target`; `kwargs` are those of the stages here.

        Gradients are left with the parameters: those of the mean of the microbatches' losses (of their sum without `scale_grads`).
        The last stage's process gets the output and, in `losses`, the losses of the microbatches.
        """
        return self._run(args, kwargs, target, losses, return_outputs, loss_kwargs, self._loss_fn is not None)

    def eval(self, *args: Any, target: Any = None, losses: list | None = None, return_outputs: bool = True,
             loss_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        """The same without gradients."""
        return self._run(args, kwargs, target, losses, return_outputs, loss_kwargs, False)

    def _run(self, args: tuple, kwargs: dict[str, Any], target: Any, losses: list | None, return_outputs: bool,
             loss_kwargs: dict[str, Any] | None, training: bool) -> Any:
        given, named = split_args_kwargs_into_chunks(args, kwargs, self._count, *self._specs)
        last = self._stages.get(next(iter(self._stages.values())).num_stages - 1)
        run = _Run(self, given, named, training)
        run.targets = chunks(target, self._count) if last is not None and target is not None else [None] * self._count
        run.loss_kwargs = loss_kwargs or {}
        with contextlib.ExitStack() as stack:
            if not training:
                stack.enter_context(set_grad_enabled(False))
            run.all([action for action in self._actions if training or action.way == FORWARD])
        results = [] if last is None else [last.results[i] for i in range(self._count)]
        for stage in self._stages.values():
            stage.clear_runtime_states()
        if last is None:
            return None
        if losses is not None:
            losses[:] = [loss.detach() for loss in run.losses]
        return merged(results, self._merge) if return_outputs else None


class _Run:
    """One batch on its way."""

    def __init__(self, schedule: _Schedule, args: list[tuple], kwargs: list[dict[str, Any]], training: bool) -> None:
        self.schedule, self.args, self.kwargs, self.training = schedule, args, kwargs, training
        self.stages, self.count = schedule._stages, schedule._count
        self.targets: list[Any] = []
        self.loss_kwargs: dict[str, Any] = {}
        self.losses: list[Tensor] = []
        self.here: dict[Action, list[tuple[Tensor, bool]]] = {}  # what a stage of this process left for another
        self.coming: dict[Action, list] = {}
        self.leaving: list = []

    def all(self, actions: Sequence[Action]) -> None:
        """Do them. What the next one needs is asked for before one is done."""
        for action, following in zip(actions, [*actions[1:], None]):
            self._expect(action)
            if following is not None and self.stages[following.stage].knows(following.way, following.number):
                self._expect(following)
            (self._forward if action.way == FORWARD else self._backward)(action, self._take(action))
        for work, _ in self.leaving:
            work.wait()

    def _neighbour(self, action: Action) -> int | None:
        """The stage that an action waits for; None for one that waits for nobody."""
        stage = self.stages[action.stage]
        if action.way == FORWARD:
            return None if stage.is_first else action.stage - 1
        return None if stage.is_last else action.stage + 1

    def _expect(self, action: Action) -> None:
        source = self._neighbour(action)
        if source is not None and source not in self.stages and action not in self.coming:
            self.coming[action] = self.stages[action.stage].receive(action.way, action.number)

    def _take(self, action: Action) -> list[tuple[Tensor, bool]]:
        if action in self.coming:
            came = self.coming.pop(action)
            for _, work, _ in came:
                work.wait()
            return [(tensor, wants) for tensor, _, wants in came]
        return self.here.pop(action, [])

    def _give(self, action: Action, tensors: Sequence[Tensor]) -> None:
        """To the stage whose `action` needs them."""
        if action.stage in self.stages:
            self.here[action] = [(t.detach(), wants) for t, (_, _, wants) in zip(tensors, describe(tensors))]
        else:
            stage = self.stages[action.stage - (1 if action.way == FORWARD else -1)]
            self.leaving = [entry for entry in self.leaving if not entry[0].is_completed()]
            self.leaving += stage.send(action.way, action.number, tensors)

    def _forward(self, action: Action, came: list[tuple[Tensor, bool]]) -> None:
        stage, number = self.stages[action.stage], action.number
        args = self.args[number] if stage.is_first else tuple(t.requires_grad_(wants and self.training) for t, wants in came)
        outputs = stage.forward_one_chunk(number, args, self.kwargs[number], self.training)
        if not stage.is_last:
            self._give(Action(FORWARD, action.stage + 1, number), outputs)
        elif self.schedule._loss_fn is not None and self.targets[number] is not None:
            self.losses.append(self.schedule._loss_fn(stage.results[number], self.targets[number], **self.loss_kwargs))

    def _backward(self, action: Action, came: list[tuple[Tensor, bool]]) -> None:
        stage, number = self.stages[action.stage], action.number
        loss = None
        if stage.is_last:
            if number >= len(self.losses):
                raise RuntimeError("a step with a loss function needs `target` in the process of the last stage")
            loss = self.losses[number] / self.count if self.schedule._scale else self.losses[number]
        grads = stage.backward_one_chunk(number, loss, [t for t, _ in came], number == self.count - 1)
        if stage.is_last:
            self.losses[number] = self.losses[number].detach()
            stage.results[number] = _detached(stage.results[number])
        if not stage.is_first:
            self._give(Action(BACKWARD, action.stage - 1, number), grads)


def _detached(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach()
    return type(value)(map(_detached, value)) if type(value) in (tuple, list) else value


class PipelineScheduleSingle(_Schedule):
    """Of one stage in each process."""

    def __init__(self, stage: PipelineStage, n_microbatches: int, loss_fn: Callable | None = None, args_chunk_spec: Any = None,
                 kwargs_chunk_spec: Any = None, output_merge_spec: Any = None, scale_grads: bool = True) -> None:
        super().__init__([stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        if stage.num_stages != stage.group_size:
            raise ValueError(f"{type(self).__name__} has one stage in each process; there are {stage.num_stages} stages in "
                             f"{stage.group_size} processes")


class PipelineScheduleMulti(_Schedule):
    """Of several stages in each process."""

    def __init__(self, stages: Sequence[PipelineStage], n_microbatches: int, loss_fn: Callable | None = None, args_chunk_spec: Any = None,
                 kwargs_chunk_spec: Any = None, output_merge_spec: Any = None, scale_grads: bool = True) -> None:
        super().__init__(stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)


class ScheduleGPipe(PipelineScheduleSingle):
    """All microbatches forward, then all backward."""

    order = staticmethod(gpipe)


class Schedule1F1B(PipelineScheduleSingle):
    """One forward, one backward in turn, once the pipe is full: fewer microbatches are kept."""

    order = staticmethod(one_f_one_b)


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """All microbatches through one stage of a process, then through its next one; then backward."""

    order = staticmethod(gpipe)


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """1F1B of several stages in each process: the pipe is full sooner."""

    order = staticmethod(interleaved)
