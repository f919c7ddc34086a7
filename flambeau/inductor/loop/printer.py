"""What the printers of a kernel share: its loops merged and in order, its bodies connected, names for what is computed."""

from __future__ import annotations

import functools
import math
from collections.abc import Container, Iterator, Mapping, Sequence

from flambeau.core.dtypes import dtype
from flambeau.core.expr import Expr, Index, coefficient, free_variables, substitute, var
from flambeau.core.locks import cached_property
from flambeau.core.scalar import FOLDS, TABLE, compute_dtype
from flambeau.inductor.loop.ir import Program, Tracer, Value, varies_with
from flambeau.inductor.loop.scheduler import Kernel, Member, kernel_var, lie_apart, rewrite

TILE = 32                    # of transposed copies: their lines on both sides stay in cache
CACHE_LINE = 64
SHORT_LOOP = 16              # iterations, of which vectors are made with difficulty
COLLIDING = 512              # lines a multiple of so many elements apart share few places in a cache
SCATTERED = 10               # the cost of an index that is divided, and of the load that gathers by it


class KernelPrinter:
    """Prints one kernel. A language says how values are computed, loaded and stored, and in which loops."""

    rounds_folds = True     # whether members that read a narrow fold see it as it is stored

    def __init__(self, kernel: Kernel, program: Program, stored: set[str], tiles: bool = False):
        self.kernel, self.program = kernel, program
        self.tiles = tiles                        # transposed copies may go through tiles
        self.stored = stored                      # buffers that someone outside the kernel reads
        self.tracer = Tracer()
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[int, str] = {}           # value uid -> variable, in the scopes now open
        self.scopes: list[list[int]] = [[]]
        self.pointers: dict[str, int] = {}        # buffer -> parameter number
        self.symbols: set[str] = set()
        self.sizes = dict(enumerate(kernel.sizes))
        self.merged: list[dict[str, Index]] = []  # substitutions that make one loop of two
        self.levels: list[int] = []
        self.kept: set[str] = set()               # buffers that a later pass reads
        self.roots: list[Value] = []
        self.computed: list[dict[str, Value]] = []
        self.masks: list[Value | None] = []
        self.written: set[str] = set()
        self.tiled = False                        # the innermost two loops go through tiles
        self.count = 0

    # --- preparation ---

    def prepare(self) -> None:
        """Merge loops, choose their order, and bring all bodies over the kernel's variables into one DAG."""
        kernel = self.kernel
        split = kernel.split if kernel.split is not None else len(kernel.sizes)
        self.outer = list(range(split))
        self.inner = list(range(split, len(kernel.sizes)))
        self.indices = self._indices()
        for part in (self.outer, self.inner):
            self._merge_loops(part)
        if kernel.style == "columns":
            self._order_columns()
        elif kernel.style == "rows" and kernel.split is None:
            self._order_pointwise()
        order = self.outer + self.inner
        if kernel.style == "columns" and self.outer:  # the vectorised loop is innermost
            order = self.outer[:-1] + self.inner + self.outer[-1:]
        self.depth = {f"x{k}": position + 1 for position, k in enumerate(order)}
        self.innermost = f"x{order[-1]}" if order else ""
        self.rows = len(self.outer)
        self._offsets()

    def at(self, member: Member, index: Index) -> Index:
        """A step's index over the kernel's merged loops."""
        index = substitute(index, member.subs)
        for change in self.merged:
            index = substitute(index, change)
        return index

    def _indices(self) -> list[Expr]:
        found: dict[Index, None] = {}
        for m in self.kernel.members:
            found[substitute(m.step.index, m.subs)] = None
            for v in m.step.values:
                if v.op in ("load", "index"):
                    found[substitute(v.attr.index if v.op == "load" else v.attr, m.subs)] = None
        return [x for x in found if isinstance(x, Expr)]

    def _merge_loops(self, part: list[int]) -> None:
        """Make one loop of two adjacent ones wherever all indices go through both evenly, or memory is contiguous for a few
        elements only along the second and what goes along the first alone, such as a group's mean, can be kept in an array."""
        position = len(part) - 2
        while position >= 0:
            a, b = part[position], part[position + 1]
            size = self.sizes[b]
            uneven = [x for x in self.indices if not _even(x, a, b, size)]
            if not uneven or self._are_groups(a, b, uneven, part):
                both = kernel_var(b, self.sizes[a] * size)
                change: dict[str, Index] = {f"x{a}": both // size, f"x{b}": both % size} if uneven else {f"x{a}": 0, f"x{b}": both}
                self.merged.append(change)
                self.indices = [x for x in (substitute(x, change) for x in self.indices) if isinstance(x, Expr)]
                self.sizes[b] = self.sizes[a] * size
                del part[position]
            position -= 1

    def _are_groups(self, a: int, b: int, uneven: Sequence[Index], part: Sequence[int]) -> bool:
        size, others = self.sizes[b], math.prod([self.program.hint(self.sizes[k]) for k in part if k not in (a, b)])
        if self.kernel.style != "rows" or self.kernel.split is not None or not isinstance(size, int) or not 1 < size < SHORT_LOOP:
            return False
        near = sum(coefficient(x, f"x{b}") == 1 for x in self.indices)
        return others >= SHORT_LOOP and 2 * near > len(self.indices) - len(uneven) and all(
            coefficient(x, f"x{b}") == 0 and coefficient(x, f"x{a}") == 1 for x in uneven)

    @cached_property
    def _moved(self) -> list[tuple[str, Index, float]]:
        """(buffer, index, weight) of what is written and read, by the memory that it moves: what runs over part of the loops
        counts for less, and a computed position, which would be a gather along another loop, for more."""
        sizes = {f"x{k}": max(self.program.hint(n), 1) for k, n in self.sizes.items()}

        def elements(names: Container[str]) -> int:
            return math.prod([n for name, n in sizes.items() if name in names])
        found = []
        for m in self.kernel.members:
            index = self.at(m, m.step.index)
            found.append((m.step.buffer, index, 1.5 * elements(free_variables(index))))
            over = varies_with(m.step.values, functools.partial(self.at, m))
            found += [(v.attr.buffer, self.at(m, v.attr.index), (2.0 if v.attr.names else 1.0) * elements(over[v.uid]))
                      for v in m.step.values if v.op == "load"]
        return found

    def _accesses(self, inside: bool = True, stores: bool = True) -> list[tuple[Index, float]]:
        """Indices and weights of `_moved`; `inside`: also of buffers that only the kernel itself knows."""
        hidden = (set() if inside else self.kernel.writes - self.stored) | (set() if stores else self.kernel.writes)
        return [(index, weight) for buffer, index, weight in self._moved if buffer not in hidden]

    def _contiguous(self, loops: Sequence[int], stores: bool = True) -> dict[int, float]:
        """For each loop, the weight of the accesses that are contiguous along it."""
        accesses = self._accesses(stores=stores)
        return {k: sum(weight for index, weight in accesses if coefficient(index, f"x{k}") == 1)
                if self.program.hint(self.sizes[k]) >= 4 else 0 for k in loops}

    def _order_pointwise(self) -> None:
        """Innermost the loop along which most accesses are contiguous; the others by the strides of the first store."""
        if not self.outer:
            return
        first = self.kernel.members[0]
        target = self.at(first, first.step.index)
        score = self._contiguous(self.outer)

        def stride(k: int) -> float:
            c = coefficient(target, f"x{k}")
            return float(self.program.hint(c)) if c is not None else 0.0
        best = max(self.outer, key=lambda k: (score[k], -stride(k)))
        self.outer = sorted((k for k in self.outer if k != best), key=stride, reverse=True)
        self.inner = [best]
        across = self._across(best) if self.tiles else None
        if across is not None:
            loads = self._contiguous([best, across], stores=False)
            lines = any(self.collides(x, best) for x, _ in self._accesses(stores=False))
            turned = lines and not self.costly and loads[across] > loads[best]
            self.outer = [k for k in self.outer if k != across] + [best if turned else across]
            self.inner = [across if turned else best]
            self.tiled = True

    @cached_property
    def costly(self) -> bool:
        """Whether vectors are worth a copy of what is read."""
        return sum(TABLE[v.op].cost for m in self.kernel.members for v in m.step.values if v.op in TABLE) >= SCATTERED

    def collides(self, index: Index, k: int) -> bool:
        """Whether elements along loop `k` lie so far apart that those of a tile don't stay in cache together."""
        stride = coefficient(index, f"x{k}")
        hint = self.program.hint(stride) if stride is not None else 0
        return hint != 0 and hint % COLLIDING == 0

    def _across(self, inner: int) -> int | None:
        """The loop along which most is contiguous of what is strided along `inner`, as one side of a transposed copy is."""
        weights: dict[int, float] = {}
        for index, weight in self._accesses(inside=False):
            stride = coefficient(index, f"x{inner}")
            if stride is None or abs(self.program.hint(stride)) < CACHE_LINE // 4:
                continue
            for k in self.outer:
                if coefficient(index, f"x{k}") == 1 and self.program.hint(self.sizes[k]) >= TILE // 2:
                    weights[k] = weights.get(k, 0.0) + weight
        full = math.prod([max(self.program.hint(self.sizes[k]), 1) for k in [*self.outer, inner]])
        best = max(weights, key=lambda k: weights[k], default=None)
        return best if best is not None and weights[best] >= full and self.program.hint(self.sizes[inner]) >= TILE // 4 else None

    def _order_columns(self) -> None:
        """Last among the kept loops the one along which the folded elements are contiguous, and the fewest lie apart."""
        score = self._contiguous(self.outer)
        loads = [self.at(m, a.index) for m in self.kernel.members for a in m.step.loads]
        best = max(self.outer, key=lambda k: (score[k] > 0, -lie_apart(loads, f"x{k}"), score[k], k))
        self.outer = [k for k in self.outer if k != best] + [best]

    def _offsets(self) -> None:
        """The constant part of a buffer's indices, where all agree, moves into the pointer."""
        fixed: dict[str, set] = {}
        for m in self.kernel.members:
            for buffer, index in [(m.step.buffer, m.step.index)] + [(a.buffer, a.index) for a in m.step.loads]:
                at = self.at(m, index)
                fixed.setdefault(buffer, set()).add(at.terms.get((), 0) if isinstance(at, Expr) else at)
        self.offset = {buffer: found.pop() if len(found) == 1 else 0 for buffer, found in fixed.items()}

    def connect(self) -> None:
        """Rewrite the members' bodies, each load of a value that the kernel itself computes replaced by that value.

        `levels` orders members into passes: what depends on a fold over the row comes after it.
        """
        forward = self.given()
        maker: dict[str, int] = {}
        members = self.kernel.members
        for position, m in enumerate(members):
            makers = [maker[access.buffer] for access in m.step.loads if access.buffer in maker]
            level = max((self.levels[p] + (members[p].step.kind in FOLDS) for p in makers), default=0)
            self.levels.append(level)
            kept = {members[p].step.buffer for p in makers if self.is_kept(members[p], self.levels[p] != level)}
            self.kept |= kept
            known = {a.buffer: forward[a.buffer] for a in m.step.loads if a.buffer in forward and a.buffer not in kept}
            roots = [m.step.body, *m.step.index_values.values(), *([m.step.mask] if m.step.mask is not None else [])]
            new = rewrite(roots, self.tracer, functools.partial(self.at, m), None, known)
            self.roots.append(new[m.step.body.uid])
            self.computed.append({name: new[v.uid] for name, v in m.step.index_values.items()})
            self.masks.append(new[m.step.mask.uid] if m.step.mask is not None else None)
            maker[m.step.buffer] = position
            made, kind = self.root(position), self.program.buffers[m.step.buffer].dtype
            forward[m.step.buffer] = self.as_stored(made, kind) if m.step.kind not in FOLDS or self.rounds_folds else made

    def passes(self) -> Iterator[tuple[list[int], list[int]]]:
        """Level by level: the members that run once a row, and those that go along it."""
        for level in range(max(self.levels) + 1):
            members = [k for k, found in enumerate(self.levels) if found == level]
            yield [k for k in members if not self.kernel.members[k].full], [k for k in members if self.kernel.members[k].full]

    def given(self) -> dict[str, Value]:
        """Buffers whose elements are at hand when the bodies run."""
        return {}

    def is_kept(self, producer: Member, later: bool) -> bool:
        """Whether a value goes through memory to a reader, in a later pass or the same; else it is there, or computed again."""
        return False

    def as_stored(self, v: Value, kind: dtype) -> Value:
        """A value as a reader of the buffer would see it: narrow floats lose their extra digits."""
        return v if compute_dtype(kind) is kind else self.tracer.rounded(v, kind, self.program.buffers)

    def root(self, member: int) -> Value:
        """What a member stores: its body, or its fold."""
        step = self.kernel.members[member].step
        if step.kind in FOLDS:
            return self.tracer.make("held", (), step.body.dtype, step.buffer)
        return self.roots[member]

    # --- text ---

    @staticmethod
    def to_text(x: Index) -> str:
        """An index expression in the printer's language."""
        raise NotImplementedError

    def emit(self, line: str) -> None:
        """One line at the current depth."""
        self.lines.append("    " * self.indent + line)

    def bind(self, v: Value, name: str) -> None:
        """Let `name` stand for `v` in the innermost block."""
        self.names[v.uid] = name
        self.scopes[-1].append(v.uid)

    def pointer(self, buffer: str) -> str:
        """The name of a buffer's pointer."""
        return f"p{self.pointers.setdefault(buffer, len(self.pointers))}"

    def expr(self, x: Index, computed: Mapping[str, Value] | None = None) -> str:
        """An index expression as text."""
        if computed:
            x = substitute(x, {name: var(self.names[v.uid], lo=0) for name, v in computed.items()})
        self.symbols.update(n for n in free_variables(x) if n[0] in "su" and n[1:].isdigit())
        return self.to_text(x)

    def walk_new(self, roots: Sequence[Value]) -> list[Value]:
        """Values below `roots` that have no variable yet, operands first."""
        seen: set[int] = set()
        order: list[Value] = []
        stack = [(r, False) for r in reversed(roots)]
        while stack:
            v, done = stack.pop()
            if done:
                order.append(v)
            elif v.uid not in seen and v.uid not in self.names:
                seen.add(v.uid)
                stack.append((v, True))
                stack.extend((a, False) for a in reversed(v.args))
        return order


def _even(x: Index, a: int, b: int, size: Index) -> bool:
    """Whether `x` moves through loop a in steps of b's whole length."""
    outer, inner = coefficient(x, f"x{a}"), coefficient(x, f"x{b}")
    if outer is None or inner is None:
        return False
    product = inner * size
    return product is outer or (isinstance(product, int) and product == outer)
