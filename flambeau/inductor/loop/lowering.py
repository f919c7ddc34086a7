"""From a graph of primitives to the loop IR.

Every tensor of the graph becomes a `Box`: either a strided view of a buffer, or *virtual*, a function from an index to
a `Value` that its consumers inline. A primitive says all there is to say by its `loop` facet, so there is no table of
operators here: pointwise bodies and index maps make virtual boxes, reductions make `Compute` steps, products and
convolutions `Extern` ones, and what has no loop calls its eager kernel.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau.core.dtypes import bool_, dtype, int64
from flambeau.core.expr import Expr, Index, bounds, free_variables, is_var, substitute, to_python, var
from flambeau.core.scalar import FOLDS, TABLE, compute_dtype
from flambeau.core.size import contiguous_strides, permuted_strides
from flambeau.core.symbolic import SymFloat, SymInt
from flambeau.core.tensor import Tensor
from flambeau.fx.node import resolve_attr
from flambeau.inductor.loop.boxes import CHEAP, Box, Place, boxes_in, grows, index_of, origin_of, template, trailing
from flambeau.inductor.loop.ir import Buffer, Compute, Extern, Origin, Program, Tracer, Value, View, varies_with, walk
from flambeau.inductor.loop.target import Target
from flambeau.inductor.loop.views import dense, divisors_in, linear_strides
from flambeau.ops.prims import index_shape
from flambeau.ops.registry import Primitive

LARGEST_BODY = 96  # a virtual box with more values than this is stored

# dtypes that loop bodies compute with; a primitive that meets another one runs its eager kernel.
LOOP_DTYPES = frozenset(("bool", "uint8", "int8", "int16", "int32", "int64", "uint32", "uint64", "float16", "bfloat16",
                         "float32", "float64"))


class Lowering:
    """One graph's way into a `Program`."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.tracer = Tracer()
        self.program = Program({}, [], [], [])
        self.boxes: dict[Any, Any] = {}
        self.fallbacks: list[str] = []
        self._folds: dict[tuple, View] = {}
        self.relaid: dict[Any, View] = {}   # operands of convolutions on a GPU that were copied
        self.cut: dict[Any, Box] = {}       # likewise, by blocks of pixels
        self.inlined: list[dict[Origin, None]] = [{}]   # what the bodies that are being made consist of, innermost last
        self.products: dict[str, bool] = {}     # results of library calls that have one reader, which may move into the call: images?
        self._count = 0

    # --- building blocks ---

    def add(self, step: Compute | Extern) -> None:
        """Append a step to the program."""
        self.program.steps.append(step)

    @contextmanager
    def inlining(self) -> Iterator[dict[Origin, None]]:
        """In the block a body is made; where what is computed in it comes from."""
        self.inlined.append({})
        try:
            yield self.inlined[-1]
        finally:
            self.inlined.pop()

    def new_buffer(self, kind: dtype, shape: Sequence[Index], strides: Sequence[Index], role: str = "temp", name: str = "") -> View:
        """A new buffer, seen whole."""
        name = name or f"buf{self._count}"
        self._count += 1
        self.program.buffers[name] = Buffer(name, kind, tuple(shape), tuple(strides), role)
        return View(name, kind, tuple(shape), tuple(strides))

    def iterate(self, shape: Sequence[Index], prefix: str = "i") -> tuple[list[Index], tuple]:
        """Loop variables for `shape` (0 for dimensions of size 1) and the loops over them."""
        idx: list[Index] = []
        loops = []
        for d, size in enumerate(shape):
            if isinstance(size, int) and size == 1:
                idx.append(0)
            else:
                idx.append(var(f"{prefix}{d}", size=size))
                loops.append((f"{prefix}{d}", size))
        return idx, tuple(loops)

    def virtual(self, node: Any, fn: Callable[[Sequence[Index]], Value]) -> Box:
        """A box computed by `fn`, shaped as the node's fake tensor."""
        val = node.meta["val"]
        shape, strides = index_of(tuple(val._layout.shape)), index_of(tuple(val._layout.strides))
        return Box(self, shape, val.dtype, strides if dense(shape, strides) else None, fn=fn, origins=(origin_of(node),))

    def strided(self, view: View) -> Box:
        """A box over a view."""
        return Box(self, view.shape, view.dtype, view=view)

    # --- the walk ---

    def run(self, gm: Any) -> Program:
        """Lower all nodes of `gm.graph`."""
        results = next((n.args[0] for n in gm.graph.nodes if n.op == "output"), ())
        results = results if isinstance(results, (tuple, list)) else (results,)
        self.program.exact = gm.graph.meta.get("exact_outputs", self.program.exact)
        self._exact_results = [n for n in results if hasattr(n, "op")][:self.program.exact]
        for node in gm.graph.nodes:
            method = getattr(self, f"_{node.op}", None)
            if method is None:
                raise NotImplementedError(f"inductor lowers graphs of primitives; the node {node.format_node()} is a "
                                          f"{node.op}: run aot (functionalise and decompose) first")
            method(node, gm)
        self._remove_dead_steps()
        return self.program

    def _placeholder(self, node: Any, gm: Any) -> None:
        val = node.meta["val"]
        position = len(self.program.inputs)
        if not isinstance(val, Tensor):
            self.program.inputs.append(None)
            self.boxes[node] = index_of(val)
            if isinstance(val, SymFloat) and val.op == "variable":
                self.program.symbols[val.left] = (position, -1)
            self._learn_symbol(val, index_of(val), position, -1)
            return
        name = f"arg{position}"
        self.program.inputs.append(name)
        if node.meta.get("parameter"):
            self.program.parameters.add(name)
        if node.meta.get("donated"):
            self.program.donated.add(name)
        shape, strides = index_of(tuple(val._layout.shape)), index_of(tuple(val._layout.strides))
        self.boxes[node] = self.strided(self.new_buffer(val.dtype, shape, strides, "input", name))
        for dim, (size, actual) in enumerate(zip(shape, val._layout.shape, strict=True)):
            self._learn_symbol(actual, size, position, dim)

    def _learn_symbol(self, val: Any, expr: Any, position: int, dim: int) -> None:
        if isinstance(expr, Expr):
            if isinstance(val, SymInt):
                self.program.guards = val.env.guards
            if is_var(expr):
                self.program.symbols.setdefault(to_python(expr), (position, dim))
            for name in free_variables(expr):
                hint = val.env.hints.get(name) if isinstance(val, SymInt) else None
                if hint is not None:
                    self.program.hints[name] = hint

    def _get_attr(self, node: Any, gm: Any) -> None:
        value = resolve_attr(gm, node.target)
        node.meta.setdefault("val", value)
        name = f"const_{node.name}"
        shape, strides = tuple(value._layout.shape), tuple(value._layout.strides)
        self.boxes[node] = self.strided(self.new_buffer(value.dtype, shape, strides, "constant", name))
        self.program.constants[name] = value

    def _output(self, node: Any, gm: Any) -> None:
        """Results in the layout of their fake tensors; those after the first `exact_outputs` may have any."""
        results = node.args[0]
        given = {name for name, buffer in self.program.buffers.items() if buffer.kind != "temp"}    # what others can write to
        for position, result in enumerate(results if isinstance(results, (tuple, list)) else (results,)):
            box = self.boxes[result] if hasattr(result, "op") else index_of(result)
            if not isinstance(box, Box):
                self.program.outputs.append(box)
                continue
            if position < self.program.exact:
                view = self._exact(result, box)
                given.add(view.buffer)
            else:
                view = self._saved(box, given)
            buffer = self.program.buffers[view.buffer]
            if buffer.kind == "temp":
                buffer.kind = "output"
            self.program.outputs.append(view)

    def is_exact(self, node: Any) -> bool:
        """Whether somebody relies on the strides of a node, or of a view of it."""
        return any(node is n for n in self._exact_results) or any(
            "view" in getattr(user.target, "tags", ()) and self.is_exact(user) for user in node.users)

    def _exact(self, node: Any, box: Box) -> View:
        """A result whose strides somebody relies on, in a buffer that no other result looks into."""
        view = box.realize()
        want = index_of(tuple(node.meta["val"]._layout.strides))
        apart = self.program.buffers[view.buffer].kind != "output"
        if not dense(view.shape, want):
            view = view if apart else box.copied(contiguous_strides(view.shape)).realize()
            empty = any(isinstance(n, int) and n == 0 for n in view.shape)
            return View(view.buffer, view.dtype, view.shape, want) if empty else view
        if apart and all(a is b or a == b or (isinstance(n, int) and n <= 1)
                         for a, b, n in zip(view.strides, want, view.shape, strict=True)):
            return view
        return Box(self, box.shape, box.dtype, want, fn=box, origins=(origin_of(node),)).realize()

    def _saved(self, box: Box, given: Container[str]) -> View:
        """A result for the backward graph: a copy of part of a buffer is that part itself, unless somebody may write to that
        buffer before backward runs."""
        place = self.where_copied(box)
        copied = place is not None and not place.split and place.view.buffer not in given
        view = place.view if place is not None and copied else box.realize()
        if view.buffer in given:
            view = box.copied(contiguous_strides(view.shape)).realize()
        return view

    def _call_function(self, node: Any, gm: Any) -> None:
        if node.target is operator.getitem:
            self.boxes[node] = self.boxes[node.args[0]][node.args[1]]
            return
        val = node.meta.get("val")
        if isinstance(val, (SymInt, SymFloat, int, float, bool)):
            self.boxes[node] = index_of(val)
            return
        args = [self._argument(a) for a in node.args]
        box = self._lower(node, args)
        self.boxes[node] = box
        if isinstance(box, Box) and not box.settled():
            self._maybe_realize(node, box)

    def _argument(self, a: Any) -> Any:
        if hasattr(a, "op") and hasattr(a, "users"):
            return self.boxes[a]
        if isinstance(a, (tuple, list)):
            return type(a)(self._argument(x) for x in a) if type(a) is tuple else [self._argument(x) for x in a]
        return index_of(a)

    def _maybe_realize(self, node: Any, box: Box) -> None:
        self.target.prepare(self, node, box)
        idx, _ = self.iterate(box.shape)
        values = walk([box(idx)])
        if len(values) > LARGEST_BODY or (self._is_relaid(box) and _feeds_positions(node)):
            box.realize()
        elif len(node.users) > 1:
            cost = sum(TABLE[v.op].cost if v.op in TABLE else 1 for v in values if v.args and v.op != "load")
            names = {to_python(i) for i in idx if not isinstance(i, int)}
            over = varies_with(values)
            full = [v for v in values if v.op == "load" and names <= over[v.uid]]
            if any(v.attr.buffer in self.products for v in full):
                box.realize()
            elif self.target.worth_storing(self, node, box, cost, full):
                self._store(node, box)

    def _is_relaid(self, box: Box) -> bool:
        """Whether a box is a copy of part of a buffer in another memory order."""
        place = self.where_copied(box)
        return place is not None and (place.split > 0 or any(
            isinstance(s, int) and s == 1 and not (isinstance(t, int) and t in (0, 1))
            for s, t in zip(box.strides, place.view.strides)))

    def readings(self, node: Any) -> float:
        """How often the users of a node read all of it: a slice reads a part."""
        def part(user: Any) -> float:
            if "view" not in getattr(user.target, "tags", ()):
                return 1
            whole, seen = (math.prod([self.program.hint(index_of(n)) for n in t.meta["val"].shape]) for t in (node, user))
            return min(1, seen / max(whole, 1))
        return sum(map(part, node.users))

    def _store(self, node: Any, box: Box) -> None:
        """Store a box; where it only repeats another, or (where memory counts more) widens it, that one is stored."""
        widens = getattr(node.target, "name", "") == "convert" and self.target.stores_narrow
        source = self.boxes.get(node.args[0]) if widens or "view" in getattr(node.target, "tags", ()) else None
        if isinstance(source, Box) and not source.settled() and (
                source.dtype.itemsize < box.dtype.itemsize or grows(box, source)):
            source.realize()
            box._memo.clear()
        else:
            box.realize()

    # --- primitives ---

    def _lower(self, node: Any, args: list) -> Any:
        prim, val = node.target, node.meta["val"]
        if isinstance(val, Tensor) and 0 in map(index_of, val._layout.shape) and val.dtype.name in LOOP_DTYPES:
            return self.virtual(node, lambda idx: self.tracer.constant(0, val.dtype))   # no element is computed from anything
        if isinstance(val, Tensor) and val.device.type == "cpu" != self.target.device and boxes_in(args):
            return self.fallback(node, args)        # what a GPU's kernels cannot reach
        if (library := getattr(prim, "library", "")):
            lower = self.target.calls.get(library)
            called = None if lower is None else lower(self, node, prim, args)
            if called is not None:
                return called
        elif getattr(prim, "whole", None):
            return self.call(node, "kernel", args)
        if not isinstance(prim, Primitive) or not self.loops(val, args):
            return self.fallback(node, args)
        loop = prim.loop
        if "pointwise" in prim.tags:
            return self._pointwise(node, prim, args)
        if prim.fold or loop in ("argmax", "argmin"):
            return self._reduction(node, loop, args)
        if loop == "strided":
            return self._look_into_memory(node, args)
        if loop == "scatter":
            return self._scatter(node, prim.name, args)
        if callable(loop):
            return self._index_map(node, prim, args)
        return self.fallback(node, args)

    def loops(self, val: Any, args: Sequence) -> bool:
        """Whether loop bodies can compute with all dtypes involved."""
        vals = val if isinstance(val, (tuple, list)) else (val,)
        return all(v.dtype.name in LOOP_DTYPES for v in vals if isinstance(v, Tensor)) and \
            all(b.dtype.name in LOOP_DTYPES for b in boxes_in(args))

    def _pointwise(self, node: Any, prim: Primitive, args: list) -> Box:
        self._store_all_products_but_one(args)

        read = self._as_stored if _is_step(prim) else Box.__call__
        val = node.meta["val"]
        rounds = self.target.rounds and compute_dtype(val.dtype) is not val.dtype

        def fn(idx: Sequence[Index]) -> Value:
            value = prim.loop(self.tracer, *[read(a, idx) if isinstance(a, Box) else a for a in args])
            return self.tracer.rounded(value, val.dtype, self.program.buffers) if rounds else value
        box = self.virtual(node, fn)
        box.strides = self._memory_order_of(box.shape, [a for a in args if isinstance(a, Box)], box.strides)
        return box

    def _as_stored(self, box: Box, idx: Sequence[Index]) -> Value:
        """An element as it is once it was in memory, for operations that jump: a maximum in float16 equals one of its operands."""
        return self.tracer.to_dtype(box(idx), box.dtype)

    def _store_all_products_but_one(self, args: list) -> None:
        """Where two library calls' results meet, what is done to one before can move into its call if it is stored."""
        if not self.products:
            return
        reading = [a for a in args if isinstance(a, Box) and not a.settled() and self._products_in(a)]
        for box in reading[:-1]:
            box.realize()

    def _products_in(self, box: Box, images_only: bool = False) -> bool:
        """Whether a virtual box reads the result of a library call that nobody else reads."""
        wanted = {name for name, image in self.products.items() if image or not images_only}
        if not wanted:
            return False
        idx, _ = self.iterate(box.shape)
        return any(v.op == "load" and v.attr.buffer in wanted and not v.attr.masked for v in walk([box(idx)]))

    def _index_map(self, node: Any, prim: Primitive, args: list) -> Box:
        def fn(idx: Sequence[Index]) -> Value:
            return self.tracer.with_checks(lambda: prim.loop(self.tracer, idx, *args))
        box = self.virtual(node, fn)
        sources = boxes_in(args)
        if "view" in prim.tags and len(sources) == 1:    # else where it begins is in a tensor
            source = sources[0]
            if source.settled():
                view = self._compose(source.realize(), prim, box, args)
                if view is not None:
                    return self.strided(view)
            elif math.prod(box.shape) == math.prod(source.shape):
                box.source = (source, lambda view: self._compose(view, prim, box, args))
        elif box.strides == tuple(contiguous_strides(box.shape)):   # the shape rule has not chosen another order
            box.strides = self._memory_order_of(box.shape, sources, box.strides)
        for source in sources if len(sources) == 1 or "positioned" in prim.tags else ():
            if not source.settled() and grows(box, source):
                self._realize_if_costly(source, 2 * CHEAP if source is sources[0] else 1)
        return box

    def _compose(self, source: View, prim: Primitive, box: Box, args: list) -> View | None:
        """The strides of a view of a view, read off its index map; None if it isn't linear."""
        idx, _ = self.iterate(box.shape)
        position = _Position(source, self.tracer)
        prim.loop(self.tracer, idx, position, *args[1:])
        if position.index is None:
            return None
        found = linear_strides(position.index, idx)
        if found is None:
            return None
        strides, offset = list(found[0]), found[1]
        ours = contiguous_strides(box.shape)
        for d, i in enumerate(idx):  # a dimension of size 1 may as well have the stride that contiguity asks for
            if isinstance(i, int):
                strides[d] = ours[d]
        return View(source.buffer, source.dtype, box.shape, tuple(strides), offset)

    def _look_into_memory(self, node: Any, args: list) -> Box:
        """as_strided: a view of the buffer in which the operand lies as its fake tensor does."""
        x, size, strides, offset = args
        lies = node.args[0].meta["val"]._layout
        if not all(isinstance(n, int) for n in (*x.shape, *lies.strides, *size, *strides, offset)) or 0 in (*size, *x.shape):
            return self.fallback(node, [x, size, strides, offset - lies.offset])    # of an array that begins where the operand does
        view = x.realize()
        if view.strides != lies.strides:
            view = x.copied(lies.strides).realize()
        seen = View(view.buffer, x.dtype, size, strides, view.offset + offset - lies.offset)
        left = self.program.buffers[view.buffer].numel - seen.index([n - 1 for n in size])
        if bounds(seen.offset)[0] < 0 or bounds(left)[0] < 1:
            raise NotImplementedError(f"as_strided({size}, {strides}, {offset}) reaches outside of what a compiled graph has of "
                                      f"its operand's memory; call it outside of the compiled function")
        return self.strided(seen)

    def _realize_if_costly(self, box: Box, limit: int) -> None:
        idx, _ = self.iterate(box.shape)
        values = walk([box(idx)])
        if sum(TABLE[v.op].cost for v in values if v.op in TABLE) > limit:
            box.realize()

    def _reduction(self, node: Any, kind: str, args: list) -> Box:
        x, dims = args
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        if kind in ("argmax", "argmin"):
            return self._arg_extremum(node, kind[3:], x, dims[0])
        return self.reduce(node, kind, x, dims, node.meta["val"].dtype, x)

    def reduce(self, node: Any, kind: str, x: Box, dims: tuple[int, ...], out: dtype, element: Callable[[Sequence[Index]], Value]) -> Box:
        """Fold `element`, a function of x's indices, over `dims`; a fold that exists already is shared."""
        if not x.settled() and self._products_in(x, images_only=True):
            x.realize()
        kind = (FOLDS[kind].truths or kind) if out is bool_ else kind
        kept, loops = self.iterate([n for d, n in enumerate(x.shape) if d not in dims])
        inner, reduce_loops = self.iterate([x.shape[d] for d in dims], "r")
        rest, over = iter(kept), dict(zip(dims, inner, strict=True))
        with self.inlining() as inner_steps:
            body = element([over[d] if d in over else next(rest) for d in range(x.ndim)])
        shape = tuple([n for d, n in enumerate(x.shape) if d not in dims])
        key = (kind, body, loops, reduce_loops, shape, out)
        view = self._folds.get(key)
        if view is None:
            view = self._folds[key] = self.new_buffer(out, shape, contiguous_strides(shape))
            body = self.tracer.to_dtype(body, compute_dtype(out))
            if kind == "sum" and not reduce_loops:
                body = self.tracer.add(body, 0)     # nothing and a negative zero come to 0.0
            self.add(Compute(view.buffer, view.index(kept), loops, body, kind if reduce_loops else "pointwise",
                             reduce_loops, origins=(*inner_steps, origin_of(node))))
        return self.strided(view)

    def _arg_extremum(self, node: Any, kind: str, x: Box, dim: int) -> Box:
        """The first position of the extremum: the least index whose element equals it (or is NaN)."""
        o = self.tracer
        best = self.reduce(node, kind, x, (dim,), x.dtype, x)

        def position(idx: Sequence[Index]) -> Value:
            value = x(idx)
            hit = o.eq(value, best([i for d, i in enumerate(idx) if d != dim]))
            if value.dtype.is_floating_point:
                hit = o.logical_or(hit, o.isnan(value))
            return o.where(hit, o.index(idx[dim]), o.constant(2**62, int64))
        return self.reduce(node, "min", x, (dim,), int64, position)

    # --- scatters ---

    def _scatter(self, node: Any, name: str, args: list) -> Box:
        """A copy of the first argument, then values stored or added at computed positions."""
        place = {"scatter": self._place_scatter, "scatter_reduce": self._place_scatter, "index_add": self._place_index_add,
                 "index_put": self._place_index_put}.get(name)
        mode = {"index_add": "add", "index_put": "add" if args[-1] is True else "set"}.get(name, args[-1])
        x = args[0]
        if place is None or not self.target.scatters(mode, x.dtype) or not x.ndim:
            return self.fallback(node, args)
        out = Box(self, x.shape, x.dtype, fn=x, origins=(origin_of(node),))
        view = out.realize()
        position, source, shape = place(args)
        if any(isinstance(n, int) and n == 0 for n in shape):
            return self.strided(view)
        idx, loops = self.iterate(shape)
        with self.inlining() as inner:
            at = position(idx)
            body = source(idx)
        target = view.index(at)
        computed = {n: self.tracer.computed[n] for n in sorted(free_variables(target)) if n in self.tracer.computed}
        self.add(Compute(view.buffer, target, loops, body, f"scatter_{mode}", index_values=computed, origins=(*inner, origin_of(node))))
        return self.strided(view)

    def _place_scatter(self, args: list) -> tuple:
        x, dim, index, src = args[:4]

        def position(idx: list) -> list:
            return [self.tracer.indirect(index(idx), x.shape[d]) if d == dim else i for d, i in enumerate(idx)]
        return position, src, index.shape

    def _place_index_add(self, args: list) -> tuple:
        x, dim, index, src = args[:4]
        rank = index.ndim

        def position(idx: list) -> list:
            at = self.tracer.indirect(index(idx[dim:dim + rank]), x.shape[dim])
            return [*idx[:dim], at, *idx[dim + rank:]]
        return position, src, src.shape

    def _place_index_put(self, args: list) -> tuple:
        x, indices, values = args[:3]
        shape, start, rank = index_shape(x.shape, indices)

        def position(idx: list) -> list:
            mine, rest = idx[start:start + rank], iter([*idx[:start], *idx[start + rank:]])
            return [next(rest) if d >= len(indices) or indices[d] is None else
                    self.tracer.indirect(indices[d](trailing(mine, indices[d].shape)), size, wraps=True)
                    for d, size in enumerate(x.shape)]
        return position, lambda idx: values(trailing(idx, values.shape)), shape

    # --- library calls ---

    def product(self, node: Any, step: Extern, out: View, image: bool = False) -> Box:
        """Add a library's call; if what it makes has one reader, that may move into the call."""
        self.add(step)
        if len(node.users) == 1 and step.op == node.target.name:
            self.products[out.buffer] = image
        return self.strided(out)

    def becomes_result(self, node: Any) -> bool:
        """Whether a node, seen otherwise or finished element by element, is a result with exact strides and nothing else."""
        user, *more = node.users
        if more:
            return False
        if any(node is n for n in self._exact_results):
            return True
        return not {"pointwise", "view"}.isdisjoint(getattr(user.target, "tags", ())) and self.becomes_result(user)

    def contiguous(self, box: Box) -> View:
        """The box in a buffer of its own in row-major order."""
        view = box.realize()
        if view.strides == tuple(contiguous_strides(view.shape)) and view.offset == 0:
            return view
        return Box(self, box.shape, box.dtype, fn=box, origins=box.origins).realize()

    def where_copied(self, box: Box) -> Place | None:
        """Where the elements of a box lie that is no more than a copy of (part of) a buffer."""
        if box.settled():
            return None
        idx, _ = self.iterate(box.shape)
        value = box(idx)
        access = value.attr
        if value.op != "load" or access.names or access.masked or \
                self.program.buffers[access.buffer].dtype is not box.dtype:
            return None
        strides = linear_strides(access.index, idx)
        if strides is not None:
            return Place(View(access.buffer, box.dtype, box.shape, *strides))
        if len(idx) < 3 or isinstance(idx[0], int) or not isinstance(box.shape[0], int):
            return None
        for size in divisors_in(access.index, to_python(idx[0])):
            high, low = var("high", size=box.shape[0] // size), var("low", size=size)
            index = substitute(access.index, {to_python(idx[0]): high * size + low})
            strides = linear_strides(index, [high, low, *idx[1:]])
            if strides is not None:
                shape = (box.shape[0] // size, size, *box.shape[1:])
                return Place(View(access.buffer, box.dtype, shape, *strides), size)
        return None

    def fallback(self, node: Any, args: list) -> Any:
        """Call the primitive itself, through Python, on tensors."""
        self.fallbacks.append(getattr(node.target, "name", str(node.target)))
        return self.call(node, "eager", args)

    def call(self, node: Any, op: str, args: list, views: tuple[View, ...] | None = None, contiguous: bool = False) -> Any:
        views = tuple(b.realize() for b in boxes_in(args)) if views is None else views
        vals = node.meta["val"]
        single = not isinstance(vals, (tuple, list))
        outs = []
        for val in (vals,) if single else vals:
            shape, strides = index_of(tuple(val._layout.shape)), index_of(tuple(val._layout.strides))
            if op == "kernel":
                strides = self._memory_order_of(shape, views[:1], contiguous_strides(shape))
            outs.append(self.new_buffer(val.dtype, shape, strides if dense(shape, strides) and not contiguous else
                                        contiguous_strides(shape)))
        self.add(Extern(op, views, tuple(outs), node.target, template(args), (origin_of(node),)))
        results = [self.strided(out) for out in outs]
        return results[0] if single else results

    def _memory_order_of(self, shape: Sequence[Index], sources: Sequence[Box | View], otherwise: Sequence[Index]) -> tuple[Index, ...]:
        """The strides of a result that goes through its operands element by element: with the channels of images innermost, or of
        groups of them, if an operand has them there."""
        rank = len(shape)
        last = (0, *range(2, rank), 1)
        for source in sources:
            strides = source.strides if isinstance(source, View) or source.view is None else source.view.strides
            if not len(source.shape) == rank > 3 or any(isinstance(n, int) and n == 0 for n in shape):
                continue
            steps = [self.program.hint(s) for s in strides]
            placed = [steps[d] for d in last if not (isinstance(source.shape[d], int) and source.shape[d] == 1)]
            if 0 in placed:
                continue
            if source.shape[1] != 1 and placed == sorted(placed, reverse=True):
                return tuple(permuted_strides(shape, last))
            if all(isinstance(s, int) for s in strides) and 1 in placed and steps[-1] != 1 and source.shape[-1] != 1:
                return tuple(permuted_strides(shape, sorted(range(rank), key=lambda d: (-steps[d], d))))
        return tuple(otherwise)

    def _remove_dead_steps(self) -> None:
        live = {out.buffer for out in self.program.outputs if isinstance(out, View)}
        kept = []
        for step in reversed(self.program.steps):
            if live.intersection(step.writes):
                live |= step.reads
                kept.append(step)
        self.program.steps[:] = reversed(kept)
        used = {name for s in kept for name in (*s.reads, *s.writes)} | live
        self.program.buffers = {n: b for n, b in self.program.buffers.items() if n in used or b.kind == "input"}
        self.program.constants = {n: c for n, c in self.program.constants.items() if n in used}


def _feeds_positions(node: Any) -> bool:
    """Whether a node, or what is made of it element by element, is read or added at computed positions."""
    seen, waiting = {node}, [node]
    while waiting:
        for user in waiting.pop().users:
            tags: Container[str] = getattr(user.target, "tags", ())
            if "positioned" in tags:
                return True
            if user not in seen and ("view" in tags or "pointwise" in tags):
                seen.add(user)
                waiting.append(user)
    return False


class _Position:
    """Stands for a view's source while its index map is asked where it reads."""

    def __init__(self, view: View, tracer: Tracer):
        self.view, self.shape, self.tracer = view, view.shape, tracer
        self.index: Index | None = None

    def __call__(self, idx: Sequence[Index]) -> Value:
        self.index = self.view.index(idx)
        return self.tracer.constant(0, self.view.dtype)


def _is_step(prim: Primitive) -> bool:
    """Whether a pointwise primitive is constant but for jumps: comparisons, roundings, signs."""
    d = prim.derivative
    return d is None or all(not rule.names and rule.fn() == 0 for rule in d.rules.values())
