"""Symbolic integer expressions: sizes and loop indices.

`Expr` is a canonical polynomial with integer coefficients over atoms: variables, floor divisions, modulos, maxima and
minima (no SymPy: its import alone costs more than a warm start). Expressions are hash-consed: equal ones are the same
object and `is`/`==` are the same question. A constant is a
plain `int`, never an `Expr`: `Index = int | Expr` works with Python's operators alone, and static shapes cost nothing.

Variables carry bounds (`0 <= i < size`), and division uses them: `(i*C + c) // C` is `i` where `0 <= c < C` can be
shown.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Union

Monomial = tuple["tuple[Atom, int]", ...]  # (atom, power), ordered by the atoms' creation
Index = Union[int, "Expr"]
_INF = math.inf


class Atom:
    """What polynomials are made of: `kind` is var, floordiv, mod, max or min; interned by kind and contents."""

    __slots__ = ("__weakref__", "args", "hi", "kind", "lo", "name", "size", "uid")
    _table: weakref.WeakValueDictionary[tuple, Atom] = weakref.WeakValueDictionary()
    _count = 0

    def __init__(self, kind: str, name: str, args: tuple[Index, ...], lo: float, hi: float, size: Index | None):
        self.kind, self.name, self.args, self.lo, self.hi, self.size = kind, name, args, lo, hi, size
        Atom._count += 1
        self.uid = Atom._count

    @classmethod
    def make(cls, kind: str, name: str = "", args: tuple[Index, ...] = (), lo: float = -_INF, hi: float = _INF,
             size: Index | None = None) -> Atom:
        key = (kind, name, args, lo, hi, size) if kind == "var" else (kind, args)
        found = cls._table.get(key)
        if found is None:
            found = cls._table[key] = cls(kind, name, args, lo, hi, size)
        return found

    def __repr__(self) -> str:
        return self.name or f"{self.kind}{self.args}"


class Expr:
    """A polynomial that is not a constant. Build with `var`, Python's operators, `minimum` and `maximum`."""

    __slots__ = ("__weakref__", "_bounds", "_free", "_text", "terms")

    terms: dict[Monomial, int]
    _bounds: Any
    _text: Any
    _free: Any

    def __add__(self, other: Index) -> Index:
        if other.__class__ is int:
            if other == 0:
                return self
            terms = self.terms.copy()
            terms[()] = terms.get((), 0) + other
            if not terms[()]:
                del terms[()]
            return _intern(terms)
        if not isinstance(other, (int, Expr)):
            return NotImplemented
        return _build(_sum(self.terms, _terms(other), 1))

    __radd__ = __add__

    def __sub__(self, other: Index) -> Index:
        if not isinstance(other, (int, Expr)):
            return NotImplemented
        return 0 if other is self else _build(_sum(self.terms, _terms(other), -1))

    def __rsub__(self, other: Index) -> Index:
        return -self + other

    def __neg__(self) -> Index:
        return _intern({m: -c for m, c in self.terms.items()})

    def __mul__(self, other: Index) -> Index:
        if other.__class__ is int:
            if other == 0:
                return 0
            return self if other == 1 else _intern({m: c * other for m, c in self.terms.items()})
        if not isinstance(other, (int, Expr)):
            return NotImplemented
        out: dict[Monomial, int] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in _terms(other).items():
                m = _product(m1, m2)
                out[m] = out.get(m, 0) + c1 * c2
        return _build({m: c for m, c in out.items() if c})

    __rmul__ = __mul__

    def __floordiv__(self, other: Index) -> Index:
        return floordiv(self, other) if isinstance(other, (int, Expr)) else NotImplemented

    def __rfloordiv__(self, other: Index) -> Index:
        return floordiv(other, self)

    def __mod__(self, other: Index) -> Index:
        return modulo(self, other) if isinstance(other, (int, Expr)) else NotImplemented

    def __rmod__(self, other: Index) -> Index:
        return modulo(other, self)

    def __pow__(self, power: int) -> Index:
        result: Index = 1
        for _ in range(power):
            result = result * self
        return result

    def __reduce__(self) -> tuple:
        return _rebuild, (tuple((tuple((_pack(a), p) for a, p in m), c) for m, c in self.terms.items()),)

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: dict) -> Expr:
        return self

    def __repr__(self) -> str:
        return to_python(self)


def _pack(atom: Atom) -> tuple:
    return atom.kind, atom.name, atom.args, atom.lo, atom.hi, atom.size


def _rebuild(packed: tuple) -> Expr:
    return _intern({tuple((Atom.make(*a), p) for a, p in m): c for m, c in packed})  # type: ignore[return-value]


def _intern(terms: dict[Monomial, int]) -> Index:
    """The expression of canonical, non-empty terms; a lone constant becomes an int."""
    if len(terms) <= 1:
        if not terms:
            return 0
        if () in terms:
            return terms[()]
    key = frozenset(terms.items())
    found = _young.get(key)
    if found is None:
        found = old() if (old := _old.get(key)) is not None else None
        if found is None:
            found = Expr.__new__(Expr)
            found.terms, found._bounds, found._text, found._free = terms, None, None, None
        _young[key] = found
        if len(_young) > YOUNG:
            _age()
    return found


# The expressions that there are, by their terms. Most die young and are asked for again at once: the last ones are held, the others
# known while somebody has them.
YOUNG = 4096
_young: dict[frozenset, Expr] = {}
_old: dict[frozenset, weakref.ref[Expr]] = {}


def _age() -> None:
    """Let go of the young ones that nobody has."""
    for key, expr in list(_young.items()):
        _old[key] = weakref.ref(expr)
    _young.clear()
    del expr
    for key in [key for key, known in _old.items() if known() is None]:
        del _old[key]


def _build(terms: dict[Monomial, int]) -> Index:
    """Like `_intern`, after joining `b*(x//b) + x%b` into `x`."""
    for m in terms:
        if len(m) == 1 and m[0][1] == 1 and m[0][0].kind == "mod":
            x, b = m[0][0].args
            quotient = floordiv(x, b) * b
            c = terms[m]
            if isinstance(quotient, Expr) and all(terms.get(k) == c * v for k, v in quotient.terms.items()):
                rest = {k: v for k, v in terms.items() if k is not m and k not in quotient.terms}
                return _build(_sum(rest, _terms(x), c))
    return _intern(terms)


def _terms(x: Index) -> dict[Monomial, int]:
    return x.terms if isinstance(x, Expr) else ({(): x} if x else {})


def _sum(a: dict[Monomial, int], b: dict[Monomial, int], sign: int) -> dict[Monomial, int]:
    out = a.copy()
    for m, c in b.items():
        total = out.get(m, 0) + sign * c
        if total:
            out[m] = total
        else:
            out.pop(m, None)
    return out


def _product(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].uid))


def _of_atom(atom: Atom) -> Index:
    return _intern({((atom, 1),): 1})


def var(name: str, lo: float = 0, hi: float = _INF, size: Index | None = None) -> Expr:
    """The variable `name` with `lo <= name <= hi`; with `size`, `0 <= name < size` (size may be symbolic)."""
    if size is not None:
        hi = bounds(size)[1] - 1
    return _of_atom(Atom.make("var", name, (), lo, hi, size))  # type: ignore[return-value]


def is_var(x: Index) -> bool:
    """Whether `x` is a bare variable."""
    return isinstance(x, Expr) and single_atom(x) is not None and single_atom(x).kind == "var"  # type: ignore


def single_atom(x: Index) -> Atom | None:
    """The atom `x` consists of, or None."""
    if isinstance(x, Expr) and len(x.terms) == 1:
        (m, c), = x.terms.items()
        if c == 1 and len(m) == 1 and m[0][1] == 1:
            return m[0][0]
    return None


# --- bounds ---


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def bounds(x: Index) -> tuple[float, float]:
    """Numbers `(lo, hi)`, possibly infinite, with `lo <= x <= hi` for all values of its variables."""
    if not isinstance(x, Expr):
        return x, x
    if x._bounds is None:
        lo: float = 0
        hi: float = 0
        for m, c in x.terms.items():
            a, b = _monomial_bounds(m)
            lo, hi = (lo + _times(a, c), hi + _times(b, c)) if c > 0 else (lo + _times(b, c), hi + _times(a, c))
        x._bounds = (lo, hi)
    return x._bounds


def _monomial_bounds(m: Monomial) -> tuple[float, float]:
    lo: float = 1
    hi: float = 1
    for atom, power in m:
        for _ in range(power):
            corners = [_times(p, q) for p in (lo, hi) for q in (atom.lo, atom.hi)]
            lo, hi = min(corners), max(corners)
    return lo, hi


def known_nonnegative(x: Index) -> bool:
    """Whether `x >= 0` can be shown. A loop variable of symbolic size lies between 0 and size - 1, so the size is positive."""
    if bounds(x)[0] >= 0:
        return True
    loops = {a: a.size for m in _terms(x) for a, _ in m if isinstance(a.size, Expr)}
    sizes = tuple(dict.fromkeys(loops.values()))
    for atom, size in loops.items():
        step = coefficient(x, atom.name)
        if step is not None and _is_sum_over(step, sizes):
            x = x - step * _of_atom(atom)
        elif step is not None and _is_sum_over(-step, sizes):
            x = x - step * (_of_atom(atom) + 1 - size)
    return bool(loops) and _is_sum_over(x, sizes)


@functools.lru_cache(maxsize=1 << 14)
def _is_sum_over(x: Index, sizes: tuple[Expr, ...]) -> bool:
    """Whether `x` can be written as a sum of what isn't negative, if positive `sizes` times such sums aren't."""
    if bounds(x)[0] >= 0:
        return True
    parts = (_long_division(x, size) for size in sizes if isinstance(x, Expr))
    return any((q.__class__ is not int or q != 0) and _is_sum_over(q, sizes) and _is_sum_over(r, sizes) for q, r in parts)


def known_less(x: Index, y: Index) -> bool:
    """Whether `x < y` can be shown."""
    return bounds(x)[1] < bounds(y)[0] or known_nonnegative(y - 1 - x)


def known_positive(x: Index) -> bool:
    """Whether `x >= 1` can be shown."""
    return bounds(x)[0] >= 1


# --- division, modulo, extremes ---


def _divisible(x: Index, b: Index) -> tuple[Index, Index]:
    """`(q, r)` with `x == q*b + r`, where q collects the terms of x that b (an int or a single term) divides; another b's
    remainder is zero or at least shown to be not negative, else all of x."""
    if isinstance(b, Expr) and len(b.terms) != 1:
        whole, rest = _long_division(x, b)
        return (whole, rest) if known_nonnegative(rest) else (0, x)
    (bm, bc), = _terms(b).items()
    q: dict[Monomial, int] = {}
    r: dict[Monomial, int] = {}
    for m, c in _terms(x).items():
        left = _quotient(m, bm) if bm else m
        if left is not None and c % bc == 0:
            q[left] = c // bc
        else:
            r[m] = c
    if not bm and () in r:  # a constant splits: 7 = 1*4 + 3
        whole, part = divmod(r.pop(()), bc)
        if whole:
            q[()] = q.get((), 0) + whole
        if part:
            r[()] = part
    return _build(q), _build(r)


def _long_division(x: Index, b: Expr) -> tuple[Index, Index]:
    """`(q, r)` with `x == q*b + r`, no term of r being a multiple of b's leading one."""
    lead = max(b.terms, key=_rank)
    q: dict[Monomial, int] = {}
    r = _terms(x)
    while True:
        hit = next(((m, rest) for m in r if r[m] % b.terms[lead] == 0 and (rest := _quotient(m, lead)) is not None), None)
        if hit is None:
            return _build(q), _build(r)
        m, rest = hit
        q[rest] = q.get(rest, 0) + r[m] // b.terms[lead]
        r = _sum(r, {_product(rest, k): c * (r[m] // b.terms[lead]) for k, c in b.terms.items()}, -1)


def _rank(m: Monomial) -> tuple:
    """The order of monomials: by degree, then by their atoms. A multiple comes after what it is a multiple of."""
    return sum(power for _, power in m), sorted(((atom.uid, power) for atom, power in m), reverse=True)


def _quotient(m: Monomial, d: Monomial) -> Monomial | None:
    powers = dict(m)
    for atom, power in d:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((a, p) for a, p in powers.items() if p)


@functools.lru_cache(maxsize=1 << 14)
def floordiv(x: Index, b: Index) -> Index:
    """`x // b`, rounded down."""
    if b.__class__ is int:
        if b == 0:
            raise ZeroDivisionError(f"{x} // 0")
        if x.__class__ is int:
            return x // b
        if b == 1:
            return x
        if b < 0:
            return floordiv(-x, -b)
    if x.__class__ is int and x == 0:
        return 0
    q, r = _divisible(x, b)
    if r.__class__ is int and r == 0:
        return q
    if known_nonnegative(r) and known_less(r, b):
        return q
    return q + _floordiv_rest(r, b)


def _floordiv_rest(x: Index, b: Index) -> Index:
    if isinstance(b, int) and isinstance(x, Expr):
        constant = x.terms.get((), 0)
        g = math.gcd(b, *(c for m, c in x.terms.items() if m))
        if g > 1:
            small = _intern({m: c // g for m, c in x.terms.items() if m}) + constant // g
            return floordiv(small, b // g)
        coarse = _coarse_part(x, b)
        if coarse is not None:
            return floordiv(coarse[0], b // coarse[1])
        inner = single_atom(x - constant)
        if inner is not None and isinstance(inner.args[-1] if inner.args else None, int):
            base, c = inner.args
            if inner.kind == "floordiv":
                return floordiv(base + constant * c, c * b)
            if inner.kind == "mod" and not constant and c % b == 0:
                return modulo(floordiv(base, b), c // b)
    (xlo, xhi), (blo, bhi) = bounds(x), bounds(b)
    lo, hi = -_INF, _INF
    if blo >= 1:
        lo = _floor(xlo / (blo if xlo < 0 else bhi)) if abs(xlo) != _INF else -_INF
        hi = _floor(xhi / (blo if xhi > 0 else bhi)) if abs(xhi) != _INF else _INF
    return _of_atom(Atom.make("floordiv", "", (x, b), lo, hi))


def _coarse_part(x: Expr, b: int) -> tuple[Index, int, Index] | None:
    """`(a, g, r)` with `x == a*g + r`, g > 1 a divisor of b and `0 <= r < g`: r plays no part in dividing by b."""
    steps = sorted({math.gcd(b, c) for m, c in x.terms.items() if m}, reverse=True)
    for g in steps:
        if g == 1:
            break
        a, r = _divisible(x, g)
        if isinstance(a, Expr) and known_nonnegative(r) and known_less(r, g):
            return a, g, r
    return None


def _floor(x: float) -> float:
    return math.floor(x) if abs(x) != _INF else x


@functools.lru_cache(maxsize=1 << 14)
def modulo(x: Index, b: Index) -> Index:
    """`x % b`, with the sign of `b` as in Python."""
    if b.__class__ is int:
        if b == 0:
            raise ZeroDivisionError(f"{x} % 0")
        if x.__class__ is int:
            return x % b
        if b == 1:
            return 0
    _, r = _divisible(x, b)
    if r.__class__ is int and r == 0:
        return 0
    if known_nonnegative(r) and known_less(r, b):
        return r
    if isinstance(b, int) and isinstance(r, Expr):
        constant = r.terms.get((), 0)
        g = math.gcd(b, *r.terms.values())
        if g > 1:
            return modulo(_intern({m: c // g for m, c in r.terms.items()}), b // g) * g
        coarse = _coarse_part(r, b)
        if coarse is not None:
            return modulo(coarse[0], b // coarse[1]) * coarse[1] + coarse[2]
        inner = single_atom(r - constant)
        if inner is not None and inner.kind == "mod" and isinstance(inner.args[1], int) and inner.args[1] % b == 0:
            return modulo(inner.args[0] + constant, b)
    lo, hi = (0, bounds(b)[1] - 1) if known_positive(b) else (-_INF, _INF)
    if known_nonnegative(r):
        hi = min(hi, bounds(r)[1])
    return _of_atom(Atom.make("mod", "", (r, b), lo, hi))


def _extreme(kind: str, args: Iterable[Index]) -> Index:
    better = max if kind == "max" else min
    flat: list[Index] = []
    constant: int | None = None
    for arg in args:
        atom = single_atom(arg)
        for part in atom.args if atom is not None and atom.kind == kind else (arg,):
            if isinstance(part, int):
                constant = part if constant is None else better(constant, part)
            elif part not in flat:
                flat.append(part)
    if constant is not None:
        flat.append(constant)
    kept = [x for x in flat if not any(y is not x and _dominates(kind, y, x) for y in flat)] or flat[:1]
    if len(kept) == 1:
        return kept[0]
    lows, highs = (list(ends) for ends in zip(*(bounds(x) for x in kept), strict=True))
    if any(-x in kept for x in kept):   # an absolute value
        (lows if kind == "max" else highs).append(0)
    return _of_atom(Atom.make(kind, "", tuple(kept), better(lows), better(highs)))


def _dominates(kind: str, y: Index, x: Index) -> bool:
    return known_less(x, y) if kind == "max" else known_less(y, x)


def maximum(*args: Index) -> Index:
    """The largest of `args`."""
    return _extreme("max", args)


def minimum(*args: Index) -> Index:
    """The smallest of `args`."""
    return _extreme("min", args)


# --- walking ---


def free_variables(x: Index) -> frozenset[str]:
    """The names of the variables in `x`."""
    if not isinstance(x, Expr):
        return frozenset()
    if x._free is None:
        names: set[str] = set()
        for m in x.terms:
            for atom, _ in m:
                if atom.kind == "var":
                    names.add(atom.name)
                for arg in atom.args:
                    names |= free_variables(arg)
        x._free = frozenset(names)
    return x._free


_REBUILD: dict[str, Callable[..., Index]] = {
    "floordiv": floordiv, "mod": modulo, "max": maximum, "min": minimum,
}


def substitute(x: Index, values: Mapping[str, Index]) -> Index:
    """`x` with variables replaced by name, simplified anew."""
    if not isinstance(x, Expr) or free_variables(x).isdisjoint(values):
        return x
    out: Index = 0
    for m, c in x.terms.items():
        term: Index = c
        for atom, power in m:
            if atom.kind == "var":
                new = values.get(atom.name)
                new = _of_atom(atom) if new is None else new
            elif all(free_variables(a).isdisjoint(values) for a in atom.args):
                new = _of_atom(atom)
            else:
                new = _REBUILD[atom.kind](*(substitute(a, values) for a in atom.args))
            term = term * (new if power == 1 else new**power)
        out = out + term
    return out


def evaluate(x: Index, values: Mapping[str, Any]) -> Any:
    """The value of `x`; `values` maps variable names to ints or to NumPy arrays of ints."""
    if not isinstance(x, Expr):
        return x
    total: Any = 0
    for m, c in x.terms.items():
        term: Any = c
        for atom, power in m:
            term = term * _atom_value(atom, values) ** power
        total = total + term
    return total


def _atom_value(atom: Atom, values: Mapping[str, Any]) -> Any:
    if atom.kind == "var":
        return values[atom.name]
    args = [evaluate(a, values) for a in atom.args]
    if atom.kind == "floordiv":
        return args[0] // args[1]
    if atom.kind == "mod":
        return args[0] % args[1]
    best = args[0]
    for arg in args[1:]:  # (a + b ± |a - b|) / 2 holds for numbers and arrays alike
        gap = abs(best - arg)
        best = (best + arg + (gap if atom.kind == "max" else -gap)) // 2
    return best


def coefficient(x: Index, name: str) -> Index | None:
    """`c` where `x == c*name + rest`, neither c nor rest mentioning `name`; 0 if absent, None if x isn't linear."""
    if not isinstance(x, Expr) or name not in free_variables(x):
        return 0
    out: Index = 0
    for m, c in x.terms.items():
        mine = [(a, p) for a, p in m if a.kind == "var" and a.name == name]
        others = tuple((a, p) for a, p in m if not (a.kind == "var" and a.name == name))
        if any(name in free_variables(arg) for a, _ in others for arg in a.args) or (mine and mine[0][1] > 1):
            return None
        if mine:
            out = out + _intern({others: c})
    return out


# --- printing ---


def to_python(x: Index) -> str:
    """`x` as Python source."""
    if not isinstance(x, Expr):
        return str(x)
    if x._text is None:
        x._text = _print(x, _python_atom)
    return x._text


def to_tuple(items: Iterable[Index]) -> str:
    """A tuple of them as Python source."""
    return f"({''.join(f'{to_python(x)}, ' for x in items)})"


def to_cpp(x: Index) -> str:
    """`x` as C++ source over int64_t variables."""
    return _print(x, _cpp_atom) if isinstance(x, Expr) else f"{x}L" if abs(x) > 2**31 - 1 else str(x)


def to_triton(x: Index) -> str:
    """`x` as Triton's Python, whose integers are divided towards zero: `quotient` and `rest` stand for what may be negative."""
    return _print(x, _triton_atom) if isinstance(x, Expr) else str(x)


def _triton_atom(a: Atom) -> str:
    if a.kind == "var":
        return a.name
    args = [to_triton(x) for x in a.args]
    if a.kind not in ("max", "min") and (bounds(a.args[0])[0] < 0 or bounds(a.args[1])[0] < 0):
        return f"{'quotient' if a.kind == 'floordiv' else 'rest'}({', '.join(args)})"
    return _in_python(a, args)


def _print(x: Expr, atom_text: Callable[[Atom], str]) -> str:
    parts: list[tuple[tuple, str, int]] = []
    for m, c in x.terms.items():
        factors = sorted(text for a, p in m for text in [atom_text(a)] * p)
        parts.append(((not m, factors), "*".join(factors), c))
    parts.sort(key=lambda part: part[0])
    out = ""
    for _, text, c in parts:
        sign = (" - " if c < 0 else " + ") if out else ("-" if c < 0 else "")
        magnitude = abs(c)
        out += sign + (text if magnitude == 1 and text else f"{magnitude}*{text}" if text else str(magnitude))
    return out


def _group(text: str) -> str:
    return text if text.isalnum() else f"({text})"


def _python_atom(a: Atom) -> str:
    if a.kind == "var":
        return a.name
    return _in_python(a, [to_python(x) for x in a.args])


def _in_python(a: Atom, args: Sequence[str]) -> str:
    if a.kind in ("max", "min"):
        return f"{a.kind}({', '.join(args)})"
    return f"({_group(args[0])} {'//' if a.kind == 'floordiv' else '%'} {_group(args[1])})"


def _cpp_atom(a: Atom) -> str:
    if a.kind == "var":
        return a.name
    args = [to_cpp(x) for x in a.args]
    if a.kind in ("max", "min"):
        text = args[0]
        for arg in args[1:]:
            text = f"fl::{a.kind}imum<int64_t>({text}, {arg})"
        return text
    if known_nonnegative(a.args[0]) and known_positive(a.args[1]):
        return f"({_group(args[0])} {'/' if a.kind == 'floordiv' else '%'} {_group(args[1])})"
    return f"fl::{'floordiv' if a.kind == 'floordiv' else 'remainder'}<int64_t>({', '.join(args)})"
