"""What the examples show while they run and leave behind: a progress bar, a plot of curves and a picture, in plain Python."""

from __future__ import annotations

import struct
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path


class Progress:
    """Iterate over `range(total)` behind a progress bar on stderr; `note` is shown to its right. `total` may change meanwhile.

    On a terminal the bar is redrawn in place; elsewhere (a log file) one line appears for each tenth.
    """

    def __init__(self, total: int, title: str) -> None:
        self.total, self.title, self.note = total, title, ""
        self.stop = False  # set it to end the iteration before its time
        self.live = sys.stderr.isatty()

    def __iter__(self) -> Iterator[int]:
        start = time.perf_counter()
        done = 0
        while done < self.total:
            yield done
            done += 1
            if self.live or done % max(1, self.total // 10) == 0 or done == self.total or self.stop:
                self._draw(done, time.perf_counter() - start)
            if self.stop:
                break
        if self.live:
            print(file=sys.stderr)

    def _draw(self, done: int, elapsed: float) -> None:
        filled = 24 * done // self.total
        left = elapsed / done * (self.total - done)
        bar = "█" * filled + "·" * (24 - filled)
        line = f"{self.title:<9} |{bar}| {done}/{self.total} {left:4.0f}s left  {self.note}"
        print(f"\r\x1b[K{line}" if self.live else line, end="" if self.live else "\n", file=sys.stderr, flush=True)


COLOURS = ("#d1495b", "#00798c", "#edae49", "#30638e")


def write_loss_plot(path: Path, curves: Mapping[str, Sequence[float]], title: str, across: str = "step") -> None:
    """Write an SVG line chart of `curves` (name -> the loss of each step, or of what else there is one of `across`) to `path`."""
    width, height, left, top, right, bottom = 760, 420, 56, 40, 16, 44
    steps = max(2, max(map(len, curves.values())))
    values = [v for curve in curves.values() for v in curve]
    low, high = min(values), max(values)
    span = (high - low) or 1.0

    def x(step: float) -> float:
        return left + (width - left - right) * step / (steps - 1)

    def y(value: float) -> float:
        return top + (height - top - bottom) * (high - value) / span

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{width / 2}" y="22" text-anchor="middle" font-size="15">{escape(title)}</text>',
        f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">{escape(across)}</text>',
    ]
    for i in range(6):
        value, step = low + span * i / 5, (steps - 1) * i / 5
        parts.append(f'<path d="M{left} {y(value):.1f}H{width - right}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
        parts.append(f'<text x="{x(step):.1f}" y="{height - bottom + 16}" text-anchor="middle">{step:.0f}</text>')
    for i, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in enumerate(curve))
        dashes = 'stroke-dasharray="7 4" ' if i else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" {dashes}/>')
        parts.append(f'<text x="{width - right - 8}" y="{top + 16 * (i + 1)}" text-anchor="end" fill="{colour}">'
                     f"{escape(name)}</text>")  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>\n"]), encoding="utf-8")


def write_picture(path: Path, rows: Sequence[Sequence[float]], enlarge: int = 1) -> None:
    """Write a greyscale PNG of `rows` of pixels from 0 (black) to 1 (white) to `path`, each pixel `enlarge` pixels wide and high."""
    lines = b"".join(
        (b"\0" + b"".join(bytes([round(255 * min(1.0, max(0.0, pixel)))]) * enlarge for pixel in row)) * enlarge for row in rows
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", len(rows[0]) * enlarge, len(rows) * enlarge, 8, 0, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b""))
