"""C++ for a scheduled program: one translation unit, one function `run`.

Kernels are static functions of pointers and sizes; equal texts are printed once and called with different pointers, so the
layers of a transformer share their code. Loops over rows are spread over threads (OpenMP) where there is enough work;
innermost loops are `omp simd` over restricted pointers and the header's branch-free functions, which GCC vectorises.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from flambeau.core.dtypes import INT, bfloat16, bool_, dtype, float32, int64
from flambeau.core.expr import Expr, Index, bounds, coefficient, free_variables, is_var, to_cpp
from flambeau.core.scalar import BOOL, TABLE
from flambeau.core.symbolic import SymFloat
from flambeau.inductor.library.cpp import CPP_TYPES, constant_text
from flambeau.inductor.loop.ir import Access, Program, Value, computed_names, walk
from flambeau.inductor.loop.printer import SCATTERED, KernelPrinter
from flambeau.inductor.loop.scheduler import Kernel, Member, kernel_var

LARGEST_SCRATCH = 1 << 15    # bytes of a row kept on the stack
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


class CppPrinter(KernelPrinter):
    """Prints one kernel's values, loads and stores as C++; loops.py puts them into loops."""

    to_text = staticmethod(to_cpp)
    rounds_folds = False

    def __init__(self, kernel: Kernel, program: Program, stored: set[str]):
        super().__init__(kernel, program, stored, tiles=True)
        self.scratch: dict[str, str] = {}         # buffers that live in a row's scratch
        self.scratch_size: dict[str, int] = {}
        self.alias: dict[str, str] = {}           # buffers that live where a result will be
        self.turned: dict[int, str] = {}          # members that are stored by way of a tile, and where in it
        self.parallel = False
        self.checks = False                       # whether an index may turn out to be out of bounds
        self.narrow = False
        self.far: set[str] = set()                # what of vectors.h it needs

    # --- preparation ---

    def connect(self) -> None:
        """A full value that a later pass reads goes through its buffer, or through scratch if nobody else wants it."""
        super().connect()
        self._place_rows()

    def is_kept(self, producer: Member, later: bool) -> bool:
        """Whether a value goes through memory to a reader: to one in a later pass."""
        return later and producer.full and producer.step.kind == "pointwise"

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

    # --- emission of values ---

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
        return self.scratch[buffer] if buffer in self.scratch else super().pointer(self.alias.get(buffer, buffer))

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
