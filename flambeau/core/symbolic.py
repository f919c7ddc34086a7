"""Symbolic sizes of fake tensors: `SymInt`, `SymBool`, `SymFloat` and the `ShapeEnv` that knows where they come from.

A `SymInt` is an expression (core/expr.py) inside a `ShapeEnv`. Computing with it stays symbolic; branching on it
(`if n > 3:`) takes the branch that the example (`hint`) takes and records that as a guard, an expression over the
sources of the symbols ("x.size(0)") that the compiled code is checked against before it is used again.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flambeau.core.expr import (
    Expr,
    Index,
    bounds,
    coefficient,
    evaluate,
    floordiv,
    free_variables,
    is_var,
    known_nonnegative,
    maximum,
    minimum,
    modulo,
    substitute,
    to_cpp,
    to_python,
    var,
)

_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}
_MOST_SUPPOSED = 8     # questions of one operator about sizes that only a run knows
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class DataDependentSize(RuntimeError):
    """A size that is known only when the program runs was to decide something; `names` are its symbols, `asked` what it was to decide."""

    asked: Relation | None = None

    def __init__(self, text: str, names: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.names = frozenset(names)


class ConstraintViolationError(RuntimeError):
    """A program fixes sizes that were marked as ones that vary; `where` has their names, each with the user's line that asks for it."""

    def __init__(self, text: str, where: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.where = dict(where or {})


class Unknown(threading.local):
    """Whoever captures operators whose results have sizes that only their inputs' values tell."""

    asked: Callable[[str, Any], SymInt] | None = None
    """`asked(operator, tensor)` makes a symbol for such a size."""


_unknown = Unknown()


@contextmanager
def unknown_sizes(make: Callable[[str, Any], SymInt]) -> Iterator[None]:
    """Within the block shape rules get symbols for such sizes from `make`."""
    outer, _unknown.asked = _unknown.asked, make
    try:
        yield
    finally:
        _unknown.asked = outer


def unknown_size(operator: str, tensor: Any) -> SymInt:
    """The size of a result that hangs on values, on a tensor without data; NotImplementedError where nobody captures."""
    if _unknown.asked is None:
        raise NotImplementedError(f"{operator}() of a tensor without data (fake or meta) has no known shape; it breaks the graph")
    return _unknown.asked(operator, tensor)


def must(condition: Any, said: bool = False) -> bool:
    """Whether a condition holds. One of sizes that only a run knows holds from here on, where whoever captures sees to it that it is
    checked; that is so anyway of what the program has `said` itself."""
    if isinstance(condition, SymBool):
        env, relation = condition.env, condition.relation
        if env.supposed is None and (said or env.checked is not None) and free_variables(relation.left - relation.right) & env.unbacked:
            env.learn(relation)
            return True
    return bool(condition)


def settled(env: ShapeEnv, run: Callable[[], Any]) -> Any:
    """What an operator gives, where it asks things of sizes that only a run knows. Such sizes differ from each other and from 0 and 1,
    unless it refuses that: then they have to be equal. Of an order that holds has to be what it does not refuse. Whoever captures sees to
    it that this is checked; DataDependentSize where the operator takes both."""
    try:
        supposed, answer = _supposing(env, run, {})
    except DataDependentSize:
        if env.guess is None:
            raise
        return run()
    needed = [held for relation, answer_ in supposed.items() if (held := _as_answered(relation, answer_)).op != "!="]
    for held in needed:
        env.learn(held)
    return _run_supposing(env, run, supposed) if needed else answer


def _supposing(env: ShapeEnv, run: Callable[[], Any], supposed: dict[Relation, bool]) -> tuple[dict[Relation, bool], Any]:
    """The answers with which an operator runs, and what it gives then."""
    try:
        return supposed, _run_supposing(env, run, supposed)
    except DataDependentSize as error:
        asked, undecided = error.asked, error
    if asked is None or len(supposed) >= _MOST_SUPPOSED:
        raise undecided
    found: list[tuple[dict[Relation, bool], Any]] = []
    refused: Exception = undecided
    for answer in (asked.op == "!=", asked.op != "!="):
        try:
            found.append(_supposing(env, run, supposed | {asked: answer}))
        except DataDependentSize:
            raise
        except Exception as error:
            refused = error
        if asked.op in ("==", "!=") and (found or asked.right in (0, 1) or asked.left in (0, 1)):
            break
    if len(found) == 1:
        return found[0]
    raise undecided if found else refused


def _run_supposing(env: ShapeEnv, run: Callable[[], Any], supposed: dict[Relation, bool]) -> Any:
    outer, env.supposed = env.supposed, supposed
    try:
        return run()
    finally:
        env.supposed = outer


def _as_answered(relation: Relation, answer: bool) -> Relation:
    return relation if answer else Relation(_NEGATED[relation.op], relation.left, relation.right)


def is_of_data(condition: Any) -> bool:
    """Whether only a run knows if a condition holds, or a number."""
    if isinstance(condition, SymInt):
        return bool(free_variables(condition.expr) & condition.env.unbacked)
    return isinstance(condition, SymBool) and condition.env.static_value(condition.relation) is None and bool(
        free_variables(condition.relation.left - condition.relation.right) & condition.env.unbacked)


class Relation(NamedTuple):
    """`left op right`, with op one of == != < <= > >=."""

    op: str
    left: Index
    right: Index

    def text(self) -> str:
        return f"{to_python(self.left)} {self.op} {to_python(self.right)}"


class Guard(NamedTuple):
    """A relation that the compiled code relies on, and why it was needed (a user's frame, where known)."""

    relation: Relation
    reason: str


@dataclass
class ShapeEnv:
    """The symbols of one capture: their example values, sources, guards and learned equalities.

    `duck_shape`: sizes with equal hints share one symbol (and a guard says that the sources are equal).
    """

    duck_shape: bool = True
    hints: dict[str, int] = field(default_factory=dict)
    sources: dict[str, list[str]] = field(default_factory=dict)  # symbol -> where it can be read at call time
    guards: list[Guard] = field(default_factory=list)
    replacements: dict[str, Index] = field(default_factory=dict)
    frozen: bool = False  # once frozen (guards are built), a new guard is an error
    float_guards: dict[str, tuple[Any, str, Any, bool]] = field(default_factory=dict)  # comparisons of floats, and what came out
    floats_frozen: bool = False  # once frozen, a new comparison is an error
    unbacked: set[str] = field(default_factory=set)  # symbols without a hint
    largest: dict[str, float] = field(default_factory=dict)  # the largest finite value of a float without a hint
    large: bool = False  # while an operator is asked for its shape: take them for sizes of at least 2, as all symbols are
    taken_large: set[str] = field(default_factory=set)  # of which that has decided something
    balances: list[Index] = field(default_factory=list)  # sums of several of them that are 0: parts of what a size is known of
    line: Callable[[], str] | None = None  # the user's line that is being captured, of which a guard without a reason is
    checked: Callable[[Relation], None] | None = None  # told of what has been checked of sizes that only a run knows
    supposed: dict[Relation, bool] | None = None  # while an operator is tried: what it was answered of sizes that only a run knows
    guess: Callable[[Exception], bool] | None = None  # answers, instead of raising, what data would decide
    _ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    _by_hint: dict[tuple[int, Any], str] = field(default_factory=dict)
    _least: dict[str, int] = field(default_factory=dict)  # what a symbol with a source is at least: a size 2
    _known: dict[Relation, bool] = field(default_factory=dict)

    def create_symint(self, hint: int, source: str, dynamic: bool | None = None, *, alone: bool = False, seen: Any = None,
                      least: int = 2) -> SymInt | int:
        """A symbol for the size `hint` read at `source`; sizes 0 and 1 are specialised (returned as ints, guarded), numbers only below
        their `least`.

        `dynamic=False` asks for specialisation; the caller guards it. One that is `alone` shares its symbol with no equal size, others
        with those of which the same has been `seen`.
        """
        if dynamic is False or hint < least:
            return hint
        name = self._by_hint.get((hint, seen)) if self.duck_shape and dynamic is not True and not alone else None
        if name is None:
            name = f"s{len(self.hints)}"
            self.hints[name], self.sources[name] = hint, []
            self._ranges[name], self._least[name] = (least, math.inf), least
            if not alone:
                self._by_hint.setdefault((hint, seen), name)
        self.sources[name].append(source)
        return self.symint(self.simplify(var(name, lo=least)), hint)

    def variable(self, name: str) -> Index:
        """A symbol with a source, with the bound that it was made with."""
        return var(name, lo=self._least[name])

    def least(self, name: str) -> int:
        """What a symbol with a source is at least."""
        return self._least[name]

    def numbers(self) -> list[str]:
        """The symbols that stand for numbers and not for sizes."""
        return [name for name, least in self._least.items() if least < 2]

    def create_unbacked(self, source: str = "", lo: float = 0) -> SymInt:
        """A size known only when the program runs (`nonzero`): it has no hint, and branching on it is an error."""
        name = f"u{len(self.sources)}"
        self.sources[name] = [source]
        self.unbacked.add(name)
        self._ranges[name] = (lo, math.inf)
        return SymInt(var(name, lo=lo), self)

    def may_be_negative(self, name: str) -> bool:
        """May a symbol stand for a negative number?"""
        return self._ranges[name][0] < 0

    def symint(self, expr: Index, hint: int | None = None) -> Any:
        """`expr` as a SymInt of this environment; an int when it is constant."""
        return SymInt(expr, self) if isinstance(expr, Expr) else expr

    def size_hint(self, expr: Index) -> int:
        """The value of `expr` in the example; RuntimeError for sizes that have none."""
        try:
            return self._value(expr)
        except DataDependentSize as error:
            if self.guess is None or self.supposed is not None:
                raise
            return 2 + self.guess(error)

    def _value(self, expr: Index) -> int:
        try:
            return int(evaluate(expr, self.hints))
        except KeyError as missing:
            raise DataDependentSize(
                f"the size {to_python(expr)} depends on data ({missing.args[0]} is known only when the program runs), "
                "so it can't decide a branch while the program is captured; avoid the branch, or break the graph there",
                free_variables(expr) & self.unbacked,
            ) from None

    def simplify(self, expr: Index) -> Index:
        """`expr` under the equalities learned so far."""
        expr = substitute(expr, self.replacements) if self.replacements else expr
        for gap in self.balances:
            shorter = [e for e in (expr - gap, expr + gap) if len(self._unknown_in(e)) < len(self._unknown_in(expr))]
            expr = shorter[0] if shorter else expr
        return expr

    def guarded(self, expr: Index) -> Index:
        """`expr` under the equalities that guards see to before compiled code runs: none of sizes that only a run knows."""
        held = {name: value for name, value in self.replacements.items() if {name, *free_variables(value)} <= self.hints.keys()}
        return substitute(expr, held)

    def _unknown_in(self, expr: Index) -> Set[str]:
        return free_variables(expr) & self.unbacked

    def static_value(self, relation: Relation) -> bool | None:
        """Whether `relation` holds for all sizes, for none, or (None) depends."""
        op, gap = relation.op, self.simplify(relation.left - relation.right)
        if relation in self._known:
            return self._known[relation]
        found = self._decided(op, gap)
        if found is None and self.large and (names := free_variables(gap) & self.unbacked):
            found = self._decided(op, substitute(gap, {name: var(f"{name}_", lo=2) for name in names}))
            if found is not None:
                self.taken_large |= names
        return found

    def is_signed(self, expr: Index) -> bool:
        """Whether an expression may be negative: sizes are not, numbers that a tensor holds may be."""
        return self._bounds(self.simplify(expr))[0] < 0

    def _decided(self, op: str, gap: Index) -> bool | None:
        """Whether `gap op 0`, if its bounds tell."""
        lo, hi = self._bounds(gap)
        if lo == hi:
            return _RELATIONS[op](lo, 0)
        if lo > 0 or (lo == 0 and op in (">=", "<")):
            return op in (">", ">=", "!=")
        if hi < 0 or (hi == 0 and op in ("<=", ">")):
            return op in ("<", "<=", "!=")
        return None

    def _bounds(self, expr: Index) -> tuple[float, float]:
        lo, hi = bounds(expr)
        if isinstance(expr, Expr) and len(expr.terms) <= 2:  # a*x + c: the range learned for x may be narrower
            for name in free_variables(expr):
                a = coefficient(expr, name)
                if isinstance(a, int) and a and isinstance(expr - a * var(name, lo=bounds_lo(expr, name)), int):
                    c: Any = expr - a * var(name, lo=bounds_lo(expr, name))
                    ends = [a * end + c for end in self._ranges.get(name, (-math.inf, math.inf))]
                    lo, hi = max(lo, min(ends)), min(hi, max(ends))
        if lo < 0 < hi and isinstance(expr, Expr) and any(sum(power for _, power in m) > 1 for m in expr.terms):
            lo, hi = self._bounds_of_products(expr, lo, hi)
        return lo, hi

    def _bounds_of_products(self, expr: Expr, lo: float, hi: float) -> tuple[float, float]:
        """Narrower bounds, with each size written as its least value and what it has more: n*n - n is 2 + 3*m + m*m for n = 2 + m."""
        least = {name: int(low) for name in free_variables(expr) if (low := self._ranges.get(name, (-math.inf,))[0]) > -math.inf}
        low, high = bounds(substitute(expr, {name: var(f"{name}_", lo=0) + n for name, n in least.items()}))
        return max(lo, low), min(hi, high)

    def evaluate(self, relation: Relation, reason: str = "") -> bool:
        """The truth of `relation` in the example; unless it is always so, a guard is recorded."""
        known = self.static_value(relation)
        if known is not None:
            return known
        left, right = self.simplify(relation.left), self.simplify(relation.right)
        try:
            answer = _RELATIONS[relation.op](self._value(left), self._value(right))
        except DataDependentSize as error:
            if self.supposed is not None and relation in self.supposed:
                return self.supposed[relation]
            error.asked = relation
            if self.guess is None or self.supposed is not None:
                raise
            return self.guess(error)
        held = _as_answered(Relation(relation.op, left, right), answer)
        if self.frozen:
            raise RuntimeError(f"a guard ({held.text()}) was needed after the guards of this graph had been built")
        self.guards.append(Guard(held, reason or (self.line() if self.line is not None else "")))
        self._learn(held)
        self._known[relation] = answer
        self._known[Relation(_NEGATED[relation.op], relation.left, relation.right)] = not answer
        return answer

    def pinned_if_one(self, expr: Index) -> Index:
        """`expr`, or 1 if that is its value in the example: the sizes that it is made of are then specialised."""
        names = free_variables(self.simplify(expr))
        if not names <= self.hints.keys() or self.size_hint(expr) != 1:
            return expr
        for name in sorted(names):
            self.evaluate(Relation("==", var(name, lo=bounds_lo(expr, name)), self.hints[name]), "a size made of it is 1")
        return 1

    def learn(self, held: Relation) -> None:
        """Something that the program has checked."""
        self._known[held] = True
        self._known[Relation(_NEGATED[held.op], held.left, held.right)] = False
        if len(self._unknown_in(held.left) | self._unknown_in(held.right)) < 2:
            self._learn(held)
        elif held.op == "==":
            self.balances.append(held.left - held.right)
        if self.checked is not None:
            self.checked(held)

    def _learn(self, held: Relation) -> None:
        gap = held.left - held.right
        names = sorted(free_variables(gap), reverse=True)
        for name in names:
            a = coefficient(gap, name)
            if a not in (1, -1):
                continue
            symbol = var(name, lo=bounds_lo(gap, name))
            rest = symbol - gap * a  # gap == a*symbol - a*rest, a*a == 1
            if held.op == "==":
                self.replacements = {k: substitute(v, {name: rest}) for k, v in self.replacements.items()}
                self.replacements[name] = rest
                return
            if isinstance(rest, int):
                self._narrow(name, held.op, a, rest)

    def _narrow(self, name: str, op: str, a: int, rest: int) -> None:
        lo, hi = self._ranges.get(name, (-math.inf, math.inf))
        op = op if a == 1 else {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
        if op in (">", ">="):
            lo = max(lo, rest + (op == ">"))
        elif op in ("<", "<="):
            hi = min(hi, rest - (op == "<"))
        elif op == "!=":
            lo, hi = lo + (lo == rest), hi - (hi == rest)
        self._ranges[name] = (lo, hi)

    def guard_expressions(self) -> list[str]:
        """The guards as Python expressions over the sources."""
        names = {name: found[0] for name, found in self.sources.items() if found and found[0]}
        out = [f"{other} == {found[0]}" for found in self.sources.values() for other in found[1:] if other != found[0]]
        out += [f"{self._least.get(name, 2)} <= {names[name]}" for name in self.hints if name in names]
        out += [self.text(guard.relation, names) for guard in self.guards]
        return list(dict.fromkeys(out))

    def text(self, relation: Relation, names: Mapping[str, str] | None = None) -> str:
        """`relation` as Python, symbols replaced by `names` (their sources by default)."""
        if names is None:
            names = {name: found[0] for name, found in self.sources.items() if found}
        used = free_variables(relation.left) | free_variables(relation.right)
        stand_in = {n: var(f"SYMBOL{n}END", lo=-math.inf) for n in used if n in names}
        text = Relation(relation.op, _rename(relation.left, stand_in), _rename(relation.right, stand_in)).text()
        for name in stand_in:
            text = text.replace(f"SYMBOL{name}END", names[name])
        return text

    def bind(self, shapes: Iterable[tuple[Index, int]]) -> dict[str, int]:
        """Symbol values from pairs `(expression, actual size)`, read off the bare symbols among the expressions."""
        return {to_python(expr): actual for expr, actual in shapes if is_var(expr)}


def bounds_lo(expr: Index, name: str) -> float:
    """The declared lower bound of the variable `name` inside `expr`."""
    if isinstance(expr, Expr):
        for m in expr.terms:
            for atom, _ in m:
                if atom.kind == "var" and atom.name == name:
                    return atom.lo
                for arg in atom.args:
                    if name in free_variables(arg):
                        return bounds_lo(arg, name)
    return -math.inf


def _rename(expr: Index, names: Mapping[str, Index]) -> Index:
    return substitute(expr, names)


# --- the numbers a program sees ---


def expr_of(x: Any) -> Index:
    """The expression of an int or SymInt."""
    return x.expr if isinstance(x, SymInt) else operator.index(x)


def hint_of(x: Any) -> Any:
    """The example value of an int, SymInt, SymFloat or SymBool; other values as they are."""
    return x.hint if isinstance(x, (SymInt, SymFloat, SymBool)) else x


def is_symbolic(x: Any) -> bool:
    """Whether `x` is a SymInt, SymFloat or SymBool."""
    return isinstance(x, (SymInt, SymFloat, SymBool))


def _arithmetic(on_int: Callable[[Index, Index], Index], on_float: str) -> tuple[Any, Any]:
    """An operator of SymInt and its reflected form; beside a float the result is a SymFloat."""
    def forward(self: SymInt, other: Any) -> Any:
        return self._with(other, on_int, on_float)

    def reflected(self: SymInt, other: Any) -> Any:
        if isinstance(other, float):
            return SymFloat.make(on_float, other, self)
        return self._with(other, lambda a, b: on_int(b, a), on_float)

    return forward, reflected


def _comparison(op: str) -> Any:
    return lambda self, other: self._relation(op, other)


class SymInt:
    """An integer known by its expression. Arithmetic stays symbolic; a comparison used as a branch records a guard.

    `int(n)`, `range(n)` and the like specialise: they guard that the size is the example's.
    """

    __slots__ = ("env", "expr")

    def __init__(self, expr: Expr, env: ShapeEnv):
        self.expr, self.env = expr, env

    @property
    def hint(self) -> int:
        """The value in the example; RuntimeError when it depends on data."""
        return self.env.size_hint(self.expr)

    @property
    def guarded(self) -> Index:
        """The expression under what the guards say of sizes: what they make equal is the same."""
        return self.env.guarded(self.expr) if self.env.replacements else self.expr

    def _with(self, other: Any, on_int: Callable[[Index, Index], Index], on_float: str) -> Any:
        if isinstance(other, SymInt):
            return self.env.symint(on_int(self.expr, other.expr))
        if isinstance(other, int):
            return self.env.symint(on_int(self.expr, int(other)))
        if isinstance(other, (float, SymFloat)):
            return SymFloat.make(on_float, self, other)
        return NotImplemented

    __add__, __radd__ = _arithmetic(operator.add, "+")
    __sub__, __rsub__ = _arithmetic(operator.sub, "-")
    __mul__, __rmul__ = _arithmetic(operator.mul, "*")
    __floordiv__, __rfloordiv__ = _arithmetic(floordiv, "//")
    __mod__, __rmod__ = _arithmetic(modulo, "%")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __truediv__(self, other: Any) -> Any:
        return SymFloat.make("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return SymFloat.make("/", other, self)

    def __pow__(self, power: Any) -> Any:
        if isinstance(power, int) and power >= 0:
            return self.env.symint(self.expr**power)
        return SymFloat.make("**", self, power)

    def __rpow__(self, base: Any) -> Any:
        return SymFloat.make("**", base, self) if isinstance(base, float) else base ** int(self)

    def __neg__(self) -> Any:
        return self.env.symint(-self.expr)

    def __pos__(self) -> SymInt:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def _relation(self, op: str, other: Any) -> Any:
        if isinstance(other, SymInt):
            return SymBool.make(Relation(op, self.expr, other.expr), self.env)
        if isinstance(other, int):
            return SymBool.make(Relation(op, self.expr, int(other)), self.env)
        if isinstance(other, (float, SymFloat)):
            return _RELATIONS[op](float(self), float(other))
        return NotImplemented

    __eq__, __ne__, __lt__, __le__, __gt__, __ge__ = map(_comparison, ("==", "!=", "<", "<=", ">", ">="))

    def __bool__(self) -> bool:
        return self.env.evaluate(Relation("!=", self.expr, 0))

    def __index__(self) -> int:
        value = self.hint
        self.env.evaluate(Relation("==", self.expr, value), "the size was used as a Python int")
        return value

    __int__ = __round__ = __index__

    def __floor__(self) -> SymInt:
        return self

    __ceil__ = __trunc__ = __floor__

    def __float__(self) -> float:
        return float(int(self))

    def __hash__(self) -> int:
        raise TypeError("unhashable type: non-nested SymInt; use int(size) to specialise it, or size.expr as a key")

    def __reduce__(self) -> tuple:
        return SymInt, (self.expr, self.env)

    def __copy__(self) -> SymInt:
        return self

    def __deepcopy__(self, memo: dict) -> SymInt:
        return self

    def __repr__(self) -> str:
        return to_python(self.expr)

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


class SymBool:
    """A comparison of symbolic sizes; using it as a branch (`bool`) records a guard."""

    __slots__ = ("env", "relation")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, relation: Relation, env: ShapeEnv):
        self.relation, self.env = relation, env

    @staticmethod
    def make(relation: Relation, env: ShapeEnv) -> SymBool | bool:
        known = env.static_value(relation)
        return SymBool(relation, env) if known is None else known

    @property
    def hint(self) -> bool:
        """The truth in the example."""
        op, left, right = self.relation
        return _RELATIONS[op](self.env.size_hint(left), self.env.size_hint(right))

    def __bool__(self) -> bool:
        return self.env.evaluate(self.relation)

    def __invert__(self) -> SymBool:
        op, left, right = self.relation
        return SymBool(Relation(_NEGATED[op], left, right), self.env)

    def __and__(self, other: Any) -> bool:
        return bool(self) and bool(other)

    def __or__(self, other: Any) -> bool:
        return bool(self) or bool(other)

    __rand__, __ror__ = __and__, __or__

    def __eq__(self, other: Any) -> bool:
        return bool(self) == bool(other)

    def __repr__(self) -> str:
        return self.relation.text()


_FLOAT_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow,
}


class DataDependentFloat(RuntimeError):
    """A float known only when the program runs was used as a Python float; `args[0]` is its name."""


class SymFloat:
    """A float computed from symbolic sizes (`1 / n`, `n ** -0.5`): a tree of `(op, left, right)`.

    `variable` makes a leaf, a number known only when the program runs (a learning rate). Where it has an example value, comparisons
    of it are answered by that, and guarded.
    """

    __slots__ = ("env", "left", "op", "right")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, op: str, left: Any, right: Any, env: ShapeEnv):
        self.op, self.left, self.right, self.env = op, left, right, env

    @staticmethod
    def make(op: str, left: Any, right: Any) -> Any:
        if not all(isinstance(x, (int, float, SymInt, SymFloat)) for x in (left, right)):
            return NotImplemented
        env = left.env if isinstance(left, (SymInt, SymFloat)) else right.env
        return SymFloat(op, left, right, env)

    @staticmethod
    def variable(name: str, env: ShapeEnv, hint: float | None = None) -> SymFloat:
        """A float that the program is given; using it as a Python float raises `DataDependentFloat`."""
        return SymFloat("variable", name, hint, env)

    @property
    def variables(self) -> frozenset[str]:
        """The names of the sizes and variables in the expression."""
        if self.op == "variable":
            return frozenset((self.left,))
        found: frozenset[str] = frozenset()
        for part in (self.left, self.right):
            if isinstance(part, SymFloat):
                found |= part.variables
            elif isinstance(part, SymInt):
                found |= free_variables(part.expr)
        return found

    @property
    def guarded(self) -> SymFloat:
        """The same of what the guards say of sizes, as `SymInt.guarded`."""
        if self.op == "variable" or not self.env.replacements:
            return self

        def part(x: Any) -> Any:
            return self.env.symint(x.guarded) if isinstance(x, SymInt) else x.guarded if isinstance(x, SymFloat) else x
        return SymFloat(self.op, part(self.left), part(self.right), self.env)

    @property
    def given(self) -> list[str]:
        """The floats that the program is given, of which it is computed."""
        return sorted(name for name in self.variables if name[0] == "f")

    @property
    def hint(self) -> float:
        """The value in the example."""
        if self.op == "variable":
            if self.right is None:
                raise DataDependentFloat(self.left)
            return float(self.right)
        return float(_FLOAT_OPS[self.op](hint_of(self.left), hint_of(self.right)))

    def value(self, values: Mapping[str, int]) -> float:
        """The value for given symbols."""
        def number(x: Any) -> Any:
            if isinstance(x, SymInt):
                return evaluate(x.expr, values)
            return x.value(values) if isinstance(x, SymFloat) else x
        if self.op == "variable":
            return float(values[self.left])
        return float(_FLOAT_OPS[self.op](number(self.left), number(self.right)))

    def to_cpp(self) -> str:
        """The value as a C++ expression of type double."""
        if self.op == "variable":
            return self.left
        def text(x: Any) -> str:
            if isinstance(x, SymInt):
                return f"double({to_cpp(x.expr)})"
            return x.to_cpp() if isinstance(x, SymFloat) else f"double({x!r})"
        a, b = text(self.left), text(self.right)
        calls = {"//": f"__builtin_floor({a} / {b})", "%": f"fl::remainder({a}, {b})", "**": f"__builtin_pow({a}, {b})"}
        return calls.get(self.op) or f"({a} {self.op} {b})"

    def __float__(self) -> float:
        """Specialises: every size in the expression is guarded to be the example's."""
        if self.op == "variable":
            error = DataDependentFloat(self.left)
            if self.env.guess is None:
                raise error
            return 2.0 + self.env.guess(error)
        return float(_FLOAT_OPS[self.op](_specialise(self.left), _specialise(self.right)))

    def __int__(self) -> int:
        return int(float(self))

    __trunc__ = __int__

    def __floor__(self) -> Any:
        found = _fraction(self)
        return math.floor(float(self)) if found is None else found[0] // found[1]

    def __ceil__(self) -> Any:
        found = _fraction(self)
        return math.ceil(float(self)) if found is None else -(-found[0] // found[1])

    def __bool__(self) -> bool:
        return _compare("!=", self, 0.0)

    def __neg__(self) -> Any:
        return SymFloat.make("*", -1.0, self)

    def __repr__(self) -> str:
        return self.left if self.op == "variable" else f"({self.left} {self.op} {self.right})"


def _fraction(x: Any) -> tuple[Any, int] | None:
    """`(n, d)` with `x == n / d`, where computing x in doubles rounds at most in one division of whole numbers, which the floor
    does not notice; None if there are other roundings."""
    if isinstance(x, float):
        return found if math.isfinite(x) and (found := x.as_integer_ratio())[1] <= 1 << 20 else None
    if not isinstance(x, SymFloat):
        return x, 1
    parts = [_fraction(part) for part in (x.left, x.right)] if x.op in ("+", "-", "*", "/") else []
    if not parts or any(part is None or part[1] & (part[1] - 1) for part in parts):
        return None
    (n, d), (m, e) = parts    # type: ignore[misc]
    if x.op == "/":
        return (n * e, d * m) if type(m) is int and m > 0 else None
    return (n * m if x.op == "*" else _FLOAT_OPS[x.op](n * e, m * d)), d * e


def is_exact(x: SymFloat) -> bool:
    """Is a number a quotient of sizes and whole numbers, so that its whole part is theirs?"""
    return _fraction(x) is not None


def names_in(x: SymInt | SymFloat) -> frozenset[str]:
    """The symbols that a number is computed of."""
    return x.variables if isinstance(x, SymFloat) else free_variables(x.expr)


def _specialise(x: Any) -> Any:
    if isinstance(x, SymInt):
        return int(x)
    return float(x) if isinstance(x, SymFloat) else x


_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {symbol: getattr(operator, name) for name, symbol in _COMPARED.items()}


def _compare(op: str, left: SymFloat, right: Any) -> Any:
    """A comparison: of floats that the program is given by their examples, which becomes a guard; of sizes by specialising."""
    if not isinstance(right, (int, float, SymInt, SymFloat)):
        return NotImplemented
    given = [name for x in (left, right) if isinstance(x, SymFloat) for name in x.given]
    if not given:
        return _COMPARISONS[op](float(left), float(right))
    text, env = f"{left!r} {op} {right!r}", left.env
    if text not in env.float_guards:
        try:
            answer = _COMPARISONS[op](left.hint, hint_of(right))
        except DataDependentFloat as error:
            if env.guess is None:
                raise
            return env.guess(error)
        if env.floats_frozen:
            raise DataDependentFloat(given[0])
        env.float_guards[text] = left, op, right, answer
    return env.float_guards[text][3]


def _install_float_operators() -> None:
    names = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow"}
    for op, name in names.items():
        setattr(SymFloat, f"__{name}__", lambda self, other, op=op: SymFloat.make(op, self, other))
        setattr(SymFloat, f"__r{name}__", lambda self, other, op=op: SymFloat.make(op, other, self))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(SymFloat, f"__{name}__", lambda self, other, name=name: _compare(_COMPARED[name], self, other))


_install_float_operators()


def _extreme(symbolic: Callable[..., Index], plain: Callable[..., Any], args: tuple) -> Any:
    env = next((a.env for a in args if isinstance(a, SymInt)), None)
    if env is None or any(isinstance(a, (float, SymFloat)) for a in args):
        found = plain(args)
        return sym_float(found) if any(isinstance(a, (float, SymFloat)) for a in args) else found
    return env.symint(symbolic(*(expr_of(a) for a in args)))


def sym_max(a: Any, *rest: Any) -> Any:
    """max without a guard: symbolic when an argument is."""
    return _extreme(maximum, max, (a, *rest))


def sym_min(a: Any, *rest: Any) -> Any:
    """min without a guard: symbolic when an argument is."""
    return _extreme(minimum, min, (a, *rest))


def sym_not(a: Any) -> Any:
    """`not a` without a guard."""
    return ~a if isinstance(a, SymBool) else not a


def sym_int(a: Any) -> Any:
    """int(a); a symbolic integer stays one, and a quotient of sizes becomes one."""
    found = _fraction(a) if isinstance(a, SymFloat) else None
    if found is not None and known_nonnegative(expr_of(found[0])):
        return found[0] // found[1]
    return a if isinstance(a, SymInt) else int(a)


def refuse_text(x: Any) -> None:
    """TypeError for text, which float() and int() would read as a number."""
    if isinstance(x, (str, bytes)):
        raise TypeError(f"must be a number, not {type(x).__name__} ({x!r})")


def sym_float(a: Any) -> Any:
    """float(a); a symbolic number stays one."""
    refuse_text(a)
    return a if isinstance(a, SymFloat) else a * 1.0 if isinstance(a, SymInt) else float(a)


def sym_sum(args: Any) -> Any:
    """The sum of a sequence of numbers."""
    return sum(args)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b else f, which are of one type."""
    if not isinstance(b, (bool, SymBool)) or type(t) is not type(f):
        raise AssertionError(f"sym_ite: expected a bool and two values of one type, got {type(b)}, {type(t)} and {type(f)}")
    return t if b else f


def sym_sqrt(x: Any) -> Any:
    """The square root as a float."""
    return sym_float(x) ** 0.5
