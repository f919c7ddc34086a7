"""Uneven inputs: a process that runs out of them goes on taking part in the others' collectives until all have ended."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any

from ...core.device import device
from ...ops.creation import ones, zeros
from ..process_group import ProcessGroup
from ..work import Work


class JoinHook:
    """What a process that has ended does for a Joinable: `main_hook` in place of each iteration, `post_hook` when all have ended."""

    def main_hook(self) -> None:
        """Take part in the collectives of one iteration."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """All have ended; `is_last_joiner`: this process was among the last."""


class Joinable(ABC):
    """What can be trained with uneven inputs. It calls `Join.notify_join_context(self)` before the first collective of an iteration."""

    _join_context: Join | None = None

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook, with the context's keyword arguments."""

    @property
    @abstractmethod
    def join_device(self) -> device:
        """Where the context's own tensors are."""

    @property
    @abstractmethod
    def join_process_group(self) -> ProcessGroup:
        """Who takes part."""


class Join:
    """`with Join([model, optimizer]):` around a loop over inputs that some processes have fewer of.

    With `throw_on_early_termination`, all raise RuntimeError as soon as one has ended.
    """

    def __init__(self, joinables: list[Joinable], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        if len({id(j.join_process_group) for j in joinables}) > 1:
            raise ValueError("Using join context manager with multiple process groups")
        self._joinables, self._enable, self._throw = joinables, enable, throw_on_early_termination
        self._hooks = [j.join_hook(**kwargs) for j in joinables]
        self._group = joinables[0].join_process_group

    def __enter__(self) -> Join:
        if self._enable:
            for joinable in self._joinables:
                joinable._join_context = self
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if not self._enable:
            return
        for joinable in self._joinables:
            joinable._join_context = None
        if kind is not None:
            return  # the loop failed: nothing to go on with
        last, rounds = True, 0
        while (left := self._count(False)) > 0:
            if self._throw:
                self._tell(True)
                raise RuntimeError(f"Rank {self._group.rank()} exhausted all inputs.")
            last = False
            for hook in self._hooks:
                hook.main_hook()
            rounds += 1
            if rounds == 1000:
                warnings.warn(f"Detected uneven input skew of greater than 1000 on rank {self._group.rank()}: {left} processes go on",
                              stacklevel=2)
        if self._throw:
            self._tell(False)
        for hook in self._hooks:
            hook.post_hook(last)

    def _count(self, goes_on: bool) -> int:
        """How many processes go on."""
        alive = ones(1) if goes_on else zeros(1)
        self._group.allreduce(alive).wait()
        return int(alive.item())

    def _tell(self, ended: bool) -> bool:
        """Whether some process has ended."""
        flag = ones(1) if ended else zeros(1)
        self._group.allreduce(flag).wait()
        return bool(flag.item())

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Work | None:
        """Say that this process begins another iteration; the work of saying so, for the first joinable of a context."""
        context = joinable._join_context
        if context is None or context._joinables[0] is not joinable:
            return None
        alive = ones(1)
        work = context._group.allreduce(alive)
        work.wait()
        if context._throw and int(alive.item()) < context._group.size() and context._tell(False):
            raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work
