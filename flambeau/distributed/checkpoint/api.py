"""What went wrong in some of the processes, told to all of them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..objects import broadcast_object_list, gather_object, scatter_object_list
from ..process_group import ProcessGroup

Failure = tuple[BaseException, traceback.StackSummary]


class CheckpointException(BaseException):
    """Saving or loading failed in some processes: `failures` has, by rank, the exception and where it was raised."""

    def __init__(self, msg: str, failures: dict[int, Failure]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, Failure]:
        """{rank: (exception, stack)}."""
        return self._failures

    def __str__(self) -> str:
        text = f"CheckpointException ranks:{self._failures.keys()}\n"
        for rank, (error, stack) in self._failures.items():
            where = "".join(traceback.format_list(stack))
            text += f"Traceback (most recent call last): (RANK {rank})\n{where}{type(error).__name__}: {error}\n"
        return text


class _Failed:
    """What stands for a value that could not be made."""

    def __init__(self, error: BaseException, stack: traceback.StackSummary) -> None:
        self.error, self.stack = error, stack

    def __reduce__(self) -> tuple:
        """Exceptions that others may not know travel as what they said."""
        kind, text = type(self.error), str(self.error)
        known = kind in (AssertionError, FileNotFoundError, KeyError, NotImplementedError, OSError, RuntimeError, TypeError, ValueError)
        return _failed, (kind if known else RuntimeError, text if known else f"{kind.__name__}: {text}", self.stack)


def _failed(kind: type, text: str, stack: traceback.StackSummary) -> _Failed:
    return _Failed(kind(text), stack)


class _Failures(NamedTuple):
    """What stands for a step that could not be made."""

    what: str
    by_rank: dict[int, _Failed]


def _tried(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except Exception as error:
        return _Failed(error, traceback.extract_tb(error.__traceback__))


def _taken(value: Any) -> Any:
    if isinstance(value, _Failures):
        raise CheckpointException(value.what, {rank: (f.error, f.stack) for rank, f in value.by_rank.items()})
    return value


class Steps:
    """Steps of all processes of a group: each does its own, the first one what follows from all, and all learn what failed."""

    def __init__(self, group: ProcessGroup | None) -> None:
        self.group = group
        self.rank, self.size = (0, 1) if group is None else (group.rank(), group.size())
        self.leads = self.rank == 0

    def _all(self, what: str, local: Callable[[], Any], then: Callable[[list], Any]) -> Any:
        """On the first process `then` of everyone's `local`, or what failed; None elsewhere."""
        mine = _tried(local)
        every: list | None = [None] * self.size if self.leads else None
        if every is not None and self.size == 1:
            every = [mine]
        elif self.group is not None:
            gather_object(mine, every, self.group._ranks[0], self.group)
        if every is None:
            return None
        failed = {rank: value for rank, value in enumerate(every) if isinstance(value, _Failed)}
        made = None if failed else _tried(lambda: then(every))
        if isinstance(made, _Failed):
            failed = {self.rank: made}
        return _Failures(what, failed) if failed else made

    def scattered(self, what: str, local: Callable[[], Any], then: Callable[[list], Sequence]) -> Any:
        """For each process the value that `then` makes for it of everyone's `local`."""
        made = self._all(what, local, then)
        values = [made] * self.size if isinstance(made, _Failures) else made
        if self.group is None or self.size == 1:
            return _taken(values[0])
        got: list = [None]
        scatter_object_list(got, values, self.group._ranks[0], self.group)
        return _taken(got[0])

    def agreed(self, what: str, local: Callable[[], Any], then: Callable[[list], Any]) -> Any:
        """For all processes the value that `then` makes of everyone's `local`."""
        got = [self._all(what, local, then)]
        if self.group is not None and self.size > 1:
            broadcast_object_list(got, self.group._ranks[0], self.group)
        return _taken(got[0])


__all__ = ["CheckpointException"]
