"""Tracing by dispatch: whatever primitives a function calls on fake tensors become a functional graph.

`TraceMode` stands in the dispatch ladder below autograd, so the calls that the engine makes in a backward pass are seen
like any others. Memory is made into values on the way: the tracer knows for every storage which node holds its contents
now, and for every view the chain of view primitives that leads to it. A write (`copy_into`) makes a new value of the
base; a view that is read after a write is taken again from the new value. The graph itself never writes.
"""

from __future__ import annotations

import bisect
import dis
import functools
import linecache
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from flambeau import _C
from flambeau.aot.passes import copy_of, root_of
from flambeau.aot.sizes import SizeNodes
from flambeau.core import dispatch
from flambeau.core.device import device
from flambeau.core.dtypes import int64
from flambeau.core.memory_format import contiguous_format
from flambeau.core.size import is_contiguous, is_dense, may_overlap, memory_order, permuted_strides
from flambeau.core.storage import Aside
from flambeau.core.symbolic import ShapeEnv, SymFloat, SymInt
from flambeau.core.tensor import Tensor, bump_version, fake
from flambeau.fx import Graph, GraphModule, Interpreter, Node, map_aggregate
from flambeau.ops.primitives import ViewPrimitive
from flambeau.ops.registry import OPERATORS, PRIMITIVES, CompositeRecord
from flambeau.ops.wrappers import answer, in_aten, wrapping
from flambeau.ops.writing import copy_into

Chain = tuple[tuple[Any, tuple], ...]


class Cell:
    """The memory of one storage: `node` holds its value now, in the layout of `base`; `version` counts writes."""

    __slots__ = ("base", "first", "layout", "node", "place", "version")

    def __init__(self, base: Tensor, node: Node, place: int | None) -> None:
        self.base, self.layout = base, base._lay
        self.first = node
        self.node = node
        self.version = 0
        self.place = place  # which input this is, if it is one


class Entry:
    """What is known of a tensor: its cell, how it looks into it, and the node of its value as of `version`."""

    __slots__ = ("cell", "chain", "layout", "node", "storage", "tensor", "version")

    def __init__(self, tensor: Tensor, cell: Cell, chain: Chain, node: Node) -> None:
        self.tensor = tensor
        self.storage, self.layout = tensor._store, tensor._lay  # held, for entries are found by their ids
        self.cell = cell
        self.chain = chain
        self.node = node
        self.version = cell.version


def stripped(tensor: Tensor) -> Tensor:
    """A fake tensor of the same layout and memory of its own, without history."""
    shape, strides, offset = tensor._layout
    return fake(shape, tensor.dtype, tensor.device, strides, offset)


def stand_in(tensor: Tensor) -> Tensor:
    """The same, which needs a gradient if the tensor does."""
    made = stripped(tensor)
    if tensor.requires_grad:
        made.requires_grad = True
    return made


class TraceMode:
    """Records every primitive call into `graph`. Inputs are made by `input` and `size_input`; without `kernels`, operators that have a
    kernel, which Python calls, are taken apart nevertheless; with `aten`, what ATen has an overload of stays whole."""

    def __init__(self, kernels: bool = True, aten: bool = False) -> None:
        self.kernels, self.aten = kernels, aten
        self.graph = Graph()
        self.symbols: dict[str, Node] = {}
        self.sizes = SizeNodes(self.graph, self.symbols)
        self.constants: dict[str, Tensor] = {}
        self.random: Tensor | None = None  # the input with the generator's state, once something is drawn
        self.drawn: Any = 0  # how much of the random stream the graph uses up
        self.stack: tuple = ()  # the user's frames that the next nodes belong to
        self.place = -1     # the number of the captured graph's node that they belong to
        self._lines: list[tuple[int, tuple, int]] = []  # (number of the next autograd node, stack, place), in order
        self._entries: dict[tuple[int, int], Entry] = {}
        self._twins: dict[int, tuple[Tensor, Tensor]] = {}  # id of a real tensor -> (itself, its fake twin)

    # -- the user's lines --------------------------------------------------------------------------------------------

    def enter_line(self, stack: tuple, place: int = -1) -> None:
        """What follows belongs to this line of the user's, and to this node of the captured graph."""
        self.stack, self.place = stack, place
        self._lines.append((_C.next_node(), stack, place))

    def line_of(self, sequence: int) -> tuple[tuple, int]:
        """The line and the node in whose course the autograd node of this number was made."""
        at = bisect.bisect(self._lines, sequence, key=lambda line: line[0]) - 1
        return self._lines[at][1:] if at >= 0 else ((), -1)

    def follow_backward(self, roots: Iterable[Any]) -> None:
        """While the engine runs a node of the tape, what is recorded belongs to the line that made the node."""
        seen, stack = set(), [root for root in roots if root is not None]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                node.register_prehook(functools.partial(self._enter_node, *self.line_of(node.sequence)))
                stack.extend(edge.node for edge in node.edges if edge is not None)

    def _enter_node(self, stack: tuple, place: int, gradients: tuple) -> None:
        self.stack, self.place = stack, place

    # -- inputs and constants ----------------------------------------------------------------------------------------

    def input(self, name: str, tensor: Tensor, place: int | None = None) -> Entry:
        """Make a fake tensor an input of the graph; `place` tells it from others."""
        node = self.graph.placeholder(name)
        node.meta["val"] = stripped(tensor)
        return self._own(tensor, node, place)

    def size_input(self, name: str, value: SymInt | SymFloat) -> Node:
        """Make a bare symbol an input of the graph."""
        node = self.graph.placeholder(name)
        node.meta["val"] = value
        self.symbols[str(value)] = node
        return node

    def rng_state(self, count: Any, where: device, generator: Any) -> tuple[Tensor, Any]:
        """Called for a draw of `count` blocks: (the default generator's state, an input; what is used of it)."""
        if generator is not None:
            raise NotImplementedError("a draw from a torch.Generator of its own cannot be traced; use the default generator, or "
                                      "draw outside of the compiled function and pass the numbers in")
        if self.random is None:
            self.random = fake((2,), int64, where)
            first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
            with self.graph.inserting_before(first) if first is not None else nullcontext():
                self.input("rng_state", self.random)
        if self.random.device != where:
            raise NotImplementedError(
                f"random numbers on {self.random.device} and on {where} in one graph; compile the parts apart"
            )
        used, self.drawn = self.drawn, self.drawn + count
        return self.random, used

    def twin(self, real: Tensor) -> Tensor:
        """The fake tensor that stands for a real one: a constant of the graph, unless it was made an input."""
        found = self._twins.get(id(real))
        if found is None:
            self.adopt(real, made := stripped(real))
            name = f"_tensor_constant{len(self.constants)}"
            self.constants[name] = real
            node = self.graph.get_attr(name)
            node.meta["val"] = stripped(real)
            self._own(made, node, None)
            return made
        return found[1]

    def adopt(self, real: Tensor, twin: Tensor) -> None:
        """From now on `twin` stands for `real`."""
        self._twins[id(real)] = (real, twin)

    def _own(self, tensor: Tensor, node: Node, place: int | None = None) -> Entry:
        """Enter a tensor with memory of its own."""
        entry = Entry(tensor, Cell(tensor, node, place), (), node)
        self._entries[id(tensor._store), id(tensor._lay)] = entry
        return entry

    # -- reading -----------------------------------------------------------------------------------------------------

    def knows(self, tensor: Tensor) -> bool:
        """Whether the tensor came out of this trace."""
        store, layout = tensor._store, id(tensor._lay)
        return (id(store), layout) in self._entries or (isinstance(store, Aside) and (id(store.of), layout) in self._entries)

    def entry(self, tensor: Tensor) -> Entry:
        """What is known of a tensor. Objects that share storage and layout (`detach`, saved outputs) are one."""
        found = self._entries.get((id(tensor._store), id(tensor._lay)))
        if found is None and isinstance(tensor._store, Aside):
            return self._beside(tensor, tensor._store)
        if found is None:
            if tensor._data is None:
                raise RuntimeError(
                    f"a fake tensor of shape {list(tensor.shape)} that was made outside of this trace was used in it; "
                    "make it an input of the traced function"
                )
            return self.entry(self.twin(tensor))
        base, was = found.cell.base, found.cell.layout
        if found.cell.place is None and base._lay is not was and base._lay != was:
            raise NotImplementedError(f"a traced tensor was given another layout in place (now {list(base.shape)}), as by t_(); "
                                      "use the form of the operation that is not in place")
        return found

    def _beside(self, tensor: Tensor, store: Aside) -> Entry:
        """The entry of what `.data` gave: the same memory, whose writes are not counted."""
        known = self._entries[id(store.of), id(tensor._lay)]
        found = Entry(tensor, known.cell, known.chain, known.node)
        found.version = known.version
        self._entries[id(store), id(tensor._lay)] = found
        return found

    def node_of(self, tensor: Tensor) -> Node:
        """The node that holds the tensor's value now."""
        entry = self.entry(tensor)
        if entry.version != entry.cell.version:
            self._look_again(entry)
        return entry.node

    def _look_again(self, entry: Entry) -> None:
        """Take a view from the value that its base has now."""
        _check_strided(entry.cell, entry.chain)
        value, node = entry.cell.base, entry.cell.node
        for prim, attrs in entry.chain:
            args = (value, *attrs)
            value = prim.run(args)
            node = self._record_view(prim, (node, *map(self.argument, attrs)), args, value)
        entry.node, entry.version = node, entry.cell.version

    def argument(self, a: Any) -> Any:
        """A primitive's argument as a node's."""
        if isinstance(a, Tensor):
            return self.node_of(a)
        kind = type(a)
        if kind is tuple:
            return tuple([self.argument(item) for item in a]) if any(type(item) is not int for item in a) else a
        if kind is list:
            return [self.argument(item) for item in a]
        if kind is SymInt or kind is SymFloat:
            return self.sizes.of(a)
        if isinstance(a, tuple):
            return tuple([self.argument(item) for item in a])
        return a

    # -- recording ---------------------------------------------------------------------------------------------------

    def handle(self, prim: Any, args: tuple) -> Any:
        """Called by dispatch for every primitive: record it, and answer with fake tensors. A class of our own that computes by others is
        asked, and what it comes to is recorded."""
        if dispatch.wrapping and any(issubclass(kind, dispatch.Computes) for kind in wrapping(args)):
            with dispatch.push_mode(self):
                out = answer(prim, args, isinstance(prim, CompositeRecord))
                if out is NotImplemented:
                    out = prim.fn(*args)
            return out
        if prim is copy_into:
            return self._write(*args)
        if isinstance(prim, CompositeRecord) and not self._stays_whole(prim, args):
            with dispatch.push_mode(self), dispatch.grad_enabled(False):
                out = prim.fn(*args)
            return out if prim.answers_views else self._standalone(out, args)
        args = tuple([self._fake_argument(a) for a in args])
        seen = args[0] if "in_memory" in prim.tags else None
        if seen is not None:
            args = (self._whole(seen), *args[1:])
        node_args = tuple([self.argument(a) for a in args])
        out = prim.run(args)
        if seen is not None and seen._view is not None:     # autograd's history is of what it was taken of
            out._view = seen._view._replace(chain=(*seen._view.chain, (prim, args[1:])))
        node = self._record_view(prim, node_args, args, out)
        if isinstance(prim, ViewPrimitive):
            source = self.entry(args[0])
            if source.cell.version:
                _check_strided(source.cell, (*source.chain, (prim, args[1:])))
            entry = Entry(out, source.cell, (*source.chain, (prim, args[1:])), node)
            self._entries[id(out._store), id(out._lay)] = entry
        elif isinstance(out, Tensor):
            self._own(out, node)
        else:
            self._own_parts(out, node)
        return out

    def _stays_whole(self, prim: CompositeRecord, args: tuple) -> bool:
        if prim.stays_whole(args) and (self.kernels or prim.library):
            return True
        return self.aten and bool(in_aten(prim, args)[0])

    def _record_view(self, prim: Any, node_args: tuple, args: tuple, out: Any) -> Node:
        """Record a primitive; of a conjugate or negative view, the copy, which lies as the view does."""
        if not isinstance(prim, ViewPrimitive) or not prim.copies:
            return self._record(prim, node_args, out)
        copy = PRIMITIVES[prim.copies]
        return self._record(copy, node_args, copy.run(args))

    def _whole(self, view: Tensor) -> Tensor:
        """What a view that tells places in memory is taken of: the memory holds what was written around `view` as well."""
        entry = self.entry(view)
        return entry.cell.base if entry.chain and entry.cell.base.dtype is view.dtype else view

    def _standalone(self, out: Any, args: tuple) -> Any:
        """Results of an operator's body, where a view of a temporary is a tensor of its own, as in eager."""
        if type(out) is tuple:
            return tuple([self._standalone(o, args) for o in out])
        if not isinstance(out, Tensor) or out._view is None or any(out._view.base is a for a in args):
            return out
        made = stripped(out)
        self._own(made, self.node_of(out))
        return made

    def _fake_argument(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            return a if a._data is None else self.twin(a)
        if type(a) in (tuple, list) and any(isinstance(item, Tensor) for item in a):
            return type(a)([self._fake_argument(item) for item in a])
        return a

    def _record(self, prim: Any, node_args: tuple, out: Any) -> Node:
        node = self.graph.call_function(prim, node_args)
        node.meta["val"] = stripped(out) if isinstance(out, Tensor) else tuple(map(stripped, out))
        if self.stack:
            node.meta["stack"] = self.stack
        node.meta["place"] = self.place
        return node

    def also(self, name: str, node: Node, *rest: Any) -> Node:
        """Record what a primitive makes of a node's value."""
        return self._record(PRIMITIVES[name], (node, *rest), PRIMITIVES[name].run((node.meta["val"], *rest)))

    def _own_parts(self, outs: Sequence[Tensor], node: Node) -> None:
        for i, out in enumerate(outs):
            part = self.graph.call_function(operator.getitem, (node, i))
            part.meta = {**node.meta, "val": stripped(out)}
            self._own(out, part)

    # -- writing -----------------------------------------------------------------------------------------------------

    def _write(self, target: Tensor, value: Any) -> Tensor:
        """Make a write into a value: the base gets a new node."""
        target = self._fake_argument(target)
        entry = self.entry(target)
        cell = entry.cell
        if cell.first.op == "get_attr":
            raise NotImplementedError(
                f"the traced function writes to a tensor of shape {list(target.shape)} that it captured; "
                "pass the tensor as an argument, or register it as a buffer"
            )
        if not isinstance(value, Tensor):
            number = PRIMITIVES["full"]
            value = self.handle(number, (tuple(target._layout.shape), value, target.dtype, target.device))
        node = self._in_layout_of(target, self._fake_argument(value))
        if entry.chain:
            self._write_through_view(entry, node)
        else:
            cell.node = node
        cell.version += 1
        bump_version(target)
        if not entry.chain or is_dense(target._layout.shape, target._layout.strides):
            entry.node, entry.version = node, cell.version
        return target

    def _in_layout_of(self, target: Tensor, value: Tensor) -> Node:
        """The node of `value`, copied where its strides are not those that readers of `target` expect."""
        shape, strides, _ = target._layout
        if value._layout.strides == strides or not is_dense(shape, strides):
            return self.node_of(value)
        if is_contiguous(shape, strides):
            return self.node_of(self.handle(PRIMITIVES["clone"], (value, contiguous_format)))
        order = tuple(memory_order(strides, shape))
        inverse = tuple(sorted(range(len(order)), key=order.__getitem__))
        permute = PRIMITIVES["permute"]
        dense = self.handle(PRIMITIVES["clone"], (self.handle(permute, (value, order)), contiguous_format))
        return self.node_of(self.handle(permute, (dense, inverse)))

    def _write_through_view(self, entry: Entry, node: Node) -> None:
        """The base with a part replaced: `view_scatter` says how, for every view primitive."""
        cell = entry.cell
        _check_strided(cell, entry.chain)
        if _shares_places(cell.base, entry.chain):
            raise NotImplementedError("a write through as_strided() or unfold() to places that several elements of the view share")
        base, part = stripped(cell.base), stripped(node.meta["val"])    # which may lie otherwise than what it is written to
        self._own(base, cell.node)
        self._own(part, node)
        with dispatch.push_mode(self), dispatch.grad_enabled(False):
            written = OPERATORS["view_scatter"](base, entry.chain, part)
        cell.node = self._in_layout_of(cell.base, written)


def _shares_places(base: Tensor, chain: tuple) -> bool:
    """Whether several elements of a view on the way to another lie in one place: put back as a whole, they would undo what one got."""
    view = base
    for prim, attrs in chain:
        view = prim.run((view, *attrs))
        if "overlapping" in prim.tags and may_overlap(*view._layout[:2]):
            return True
    return False


def _check_strided(cell: Cell, chain: tuple) -> None:
    """Refuse `as_strided` of what was written: it tells places in memory, and the new value may lie in others."""
    if any(prim.name == "as_strided" for prim, _ in chain):
        shape, strides, offset = cell.base._layout
        if not (type(offset) is int and offset == 0 and is_dense(shape, strides)):
            raise NotImplementedError(f"as_strided() of a tensor of strides {tuple(strides)} at offset {offset} that the graph writes to")


def tracing(mode: TraceMode) -> AbstractContextManager[None]:
    """Trace what the block does; factories make fake tensors meanwhile, and grad mode is restored."""
    return dispatch.scope((*dispatch.state.modes, mode), 2, True, dispatch.state.grad_enabled)


class GraphRunner(Interpreter):
    """Runs a dynamo-level graph on fake tensors; every primitive it comes to is recorded with the user's line."""

    def __init__(self, module: GraphModule, mode: TraceMode, decompositions: Mapping[Any, Callable] | None = None) -> None:
        super().__init__(module)
        self.mode, self.decompositions = mode, decompositions or {}
        self.places = {n: i for i, n in enumerate(module.graph.nodes)}

    def run_node(self, n: Node) -> Any:
        """As the interpreter, with the step's origin noted."""
        self.mode.enter_line(n.meta.get("stack", ()), self.places[n])
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
        """As the interpreter, or what takes the operator's place."""
        return super().call_function(self.decompositions.get(target, target), args, kwargs)

    def call_method(self, target: Any, args: tuple, kwargs: dict) -> Any:
        """As the interpreter, or what takes the operator's place."""
        found = self.decompositions.get(getattr(Tensor, target, None)) if self.decompositions else None
        return found(*args, **kwargs) if found is not None else super().call_method(target, args, kwargs)


_PACKAGE = str(Path(__file__).resolve().parents[1])


def user_stack() -> tuple[tuple[str, int, str, str], ...]:
    """The frames under way that are not the library's own, innermost last."""
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            line = linecache.getline(code.co_filename, frame.f_lineno).strip()
            frames.append((code.co_filename, frame.f_lineno, code.co_name, line))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(reversed(frames))


def asserts() -> bool:
    """Whether the innermost frame that is not the library's own asks for a truth in an `assert` statement."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    rest = [i for i in dis.get_instructions(frame.f_code) if i.offset >= frame.f_lasti and i.opname not in ("TO_BOOL", "NOT_TAKEN")]
    jump = next((k for k, instruction in enumerate(rest[:2]) if "JUMP" in instruction.opname), -1)
    return jump >= 0 and rest[jump].opname.endswith("IF_TRUE") and rest[jump + 1].opname in ("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT")


class FunctionTrace(TraceMode):
    """A trace of plain Python: the line that a step belongs to is read off the frames under way."""

    def _record(self, prim: Any, node_args: tuple, out: Any) -> Node:
        if not self._lines:
            self.stack = user_stack()
        return super()._record(prim, node_args, out)


class _Given:
    """The arguments of a function that is traced, as placeholders; with `env` their sizes are symbols, and so are ints."""

    def __init__(self, mode: TraceMode, env: ShapeEnv | None) -> None:
        self.mode, self.env = mode, env
        self._sizes: list[tuple[str, Node, int]] = []
        self._entries: list[Entry] = []

    def enter(self, leaf: Any) -> Any:
        """What the function is given for an argument."""
        if type(leaf) is int and leaf > 1 and self.env is not None:
            leaf = self.env.create_symint(leaf, f"arg{len(self.mode.graph.nodes)}", alone=True)
        if isinstance(leaf, SymInt):
            self.mode.size_input(str(leaf), leaf)
        if not isinstance(leaf, Tensor):
            return leaf
        made = stripped(leaf) if self.env is None else self._of_any_size(leaf, f"arg{len(self.mode.graph.nodes)}")
        made.requires_grad = leaf.requires_grad
        entry = self.mode.input(f"arg{len(self.mode.graph.nodes)}", made)
        self._entries.append(entry)
        node = entry.node
        self._sizes += [(str(n), node, dim) for dim, n in enumerate(made._layout.shape) if isinstance(n, SymInt)]
        return made

    def _of_any_size(self, tensor: Tensor, name: str) -> Tensor:
        assert self.env is not None
        shape, strides, offset = tensor._layout
        sizes = [self.env.create_symint(n, f"{name}.shape[{dim}]") for dim, n in enumerate(shape)]
        dense = permuted_strides(sizes, memory_order(strides, shape)) if is_dense(shape, strides) else strides
        return fake(tuple(sizes), tensor.dtype, tensor.device, tuple(dense), offset)

    def results(self, answer: Any) -> Any:
        """The nodes of what the function answered, after which the graph writes to the arguments what the function has written to them."""
        graph, written = self.mode.graph, [entry for entry in self._entries if entry.cell.node is not entry.cell.first]
        gone = {entry.cell.first for entry in written}

        def kept(node: Any) -> Any:
            return copy_of(graph, node) if isinstance(node, Node) and root_of(node) in gone else node

        nodes = map_aggregate(map_aggregate(answer, self.mode.argument), kept)
        for entry, value in [(entry, kept(entry.cell.node)) for entry in written]:
            graph.call_function(copy_into, (entry.cell.first, value)).meta = {"val": stripped(entry.cell.base)}
        return nodes

    def read_sizes(self) -> None:
        """After the placeholders: a node for each symbol that the shape of one shows."""
        for name, node, dim in self._sizes:
            if name not in self.mode.symbols:
                made = self.mode.symbols[name] = self.mode.graph.call_method("size", (node, dim))
                made.meta["val"] = node.meta["val"].shape[dim]


def make_fx(f: Callable, env: ShapeEnv | None = None, aten: bool = False) -> Callable[..., GraphModule]:
    """`make_fx(f)(*args)`: what `f` does on inputs like `args`, as a functional graph of primitives (`aten`: as in `TraceMode`), which in
    the end writes to the inputs what `f` has written to them.

    Tensors and symbolic sizes anywhere in the arguments become placeholders; gradients that `f` takes are part of the
    graph. Tensors that `f` captures become constants. With `env` the graph is for any sizes for which its guards hold.
    """

    def traced(*args: Any) -> GraphModule:
        mode = FunctionTrace(aten=aten)
        given = _Given(mode, env)
        with tracing(mode):
            entered = map_aggregate(args, given.enter)
            given.read_sizes()
            mode.graph.output(given.results(f(*entered)))
        mode.graph.eliminate_dead_code(lambda node: node.target is copy_into)
        made = GraphModule(mode.constants, mode.graph, getattr(f, "__name__", "GraphModule"))
        if env is not None:
            made.shape_env = env
        return made

    return traced
