"""Timing small pieces of code: `Timer("x @ y", globals=globals()).blocked_autorange()`, and tables of what came out."""

from __future__ import annotations

import dataclasses
import math
import statistics
import textwrap
import time
import timeit
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import flambeau

from .. import cuda
from .._settings import get_num_threads, set_num_threads
from .fuzzer import FuzzedParameter, FuzzedTensor, Fuzzer, ParameterAlias
from .instruction_counts import CallgrindStats, CopyIfCallgrind, FunctionCount, FunctionCounts

_UNITS = {"s": ("second", 1.0), "ms": ("millisecond", 1e-3), "us": ("microsecond", 1e-6), "ns": ("nanosecond", 1e-9)}
_WARN, _WARN_LOUDLY, _MOST_FIGURES, _CLOCK = 0.1, 0.25, 4, 25e-9


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which `t` seconds read well, and its length: ("us", 1e-6)."""
    return next(((name, length) for name, (_, length) in _UNITS.items() if t >= length), ("s", 1.0))


def unit_to_english(u: str) -> str:
    """"us" -> "microsecond"."""
    return _UNITS[u][0]


def trim_sigfig(x: float, n: int) -> float:
    """`x` to `n` significant figures."""
    return float(f"{x:.{n - 1}e}")


def timer() -> float:
    """Seconds of a clock, once the GPU has done what it was given."""
    if cuda.is_available():
        cuda.synchronize()
    return time.perf_counter()


@contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """Compute with `n` threads within the block."""
    before = get_num_threads()
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(before)


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """What was timed."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        return self.stmt if "\n" not in self.stmt else f"stmt:\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        """The setup as a line or a paragraph; nothing for `pass`."""
        if self.setup in ("", "pass"):
            return ""
        return f"setup: {self.setup}" if "\n" not in self.setup else f"setup:\n{textwrap.indent(self.setup, '  ')}\n"

    def summarize(self) -> str:
        """Title, description and setup."""
        title = self.title + "\n" * ("\n" in self.title)
        return "\n".join(filter(None, (title, self.description, self.setup_str())))


@dataclasses.dataclass(init=True, repr=False)
class Measurement:
    """Times in seconds: each of `raw_times` is that of `number_per_run` executions."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "task_spec":
            raise AttributeError(name)
        return getattr(self.task_spec, name)

    @property
    def times(self) -> list[float]:
        """Seconds for one execution, for each run."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.times)

    def _quartiles(self) -> tuple[float, float]:
        low, high = np.quantile(self.times, (0.25, 0.75))
        return float(low), float(high)

    @property
    def iqr(self) -> float:
        """The interquartile range."""
        low, high = self._quartiles()
        return high - low

    @property
    def significant_figures(self) -> int:
        """About how many figures of the median mean something: the middle half of the times, with 90% confidence."""
        times = sorted(self.times)
        middle = times[len(times) // 4:math.ceil(3 * len(times) / 4)]
        error = max(1.645 * statistics.pstdev(middle) / math.sqrt(len(middle)), _CLOCK)
        return min(max(math.floor(-math.log10(error / self.median)), 1), _MOST_FIGURES)

    def meets_confidence(self, threshold: float = _WARN) -> bool:
        """Whether the times vary less than `threshold`, as a part of the median."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self) -> bool:
        return not self.meets_confidence()

    @property
    def as_row_name(self) -> str:
        return self.sub_label or self.stmt or "[Unknown]"

    def __repr__(self) -> str:
        unit, length = select_unit(self.median)
        count, runs, threads = len(self.raw_times), self.number_per_run, self.num_threads
        lines = [object.__repr__(self), self.task_spec.summarize(),
                 f"  {'Median: ' if count > 1 else ''}{self.median / length:.2f} {unit}"]
        if count > 3:
            low, high = self._quartiles()
            lines.append(f"  IQR:    {self.iqr / length:.2f} {unit} ({low / length:.2f} to {high / length:.2f})")
        lines.append(f"  {count} measurement{'s' * (count > 1)}, {runs} runs {'per measurement' if count > 1 else ''}, "
                     f"{threads} thread{'s' * (threads > 1)}")
        if self.has_warnings:
            part = self.iqr / self.median
            lines += [f"  WARNING: Interquartile range is {part:.1%} of the median measurement.",
                      "           This " + ("suggests significant environmental influence." if part >= _WARN_LOUDLY
                                             else "could indicate system fluctuation.")]
        return "\n".join(lines)

    __str__ = __repr__

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Those of the same task as one."""
        times: dict[TaskSpec, list[float]] = {}
        for m in measurements:
            times.setdefault(m.task_spec, []).extend(m.times)
        return [Measurement(1, found, spec) for spec, found in times.items()]


class Timer:
    """Times `stmt`, after `setup`, with names from `globals`, on `num_threads` threads. The labels are for `Compare`."""

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
                 globals: dict[str, Any] | None = None, label: str | None = None, sub_label: str | None = None,
                 description: str | None = None, env: str | None = None, num_threads: int = 1, language: Any = "py") -> None:
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if str(language).lower() not in ("py", "python", "language.python"):
            raise NotImplementedError(f"Timer times Python only, got language={language!r}; time a Python call of the code")
        if global_setup:
            raise ValueError(f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply be moved to `setup`.")
        stmt, setup = (textwrap.dedent(code).strip() for code in (stmt, setup))
        self._spec = TaskSpec(stmt, setup, "", label, sub_label, description, env, num_threads)
        self._timer = timeit.Timer(stmt, setup, timer, {"torch": flambeau} | (globals or {}))

    def _measurement(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._spec)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One measurement of `number` executions, after a few to warm up."""
        with set_torch_threads(self._spec.num_threads):
            self._timer.timeit(max(number // 100, 1))
            return self._measurement(number, [self._timer.timeit(number)])

    def _block(self, min_run_time: float) -> int:
        """Executions in a block: a power of ten that takes a thousandth of the run, so that starting the clock doesn't count."""
        number = 1
        while self._timer.timeit(number) < max(min_run_time / 1000, 1e-4) and number < 10**9:
            number *= 10
        return number

    def _blocks(self, min_run_time: float, max_run_time: float, enough: Callable[[Measurement], bool],
                callback: Callable[[int, float], Any] | None) -> Measurement:
        with set_torch_threads(self._spec.num_threads):
            found = self._measurement(self._block(min_run_time), [])
            spent = 0.0
            while spent < min_run_time or (spent < max_run_time and not enough(found)):
                taken = self._timer.timeit(found.number_per_run)
                found.raw_times.append(taken)
                spent += taken
                if callback is not None:
                    callback(found.number_per_run, taken)
        return found

    def blocked_autorange(self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2) -> Measurement:
        """Blocks of executions for `min_run_time` seconds; `callback(number, seconds)` after each."""
        return self._blocks(min_run_time, min_run_time, lambda found: True, callback)

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
                           callback: Callable[[int, float], Any] | None = None) -> Measurement:
        """Blocks of executions until the interquartile range is below `threshold` of the median, or for `max_run_time` seconds."""
        def steady(found: Measurement) -> bool:
            return len(found.raw_times) > 3 and found.meets_confidence(threshold)

        return self._blocks(min_run_time, max_run_time, steady, callback)

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: instructions are not counted here."""
        raise NotImplementedError("collect_callgrind is not implemented; run the script under `valgrind "
                                  "--tool=callgrind` instead, and read its file with torch.utils.instruction_counts.read_callgrind")


_BEST, _WORST, _PLAIN = "\033[92m\033[1m", "\033[2m\033[91m", "\033[0m\033[0m"


class Compare:
    """A table: columns are descriptions, rows are sub-labels (or statements), one table for each label."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim = self._warn = False
        self._colours: str | None = None

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements."""
        for result in results:
            if not isinstance(result, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(result)} instead.")
            self._results.append(result)

    def trim_significant_figures(self) -> None:
        """Show no more figures than mean something."""
        self._trim = True

    def highlight_warnings(self) -> None:
        """Show how much unsteady times vary."""
        self._warn = True

    def colorize(self, rowwise: bool = False) -> None:
        """Mark the best times of each column (or row), and those half as slow again."""
        self._colours = "row" if rowwise else "column"

    def print(self) -> None:
        """Print the table."""
        print(str(self))

    def __str__(self) -> str:
        groups: dict[Any, list[Measurement]] = {}
        for m in Measurement.merge(self._results):
            groups.setdefault(m.label, []).append(m)
        return "\n".join(self._table(label or "", group) for label, group in groups.items())

    def _table(self, label: str, found: list[Measurement]) -> str:
        unit, length = select_unit(min(m.median for m in found))
        columns = list(dict.fromkeys(m.description or "" for m in found))
        names = list(dict.fromkeys(m.as_row_name for m in found))
        envs = list(dict.fromkeys(m.env for m in found))
        keys = sorted({(m.num_threads, envs.index(m.env), names.index(m.as_row_name)) for m in found})
        at = {(m.num_threads, envs.index(m.env), names.index(m.as_row_name), m.description or ""): m for m in found}
        grid = [[at.get((*key, column)) for column in columns] for key in keys]
        cells = list(zip(*[self._column(column, length) for column in zip(*grid)]))
        widths = [max(len(title), *map(len, column)) for title, column in zip(columns, zip(*cells))]
        heads = [_head(envs[env], names[name], k == 0 or keys[k - 1][:2] != (threads, env)) for k, (threads, env, name) in enumerate(keys)]
        first = max(map(len, heads))
        body = [_row("".ljust(first), [title.center(w) for title, w in zip(columns, widths)])]
        width = len(body[0])
        for k, (key, head) in enumerate(zip(keys, heads)):
            if k == 0 or keys[k - 1][0] != key[0]:
                body.append(f"{key[0]} threads: ".ljust(width, "-"))
            shown = [self._coloured(cell.center(w), grid, k, c) for c, (cell, w) in enumerate(zip(cells[k], widths))]
            body.append(_row(head.ljust(first), shown))
        notes = [f"Times are in {unit_to_english(unit)}s ({unit})."]
        if self._warn and any(m.has_warnings for m in found):
            notes.append("(! XX%) Measurement has high variance, where XX is the IQR / median * 100.")
        return "\n".join(["[" + f" {label} ".center(width - 2, "-") + "]", *body, "", *notes, ""])

    def _column(self, column: Iterable[Measurement | None], length: float) -> list[str]:
        """The cells of a column, with their decimal points below each other."""
        values = [m.median / length if m else None for m in column]
        figures = [m.significant_figures if m and self._trim else 17 for m in column]
        decimals = max([max(0, n - math.ceil(math.log10(v))) for n, v in zip(figures, values) if v]) if self._trim else 1
        texts = ["" if v is None else f"{trim_sigfig(v, n):.{decimals}f}" for n, v in zip(figures, values)]
        width = max(map(len, texts))
        return [text and text.rjust(width) + self._warning(m) for m, text in zip(column, texts)]

    def _warning(self, m: Measurement | None) -> str:
        return f" (! {m.iqr / m.median:.0%})" if m and self._warn and m.has_warnings else ""

    def _coloured(self, cell: str, grid: list[list[Measurement | None]], row: int, column: int) -> str:
        here = grid[row][column]
        if self._colours is None or here is None:
            return cell
        line = grid[row] if self._colours == "row" else [cells[column] for cells in grid]
        part = here.median / min(m.median for m in line if m)
        mark = _BEST if part < 1.05 else _WORST if part > 1.5 else ""
        return f"{mark}{cell}{_PLAIN}" if mark else cell


def _head(env: str | None, name: str, first: bool) -> str:
    prefix = f"  ({env})  " if env else " " * 6
    return (prefix if first else " " * len(prefix)) + name


def _row(head: str, cells: list[str]) -> str:
    return "  |  ".join([head, *cells])


__all__ = ["CallgrindStats", "Compare", "CopyIfCallgrind", "FunctionCount", "FunctionCounts", "FuzzedParameter", "FuzzedTensor", "Fuzzer",
           "Measurement", "ParameterAlias", "TaskSpec", "Timer", "select_unit", "set_torch_threads", "timer", "trim_sigfig",
           "unit_to_english"]
