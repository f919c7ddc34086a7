"""Which loop nests become one kernel, and in which order kernels run.

A `Kernel` is a set of steps over common loop variables `x0, x1, ...`, of which the first `split` are *rows*: reductions
fold over the rest, row by row, so that softmax or layer norm is one pass over memory with several over a cached row. Steps
join the kernels of their producers (vertical fusion) or of readers of the same buffers (horizontal fusion) where their
loops can be brought to a common refinement: `[2048, 384]` and `[8, 256, 384]` fuse, and so do orders that differ by a
permutation of the loops.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from flambeau.core.expr import Expr, Index, coefficient, free_variables, substitute, to_python, var
from flambeau.core.scalar import FOLDS
from flambeau.inductor.loop.ir import Access, Compute, Extern, Loop, Program, Step, Tracer, Value, numel, walk

LARGEST_KERNEL = 32      # buffers
TINY = 1 << 14           # iterations of a step that costs a GPU less than launching it: it joins others that have its loops
SPLIT_FROM = 1 << 15     # reductions with few rows of at least so many elements are split in two
PIECES = 32
SHORTEST_RUN = 64        # elements of contiguous memory along which a fold goes at once


class Limits(NamedTuple):
    """Facts of a device: folds with fewer rows, or columns (which are shared out in blocks), leave parts of it idle."""

    few_rows: int
    few_columns: int
    blocks: int = 0         # of a row or of 32 columns, that fill the device; 0: a fixed number of pieces


CPU = Limits(16, 256)
GPU = Limits(32, 16384, 1024)     # some 132 multiprocessors with several programs each


@dataclass(eq=False)
class Member:
    """A step in a kernel: `subs` gives its loop variables in terms of the kernel's; `full` if it runs over all of them
    (or folds over the inner ones), else it runs once a row."""

    step: Compute
    subs: dict[str, Index]
    full: bool = True


@dataclass(eq=False)
class Kernel:
    """Steps over common loops. `style`: rows (`split` says how many loops are rows; None while nothing folds), columns
    (folds over the outer loops, vectorised along the kept ones), or scatter."""

    style: str
    sizes: list[Index]
    split: int | None
    members: list[Member] = field(default_factory=list)

    @property
    def buffers(self) -> set[str]:
        """All buffers read or written."""
        return {name for m in self.members for name in (*m.step.reads, *m.step.writes)}

    @property
    def reads(self) -> set[str]:
        """The buffers that are read."""
        return {name for m in self.members for name in m.step.reads}

    @property
    def writes(self) -> set[str]:
        """The buffers that are written."""
        return {name for m in self.members for name in m.step.writes}


Node = Kernel | Extern


# --- bringing loops together ---


def _same(a: Index, b: Index) -> bool:
    return a is b or (isinstance(a, int) and a == b)


def refine(a: Sequence[Index], b: Sequence[Index]) -> tuple[list[Index], list[int], list[int]] | None:
    """The coarsest sizes that both `a` and `b` are groupings of, and for each which of a's and b's dimensions it is in."""
    if any(isinstance(n, int) and n == 0 for n in (*a, *b)):
        same = list(range(len(a)))
        return (list(a), same, same) if list(a) == list(b) else None
    sizes: list[Index] = []
    in_a: list[int] = []
    in_b: list[int] = []
    i, j = len(a) - 1, len(b) - 1
    left_a = a[i] if a else 1
    left_b = b[j] if b else 1
    while i >= 0 and j >= 0:
        if _same(left_a, left_b):
            piece = left_a
        elif _same(left_a % left_b, 0):
            piece = left_b
        elif _same(left_b % left_a, 0):
            piece = left_a
        else:
            return None
        sizes.append(piece)
        in_a.append(i)
        in_b.append(j)
        left_a, left_b = left_a // piece, left_b // piece
        if _same(left_a, 1):
            i -= 1
            left_a = a[i] if i >= 0 else 1
        if _same(left_b, 1):
            j -= 1
            left_b = b[j] if j >= 0 else 1
    if i >= 0 or j >= 0:
        return None
    return sizes[::-1], in_a[::-1], in_b[::-1]


def kernel_var(k: int, size: Index) -> Index:
    """The kernel's loop variable number `k`."""
    return var(f"x{k}", size=size)


def _regroup(names: Sequence[str], sizes: Sequence[Index], owner: Sequence[int], first: int = 0) -> dict[str, Index]:
    """For loop variables `names`: their values over the refined sizes, where `owner` says which one each piece is in."""
    subs: dict[str, Index] = dict.fromkeys(names, 0)
    for k, (size, mine) in enumerate(zip(sizes, owner, strict=True)):
        name = names[mine]
        subs[name] = subs[name] * size + kernel_var(first + k, size)
    return subs


def _names(loops: Sequence[Loop]) -> list[str]:
    return [name for name, _ in loops]


def _sizes(loops: Sequence[Loop]) -> list[Index]:
    return [size for _, size in loops]


@dataclass
class Fit:
    """How a step and a kernel come together: the common sizes, and both sides' variables in terms of them."""

    sizes: list[Index]
    split: int | None
    kernel_subs: dict[str, Index]
    step_subs: dict[str, Index]
    full: bool


def _fit(kernel: Kernel, step: Compute, loops: tuple[Loop, ...]) -> Fit | None:
    """Bring `step`, iterating in the order `loops`, into the kernel's loops."""
    kernel_names = [f"x{k}" for k in range(len(kernel.sizes))]
    if kernel.split is not None and step.kind == "pointwise" and _same(numel(loops), math.prod(
            kernel.sizes[: kernel.split])):
        found = refine(_sizes(loops), kernel.sizes[: kernel.split])
        if found is None:
            return None
        sizes, mine, theirs = found
        tail = kernel.sizes[kernel.split:]
        subs = _regroup(kernel_names[: kernel.split], sizes, theirs)
        subs |= _regroup(kernel_names[kernel.split:], tail, range(len(tail)), len(sizes))
        return Fit(sizes + tail, len(sizes), subs, _regroup(_names(loops), sizes, mine), False)
    found = refine(_sizes(loops), kernel.sizes)
    if found is None:
        return None
    sizes, mine, theirs = found
    split = kernel.split
    if split is not None:
        split = sum(1 for k in theirs if k < split)
    if step.kind != "pointwise":
        own = sum(1 for k in mine if k < len(step.loops))
        if split not in (None, own):
            return None
        split = own
    return Fit(sizes, split, _regroup(kernel_names, sizes, theirs), _regroup(_names(loops), sizes, mine), True)


def _key_of_sizes(step: Compute) -> tuple:
    return tuple([_key(size) for _, size in step.loops])


def _orders(kernel: Kernel, step: Compute) -> Iterator[tuple[Loop, ...]]:
    """The orders in which a step's loops might fit: its own, then the one that follows what it reads from the kernel."""
    loops = step.loops + step.reduce_loops
    yield loops
    if step.kind != "pointwise" and len(step.reduce_loops) == 0:
        return
    written = {m.step.buffer: m for m in kernel.members}
    for access in step.loads:
        member = written.get(access.buffer)
        if member is None or access.names:
            continue
        order = _matching_order(step, access, kernel, member)
        if order is not None and order != loops:
            yield order
            return


def _matching_order(step: Compute, access: Access, kernel: Kernel, member: Member) -> tuple[Loop, ...] | None:
    """The order of the step's loops in which it reads `access` as the kernel's loops write it."""
    mine = {(_key(coefficient(access.index, name)), _key(size)): (name, size) for name, size in step.loops + step.reduce_loops}
    order: list[Loop] = []
    target = substitute(member.step.index, member.subs)
    for k, size in enumerate(kernel.sizes):
        step_size = coefficient(target, f"x{k}")
        if step_size is None or _same(step_size, 0):
            continue
        hit = mine.get((_key(step_size), _key(size)))
        if hit is None:
            return None
        order.append(hit)
    rest = [loop for loop in step.loops + step.reduce_loops if loop not in order]
    ordered = tuple(order + rest)
    if step.kind != "pointwise" and set(ordered[: len(step.loops)]) != set(step.loops):
        return None
    return ordered


def _key(x: Index | None) -> str:
    return "none" if x is None else to_python(x)


# --- joining ---


class Scheduler:
    """Groups the steps of one program."""

    def __init__(self, program: Program, limits: Limits = CPU):
        self.program, self.limits = program, limits
        self.nodes: list[Node] = []
        self.before: list[int] = []           # for each node, the set of nodes it depends on, as bits
        self.needs: list[set[int]] = []       # those that it names
        self.writers: dict[str, set[int]] = {}   # buffer -> nodes that wrote parts of it
        self.readers: dict[str, list[int]] = {}
        self.begun: list[int] = []               # what can be begun, in its order, which other processes have, too
        self.needs_no_result: set[tuple[int, int]] = set()   # of these (node, node before), the first only comes after the second
        self.pieces: set[str] = set()            # buffers of folds in pieces
        self.tiny: dict[tuple, list[int]] = {}   # kernels that were begun for tiny steps, by the sizes of their loops

    def run(self) -> list[Node]:
        """The kernels and library calls in the order in which to run them."""
        steps: list[Step] = []
        for step in self.program.steps:
            split = split_reduction(step, self.program, self.limits)
            self.pieces.update(name for piece in split[:-1] for name in piece.writes)
            steps += split
        self.program.steps[:] = steps
        for step in steps:
            self._place(step)
        return [self.nodes[k] for k in self._order()]

    def _place(self, step: Step) -> None:
        needs = {k for name in step.reads for k in self.writers.get(name, ())}
        at = None
        if isinstance(step, Compute) and not step.kind.startswith("scatter"):
            at = next((k for k in self._candidates(step, needs) if self._join(k, step, needs)), None)
        if at is None:
            at = len(self.nodes)
            self.nodes.append(step if isinstance(step, Extern) else new_kernel(step, self.program))
            self.before.append(0)
            self.needs.append(set())
            if isinstance(step, Compute) and self._is_tiny(step):
                self.tiny.setdefault(_key_of_sizes(step), []).append(at)
        self._depend(at, needs - {at})
        if isinstance(step, Extern) and step.begins:
            self._follow(at, needs)
        for name in step.writes:
            self.writers.setdefault(name, set()).add(at)
        for name in step.reads:
            self.readers.setdefault(name, []).append(at)

    def _is_tiny(self, step: Compute) -> bool:
        total = numel(step.loops)
        return self.limits.blocks > 0 and step.kind == "pointwise" and isinstance(total, int) and total <= TINY

    def _candidates(self, step: Compute, needs: set[int]) -> list[int]:
        vertical = sorted(needs, reverse=True)
        shared: dict[int, int] = {}
        for access in step.loads:
            for k in self.readers.get(access.buffer, ())[-16:]:
                shared[k] = shared.get(k, 0) + 1
        if step.reads <= self.pieces:    # folds of pieces made by one kernel
            shared |= {k: 1 for made in needs for name in self.nodes[made].writes for k in self.readers.get(name, ())}
        if self._is_tiny(step):
            shared |= dict.fromkeys(self.tiny.get(_key_of_sizes(step), ())[-4:], 1)
        horizontal = sorted((k for k in shared if k not in needs), reverse=True)
        return [k for k in (*vertical, *horizontal[:8]) if isinstance(self.nodes[k], Kernel)]

    def _join(self, k: int, step: Compute, needs: set[int]) -> bool:
        kernel = self.nodes[k]
        assert isinstance(kernel, Kernel)
        if any(self.before[d] >> k & 1 for d in needs if d != k) or kernel.style == "scatter":
            return False
        if len(kernel.buffers | step.reads) > LARGEST_KERNEL:
            return False
        if step.kind in FOLDS and reduction_style(step, self.program) != kernel.style and (
                kernel.style == "columns" or kernel.split is not None or reduction_style(step, self.program) == "columns"):
            return False
        for loops in _orders(kernel, step):
            fit = _fit(kernel, step, loops)
            if fit is not None and self._legal(kernel, step, fit):
                _merge(kernel, step, fit)
                return True
        return False

    def _legal(self, kernel: Kernel, step: Compute, fit: Fit) -> bool:
        if kernel.style == "columns" and step.kind == "pointwise" and fit.full:
            return False
        if fit.split is not None and not self._enough_rows(fit):
            return False
        written = {m.step.buffer: m for m in kernel.members}
        first = kernel.members[0].step
        useful = (step.reads <= self.pieces and first.reads <= self.pieces) or (
            self._is_tiny(step) and self._is_tiny(first) and _key_of_sizes(step) == _key_of_sizes(first))
        for access in step.loads:
            index = substitute(access.index, fit.step_subs)
            member = written.get(access.buffer)
            if member is None:
                useful = useful or (not useful and self._shares(kernel, access.buffer, index, fit))
                continue
            target = substitute(substitute(member.step.index, member.subs), fit.kernel_subs)
            if not _same(index, target) or access.names:
                return False
            if member.full and member.step.kind == "pointwise" and not fit.full:
                return False
            useful = True
        return useful

    def _enough_rows(self, fit: Fit) -> bool:
        rows = self.program.hint(math.prod(fit.sizes[: fit.split]))
        inner = self.program.hint(math.prod(fit.sizes[fit.split:]))
        return rows >= self.limits.few_rows or inner < SPLIT_FROM

    def _shares(self, kernel: Kernel, buffer: str, index: Index, fit: Fit) -> bool:
        """Whether the kernel already reads `buffer[index]`, so that fusing saves reading it again."""
        for m in kernel.members:
            for access in m.step.loads:
                if access.buffer == buffer and _same(
                        substitute(substitute(access.index, m.subs), fit.kernel_subs), index):
                    return True
        return False

    def _depend(self, at: int, needs: set[int]) -> None:
        added = 0
        self.needs[at] |= needs
        for d in needs:
            added |= self.before[d] | 1 << d
        if added & ~self.before[at]:
            self.before[at] |= added
            for k in range(len(self.nodes)):
                if self.before[k] >> at & 1:
                    self.before[k] |= self.before[at]

    def _follow(self, at: int, needs: set[int]) -> None:
        """Node `at` can be begun, after what was before."""
        last = set(self.begun[-1:])
        self._depend(at, last)
        if not last <= needs:
            self.needs_no_result.update((at, k) for k in last)
        self.begun.append(at)

    def _keys(self) -> list[int]:
        """For each node after how many in a row that can be begun it comes; before all else for these themselves."""
        if not self.begun:
            return [0] * len(self.nodes)
        depth = [0] * len(self.nodes)
        for k in sorted(range(len(self.nodes)), key=lambda k: self.before[k].bit_count()):   # what a node needs has fewer before it
            needs = [d for d in self.needs[k] if (k, d) not in self.needs_no_result]
            depth[k] = max((depth[d] + (d in self.begun) for d in needs), default=0)
        return [-1 if k in self.begun else d for k, d in enumerate(depth)]

    def _order(self) -> list[int]:
        """The nodes by dependence, otherwise as they came; what can be begun as soon as it can be, and what follows it after all that
        does not, so that both go on at one time."""
        keys = self._keys()
        waiting = list(map(len, self.needs))
        ready = sorted((keys[k], k) for k, n in enumerate(waiting) if n == 0)
        followers: list[list[int]] = [[] for _ in self.nodes]
        for k, needs in enumerate(self.needs):
            for d in needs:
                followers[d].append(k)
        order = []
        while ready:
            _, k = heapq.heappop(ready)
            order.append(k)
            for f in followers[k]:
                waiting[f] -= 1
                if waiting[f] == 0:
                    heapq.heappush(ready, (keys[f], f))
        assert len(order) == len(self.nodes), "kernels depend on each other in a circle"
        return order


def _merge(kernel: Kernel, step: Compute, fit: Fit) -> None:
    for m in kernel.members:
        m.subs = {name: substitute(x, fit.kernel_subs) for name, x in m.subs.items()}
    kernel.sizes, kernel.split = fit.sizes, fit.split
    kernel.members.append(Member(step, fit.step_subs, fit.full))


def new_kernel(step: Compute, program: Program) -> Kernel:
    """A kernel of one step."""
    loops = step.loops + step.reduce_loops
    sizes = _sizes(loops)
    subs = _regroup(_names(loops), sizes, range(len(sizes)))
    if step.kind == "pointwise":
        style, split = "rows", None
    elif step.kind in FOLDS:
        style, split = reduction_style(step, program), len(step.loops)
    else:
        style, split = "scatter", None
    return Kernel(style, sizes, split, [Member(step, subs)])


# --- reductions ---


def reduction_style(step: Compute, program: Program) -> str:
    """'rows' where the folded elements are contiguous in memory, 'columns' where the kept ones are: along what the fewest operands
    lie apart, then by the memory that is read."""
    if not step.loops:
        return "rows"
    sizes = {name: max(program.hint(size), 1) for name, size in (*step.loops, *step.reduce_loops)}
    gains = dict.fromkeys(sizes, 0)
    apart = dict.fromkeys(sizes, 0)
    for load in step.values:
        if load.op != "load":
            continue
        computed = {name for v in walk(load.args[:len(load.attr.names)]) if v.op == "load" for name in free_variables(v.attr.index)}
        weight = math.prod([n for name, n in sizes.items() if name in free_variables(load.attr.index) | computed])
        for name in sizes:
            near = _same(coefficient(load.attr.index, name) or 0, 1) and name not in computed
            gains[name] += weight * near
            apart[name] += lie_apart([load.attr.index], name) or name in computed
    kept = [name for name, _ in step.loops if gains[name] and sizes[name] >= 4]
    folded = [name for name, _ in step.reduce_loops if gains[name]]
    if not kept or not folded:
        return "columns" if kept else "rows"
    ours, theirs = (min(apart[name] for name in names) for names in (kept, folded))
    if ours != theirs:
        return "columns" if ours < theirs else "rows"
    return "columns" if sum(gains[name] for name in kept) > sum(gains[name] for name in folded) else "rows"


def lie_apart(indices: Sequence[Index], name: str) -> int:
    """How many of the places are neither the same nor neighbours as the loop variable moves."""
    steps = [coefficient(index, name) for index in indices]
    return sum(step is None or not (_same(step, 0) or _same(step, 1)) for step in steps)


def split_reduction(step: Step, program: Program, limits: Limits = CPU) -> list[Step]:
    """Two steps for a reduction with too few results to keep the threads busy: over pieces, then over the pieces' results."""
    if not isinstance(step, Compute) or step.kind not in FOLDS:
        return [step]
    run = None if limits.blocks else _short_run(step, program)
    if run is not None:
        rest = tuple([loop for loop in step.reduce_loops if loop != run])
        return _two_folds(step, program, Tracer(), step.body, (*step.loops, run), rest)
    results, inner = program.hint(numel(step.loops)), program.hint(numel(step.reduce_loops))
    style = reduction_style(step, program)
    enough = results >= (limits.few_rows if style == "rows" else limits.few_columns)
    if enough or inner * results < SPLIT_FROM * 2 or inner < 4 * PIECES:
        return [step]
    if limits.blocks and all(isinstance(n, int) for _, n in step.reduce_loops):
        return _split_outermost(step, program, limits.blocks // max(1, results // (32 if style == "columns" else 1)))
    loops = [loop for loop in step.reduce_loops if _pieces(loop[1])[0] is not None]
    if not loops:
        return [step]
    long = [loop for loop in loops if isinstance(loop[1], int) or program.hint(loop[1]) >= 4 * PIECES]
    longest = max(loops, key=lambda loop: program.hint(loop[1]))
    name, size = max(long, key=lambda loop: _stride(step, loop[0], program), default=longest)
    at = next(k for k, loop in enumerate(step.reduce_loops) if loop[0] == name)
    pieces, chunk = _pieces(size)    # of memory, if the outermost loop is long enough
    assert pieces is not None
    tracer = Tracer()
    outer, within = var("p", size=pieces), var(name, size=chunk)
    position = outer * chunk + within
    exact = isinstance(size, int) and isinstance(pieces, int) and pieces * chunk == size
    inside = None if exact else tracer.index_lt(position, size)
    body = rewrite([step.body], tracer, lambda x: substitute(x, {name: position}), inside)[step.body.uid]
    if inside is not None:
        body = tracer.where(inside, body, tracer.constant(_identity(step), body.dtype))
    rest = (*step.reduce_loops[:at], (name, chunk), *step.reduce_loops[at + 1:])
    return _two_folds(step, program, tracer, body, (("p", pieces), *step.loops), rest)


def _short_run(step: Compute, program: Program) -> Loop | None:
    """The loop of a fold in which memory is contiguous for a few elements only, as in a group of channels: these are folded last,
    from sums that lie side by side."""
    largest = max(step.loads, key=lambda a: len(free_variables(a.index)), default=None)
    if largest is None or len(step.reduce_loops) < 2:
        return None
    run = next((loop for loop in step.reduce_loops if _same(coefficient(largest.index, loop[0]) or 0, 1)), None)
    if run is None or program.hint(run[1]) > SHORTEST_RUN or program.hint(numel(step.reduce_loops)) < 16 * program.hint(run[1]):
        return None
    others = [coefficient(largest.index, name) for name, _ in step.reduce_loops if name != run[0]]
    return None if any(stride is not None and _same(stride, run[1]) for stride in others) else run


def _stride(step: Compute, name: str, program: Program) -> int:
    """How far apart in memory the operands of neighbouring iterations of a loop are, at most."""
    return max((abs(program.hint(coefficient(a.index, name) or 0)) for a in step.loads), default=0)


def _split_outermost(step: Compute, program: Program, most: int) -> list[Step]:
    """`step` in about `most` pieces: whole outer loops, and the part of the next one that divides it. No index is divided."""
    pieces: list[Loop] = []
    inner: list[Loop] = []
    subs: dict[str, Index] = {}
    for name, size in step.reduce_loops:
        assert isinstance(size, int)
        count = max(d for d in range(1, min(size, most) + 1) if size % d == 0) if most > 1 else 1
        most = most // count if count == size else 1
        if count > 1:
            pieces.append((f"p{len(pieces)}", count))
        if count < size:
            inner.append((name, size // count))
        outer = var(pieces[-1][0], size=count) if count > 1 else 0
        subs[name] = outer * (size // count) + (var(name, size=size // count) if count < size else 0)
    if not pieces or not inner:
        return [step]
    tracer = Tracer()
    body = rewrite([step.body], tracer, lambda x: substitute(x, subs))[step.body.uid]
    return _two_folds(step, program, tracer, body, (*pieces, *step.loops), tuple(inner))


def _two_folds(step: Compute, program: Program, tracer: Tracer, body: Value, loops: tuple[Loop, ...],
               inner: tuple[Loop, ...]) -> list[Step]:
    """A fold of `body` over `inner` for each of `loops`, in memory in their order, and one over those that are not the step's."""
    buffer = program.buffers[step.buffer]
    pieces = tuple([loop for loop in loops if loop not in step.loops])
    sizes = _sizes(loops)
    partial = replace(buffer, name=f"{buffer.name}_pieces", shape=tuple(sizes), kind="temp",
                      dtype=step.body.dtype, strides=tuple([math.prod(sizes[k + 1:]) for k in range(len(sizes))]))
    program.buffers[partial.name] = partial
    place: Index = 0
    for (loop, _), stride in zip(loops, partial.strides, strict=True):
        place = place + var(loop, size=dict(loops)[loop]) * stride
    first = Compute(partial.name, place, loops, body, step.kind, inner, origins=step.origins)
    load = tracer.load(partial.name, place, partial.dtype)
    second = Compute(step.buffer, step.index, step.loops, load, step.kind, pieces, origins=step.origins)
    return [first, second]


def _pieces(size: Index) -> tuple[Index | None, Index]:
    """How many pieces to split a loop into, and their length: an exact divisor near PIECES, or the last one is short."""
    if isinstance(size, int):
        for pieces in (32, 28, 24, 36, 40, 48, 20, 16, 64, 56):
            if size % pieces == 0:
                return pieces, size // pieces
        if size < 4 * PIECES:
            return None, size
    return PIECES, (size + (PIECES - 1)) // PIECES


def _identity(step: Compute) -> object:
    return FOLDS[step.kind].nothing(step.body.dtype)


def rewrite(roots: Sequence[Value], tracer: Tracer, place: Callable[[Index], Index], mask: Value | None = None,
            forward: Mapping[str, Value] | None = None) -> dict[int, Value]:
    """The values below `roots` with indices changed by `place`, made in `tracer`, by the uid of what they replace.

    `mask`: a condition under which loads happen from now on. `forward`: values that stand for loads of a buffer.
    """
    new: dict[int, Value] = {}
    for v in walk(roots):
        args = tuple([new[a.uid] for a in v.args])
        if v.op == "load":
            access: Access = v.attr
            if forward is not None and access.buffer in forward:
                new[v.uid] = forward[access.buffer]
                continue
            masked = access.masked
            if mask is not None:
                args = (*args[:-1], tracer.logical_and(args[-1], mask)) if masked else (*args, mask)
                masked = True
            index = place(access.index)
            new[v.uid] = tracer.make("load", args, v.dtype, Access(access.buffer, index, access.names, masked))
        elif v.op == "index":
            expr = place(v.attr)
            new[v.uid] = tracer.make("index", args, v.dtype, expr) if isinstance(expr, Expr) else tracer.index(expr, v.dtype)
        else:
            new[v.uid] = tracer.make(v.op, args, v.dtype, v.attr)
    return new


def schedule(program: Program, limits: Limits = CPU) -> list[Node]:
    """The kernels and library calls of `program`, in order."""
    return Scheduler(program, limits).run()
