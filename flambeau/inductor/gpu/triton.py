"""Triton for a scheduled program: one kernel function per scheduled `Kernel`, the same schedule that `cpp.py` prints.

A kernel works on tiles: `x` runs over its rows (for a pointwise kernel over everything), `r` over what it folds. A fold whose
row fits in registers is *persistent*: the whole row is one tile, read once. Longer rows are looped over (triton_rows.py), and so
are folds over outer loops. What a later level needs again is computed again. Narrow floats are loaded to f32 and rounded when
stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau.core.dtypes import INT, bool_, float64
from flambeau.core.expr import Expr, Index, free_variables, substitute, to_triton
from flambeau.core.scalar import FOLDS, TABLE, Fold
from flambeau.core.symbolic import SymFloat, SymInt
from flambeau.inductor.loop.ir import Access, Program, Value, computed_names, walk
from flambeau.inductor.loop.printer import KernelPrinter
from flambeau.inductor.loop.scheduler import Kernel

TRITON_TYPES = {
    "bool": "int1", "uint8": "uint8", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "uint16": "uint16",
    "uint32": "uint32", "uint64": "uint64", "float16": "float16", "bfloat16": "bfloat16", "float32": "float32", "float64": "float64",
}
SIGNATURE = {
    "bool": "i1", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint16": "u16", "uint32": "u32",
    "uint64": "u64", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
}
PERSISTENT = 8192       # longest row held in registers; more where few are (`longest_row`)
FEW_ROWS = 32
LOOP_TILE = 2048        # elements of a tile when columns are looped over
POINTWISE_TILE = 1024
FEW_COLUMNS = 8192      # are shared out in blocks of 8, so that more multiprocessors have some


@dataclass
class TritonKernel:
    """A printed kernel: its text, what it is called with, and its launch grid."""

    name: str
    text: str
    pointers: list[tuple[str, Index]]       # buffer and offset in elements, in order
    symbols: list[str]                      # sizes passed after the pointers
    signature: dict[str, str]
    constants: dict[str, int]
    rows: Index                             # iterations of x
    tile: int                               # of which each program does this many
    num_warps: int
    written: set[str] = field(default_factory=set)
    num_stages: int = 0                     # of loops that are pipelined; 0 leaves it to Triton
    indexing: str = ""                      # the operators whose indices it checks: it takes the address to note them at after the pointers

    @property
    def options(self) -> dict[str, int]:
        """What Triton is told beside the text."""
        return {"num_warps": self.num_warps, **({"num_stages": self.num_stages} if self.num_stages else {})}


def power_of_two(n: int) -> int:
    """The least power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


class TritonPrinter(KernelPrinter):
    """Prints one kernel for Triton: registers or recomputation take the place of what C++ keeps in memory."""

    row_masks: tuple[str, ...] = ("rmask",)     # what keeps accesses within rows, and within the rows that there are
    x_masks: tuple[str, ...] = ("xmask",)
    tile_shape = "[XBLOCK, RBLOCK]"
    to_text = staticmethod(to_triton)

    def print(self) -> TritonKernel:
        """The whole kernel."""
        self.prepare()
        self.connect()
        pointwise = self.kernel.split is None
        self.x_loops = self.outer + (self.inner if pointwise else [])
        self.r_loops = [] if pointwise else self.inner
        self.x_size, self.r_size = self._numel(self.x_loops), self._numel(self.r_loops)
        self._choose_tiles(pointwise)
        self.indent = 1
        self._head()
        if not self.r_loops or self.persistent:
            self._persistent()
        else:
            self._looped()
        return self._finish()

    def _numel(self, loops: Sequence[int]) -> Index:
        return math.prod([self.sizes[k] for k in loops])

    def _choose_tiles(self, pointwise: bool) -> None:
        rows = self.program.hint(self.x_size)
        if pointwise:
            self.persistent, self.r_tile = True, 1
            self.x_tile = min(POINTWISE_TILE, max(power_of_two(rows), 32))
            self.num_warps = 4
            return
        inner = self.program.hint(self.r_size)
        self.persistent = self.kernel.style == "rows"
        if self.persistent:
            self.r_tile = power_of_two(inner)
            self.x_tile = max(1, min(1024 // self.r_tile, power_of_two(rows)))
            self.num_warps = max(1, min(16, self.r_tile * self.x_tile // 256)) if self.r_tile <= PERSISTENT else 32
            return
        self.x_tile = min(32 if rows > FEW_COLUMNS else 8, power_of_two(rows))
        self.r_tile = min(LOOP_TILE // self.x_tile, power_of_two(inner))
        self.num_warps = 4

    # -- the parts of the text --

    def _head(self) -> None:
        self.emit(f"x = tl.program_id(0){self._wide()} * XBLOCK + tl.arange(0, XBLOCK)[:, None]")
        self.emit(f"xmask = x < {self.expr(self.x_size)}")
        self._split("x", self.x_loops)

    def _wide(self) -> str:
        """What makes positions 64 bits wide where buffers are so large."""
        return ".to(tl.int64)" if self._is_large() else ""

    def _is_large(self) -> bool:
        buffers = map(self.program.buffers.__getitem__, self.kernel.buffers)
        return not self.program.assumed.small and any(not isinstance(b.numel, int) or b.numel >= 2**31 for b in buffers)

    def _split(self, name: str, loops: Sequence[int]) -> None:
        """The loop variables from the linear position `name`."""
        step: Index = 1
        for position, k in enumerate(reversed(loops)):
            text = name if step == 1 else f"({name} // {self._paren(step)})"
            last = position == len(loops) - 1
            self.emit(f"x{k} = {text}" if last else f"x{k} = {text} % {self._paren(self.sizes[k])}")
            step = step * self.sizes[k]

    def _paren(self, x: Index) -> str:
        text = self.expr(x)
        return text if text.isalnum() else f"({text})"

    def _rows_of_r(self, start: str) -> None:
        self.emit(f"r = {start}tl.arange(0, RBLOCK)[None, :]{self._wide()}")
        self.emit(f"rmask = r < {self.expr(self.r_size)}")
        self._split("r", self.r_loops)

    def _persistent(self) -> None:
        if self.r_loops:
            self._rows_of_r("")
        for level in range(max(self.levels) + 1):
            for k, member in enumerate(self.kernel.members):
                if self.levels[k] != level:
                    continue
                self._define_below(k)
                if member.step.kind in FOLDS:
                    self._fold_tile(k)
                self._store(k)

    def _looped(self) -> None:
        """Level by level: what runs once a row, then one loop over the row for everything else."""
        for once, full in self.passes():
            for k in once:
                self._define_below(k)
                self._store(k)
            if not full:
                continue
            self._define_outside(full)
            folds = [k for k in full if self.kernel.members[k].step.kind in FOLDS]
            for k in folds:
                self._begin(k, "[XBLOCK, RBLOCK]")
            self.emit(f"for start in range(0, {self.expr(self.r_size)}, RBLOCK):")
            self.indent += 1
            self._body(full, folds)
            self.indent -= 1
            for k in folds:
                self._hold(k, self._fold_of(k).tile.format(f"acc{k}", 1))
                self._store(k)

    def _body(self, full: Sequence[int], folds: Sequence[int]) -> None:
        """What a loop over rows does in one turn."""
        self.scopes.append([])
        self._rows_of_r("start + ")
        for k in full:
            self._define_below(k)
            if k in folds:
                self._accumulate(k)
            else:
                self._store(k)
        for uid in self.scopes.pop():
            del self.names[uid]

    def _indexing(self) -> str:
        """The operators whose indices may be out of range, with the user's lines."""
        steps = [m.step for k, m in enumerate(self.kernel.members)
                 if any(v.op == "checked" for v in walk([self.roots[k], *self.computed[k].values()]))]
        return ", ".join(dict.fromkeys(f"{o.op} ({o.line})" if o.line else o.op for step in steps for o in step.origins))

    def _define_below(self, k: int) -> None:
        mask = self.masks[k]
        values = [self.roots[k], *self.computed[k].values(), *([mask] if mask is not None else [])]
        for v in self.walk_new(values):
            self.define(v)

    def _define_outside(self, members: Sequence[int]) -> None:
        """What does not move with r is computed before the loop."""
        memo: dict[int, float] = {}
        for k in members:
            for v in self.walk_new([self.roots[k]]):
                if self._moves(v, memo) == 0 and all(a.uid in self.names for a in v.args):
                    self.define(v)

    def _moves(self, v: Value, memo: dict[int, float]) -> float:
        if v.uid not in memo:
            mine = 0.0
            if v.op in ("load", "index"):
                used = free_variables(v.attr.index if v.op == "load" else v.attr)
                mine = float(any(f"x{k}" in used for k in self.r_loops))
            memo[v.uid] = max([mine, *(self._moves(a, memo) for a in v.args)])
        return memo[v.uid]

    def _fold_of(self, k: int) -> Fold:
        return FOLDS[self.kernel.members[k].step.kind]

    def _fold_type(self, k: int) -> str:
        """Of an accumulator that goes from turn to turn."""
        name = self._fold_of(k).total(self.kernel.members[k].step.body.dtype).name
        return "int32" if name == "bool" else TRITON_TYPES[name]

    def _identity(self, k: int) -> str:
        value = self._fold_of(k).nothing(self.kernel.members[k].step.body.dtype)
        return number(int(value) if isinstance(value, bool) else value)

    def _masked_value(self, k: int) -> str:
        """A member's tile with the fold's identity beyond the edges."""
        value = self.names[self.roots[k].uid]
        if self.kernel.members[k].step.body.dtype is bool_:
            value = f"({value}).to(tl.int32)"
        masks = " & ".join([*self.row_masks, *self.x_masks])
        return f"tl.where({masks}, {value}, {self._identity(k)})" if masks else value

    def _policy(self, index: Index, member: Any = None, stored: bool = False) -> str:
        """What to tell the cache of an access."""
        return ""

    def _fold_tile(self, k: int) -> None:
        self.emit(f"fold{k} = {self._masked_value(k)}")
        self._hold(k, self._fold_of(k).tile.format(f"fold{k}", 1))

    def _begin(self, k: int, shape: str) -> None:
        self.emit(f"acc{k} = tl.full({shape}, {self._identity(k)}, tl.{self._fold_type(k)})")

    def _accumulate(self, k: int) -> None:
        self.emit(f"acc{k} = {self._fold_of(k).combine.triton.format(f'acc{k}', self._masked_value(k))}")

    def _hold(self, k: int, text: str) -> None:
        step = self.kernel.members[k].step
        cast = " != 0" if step.body.dtype is bool_ else f".to(tl.{TRITON_TYPES[step.body.dtype.name]})"
        name = f"t{self.count}"
        self.count += 1
        self.emit(f"{name} = ({text})[:, None]{cast}")
        self.bind(self.root(k), name)

    def _store(self, k: int) -> None:
        m = self.kernel.members[k]
        scatter = m.step.kind.startswith("scatter")
        if m.step.buffer not in self.stored and not scatter:
            return
        index, root = self.at(m, m.step.index), self.root(k)
        self.written.add(m.step.buffer)
        moves_r = bool(self.r_loops) and m.full and m.step.kind not in FOLDS
        masks = [*(self.row_masks if moves_r else ()), *self.x_masks]
        if self.masks[k] is not None:
            masks.append(self.names[self.masks[k].uid])     # type: ignore[union-attr]
        masks += self._fitting(self.computed[k].values())
        mask = " & ".join(masks) or "None"
        place = self.expr(index - self.offset.get(m.step.buffer, 0), self.computed[k])
        tile = "x * 0 + r * 0" if moves_r else "x * 0"
        pointer = f"{self.pointer(m.step.buffer)} + ({place} + {tile})"
        value = self.names[root.uid]
        kind = self.program.buffers[m.step.buffer].dtype
        if kind is not root.dtype:
            value = f"({value}).to(tl.{TRITON_TYPES[kind.name]})"
        value = f"tl.broadcast_to({value}, {self.tile_shape if moves_r else '[XBLOCK, 1]'})"
        if m.step.kind == "scatter_add":
            self.emit(f"tl.atomic_add({pointer}, {value}, {mask}, sem='relaxed')")
        else:
            self.emit(f"tl.store({pointer}, {value}, {mask}{self._policy(m.step.index, m, True)})")

    # -- values --

    def define(self, v: Value, *_: Any) -> None:
        name = f"t{self.count}"
        self.count += 1
        self.emit(f"{name} = {self.text(v)}")
        self.bind(v, name)
        if v.op == "checked":
            self._check(v, name)

    def _check(self, v: Value, name: str) -> None:
        """Note an index that is out of range, at which nothing is loaded or stored; lanes beyond the tile's edges do not count."""
        size = self.expr(v.attr)
        self.emit(f"{name}_fits = ({name} >= 0) & ({name} < {size})")
        masks = [*(self.row_masks if self.r_loops and self._moves(v, {}) else ()), *self.x_masks]
        self.emit(f"note(stray, {self.names[v.args[1].uid]}, {size}, {' & '.join([f'({name}_fits == 0)', *masks])})")

    def _fitting(self, values: Iterable[Value]) -> list[str]:
        """The masks of the indices among some values."""
        return [f"{self.names[v.uid]}_fits" for v in values if v.op == "checked"]

    def text(self, v: Value) -> str:
        args = [self.names[a.uid] for a in v.args]
        kind = f"tl.{TRITON_TYPES[v.dtype.name]}"
        if v.op == "load":
            return self._load(v.attr, v, args)
        if v.op == "constant":
            if isinstance(v.attr, SymFloat):
                return f"tl.full([1, 1], {self._float(v.attr)}, {kind})"
            text = number(v.attr)
            return f"negative(tl.full([1, 1], 0.0, {kind}))" if text == "-0.0" else f"tl.full([1, 1], {text}, {kind})"    # one zero there
        if v.op == "index":
            text = self.expr(v.attr, dict(zip(computed_names(v.attr), v.args, strict=True)))
            return f"({text}).to({kind})" if isinstance(v.attr, Expr) and self._uses_loops(v.attr) else f"tl.full([1, 1], {text}, {kind})"
        if v.op == "to_dtype":
            if v.dtype is bool_:
                return f"{args[0]} != 0"
            integer = v.dtype.category == INT and v.args[0].dtype.is_floating_point
            return f"to_integer({args[0]}, {kind})" if integer else f"({args[0]}).to({kind})"
        if v.op == "checked":
            return args[0]
        if v.op == "round_to":
            return f"({args[0]}).to(tl.{TRITON_TYPES[v.attr.name]}).to({kind})"
        if v.op == "bitcast":
            return f"({args[0]}).to({kind}, bitcast=True)"
        row = TABLE[TABLE[v.op].truths] if TABLE[v.op].truths and v.dtype is bool_ else TABLE[v.op]
        return (row.triton64 if row.triton64 and v.dtype is float64 else row.triton).format(*args)

    def _float(self, x: Any) -> str:
        """A number computed from sizes and parameters, in float64."""
        if isinstance(x, SymInt):
            return f"({self.expr(x.expr)}).to(tl.float64)"
        if not isinstance(x, SymFloat):
            return repr(float(x))
        if x.op == "variable":
            self.symbols.add(x.left)
            return str(x.left)
        a, b = self._float(x.left), self._float(x.right)
        calls = {"//": f"tl.floor({a} / {b})", "%": f"({a} - tl.floor({a} / {b}) * {b})", "**": f"libdevice.pow({a}, {b})"}
        return calls.get(x.op) or f"({a} {x.op} {b})"

    def _uses_loops(self, x: Expr) -> bool:
        return any(name[0] in "xv" for name in free_variables(x))

    def _load(self, access: Access, v: Value, args: Sequence[str]) -> str:
        computed = dict(zip(access.names, v.args, strict=False))
        place = self.expr(access.index - self.offset.get(access.buffer, 0), computed)
        used = free_variables(access.index)
        shape_of_args = any(self._moves(a, {}) for a in v.args) if self.r_loops else False
        moves_r = bool(self.r_loops) and (any(f"x{k}" in used for k in self.r_loops) or shape_of_args)
        moves_x = any(f"x{k}" in used for k in self.x_loops) or bool(v.args)
        fixed = not any(name[0] in "xv" for name in used)
        mask = " & ".join([*(self.row_masks if moves_r else ()), *(self.x_masks if moves_x else ()), *self._fitting(v.args)])
        if access.masked:
            mask = f"({mask}) & {args[-1]}" if mask else args[-1]
        tile = "" if not fixed else " + x * 0" if mask else " + tl.zeros([1, 1], tl.int32)"
        text = f"tl.load({self.pointer(access.buffer)} + ({place}){tile}"
        if mask:
            text += f", {mask}, other=0"
        text += f"{self._policy(access.index)})"
        stored = self.program.buffers[access.buffer].dtype
        return text if stored is v.dtype else f"{text}.to(tl.{TRITON_TYPES[v.dtype.name]})"

    def _constants(self) -> dict[str, int]:
        return {"XBLOCK": self.x_tile, **({"RBLOCK": self.r_tile} if self.r_loops else {})}

    def _finish(self) -> TritonKernel:
        order = sorted(self.pointers, key=lambda name: self.pointers[name])
        symbols = sorted(self.symbols)
        parameters = [self.pointer(name) for name in order]
        signature = {self.pointer(n): f"*{SIGNATURE[self.program.buffers[n].dtype.name]}" for n in order}
        indexing = self._indexing()
        if indexing:
            parameters.append("stray")
            signature["stray"] = "*i64"
        integer = "i64" if self._is_large() else "i32"
        signature |= {n: "fp64" if n[0] == "f" else integer for n in symbols}
        constants = self._constants()
        signature |= dict.fromkeys(constants, "constexpr")
        header = ", ".join([*parameters, *symbols, *(f"{c}: tl.constexpr" for c in constants)])
        text = f"({header}):\n" + "\n".join(self.lines) + "\n"
        return TritonKernel("", text, [(n, self.offset.get(n, 0)) for n in order], symbols, signature, constants, self.x_size,
                            self.x_tile, self.num_warps, set(self.written), indexing=indexing)


def rows_loaded(kernel: Kernel, program: Program) -> dict[str, Index]:
    """The buffers of which the kernel loads whole rows, and for each one of the places."""
    split = len(kernel.sizes) if kernel.split is None else kernel.split
    mine = {f"x{k}" for k in range(split, len(kernel.sizes))}
    places = [(a.buffer, substitute(a.index, m.subs)) for m in kernel.members for a in m.step.loads]
    made = {m.step.buffer for m in kernel.members}
    return {buffer: index for buffer, index in places if buffer not in made and mine & set(free_variables(index))}


def longest_row(kernel: Kernel, program: Program, stored: set[str]) -> int:
    """The longest row that the kernel should hold in registers, by what it reads and writes of each row."""
    loaded = rows_loaded(kernel, program)
    if program.hint(math.prod(kernel.sizes[:kernel.split])) <= FEW_ROWS or not any(
            m.full and m.step.kind not in FOLDS and m.step.buffer in stored for m in kernel.members):
        return 2 * PERSISTENT
    narrow = any(program.buffers[name].dtype.itemsize < 4 for name in loaded)
    return PERSISTENT * {1: 2 if narrow else 4, 2: 2}.get(len(loaded), 1)


def number(value: Any) -> str:
    """A number as Python text that Triton reads."""
    if isinstance(value, float):
        if math.isnan(value):
            return "float('nan')"
        if math.isinf(value):
            return "float('inf')" if value > 0 else "float('-inf')"
        return repr(float(value))
    return repr(int(value)) if not isinstance(value, bool) else str(int(value))


PROLOGUE = '''import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def note(place, index, size, is_stray):
    lowest: tl.constexpr = -9223372036854775808
    stray = tl.where(is_stray, index, lowest)
    if stray.numel >= 8:    # what a thread holds has one store, not eight: these cost nothing then
        stray = tl.max(tl.reshape(stray, [stray.numel // 8, 8]), 1)
    lanes = stray.to(tl.int32) * 0
    tl.store(place + lanes, stray, stray != lowest)
    tl.store(place + 1 + lanes, (size + 1) + lanes, stray != lowest)


@triton.jit
def to_integer(x, kind: tl.constexpr):     # defined for every float, as in include/convert.h
    if kind == tl.uint64:
        high = x >= 9223372036854775808.0
        x = tl.where(high, x - 9223372036854775808.0, x)
    if kind == tl.int64 or kind == tl.uint64 or kind == tl.uint32:
        fits = (x >= -9223372036854775808.0) & (x < 9223372036854775808.0)
        made = tl.where(fits, tl.where(fits, x, 0.0).to(tl.int64), -9223372036854775808)
    else:
        fits = (x >= -2147483648.0) & (x < 2147483648.0)
        made = tl.where(fits, tl.where(fits, x, 0.0).to(tl.int32), -2147483648)
    made = made.to(kind)
    if kind == tl.uint64:
        made = tl.where(high, made ^ 9223372036854775808, made)
    return made


@triton.jit
def negative(x):    # the operator subtracts from 0, which has one sign
    return x * -1 if x.dtype.is_floating() else -x


@triton.jit
def product(a, b):
    return a * b


@triton.jit
def largest(a, b):
    if a.dtype == tl.float32:
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def relu(x):
    return tl.maximum(x, 0, tl.PropagateNan.ALL) if x.dtype.is_floating() else tl.where(x > 0, x, 0).to(x.dtype)


@triton.jit
def smallest(a, b):
    if a.dtype == tl.float32:
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def power(a, b):    # of integers by squaring; a negative power is 0 but for 1 and -1
    if a.dtype.is_floating():
        made = libdevice.pow(a, b)
    else:
        base, left = a + b * 0, b + a * 0
        made = base * 0 + 1
        for _ in range(a.dtype.primitive_bitwidth):
            made = tl.where((left & 1) != 0, made * base, made)
            base = base * base
            left = left >> 1
        made = tl.where(b < 0, tl.where(a == 1, 1, tl.where(a == -1, 1 - 2 * (b & 1), 0)).to(a.dtype), made)
    return made


@triton.jit
def signbit(x):
    return x < 0 if x.dtype.is_int() else libdevice.signbit(x) != 0


@triton.jit
def sign(x):
    return ((x > 0).to(tl.int8) - (x < 0).to(tl.int8)).to(x.dtype)


@triton.jit
def fmod(a, b):
    return a % b if a.dtype.is_int() else libdevice.fmod(a, b)


@triton.jit
def remainder(a, b):
    rest = fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def shl(x, n):    # the machine takes the lowest bits of the distance
    fits = (n >= 0) & (n < x.dtype.primitive_bitwidth)
    return tl.where(fits, x << tl.where(fits, n, 0), 0).to(x.dtype)


@triton.jit
def shr(x, n):
    fits = (n >= 0) & (n < x.dtype.primitive_bitwidth)
    return x >> tl.where(fits, n, x.dtype.primitive_bitwidth - 1).to(x.dtype)


@triton.jit
def exact_quotient(a, b):    # the operator rounds float32 to a neighbour now and then
    return tl.div_rn(a, b) if a.dtype == tl.float32 else a / b


@triton.jit
def inverse(x):
    return exact_quotient(tl.full([1, 1], 1, x.dtype), x)


@triton.jit
def floordiv(a, b):
    if a.dtype.is_int():
        cut = a // b
        down = tl.where((cut * b != a) & ((a < 0) != (b < 0)), cut - 1, cut)
    else:
        rest = libdevice.fmod(a, b)
        whole = exact_quotient(a - rest, b)
        whole = tl.where((rest != 0) & ((rest < 0) != (b < 0)), whole - 1, whole)
        near = tl.floor(whole)
        near = tl.where(whole - near > 0.5, near + 1, near)
        down = tl.where(b == 0, a / b, tl.where(whole == 0, libdevice.copysign(whole * 0, a / b), near))
    return down


@triton.jit
def quotient(a, b):
    towards_zero = a // b
    return towards_zero - tl.where((a - towards_zero * b) * b < 0, 1, 0)


@triton.jit
def rest(a, b):
    return a - quotient(a, b) * b


@triton.jit
def truncdiv(a, b):
    return a // b if a.dtype.is_int() else libdevice.trunc(exact_quotient(a, b))


@triton.jit
def digamma(x):
    wide = x.to(tl.float64)
    low, part = wide < 0, wide - libdevice.rint(wide)
    y = tl.where(low, 1 - wide, wide)
    total = -1 / y
    for k in tl.static_range(1, 10):
        total -= 1 / (y + k)
    y += 10
    z = 1 / (y * y)
    tail = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * 691 / 32760)))))
    total += libdevice.log(y) - 0.5 / y - tail
    mirror = tl.where(part == 0, float("nan"), 3.14159265358979323846 / libdevice.tan(3.14159265358979323846 * part))
    return tl.where(low, total - mirror, total).to(x.dtype)


@triton.jit
def philox(seed, block, lane):
    k0, k1 = seed.to(tl.uint32), (seed.to(tl.uint64) >> 32).to(tl.uint32)
    c0, c1 = block.to(tl.uint32), (block.to(tl.uint64) >> 32).to(tl.uint32)
    c2, c3 = c0 * 0, c0 * 0
    for _ in tl.static_range(10):
        p0, p1 = c0.to(tl.uint64) * 0xD2511F53, c2.to(tl.uint64) * 0xCD9E8D57
        n0, n2 = (p1 >> 32).to(tl.uint32) ^ c1 ^ k0, (p0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c1, c3, c0, c2 = p1.to(tl.uint32), p0.to(tl.uint32), n0, n2
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return tl.where(lane == 0, c0, tl.where(lane == 1, c1, tl.where(lane == 2, c2, c3)))


@triton.jit
def unit(bits):
    return (bits >> 8).to(tl.float32) * 5.9604644775390625e-08
'''
