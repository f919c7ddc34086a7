"""The modes: how programs are drawn and run in each, and how a failing one is written as a script by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import execute
from .compare import Difference
from .program import Program


@dataclass(frozen=True)
class Mode:
    """`draws`: for what the generator draws; `run`: the difference of each program, or None; `together`: how many at once."""

    draws: str
    run: Callable[[list[Program], Any], list[Difference | None]]
    script: Callable[[Program], str]
    together: int = 1


def _eager(programs: list[Program], theirs: Any) -> list[Difference | None]:
    return [execute.eager(p, theirs) for p in programs]


MODES = {
    "eager": Mode("eager", _eager, lambda p: p.script()),
}
