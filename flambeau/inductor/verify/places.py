"""Where a program reads and writes: positions against buffers, for all values of loop variables and sizes.

A claim is shown by bounds of expressions where they suffice. Where they do not, positions are computed, at sizes that the
program's guards allow: what is refused always comes with values at which it goes wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flambeau.core.expr import (
    Atom,
    Expr,
    Index,
    bounds,
    coefficient,
    evaluate,
    free_variables,
    known_less,
    known_nonnegative,
    substitute,
    to_python,
)
from flambeau.inductor.loop.ir import Buffer, Compute, Program, Value, View, walk
from flambeau.inductor.loop.reference import evaluate_values

MOST_POINTS = 1 << 16       # positions that are computed for one access
MOST_MARKED = 1 << 24       # elements of a buffer that are looked at one by one
UNKNOWN_SIZE = 5            # stands for a size that is known only when the program runs
HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}


# --- sizes ---


def possible_sizes(program: Program) -> list[dict[str, int]]:
    """Values of the size symbols that the guards allow: the example's, and larger ones."""
    used = {name for b in program.buffers.values() for n in (*b.shape, *b.strides) for name in free_variables(n)}
    used |= {name for name in program.symbols if name[0] != "f"} | program.hints.keys()
    example = {name: program.hints.get(name, UNKNOWN_SIZE) for name in used}
    if not example:
        return [{}]
    others = ({name: n + 1 for name, n in example.items()}, {name: 2 * n for name, n in example.items()})
    return [example, *(sizes for sizes in others if _allowed(program, sizes))]


def _allowed(program: Program, sizes: Mapping[str, int]) -> bool:
    try:
        held = (HOLDS[op](evaluate(a, sizes), evaluate(b, sizes)) for (op, a, b), _ in program.guards)
        return all(held)
    except KeyError:    # a guard on a size that the program does not see
        return False


def atoms(x: Index) -> Iterator[Atom]:
    """The variables of `x`, each as it stands there."""
    for m in x.terms if isinstance(x, Expr) else ():
        for atom, _ in m:
            if atom.kind == "var":
                yield atom
            for arg in atom.args:
                yield from atoms(arg)


# --- positions ---


@dataclass
class Site:
    """Where an index is evaluated: the loops around it, what is computed there, the sizes to try, and under which condition."""

    loops: Mapping[str, Index]
    sizes: list[dict[str, int]]
    computed: Mapping[str, Value] = field(default_factory=dict)
    mask: Value | None = None

    def misnamed(self, index: Index) -> str | None:
        """What is wrong with the variables of `index`, if anything: nobody binds them, or they claim another range."""
        for atom in atoms(index):
            if atom.name in self.computed:
                made = self.computed[atom.name]
                if made.op != "checked" or not _same(made.attr, atom.size):
                    return f"takes {atom.name} to be below {_text(atom.size)}, but {made} = {made.op}(... {made.attr}) does not check that"
            elif atom.name in self.loops:
                size = self.loops[atom.name]
                if atom.lo > 0 or not (_same(atom.size, size) or bounds(size)[1] - 1 <= atom.hi):
                    return f"takes {atom.name} to be below {_text(atom.size)}, but its loop has {to_python(size)} iterations"
            elif atom.name not in self.sizes[0]:
                return f"uses the unknown variable {atom.name}"
        return None

    def outside(self, index: Index, size: Index) -> str | None:
        """How `index` leaves `0 <= index < size`, if it does."""
        lo, hi = bounds(index)
        if (lo >= 0 and hi < bounds(size)[0]) or (known_nonnegative(index) and known_less(index, size)):
            return None
        for sizes in self.sizes:
            found = self._witness(index, sizes, int(evaluate(size, sizes)))
            if found is not None:
                return found
        return None

    def _witness(self, index: Index, sizes: Mapping[str, int], size: int) -> str | None:
        ranges = {name: int(evaluate(n, sizes)) for name, n in self.loops.items()}
        ranges |= {name: int(evaluate(v.attr, sizes)) for name, v in self.computed.items() if name in free_variables(index)}
        if 0 in ranges.values():
            return None
        open_axes, lengths = grid(ranges)
        values = {**sizes, **open_axes}
        places = np.broadcast_to(evaluate(index, values), lengths)
        bad = (places < 0) | (places >= size)
        if bad.any() and self.mask is not None:
            mask = _known(self.mask, values, sizes)
            bad = bad & (False if mask is None else mask)
        if not bad.any():
            return None
        at = tuple(int(k) for k in np.argwhere(bad)[0])
        where = [f"{name}={int(axis.flat[k])}" for (name, axis), k in zip(open_axes.items(), at, strict=True)]
        where += [f"{name}={n}" for name, n in sizes.items()]
        return f"[{int(places[at])}] of {size} elements{' at ' if where else ''}{', '.join(where)}"


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def _text(size: Any) -> str:
    return "any number" if size is None else to_python(size)


def grid(ranges: Mapping[str, int]) -> tuple[dict[str, np.ndarray], list[int]]:
    """Open axes over the ranges, and their lengths: all points, or where that are too many some, the corners among them."""
    picked = {name: np.arange(n) if n <= MOST_POINTS else _some(n, 64) for name, n in ranges.items()}
    while math.prod(map(len, picked.values())) > MOST_POINTS:
        longest = max(picked, key=lambda name: len(picked[name]))
        picked[longest] = _some(ranges[longest], max(2, len(picked[longest]) // 2))
        if len(picked[longest]) <= 2:
            break
    rank = len(picked)
    axes = {name: values.reshape([-1 if k == axis else 1 for k in range(rank)]) for axis, (name, values) in enumerate(picked.items())}
    return axes, [len(values) for values in picked.values()]


def _some(n: int, count: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, count)).astype(np.int64))


def _known(mask: Value, values: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """The truth of a condition on loop variables at the points of a grid; None where it depends on data."""
    if any(v.op in ("load", "checked") for v in walk([mask])):
        return None
    return evaluate_values([mask], values, {}, sizes)[mask.uid]


# --- what is written ---


def merged(shape: Iterable[Index], strides: Iterable[Index], program: Program) -> tuple[tuple[Index, Index], ...]:
    """A strided set of elements in one form: its (size, stride) pairs by stride, those that continue each other as one."""
    pairs = [(n, s) for n, s in zip(shape, strides, strict=True) if not _same(n, 1)]
    pairs.sort(key=lambda pair: (program.hint(pair[1]), program.hint(pair[0])))
    out: list[tuple[Index, Index]] = []
    for n, s in pairs:
        if out and _same(out[-1][0] * out[-1][1], s):
            out[-1] = (out[-1][0] * n, out[-1][1])
        else:
            out.append((n, s))
    return tuple(out)


def stored_view(step: Compute, program: Program) -> View | None:
    """The elements that a step stores, as a strided view; None where their positions are not linear in the loops."""
    strides = tuple([coefficient(step.index, name) for name, _ in step.loops])
    if None in strides:
        return None
    first = substitute(step.index, {name: 0 for name, _ in step.loops})
    return View(step.buffer, program.buffers[step.buffer].dtype, tuple([n for _, n in step.loops]), strides, first)    # type: ignore


class Memory:
    """What has been written of each buffer so far, and who has read it."""

    def __init__(self, program: Program, sizes: list[dict[str, int]]):
        self.program, self.sizes = program, sizes
        self.pieces: dict[str, list[View | Compute]] = {}
        self.readers: dict[str, str] = {}
        self.checked = {b.name for b in program.buffers.values() if b.kind in ("input", "constant")}

    def read(self, name: str, reader: str) -> str | None:
        """Note that `reader` reads a buffer: what of it is not there yet, if anything."""
        self.readers.setdefault(name, reader)
        if name in self.checked:
            return None
        self.checked.add(name)
        return self._missing(self.program.buffers[name])

    def write(self, name: str, piece: View | Compute) -> str | None:
        """Note a piece that is stored: why it must not be, if so."""
        self.checked.discard(name)
        kind = self.program.buffers[name].kind
        if kind in ("input", "constant"):
            return f"writes to {name}, which is an {kind}" if kind == "input" else f"writes to {name}, which is a constant"
        self.pieces.setdefault(name, []).append(piece)
        reader = self.readers.get(name)
        return f"writes to {name} after {reader} has read it" if reader is not None else None

    def _missing(self, buffer: Buffer) -> str | None:
        pieces = self.pieces.get(buffer.name, [])
        if not pieces:
            return f"{buffer.name} is read before it is written"
        views = [stored_view(p, self.program) if isinstance(p, Compute) else p for p in pieces]
        if len(views) == 1 and views[0] is not None and self._is_all(views[0], buffer):
            return None
        for sizes in self.sizes:
            found = self._compare(buffer, pieces, views, sizes)
            if found is not None:
                return found + (f" at {', '.join(f'{k}={n}' for k, n in sizes.items())}" if sizes else "")
        return None

    def _is_all(self, view: View, buffer: Buffer) -> bool:
        written, wanted = (merged(x.shape, x.strides, self.program) for x in (view, buffer))
        return _same(view.offset, 0) and len(written) == len(wanted) and all(
            _same(a, b) for mine, theirs in zip(written, wanted) for a, b in zip(mine, theirs))

    def _compare(self, buffer: Buffer, pieces: Sequence[View | Compute], views: Sequence[View | None],
                 sizes: Mapping[str, int]) -> str | None:
        """What is left out, or stored twice, at these sizes."""
        shape, strides = ([int(evaluate(n, sizes)) for n in numbers] for numbers in (buffer.shape, buffer.strides))
        wanted = math.prod(shape)
        counts = [math.prod(int(evaluate(n, sizes)) for n in (p.shape if isinstance(p, View) else dict(p.loops).values())) for p in pieces]
        if sum(counts) < wanted:
            return f"{buffer.name} is read when only {sum(counts)} of its {wanted} elements have been written"
        if sum(counts) > wanted:
            return f"{buffer.name} has {wanted} elements, but {sum(counts)} are stored in it"
        if not wanted or (size := int(evaluate(buffer.numel, sizes))) > MOST_MARKED:
            return None
        times = np.zeros(size, np.bool_)
        for piece, view in zip(pieces, views, strict=True):
            _mark(times, piece, view, sizes)
        seen = np.lib.stride_tricks.as_strided(times, shape, strides)
        return None if seen.all() else f"{buffer.name} is read before its element {tuple(map(int, np.argwhere(~seen)[0]))} is written"


def _mark(flat: np.ndarray, piece: View | Compute, view: View | None, sizes: Mapping[str, int]) -> None:
    """Mark the elements that a piece stores."""
    if view is not None:
        shape, strides = ([int(evaluate(n, sizes)) for n in numbers] for numbers in (view.shape, view.strides))
        if 0 not in shape:
            np.lib.stride_tricks.as_strided(flat[int(evaluate(view.offset, sizes)):], shape, strides)[...] = True
        return
    assert isinstance(piece, Compute)
    ranges = {name: int(evaluate(n, sizes)) for name, n in piece.loops}
    axes = {name: np.arange(n).reshape([-1 if k == at else 1 for k in range(len(ranges))]) for at, (name, n) in enumerate(ranges.items())}
    flat[np.broadcast_to(evaluate(piece.index, {**sizes, **axes}), list(ranges.values()))] = True
