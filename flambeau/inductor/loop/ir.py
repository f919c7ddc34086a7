"""The loop IR: what a graph of primitives becomes before it is scheduled and printed as C++.

A program is a list of nodes over flat buffers:
- `Compute`: for all values of its loop variables, evaluate a scalar `body` and store it (pointwise), fold it over the
  reduction variables and store that (a reduction), or store or add it at a computed position (scatter);
- `Extern`: a call of a library (oneDNN) or, failing all else, of a primitive's eager kernel.

A body is a DAG of `Value`s over the scalar operations of `core/scalar.py`, made by running define-by-run functions with a
`Tracer` as their handler. `reference.py` executes a program with NumPy; that is what a program means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flambeau.core.dtypes import bool_, dtype, int64
from flambeau.core.expr import Expr, Index, bounds, evaluate, free_variables, to_python, var
from flambeau.core.locks import cached_property
from flambeau.core.scalar import NUMPY, SCATTERED_BY, TABLE, Fold, compute_dtype, result_dtype
from flambeau.core.size import extent
from flambeau.core.symbolic import SymFloat, SymInt

if TYPE_CHECKING:
    from flambeau.inductor.loop.post_ops import PostOp


class Access(NamedTuple):
    """What a load reads: `buffer[index]`. `names` are the variables of `index` whose values are computed (the load's
    arguments, in order); with `masked`, the last argument says whether to load at all (0 where not)."""

    buffer: str
    index: Index  # type: ignore[assignment]
    names: tuple[str, ...] = ()
    masked: bool = False


class Value:
    """A node of a body's DAG: `op(*args)`; `attr` is the constant, index, access or dtype that goes with op."""

    __slots__ = ("args", "attr", "dtype", "op", "uid")

    def __init__(self, op: str, args: tuple[Value, ...], kind: dtype, attr: Any, uid: int):
        self.op, self.args, self.dtype, self.attr, self.uid = op, args, kind, attr, uid

    def __repr__(self) -> str:
        return f"%{self.uid}"


def _is_number_of(x: Value, kind: dtype, buffers: Mapping[str, Buffer]) -> bool:
    """Whether a float32 value is certainly a number of a narrower float dtype."""
    if x.op == "constant":
        return isinstance(x.attr, (int, float)) and float(np.asarray(x.attr).astype(kind.numpy)) == x.attr
    if x.op == "load":
        return buffers[x.attr.buffer].dtype is kind
    return (x.op == "round_to" and x.attr is kind) or (x.op in TABLE and TABLE[x.op].exact and all(
        a.dtype is bool_ or _is_number_of(a, kind, buffers) for a in x.args))


def walk(roots: Sequence[Value]) -> list[Value]:
    """All values reachable from `roots`, operands first."""
    seen: set[int] = set()
    order: list[Value] = []
    stack: list[tuple[Value, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        value, done = stack.pop()
        if done:
            order.append(value)
        elif value.uid not in seen:
            seen.add(value.uid)
            stack.append((value, True))
            stack.extend((arg, False) for arg in reversed(value.args) if arg.uid not in seen)
    return order


def varies_with(values: Sequence[Value], place: Callable[[Index], Index] = lambda index: index) -> dict[int, set[str]]:
    """By uid, the variables that each of `values` (operands first) depends on, also by way of computed positions; `place`
    changes their indices."""
    found: dict[int, set[str]] = {}
    for v in values:
        index = place(v.attr.index if v.op == "load" else v.attr) if v.op in ("load", "index") else 0
        found[v.uid] = set(free_variables(index)).union(*[found[a.uid] for a in v.args])
    return found


class Tracer:
    """The handler that records: its operations return `Value`s, equal ones once; constants fold.

    Beside the scalar operations it has what index maps need: `index`, `index_eq` and its kin, `indirect`, `masked`.
    """

    def __init__(self) -> None:
        self._table: dict[tuple, Value] = {}
        self.mask: Value | None = None  # under which loads happen
        self.computed: dict[str, Value] = {}  # the index variables that stand for computed values
        self.checks: list[Value] = []  # of computed indices, in the order in which they were asked for

    def make(self, op: str, args: tuple[Value, ...], kind: dtype, attr: Any = None) -> Value:
        """The value `op(*args)`, hash-consed."""
        key = (op, tuple([a.uid for a in args]), kind.name, attr.to_cpp() if isinstance(attr, SymFloat) else attr)
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = Value(op, args, kind, attr, len(self._table))
        return found

    def __getattr__(self, name: str) -> Callable[..., Value]:
        row = TABLE.get(name)
        if row is None:
            raise AttributeError(f"the loop IR has no scalar operation {name!r}; it has {', '.join(sorted(TABLE))}")

        def record(*args: Any) -> Value:
            return self._apply(name, args)

        setattr(self, name, record)
        return record

    def _apply(self, name: str, args: tuple) -> Value:
        row = TABLE[name]
        if len(args) != row.arity:
            raise TypeError(f"{name} takes {row.arity} operands, got {len(args)}")
        values = self._operands(name, args)
        simpler = self._simplify(name, values)
        if simpler is not None:
            return simpler
        return self.make(name, values, result_dtype(row, [v.dtype for v in values]))

    def _operands(self, name: str, args: tuple) -> tuple[Value, ...]:
        typed = args[1:] if name == "where" else args
        kind = next((a.dtype for a in typed if isinstance(a, Value)), None)
        if kind is None:
            kind = next((a.dtype for a in args if isinstance(a, Value)), None)
        if kind is None:
            raise TypeError(f"{name}: at least one operand must be a value, got {args}")
        return tuple([a if isinstance(a, Value) else self.constant(a, kind) for a in args])

    def _simplify(self, name: str, values: tuple[Value, ...]) -> Value | None:
        x = values[0]
        if name in ("logical_and", "logical_or"):
            for known, other in (values, values[::-1]):
                if known.op == "constant" and x.dtype is values[1].dtype is bool_:
                    return other if bool(known.attr) == (name == "logical_and") else known
        last = values[-1]
        constant = last.attr if last.op == "constant" else None
        if constant is not None and not isinstance(constant, SymFloat):
            if all(v.op == "constant" and not isinstance(v.attr, SymFloat) for v in values) and not x.dtype.is_complex:
                kind = result_dtype(TABLE[name], [v.dtype for v in values])
                with np.errstate(all="ignore"):
                    folded = getattr(NUMPY, name)(*(NUMPY.constant(v.attr, v.dtype) for v in values))
                return self.constant(np.asarray(folded).item(), kind)
            if (name == "mul" and constant == 1) or (name == "sub" and constant == 0):
                return x
            if name in ("add", "mul", "sub") and not x.dtype.is_floating_point and constant == (name == "mul"):
                return x
            if name == "truediv" and x.dtype.is_floating_point and constant and math.frexp(abs(constant))[0] == 0.5:
                return self.mul(x, 1 / constant)
        if name == "where" and x.op == "constant":
            return values[1] if x.attr else values[2]
        if name == "where" and values[1] is values[2]:
            return values[1]
        return None

    def constant(self, value: Any, kind: dtype) -> Value:
        """The number `value` (also a SymInt or SymFloat) in `kind`'s compute dtype."""
        kind = compute_dtype(kind)
        if isinstance(value, (SymInt, Expr)):
            return self.index(value, kind)
        if isinstance(value, SymFloat):
            return self.make("constant", (), kind, value.guarded)
        if kind is bool_:
            value = bool(value)
        elif kind.is_floating_point:
            value = float(value)
        elif not kind.is_complex:
            value = int(value)
        attr = value if value == value else "nan"
        if kind.is_floating_point and value == 0 and math.copysign(1, value) < 0:
            attr = "-0"
        return self.make("constant", (), kind, _Number(attr, kind.name) if isinstance(attr, str) else value)

    def to_dtype(self, x: Value, kind: dtype) -> Value:
        """`x` converted; to a narrow float: rounded to it and kept in float32."""
        wide = compute_dtype(kind)
        if wide is not kind:
            x = self.to_dtype(x, wide)
            return self.make("round_to", (x,), wide, kind)
        if x.dtype is kind:
            return x
        if x.op == "constant" and isinstance(x.attr, (int, float, bool)) and math.isfinite(x.attr):
            return self.constant(x.attr, kind)
        if x.op == "index" and kind is not bool_:
            return self.index(x.attr, kind)
        return self.make("to_dtype", (x,), kind)

    def rounded(self, x: Value, kind: dtype, buffers: Mapping[str, Buffer]) -> Value:
        """A value as a tensor of `kind`, a narrow float, has it: rounded, unless it is sure to be a number of that dtype."""
        return x if _is_number_of(x, kind, buffers) else self.make("round_to", (x,), x.dtype, kind)

    def bitcast(self, x: Value, kind: dtype) -> Value:
        """The bits of `x` as `kind`."""
        return self.make("bitcast", (x,), kind)

    def load(self, buffer: str, index: Index, kind: dtype, values: dict[str, Value] | None = None) -> Value:
        """`buffer[index]`; `values` gives the computed variables of the index (by default all made by `indirect`)."""
        known = self.computed if values is None else values
        computed = {name: known[name] for name in computed_names(index)}
        args = tuple(computed.values())
        if self.mask is not None:
            args += (self.mask,)
        return self.make("load", args, compute_dtype(kind), Access(buffer, index, tuple(computed), self.mask is not None))

    # --- for index maps ---

    def index(self, expr: Any, kind: dtype = int64) -> Value:
        """The integer expression `expr` of loop variables and sizes, as a number."""
        expr = expr.guarded if isinstance(expr, SymInt) else expr
        if isinstance(expr, (int, np.integer)):
            return self.constant(int(expr), kind)
        computed = tuple([self.computed[name] for name in computed_names(expr)])
        return self.make("index", computed, compute_dtype(kind), expr)

    def _compare_index(self, op: str, x: Any, y: Any) -> Value:
        x, y = (a.guarded if isinstance(a, SymInt) else a for a in (x, y))
        lo, hi = bounds(x - y)
        decided = {"lt": (hi < 0, lo >= 0), "le": (hi <= 0, lo > 0), "eq": (lo == hi == 0, lo > 0 or hi < 0)}[op]
        if any(decided):
            return self.constant(decided[0], bool_)
        return self._apply(op, (self.index(x), self.index(y)))

    def index_eq(self, x: Any, y: Any) -> Value:
        """Whether two index expressions are equal."""
        return self._compare_index("eq", x, y)

    def index_lt(self, x: Any, y: Any) -> Value:
        """Whether index expression `x` is less than `y`."""
        return self._compare_index("lt", x, y)

    def index_le(self, x: Any, y: Any) -> Value:
        """Whether index expression `x` is at most `y`."""
        return self._compare_index("le", x, y)

    def indirect(self, x: Value, size: Any, wraps: bool = False) -> Index:
        """The computed integer `x` as an index expression, `0 <= x < size`; where it `wraps`, negative values count from
        the end. Others are an IndexError when the program runs (not where a mask says that nothing is loaded)."""
        size = size.guarded if isinstance(size, SymInt) else size
        if x.op == "constant" and wraps:
            return int(x.attr) % size if isinstance(size, int) and size else int(x.attr)
        if x.op == "index" and bounds(x.attr)[0] >= 0:
            return x.attr
        wide = self.to_dtype(x, int64)
        wrapped = self.where(self.lt(wide, 0), self.add(wide, self.index(size)), wide) if wraps else wide
        if self.mask is not None:
            wrapped = self.where(self.mask, wrapped, 0)
        checked = self.make("checked", (wrapped, wide), int64, size)  # wide: what an error names
        self.computed[f"v{checked.uid}"] = checked
        self.checks.append(checked)
        return var(f"v{checked.uid}", size=size)

    def with_checks(self, read: Callable[[], Value]) -> Value:
        """`read()`, which computes indices: they are checked also where what is read is the same everywhere (a constant, an
        expanded tensor), so that the value does not hang on them."""
        before = len(self.checks)
        value = read()
        if len(self.checks) > before:
            used = {v.uid for v in walk([value])}
            for checked in self.checks[before:]:
                if checked.uid not in used:
                    value = self.where(self.lt(checked, 0), int(value.op == "constant" and value.attr == 0), value)   # which it never is
        return value

    def masked(self, condition: Value, value: Callable[[], Value], other: Any) -> Value:
        """`value()` where `condition`, else `other`; nothing is loaded where the condition is false."""
        if condition.op == "constant":
            if condition.attr:
                return value()
            inner = value()
            return other if isinstance(other, Value) else self.constant(other, inner.dtype)
        outer = self.mask
        self.mask = condition if outer is None else self.logical_and(outer, condition)
        try:
            inner = value()
        finally:
            self.mask = outer
        return self.where(condition, inner, other)


def computed_names(expr: Index) -> list[str]:
    """The variables of `expr` that stand for computed values (`Tracer.indirect` names them v1, v2, ...), in order."""
    return sorted(name for name in free_variables(expr) if name[0] == "v")


class _Number(float):
    """NaN or -0.0 as a constant: equal to itself and distinct from 0.0, so that it can be hash-consed."""

    def __new__(cls, text: str, kind: str) -> _Number:
        self = super().__new__(cls, text)
        self.text = text  # type: ignore[attr-defined]
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Number) and self.text == other.text  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.text)  # type: ignore[attr-defined]


# --- programs ---


@dataclass
class Buffer:
    """Flat storage seen as a dense tensor: `shape` and `strides` in elements. `kind`: input, temp or output."""

    name: str
    dtype: dtype
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    kind: str = "temp"

    @property
    def numel(self) -> Index:
        """The number of elements from the first to the last one, gaps included."""
        return extent(self.shape, self.strides)


class View(NamedTuple):
    """A strided look into a buffer: elements at `offset + sum(index * stride)`."""

    buffer: str
    dtype: dtype
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index = 0

    def index(self, idx: Sequence[Index]) -> Index:  # type: ignore[override]
        """The flat position of the element `idx`."""
        out = self.offset
        for i, s in zip(idx, self.strides, strict=True):
            out = out + i * s
        return out


Loop = tuple[str, Index]  # variable, size
THROUGH_PYTHON = ("eager", "kernel")    # what calls are that no library of generated code has: a primitive, an operator's kernel


class Origin(NamedTuple):
    """Where a node comes from: the graph node's name, the primitive, and the user's line."""

    name: str
    op: str
    line: str
    place: int = -1     # the number of the step of the captured graph


@dataclass(eq=False)
class Compute:
    """`buffer[index] = body` over `loops`; with `kind` a reduction over `reduce_loops` too; `scatter` combines or overwrites at
    an index that is computed."""

    buffer: str
    index: Index
    loops: tuple[Loop, ...]
    body: Value
    kind: str = "pointwise"
    reduce_loops: tuple[Loop, ...] = ()
    index_values: dict[str, Value] = field(default_factory=dict)  # computed variables of `index` (scatter)
    mask: Value | None = None  # scatter only where true
    origins: tuple[Origin, ...] = ()

    @cached_property
    def values(self) -> list[Value]:
        """The body and what the store needs, operands first."""
        return walk([self.body, *self.index_values.values(), *([self.mask] if self.mask is not None else [])])

    @cached_property
    def loads(self) -> list[Access]:
        """All accesses of the body."""
        return [v.attr for v in self.values if v.op == "load"]

    @cached_property
    def reads(self) -> set[str]:
        """The buffers that are read."""
        own = {self.buffer} if self.kind.startswith("scatter") else set()
        return {access.buffer for access in self.loads} | own

    @property
    def writes(self) -> tuple[str, ...]:
        """The buffers that are written."""
        return (self.buffer,)


class Scanned(NamedTuple):
    """The step of a loop over a sequence: a program of what is carried, the inputs at one place, and what is captured."""

    program: Program
    places: tuple[int, ...]     # of what is carried: which of the program's results it becomes
    stacked: tuple[int, ...]    # which results are stacked
    inputs: int
    reverse: bool

    @property
    def carried(self) -> int:
        """How much is carried."""
        return len(self.places)

    @property
    def taken(self) -> list[str]:
        """The program's buffers of what it is given, in order."""
        return [name for name in self.program.inputs if name is not None]


@dataclass(eq=False)
class Extern:
    """A library call: `op` over strided views of buffers, writing whole buffers. It means `target(*args)`, with the inputs in the
    places of slots, and then its epilogue, whose tensors are the last inputs."""

    op: str
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    target: Any                                 # a primitive or an operator
    args: tuple[Any, ...]
    origins: tuple[Origin, ...] = ()
    epilogue: tuple[PostOp, ...] = ()           # of products and convolutions on a CPU
    layouts: tuple[str, ...] = ()               # of the x, w and y of a convolution on a CPU
    activation: str | None = None               # of a product on a GPU that ends in a bias, its last input
    window: tuple[tuple[int, ...], ...] = ()    # of a convolution on a GPU: strides, padding, dilation
    convolution: Any = None                     # its description for cuDNN, where all sizes are known
    body: Scanned | None = None                 # of a loop on a CPU

    @property
    def reads(self) -> set[str]:
        """The buffers that are read."""
        return {view.buffer for view in self.inputs}

    @property
    def writes(self) -> tuple[str, ...]:
        """The buffers that are written."""
        return tuple(view.buffer for view in self.outputs)

    @property
    def in_python(self) -> bool:
        """Whether the primitive's or operator's own kernel is called, through Python."""
        return self.op in THROUGH_PYTHON

    @property
    def begins(self) -> bool:
        """Whether it can be begun now and waited for later: a collective."""
        return getattr(self.target, "begin", None) is not None


Step = Compute | Extern


ALL_OUTPUTS = 1 << 30   # however many a graph has


class Assumed(NamedTuple):
    """What the caller of a program sees to."""

    frozen: bool = False  # constants keep their contents
    # On a GPU:
    small: bool = False  # no buffer will have 2^31 elements, whatever the sizes
    multiples: frozenset[str] = frozenset()  # the size symbols whose values will be multiples of 16
    unaligned: frozenset[str] = frozenset()  # the inputs whose addresses need not be multiples of 16 bytes


@dataclass
class Program:
    """Buffers, the steps over them in order, and which views of buffers are the results."""

    buffers: dict[str, Buffer]
    steps: list[Step]
    inputs: list[str | None]  # buffer names in calling order; None for inputs that are sizes
    outputs: list[View | Index | None]
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)  # size symbol -> (input, dimension or -1)
    hints: dict[str, int] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)  # buffers of tensors that belong to the graph
    parameters: set[str] = field(default_factory=set)  # inputs that stay what they are from call to call, mostly
    donated: set[str] = field(default_factory=set)  # inputs that nobody but the caller has, who lets go of them
    exact: int = ALL_OUTPUTS  # how many of the first outputs are for users; the others go to another graph alone
    guards: Sequence[Any] = ()  # what is known of the sizes: `core.symbolic.Guard`s
    assumed: Assumed = field(default_factory=Assumed)

    def __str__(self) -> str:
        return "\n".join(print_program(self))

    def hint(self, x: Index) -> int:
        """An example value of the size `x`."""
        if isinstance(x, int):
            return x
        return int(evaluate(x, {name: self.hints.get(name, 8192) for name in free_variables(x)}))


def numel(loops: Sequence[Loop]) -> Index:
    """The number of iterations of nested loops."""
    return math.prod([size for _, size in loops])


# --- printing ---


def print_body(values: Sequence[Value]) -> Iterator[str]:
    """One line of Python a value."""
    for v in values:
        args = ", ".join(map(repr, v.args))
        if v.op == "load":
            access: Access = v.attr
            given = "".join(f", {n}={a}" for n, a in zip(access.names, v.args, strict=False))
            mask = f", mask={v.args[-1]}" if access.masked else ""
            text = f"{access.buffer}[{to_python(access.index)}{given}{mask}]"
        elif v.op == "constant":
            text = f"{v.attr!r}"
        elif v.op == "index":
            text = f"({to_python(v.attr)}{''.join(f', {n}={a}' for n, a in zip(computed_names(v.attr), v.args))})"
        else:
            text = f"o.{v.op}({args}{', ' + repr(v.attr) if v.attr is not None else ''})"
        yield f"{v!r}: {v.dtype.name} = {text}"


def print_step(step: Step) -> Iterator[str]:
    """A step as text."""
    for origin in step.origins:
        yield f"# {origin.name}: {origin.op}  {origin.line}".rstrip()
    if isinstance(step, Extern):
        outs = ", ".join(v.buffer for v in step.outputs)
        ins = ", ".join(f"{v.buffer}{list(v.shape)}:{list(v.strides)}+{v.offset}" for v in step.inputs)
        facts = {f.name: getattr(step, f.name) for f in fields(step)[3:] if f.name not in ("origins", "body")}
        attrs = "".join(f", {k}={v!r}" for k, v in facts.items() if v not in ((), None))
        yield f"{outs} = extern.{step.op}({ins}{attrs})"
        if step.body is not None:
            yield from (f"    {line}".rstrip() for line in print_program(step.body.program))
        return
    indent = ""
    for name, size in step.loops + step.reduce_loops:
        yield f"{indent}for {name} in range({to_python(size)}):"
        indent += "    "
    for line in print_body(step.values):
        yield indent + line
    if step.kind == "pointwise":
        yield f"{indent}{step.buffer}[{to_python(step.index)}] = {step.body}"
    else:
        mask = f" if {step.mask}" if step.mask is not None else ""
        given = "".join(f", {n}={v}" for n, v in step.index_values.items())
        yield f"{indent}{step.buffer}[{to_python(step.index)}{given}] {step.kind}= {step.body}{mask}"


def print_program(program: Program) -> Iterator[str]:
    """A whole program as readable Python."""
    for b in program.buffers.values():
        shape = ", ".join(map(to_python, b.shape))
        strides = ", ".join(map(to_python, b.strides))
        yield f"{b.name}: {b.kind} {b.dtype.name}[{shape}] strides ({strides})"
    for step in program.steps:
        yield ""
        yield from print_step(step)
    yield ""
    yield "return " + ", ".join(v.buffer if isinstance(v, View) else str(v) for v in program.outputs)


# Kinds of scatter, and how the value that is there is combined with what comes; None: it gives way.
SCATTERS: dict[str, Fold | None] = {"scatter_set": None, **{f"scatter_{name}": fold for name, fold in SCATTERED_BY.items()}}
