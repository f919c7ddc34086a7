"""What can go otherwise than "the whole frame became one graph"."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .break_kinds import Break
    from .variables.base import Variable


class _Broken(Exception):
    """Carries the `Break` that says what and why."""

    def __init__(self, info: Break) -> None:
        super().__init__(str(info))
        self.info = info


class GraphBreak(_Broken):
    """Tracing met something that it can't put into a graph."""


class RestartTrace(Exception):
    """Something was learned (a break point, a dynamic dimension): trace the frame again from its start."""


PRESUMING, LEAVES = -1, -2
"""What is learned besides numbers of tensors that the program needs: the truth of tensors that decide between going on and an error
breaks the graph, and so do leaves that are made in it, because they would leave it."""


class RunEagerly(_Broken):
    """The frame can't be split where it would have to be: run all of it as ordinary Python."""


class RaisedInTrace(Exception):
    """The traced program raised; `value` is the variable of its exception object, `stack` the user's frames."""

    def __init__(self, value: Variable) -> None:
        super().__init__(value)
        self.value = value
        self.stack: tuple[tuple[str, int, str, str], ...] = ()
        self.has_context = False
        """Is it noted which exception was handled when this one was raised?"""


class Unsupported(RuntimeError):
    """`fullgraph=True` and the function can't be captured as one graph."""


class UncapturedHigherOrderOpError(Unsupported):
    """So it is in a function that `cond` or `while_loop` is to call."""


class InvalidBackend(RuntimeError, ValueError):
    """There is no backend of that name."""


class BackendCompilerFailed(RuntimeError):
    """The backend raised while it compiled a graph."""

    def __init__(self, backend: str, error: BaseException, where: str) -> None:
        super().__init__(
            f"backend {backend!r} failed on the graph captured at {where}: {type(error).__name__}: {error}\n"
            "Set torch._dynamo.config.suppress_errors = True to run such functions eagerly instead, or try "
            "backend='eager' to see whether capture itself works."
        )
        self.inner_exception = error


class RecompileError(RuntimeError):
    """A compiled function would be compiled once more, and `config.error_on_recompile`."""


class RecompileLimitExceeded(RuntimeError):
    """A function was compiled more often than `config.recompile_limit` allows, and `config.fail_on_recompile_limit_hit`."""


class UserErrorType(enum.Enum):
    """What a UserError is about."""

    DYNAMIC_CONTROL_FLOW, ANTI_PATTERN, STANDARD_LIBRARY, CONSTRAINT_VIOLATION, DYNAMIC_DIM, INVALID_INPUT, INVALID_OUTPUT, \
        UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = range(8)


class UserError(Unsupported):
    """What was asked of capture does not go together with the program or with itself."""

    def __init__(self, error_type: UserErrorType, msg: str) -> None:
        super().__init__(msg)
        self.error_type, self.message = error_type, msg


def pythons_words(act: Callable[..., Any], *args: Any) -> str:
    """What this Python says where `act(*args)` fails: versions differ in their words."""
    try:
        act(*args)
    except Exception as error:
        return str(error)
    raise AssertionError(f"{act} does not fail")
