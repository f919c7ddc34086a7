"""Triton for folds over rows that are too long for registers: loops over a row, as few as its folds allow.

A row is read in tiles of K x L elements. L is what one load of all threads brings, 16 bytes each where rows are aligned, so that
folds over K stay within a thread, and accumulators have L elements. Tiles that are whole need no masks; the rest of the row is
one tile more. Folds that would need the result of an earlier fold of the same elements join its loop:

- `sum(exp(x - t))` where the maximum of x is folded before (softmax, cross entropy): the sum is kept relative to the largest
  element so far, and scaled when that grows (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax");
- `sum((x - t)^2)` where the sum of x is folded before (variances): counts, means and squares of tiles are combined as by Chan,
  Golub and LeVeque (1979, "Updating formulae and a pairwise algorithm for computing sample variances").

Both give the sum for any t that is known once the earlier fold is. Loops run forward and backward by turns, and few rows are
worked on at a time, so that the next loop finds in the cache what the last one read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau.core.dtypes import float32
from flambeau.core.expr import Index, free_variables, substitute
from flambeau.core.scalar import FOLDS
from flambeau.inductor.gpu.triton import TritonKernel, TritonPrinter, longest_row, power_of_two, rows_loaded
from flambeau.inductor.loop.ir import Program, Value
from flambeau.inductor.loop.scheduler import Kernel

WORD = 16               # bytes of a thread's load
WARPS = 16
SCATTERED_WARPS = 32    # where rows are not aligned: their loads bring less each


class Joined(NamedTuple):
    """A fold that runs in the loop of an earlier one: `first` folds x, this one exp(x - shift) or its square."""

    kind: str
    first: int
    shift: Value


class LongRows(TritonPrinter):
    """Prints a kernel whose rows are looped over."""

    def _choose_tiles(self, pointwise: bool) -> None:
        self.persistent, self.x_tile = False, 1
        self.x_masks = ()           # a program for each row
        inner = self.program.hint(self.r_size)
        lanes, loaded = self._lanes(), rows_loaded(self.kernel, self.program)
        each = max(lanes, (32 if lanes == 8 else 16) * 2 // power_of_two(max(2, len(loaded))))      # elements of a thread
        self.num_warps = WARPS if lanes > 1 else SCATTERED_WARPS
        while self.num_warps > 4 and 2 * self.num_warps * 32 * each > inner:
            self.num_warps //= 2
        self.r_tile = self.num_warps * 32 * lanes
        self.stack = each // lanes
        self.tile_shape = "[KBLOCK, RBLOCK]"

    def _lanes(self) -> int:
        """How many elements a thread loads at once."""
        found = 1
        for name, index in rows_loaded(self.kernel, self.program).items():
            kind = self.program.buffers[name].dtype
            lanes, split = WORD // kind.itemsize, self.kernel.split or 0
            base = substitute(index, {f"x{k}": 0 for k in range(split, len(self.kernel.sizes))})
            rest = base % lanes
            if isinstance(rest, int) and rest == 0 and name not in self.program.assumed.unaligned:
                found = max(found, lanes)
        return found

    def _constants(self) -> dict[str, int]:
        return {"XBLOCK": 1, "RBLOCK": self.r_tile, "KBLOCK": self.stack}

    def _looped(self) -> None:
        """Level by level: what runs once a row, then one loop over the row for everything else."""
        self.joined = {k: found for k in range(len(self.levels)) if (found := self._joins(k)) is not None}
        by_level = [[k for k in range(len(self.levels)) if self.levels[k] == level] for level in range(max(self.levels) + 1)]
        loops = [[k for k in members if self.kernel.members[k].full and k not in self.joined] for members in by_level]
        self.left = sum(map(bool, loops))
        self.many = self.left > 1
        size, step = self.expr(self.r_size), self.r_tile * self.stack
        self.emit(f"lanes = tl.arange(0, KBLOCK)[:, None] * {self.r_tile} + tl.arange(0, RBLOCK)[None, :]{self._wide()}")
        self.emit(f"whole = ({size}) // {step} * {step}")
        for members, full in zip(by_level, loops):
            for k in members:
                if k in self.joined:
                    self._finish_joined(k)
                elif not self.kernel.members[k].full:
                    self._define_below(k)
                    self._store(k)
            if full:
                self._loop(full)

    def _loop(self, full: Sequence[int]) -> None:
        """One loop over the row, and what it folds."""
        self._define_outside(full)
        folds = [k for k in full if self.kernel.members[k].step.kind in FOLDS]
        for k in folds:
            self._begin(k, "[1, RBLOCK]")
            for j in self._joined_to(k):
                self._begin_joined(j)
        step = self.r_tile * self.stack
        forward = self.left % 2 == 0 or not self.many     # the last loop of several runs backward
        parts = [("for start in range(0, whole, {0}):" if forward else "for back in range(0, whole, {0}):", ()),
                 (f"for start in range(whole, {self.expr(self.r_size)}, {{0}}):", ("rmask",))]
        for head, masks in parts if forward else parts[::-1]:
            if masks and isinstance(self.r_size, int) and self.r_size % step == 0:
                continue
            self.emit(head.format(step))
            self.indent += 1
            if "back" in head:
                self.emit(f"start = whole - {step} - back")
            self.row_masks = masks
            self._body(full, folds)
            self.indent -= 1
        self.left -= 1
        for k in folds:
            self._hold(k, self._fold_of(k).tile.format(f"acc{k}", 1))
            self._store(k)

    def _rows_of_r(self, start: str) -> None:
        self.emit(f"r = {start}lanes")
        if self.row_masks:
            self.emit(f"rmask = r < {self.expr(self.r_size)}")
        self._split("r", self.r_loops)

    def _accumulate(self, k: int) -> None:
        fold, combine = self._fold_of(k).tile, self._fold_of(k).combine.triton
        self.emit(f"tile{k} = tl.broadcast_to({self._masked_value(k)}, {self.tile_shape})")
        self.emit(f"part{k} = ({fold.format(f'tile{k}', 0)})[None, :]")
        joined = self._joined_to(k)
        if not joined:
            self.emit(f"acc{k} = {combine.format(f'acc{k}', f'part{k}')}")
            return
        self.emit(f"next{k} = {combine.format(f'acc{k}', f'part{k}')}")
        for j in joined:
            PARTS[self.joined[j].kind](self, j, k)
        self.emit(f"acc{k} = next{k}")

    def _policy(self, index: Index, member: Any = None, stored: bool = False) -> str:
        used = free_variables(index if member is None else self.at(member, index))
        if not self.many or not any(f"x{k}" in used for k in self.r_loops) or not any(f"x{k}" in used for k in self.x_loops):
            return ""
        if stored:
            return ", cache_modifier='.cs'"
        return f", eviction_policy='evict_{'last' if self.left > 1 else 'first'}'"

    # -- folds that join the loop of an earlier one --

    def _joins(self, k: int) -> Joined | None:
        """Which earlier fold's loop the fold `k` can run in."""
        step, root = self.kernel.members[k].step, self.roots[k]
        if step.kind != "sum" or not self.kernel.members[k].full or root.dtype is not float32:
            return None
        kind, difference = ("max", root.args[0]) if root.op == "exp" else ("sum", root.args[0]) if (
            root.op == "mul" and root.args[0] is root.args[1]) else ("", root)
        if not kind or difference.op != "sub":
            return None
        x, shift = difference.args
        for first, member in enumerate(self.kernel.members):
            if self.levels[first] < self.levels[k] and member.full and member.step.kind == kind and self.roots[first] is x \
                    and x.dtype is float32 and self._moves(shift, {}) == 0:
                return Joined(kind, first, shift)
        return None

    def _joined_to(self, first: int) -> list[int]:
        return [k for k, joined in self.joined.items() if joined.first == first]

    def _begin_joined(self, k: int) -> None:
        for name in ("scaled",) if self.joined[k].kind == "max" else ("count", "mean", "squares"):
            self.emit(f"{name}{k} = tl.zeros([1, RBLOCK], tl.float{32 if name == 'count' else 64})")

    def _add_exponentials(self, k: int, first: int) -> None:
        """exp of the tile relative to the largest elements so far; infinite ones count for themselves."""
        self.emit(f"top{k} = tl.where(tl.abs(next{first}) == float('inf'), 0.0, next{first})")
        self.emit(f"scaled{k} = scaled{k} * tl.exp(acc{first} - top{k}) + tl.sum(tl.exp(tile{first} - top{k}), 0)[None, :]")

    def _add_squares(self, k: int, first: int) -> None:
        """The tile's count, mean and squares around it, combined with those so far."""
        emit, tile = self.emit, f"tile{first}"
        if self.row_masks:
            emit(f"more{k} = tl.sum(tl.where(rmask, 1.0, 0.0), 0)[None, :]")
            emit(f"center{k} = part{first} / tl.maximum(more{k}, 1.0)")
            emit(f"off{k} = tl.where(rmask, {tile} - center{k}, 0.0)")
        else:
            emit(f"more{k} = tl.full([1, RBLOCK], {self.stack}, tl.float32)")
            emit(f"center{k} = part{first} / {self.stack}")
            emit(f"off{k} = {tile} - center{k}")
        emit(f"share{k} = more{k} / tl.maximum(count{k} + more{k}, 1.0)")
        emit(f"apart{k} = (center{k} - mean{k}).to(tl.float32)")
        emit(f"squares{k} += tl.sum(off{k} * off{k}, 0)[None, :] + apart{k} * apart{k} * count{k} * share{k}")
        emit(f"mean{k} += apart{k} * share{k}")
        emit(f"count{k} += more{k}")

    def _finish_joined(self, k: int) -> None:
        """The sum for the shift that is known by now."""
        _, first, shift = self.joined[k]
        for v in self.walk_new([shift]):
            self.define(v)
        t = self.names[shift.uid]
        if self.joined[k].kind == "max":
            text = f"scaled{k} * tl.exp(acc{first} - {t})"
        else:
            text = f"squares{k} + count{k} * (mean{k} - {t}) * (mean{k} - {t})"
        self._hold(k, f"tl.sum({text}, 1)")
        self._store(k)


PARTS = {"max": LongRows._add_exponentials, "sum": LongRows._add_squares}


def print_triton(kernel: Kernel, program: Program, stored: set[str]) -> TritonKernel:
    """`kernel` as a Triton function; `stored` are the buffers that others read."""
    if kernel.style != "rows" or kernel.split is None:
        return TritonPrinter(kernel, program, stored).print()
    size = math.prod(kernel.sizes[kernel.split:])
    short = isinstance(size, int) and size <= longest_row(kernel, program, stored)
    return (TritonPrinter if short else LongRows)(kernel, program, stored).print()
