# mypy: disable-error-code="arg-type,attr-defined"
# A mixin of Trace: `self` is a Trace.
"""The graph under construction: inputs with their fake tensors, nodes with their example values, symbolic sizes."""

from __future__ import annotations

import itertools
import linecache
import math
import operator
import re
from collections.abc import Callable
from typing import Any

from .. import fx
from ..core import dispatch
from ..core.expr import Atom, Expr, _of_atom, var
from ..core.size import contiguous_strides, is_contiguous
from ..core.symbolic import DataDependentFloat, ShapeEnv, SymBool, SymFloat, SymInt, hint_of, sym_max, sym_min
from ..core.tensor import Tensor, fake
from .break_kinds import graph_break
from .source import Source, constant_source
from .variables.autocast import Settings, enter_autocast, exit_autocast
from .variables.base import Args, ConstantVariable, Kwargs, Variable
from .variables.contexts import set_grad_mode
from .variables.tensor import SymVariable, TensorVariable, operand_of

_PLUMBING = re.compile(r"\._(modules|parameters|buffers)\b|\.__dict__|\.__closure__|\.cell_contents|__function")
_SIZE_TOKEN = re.compile(r"__size(\d+)__")


class GraphBuilder:
    """Mixed into Trace."""

    def start_graph(self) -> None:
        self.graph = fx.Graph()
        self.inputs: list[tuple[fx.Node, Source, Any]] = []
        """Placeholder, where its value comes from, and the example (a fake tensor or SymInt)."""
        self.shape_env = ShapeEnv(duck_shape=True)
        self.size_sources: list[Source] = []
        self._by_fake: dict[int, TensorVariable] = {}
        self._symbols: dict[str, fx.Node] = {}
        self.float_sources: dict[str, Source] = {}
        self._float_names: dict[Source, str] = {}
        """Where the floats that are inputs come from, by their symbols."""
        self._expressions: dict[Any, fx.Node] = {}
        self._last_input: fx.Node | None = None
        self.scopes: list[tuple[fx.Node, Any]] = []
        """Autocast blocks that are open: the node that entered it, and the real one that capture is in."""
        self.functions: dict[str, fx.GraphModule] = {}
        """Graphs of functions that operators take, by the attribute that they are."""
        self.calls = 0

    # -- inputs -------------------------------------------------------------------------------------------------------------
    def add_placeholder(self, name: str, source: Source, example: Any) -> fx.Node:
        name = self._input_name(name)
        if self._last_input is None:
            first = next(iter(self.graph.nodes), None)
            context = self.graph.inserting_before(first) if first is not None else self.graph.inserting_before()
        else:
            context = self.graph.inserting_after(self._last_input)
        with context:
            node = self.graph.placeholder(name)
        node.meta.update(val=example, source=str(source))
        self._last_input = node
        self.inputs.append((node, source, example))
        return node

    def _input_name(self, source: str) -> str:
        """A readable, unused identifier: `self._modules['lin']._parameters['weight']` -> `self_lin_weight`."""
        name = re.sub(r"\W+", "_", _PLUMBING.sub("", source)).strip("_")
        name = f"input_{name}" if not name or name[0].isdigit() else name
        taken = {node.name for node, _, _ in self.inputs}
        unused = (f"{name}_{i}" for i in itertools.count(1))
        return name if name not in taken else next(n for n in unused if n not in taken)

    def tensor_input(self, value: Tensor, source: Source, dynamic: tuple[bool | None, ...]) -> TensorVariable:
        """A graph input for an existing tensor; `dynamic` says which dimensions are variables."""
        sizes = self._symbolic_sizes(value, source, dynamic)
        example = self._fake_like(value, sizes)
        node = self.add_placeholder(str(source), source, example)
        node.meta["parameter"] = type(value).__name__ == "Parameter"
        own = self._fake_like(value, sizes)  # capture may change it in place; the example stays as it is at entry
        variable = TensorVariable(node, own, source, value)
        self._by_fake[id(own)] = variable
        return variable

    def given_tensors(self) -> list[tuple[Source, Tensor]]:
        """The graph's inputs that are tensors, as capture left them."""
        return [(v.source, v.fake) for v in self._by_fake.values() if v.source is not None]

    def size_token(self, source: Source) -> str:
        """A name for a size's source in the shape environment's guard texts."""
        self.size_sources.append(source)
        return f"__size{len(self.size_sources) - 1}__"

    def _symbolic_sizes(self, value: Tensor, source: Source, dynamic: tuple[bool | None, ...]) -> list[Any]:
        sizes: list[Any] = []
        for dim, size in enumerate(value.shape):
            wanted = dynamic[dim] if dim < len(dynamic) else False
            if wanted is False or size in (0, 1):
                sizes.append(int(size))
                continue
            symbol = self.shape_env.create_symint(int(size), self.size_token(source.size(dim)), wanted)
            sizes.append(symbol)
        return sizes

    def _fake_like(self, value: Tensor, sizes: list[Any]) -> Tensor:
        example = fake(tuple(sizes), value.dtype, value.device, self._strides(value, sizes), value.storage_offset())
        if value.requires_grad:
            example.requires_grad = True
        example._storage.inference = value.is_inference()
        if type(value) is not Tensor and getattr(type(value), "_plain_torch_function", True):
            example = example._as_subclass(type(value)) if type(value).__name__ == "Parameter" else example
        return example

    def _strides(self, value: Tensor, sizes: list[Any]) -> tuple[Any, ...]:
        strides = value.stride()
        if all(type(size) is int for size in sizes):
            return tuple(strides)
        # a dense permutation keeps its order with the symbolic sizes, and so do dimensions of one element, by which images may be told
        order = sorted(range(len(sizes)), key=lambda d: (-strides[d], -value.shape[d]))
        made: list[Any] = [1] * len(sizes)
        step: Any = 1
        for dim in reversed(order):
            made[dim] = step
            step = step * sizes[dim] if type(sizes[dim]) is not int else step * max(sizes[dim], 1)
        if tuple(hint_of(s) for s in made) != tuple(strides):
            if is_contiguous(value.shape, strides):
                return contiguous_strides(sizes)
            graph_break("unknown value", "a strided view whose sizes vary", "Capture keeps the strides of varying "
                        "tensors only when they are dense.", ("Call .contiguous() on it first.",))
        return tuple(made)

    def int_input(self, value: int, source: Source) -> Variable:
        """A Python int that is a variable of the graph. Symbols stand for numbers from 2 on: of a negative one, for its opposite."""
        if value < 0:
            symbol = -self.shape_env.create_symint(-value, self.size_token(source.derive("(-{0})")), None)
        else:
            symbol = self.shape_env.create_symint(value, self.size_token(source), None)
        return SymVariable(symbol, source) if isinstance(symbol, SymInt) else ConstantVariable(symbol)

    def float_input(self, source: Source, example: float) -> SymFloat:
        """A Python float that is a variable of the graph: an input, once something in the graph uses it."""
        name = self._float_names.setdefault(source, f"f{len(self._float_names)}")
        symbol = SymFloat.variable(name, self.shape_env, example)
        if name not in self.float_sources:
            self.float_sources[name] = source
            self._symbols[name] = self.add_placeholder(str(source), source, symbol)
        return symbol

    def number_source(self, value: Any) -> Source:
        """A number computed of inputs and sizes."""
        if isinstance(value, SymInt):
            return Source(*self.shape_text(value, 0))
        if isinstance(value, SymFloat):
            if value.op == "variable":
                return self.float_sources[value.left]
            return Source(f"({{0}} {value.op} {{1}})", (self.number_source(value.left), self.number_source(value.right)))
        return constant_source(value)

    def symbol_source(self, name: str, which: int = 0) -> Source:
        """Where a symbol is read; sizes that were equal share one, so there may be several places."""
        token = self.shape_env.sources[name][which]
        match = _SIZE_TOKEN.fullmatch(token)
        if match is None:
            graph_break("data-dependent size", name)
        return self.size_sources[int(match[1])]

    def shape_guards(self) -> list[tuple[str, tuple[Source, ...]]]:
        """Guards on symbolic sizes, as templates over sources."""
        found = []
        for text in self.shape_env.guard_expressions():
            numbers = list(dict.fromkeys(int(n) for n in _SIZE_TOKEN.findall(text)))
            template = _SIZE_TOKEN.sub(lambda m, numbers=numbers: f"{{{numbers.index(int(m[1]))}}}", text)  # type: ignore[misc]
            found.append((template, tuple(self.size_sources[n] for n in numbers)))
        return found

    # -- nodes --------------------------------------------------------------------------------------------------------------
    def argument(self, variable: Variable) -> Any:
        """A variable as an argument of a node."""
        return operand_of(self, variable, lambda tensor: tensor.node, self.size_node)

    def size_node(self, value: Any) -> Any:
        """A symbolic size as a node: its symbols are graph inputs, arithmetic on them nodes."""
        if isinstance(value, SymFloat):
            if value.op == "variable":
                return self._symbols[value.left]
            function = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": operator.pow,
                        "//": operator.floordiv, "%": operator.mod}[value.op]  # fmt: skip
            return self._size_call(value, function, self.size_node(value.left), self.size_node(value.right))
        if isinstance(value, SymBool):
            return bool(value)
        if isinstance(value, SymInt):
            return self._expression_node(value.expr)
        return value

    def _size_call(self, value: Any, function: Callable[..., Any], *args: Any) -> fx.Node:
        node = self.graph.call_function(function, args)
        node.meta.update(val=value, stack=self.stack())
        return node

    def _expression_node(self, expr: Any) -> Any:
        if not isinstance(expr, Expr):
            return expr
        if expr in self._expressions:
            return self._expressions[expr]
        total: Any = None
        so_far: Any = 0
        for monomial, coefficient in expr.terms.items():
            term: Any = coefficient
            term_value: Any = coefficient
            for atom, power in monomial:
                for _ in range(power):
                    factor, factor_value = self._atom_node(atom)
                    term_value = factor_value if term_value == 1 and type(term_value) is int else term_value * factor_value
                    one = type(term) is int and term == 1
                    term = factor if one else self._size_call(self.shape_env.symint(term_value), operator.mul, term, factor)
            so_far = so_far + term_value
            total = term if total is None else self._size_call(self.shape_env.symint(so_far), operator.add, total, term)
        self._expressions[expr] = total
        return total

    def _atom_node(self, atom: Atom) -> tuple[Any, Any]:
        value = _of_atom(atom)
        if atom.kind == "var":
            return self._symbol_node(atom.name), value
        function = {"floordiv": operator.floordiv, "mod": operator.mod, "max": sym_max, "min": sym_min}[atom.kind]
        args = [self._expression_node(arg) for arg in atom.args]
        return self._size_call(self.shape_env.symint(value), function, *args), value

    def _symbol_node(self, name: str) -> fx.Node:
        node = self._symbols.get(name)
        if node is None:
            source = self.symbol_source(name)
            example = self.shape_env.symint(var(name, lo=2))
            node = self._symbols[name] = self.add_placeholder(name, source, example)
        return node

    def emit(self, target: Callable[..., Any], args: Args, kwargs: Kwargs) -> Variable:
        """A `call_function` node, run on the fake tensors to see what comes out."""
        return self._emit("call_function", target, target, args, kwargs)

    def emit_method(self, name: str, args: Args, kwargs: Kwargs) -> Variable:
        """A `call_method` node on the first argument."""
        return self._emit("call_method", name, lambda owner, *a, **k: getattr(owner, name)(*a, **k), args, kwargs)

    def _emit(self, kind: str, target: Any, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Variable:
        args = [arg.realize(self) for arg in args]
        kwargs = {name: value.realize(self) for name, value in kwargs.items()}
        examples = [self.example(arg) for arg in args]
        named = {name: self.example(value) for name, value in kwargs.items()}
        name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
        if named.get("requires_grad"):
            graph_break("autograd inside a compiled function", f"{name}(requires_grad=True), which makes a leaf")
        tensors = [t for value in (*examples, *named.values()) for t in _tensors_in(value)]
        versions = [t._writes for t in tensors]
        layouts = [t._layout for t in tensors]
        try:
            with dispatch.fake_mode():
                answer = function(*examples, **named)
        except DataDependentFloat:
            raise
        except Exception as error:
            self._refused(name, error, examples)
        if any(map(self._relaid, tensors, layouts)):
            graph_break("unknown operation", f"{name}, which changes the shape or the size in memory of what it is given")
        if answer is NotImplemented:
            graph_break("unknown operation", f"{name} of {', '.join(a.describe() for a in args)}")
        constant = isinstance(answer, Tensor) and answer._data is not None  # such as torch.tensor(3.0)
        if constant:
            answer = fake(answer.shape, answer.dtype, answer.device, answer.stride())
        node_args = tuple(self.argument(arg) for arg in args)
        node_kwargs = {name: self.argument(value) for name, value in kwargs.items()}
        node = self.graph.create_node(kind, target, node_args, node_kwargs)
        node.meta.update(val=answer, stack=self.stack())
        written = [t for t, before in zip(tensors, versions, strict=True) if t._writes != before]
        if written:
            node.meta["writes"] = tuple(written)
        if any(t._layout is not before for t, before in zip(tensors, layouts, strict=True)):
            node.meta["lays_out"] = True    # a value that another node made has another layout from here on
        self.calls += 1
        made = self.from_node(node, answer)
        # the program may write to its tensor, but not to what is a constant of the graph
        return self.emit_method("clone", [made], {}) if constant else made

    def _relaid(self, tensor: Tensor, before: Any) -> bool:
        """Has an operator given an input another layout, or any tensor another size?"""
        if tensor._layout is before or (len(tensor.shape) == len(before.shape) and all(
                a is b or a == b for now, was in zip(tensor._layout[:2], before[:2]) for a, b in zip(now, was))):
            return False
        known = self._by_fake.get(id(tensor))
        return (known is not None and known.source is not None) or math.prod(tensor.shape) != math.prod(before.shape)

    def turned(self, tensor: TensorVariable, view: Variable) -> TensorVariable:
        """A tensor of the graph that from here on is a view of what it was, as `t_()` makes it one."""
        assert isinstance(view, TensorVariable)
        self._by_fake[id(tensor.fake)] = TensorVariable(tensor.node, tensor.fake)
        self._by_fake[id(view.fake)] = tensor
        tensor.node, tensor.fake = view.node, view.fake
        return tensor

    def _refused(self, name: str, error: Exception, examples: list[Any]) -> None:
        shapes = ", ".join(f"{tuple(e.shape)}" for e in examples if isinstance(e, Tensor))
        kind = "operator failed on fake tensors"
        text = str(error)
        if isinstance(error, NotImplementedError) or "depends on data" in text or "fake tensor" in text:
            kind = "data-dependent operator"
        graph_break(kind, f"{name} on tensors of shapes {shapes or 'none'}: {type(error).__name__}: {text}")

    def from_node(self, node: fx.Node, answer: Any) -> Variable:
        """The variable of what a node gives; tuples are taken apart by getitem nodes."""
        if isinstance(answer, Tensor):
            known = self._by_fake.get(id(answer))
            if known is not None:  # an in-place operation gives its input back
                return known
            variable = TensorVariable(node, answer)
            self._by_fake[id(answer)] = variable
            return variable
        if isinstance(answer, (tuple, list)) and any(isinstance(item, (Tensor, tuple, list)) for item in answer):
            items: list[Variable] = []
            for i, item in enumerate(answer):
                part = self.graph.call_function(operator.getitem, (node, i))
                part.meta.update(val=item, stack=node.meta["stack"])
                items.append(self.from_node(part, item))
            return self.sequence_like(answer, items)
        return self.literal(answer)

    def fake_variable(self, value: Tensor) -> Variable:
        """The variable of a fake tensor that turned up."""
        known = self._by_fake.get(id(value))
        if known is None:
            graph_break("unknown value", "a tensor made during capture that isn't in the graph")
        return known

    def set_grad_mode(self, recording: int, *, lasting: bool = False) -> None:
        """Switch the recording of gradients, in the graph and for what is captured next."""
        if dispatch.state.recording == recording:
            return
        node = self.graph.call_function(set_grad_mode, (recording,))
        node.meta.update(val=None, stack=self.stack(), recording=recording, replaced=dispatch.state.recording)
        dispatch.state.recording = recording

    def enter_autocast(self, settings: Settings) -> tuple[fx.Node, Any]:
        """Open an autocast block, in the graph and for what is captured next."""
        node = self.graph.call_function(enter_autocast, settings)
        node.meta.update(val=None, stack=self.stack(), scope="autocast")
        self.scopes.append((node, enter_autocast(*settings)))
        return self.scopes[-1]

    def leave_autocast(self, entered: tuple[fx.Node, Any]) -> None:
        """Close an autocast block that capture opened."""
        if entered is not self.scopes[-1]:
            graph_break("unknown context manager", "autocast blocks that overlap")
        node, scope = self.scopes.pop()
        exit_autocast(scope)
        made = self.graph.call_function(exit_autocast, (node,))
        made.meta.update(val=None, stack=self.stack(), scope="autocast")

    def close_scopes(self) -> None:
        """At the end of a graph: leave what is still open. The replacement enters it again."""
        while self.scopes:
            self.leave_autocast(self.scopes[-1])

    def abandon_scopes(self) -> None:
        """Capture ends in the middle of a block."""
        while self.scopes:
            exit_autocast(self.scopes.pop()[1])

    def stack(self) -> tuple[tuple[str, int, str, str], ...]:
        """The user's frames, innermost last."""
        return tuple(
            (f.code.co_filename, f.line, f.code.co_name, linecache.getline(f.code.co_filename, f.line).strip())
            for f in self.frames
        )

    def drop_unused_inputs(self) -> None:
        """Placeholders that nothing uses aren't inputs."""
        kept = []
        for node, source, example in self.inputs:
            if node.users:
                kept.append((node, source, example))
            else:
                self.graph.erase_node(node)
        self.inputs = kept


def _tensors_in(value: Any) -> list[Tensor]:
    """Tensors in an argument: itself, or elements of lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors_in(item)]
    return _tensors_in(list(value.values())) if isinstance(value, dict) else []
