"""Checks of a scheduled program: kernels hold its steps, run them in order, and temporaries have memory of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from flambeau.core.expr import Index, coefficient, evaluate, substitute, to_python
from flambeau.core.scalar import FOLDS
from flambeau.inductor.loop.ir import Extern, Program, Step, View
from flambeau.inductor.loop.scheduler import Kernel, Member
from flambeau.inductor.verify.places import Site, grid, merged
from flambeau.inductor.verify.steps import Facts, Wrong

Nodes = Sequence[Any]


def steps_of(node: Any) -> list[Step]:
    """The steps that a node runs, in order."""
    if isinstance(node, Extern):
        return [node]
    steps: list[Step] = [m.step for m in node.members]
    call = getattr(node, "call", None)      # a product that ends in a kernel
    return steps if call is None else [call, *steps]


def loops_of(kernel: Kernel) -> dict[str, Index]:
    """The kernel's loop variables and their sizes."""
    return {f"x{k}": size for k, size in enumerate(kernel.sizes)}


# --- kernels ---


def members_go_through_their_loops(kernel: Kernel, facts: Facts) -> Iterator[tuple[Step, str]]:
    """The kernel's loops take each step through each iteration of its own once, folds over the inner loops."""
    split = len(kernel.sizes) if kernel.split is None else kernel.split
    for m in kernel.members:
        wrong = _iterations(kernel, m, split, facts)
        if wrong is not None:
            yield m.step, wrong


def _iterations(kernel: Kernel, m: Member, split: int, facts: Facts) -> str | None:
    loops = m.step.loops + m.step.reduce_loops
    if set(m.subs) != {name for name, _ in loops}:
        return f"its loops are {', '.join(name for name, _ in loops)}, but the kernel gives {', '.join(m.subs)}"
    outer = {f"x{k}": n for k, n in enumerate(kernel.sizes[:split if m.step.kind in FOLDS or not m.full else None])}
    for part, ranges in ((m.step.loops, outer), (m.step.reduce_loops, {k: n for k, n in loops_of(kernel).items() if k not in outer})):
        if not part:
            continue
        flat: Index = 0
        for name, size in part:
            site = Site(ranges, facts.sizes)
            wrong = site.misnamed(m.subs[name]) or site.outside(m.subs[name], size)
            if wrong is not None:
                return f"its loop variable {name} is {to_python(m.subs[name])} in the kernel: {wrong}"
            flat = flat * size + m.subs[name]
        wrong = _once(flat, math.prod([n for _, n in part]), ranges, facts)
        if wrong is not None:
            return wrong
    return None


def _once(flat: Index, count: Index, ranges: Mapping[str, Index], facts: Facts) -> str | None:
    """Whether `flat` takes each value below `count` once in the loops: its loops are the digits of a number, or it is counted."""
    steps = [coefficient(flat, name) for name in ranges]
    digits = () if count.__class__ is int and count == 1 else ((count, 1),)
    if None not in steps and merged(ranges.values(), steps, facts.program) == digits:    # type: ignore[arg-type]
        return None
    for sizes in facts.sizes:
        total = int(evaluate(count, sizes))
        numbers = {name: int(evaluate(n, sizes)) for name, n in ranges.items()}
        if math.prod(numbers.values()) != total:
            return f"the kernel runs it {math.prod(numbers.values())} times, not {total}"
        axes, lengths = grid(numbers)
        if total and np.unique(np.broadcast_to(evaluate(flat, {**sizes, **axes}), lengths)).size != math.prod(lengths):
            return "the kernel runs some of its iterations twice, others never"
    return None


def members_share_iterations(kernel: Kernel, facts: Facts) -> Iterator[tuple[Step, str]]:
    """What one step reads of another's result in the same kernel was made in the same iteration, by a step before it."""
    writers: dict[str, Member] = {}
    theirs = {m.step.buffer for m in kernel.members}
    for m in kernel.members:
        for access in m.step.loads:
            made = writers.get(access.buffer)
            if made is None:
                if access.buffer in theirs:
                    yield m.step, f"it reads {access.buffer}, which a later step of its kernel makes"
                continue
            if substitute(access.index, m.subs) != substitute(made.step.index, made.subs) or access.names:
                yield m.step, f"it reads {access.buffer} at {to_python(access.index)}, which another iteration of its kernel makes"
            elif made.full and made.step.kind == "pointwise" and not m.full:
                yield m.step, f"it runs once a row, but reads {access.buffer}, which has a value for each element"
        writers[m.step.buffer] = m
    if kernel.style == "scatter" and len(kernel.members) > 1:
        yield kernel.members[1].step, "it is in the kernel of a scatter"


KERNEL: tuple[Callable[[Kernel, Facts], Iterator[tuple[Step, str]]], ...] = (members_go_through_their_loops, members_share_iterations)


def all_steps_run_once(nodes: Nodes, steps: Sequence[Step]) -> Iterator[tuple[Step, str]]:
    """The nodes run the program's steps, each once."""
    times: dict[int, int] = {}
    for node in nodes:
        for step in steps_of(node):
            times[id(step)] = times.get(id(step), 0) + 1
    for step in steps:
        if times.pop(id(step), 0) != 1:
            yield step, "the schedule runs it never or more than once"
    for node in nodes:
        for step in steps_of(node):
            if id(step) in times:
                yield step, "the schedule runs it, but it is not in the program"


# --- memory ---


def lives(nodes: Nodes, names: Any, within: Mapping[str, str] | None = None) -> dict[str, tuple[int, int]]:
    """For each of these buffers the first and the last node that touches it, or what lies `within` it."""
    found: dict[str, tuple[int, int]] = {}
    for k, node in enumerate(nodes):
        for name in {(within or {}).get(name, name) for name in (*node.reads, *node.writes)}:
            if name in names:
                found[name] = (found.get(name, (k, k))[0], k)
    return found


def memory_is_apart(unit: Any, facts: Facts) -> Wrong:
    """Temporaries that are needed at one time never share bytes, and the arena has room for all."""
    places, alive = unit.places, lives(unit.nodes, unit.places, unit.within)
    for sizes in facts.sizes:
        spans = {}
        end = int(evaluate(unit.arena, sizes))
        for name in alive:
            buffer, start = facts.program.buffers[name], int(evaluate(places[name], sizes))
            stop = start + int(evaluate(buffer.numel, sizes)) * buffer.dtype.itemsize
            spans[name] = (start, stop)
            if start < 0 or stop > end:
                yield f"{name} lies at bytes {start} to {stop} of an arena of {end}"
            if start % 16:
                yield f"{name} lies at byte {start}, which is not aligned"
        yield from _shared(spans, alive)


def _shared(spans: Mapping[str, tuple[int, int]], alive: Mapping[str, tuple[int, int]]) -> Wrong:
    by_start = sorted((name for name in spans if spans[name][0] < spans[name][1]), key=lambda name: spans[name][0])
    open_spans: list[str] = []
    for name in by_start:
        open_spans = [other for other in open_spans if spans[other][1] > spans[name][0]]
        for other in open_spans:
            (a, b), (c, d) = alive[name], alive[other]
            if a <= d and c <= b:
                yield (f"{other} (bytes {spans[other]}, nodes {c} to {d}) and {name} (bytes {spans[name]}, nodes {a} to {b}) share memory "
                       "while both are needed")
        open_spans.append(name)


def what_lies_within_is_read_where_it_is_written_over(unit: Any, facts: Facts) -> Wrong:
    """Buffers of one place follow each other: the last kernel that reads one writes the next element by element over it."""
    alone = lives(unit.nodes, facts.program.buffers)
    by_place: dict[str, list[str]] = {}
    for name, place in unit.within.items():
        by_place.setdefault(place, [place]).append(name)
    for names in by_place.values():
        order = sorted(names, key=lambda name: alone[name])
        for old, new in pairwise(order):
            (_, last), (first, _) = alone[old], alone[new]
            node = unit.nodes[first]
            if last != first or not isinstance(node, Kernel) or not _is_written_over(node, facts.program, old, new):
                yield f"{old} and {new} lie in one place, but {old} is read after {new} is written, or elsewhere"


def _is_written_over(kernel: Kernel, program: Program, old: str, new: str) -> bool:
    """Whether one pointwise step alone reads `old`, at the place where it writes `new`, in one pass of a kernel that folds nothing."""
    readers = [m.step for m in kernel.members if old in m.step.reads]
    return (kernel.style == "rows" and kernel.split is None and [step.buffer for step in readers] == [new]
            and readers[0].kind == "pointwise" and {a.index for a in readers[0].loads if a.buffer == old} == {readers[0].index}
            and program.buffers[old].numel == program.buffers[new].numel and program.buffers[old].dtype is program.buffers[new].dtype)


def crossing_has_memory(unit: Any, facts: Facts) -> Wrong:
    """What one node makes and another reads has a place: an argument, or one in the arena."""
    given = {*unit.arguments, *unit.places, *unit.within}
    made: set[str] = set()
    for node in unit.nodes:
        for name in sorted(node.reads & made - given):
            yield f"{name} crosses from one kernel to another without memory"
        made |= set(node.writes)
        for name in sorted(node.reads - made - given):
            yield f"{name} is read from nowhere"


def memory_comes_and_goes(unit: Any, facts: Facts) -> Wrong:
    """What lies apart from the arena is there whenever a segment touches it, and results are there at the end."""
    program = facts.program
    results = {out.buffer for out in program.outputs if isinstance(out, View)}
    given = {*(name for name in program.inputs if name is not None), *program.constants}
    here = given | (set(unit.arguments) - {name for segment in unit.segments for name in segment.born})
    ran = [k for segment in unit.segments for k in segment.nodes]
    for k, other in zip_longest(range(len(unit.nodes)), ran):
        if k != other:
            yield f"the segments run node {other} where node {k} should run"
            break
    for k, segment in enumerate(unit.segments):
        for name in segment.born:
            if name in here:
                yield f"{name} gets memory before segment {k}, but has some"
        here.update(segment.born)
        touched = {unit.within.get(name, name) for n in segment.nodes
                   for name in (*unit.nodes[n].reads, *unit.nodes[n].writes)} & set(unit.arguments)
        for name in sorted(touched - here):
            yield f"segment {k} touches {name}, whose memory is gone or was never there"
        for name in sorted(touched - set(segment.arguments)):
            yield f"segment {k} touches {name}, but is not given it"
        for name in segment.dead:
            if name in results or (name in given and name not in program.donated):
                yield f"segment {k} lets go of {name}, which {'is a result' if name in results else 'is not its own'}"
        here -= set(segment.dead)


UNIT: tuple[Callable[[Any, Facts], Wrong], ...] = (memory_is_apart, what_lies_within_is_read_where_it_is_written_over,
                                                            crossing_has_memory, memory_comes_and_goes)
