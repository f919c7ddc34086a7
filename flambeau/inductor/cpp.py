"""C++ for a scheduled program: one translation unit, one function `run`.

Kernels are static functions of pointers and sizes; equal texts are printed once and called with different pointers, so the
layers of a transformer share their code. Loops over rows are spread over threads (OpenMP) where there is enough work;
innermost loops are `omp simd` over restricted pointers and the header's branch-free functions, which GCC vectorises.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.core.dtypes import INT, bfloat16, bool_, dtype, float32, int64
from flambeau.core.expr import Expr, Index, bounds, coefficient, free_variables, is_var, substitute, to_cpp, var
from flambeau.core.scalar import BOOL, FOLDS, TABLE, compute_dtype
from flambeau.core.symbolic import SymFloat
from flambeau.inductor.ir import Access, Program, Tracer, Value, computed_names, varies_with, walk
from flambeau.inductor.scheduler import Kernel, Member, kernel_var, lie_apart, rewrite

CPP_TYPES = {
    "bool": "bool", "uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "uint32": "uint32_t", "uint64": "uint64_t", "float16": "fl::float16", "bfloat16": "fl::bfloat16", "float32": "float",
    "float64": "double",
}
MEMORY_TYPES = {**CPP_TYPES, "bool": "uint8_t"}  # as what it is loaded and stored: GCC 12 does not vectorise over bool loads
PARALLEL_FROM = 1 << 15      # units of work (an addition or load of one element)
LARGEST_SCRATCH = 1 << 15    # bytes of a row kept on the stack
COLUMN_BLOCK = 64
INNER_BLOCK = 4096
TILE = 32                    # of transposed copies: their lines on both sides stay in cache
CACHE_LINE = 64
SHORT_LOOP = 16              # iterations, of which vectors are made with difficulty
COLLIDING = 512              # lines a multiple of so many elements apart share few places in a cache
SCATTERED = 10               # the cost of an index that is divided, and of the load that gathers by it
WORTH_AN_ARRAY = 4           # the cost from which values that a loop computes again and again are kept


def _was_float(x: Value) -> bool:
    """Whether an integer was made of a float."""
    if x.dtype.category != INT:
        return False
    while x.op == "to_dtype" and not x.dtype.is_floating_point:
        x = x.args[0]
    return x.dtype.is_floating_point


@dataclass
class Printed:
    """A kernel's text: parameters in order as (buffer, offset in elements, written), and the sizes it needs."""

    name: str
    text: str
    pointers: list[tuple[str, Index]]
    symbols: list[str]
    parallel: bool
    checks: bool = False
    far: frozenset[str] = frozenset()       # what of vectors.h it needs
    narrow: bool = False            # whether sizes are compared as 32-bit integers, which those from 2^30 on don't fit


def constant_text(value: Any, kind: dtype) -> str:
    """A number as C++."""
    name = CPP_TYPES[kind.name]
    if isinstance(value, SymFloat):
        return f"{name}({value.to_cpp()})"
    if kind is bool_:
        return "true" if value else "false"
    if kind.is_floating_point:
        suffix = "f" if name == "float" else ""
        value = float(value)
        if value != value:
            return f"__builtin_nan{suffix}(\"\")"
        if value in (float("inf"), float("-inf")):
            return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
        return f"{value!r}{suffix}" if value >= 0 and repr(value)[0] != "-" else f"({value!r}{suffix})"
    if name == "int64_t":
        return "(-9223372036854775807L - 1)" if value == -2**63 else f"{value}L" if value >= 0 else f"({value}L)"
    return f"{name}({value}{'UL' if name == 'uint64_t' else ''})"


class KernelPrinter:
    """Prints one kernel."""

    to_text = staticmethod(to_cpp)      # of index expressions
    rounds_folds = False                # whether members that read a narrow fold see it as it is stored

    def __init__(self, kernel: Kernel, program: Program, stored: set[str], tiles: bool = False):
        self.kernel, self.program = kernel, program
        self.tiles = tiles                        # transposed copies may go through tiles
        self.stored = stored                      # buffers that someone outside the kernel reads
        self.tracer = Tracer()
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[int, str] = {}           # value uid -> C++ variable, in the scopes now open
        self.scopes: list[list[int]] = [[]]
        self.pointers: dict[str, int] = {}        # buffer -> parameter number
        self.symbols: set[str] = set()
        self.scratch: dict[str, str] = {}         # buffers that live in a row's scratch
        self.scratch_size: dict[str, int] = {}
        self.alias: dict[str, str] = {}           # buffers that live where a result will be
        self.sizes = dict(enumerate(kernel.sizes))
        self.merged: list[dict[str, Index]] = []  # substitutions that make one loop of two
        self.levels: list[int] = []
        self.kept: set[str] = set()               # buffers that a later pass reads
        self.roots: list[Value] = []
        self.computed: list[dict[str, Value]] = []
        self.masks: list[Value | None] = []
        self.written: set[str] = set()
        self.tiled = False                        # the innermost two loops go through tiles
        self.turned: dict[int, str] = {}          # members that are stored by way of a tile, and where in it
        self.parallel = False
        self.checks = False                       # whether an index may turn out to be out of bounds
        self.narrow = False
        self.far: set[str] = set()                # what of vectors.h it needs
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

    @functools.cached_property
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

    @functools.cached_property
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

        `levels` orders members into passes: what depends on a fold over the row comes after it. A full value that a
        later pass reads goes through its buffer, or through scratch if nobody else wants it.
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
        self._place_rows()

    def given(self) -> dict[str, Value]:
        """Buffers whose elements are at hand when the bodies run."""
        return {}

    def is_kept(self, producer: Member, later: bool) -> bool:
        """Whether a value goes through memory to a reader, in a later pass or the same."""
        return later and producer.full and producer.step.kind == "pointwise"

    def as_stored(self, v: Value, kind: dtype) -> Value:
        """A value as a reader of the buffer would see it: narrow floats lose their extra digits."""
        return v if compute_dtype(kind) is kind else self.tracer.rounded(v, kind, self.program.buffers)

    def _place_rows(self) -> None:
        """Scratch on the stack for short rows that no other kernel reads."""
        length = math.prod([self.sizes[k] for k in self.inner])
        for buffer in sorted(self.kept - self.stored):
            kind = self.program.buffers[buffer].dtype
            if isinstance(length, int) and length * kind.itemsize <= LARGEST_SCRATCH and self.kernel.style == "rows":
                self.scratch[buffer] = f"row{len(self.scratch)}"
                self.scratch_size[buffer] = length
            else:
                self._share_result(buffer)

    def _share_result(self, buffer: str) -> None:
        """Keep `buffer` where a result of the same layout goes that is written when `buffer` is read for the last time."""
        members = self.kernel.members
        mine = next(k for k, m in enumerate(members) if m.step.buffer == buffer)
        last = max(level for m, level in zip(members, self.levels, strict=True) if buffer in m.step.reads)
        for k, m in enumerate(members):
            other = m.step.buffer
            if (other in self.stored and other not in self.alias.values() and self.levels[k] == last and m.full
                    and m.step.kind == "pointwise" and other not in self.kept
                    and self.program.buffers[other].dtype is self.program.buffers[buffer].dtype
                    and self.at(m, m.step.index) is self.at(members[mine], members[mine].step.index)
                    and self.offset.get(other) == self.offset.get(buffer)):
                self.alias[buffer] = other
                return

    # --- emission of values ---

    def emit(self, line: str) -> None:
        """One line at the current depth."""
        self.lines.append("    " * self.indent + line)

    def open(self, line: str) -> None:
        """Begin a block: values named inside it are forgotten when it closes."""
        self.emit(line + " {")
        self.indent += 1
        self.scopes.append([])

    def close(self) -> None:
        """End the block."""
        self.indent -= 1
        self.emit("}")
        for uid in self.scopes.pop():
            del self.names[uid]

    def pointer(self, buffer: str) -> str:
        """The C++ name of a buffer's pointer."""
        if buffer in self.scratch:
            return self.scratch[buffer]
        buffer = self.alias.get(buffer, buffer)
        return f"p{self.pointers.setdefault(buffer, len(self.pointers))}"

    def expr(self, x: Index, computed: Mapping[str, Value] | None = None) -> str:
        """An index expression as text."""
        if computed:
            x = substitute(x, {name: var(self.names[v.uid], lo=0) for name, v in computed.items()})
        self.symbols.update(n for n in free_variables(x) if n[0] in "su" and n[1:].isdigit())
        return self.to_text(x)

    def value_depth(self, v: Value, memo: dict[int, float]) -> float:
        """How many loops a value is inside of; what depends on a fold is half a level deeper than the row it is in."""
        if v.uid not in memo:
            depth = max((self.value_depth(a, memo) for a in v.args), default=0.0)
            if v.op in ("load", "index"):
                used = free_variables(v.attr.index if v.op == "load" else v.attr)
                depth = max([depth, *(self.depth.get(n, 0) for n in used)])
            elif v.op == "held":
                depth = self.rows + 0.5
            memo[v.uid] = depth
        return memo[v.uid]

    def define(self, v: Value, depth: float = 99) -> None:
        """Compute `v` into a C++ variable here, `depth` loops deep.

        Truth values that an inner loop takes from outside are 32-bit integers: GCC does not vectorise over bool ones.
        """
        name = f"t{self.count}"
        self.count += 1
        outside = v.dtype is bool_ and depth < len(self.outer) + len(self.inner)
        if outside:
            self.emit(f"int32_t {name} = {self.text(v)};")
            self.emit(f"FL_FORGET({name});")
        else:
            self.emit(f"const {CPP_TYPES[v.dtype.name]} {name} = {self.text(v)};")
        self.bind(v, name)

    def bind(self, v: Value, name: str) -> None:
        """Let `name` stand for `v` in the innermost block."""
        self.names[v.uid] = name
        self.scopes[-1].append(v.uid)

    def invariants(self, roots: Sequence[Value], inner: str, around: Collection[str]) -> list[Value]:
        """What the loop `inner` would compute, at some cost, anew in all iterations of the loops `around`."""
        used: dict[int, frozenset[str]] = {}
        cost: dict[int, float] = {}
        users: dict[int, list[Value]] = {}
        order = walk(roots)
        for v in order:
            place = v.attr.index if v.op == "load" else v.attr if v.op == "index" else 0
            used[v.uid] = free_variables(place).union({"held"} if v.op == "held" else (), *(used[a.uid] for a in v.args))
            own = SCATTERED if coefficient(place, inner) is None else TABLE[v.op].cost if v.op in TABLE else 0
            cost[v.uid] = own + sum(cost[a.uid] for a in v.args)
            for a in v.args:
                users.setdefault(a.uid, []).append(v)
        stays = {v.uid: inner in used[v.uid] and used[v.uid].isdisjoint({*around, "held"}) and v.dtype is not bool_ for v in order}
        return [v for v in order if stays[v.uid] and cost[v.uid] >= WORTH_AN_ARRAY
                and not all(stays[u.uid] for u in users.get(v.uid, [v]))]

    def keep_along(self, values: Sequence[Value], loop: str, names: str, length: int, place: str, memo: dict[int, float],
                   simd: bool = True) -> None:
        """Compute `values` in a loop of their own into arrays, which stand for them from here on."""
        if not values:
            return
        arrays = [f"{names}{k}" for k in range(len(values))]
        for v, array in zip(values, arrays, strict=True):
            self.emit(f"alignas(64) {CPP_TYPES[v.dtype.name]} {array}[{length}];")
        if simd:
            self.emit("#pragma omp simd")
        self.open(loop)
        self.need(values, 99, memo)
        for v, array in zip(values, arrays, strict=True):
            self.emit(f"{array}[{place}] = {self.names[v.uid]};")
        self.close()
        for v, array in zip(values, arrays, strict=True):
            self.bind(v, f"{array}[{place}]")

    def is_outside(self, v: Value) -> bool:
        """Whether a value that has a variable is known before the innermost loop."""
        return any(v.uid in scope for scope in self.scopes[:-1])

    def is_strided(self, v: Value) -> bool:
        """Whether a value is loaded from places apart in the innermost loop: GCC would branch, to load it only if it is selected."""
        return v.op == "load" and coefficient(v.attr.index, self.innermost) not in (0, 1)

    def text(self, v: Value) -> str:
        """The C++ expression of `v` over its operands' variables."""
        args = [self.names[a.uid] for a in v.args]
        kind = CPP_TYPES[v.dtype.name]
        if v.op == "load":
            return self.load_text(v.attr, v, args)
        if v.op == "constant":
            if isinstance(v.attr, SymFloat):
                self.symbols.update(v.attr.variables)
            return constant_text(v.attr, v.dtype)
        if v.op == "index":
            return f"{kind}({self.expr(v.attr, dict(zip(computed_names(v.attr), v.args, strict=True)))})"
        if v.op == "to_dtype":
            made = self.as_kind(args[0], v.args[0].dtype, v.dtype)
            return f"fl::whole<{kind}>({made})" if v.dtype.is_floating_point and _was_float(v.args[0]) else made
        if v.op == "checked":
            self.checks = True
            return f"fl::checked({args[0]}, {args[1]}, {self.expr(v.attr)})"
        if v.op == "round_to":
            return f"fl::round_to_{v.attr.name}({args[0]})"
        if v.op == "bitcast":
            return f"fl::bits<{kind}>({args[0]})"
        row = TABLE[v.op]
        if row.result == BOOL and all(a.op in ("index", "constant") and a.dtype is int64 and not a.args for a in v.args):
            sides = [a.attr for a in v.args]
            if all(self.is_narrow(x) for x in sides):
                self.narrow |= not all(map(_fits, sides))
                return row.cpp.format(*(f"int32_t({self.expr(x)})" for x in sides))
        if row.wraps and v.dtype.category == INT:
            return f"fl::{v.op}({', '.join(args)})"
        if row.far:
            self.far.add(row.far)
        template = row.cpp
        if v.op == "where" and v.dtype is not bool_ and (self.is_outside(v.args[0]) or any(map(self.is_strided, v.args[1:]))):
            return f"fl::select({', '.join(args)})"
        if v.op == "where" and v.dtype is int64 and any(map(self.is_outside, v.args[1:])):
            return f"fl::select(int32_t({args[0]}), {args[1]}, {args[2]})"
        if "fl::" in template:  # overloads are chosen by type
            args = [f"bool({a})" if x.dtype is bool_ else a for a, x in zip(args, v.args, strict=True)]
        return template.format(*args)

    def is_narrow(self, x: Index) -> bool:
        """Whether `x` is sure to fit 32 bits, which vectors compare twice as fast: by its bounds, or as a sum of one or two
        loop variables over whole dimensions (`run` refuses sizes from 2^30 then)."""
        if _fits(x):
            return True
        if not isinstance(x, Expr) or len(x.terms) > 2:
            return False
        for m, c in x.terms.items():
            if not m:
                if abs(c) >= 2**30:
                    return False
                continue
            atom, power = m[0]
            size = atom.size if atom.kind == "var" else None
            if len(m) > 1 or power > 1 or abs(c) != 1 or (size is not None and not isinstance(size, int) and not is_var(size)):
                return False
            if size is None and not (atom.kind == "var" and atom.name[0] == "s"):
                return False
        return True

    def load_text(self, access: Access, v: Value, args: Sequence[str]) -> str:
        """A load, shifted by the pointer's offset."""
        computed = dict(zip(access.names, v.args, strict=False))
        place = self.place(access.buffer, access.index, computed)
        kind = CPP_TYPES[v.dtype.name]
        stored = self.program.buffers[access.buffer].dtype
        text = f"{place} != 0" if v.dtype is stored is bool_ else place if stored is v.dtype else f"{kind}({place})"
        return f"{args[-1]} ? {text} : {kind}(0)" if access.masked else text

    def place(self, buffer: str, index: Index, computed: Mapping[str, Value] | None = None) -> str:
        """`pointer[index]`."""
        if buffer in self.scratch:
            return f"{self.scratch[buffer]}[{self.expr(self.row_position())}]"
        return f"{self.pointer(buffer)}[{self.expr(index - self.offset.get(buffer, 0), computed)}]"

    def row_position(self) -> Index:
        """The position within a row that the inner loops are at."""
        position: Index = 0
        for k in self.inner:
            position = position * self.sizes[k] + kernel_var(k, self.sizes[k])
        return position

    def need(self, roots: Sequence[Value], depth: float, memo: dict[int, float]) -> None:
        """Define everything below `roots` that lies at most `depth` loops deep and has no variable yet."""
        for v in self.walk_new(roots):
            if self.value_depth(v, memo) <= depth and v.uid not in self.names:
                self.define(v, depth)

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

    def store(self, member: int) -> None:
        """Write a member's value to its buffer, if anyone reads it there."""
        m = self.kernel.members[member]
        buffer = self.program.buffers[m.step.buffer]
        if buffer.name not in self.stored and buffer.name not in self.kept:
            return
        root = self.root(member)
        if root.op == "round_to" and root.attr is buffer.dtype and root.args[0].uid in self.names:     # storing rounds
            root = root.args[0]
        text, kind = self.names[root.uid], root.dtype
        if member in self.turned:
            self.emit(f"{self.turned[member]} = {self.as_kind(text, kind, buffer.dtype)};")
        else:
            self.write(buffer.name, self.at(m, m.step.index), text, kind)

    def root(self, member: int) -> Value:
        """What a member stores: its body, or its fold."""
        step = self.kernel.members[member].step
        if step.kind in FOLDS:
            return self.tracer.make("held", (), step.body.dtype, step.buffer)
        return self.roots[member]

    def write(self, name: str, index: Index, text: str, kind: dtype, combine: str = "{1}",
              computed: Mapping[str, Value] | None = None) -> None:
        """`buffer[index] = combine(buffer[index], text)`."""
        buffer = self.program.buffers[name]
        self.written.add(self.alias.get(name, name))
        place = self.place(name, index, computed)
        text = combine.format(f"{CPP_TYPES[kind.name]}({place})", text)    # narrow floats have no arithmetic of their own
        self.emit(f"{place} = {text if buffer.dtype is bfloat16 else self.as_kind(text, kind, buffer.dtype)};")

    @staticmethod
    def as_kind(text: str, kind: dtype, wanted: dtype) -> str:
        """A value of `kind` as another dtype."""
        if wanted is kind:
            return text
        name = CPP_TYPES[wanted.name]
        if wanted is bool_:
            return f"{text} != 0"
        if kind.is_floating_point and not wanted.is_floating_point:
            return f"fl::integer<{name}>({text})"
        through = f"float({text})" if wanted.itemsize < 4 and wanted.is_floating_point and kind is not float32 else text
        return f"{name}({through})"


def _fits(x: Index) -> bool:
    lo, hi = bounds(x)
    return lo >= -2**31 and hi < 2**31


def _even(x: Index, a: int, b: int, size: Index) -> bool:
    """Whether `x` moves through loop a in steps of b's whole length."""
    outer, inner = coefficient(x, f"x{a}"), coefficient(x, f"x{b}")
    if outer is None or inner is None:
        return False
    product = inner * size
    return product is outer or (isinstance(product, int) and product == outer)


__all__ = ["CPP_TYPES", "MEMORY_TYPES", "KernelPrinter", "Printed", "constant_text"]
