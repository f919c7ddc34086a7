# mypy: disable-error-code="arg-type,attr-defined"
# A mixin of Trace: `self` is a Trace.
"""The graph under construction: inputs with their fake tensors, nodes with their example values, symbolic sizes."""

from __future__ import annotations

import itertools
import keyword
import math
import operator
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from .. import fx
from ..aot.joint import give_history
from ..core import dispatch
from ..core.dtypes import bool_
from ..core.expr import Atom, Expr, _of_atom, bounds, free_variables, var
from ..core.size import contiguous_strides, is_contiguous
from ..core.symbolic import (
    DataDependentFloat,
    DataDependentSize,
    Relation,
    ShapeEnv,
    SymBool,
    SymFloat,
    SymInt,
    hint_of,
    names_in,
    settled,
    substitute,
    sym_max,
    sym_min,
    unknown_sizes,
)
from ..core.tensor import Tensor, fake
from ..ops.checks import presumed
from ..ops.custom import fake_collectives
from ..ops.generators import fake_draws
from ..ops.promotion import limits
from .break_kinds import graph_break
from .exceptions import PRESUMING, RestartTrace
from .source import Source, braced, constant_source, opposite
from .stance import Exporting
from .surroundings import MISSING
from .variables.autocast import Settings, enter_autocast, exit_autocast
from .variables.base import Args, ConstantVariable, Kwargs, Variable
from .variables.contexts import set_grad_mode
from .variables.nn_module import ModuleObjectVariable
from .variables.sequences import TupleVariable
from .variables.spread import SpreadVariable, computes
from .variables.tensor import SubclassVariable, SymVariable, TensorVariable, as_plain, keeps_class, operand_of
from .variables.wrappers import WrapperVariable, holds_wrapper, run_through

_PLUMBING = re.compile(r"\._(modules|parameters|buffers)\b|\.__dict__|\.__closure__|\.cell_contents|__function")
_SUBMODULE = re.compile(r"\.(?:_modules|__dict__\['_modules'\])\['([^']*)'\]")
_SIZE_TOKEN = re.compile(r"__size(\d+)__")


class GraphBuilder:
    """Mixed into Trace."""

    pinned: set[str]

    def start_graph(self) -> None:
        self.graph = fx.Graph()
        self.inputs: list[tuple[fx.Node, Source, Any]] = []
        """Placeholder, where its value comes from, and the example (a fake tensor or SymInt)."""
        self._input_names: set[str] = set()
        line = weakref.WeakMethod(self.line)
        self.shape_env = ShapeEnv(duck_shape=True, line=lambda: found() if (found := line()) is not None else "")
        self.size_sources: list[Source] = []
        self._by_fake: dict[int, TensorVariable] = {}
        self._symbols: dict[str, fx.Node] = {}
        self.number_sources: dict[str, Source] = {}
        """Where the numbers that are inputs come from, floats and what was drawn, by their symbols."""
        self._float_names: dict[Source, str] = {}
        self._expressions: dict[Any, fx.Node] = {}
        self.births: list[str] = []
        """Numbers and sizes that only the values in tensors tell, in the order in which the program comes to them."""
        self.draws: dict[str, Source] = {}
        """What Python's generators draw before the graph runs, in order: the name of each number, and the call that draws it."""
        self.plain_of: dict[Source, Source] = {}
        """Inputs that are plain tensors of others, and what they are of."""
        self._read_from: dict[str, tuple[TensorVariable, int]] = {}
        """Numbers of the graph, and the tensors that they were read from, as often as these had been written to."""
        self.told = 0
        """How often an operator has asked for such a size."""
        self._told: dict[tuple[str, int, int], tuple[SymInt, Tensor]] = {}
        self._last_input: fx.Node | None = None
        self.scopes: list[tuple[fx.Node, Any]] = []
        """Autocast blocks that are open: the node that entered it, and the real one that capture is in."""
        self.functions: dict[str, fx.GraphModule] = {}
        """Graphs of functions that operators take, by the attribute that they are."""
        self.calls = 0
        self.presumptions: list[TensorVariable] = []
        self._draws_before = fake_draws[0]

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
        name = f"input_{name}" if not name or name[0].isdigit() or name == "self" or keyword.iskeyword(name) else name
        taken = self._input_names
        if name in taken:
            name = next(n for i in itertools.count(1) if (n := f"{name}_{i}") not in taken)
        taken.add(name)
        return name

    def tensor_input(self, value: Tensor, source: Source, dynamic: tuple[bool | None, ...], plain: bool = False) -> TensorVariable:
        """A graph input for an existing tensor, `plain` one for one of a class that overrides operators; `dynamic` says which dimensions
        are variables."""
        sizes = self._symbolic_sizes(value, source, dynamic)
        strides = self._strides(value, source, sizes)
        example = self._fake_like(value, sizes, strides, plain)
        given = source
        if plain:
            given = source.derive("{1}({0})", constant_source(as_plain))
            self.plain_of[given] = source
        node = self.add_placeholder(source.words, given, example)
        node.meta["parameter"] = weakref.ref(value) if type(value).__name__ == "Parameter" else None
        own = self._fake_like(value, sizes, strides, plain)  # capture may change it in place; the example stays as it is at entry
        variable = SubclassVariable(node, own, type(value), source, value) if plain else TensorVariable(node, own, source, value)
        self._by_fake[id(own)] = variable
        return variable

    def part_input(self, part: Tensor, source: Source, whole: Source, requires_grad: bool) -> Variable:
        """A graph input for what is taken of another tensor by a function through which gradients flow."""
        made = [fake(tuple(part.shape), part.dtype, part.device, tuple(part.stride())) for _ in range(2)]
        for tensor in made if requires_grad else ():
            give_history(tensor)
        node = self.add_placeholder(whole.words, source, made[0])
        self.plain_of[source] = whole
        return self.from_node(node, made[1])

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
            symbol = self.shape_env.create_symint(
                int(size), self.size_token(source.size(dim)), wanted, seen=self.shapes.seen(str(source), dim))
            sizes.append(symbol)
        return sizes

    def _fake_like(self, value: Tensor, sizes: list[Any], strides: tuple[Any, ...], plain: bool) -> Tensor:
        example = fake(tuple(sizes), value.dtype, value.device, strides, value.storage_offset())
        if value.requires_grad:
            example.requires_grad = True
        example._storage.inference = value.is_inference()
        kind = type(value)
        if plain:
            return example
        return example._as_subclass(kind) if kind.__name__ == "Parameter" or keeps_class(kind) else example

    def _strides(self, value: Tensor, source: Source, sizes: list[Any]) -> tuple[Any, ...]:
        """A dense permutation keeps its order with the symbolic sizes, and so do dimensions of one element, by which images may be told.
        A view with gaps has strides that the sizes don't tell: numbers, or symbols where they have changed."""
        strides, varies = value.stride(), self.shapes.strides(str(source), value)
        if not any(varies) and all(type(size) is int for size in sizes):
            return tuple(strides)
        order = sorted(range(len(sizes)), key=lambda d: (-strides[d], -value.shape[d]))
        dense = self._strides_outwards(order, sizes)
        if tuple(hint_of(s) for s in dense) == tuple(strides):
            return tuple(dense)
        if is_contiguous(value.shape, strides):
            return contiguous_strides(sizes)
        own = [self._stride_symbol(strides[dim], source.derive(f"{{0}}.stride({dim})")) if varied else strides[dim]
               for dim, varied in enumerate(varies)]
        return tuple(self._strides_outwards(order, sizes, own))

    def _stride_symbol(self, stride: int, source: Source) -> Any:
        symbol = self.shape_env.create_symint(stride, self.size_token(source), alone=True)
        if isinstance(symbol, SymInt):
            self._symbol_node(str(symbol))      # an input of its own: no size says it
        return symbol

    def _strides_outwards(self, order: list[int], sizes: list[Any], own: list[Any] | None = None) -> list[Any]:
        """From the innermost dimension on, how far apart elements lie without gaps, or else as they do."""
        made: list[Any] = [1] * len(sizes)
        step: Any = 1
        for dim in reversed(order):
            made[dim] = step if own is None or hint_of(step) == hint_of(own[dim]) else own[dim]
            step = made[dim] * sizes[dim] if type(sizes[dim]) is not int else made[dim] * max(sizes[dim], 1)
        return made

    def int_input(self, value: int, source: Source) -> Variable:
        """A Python int that is a variable of the graph: any number, or a size where an earlier attempt has found it, or its opposite, to
        be one."""
        size, sign = (source, 1) if value >= 0 else (opposite(source), -1)
        least = self.shapes.least(str(size))
        if abs(value) < least or least < 0:     # perhaps it is the size of no tensor this time
            size, sign, least = source, 1, -math.inf
        symbol = sign * self.shape_env.create_symint(abs(value) if sign < 0 else value, self.size_token(size), alone=True, least=least)
        return SymVariable(symbol, source) if isinstance(symbol, SymInt) else ConstantVariable(symbol)

    def numbers_alone(self, values: Iterable[Any]) -> bool:
        """Are symbolic numbers computed of ints that the program is given, and of no sizes?"""
        numbers = set(self.shape_env.numbers()) - self.shape_env.replacements.keys()
        return all(isinstance(value, (SymInt, SymFloat)) and names_in(value) <= numbers for value in values)

    def numbers_as_sizes(self, graph: fx.Graph) -> bool:
        """Are there numbers among the sizes of the graph's tensors, which are 2 or more? They are noted with what they are at least, for
        that; one that is less now is fixed."""
        least: dict[str, float] = {}
        numbers = set(self.shape_env.numbers()) - self.shape_env.replacements.keys()
        for node in graph.nodes if numbers else ():
            for tensor in _tensors_in(node.meta.get("val")):
                for size in (*tensor.shape, *tensor.stride()):
                    for name in free_variables(size.expr) & numbers if isinstance(size, SymInt) else ():
                        least[name] = max(least.get(name, -math.inf), self._least_for(size.expr, name))
        found = {name: bound for name, bound in least.items() if bound > self.shape_env.least(name)}
        for name, bound in found.items():
            source, value = self.symbol_source(name), self.shape_env.hints[name]
            size = str(source if value >= 0 else opposite(source))
            self.shapes.note_size(size, bound)
            if abs(value) < bound:
                self.pinned.add(size)
        return bool(found)

    def _least_for(self, size: Expr, name: str) -> float:
        """What a number, or its opposite where that is positive, is at least for a size that is made of it to be 2 or more: for n + 1, 1.
        -inf where the size is never negative anyway (n % 5), or no bound of the number helps."""
        def smallest(least: float) -> float:
            sign = 1 if self.shape_env.hints[name] >= 0 else -1
            others = {other: var(other, lo=2) for other in free_variables(size)}
            return bounds(substitute(size, others | {name: sign * var(name, lo=least)}))[0]
        anyhow = smallest(-math.inf)
        if anyhow >= 0 or smallest(2) == anyhow:
            return -math.inf
        return next((least for least in (0, 1) if smallest(least) >= 2), 2)

    def float_input(self, source: Source, example: float) -> SymFloat:
        """A Python float that is a variable of the graph: an input, once something in the graph uses it."""
        name = self._float_names.setdefault(source, f"f{len(self._float_names)}")
        symbol = SymFloat.variable(name, self.shape_env, example)
        if name not in self.number_sources:
            self.number_sources[name] = source
            self._symbols[name] = self.add_placeholder(str(source), source, symbol)
        return symbol

    def number_source(self, value: Any) -> Source:
        """A number computed of inputs and sizes."""
        if isinstance(value, SymInt):
            return Source(*self.shape_text(value, 0))
        if isinstance(value, SymFloat):
            if value.op == "variable":
                return self.number_sources[value.left]
            return Source(f"({{0}} {value.op} {{1}})", (self.number_source(value.left), self.number_source(value.right)))
        return constant_source(value)

    def symbol_source(self, name: str, which: int = 0) -> Source:
        """Where a symbol is read; sizes that were equal share one, so there may be several places."""
        if name in self.shape_env.unbacked:
            raise DataDependentSize(f"{name} is known only when the program runs", (name,))
        token = self.shape_env.sources[name][which]
        match = _SIZE_TOKEN.fullmatch(token)
        if match is None:
            graph_break("data-dependent size", name)
        return self.size_sources[int(match[1])]

    def may_be_unknown(self) -> bool:
        """May the next number that only a tensor tells be a symbol? Not where an earlier attempt has found that the program needs it."""
        return len(self.births) not in self.needed and not self.effects.youngest

    def size_told_by(self, operator: str, tensor: Tensor) -> SymInt:
        """A symbol for a size that only the values in a tensor tell; the same one for the same tensor."""
        key = (operator, id(tensor), tensor._writes)
        self.told += 1
        if key not in self._told:
            self._told[key] = self.unknown_symbol(operator), tensor
        return self._told[key][0]

    def unknown_symbol(self, operator: str, lo: float = 0) -> SymInt:
        """A symbol for a number that only the values in tensors tell."""
        if not self.may_be_unknown():
            self.births.append("")
            raise NotImplementedError(f"the shape of what {operator}() gives is known only when it runs")
        symbol = self.shape_env.create_unbacked(lo=lo)
        self.births.append(str(symbol))
        return symbol

    def read_number(self, tensor: TensorVariable) -> Variable | None:
        """`tensor.item()` as a number of the graph; None where the program needs the value, or there is no symbol for it."""
        kind, env = tensor.fake.dtype, self.shape_env
        whole = not (kind.is_floating_point or kind.is_complex or kind is bool_)
        if not (whole or kind.is_floating_point):
            return None
        if prod(tensor.fake.shape) != 1 or not self.may_be_unknown():
            self.births.append("")
            return None
        if whole:
            value: Any = self.unknown_symbol("item", -math.inf)
        else:
            value = SymFloat.variable(f"fu{len(self.births)}", env)
            self.births.append(value.left)
            env.largest[value.left] = limits(kind)[1]
        node = self.graph.call_method("item", (tensor.node,))
        node.meta.update(self.origin(), val=value, unknown=True)
        self._symbols[self.births[-1]] = node
        self._read_from[self.births[-1]] = tensor, tensor.fake._writes
        self.calls += 1
        return SymVariable(value)

    def reads(self, names: Iterable[str]) -> bool:
        """Are there numbers that `item()` gave among these? They can be read between two graphs; a size belongs to an operator."""
        return not self._read_from.keys().isdisjoint(names)

    def draw(self, method: Source, arguments: Sequence[str], kind: type) -> Variable | None:
        """What a generator of Python's draws, as a number that is an input of the graph; None where the program needs its value."""
        if not self.may_be_unknown():
            self.births.append("")
            return None
        value: Any = self.unknown_symbol("draw", -math.inf) if kind is int else SymFloat.variable(f"fu{len(self.births)}", self.shape_env)
        if kind is float:
            self.births.append(value.left)
        name = self.births[-1]
        source = Source(f"_drawn{len(self.draws)}")
        self.draws[source.template] = method.derive(f"{{0}}({braced(', '.join(arguments))})")
        self.number_sources[name] = source
        self._symbols[name] = self.add_placeholder("drawn", source, value)
        return SymVariable(value)

    def as_index(self, key: Variable) -> Variable:
        """An index, with tensors for numbers that were read from them."""
        key = key.realize(self)
        if isinstance(key, TupleVariable):
            return TupleVariable([self.as_index(item) for item in key.items])
        tensor, writes = self._read_from.get(str(key.value), (key, 0)) if isinstance(key, SymVariable) else (key, 0)
        return tensor if isinstance(tensor, TensorVariable) and tensor is not key and tensor.fake._writes == writes else key

    def draws_tensors(self) -> bool:
        """Does the graph take from the generators of devices?"""
        return fake_draws[0] != self._draws_before

    def may_presume(self, condition: Variable) -> bool:
        """May capture go on in the likelier of two ways, and the program run as it is written where a tensor says otherwise?"""
        return (isinstance(condition, TensorVariable) and PRESUMING not in self.needed and not self.effects.youngest
                and condition.fake.device.type == "cpu" and all(size == 1 for size in condition.fake.shape))

    def presume(self, condition: Variable, truth: bool) -> None:
        """The graph fails where a tensor of one element isn't so."""
        made = self.emit(presumed, [condition, ConstantVariable(truth)], {})
        assert isinstance(made, TensorVariable)
        self.presumptions.append(made)

    def check_size(self, condition: SymBool, assumed: str = "") -> None:
        """The program says that numbers known only when it runs are so, or capture assumes it of the symbol `assumed`."""
        self._checked_by_run(condition.relation, assumed)
        self.shape_env.learn(condition.relation)

    def _checked_by_run(self, held: Relation, assumed: str = "") -> None:
        nodes = [self._expression_node(side) for side in (held.left, held.right)]
        answer = self._size_call(SymBool(held, self.shape_env), _RELATIONS[held.op], *nodes)
        node = self.graph.call_function(must_hold, (answer, held.text()))
        node.meta.update(self.origin(), val=None, assumed=assumed)

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
        return operand_of(self, variable, self._tensor_node, self.size_node)

    def _tensor_node(self, tensor: TensorVariable) -> fx.Node:
        if tensor in self.effects.late_flags:
            graph_break("autograd inside a compiled function", f"a use of {tensor.describe()} after its requires_grad was changed")
        return tensor.node

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
        node.meta.update(val=value, **self.origin())
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
        if node is None and name in self.shape_env.unbacked:
            node = self._symbols[name] = self._size_of_result(name)
        if node is None:
            source = self.symbol_source(name)
            example = self.shape_env.symint(self.shape_env.variable(name))
            node = self._symbols[name] = self.add_placeholder(name, source, example)
        return node

    def _size_of_result(self, name: str) -> fx.Node:
        """A size that only the values in tensors tell, read where a tensor of the graph has it."""
        for variable in self._by_fake.values():
            for dim, size in enumerate(variable.fake.shape):
                if isinstance(size, SymInt) and str(size) == name:
                    node = self.graph.call_method("size", (variable.node, dim))
                    node.meta.update(self.origin(), val=size)
                    return node
        raise DataDependentSize(f"{name} is known only when the program runs", (name,))

    def emit(self, target: Callable[..., Any], args: Args, kwargs: Kwargs) -> Variable:
        """A `call_function` node, run on the fake tensors to see what comes out."""
        return self._emit("call_function", target, target, args, kwargs)

    def emit_method(self, name: str, args: Args, kwargs: Kwargs) -> Variable:
        """A `call_method` node on the first argument."""
        return self._emit("call_method", name, lambda owner, *a, **k: getattr(owner, name)(*a, **k), args, kwargs)

    def _emit(self, kind: str, target: Any, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Variable:
        args = [arg.realize(self) for arg in args]
        kwargs = {name: value.realize(self) for name, value in kwargs.items()}
        if self.is_overridden(args, kwargs) and (found := self.redirected(function, args, kwargs)) is not None:
            return found
        if holds_wrapper((*args, *kwargs.values())):
            return run_through(self, function, args, kwargs)
        examples = [self.example(arg) for arg in args]
        named = {name: self.example(value) for name, value in kwargs.items()}
        name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
        if named.get("requires_grad"):
            made = self._emit(kind, target, function, args, {key: value for key, value in kwargs.items() if key != "requires_grad"})
            return made.method(self, "requires_grad_", [], {})
        tensors = [t for value in (*examples, *named.values()) for t in _tensors_in(value)]
        versions = [t._writes for t in tensors]
        layouts = [t._layout for t in tensors]
        told, drawn, met = self.told, fake_draws[0], fake_collectives[0]
        try:
            answer = self._tried(function, examples, named)
        except (DataDependentFloat, DataDependentSize):
            raise
        except Exception as error:
            if isinstance(error, RuntimeError) and self._tell_histories(tensors):
                return self._emit(kind, target, function, args, kwargs)
            self._fix_numbers([*examples, *named.values()])
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
        node.meta.update(val=answer, **self.origin())
        written = [t for t, before in zip(tensors, versions, strict=True) if t._writes != before]
        if written:
            node.meta["writes"] = tuple(written)
        if any(t._layout is not before for t, before in zip(tensors, layouts, strict=True)):
            node.meta["lays_out"] = True    # a value that another node made has another layout from here on
        if self.told > told:
            node.meta["unknown"] = True
        if fake_draws[0] > drawn:
            node.meta["draws"] = True
        if fake_collectives[0] > met:
            node.meta["communicates"] = True
        self.calls += 1
        made = self.from_node(node, answer)
        # the program may write to its tensor, but not to what is a constant of the graph
        return self.emit_method("clone", [made], {}) if constant else made

    def _tell_histories(self, tensors: list[Tensor]) -> bool:
        """Was an operator refused by what it takes for leaves, and are there inputs of the graph that are none? So far nothing asked."""
        stores = {id(t._storage.memory) for t in tensors}
        found = [v for v in self._by_fake.values() if v.real is not None and id(v.fake._storage.memory) in stores
                 and v.fake.requires_grad and v.fake.grad_fn is None and not v.real.is_leaf]
        for variable in found:
            variable.known_at_entry(self, "is_leaf", False)
            for tensor in (variable.fake, *(example for _, source, example in self.inputs if source == variable.source)):
                give_history(tensor)
        return bool(found)

    def _tried(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What an operator gives on fake tensors. Sizes that nobody knows yet are taken for large ones, as all that vary are; where this
        has decided something, small ones have to give what is said of large ones."""
        env = self.shape_env
        env.large, env.taken_large = True, set()
        try:
            with dispatch.fake_mode(), unknown_sizes(self.size_told_by):
                answer = self._settled(lambda: function(*args, **kwargs))
            taken, env.taken_large = env.taken_large, set()
            for small in (0, 1) if taken else ():
                with dispatch.fake_mode():
                    self._try_small(function, args, kwargs, answer, dict.fromkeys(taken, small))
        finally:
            env.large = False
        for symbol in filter(env.may_be_negative, sorted(taken)):   # it is taken for a size
            self.check_size(env.symint(var(symbol, lo=-math.inf)) >= 0, symbol)
        return answer

    def _settled(self, run: Callable[[], Any]) -> Any:
        """What `run` gives; for an export, with checks of what it needs of sizes that nobody knows yet (others break the graph there)."""
        env = self.shape_env
        if not Exporting.active:
            return run()
        env.checked = self._checked_by_run
        try:
            return settled(env, run)
        finally:
            env.checked = None

    def _try_small(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], answer: Any, small: dict[str, int]) -> None:
        try:
            found = function(*(_with_sizes(arg, small) for arg in args), **{name: _with_sizes(arg, small) for name, arg in kwargs.items()})
        except DataDependentSize:
            if Exporting.active:    # it asks of another size that has to be equal, which a check of the graph tells at a run
                return
            raise
        except Exception as error:
            if answer is not None and not _tensors_in(answer):      # what is no tensor is not computed again when it runs
                raise DataDependentSize(f"{answer!r} is {type(error).__name__} if a size is {min(small.values())}", small) from error
            return      # it raises when it runs
        for large, other in zip(_leaves(answer), _leaves(found), strict=True):
            same = [_resized(n, small) for n in large.shape] == list(other.shape) if isinstance(large, Tensor) else (
                _resized(large, small) == other)
            if not same:
                said = f"the shape {tuple(large.shape)}" if isinstance(large, Tensor) else f"{large!r}"
                raise DataDependentSize(f"{said} is another if a size is {min(small.values())}", small)

    def _relaid(self, tensor: Tensor, before: Any) -> bool:
        """Has an operator given an input or a view another layout, or any tensor another size?"""
        if tensor._layout is before or (len(tensor.shape) == len(before.shape) and all(
                a is b or a == b for now, was in zip(tensor._layout[:2], before[:2]) for a, b in zip(now, was))):
            return False
        known = self._by_fake.get(id(tensor))
        return ((known is not None and known.source is not None) or tensor._view is not None
                or math.prod(tensor.shape) != math.prod(before.shape))

    def turned(self, tensor: TensorVariable, view: Variable) -> TensorVariable:
        """A tensor of the graph that from here on is a view of what it was, as `t_()` makes it one."""
        assert isinstance(view, TensorVariable)
        self._by_fake[id(tensor.fake)] = TensorVariable(tensor.node, tensor.fake)
        self._by_fake[id(view.fake)] = tensor
        tensor.node, tensor.fake = view.node, view.fake
        return tensor

    def _fix_numbers(self, examples: list[Any]) -> None:
        """What was refused may be an int that varies in the place of one that doesn't, such as a dimension: start anew with its value."""
        names = {name for leaf in _leaves(examples) if isinstance(leaf, SymInt) for name in free_variables(leaf.expr)}
        found = {str(self.symbol_source(name)) for name in names.intersection(self.shape_env.numbers())} - self.pinned
        if found:
            self.pinned |= found
            raise RestartTrace

    def _refused(self, name: str, error: Exception, examples: list[Any]) -> None:
        shapes = ", ".join(f"{tuple(e.shape)}" for e in examples if isinstance(e, Tensor))
        kind = "operator failed on fake tensors"
        text = str(error)
        if isinstance(error, NotImplementedError) or any(words in text for words in ("depends on data", "fake tensor", "without data")):
            kind = "data-dependent operator"
        graph_break(kind, f"{name} on tensors of shapes {shapes or 'none'}: {type(error).__name__}: {text}")

    def from_node(self, node: fx.Node, answer: Any) -> Variable:
        """The variable of what a node gives; tuples are taken apart by getitem nodes."""
        if isinstance(answer, Tensor):
            known = self._by_fake.get(id(answer))
            if known is not None:  # an in-place operation gives its input back
                return known
            variable = (SpreadVariable if computes(type(answer)) else TensorVariable)(node, answer)
            self._by_fake[id(answer)] = variable
            return variable
        if isinstance(answer, (tuple, list)) and any(isinstance(item, (Tensor, tuple, list)) for item in answer):
            items: list[Variable] = []
            for i, item in enumerate(answer):
                part = self.graph.call_function(operator.getitem, (node, i))
                part.meta.update(self.origin(), val=item)
                items.append(self.from_node(part, item))
            return self.sequence_like(answer, items)
        made = self.literal(answer)
        if type(made) is ConstantVariable and not self.is_immutable(answer):    # a storage, say, which here has no memory
            graph_break("unknown operation", f"{node.name}, which gives a {type(answer).__name__}")
        return made

    def fake_variable(self, value: Tensor) -> Variable:
        """The variable of a fake tensor that turned up."""
        known = self._by_fake.get(id(value))
        if known is None and dispatch.answers(value):
            return WrapperVariable(value)
        if known is None:
            graph_break("unknown value", "a tensor made during capture that isn't in the graph")
        return known

    def set_grad_mode(self, recording: int, *, lasting: bool = False) -> None:
        """Switch the recording of gradients, in the graph and for what is captured next."""
        if dispatch.state.recording == recording:
            return
        node = self.graph.call_function(set_grad_mode, (recording,))
        node.meta.update(self.origin(), val=None, recording=recording, replaced=dispatch.state.recording)
        dispatch.state.recording = recording

    def enter_autocast(self, settings: Settings) -> tuple[fx.Node, Any]:
        """Open an autocast block, in the graph and for what is captured next."""
        node = self.graph.call_function(enter_autocast, settings)
        node.meta.update(self.origin(), val=None, scope="autocast")
        self.scopes.append((node, enter_autocast(*settings)))
        return self.scopes[-1]

    def leave_autocast(self, entered: tuple[fx.Node, Any]) -> None:
        """Close an autocast block that capture opened."""
        if entered is not self.scopes[-1]:
            graph_break("unknown context manager", "autocast blocks that overlap")
        node, scope = self.scopes.pop()
        exit_autocast(scope)
        made = self.graph.call_function(exit_autocast, (node,))
        made.meta.update(self.origin(), val=None, scope="autocast")

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
        return tuple(frame.where() for frame in self.frames)

    def line(self) -> str:
        """The user's line that is being captured."""
        return next((f"{file}:{line}, in {name}: {source}" for file, line, name, source in reversed(self.stack())), "")

    def origin(self) -> dict[str, Any]:
        """Where a node comes from: the user's frames, and the modules whose methods they are, as `source: (path, class)`."""
        for frame in self.frames:
            if frame.module is MISSING:
                frame.module = _module_of(frame, self.frames[0].first_argument)
        modules = {source: (path, cls) for source, path, cls in filter(None, (frame.module for frame in self.frames))}
        found = {"stack": self.stack(), "nn_module_stack": modules}
        return found if self.region is None else {**found, "region": self.region}

    def drop_unused_inputs(self) -> None:
        """Placeholders that nothing uses aren't inputs, but for symbols that only the strides of others have."""
        kept = []
        used = [stride for node, _, example in self.inputs if node.users and isinstance(example, Tensor) for stride in example.stride()]
        laid_out = {name for stride in used if isinstance(stride, SymInt) for name in free_variables(stride.expr)}
        for node, source, example in self.inputs:
            if node.users or (isinstance(example, SymInt) and str(example) in laid_out):
                kept.append((node, source, example))
            else:
                self.graph.erase_node(node)
        self.inputs = kept


def _module_of(frame: Any, own: str | None) -> tuple[str, str, type] | None:
    """The module whose method a frame runs: its source, its path below the root, which is the
    argument `own` (`layers.3.linear`), and its class."""
    module = frame.locals.get(frame.first_argument)
    if not isinstance(module, ModuleObjectVariable) or module.source is None:
        return None
    source = str(module.source)
    root, *names = [part for part in _SUBMODULE.split(source) if part]
    return source, ".".join([*([] if root == own else [root]), *names]), module.cls


@fx.mark_impure
def must_hold(condition: bool, text: str) -> None:
    """Put into graphs: what the program has said of a size."""
    if not condition:
        raise RuntimeError(f"Runtime assertion failed for expression {text}")


_RELATIONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _resized(size: Any, values: dict[str, int]) -> Any:
    return size.env.symint(substitute(size.expr, values)) if isinstance(size, SymInt) else size


def _with_sizes(value: Any, sizes: dict[str, int]) -> Any:
    """An argument with numbers in the place of some sizes."""
    if isinstance(value, Tensor):
        shape, strides = ([_resized(n, sizes) for n in each] for each in (value.shape, value.stride()))
        if all(a is b for a, b in zip(shape, value.shape, strict=True)):
            return value.detach()
        return fake(tuple(shape), value.dtype, value.device, tuple(strides))
    if isinstance(value, (tuple, list)):
        return type(value)(_with_sizes(item, sizes) for item in value) if type(value) in (tuple, list) else value
    if isinstance(value, slice):
        return slice(*(_with_sizes(part, sizes) for part in (value.start, value.stop, value.step)))
    return _resized(value, sizes)


def _leaves(value: Any) -> list[Any]:
    """What is in an argument: itself, or elements of lists, tuples and dicts."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return _leaves(list(value.values())) if isinstance(value, dict) else [value]


def _tensors_in(value: Any) -> list[Tensor]:
    return [leaf for leaf in _leaves(value) if isinstance(leaf, Tensor)]
