"""Memory plans: where temporaries lie in one arena, and which large buffers come and go while a program runs.

Most programs run at one go: their caller makes arrays of the outputs, and one arena holds all temporaries. A program that is
given memory to keep (a backward graph: what forward saved for it alone) would need that, its outputs and the arena all at once,
though it is done with the first before it makes the last. If so, it is cut into stages between which large buffers come and go.
They go by reference counts: what somebody else still holds stays as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from flambeau.core.expr import Expr, Index, bounds
from flambeau.inductor.loop.ir import Program, View
from flambeau.inductor.loop.scheduler import Kernel, Node

ALIGNMENT = 64
LARGE = 1 << 20    # bytes from which on a buffer has memory of its own in a program with stages
STAGE = 4 << 20    # bytes that come and go between two stages, at least
STAGES = 64        # of the plain plan's bytes one such part, at least
WORTHWHILE = 7 / 8  # of the plain plan's bytes


class Lives:
    """The first and the last node that touches each buffer."""

    def __init__(self, touched: Sequence[Iterable[str]]) -> None:
        self.nodes = len(touched)
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        for k, names in enumerate(touched):
            for name in names:
                self.first.setdefault(name, k)
                self.last[name] = k


@dataclass
class MemoryPlan:
    """What lies apart, in arrays of its own, what in the arena and where, and before which nodes buffers come and go."""

    apart: list[str]
    places: dict[str, Index]
    arena: Index
    cuts: set[int] = field(default_factory=set)


def coming_and_going(program: Program) -> tuple[set[str], set[str]]:
    """The buffers that a call makes, and those that it need not keep to its end."""
    results = {out.buffer for out in program.outputs if isinstance(out, View)}
    comes = {b.name for b in program.buffers.values() if b.kind in ("temp", "output")}
    return comes, {name for name in comes | program.donated if name not in results}


def written_over(program: Program, nodes: Sequence[Node], lives: Lives, apart: Sequence[str]) -> dict[str, str]:
    """Temporaries that may lie in the memory of what is made of them, and in whose: a kernel reads each element for the last time where
    it writes one of the same size. What lies `apart` has an array of its own."""
    found: dict[str, str] = {}
    elsewhere = set(apart)
    for k, node in enumerate(nodes):
        if not isinstance(node, Kernel):
            continue
        taken: set[str] = set()
        for name in sorted(node.reads):
            made = read_in_place(program, node, name)
            if (made is not None and made not in taken and name not in elsewhere and program.buffers[name].kind == "temp"
                    and lives.first[name] < lives.last[name] == k == lives.first.get(made)):
                found[name] = made
                taken.add(made)
    return found


def read_in_place(program: Program, kernel: Kernel, name: str) -> str | None:
    """The buffer that a kernel of nothing but pointwise steps makes of `name`, if every element is written where one was read."""
    if kernel.style != "rows" or kernel.split is not None:
        return None
    users = [m.step for m in kernel.members if name in m.step.reads]
    if len(users) != 1 or name in kernel.writes:
        return None
    step, old = users[0], program.buffers[name]
    new = program.buffers[step.buffer]
    same = (new.kind in ("temp", "output") and new.dtype is old.dtype and new.numel == old.numel and step.kind == "pointwise"
            and all(access.index == step.index for access in step.loads if access.buffer == name))
    return step.buffer if same else None


def plan_memory(program: Program, lives: Lives, apart: Sequence[str]) -> MemoryPlan:
    """Byte offsets in one arena for all temporaries but those `apart`, and its size.

    Memory is used again after the last reader: greedily the smallest free stretch that fits (sizes known), or a whole one that is
    surely large enough.
    """
    elsewhere = set(apart)
    temporaries = [name for name in lives.first if name not in elsewhere]
    born, dying = _by_node(lives.first, temporaries), _by_node(lives.last, temporaries)
    arena = _Arena(program.hint)
    for k in range(lives.nodes):
        for name in born.get(k, ()):
            arena.take(name, _aligned(_bytes(program, name)))
        for name in dying.get(k, ()):
            arena.give(name)
    return MemoryPlan(list(apart), arena.places, arena.end)


def plan_stages(program: Program, lives: Lives, in_python: Sequence[bool], apart: Sequence[str]) -> MemoryPlan | None:
    """A plan in which large buffers come and go between stages; None where that saves too little."""
    comes, goes = coming_and_going(program)
    either = comes | goes
    large = {name: n for name in lives.first if name in either and (n := program.hint(_bytes(program, name))) >= LARGE}
    if not any(name in goes for name in large):
        return None
    plain = plan_memory(program, lives, apart)
    before = sum(n for name, n in large.items() if name not in plain.places) + program.hint(plain.arena)
    after_node = _by_node(lives.last, [name for name in large if name in goes])
    at_node = _by_node(lives.first, [name for name in large if name in comes])
    cuts, moved = set(), 0
    for k in range(1, lives.nodes):
        moved += sum(large[name] for name in (*after_node.get(k - 1, ()), *at_node.get(k, ())))
        if moved >= max(STAGE, before // STAGES) or in_python[k] or in_python[k - 1]:
            cuts.add(k)
            moved = 0
    plan = plan_memory(program, lives, [*apart, *(name for name in large if name in plain.places)])
    plan.cuts = cuts
    return plan if _peak(lives, large, comes, goes, cuts) + program.hint(plan.arena) <= WORTHWHILE * before else None


def _peak(lives: Lives, large: dict[str, int], comes: set[str], goes: set[str], cuts: set[int]) -> int:
    """The most bytes of `large` that are there at one time."""
    starts = [0, *sorted(cuts)]
    change = [0] * (len(starts) + 1)
    stage = [bisect_right(starts, k) - 1 for k in range(lives.nodes)]
    for name, n in large.items():
        change[stage[lives.first[name]] if name in comes else 0] += n
        change[stage[lives.last[name]] + 1 if name in goes else -1] -= n
    return max(accumulate(change[:-1]))


def _bytes(program: Program, name: str) -> Index:
    buffer = program.buffers[name]
    return buffer.numel * buffer.dtype.itemsize


def _by_node(nodes: dict[str, int], names: Sequence[str]) -> dict[int, list[str]]:
    """The names that belong to each node."""
    found: dict[int, list[str]] = {}
    for name in names:
        found.setdefault(nodes[name], []).append(name)
    return found


def _aligned(size: Index) -> Index:
    return (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


class _Arena:
    """Offsets handed out and taken back. Known sizes: stretches that split and merge. Symbolic ones: stretches that stay whole."""

    def __init__(self, hint: Callable[[Index], int]) -> None:
        self.hint = hint
        self.places: dict[str, Index] = {}
        self.sizes: dict[str, Index] = {}
        self.end: Index = 0
        self.free: list[tuple[int, int]] = []           # (offset, length), by offset
        self.symbolic: dict[Index, list[Index]] = {}

    def take(self, name: str, size: Index) -> None:
        self.sizes[name] = size
        if isinstance(size, Expr) or isinstance(self.end, Expr):
            large = [free for free, places in self.symbolic.items() if places and bounds(free - size)[0] >= 0]
            if large:
                free = self.sizes[name] = min(large, key=self.hint)
                self.places[name] = self.symbolic[free].pop()
                return
            self.places[name] = self.end
            self.end = self.end + size
            return
        fits = [(length, offset) for offset, length in self.free if length >= size]
        if fits:
            length, offset = min(fits)
            self.free.remove((offset, length))
            if length > size:
                self.free.append((offset + size, length - size))
        else:
            offset = self.end
            tail = next(((o, n) for o, n in self.free if o + n == self.end), None)
            if tail is not None:
                self.free.remove(tail)
                offset = tail[0]
            self.end = offset + size
        self.places[name] = offset

    def give(self, name: str) -> None:
        place, size = self.places[name], self.sizes[name]
        if isinstance(size, Expr) or isinstance(self.end, Expr) or isinstance(place, Expr):
            self.symbolic.setdefault(size, []).append(place)
            return
        merged: list[tuple[int, int]] = []
        for offset, length in sorted([*self.free, (place, size)]):
            if merged and merged[-1][0] + merged[-1][1] == offset:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((offset, length))
        self.free = merged
