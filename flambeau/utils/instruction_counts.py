"""Counts of instructions by function, as Callgrind makes them: combined, filtered, compared. Read from Callgrind's own output."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


class FunctionCount(NamedTuple):
    """How many instructions ran in a function."""

    count: int     # type: ignore[assignment]
    function: str


_INTERPRETER = re.compile(r"dictobject\.c:|obmalloc\.c:|gcmodule\.c:|_dictkeys|lookdict|unicode_hash")
"""Functions of the interpreter whose counts change from run to run: lookups in dicts, memory."""


@dataclass(repr=False, eq=False, frozen=True)
class FunctionCounts:
    """Counts, the largest first: add and subtract them, slice them, `filter` and `transform` by name, `denoise` them."""

    _data: tuple[FunctionCount, ...]
    inclusive: bool
    truncate_rows: bool = True
    _linewidth: int | None = None

    def __iter__(self) -> Iterator[FunctionCount]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, item: Any) -> FunctionCount | FunctionCounts:
        found = self._data[item]
        return self._of(found) if isinstance(item, slice) else found

    def _of(self, data: tuple[FunctionCount, ...]) -> FunctionCounts:
        return FunctionCounts(data, self.inclusive, self.truncate_rows, self._linewidth)

    def _counted(self, counts: dict[str, int]) -> FunctionCounts:
        rows = [FunctionCount(count, name) for name, count in counts.items() if count]
        return self._of(tuple(sorted(rows, reverse=True)))

    def _merged(self, other: FunctionCounts, sign: int) -> FunctionCounts:
        if self.inclusive != other.inclusive:
            raise AssertionError("Cannot merge inclusive and exclusive counts.")
        counts: Counter[str] = Counter()
        for rows, factor in ((self, 1), (other, sign)):
            for count, name in rows:
                counts[name] += factor * count
        return self._counted(counts)

    def __add__(self, other: FunctionCounts) -> FunctionCounts:
        return self._merged(other, 1)

    def __sub__(self, other: FunctionCounts) -> FunctionCounts:
        return self._merged(other, -1)

    def __mul__(self, other: float) -> FunctionCounts:
        return self._counted({name: int(count * other) for count, name in self})

    def transform(self, map_fn: Callable[[str], str]) -> FunctionCounts:
        """The functions under other names; what gets the same one is added up."""
        counts: Counter[str] = Counter()
        for count, name in self:
            counts[map_fn(name)] += count
        return self._counted(counts)

    def filter(self, filter_fn: Callable[[str], bool]) -> FunctionCounts:
        """The functions for whose names it holds."""
        return self._of(tuple([row for row in self if filter_fn(row.function)]))

    def denoise(self) -> FunctionCounts:
        """Without what in the interpreter changes from run to run."""
        return self.filter(lambda name: not _INTERPRETER.search(name))

    def sum(self) -> int:
        """All instructions."""
        return sum(count for count, _ in self)

    def __repr__(self) -> str:
        rows = [f"  {count:>{max(len(str(c)) for c, _ in self)}}  {name}" for count, name in self]
        if self.truncate_rows and len(rows) > 18:
            rows = [*rows[:9], "...", *rows[-9:]]
        head = object.__repr__(self)
        total = [] if self.inclusive else ["", f"Total: {self.sum()}"]
        return "\n".join([head, *(row[:self._linewidth] for row in rows), *total])


def read_callgrind(text: str) -> FunctionCounts:
    """The exclusive counts in a file that `valgrind --tool=callgrind` wrote: instructions of each function, what it calls left out."""
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()
    function, file, skip = "", "", False
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key in ("fn", "fl", "fi", "fe"):
            number, _, name = value.partition(" ")
            kind = "fn" if key == "fn" else "fl"
            if name:
                names[kind + number] = name
            told = names.get(kind + number, value)
            function, file = (told, file) if key == "fn" else (function, told)
        elif equals and key == "calls":
            skip = True     # the line below has the callee's own count
        elif line[:1].isdigit() or line[:1] in "+-*":
            if not skip:
                counts[f"{file}:{function}"] += int(line.split()[1])
            skip = False
    rows = sorted((FunctionCount(count, name) for name, count in counts.items()), reverse=True)
    return FunctionCounts(tuple(rows), inclusive=False)


@dataclass(repr=False, eq=False, frozen=True)
class CallgrindStats:
    """Counts of a statement, and of an empty one (`baseline`) to take away: inclusive and exclusive ones of both."""

    task_spec: Any
    number_per_run: int
    built_with_debug_symbols: bool
    baseline_inclusive_stats: FunctionCounts
    baseline_exclusive_stats: FunctionCounts
    stmt_inclusive_stats: FunctionCounts
    stmt_exclusive_stats: FunctionCounts
    stmt_callgrind_out: str | None

    def stats(self, inclusive: bool = False) -> FunctionCounts:
        """The statement's counts: less the baseline's where they are exclusive."""
        return self.stmt_inclusive_stats if inclusive else self.stmt_exclusive_stats - self.baseline_exclusive_stats

    def counts(self, *, denoise: bool = False) -> int:
        """All instructions of the statement, without noise if told."""
        stats = self.stmt_exclusive_stats
        return (stats.denoise() if denoise else stats).sum() - (
            self.baseline_exclusive_stats.denoise() if denoise else self.baseline_exclusive_stats).sum()

    def delta(self, other: CallgrindStats, inclusive: bool = False) -> FunctionCounts:
        """What another one has less."""
        return self.stats(inclusive) - other.stats(inclusive)

    def as_standardized(self) -> CallgrindStats:
        """With the folders that differ between environments cut from the names of files."""
        def short(stats: FunctionCounts) -> FunctionCounts:
            return stats.transform(lambda name: re.sub(r"^.*/(?=(site-packages|lib|build)/)", "", name))

        fields: dict[str, Any] = {field: short(getattr(self, field)) for field in (
            "baseline_inclusive_stats", "baseline_exclusive_stats", "stmt_inclusive_stats", "stmt_exclusive_stats")}
        return replace(self, **fields)

    def __repr__(self) -> str:
        return f"{object.__repr__(self)}\n{self.task_spec}\n  Instructions: {self.counts()}, without noise {self.counts(denoise=True)}\n" \
               f"{self.number_per_run} runs per measurement"


class CopyIfCallgrind:
    """A global of a Timer that a process under Callgrind gets a copy of: `value`, and code that must run there before it is read."""

    def __init__(self, value: Any, *, setup: str | None = None) -> None:
        for method in ("__getstate__", "__reduce__"):
            if not hasattr(value, method):
                raise ValueError(f"CopyIfCallgrind takes what can be pickled, {type(value).__name__} has no {method}")
        self._value, self._setup = value, setup

    @property
    def value(self) -> Any:
        """The value."""
        return self._value

    @property
    def setup(self) -> str | None:
        """The code."""
        return self._setup
