"""Repeated blocks of a captured graph are compiled once.

Capture unrolls a deep network: the same block stands in its graph once for every layer. `compile_repeats` finds the runs of
equal blocks (the same operators on values of the same shapes, strides and dtypes, wired alike), cuts the graph at their
borders and compiles each piece as a captured graph of its own, a repeated one once. What remains of the graph is a list of
calls. A piece keeps all of eager's meaning (writes, views, history), so the cut changes none; what it costs is a call of
Python for each block and direction, and no fusion across the border: a block is cut out if its kernels move far more memory
than crosses its border.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

from flambeau.aot.joint import trace
from flambeau.aot.partition import ends_a_kernel, value_bytes
from flambeau.core import dispatch, watching
from flambeau.core.symbolic import SymFloat, SymInt, free_variables, hint_of, is_var
from flambeau.core.tensor import Tensor
from flambeau.fx import GraphModule, Node, map_aggregate, map_arg
from flambeau.fx.node import resolve_attr, walk_nodes
from flambeau.fx.passes.split_module import extract_graph

LEAST_SAVED = 60        # nodes that need not be compiled: below, it is not worth a cut
OPERATIONS_PER_BYTE = 10    # floating-point operations done in the time in which a byte is moved from or to memory
WORK = 1 << 20          # what a call should do, in bytes that could be moved meanwhile: blocks of less are taken together
LEAST_CALLS = 4         # of blocks that are taken together
LEAST_RATIO = 8         # of a block's work to the bytes that cross its border
PERIODS_TRIED = 8
BORDERS_TRIED = 3


class Block(NamedTuple):
    """A stretch of the graph that becomes a graph of its own: its nodes, the values that it takes and those that it gives."""

    nodes: Sequence[Node]
    taken: list[Node]
    given: list[Node]
    start: int = 0  # its place in the graph


class Step(NamedTuple):
    """A call: of which compiled piece, on which values, for which; and the values that nobody needs after it."""

    piece: int
    taken: list[int]
    given: list[int]
    freed: list[int]
    nodes: Sequence[Node]   # of the piece, as they are in this graph


class Call(NamedTuple):
    """What a piece is given, and which of its results have a history then."""

    inputs: list[Any]
    recorded: tuple[bool, ...] = ()


Compile = Callable[[GraphModule, list[Call]], Callable[..., Sequence[Any]]]


def compile_repeats(gm: GraphModule, examples: Sequence[Any], compile_piece: Compile) -> Callable[..., Any] | None:
    """`gm` as a function of its inputs, made of compiled pieces; None where nothing in it repeats, or it cannot be cut.

    `compile_piece(gm, calls)` compiles a piece for any of these calls.
    """
    kinds = _kinds(gm)
    if kinds is None:
        return None
    values = {**dict(zip((n for n in gm.graph.nodes if n.op == "placeholder"), examples, strict=True)),
              **{n: resolve_attr(gm, str(n.target)) for n in gm.graph.nodes if n.op == "get_attr"}}
    pieces = []
    for kind in kinds:
        piece = module_of(kind[0])
        piece.graph.meta["blocks"] = [[*block.taken, *block.nodes] for block in kind]     # what it stands for, for reports
        pieces.append(compile_piece(piece, [Call([values.get(n, n.meta.get("val")) for n in block.taken], _recorded(block)) for block in kind]))
    return Chain(gm, _in_order(kinds), pieces)


class Chain:
    """The pieces of a graph, called one after the other."""

    def __init__(self, gm: GraphModule, calls: list[tuple[int, Block]], pieces: Sequence[Callable[..., Sequence[Any]]]) -> None:
        nodes = list(gm.graph.nodes)
        self.output = nodes[-1].args[0]
        self.place = {n: i for i, n in enumerate([*(n for n in nodes if n.op == "placeholder"), *(n for n in nodes if n.op == "get_attr")])}
        self.attributes = [(gm, str(n.target)) for n in nodes if n.op == "get_attr"]
        for _, block in calls:
            self.place.update({n: len(self.place) + i for i, n in enumerate(block.given)})
        self.pieces = pieces
        self.steps = list(self._steps(calls))

    def _steps(self, calls: list[tuple[int, Block]]) -> Iterator[Step]:
        seen = set(walk_nodes(self.output))
        for number, block in reversed(calls):
            freed = [n for n in (*block.taken, *block.given) if n not in seen]
            seen.update(freed)
            yield Step(number, [self.place[n] for n in block.taken], [self.place[n] for n in block.given],
                       [self.place[n] for n in dict.fromkeys(freed)], [*block.taken, *block.nodes])

    def __call__(self, *args: Any) -> Any:
        values: list[Any] = [*args, *[resolve_attr(gm, name) for gm, name in self.attributes]]
        values += [None] * (len(self.place) - len(values))
        pieces = self.pieces
        watched = bool(dispatch.state.watchers)
        for piece, taken, given, freed, nodes in reversed(self.steps):
            arguments = [values[i] for i in taken]
            if watched:
                with watching.within(nodes):
                    results = pieces[piece](*arguments)
            else:
                results = pieces[piece](*arguments)
            del arguments
            for i, value in zip(given, results):
                values[i] = value
            for i in freed:
                values[i] = None
        return map_arg(self.output, lambda n: values[self.place[n]])


# -- cutting -----------------------------------------------------------------------------------------------------------


def _kinds(gm: GraphModule) -> list[list[Block]] | None:
    """The graph as blocks, those together that are one piece; None if there is no piece of several. Calls of regions
    (`torch.compiler.nested_compile_region`) are such pieces however small they are."""
    nodes = list(gm.graph.nodes)
    body = [n for n in nodes if n.op not in ("placeholder", "get_attr", "output")]
    marked = any("region" in n.meta for n in body)
    if not marked:
        body = _views_first(body)
    if (len(body) < 2 * LEAST_SAVED and not marked) or not can_be_cut(gm, nodes, body):
        return None
    cutter = _Cutter(nodes, body)
    kinds = list(cutter.regions() if marked else cutter.runs(0, len(body)))
    if cutter.refused or not any(len(kind) > 1 for kind in kinds) or writes_what_was_read(block for _, block in _in_order(kinds)):
        return None
    return kinds


def _in_order(kinds: Sequence[Sequence[Block]]) -> list[tuple[int, Block]]:
    """All blocks as the program has them, with the numbers of their kinds."""
    return sorted(((k, block) for k, kind in enumerate(kinds) for block in kind), key=lambda numbered: numbered[1].start)


def writes_what_was_read(blocks: Iterable[Block]) -> bool:
    """Whether a block writes to memory that an earlier one made or read, and may have saved for its backward."""
    first: dict[int, int] = {}  # where memory is met
    for i, block in enumerate(blocks):
        for node in block.nodes:
            for n in (*node._inputs, node):
                for tensor in _tensors(n.meta.get("val")):
                    first.setdefault(id(tensor._store), i)
            if any(first.setdefault(id(tensor._store), i) < i for tensor in node.meta.get("writes", ())):
                return True
    return False


def _views_first(body: list[Node]) -> list[Node]:
    """The steps, first of all the views of what the graph is given (a sequence's elements, which each block takes another of)."""
    if any(n.meta.get("writes") for n in body):
        return body
    early: set[Node] = set()
    inner = set(body)
    for node in body:
        val = node.meta.get("val")
        if isinstance(val, Tensor) and val._view is not None and all(n not in inner or n in early for n in node._inputs):
            early.add(node)
    return sorted(body, key=lambda n: n not in early)


def can_be_cut(gm: GraphModule, nodes: Iterable[Node], body: Iterable[Node]) -> bool:
    tensors = all(isinstance(resolve_attr(gm, str(n.target)), Tensor) for n in nodes if n.op == "get_attr")
    return tensors and not any(n.op == "call_module" or n.meta.get("lays_out") for n in body) and not any(
        isinstance(n.meta.get("val"), dispatch.Computes) for n in body)     # which no piece could be given


class _Cutter:
    """Finds the runs of equal blocks of one graph, the longest first, or its regions, and what lies between them."""

    def __init__(self, nodes: Sequence[Node], body: Sequence[Node]) -> None:
        self.body = body
        self.place = {n: i for i, n in enumerate(body)}
        self.last_use = {n: max((self.place.get(u, len(body)) for u in n.users), default=-1) for n in nodes}
        names: dict[Any, int] = {}
        self.tokens = [names.setdefault(_token(n), len(names)) for n in body]
        self.symbols = {str(n.meta["val"]): n for n in nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), (SymInt, SymFloat))}
        self.open = open_scopes(body)
        self.crossing = self._crossing()
        self.refused = False

    def runs(self, start: int, stop: int) -> Iterator[list[Block]]:
        """The runs of the nodes from `start` to `stop`."""
        found = self._longest_run(start, stop)
        if found is None:
            if start < stop:
                yield [self._block(start, stop)]
            return
        first, period, count = found
        yield from self.runs(start, first)
        yield self._alike([self._block(first + k * period, first + (k + 1) * period) for k in range(count)])
        yield from self.runs(first + count * period, stop)

    def regions(self) -> Iterator[list[Block]]:
        """The calls of regions, equal ones together, and what lies between them."""
        kinds: dict[Any, list[Block]] = {}
        borders = [i for i in range(1, len(self.body)) if self._region(i) != self._region(i - 1) and not self.open[i]]
        for start, stop in pairwise([0, *borders, len(self.body)]):
            key = self._key(start, stop) if self._region(start) is not None else None
            kinds.setdefault(start if key is None else (key, tuple(self.tokens[start:stop])), []).append(self._block(start, stop))
        return map(self._alike, kinds.values())

    def _region(self, i: int) -> int | None:
        return self.body[i].meta.get("region")

    def _alike(self, blocks: list[Block]) -> list[Block]:
        """Equal blocks, which all give what any of them gives."""
        given = sorted({self.place[n] - block.start for block in blocks for n in block.given})
        return [Block(b.nodes, b.taken, [b.nodes[i] for i in given], b.start) for b in blocks]

    def _crossing(self) -> list[int]:
        """For each place before a node, and the end, how many values are made before it and used after."""
        changes = [0] * (len(self.body) + 2)
        for i, node in enumerate(self.body):
            changes[i + 1] += 1
            changes[max(self.last_use[node], i) + 1] -= 1
        return list(accumulate(changes))

    def _longest_run(self, start: int, stop: int) -> tuple[int, int, int] | None:
        """The first node, the period and the number of the run that saves most nodes."""
        best, most = None, LEAST_SAVED - 1
        for period in self._periods(start, stop):
            for first, length in self._matches(period, start, stop):
                if length - length % period <= most:
                    continue
                offsets = sorted(range(min(period, length % period + 1)), key=lambda k: self.crossing[first + k + period])
                for offset in offsets[:BORDERS_TRIED]:
                    run = self._equal_blocks(first + offset, period, (length - offset) // period + 1)
                    if run is not None and (run[2] - 1) * run[1] > most:
                        best, most = run, (run[2] - 1) * run[1]
        return best

    def _periods(self, start: int, stop: int) -> list[int]:
        """The most frequent distances between equal steps."""
        latest: dict[int, int] = {}
        distances: Counter[int] = Counter()
        for i in range(start, stop):
            token = self.tokens[i]
            if token in latest:
                distances[i - latest[token]] += 1
            latest[token] = i
        return [period for period, _ in distances.most_common(PERIODS_TRIED)]

    def _matches(self, period: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Where steps equal those a period later: the first of each stretch, and its length."""
        tokens = self.tokens
        same = groupby(range(start, stop - period), lambda i: tokens[i] == tokens[i + period])
        for equal, stretch in same:
            places = list(stretch)
            if equal:
                yield places[0], len(places)

    def _equal_blocks(self, first: int, period: int, count: int) -> tuple[int, int, int] | None:
        """Those among these blocks that are one piece called again: the first of the longest row, the period and their number."""
        starts = range(first, first + count * period, period)
        if any(self.open[s] for s in (*starts, starts[-1] + period)):
            return None
        keys = groupby(starts, lambda s: self._key(s, s + period))
        rows = [list(row) for key, row in keys if key is not None]
        longest: list[int] = max(rows, key=len, default=[])
        if len(longest) < 2:
            return None
        block = self._block(longest[0], longest[0] + period)
        work = _work(block)
        if work < LEAST_RATIO * sum(value_bytes(n.meta["val"]) for n in block.given):
            return None
        together = max(1, min(WORK // max(work, 1), len(longest) // LEAST_CALLS))
        return longest[0], period * together, len(longest) // together

    def _key(self, start: int, stop: int) -> tuple | None:
        """What equal blocks have in common: how their steps hang together, and what they take; None if that can't be handed over."""
        block = self._block(start, stop)
        taken = {n: i for i, n in enumerate(block.taken)}
        wires = tuple(~taken[n] if n in taken else self.place[n] - start
                      for node in block.nodes for n in walk_nodes((node.args, node.kwargs)))
        if not all(isinstance(n.meta.get("val"), (Tensor, SymInt, SymFloat)) for n in (*block.taken, *block.given)):
            return None
        given = [(n.meta["val"], bool(n.meta.get("parameter"))) for n in block.taken]
        return wires, tuple((_signature(val, placed=_depends_on_place(val)), parameter) for val, parameter in given)

    def _block(self, start: int, stop: int) -> Block:
        nodes = self.body[start:stop]
        inside = range(start, stop)
        taken = {n: None for node in nodes for n in node._inputs if self.place.get(n, -1) not in inside}
        given = [n for n in nodes if self.last_use[n] >= stop]
        missing = self._spoken_of(nodes, taken) - {name for n in taken for name in _shown(n.meta.get("val"))}
        if not missing <= self.symbols.keys():
            self.refused = True
            missing &= self.symbols.keys()
        taken.update({self.symbols[name]: None for name in sorted(missing)})
        return Block(nodes, list(taken), given, start)

    def _spoken_of(self, nodes: Iterable[Node], taken: Iterable[Node]) -> set[str]:
        """The symbols in the sizes of a block's values."""
        return {name for n in (*nodes, *taken) for size in _sizes(n.meta.get("val")) for name in _symbols(size)}


def _recorded(block: Block) -> tuple[bool, ...]:
    return tuple(tensor.requires_grad for n in block.given for tensor in _tensors(n.meta.get("val")))


def module_of(block: Block) -> GraphModule:
    """A block as a graph of its own."""
    return GraphModule({}, extract_graph(block.nodes, block.taken, block.given, always_tuple=True), "piece")


# -- what steps are ----------------------------------------------------------------------------------------------------


def _token(node: Node) -> tuple:
    """What a step does, whatever its inputs are called."""
    return node.op, node.target, _text(node.args), _text(node.kwargs), _signature(node.meta.get("val")), bool(node.meta.get("writes"))


def _text(a: Any) -> str:
    return repr(map_aggregate(a, lambda leaf: "%" if isinstance(leaf, Node) else id(leaf) if isinstance(leaf, Tensor) else leaf))


def _signature(val: Any, placed: bool = True) -> Any:
    """A value's layout and type, or the number it is; `placed`: with its place in memory."""
    if isinstance(val, Tensor):
        shape, strides, offset = val._layout
        return f"{shape} {strides} {offset if placed else ''}", val.dtype, val.device, type(val)
    if isinstance(val, (tuple, list)):
        return tuple(map(_signature, val))
    return repr(val)


def _depends_on_place(val: Any) -> bool:
    """Whether the program looks at where in its memory a tensor begins."""
    return any(getattr(tensor._storage, "asked_where", False) for tensor in _tensors(val))


def _tensors(val: Any) -> Iterator[Tensor]:
    if isinstance(val, (tuple, list)):
        for item in val:
            yield from _tensors(item)
    elif isinstance(val, Tensor):
        yield val


def _sizes(val: Any) -> tuple:
    if isinstance(val, Tensor):
        shape, strides, offset = val._layout
        return (*shape, *strides, offset)
    return tuple(size for item in val for size in _sizes(item)) if isinstance(val, (tuple, list)) else (val,)


def _symbols(size: Any) -> frozenset[str]:
    return size.variables if isinstance(size, SymFloat) else free_variables(size.expr) if isinstance(size, SymInt) else frozenset()


def _shown(val: Any) -> Iterator[str]:
    """The symbols that a value shows by itself."""
    for size in val._layout.shape if isinstance(val, Tensor) else (val,):
        if (isinstance(size, SymInt) and is_var(size.expr)) or (isinstance(size, SymFloat) and size.op == "variable"):
            yield from _symbols(size)


def _work(block: Block) -> int:
    """What the block's products and the like do, which fuse with little around them: bytes moved, and what could be moved meanwhile."""
    try:
        graph = trace(module_of(block), [n.meta["val"] for n in block.taken], (), None).graph
    except NotImplementedError:
        return 0
    kernels = [n for n in graph.nodes if ends_a_kernel(n)]
    moved = sum(value_bytes(n.meta["val"]) for kernel in kernels for n in (kernel, *kernel._inputs))
    return moved + sum(map(_operations, kernels)) // OPERATIONS_PER_BYTE


def _operations(node: Node) -> int:
    """The floating-point operations of a step, as its record tells."""
    flops = getattr(node.target, "flops", None)
    if flops is None:
        return 0
    shapes = [map_arg(a, lambda n: _hints(n.meta["val"])) for a in node.args]
    return int(flops(_hints(node.meta["val"]), *shapes))


def _hints(val: Any) -> Any:
    return tuple(map(hint_of, val._layout.shape)) if isinstance(val, Tensor) else val


def open_scopes(body: Sequence[Node]) -> list[bool]:
    """For each place before a node, and the end, whether a scope (of autocast, of another grad mode) is open there."""
    opened: set[Node] = set()
    mode = entry = next((n.meta["replaced"] for n in body if "recording" in n.meta), None)
    found = []
    for node in body:
        found.append(bool(opened) or mode != entry)
        if "recording" in node.meta:
            mode = node.meta["recording"]
        elif node.meta.get("scope"):
            opened ^= {node.args[0] if node._inputs else node}
    return [*found, bool(opened) or mode != entry]
