"""Keeping the figures: one JSON file of rows, a page made of it, and the table in README."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORE = ROOT / "benchmarks" / "results" / "figures.json"
PAGE = ROOT / "benchmarks" / "results" / "README.md"
BEGIN, END = "<!-- figures: written by ./dev bench -->", "<!-- end of figures -->"


@dataclass(frozen=True)
class Row:
    """A figure: Flambeau's and torch's, with the target of their ratio (or of Flambeau's own: `most`)."""

    work: str
    against: str
    ours: float
    theirs: float
    unit: str
    ratio_target: float | None = None
    most: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if self.theirs else float("nan")

    @property
    def target(self) -> str:
        if self.ratio_target is not None:
            return f"<= {self.ratio_target:.2f}"
        return f"<= {self.most:g} {self.unit}".strip()

    @property
    def met(self) -> bool:
        if self.ratio_target is not None:
            return self.ratio <= self.ratio_target
        return self.most is not None and self.ours <= self.most

    def cells(self) -> list[str]:
        """The row of the table."""
        ours, theirs = _figure(self.ours, self.unit), _figure(self.theirs, self.unit)
        ratio = "-" if math.isnan(self.ratio) else f"{self.ratio:.2f}"
        return [self.work, ours, f"{theirs} ({self.against})", ratio, self.target, "yes" if self.met else "no"]

    def __str__(self) -> str:
        return " | ".join(self.cells())


def _figure(value: float, unit: str) -> str:
    if math.isnan(value):
        return "-"
    digits = f"{value:.1e}" if 0 < value < 1e-2 else f"{value:.3g}" if value < 100 else f"{value:.0f}"
    return f"{digits} {unit}".strip()


def machine() -> str:
    """The processor's name and how many there are."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        name = f"{names[0]}, {len(names)} cores" if names else name
    return name


def record(rows: Iterable[Row]) -> None:
    """Put new rows in the place of older ones of the same name, and write page and README again."""
    kept = json.loads(STORE.read_text()) if STORE.is_file() else {}
    stamp = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "machine": machine()}
    for row in rows:
        if not math.isnan(row.ours):
            kept[f"{row.work} / {row.against}"] = {**asdict(row), **stamp}
    STORE.parent.mkdir(parents=True, exist_ok=True)
    STORE.write_text(json.dumps(kept, indent=1).replace("NaN", "null") + "\n")
    table = render(kept)
    PAGE.write_text("# Figures\n\nMade by `./dev bench`; two threads each, medians, torch 2.13 "
                    f"interleaved.\n\n{table}\n")
    _into_readme(table)


def render(kept: dict[str, dict]) -> str:
    """The rows as a Markdown table, with where and when they were measured."""
    lines = ["| work | Flambeau | torch | ratio | target | met |", "|---|---|---|---|---|---|"]
    fields = Row.__dataclass_fields__
    for entry in kept.values():
        row = Row(**{key: float("nan") if value is None and key in ("ours", "theirs") else value
                     for key, value in entry.items() if key in fields})  # fmt: skip
        lines.append(f"| {' | '.join(row.cells())} |")
    places = sorted({f"{entry['date']} on {entry['machine']}" for entry in kept.values()})
    return "\n".join([*lines, "", f"Measured {'; '.join(places)}; 2 threads."])


def _into_readme(table: str) -> None:
    readme = ROOT / "README.md"
    text = readme.read_text() if readme.is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        readme.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
