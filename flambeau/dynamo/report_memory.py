"""The memory of a compiled graph while it runs, as a figure of the report: what each kernel or call finds alive."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core.lazy import LazyModule

_memory = LazyModule("flambeau.inductor.cpu.memory")
WIDTH, HEIGHT = 720, 120    # of the figure, in pixels
KINDS = {"temporaries": "#e08214", "results": "#8073ac"}
"""What lives, and the colour that it is drawn in."""


@dataclass
class MemoryOverTime:
    """Bytes of temporaries and results that are alive at each node of a graph, and those of the arena that holds the temporaries."""

    stem: str
    names: list[str]
    alive: list[tuple[int, int]]
    arena: int

    @property
    def peak(self) -> int:
        """The most that is alive at one time."""
        return max(map(sum, self.alive), default=0)


def memory_of(stem: str, names: Sequence[str], compiled: Any) -> MemoryOverTime:
    """Of a graph that inductor compiled, for the examples' sizes; `names` are those of its nodes."""
    program, nodes = compiled.program, compiled.nodes
    within = compiled.unit.within if compiled.unit is not None else {}
    lives = _memory.Lives([{within.get(name, name) for name in (*node.reads, *node.writes)} for node in nodes])
    grows = [[0, 0] for _ in range(len(nodes) + 1)]
    stored = set(compiled.unit.places) | set(compiled.unit.arguments) if compiled.unit is not None else set(program.buffers)
    for name, buffer in program.buffers.items():
        if buffer.kind not in ("temp", "output") or name not in lives.first or name not in stored:
            continue
        kind, size = buffer.kind == "output", program.hint(buffer.numel * buffer.dtype.itemsize)
        grows[lives.first[name]][kind] += size
        grows[-1 if kind else lives.last[name] + 1][kind] -= size
    alive, now = [], [0, 0]
    for change in grows[:-1]:
        now = [n + c for n, c in zip(now, change)]
        alive.append((now[0], now[1]))
    return MemoryOverTime(stem, list(names), alive, program.hint(compiled.unit.arena) if compiled.unit is not None else 0)


def figure(memory: MemoryOverTime, scaled: Any) -> str:
    """The figure, with a bar for each node that says its name and bytes; `scaled` writes a number with its unit's prefix."""
    if not memory.peak:
        return ""
    wide, high = WIDTH / len(memory.alive), HEIGHT / max(memory.peak, memory.arena)
    bars = "".join(_bar(k * wide, wide, high, parts, f"{k} {name}", scaled)
                   for k, (name, parts) in enumerate(zip(memory.names, memory.alive)))
    line = HEIGHT - memory.arena * high
    arena = f"<line x1='0' x2='{WIDTH}' y1='{line:.1f}' y2='{line:.1f}' stroke='#333' stroke-dasharray='4'></line>" if memory.arena else ""
    words = ", ".join(f"<span style='color:{colour}'>{kind}</span>" for kind, colour in KINDS.items())
    return (f"<details class='m' id='memory_{memory.stem}'><summary>{memory.stem}: at most {scaled(memory.peak)}B alive, arena of "
            f"{scaled(memory.arena)}B (dashed)</summary><svg width='{WIDTH}' height='{HEIGHT}'>{bars}{arena}</svg>"
            f"<p class='s'>{words}, kernel after kernel</p></details>")


def _bar(x: float, wide: float, high: float, parts: tuple[int, int], name: str, scaled: Any) -> str:
    made, top = "", float(HEIGHT)
    for size, colour in zip(parts, KINDS.values()):
        top -= size * high
        if size:
            made += f"<rect x='{x:.1f}' y='{top:.1f}' width='{wide:.1f}' height='{size * high:.1f}' fill='{colour}'></rect>"
    told = ", ".join(f"{scaled(size)}B of {kind}" for size, kind in zip(parts, KINDS) if size)
    return f"<g><title>{html.escape(name)}: {told}</title>{made}</g>"
