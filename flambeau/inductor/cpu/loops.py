"""The loop nests of kernels as C++: rows, columns, scatters."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import NamedTuple

from flambeau.core.dtypes import bool_
from flambeau.core.expr import Index, coefficient
from flambeau.core.scalar import FOLDS, TABLE
from flambeau.inductor.cpu.cpp import CppPrinter, Printed
from flambeau.inductor.library.cpp import CPP_TYPES, MEMORY_TYPES, constant_text
from flambeau.inductor.loop.ir import SCATTERS, Compute, Program, Value, walk
from flambeau.inductor.loop.printer import TILE
from flambeau.inductor.loop.scheduler import Kernel, kernel_var

PARALLEL_FROM = 1 << 15      # units of work: one element's addition or load
FEW = 32                     # outer iterations: with fewer, inner loops are cut into blocks to share out
INNER_BLOCK = 4096
COLUMN_BLOCK = 64
KEPT_FOR = 64                # iterations of an outer loop for which values are kept in arrays
KEPT_BLOCK = 256             # of so many elements
SUM_BLOCK = 256              # elements of a row that are added up in their own dtype, on as many lanes as vectors have
SUM_ROWS = 16                # rows, of which columns are, and elements that lie apart
LANES_FROM = 64              # elements of a row


def print_kernel(kernel: Kernel, program: Program, stored: set[str], shared: Set[str] = frozenset()) -> Printed:
    """A kernel as a C++ function; `stored` are the buffers that others read, `shared` those that lie where another of its does."""
    p = CppPrinter(kernel, program, stored)
    p.prepare()
    p.connect()
    {"rows": _rows, "columns": _columns, "scatter": _scatter}[kernel.style](p)
    order = sorted(p.pointers, key=lambda name: p.pointers[name])
    parameters = ["int nt"] if p.parallel else []
    for name in order:
        const = "" if name in p.written else "const "
        alone = "" if name in shared else "__restrict__ "
        parameters.append(f"{const}{MEMORY_TYPES[program.buffers[name].dtype.name]}* {alone}{p.pointer(name)}")
    symbols = sorted(p.symbols)
    parameters += [f"{'double' if s[0] == 'f' else 'int64_t'} {s}" for s in symbols]
    text = f"({', '.join(parameters)}) {{\n" + "\n".join(p.lines) + "\n}\n"
    return Printed("", text, [(name, p.offset.get(name, 0)) for name in order], symbols, p.parallel, p.checks, frozenset(p.far), p.narrow)


# --- shared parts ---


def _count(p: CppPrinter, loops: list[int]) -> Index:
    return math.prod([p.sizes[k] for k in loops])


def _work(p: CppPrinter) -> int:
    """The cost of one iteration of all loops."""
    return sum(TABLE[v.op].cost if v.op in TABLE else 1 for v in walk(p.roots) if v.op != "constant")


def _pragma(p: CppPrinter, iterations: Index, collapse: int, simd: bool = False) -> None:
    """Spread the next loops over threads if there is enough to do."""
    work = _work(p)
    if p.program.hint(iterations) * work < PARALLEL_FROM and isinstance(iterations, int):
        if simd:
            p.emit("#pragma omp simd")
        return
    p.parallel = True
    clauses = f" collapse({collapse})" if collapse > 1 else ""
    if not isinstance(iterations, int):
        clauses += f" if (({p.expr(iterations)}) * {work} >= {PARALLEL_FROM})"
    p.emit(f"#pragma omp parallel for{' simd' if simd else ''} num_threads(nt) schedule(static){clauses}")


def _for(p: CppPrinter, k: int) -> None:
    size = p.expr(p.sizes[k])
    p.open(f"for (int64_t x{k} = 0; x{k} < {size}; x{k}++)")


def _for_block(p: CppPrinter, k: int, start: str, block: int) -> None:
    """Loop k over the block of it that begins at the C++ variable `start`."""
    p.open(_block_header(p, k, start, block))


def _block_header(p: CppPrinter, k: int, start: str, block: int) -> str:
    size, end = p.sizes[k], f"{start} + {block}"
    if not (isinstance(size, int) and size % block == 0):
        limit = p.expr(size)
        end = f"({end} < {limit} ? {end} : {limit})"
    return f"for (int64_t x{k} = {start}; x{k} < {end}; x{k}++)"


def _declare_fold(p: CppPrinter, member: int, length: int | None = None, name: str = "acc", wide: bool = False) -> None:
    """The accumulator of a reduction, set to the fold of nothing; `wide`: that of its parts."""
    step = p.kernel.members[member].step
    fold = FOLDS[step.kind]
    dtype = fold.total(step.body.dtype) if wide else step.body.dtype
    kind = "int32_t" if dtype is bool_ else CPP_TYPES[dtype.name]
    start = fold.nothing(dtype)
    text = str(int(start)) if kind == "int32_t" else constant_text(start, dtype)
    if length is None:
        p.emit(f"{kind} {name}{member} = {text};")
    else:
        p.emit(f"{kind} {name}{member}[{length}];")
        p.emit(f"for (int64_t j = 0; j < {length}; j++) {name}{member}[j] = {text};")


def _fold(p: CppPrinter, member: int, target: str) -> None:
    combine = FOLDS[p.kernel.members[member].step.kind].combine.cpp
    p.emit(f"{target} = {combine.format(target, p.names[p.roots[member].uid])};")


class Parts(NamedTuple):
    """Where long sums are cut: into `length` iterations of the loop at `position`, with all of those within."""

    position: int
    length: int
    folds: list[int]


def _parts(p: CppPrinter, folds: list[int], most: int) -> Parts | None:
    """How to cut the inner loops so that at most about `most` elements are added up in their own dtype; None: no need to."""
    steps = {k: p.kernel.members[k].step for k in folds}
    sums = [k for k, step in steps.items() if step.body.dtype.is_floating_point and not FOLDS[step.kind].exact]
    within = 1
    for position in reversed(range(len(p.inner)) if sums else ()):
        size = p.sizes[p.inner[position]]
        if within and (not isinstance(size, int) or size * within > most):
            return Parts(position, most // within, sums)
        within = size * within if isinstance(size, int) else 0
    return None


def _has_lanes(p: CppPrinter, roots: list[Value]) -> bool:
    """Whether the innermost loop runs on all lanes of vectors: it is long, and its elements lie side by side."""
    return p.program.hint(p.sizes[p.inner[-1]]) >= LANES_FROM and all(
        coefficient(v.attr.index, p.innermost) in (0, 1) for v in walk(roots) if v.op == "load")


def _open_inner(p: CppPrinter, folds: list[int], parts: Parts | None, roots: list[Value], depth: float, memo: dict[int, float],
                block: int = 0, length: int | None = None) -> None:
    """Declare accumulators, of `length` columns or one of a row, and open the inner loops with what is computed in each."""
    for k in folds:
        in_parts = parts is not None and k in parts.folds
        _declare_fold(p, k, length, "total" if in_parts else "acc", wide=in_parts)
    for position, loop in enumerate(p.inner):
        cut = parts if parts is not None and position == parts.position else None
        if cut is not None and cut.length > 1:
            p.open(f"for (int64_t part = 0; part < {p.expr(p.sizes[loop])}; part += {cut.length})")
            _declare_parts(p, cut, length)
        if length is None and position == len(p.inner) - 1:
            _simd(p, folds)
        if cut is not None and cut.length > 1:
            _for_block(p, loop, "part", cut.length)
        elif block:
            _for_block(p, loop, "start", block)
        else:
            _for(p, loop)
        if cut is not None and cut.length == 1:
            _declare_parts(p, cut, length)
        p.need(roots, depth + position + 1, memo)


def _declare_parts(p: CppPrinter, parts: Parts, length: int | None) -> None:
    for k in parts.folds:
        _declare_fold(p, k, length)


def _close_inner(p: CppPrinter, parts: Parts | None, length: str = "") -> None:
    """Close the inner loops, adding parts of sums to their totals."""
    for position in reversed(range(len(p.inner))):
        if parts is not None and position == parts.position:
            if parts.length > 1:
                p.close()
            for k in parts.folds:
                p.emit(f"for (int64_t j = 0; j < {length}; j++) total{k}[j] += acc{k}[j];" if length else f"total{k} += acc{k};")
        p.close()


def _held(p: CppPrinter, member: int, parts: Parts | None, place: str = "") -> None:
    """From here on the fold's result is known by its accumulator."""
    cut = parts is not None and member in parts.folds
    name = f"{CPP_TYPES[p.root(member).dtype.name]}(total{member}{place})" if cut else f"acc{member}{place}"
    p.bind(p.root(member), name)


def _is_fold(step: Compute) -> bool:
    return step.kind in FOLDS


# --- rows ---


def _rows(p: CppPrinter) -> None:
    if not p.outer and p.kernel.split is None:
        return _flat(p)
    count, inner = _count(p, p.outer), _count(p, p.inner)
    memo: dict[int, float] = {}
    p.need(p.roots, 0, memo)
    blocked = (p.kernel.split is None and len(p.inner) == 1 and p.program.hint(count) < FEW
               and p.program.hint(inner) >= 2 * INNER_BLOCK)
    kept = _kept(p)
    gathered = [] if kept else _gathered(p, memo)
    block = TILE if p.tiled else KEPT_BLOCK if kept or gathered else INNER_BLOCK if blocked else 0
    if p.outer:
        _pragma(p, count * inner, len(p.outer) + (block > 0))
    across, step = (p.outer[-1], TILE if p.tiled else KEPT_FOR) if p.tiled or kept else (None, 0)
    for k in p.outer[:-1] if across is not None else p.outer:
        _for(p, k)
    if across is not None:
        p.open(f"for (int64_t first = 0; first < {p.expr(p.sizes[across])}; first += {step})")
    if block:
        p.open(f"for (int64_t start = 0; start < {p.expr(inner)}; start += {block})")
    if across is not None:
        if p.tiled:
            _declare_tiles(p, across)
            _turn_loads(p, across)
        p.keep_along(kept, _block_header(p, p.inner[0], "start", block), "kept", block, f"x{p.inner[0]} - start", memo)
        _for_block(p, across, "first", step)
    if gathered:
        p.keep_along(gathered, _block_header(p, p.inner[0], "start", block), "got", block, f"x{p.inner[0]} - start", memo, simd=False)
    for buffer, name in p.scratch.items():
        kind = MEMORY_TYPES[p.program.buffers[buffer].dtype.name]
        p.emit(f"alignas(64) {kind} {name}[{p.scratch_size[buffer]}];")
    for once, full in p.passes():
        _pass(p, once, full, memo, block)
    if across is not None:
        p.close()
        _write_tiles(p, across)
    for _ in range(len(p.outer) + (block > 0)):
        p.close()


def _declare_tiles(p: CppPrinter, across: int) -> None:
    """Room for what a tile stores along the loop `across`, to be stored line by line where lines push each other out."""
    for k, m in enumerate(p.kernel.members):
        index = p.at(m, m.step.index)
        if m.full and m.step.buffer in p.stored and coefficient(index, f"x{across}") == 1 and p.collides(index, p.inner[0]):
            p.turned[k] = f"tile{k}[(x{p.inner[0]} - start) * {TILE} + x{across} - first]"
            p.emit(f"alignas(64) {MEMORY_TYPES[p.program.buffers[m.step.buffer].dtype.name]} tile{k}[{TILE * TILE}];")


def _turn_loads(p: CppPrinter, across: int) -> None:
    """Copy what lies along the loop `across` into tiles, where the inner loop finds it side by side: GCC does not vectorise over
    elements apart, which costly bodies must be."""
    inner = p.inner[0]
    apart = [v for v in walk(p.roots) if v.op == "load" and not v.args and coefficient(v.attr.index, f"x{across}") == 1
             and coefficient(v.attr.index, f"x{inner}") not in (0, 1)] if p.costly else []
    if not apart:
        return
    place = f"[(x{across} - first) * {TILE} + x{inner} - start]"
    for k, v in enumerate(apart):
        p.emit(f"alignas(64) {CPP_TYPES[v.dtype.name]} read{k}[{TILE * TILE}];")
    _for_block(p, inner, "start", TILE)
    _for_block(p, across, "first", TILE)
    for k, v in enumerate(apart):
        p.emit(f"read{k}{place} = {p.text(v)};")
    p.close()
    p.close()
    for k, v in enumerate(apart):
        p.bind(v, f"read{k}{place}")


def _write_tiles(p: CppPrinter, across: int) -> None:
    """Store the tiles, line by line."""
    if not p.turned:
        return
    _for_block(p, p.inner[0], "start", TILE)
    p.emit("#pragma omp simd")
    _for_block(p, across, "first", TILE)
    for k, tile in p.turned.items():
        m = p.kernel.members[k]
        p.write(m.step.buffer, p.at(m, m.step.index), tile, p.program.buffers[m.step.buffer].dtype)
    p.close()
    p.close()


def _kept(p: CppPrinter) -> list[Value]:
    """What a pointwise kernel computes once for many iterations of the loop around the innermost one."""
    if p.tiled or p.kernel.split is not None or not p.outer or p.program.hint(p.sizes[p.outer[-1]]) < KEPT_FOR // 4:
        return []
    return p.invariants(p.roots, f"x{p.inner[0]}", {f"x{p.outer[-1]}"})


def _gathered(p: CppPrinter, memo: dict[int, float]) -> list[Value]:
    """What a costly pointwise kernel reads at computed positions in its innermost loop: read beforehand, for the check of a
    position is a branch, which keeps all that follows from being vectorised."""
    if p.tiled or p.kernel.split is not None or not p.outer or not p.costly:
        return []
    return [v for v in walk(p.roots) if v.op == "load" and v.attr.names and p.value_depth(v, memo) > len(p.outer)]


def _flat(p: CppPrinter) -> None:
    """A pointwise kernel of one loop (or none)."""
    memo: dict[int, float] = {}
    p.need(p.roots, 0, memo)
    members = range(len(p.kernel.members))
    if p.inner:
        _pragma(p, _count(p, p.inner), 1, simd=True)
        _for(p, p.inner[0])
    p.need(p.roots, 99, memo)
    for m in members:
        p.store(m)
    if p.inner:
        p.close()


def _pass(p: CppPrinter, once: list[int], full: list[int], memo: dict[int, float], block: int) -> None:
    """All members of one level: first those that run once a row, then one nest of inner loops for the rest."""
    p.need([p.roots[k] for k in once], 99, memo)
    for k in once:
        p.store(k)
    if not full:
        return
    roots = [p.roots[k] for k in full]
    folds = [k for k in full if _is_fold(p.kernel.members[k].step)]
    p.need(roots, p.rows + 0.5, memo)
    parts = _parts(p, folds, SUM_BLOCK if _has_lanes(p, roots) else SUM_ROWS)
    _open_inner(p, folds, parts, roots, p.rows, memo, block)
    p.need(roots, 99, memo)
    for k in full:
        if k in folds:
            _fold(p, k, f"acc{k}")
        else:
            p.store(k)
    _close_inner(p, parts)
    for k in folds:
        _held(p, k, parts)
        p.store(k)


def _simd(p: CppPrinter, folds: list[int]) -> None:
    clauses = ""
    for k in folds:
        clauses += f" reduction({FOLDS[p.kernel.members[k].step.kind].openmp}:acc{k})"
    p.emit(f"#pragma omp simd{clauses}")


# --- columns ---


def _columns(p: CppPrinter) -> None:
    """Folds over outer loops: a block of neighbouring results is accumulated at once, vectorised along the block."""
    vector = p.outer[-1]
    size = p.sizes[vector]
    block = _block(size)
    blocks = (size + (block - 1)) // block
    memo: dict[int, float] = {}
    p.need(p.roots, 0, memo)
    _pragma(p, _count(p, p.outer) * _count(p, p.inner), len(p.outer))
    for k in p.outer[:-1]:
        _for(p, k)
    p.open(f"for (int64_t block = 0; block < {p.expr(blocks)}; block++)")
    start = f"block * {block}"
    if isinstance(size, int) and size % block == 0:
        length = str(block)
    else:
        p.emit(f"const int64_t rest = {p.expr(size)} - {start};")
        p.emit(f"const int64_t length = rest < {block} ? rest : {block};")
        length = "length"
    for once, folds in p.passes():
        _column_pass(p, once, folds, memo, block, length, start)
    for _ in p.outer:
        p.close()


def _block(size: Index) -> int:
    if not isinstance(size, int):
        return COLUMN_BLOCK
    if size <= COLUMN_BLOCK:
        return size
    return next((b for b in (64, 96, 48, 80, 32) if size % b == 0), COLUMN_BLOCK)


def _column_pass(p: CppPrinter, once: list[int], folds: list[int], memo: dict[int, float], block: int, length: str, start: str) -> None:
    vector = p.outer[-1]
    if once:
        _vector_loop(p, vector, length, start)
        p.need([p.roots[k] for k in once], 99, memo)
        for k in once:
            p.store(k)
        p.close()
    if not folds:
        return
    roots = [p.roots[k] for k in folds]
    lead, parts = len(p.outer) - 1, _parts(p, folds, SUM_ROWS)
    p.need(roots, lead, memo)
    _open_inner(p, folds, parts, roots, lead, memo, length=block)
    _vector_loop(p, vector, length, start)
    p.need(roots, 99, memo)
    for k in folds:
        _fold(p, k, f"acc{k}[j]")
    p.close()
    _close_inner(p, parts, length)
    for k in folds:
        _held(p, k, parts, "[j]")
    if any(p.kernel.members[k].step.buffer in p.stored for k in folds):
        _vector_loop(p, vector, length, start)
        for k in folds:
            p.store(k)
        p.close()


def _vector_loop(p: CppPrinter, vector: int, length: str, start: str) -> None:
    p.emit("#pragma omp simd")
    p.open(f"for (int64_t j = 0; j < {length}; j++)")
    p.emit(f"const int64_t x{vector} = {start} + j;")


# --- scatters ---


def _scatter(p: CppPrinter) -> None:
    """Stores at computed positions: in order, but for loops whose iterations can't meet, which are shared out."""
    step = p.kernel.members[0].step
    target = p.at(p.kernel.members[0], step.index)
    loops = p.outer + p.inner
    free = [k for k in loops if _apart(p, target, k, loops)]
    memo: dict[int, float] = {}
    p.need(_needed(p), 0, memo)
    vector = next((k for k in free if coefficient(target, f"x{k}") == 1), None)
    order = [k for k in free if k != vector] + [k for k in loops if k not in free]
    p.depth = {f"x{k}": d + 1 for d, k in enumerate([*order, *([vector] if vector is not None else [])])}
    shared = [k for k in free if k != vector]
    if vector is not None:
        size = p.sizes[vector]
        block = _block(size)
        _pragma(p, _count(p, loops), len(shared) + 1)
    elif shared:
        _pragma(p, _count(p, loops), len(shared))
    for k in shared:
        _for(p, k)
    if vector is not None:
        p.open(f"for (int64_t start = 0; start < {p.expr(size)}; start += {block})")
        p.emit(f"const int64_t end = start + {block} < {p.expr(size)} ? start + {block} : {p.expr(size)};")
    for depth, k in enumerate(order):
        if k not in shared:
            _for(p, k)
            p.need(_needed(p), depth + 1, memo)
    if vector is not None:
        p.emit("#pragma omp simd")
        p.open(f"for (int64_t x{vector} = start; x{vector} < end; x{vector}++)")
    p.need(_needed(p), 99, memo)
    fold = SCATTERS[step.kind]
    p.write(step.buffer, target, p.names[p.roots[0].uid], p.roots[0].dtype, "{1}" if fold is None else fold.combine.cpp, p.computed[0])
    for _ in range(len(loops) + (vector is not None)):
        p.close()


def _needed(p: CppPrinter) -> list[Value]:
    return [p.roots[0], *p.computed[0].values()]


def _apart(p: CppPrinter, target: Index, k: int, loops: list[int]) -> bool:
    """Whether iterations of loop k write to different places whatever the other loops do: all other steps of the index
    are multiples of the stretch that k goes through."""
    step = coefficient(target, f"x{k}")
    if not isinstance(step, int) or step <= 0:
        return False
    stretch = p.sizes[k] * step
    rest = target - kernel_var(k, p.sizes[k]) * step
    return not isinstance(rest, int) and (rest % stretch) == 0
