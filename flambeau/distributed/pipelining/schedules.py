"""Schedules: in which order a process does the forward and backward passes of its stages' microbatches.

A schedule is a list of actions for each process (`order`); how one is done is the same for all (`_Run.all`). Nothing waits for a
message to be taken: a list that can be done in some order by all processes together is done.
"""

from __future__ import annotations

import contextlib
import csv
import re
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...autograd import set_grad_enabled
from ...core.tensor import Tensor
from .microbatch import chunks, merged, split_args_kwargs_into_chunks
from .stage import BACKWARD, FORWARD, PipelineStage, describe

INPUT, WEIGHT = 2, 3    # the halves of a backward pass
_LETTERS = "FBIW"       # of FORWARD, BACKWARD, INPUT, WEIGHT


class Action(NamedTuple):
    """One pass of one microbatch through a stage."""

    way: int
    stage: int
    number: int

    def __str__(self) -> str:
        return f"{self.stage}{_LETTERS[self.way]}{self.number}"

    @classmethod
    def from_str(cls, text: str) -> Action:
        """"3F5": the sixth microbatch forward through the fourth stage."""
        found = re.fullmatch(rf"(\d+)([{_LETTERS}])(\d+)", text)
        if found is None:
            raise ValueError(f"an action is a stage, one of {', '.join(_LETTERS)} and a microbatch, as 3F5; not {text!r}")
        return cls(_LETTERS.index(found[2]), int(found[1]), int(found[3]))


# -- in which process a stage lies ------------------------------------------------------------------------------------------------
def round_about(processes: int, stages: int) -> list[int]:
    """Stage i in process i % processes."""
    return [s % processes for s in range(stages)]


def there_and_back(processes: int, stages: int) -> list[int]:
    """Like a V: the last process has the two stages in the middle, the first one both ends."""
    return [min(s, stages - 1 - s) for s in range(stages)] if stages == 2 * processes else round_about(processes, stages)


# -- orders: the actions of the process that has these stages -----------------------------------------------------------------------
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
    rounds = _rounds("Interleaved 1F1B", processes, count)
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


def _rounds(name: str, processes: int, count: int) -> int:
    """In how many rounds of equally many microbatches they go."""
    rounds = max(1, count // processes)
    if count % rounds:
        raise ValueError(f"{name} requires the number of microbatches to be a multiple of the number of rounds ({rounds}), but got {count}.")
    return rounds


def zero_bubble(stages: Sequence[int], processes: int, count: int) -> list[Action]:
    """As interleaved 1F1B, with gradients of parameters computed where a process would wait (ZB1P of arXiv:2401.10241)."""
    each = count // _rounds("Zero bubble", processes, count)
    waiting = []
    for p in range(processes):
        order = interleaved(range(p, len(stages) * processes, processes), processes, count)
        waiting.append({FORWARD: [deque(a for a in order if a.way == FORWARD)],
                        INPUT: [deque(a._replace(way=INPUT) for a in order if a.way == BACKWARD)]})
    return _greedy(waiting, (INPUT, FORWARD, WEIGHT), len(stages) * each, len(stages) * processes - 1)[stages[0]]


def zero_bubble_v(stages: Sequence[int], processes: int, count: int) -> list[Action]:
    """Two stages in each process, there and back, and gradients of parameters computed where a process would wait (ZB-V)."""
    _two(stages)
    last = 2 * processes - 1
    waiting = [{way: [deque(Action(way, s, i) for i in range(count)) for s in (last - p, p)] for way in (FORWARD, INPUT)}
               for p in range(processes)]
    return _greedy(waiting, (FORWARD, INPUT, WEIGHT), 2 * processes, last)[stages[0]]


def _greedy(waiting: Sequence[dict[int, list[deque[Action]]]], ways: Sequence[int], room: int, last: int) -> list[list[Action]]:
    """Every process's list if each pass takes one tick, and each process does in each tick the first action that it can of what is `waiting`
    there: of the first way first, and of its queues in their order. It keeps no more microbatches than it has `room` for."""
    lists: list[list[Action]] = [[] for _ in waiting]
    kept, done = [0] * len(waiting), set()
    for queues in waiting:
        queues[WEIGHT] = [deque()]

    def can(p: int, action: Action) -> bool:
        way, s, i = action
        if way == FORWARD:
            return kept[p] < room and (s == 0 or (FORWARD, s - 1, i) in done)
        return way == WEIGHT or ((FORWARD, s, i) in done and (s == last or (INPUT, s + 1, i) in done))

    while any(queue for queues in waiting for several in queues.values() for queue in several):
        now = []
        for p, queues in enumerate(waiting):
            found = next((queue for way in ways for queue in queues[way] if queue and can(p, queue[0])), None)
            if found:
                now.append((p, found.popleft()))
        for p, action in now:
            lists[p].append(action)
            done.add(action)
            kept[p] += (action.way == FORWARD) - (action.way == WEIGHT)
            if action.way == INPUT:
                waiting[p][WEIGHT][0].append(action._replace(way=WEIGHT))
    return lists


def _two(stages: Sequence[int]) -> None:
    if len(stages) != 2:
        raise ValueError(f"ZBV requires exactly 2 stages per rank, but got {len(stages)}.")


def dual_pipe_v(stages: Sequence[int], processes: int, count: int) -> list[Action]:
    """DualPipe (arXiv:2412.19437) with both of its directions in one model: two stages in each process, there and back. Once the pipe is
    full, each forward pass through one of them is followed by a backward pass through the other."""
    _two(stages)
    if count < 2 * processes:
        raise ValueError(f"DualPipeV requires at least as many microbatches as stages, but got {count} microbatches and {2 * processes} "
                         "stages.")
    place = min(stages)
    behind = processes - 1 - place
    last = [*("B1", "B0") * (place + 1)]
    phases = [(2 * behind, "F0"), (place + 1, "F0 F1"), (behind, "I1 W F1"), (count - 2 * processes + place + 1, "F0 B1 F1 B0"),
              (behind, "B1 F1 B0"), (1, " ".join([*last[: place + 1], *(b.replace("B", "I") for b in last[place + 1 :])])), (behind, "W I0"),
              (place + 1, "W")]
    ends = (min(stages), max(stages))
    numbers = {(way, s): iter(range(count)) for way in "FB" for s in ends}
    found: list[Action] = []
    halves: deque[Action] = deque()     # whose gradients of parameters are to come
    for step in (step for times, steps in phases for _ in range(times) for step in steps.split()):
        if step == "W":
            found.append(halves.popleft())
            continue
        stage = ends[int(step[1])]
        made = Action(_LETTERS.index(step[0]), stage, next(numbers["F" if step[0] == "F" else "B", stage]))
        found.append(made)
        if made.way == INPUT:
            halves.append(made._replace(way=WEIGHT))
    return found


class _Schedule:
    """What schedules share."""

    order: Callable[[Sequence[int], int, int], list[Action]] = staticmethod(gpipe)
    place: Callable[[int, int], list[int]] = staticmethod(round_about)

    def __init__(self, stages: Sequence[PipelineStage], n_microbatches: int, loss_fn: Callable | None, args_chunk_spec: Any,
                 kwargs_chunk_spec: Any, output_merge_spec: Any, scale_grads: bool) -> None:
        if n_microbatches < 1:
            raise ValueError(f"n_microbatches must be positive, got {n_microbatches}")
        self._stages, self._early = {s.stage_index: s for s in stages}, True
        self._count, self._loss_fn, self._scale = n_microbatches, loss_fn, scale_grads
        self._specs, self._merge = (args_chunk_spec, kwargs_chunk_spec), output_merge_spec
        self._plan(stages[0].group_rank, stages[0].group_size, stages[0].num_stages)

    def _plan(self, process: int, processes: int, count: int) -> None:
        """Every process's list of actions."""
        place = type(self).place(processes, count)
        mine = [[s for s in range(count) if place[s] == p] for p in range(processes)]
        if sorted(self._stages) != mine[process]:
            raise ValueError(f"process {process} of {processes} has stages {mine[process]} of {count}; given are {sorted(self._stages)}")
        self._set({p: type(self).order(stages, processes, self._count) for p, stages in enumerate(mine)}, place)

    def _set(self, order: dict[int, list[Action]], place: Sequence[int]) -> None:
        self.pipeline_order = order
        for stage in self._stages.values():
            stage.processes = list(place)
            self._actions = order[stage.group_rank]

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
        for stage in self._stages.values():
            stage.clear_runtime_states(self._count)
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
            if self.schedule._early and following is not None and self.stages[following.stage].knows(following.way, following.number):
                self._expect(following)
            if action.way == WEIGHT:
                self.stages[action.stage].backward_weight_one_chunk(action.number)
            else:
                (self._forward if action.way == FORWARD else self._backward)(action, self._take(action))
        for work, _ in self.leaving:
            work.wait()

    def _neighbour(self, action: Action) -> int | None:
        """The stage that an action waits for; None for one that waits for nobody."""
        stage = self.stages[action.stage]
        if action.way == WEIGHT:
            return None
        if action.way == FORWARD:
            return None if stage.is_first else action.stage - 1
        return None if stage.is_last else action.stage + 1

    def _expect(self, action: Action) -> None:
        source, message = self._neighbour(action), _message(action)
        if source is not None and source not in self.stages and message not in self.coming:
            self.coming[message] = self.stages[action.stage].receive(message.way, action.number)

    def _take(self, action: Action) -> list[tuple[Tensor, bool]]:
        if (message := _message(action)) in self.coming:
            came = self.coming.pop(message)
            for _, work, _ in came:
                work.wait()
            return [(tensor, wants) for tensor, _, wants in came]
        return self.here.pop(message, [])

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
        backward = stage.backward_input_one_chunk if action.way == INPUT else stage.backward_one_chunk
        grads = backward(number, loss, [t for t, _ in came])
        if stage.is_last:
            self.losses[number] = self.losses[number].detach()
            stage.results[number] = _detached(stage.results[number])
        if not stage.is_first:
            self._give(Action(BACKWARD, action.stage - 1, number), grads)


def _message(action: Action) -> Action:
    """The key of what an action needs from another stage: gradients are the same whether a pass is whole or in halves."""
    return action if action.way == FORWARD else action._replace(way=BACKWARD)


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
    """Of several stages in each process. `use_full_backward` is what each schedule says itself."""

    def __init__(self, stages: Sequence[PipelineStage], n_microbatches: int, loss_fn: Callable | None = None, args_chunk_spec: Any = None,
                 kwargs_chunk_spec: Any = None, output_merge_spec: Any = None, use_full_backward: bool | None = None,
                 scale_grads: bool = True, backward_requires_autograd: bool = True) -> None:
        if use_full_backward is not None:
            warnings.warn("use_full_backward is deprecated and does nothing: a schedule says itself how a backward pass is done", FutureWarning,
                          stacklevel=3)
        if not backward_requires_autograd:
            raise NotImplementedError("a schedule with backward_requires_autograd=False is not implemented; leave it out")
        super().__init__(stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)


class _PipelineScheduleRuntime(PipelineScheduleMulti):
    """Does lists of actions, those of its class or those of a file: a row for each process, "0F0,0F1,1F0,1B0"."""

    def __init__(self, stages: Sequence[PipelineStage], n_microbatches: int, loss_fn: Callable | None = None, args_chunk_spec: Any = None,
                 kwargs_chunk_spec: Any = None, output_merge_spec: Any = None, scale_grads: bool = True,
                 backward_requires_autograd: bool = True, defer_pp_recv: bool = False) -> None:
        super().__init__(stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, None, scale_grads,
                         backward_requires_autograd)
        self._early = not defer_pp_recv     # whether a receive begins before it is its turn

    def _plan(self, process: int, processes: int, count: int) -> None:
        if type(self) is not _PipelineScheduleRuntime:
            super()._plan(process, processes, count)

    def _load_csv(self, filename: str, format: str = "compute_only") -> None:
        """The lists of actions of a file; what is sent and received follows from them."""
        if format != "compute_only":
            raise NotImplementedError(f"lists of actions with what is sent (format={format!r}) are not read; use format=\"compute_only\"")
        with open(filename, newline="", encoding="utf-8") as file:
            order = {p: [Action.from_str(text.strip()) for text in row if text.strip()] for p, row in enumerate(csv.reader(file))}
        place = {action.stage: p for p, actions in order.items() for action in actions}
        self._set(order, [place[s] for s in range(len(place))])

    def _dump_csv(self, filename: str) -> None:
        """Write the lists of actions."""
        with open(filename, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([list(map(str, self.pipeline_order[p])) for p in sorted(self.pipeline_order)])


class ScheduleGPipe(PipelineScheduleSingle):
    """All microbatches forward, then all backward."""

    order = staticmethod(gpipe)


class Schedule1F1B(PipelineScheduleSingle):
    """One forward, one backward in turn, once the pipe is full: fewer microbatches are kept."""

    order = staticmethod(one_f_one_b)


class ScheduleLoopedBFS(_PipelineScheduleRuntime):
    """All microbatches through one stage of a process, then through its next one; then backward."""

    order = staticmethod(gpipe)

    def __init__(self, stages: Sequence[PipelineStage], n_microbatches: int, loss_fn: Callable | None = None, output_merge_spec: Any = None,
                 scale_grads: bool = True, backward_requires_autograd: bool = True, defer_pp_recv: bool = False) -> None:
        super().__init__(stages, n_microbatches, loss_fn, None, None, output_merge_spec, scale_grads, backward_requires_autograd, defer_pp_recv)


class ScheduleInterleaved1F1B(_PipelineScheduleRuntime):
    """1F1B of several stages in each process: the pipe is full sooner."""

    order = staticmethod(interleaved)


class ScheduleInterleavedZeroBubble(_PipelineScheduleRuntime):
    """1F1B of one or several stages in each process, which compute gradients of parameters where they would wait."""

    order = staticmethod(zero_bubble)


class ScheduleZBVZeroBubble(_PipelineScheduleRuntime):
    """Two stages in each process, there and back: stage i and the i-th from the end. Nobody waits once the pipe is full, if forward passes,
    gradients of inputs and those of parameters take equally long."""

    order, place = staticmethod(zero_bubble_v), staticmethod(there_and_back)


class ScheduleDualPipeV(_PipelineScheduleRuntime):
    """Two stages in each process, there and back: forward passes through one, backward ones through the other in turn."""

    order, place = staticmethod(dual_pipe_v), staticmethod(there_and_back)


_BY_NAME = {cls.__name__.removeprefix("Schedule"): cls for cls in (
    Schedule1F1B, ScheduleInterleaved1F1B, ScheduleGPipe, ScheduleLoopedBFS, ScheduleInterleavedZeroBubble, PipelineScheduleSingle,
    PipelineScheduleMulti, ScheduleZBVZeroBubble, ScheduleDualPipeV)}


def get_schedule_class(schedule_name: str) -> type[_Schedule]:
    """The schedule of a name, in capitals or not: "1F1B", "ZBVZeroBubble" ..."""
    found = {name.lower(): cls for name, cls in _BY_NAME.items()}.get(schedule_name.lower())
    if found is None:
        raise ValueError(f"Unknown schedule name {schedule_name!r}. The valid options are {list(_BY_NAME)}")
    return found
