"""What a program does to tensors, as a graph of ATen's operators: the level at which programs are exported.

The program runs once on fake tensors. A function mode sees each operator that it calls, before broadcasting, promotion or autograd take
it apart, and writes it down as the overload of `torch.ops.aten` that it is (ops/aten_schemas.py). An operator that ATen hasn't runs its
body, whose operators are seen instead; a primitive that is called directly is seen by a mode at the foot of the ladder.
"""

from __future__ import annotations

import inspect
import math
import operator
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import _torch_c
from ..aot.sizes import SizeNodes
from ..aot.trace import stand_in, stripped, user_stack
from ..core import dispatch
from ..core.dtypes import bool_
from ..core.expr import is_var, to_python
from ..core.symbolic import DataDependentSize, Relation, ShapeEnv, SymBool, SymFloat, SymInt, expr_of, is_symbolic, settled, unknown_sizes
from ..core.tensor import Tensor
from ..dynamo.graph_builder import must_hold
from ..func.higher_order import capturing
from ..fx import Graph, GraphModule, Node, mark_impure
from ..ops import aten, registry
from ..ops.aten import overload_target
from ..ops.aten_schemas import ALIASES, behind
from ..ops.conversions import DataNeeded
from ..ops.custom import CustomOperator
from ..ops.primitives import ViewPrimitive
from ..ops.subscript import _as_items
from ..ops.writing import copy_into
from ..overrides import TorchFunctionMode
from ..utils._pytree import tree_map
from .functions import Functions

set_grad_enabled = mark_impure(_torch_c._set_grad_enabled)
COMPARISONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
LAST = 2**63 - 1     # the end of a slice that has none


def constant_input(name: str) -> str:
    """How the input for a constant is called."""
    return "c_" + re.sub(r"\W", "_", name)


class _Operators(TorchFunctionMode):
    """Sees operators."""

    operators_only = True
    whole_layers = True     # a recurrent network's layers are one operator

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return self.recorder.operator(func, args, kwargs or {})


    def overload(self, target: aten.Overload, args: tuple, kwargs: dict) -> Any:
        """A call of an overload itself."""
        return target(*args, **kwargs) if self.recorder.quiet else self.recorder.call(target, target, args, kwargs)


class _Primitives:
    """Sees what is called beside operators."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def handle(self, prim: Any, args: tuple) -> Any:
        """Record a primitive, unless it is a step of an operator that is recorded."""
        recorder = self.recorder
        if recorder.quiet:
            return dispatch.run(prim, args)
        return recorder.primitive(prim, args)


class Recorder:
    """Writes `graph` while a program runs within `recording()`."""

    def __init__(self, name_of_constant: Callable[[Tensor, bool], str], env: ShapeEnv) -> None:
        self.graph, self.env = Graph(), env
        self.functions: dict[str, GraphModule] = {}      # what cond, while_loop and scan are given, as graphs
        self.symbols: dict[str, Node] = {}
        self.sizes = SizeNodes(self.graph, self.symbols)
        self.constants: dict[str, Tensor] = {}
        self.name_of_constant = name_of_constant
        self.modules: list[tuple[str, tuple[str, str]]] = []     # the modules whose forward is under way
        self.quiet = 0
        self.first: Node | None = None       # constants are made inputs before it
        self.outer_node: Callable[..., Node] | None = None       # of a function: an input for what the graph around knows
        self.stack_of: Callable[[], tuple] = user_stack
        self._nodes: dict[int, tuple[Tensor, Any, Any, Node]] = {}     # by tensor: where it lay, and what computes it
        self._places: dict[tuple[int, int], tuple[Any, Any, Node]] = {}     # by place: the same, for tensors that look there too
        self._stand_ins: dict[Node, Tensor] = {}
        self._grad = dispatch.state.grad_enabled

    # -- inputs ------------------------------------------------------------------------------------------------------
    def input(self, name: str, value: Any) -> Node:
        """A placeholder; `value` is a fake tensor, a symbol or a constant."""
        node = self.graph.own_name(self.graph.placeholder(name), name)
        node.meta["val"] = value
        if isinstance(value, Tensor):
            node.meta["val"] = stand_in(value)
            self.know(value, node)
        return node

    def know(self, tensor: Tensor, node: Node) -> None:
        """From now on `node` computes `tensor`."""
        store, lay = tensor._store, tensor._lay
        self._nodes[id(tensor)] = tensor, store, lay, node
        self._places[id(store), id(lay)] = store, lay, node

    def _found(self, tensor: Tensor) -> Node | None:
        """The node of a tensor, or of its place: one that was transposed in place, or got other `.data`, is what was put there."""
        known = self._nodes.get(id(tensor))
        if known is not None and known[1] is tensor._store and known[2] is tensor._lay:
            return known[3]
        place = self._places.get((id(tensor._store), id(tensor._lay)))
        if place is not None:
            return place[2]
        if known is not None and (tensor._data is None) and (known[1] is not tensor._store or known[2] != tensor._lay):
            raise NotImplementedError("torch.export: a tensor got another size or other memory in place, by resize_, set_ or `.data =`; "
                                      "make a new tensor of it instead")
        return None if known is None else known[3]

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor is of the graph, or can be made a constant of it."""
        return tensor._data is not None or self._found(tensor) is not None

    def node_of(self, tensor: Tensor) -> Node:
        """The node that computes a tensor; a tensor with data becomes a constant."""
        found = self._found(tensor)
        if found is not None:
            return found
        if self.outer_node is not None:
            self.know(tensor, node := self.outer_node(tensor))
            return node
        if tensor._data is None:
            raise RuntimeError(f"a tensor of shape {list(tensor.shape)} without data was used, which the exported program did not make")
        return self.constant(tensor)

    def constant(self, tensor: Tensor, made_here: bool = False) -> Node:
        """An input for a tensor that the program holds."""
        if self.outer_node is not None:
            self.know(tensor, node := self.outer_node(tensor, made_here))
            return node
        name = self.name_of_constant(tensor, made_here)
        self.constants[name] = tensor
        with self.graph.inserting_before(self.first or next(iter(self.graph.nodes), None)):
            node = self.graph.placeholder(constant_input(name))
        node.meta["val"] = stripped(tensor)
        self.know(tensor, node)
        return node

    def argument(self, value: Any) -> Any:
        """An operator's argument as a node's."""
        if isinstance(value, Tensor):
            return self.node_of(value)
        if isinstance(value, (SymInt, SymFloat)):
            return self.sizes.of(value)
        if isinstance(value, SymBool):
            return bool(value)
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.argument, value)) if type(value) in (tuple, list) else tuple(map(self.argument, value))
        return value

    # -- recording ---------------------------------------------------------------------------------------------------
    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the block does."""
        scope = dispatch.scope((*dispatch.state.modes, _Primitives(self)), 2, True, dispatch.state.grad_enabled)
        asked = DataNeeded.item, DataNeeded.array
        DataNeeded.item, DataNeeded.array = self.read, self.read_array
        outer, capturing.by = capturing.by, Functions(self)
        before, self.env.checked = self.env.checked, self._assert
        try:
            with scope, unknown_sizes(self._unknown), _Operators(self):
                yield
        finally:
            (DataNeeded.item, DataNeeded.array), capturing.by = asked, outer
            self.env.checked = before
        self._set_grad(self._grad)

    def condition(self, held: Relation) -> Node:
        """A node that compares sizes."""
        left, right = (self.sizes.of(self.env.symint(side)) for side in (held.left, held.right))
        holds = self.graph.call_function(COMPARISONS[held.op], (left, right))
        holds.meta = self.origin() | {"val": None}
        return holds

    def _assert(self, held: Relation) -> None:
        """A node that checks what `torch._check` said."""
        check = self.graph.call_function(must_hold, (self.condition(held), held.text()))
        check.meta = self.origin() | {"val": None}

    def _unknown(self, name: str, tensor: Any) -> SymInt:
        """A symbol for a size that only a run knows."""
        return self.env.create_unbacked()

    def read_array(self, tensor: Tensor) -> Any:
        """`tensor.numpy()`: nothing that a graph has; zeros, where the trace goes on to see what else there is."""
        error = DataDependentSize("the elements of a tensor as a NumPy array are known only when the program runs")
        if self.env.guess is None:
            raise error
        self.env.guess(error)
        return np.zeros([self.env.size_hint(expr_of(n)) for n in tensor.shape], tensor.dtype.numpy)

    def read(self, tensor: Tensor) -> Any:
        """`tensor.item()`: a number that only a run knows."""
        kind = tensor.dtype
        within = self.quiet > 0 and not self.knows(tensor)     # a step of an operator, which the graph has not
        if kind is bool_ or kind.is_complex or within:
            error = DataDependentSize(f"the value of a tensor of {kind}{' within an operator' * within} is known only when the program runs")
            if self.env.guess is None:
                raise error
            return kind.numpy.type(self.env.guess(error)).item()
        made: Any = self.env.create_unbacked(lo=-math.inf) if not kind.is_floating_point else None
        name = to_python(made.expr) if made is not None else f"f{len(self.symbols)}"
        made = SymFloat.variable(name, self.env) if made is None else made
        node = self.graph.call_function(aten.item.default, (self.node_of(tensor),))
        node.meta = self.origin() | {"val": made}
        self.symbols[name] = node
        return made

    def _set_grad(self, wanted: bool) -> None:
        """A node where the program goes over to another grad mode."""
        last = getattr(self, "_last_grad", self._grad)
        if wanted != last:
            self.graph.call_function(set_grad_enabled, (wanted,)).meta["val"] = None
            self._last_grad = wanted

    def operator(self, func: Callable, args: tuple, kwargs: dict) -> Any:
        """Answer a call of an operator."""
        if self.quiet:
            return func(*args, **kwargs)
        if dispatch.state.autocast is not None and dispatch.state.autocast[0].on:
            with _Operators(self):
                return registry.casting(func, args, kwargs)
        if isinstance(func, CustomOperator):
            return self.call(func, func, args, kwargs)
        info = func._operator    # type: ignore[attr-defined]
        if info.name in ("getitem_", "setitem_") and (made := self._subscript(info.name, *args, **kwargs)) is not NotImplemented:
            return made
        if "from_data" in info.tags:
            return self._data(func, args, kwargs)
        if kwargs.get("out") is not None:
            return self._into(func, args, kwargs)
        if (changed := self._in_place(func, args, kwargs)) is not None:
            return changed
        found = overload_target(func, args, kwargs)
        if found is not None:
            target, given, named = found
            return self.call(target, func, args, kwargs, tuple(given), named)
        if hasattr(func, "_plain") and info.name not in registry.COMPOSITES and info.name not in ("getitem_", "setitem_"):
            with _Operators(self):
                return func._plain(*args, **kwargs)
        return self.call(func, func, args, kwargs)

    def _in_place(self, func: Callable, args: tuple, kwargs: dict) -> Any:
        """What `relu(x, inplace=True)` gives, by `relu_`."""
        info = func._operator    # type: ignore[attr-defined]
        form = registry.OPERATORS.get(info.name + "_")
        if form is None or "inplace" not in inspect.signature(func).parameters:
            return None
        given = inspect.signature(func).bind(*args, **kwargs).arguments
        if not given.pop("inplace", False):
            return None
        first, *rest = given.values()
        return self.operator(form, (first, *rest[:len(inspect.signature(form).parameters)]), {})

    def call(self, target: Callable, run: Callable, args: tuple, kwargs: dict, given: tuple | None = None,
             named: dict | None = None) -> Any:
        """Run an operator on fake tensors and write it down as `target(*given, **named)`."""
        self._set_grad(dispatch.state.grad_enabled)
        node_args = self.argument(tuple(args if given is None else given))
        node_kwargs = {name: self.argument(v) for name, v in (kwargs if named is None else named).items()}
        args, kwargs = tree_map(self._fake, args), tree_map(self._fake, kwargs)
        self.quiet += 1
        large, self.env.large = self.env.large, True    # what is recorded takes any size, and equal ones
        before = len(self.env.guards)
        try:
            out = settled(self.env, lambda: run(*args, **kwargs))
        finally:
            self.quiet -= 1
            self.env.large = large
        self.env.guards[before:] = [guard for guard in self.env.guards[before:] if guard.relation.op != "!="]
        return self.write(target, node_args, node_kwargs, out)

    def _fake(self, value: Any) -> Any:
        """The stand-in for a tensor with data."""
        if not isinstance(value, Tensor) or value._data is None:
            return value
        node = self.node_of(value)
        found = self._stand_ins.get(node)
        if found is None:
            found = self._stand_ins[node] = stripped(value)
            self.know(found, node)
        return found

    def write(self, target: Callable, args: tuple, kwargs: dict, out: Any) -> Any:
        """The node of a call whose result is `out`."""
        self.quiet += 1    # asking for the history of a view may take it anew
        try:
            return self._write(target, args, kwargs, out)
        finally:
            self.quiet -= 1

    def _write(self, target: Callable, args: tuple, kwargs: dict, out: Any) -> Any:
        node = self.graph.call_function(target, args, kwargs, name=target.__name__ if isinstance(target, aten.Overload) else None)
        node.meta = self.origin() | {"val": self._value(out)}
        if isinstance(out, Tensor):
            self._place(out, node)
        elif isinstance(out, (tuple, list)):
            for i, part in enumerate(out):
                if isinstance(part, Tensor):
                    item = self.graph.call_function(operator.getitem, (node, i))
                    item.meta = self.origin() | {"val": stand_in(part)}
                    self._place(part, item)
        return out

    def _place(self, tensor: Tensor, node: Node) -> None:
        """`node` computes a tensor, and knows sizes of it that nothing else does."""
        self.know(tensor, node)
        for dim, size in enumerate(tensor._layout.shape):
            if isinstance(size, SymInt) and is_var(size.expr) and to_python(size.expr) not in self.symbols:
                read = self.graph.call_function(aten.sym_size.int, (node, dim))
                read.meta = self.origin() | {"val": size}
                self.symbols[to_python(size.expr)] = read

    def _value(self, out: Any) -> Any:
        if isinstance(out, Tensor):
            return stand_in(out)
        return type(out)(map(self._value, out)) if type(out) in (tuple, list) else \
            tuple(map(self._value, out)) if isinstance(out, tuple) else out

    def origin(self) -> dict[str, Any]:
        """The user's lines and the modules under way."""
        stack = self.stack_of()
        text = "".join(f'File "{file}", line {line}, in {function}\n    {source}\n' for file, line, function, source in stack)
        return {"stack": stack, "stack_trace": text.rstrip("\n"), "nn_module_stack": dict(self.modules)}

    def primitive(self, prim: Any, args: tuple) -> Any:
        """A primitive that the program, or a function of ours that is no operator, called."""
        owner = getattr(prim, "owner", None)
        if isinstance(prim, ViewPrimitive) and not self.knows(args[0]):    # the history of a view is taken anew
            return dispatch.run(prim, args)
        if prim is copy_into:
            target = aten.copy_.default if isinstance(args[1], Tensor) else aten.fill_.Scalar
            return self.call(target, lambda *a: dispatch.run(prim, a), args, {})
        target, given, named = self._named_as(prim, args) if owner is None else (owner, args, {})
        return self.call(target, lambda *a: dispatch.run(prim, a), args, {}, given, named)

    def _named_as(self, prim: Any, args: tuple) -> tuple[Any, tuple, dict]:
        """The overload that a primitive is: of views where it gives the same one, of what works on each element by its name."""
        fn = behind(ALIASES.get(prim.name, prim.name))
        if fn is None or not (isinstance(prim, ViewPrimitive) or "pointwise" in prim.tags):
            return prim, args, {}
        found = overload_target(fn, args, {})
        if found is None or any(a.type == "Tensor" and not isinstance(v, Tensor) for a, v in zip(found[0]._schema.arguments, found[1])):
            return prim, args, {}       # a number in a tensor's place
        if isinstance(prim, ViewPrimitive):
            plain = [stripped(a) if isinstance(a, Tensor) else a for a in args]
            self.quiet += 1
            try:
                mine, theirs = (tree_map(lambda t: t._layout, f(*plain)) for f in (prim, fn))
            except (TypeError, RuntimeError, ValueError, IndexError):
                return prim, args, {}
            finally:
                self.quiet -= 1
            if mine != theirs:
                return prim, args, {}
        return found[0], tuple(found[1]), found[2]

    # -- operators that are read another way ------------------------------------------------------------------------------
    def _step(self, name: str, *args: Any) -> Any:
        target = aten.__getattr__(name.partition(".")[0])
        return self.call(getattr(target, name.partition(".")[2] or "default"), target, args, {})

    def _data(self, func: Callable, args: tuple, kwargs: dict) -> Tensor:
        """A tensor made of Python's numbers, or of symbolic ones."""
        data = args[0] if args else kwargs.get("data")
        if isinstance(data, Tensor) or _holds(data):
            with _Operators(self):
                return func._plain(*args, **kwargs)    # type: ignore[attr-defined]
        with dispatch.scope((), -dispatch.state.word, False, dispatch.state.grad_enabled):
            self.quiet += 1
            try:
                made = func(*args, **kwargs)
            finally:
                self.quiet -= 1
        self.constant(made, True)
        return self._step("lift_fresh_copy", self._fake(made))

    def _into(self, func: Callable, args: tuple, kwargs: dict) -> Any:
        """A call with `out=`: the result, copied there."""
        target = kwargs["out"]
        made = self.operator(func, args, {k: v for k, v in kwargs.items() if k != "out"})
        if not isinstance(target, Tensor) or target.shape != made.shape:
            raise NotImplementedError(f"torch.export: {func.__name__}(out=) of another shape, or of several tensors; use the result")
        return self._step("copy_", target, made)

    def _subscript(self, name: str, x: Tensor, index: Any, *value: Any) -> Any:
        """x[index] as selects, slices and an index by tensors; NotImplemented for an index by Python's bools."""
        items = _as_items(index)
        if any(isinstance(item, bool) for item in items) or not isinstance(x, Tensor):
            return NotImplemented
        taken = sum(item.ndim if _is_mask(item) else item is not None and item is not Ellipsis for item in items)
        if sum(item is Ellipsis for item in items) > 1 or taken > x.ndim:
            return NotImplemented
        rest = [slice(None)] * (x.ndim - taken)
        at = next((i for i, item in enumerate(items) if item is Ellipsis), None)
        items = [*items, *rest] if at is None else [*items[:at], *rest, *items[at + 1:]]
        indices: list[Any] = []
        dim = 0
        for item in items:
            if isinstance(item, (int, SymInt)):
                x = self._step("select.int", x, dim, item)
                continue
            if not isinstance(item, Tensor):
                x = self._step("unsqueeze", x, dim) if item is None else self._slice(x, dim, item)
            indices.append(item if isinstance(item, Tensor) else None)
            dim += item.ndim if _is_mask(item) else 1
        return self._read(x, indices) if name == "getitem_" else self._assign(x, indices, value[0])

    def _slice(self, x: Tensor, dim: int, item: slice) -> Tensor:
        if item == slice(None):
            return x
        start, stop, step = (n if n is None or isinstance(n, (int, SymInt)) else n.__index__() for n in (item.start, item.stop, item.step))
        given = (x, dim, 0 if start is None else start, LAST if stop is None else stop, *(() if step in (None, 1) else (step,)))
        return self.call(aten.__getattr__("slice").Tensor, lambda *_: aten.__getattr__("slice")(x, dim, start, stop, step or 1), given, {})

    def _read(self, x: Tensor, indices: list) -> Any:
        if not any(isinstance(i, Tensor) for i in indices):
            return x
        return self._step("index.Tensor", x, _positions(indices))

    def _assign(self, x: Tensor, indices: list, value: Any) -> None:
        if not isinstance(value, Tensor):
            if not any(isinstance(i, Tensor) for i in indices):
                self._step("fill_.Scalar", x, value)
                return
            with _Operators(self):
                value = registry.OPERATORS["full"]((), value, dtype=x.dtype, device=x.device)
        indices = _positions(indices)
        if len(indices) == 1 and _is_mask(indices[0]) and value.ndim == 0:
            mask = indices[0]
            for _ in range(x.ndim - mask.ndim):
                mask = self._step("unsqueeze", mask, mask.ndim)
            self._step("masked_fill_.Tensor", x, mask, value if value.dtype is x.dtype else value.to(x.dtype))
        elif any(isinstance(i, Tensor) for i in indices):
            value = value if value.dtype is x.dtype else value.to(x.dtype)
            if any(map(_is_mask, indices)):     # how many elements there are, only a run knows
                self.call(aten.index_put_.default, lambda t, *_: t, (x, indices, value), {})
            else:
                self._step("index_put_", x, indices, value)
        else:
            self._step("copy_", x, value)


def _positions(indices: list) -> list:
    """Indices for ATen: None for whole dimensions, and none at the end."""
    while indices and indices[-1] is None:
        indices.pop()
    return indices


def _is_mask(item: Any) -> bool:
    return isinstance(item, Tensor) and item.dtype.name in ("bool", "uint8")


def _holds(data: Any) -> bool:
    """Whether there is a tensor or a symbolic number in Python's lists."""
    return any(map(_holds, data)) if isinstance(data, (list, tuple)) else is_symbolic(data) or isinstance(data, Tensor)
