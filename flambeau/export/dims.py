"""Which sizes of an exported program vary: `Dim`, and what `dynamic_shapes` makes of it."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..aot.trace import asserts, user_stack
from ..core.expr import Index, coefficient, evaluate, free_variables, to_python, var
from ..core.symbolic import Relation, ShapeEnv, SymInt, bounds_lo
from ..core.tensor import Tensor
from ..dynamo.exceptions import UserError, UserErrorType
from ..utils._pytree import SUPPORTED_NODES, _node_type, keystr, tree_flatten_with_path, tree_leaves, tree_map


class DimHint:
    """`Dim.AUTO`, `Dim.DYNAMIC` or `Dim.STATIC`: what to find out of a size. Called, one with bounds."""

    def __init__(self, kind: str, min: int | None = None, max: int | None = None) -> None:
        self.kind, self.min, self.max = kind, min, max

    def __call__(self, min: int | None = None, max: int | None = None) -> DimHint:
        if min is not None and max is not None and min > max:
            raise AssertionError(f"Cannot create a dimension with inconsistent min={min}, max={max}")
        return DimHint(self.kind, min, max)

    def __repr__(self) -> str:
        bounds = "".join(f", {name}={value}" for name, value in (("min", self.min), ("max", self.max)) if value is not None)
        return f"DimHint({self.kind}{bounds})"


class Dim:
    """A size that varies from `min` to `max` (no limit), the same one wherever this name stands.

    `2 * dim + 1` and the like are sizes that hang on it.
    """

    AUTO, DYNAMIC, STATIC = DimHint("AUTO"), DimHint("DYNAMIC"), DimHint("STATIC")
    scale, offset = 1, 0

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name!r}")
        self.min, self.max = 0 if min is None or min < 0 else min, math.inf if max is None else max
        if self.min > self.max:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        self.__name__, self.root = name, self

    def __add__(self, other: Any) -> Dim:
        return _derived(self, 1, self._number(other, "add"))

    def __radd__(self, other: Any) -> Dim:
        return self + other

    def __sub__(self, other: Any) -> Dim:
        return _derived(self, 1, -self._number(other, "subtract"))

    def __rsub__(self, other: Any) -> Dim:
        raise NotImplementedError(f"Attempted to negate {self.__name__}. (Only increasing linear operations with integer coefficients are "
                                  "supported.)")

    def __mul__(self, other: Any) -> Dim:
        if self._number(other, "multiply") <= 0:
            raise NotImplementedError(f"Attempted to multiply {self.__name__} by {other}; a positive integer was expected. (Only "
                                      "increasing linear operations with integer coefficients are supported.)")
        return _derived(self, other, 0)

    __rmul__ = __mul__

    def _number(self, other: Any, verb: str) -> int:
        if type(other) is not int:
            raise NotImplementedError(f"Attempted to {verb} {other!r} and {self.__name__}, where an integer was expected. (Only increasing "
                                      "linear operations with integer coefficients are supported.)")
        return other

    def __repr__(self) -> str:
        return f"Dim({self.__name__!r}, min={self.min}{'' if self.max == math.inf else f', max={self.max}'})"


class _DerivedDim(Dim):
    """`scale * root + offset`."""

    def __init__(self, root: Dim, scale: int, offset: int) -> None:
        self.root, self.scale, self.offset = root, scale, offset
        self.__name__ = (f"{scale}*" if scale != 1 else "") + root.__name__ + (f" {'+-'[offset < 0]} {abs(offset)}" if offset else "")
        self.max = scale * root.max + offset

    @property
    def min(self) -> int:       # type: ignore[override]
        """The least size; AssertionError where it would be negative."""
        least = self.scale * self.root.min + self.offset
        if least < 0:
            raise AssertionError(f"Expected derived min value of {self.__name__} to be >= 0. Please specify an appropriate min value for "
                                 f"{self.root.__name__} (currently {self.root.min}).")
        return least

    def __repr__(self) -> str:
        return self.__name__


def _derived(dim: Dim, scale: int, offset: int) -> Dim:
    return _DerivedDim(dim.root, dim.scale * scale, dim.offset * scale + offset)


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """A Dim for each name."""
    return tuple([Dim(name, min=min, max=max) for name in names])


class ShapesCollection:
    """Dynamic shapes by tensor: `shapes[x] = {0: Dim.DYNAMIC}`; given as `dynamic_shapes` of inputs that hold those tensors."""

    def __init__(self) -> None:
        self._shapes: dict[int, tuple[Any, Any]] = {}

    def __setitem__(self, tensor: Any, shape: Any) -> None:
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"Cannot assign shape to non-tensor type {type(tensor)}")
        if (known := self[tensor] or shape) != shape:
            raise AssertionError(f"Shapes assigned to tensor do not match: it has {known!r} already, got {shape!r}")
        self._shapes[id(tensor)] = tensor, shape

    def __getitem__(self, tensor: Any) -> Any:
        return self._shapes.get(id(tensor), (None, {}))[1]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Any, args: tuple, kwargs: dict | None = None) -> dict[str, Any]:
        """The tree of shapes for these inputs of a module; ValueError where a tensor with shapes is not among them."""
        named = named_inputs(m, args, kwargs or {})
        held = {id(leaf) for leaf in tree_leaves(named)}
        for tensor, shape in self._shapes.values():
            if id(tensor) not in held:
                raise ValueError(f"ShapesCollection: {shape!r} was assigned to a tensor of shape {list(tensor.shape)} that is not among the "
                                 "inputs")
        return {name: tree_map(lambda leaf: self[leaf] or None, value) for name, value in named.items()}


def named_inputs(mod: Any, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs by the names of `forward`'s parameters, `*args` and `**kwargs` under theirs as a tuple and a dict."""
    return dict(inspect.signature(mod.forward).bind(*args, **kwargs).arguments)


def _mismatch(text: str, kind: UserErrorType = UserErrorType.INVALID_INPUT) -> UserError:
    return UserError(kind, f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: {text}")


# -- one size for each dimension ------------------------------------------------------------------------------------------
class Wanted(NamedTuple):
    """What was said of one size: where it is (its text, as in `x.size()[0]`), and its Dim, hint, number or None."""

    text: str
    said: Any
    size: int


class Check(NamedTuple):
    """What a call has to keep to: `left op right`, where the expressions are of symbols; and how it is told."""

    op: str
    left: Index
    right: Index
    text: str

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it does."""
        return bool(_OPS[self.op](evaluate(self.left, values), evaluate(self.right, values)))


_OPS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class ExportEnv(ShapeEnv):
    """The symbols of one export; each guard knows the user's line that asked for it."""

    def evaluate(self, relation: Relation, reason: str = "") -> bool:
        """As ShapeEnv; what an `assert` statement asks of a number that only a run knows holds from here on, and is checked by each run."""
        if self.static_value(relation) is None and (frames := user_stack()):
            if self.checked is not None and free_variables(relation.left - relation.right) & self.unbacked and asserts():
                self.learn(relation)
                return True
            file, line, function, source = frames[-1]
            reason = f"{file}:{line}, in {function}: {source}" + (f" ({reason})" if reason else "")
        return super().evaluate(relation, reason)

    def evaluate_at(self, line: str, relation: Relation) -> bool:
        """What has been found at this line of the user's before."""
        return super().evaluate(relation, line or "a number that the program needs")


class Sizes:
    """Makes the symbols of an export, and says afterwards what it has found out about them."""

    def __init__(self, other: bool = False) -> None:
        self.env = ExportEnv(duck_shape=False)
        self.other = other       # trace with other numbers than the example's, which may be equal to a fixed size by chance
        self.roots: dict[str, tuple[Dim, Any, int]] = {}          # a Dim's name -> it, its symbol, its size in the example
        self.wanted: dict[str, Wanted] = {}                  # symbol -> where it was wanted first
        self.problems: list[tuple[str, str, str | None]] = []     # (name, what is wrong, suggested fix)

    def size(self, wanted: Wanted) -> Any:
        """The number or symbol for a size."""
        said, size = wanted.said, wanted.size
        if said is None or (isinstance(said, DimHint) and said.kind == "STATIC"):
            return size
        if isinstance(said, int):
            if said != size:
                raise UserError(UserErrorType.INVALID_INPUT, f"{wanted.text} was said to be {said} in dynamic_shapes, but is {size}")
            return size
        return self._hinted(wanted, said) if isinstance(said, DimHint) else self._named(wanted, said)

    def _number(self, size: int, low: float | None, high: float | None) -> int:
        """The number to trace with for a size of the example."""
        if not self.other or size < 2:
            return size
        end = math.inf if high is None else high
        return next((n for n in (size + 97, size + 41, size + 7, size + 1, size - 1) if max(low or 0, 2) <= n <= end), size)

    def _hinted(self, wanted: Wanted, hint: DimHint) -> Any:
        made = self.env.create_symint(self._number(wanted.size, hint.min, hint.max), wanted.text, dynamic=True)
        if not isinstance(made, SymInt):
            if hint.kind == "DYNAMIC":
                self._specialized(wanted.text, wanted.text, wanted.size, None)
            return made
        self._bound(made, hint.min, hint.max, wanted.size)
        self.wanted.setdefault(to_python(made.expr), wanted)
        return made

    def _named(self, wanted: Wanted, dim: Dim) -> Any:
        root = dim.root
        hint, rest = divmod(wanted.size - dim.offset, dim.scale)
        if rest or hint < 0:
            raise UserError(UserErrorType.CONSTRAINT_VIOLATION,
                            f"Expected input {wanted.text} = {wanted.size} to be of the form {dim.__name__}, where {root.__name__} is an "
                            "integer")
        if not dim.min <= wanted.size <= dim.max:
            raise ConstraintViolationError(f"{wanted.size} not in range {_interval(dim.min, dim.max)} of {dim.__name__} = {wanted.text}")
        found = self.roots.get(root.__name__)
        if found is not None and (found[0].min, found[0].max) != (root.min, root.max):
            raise UserError(UserErrorType.INVALID_INPUT, f"Found different definitions {found[0]!r} and {root!r} for the same dimension")
        if found is None:
            made = self.env.create_symint(self._number(hint, root.min, root.max), wanted.text if dim is root else "", dynamic=True)
            self.roots[root.__name__] = root, made, hint
            if isinstance(made, SymInt):
                self._bound(made, root.min, None if root.max == math.inf else int(root.max), hint)
                self.wanted[to_python(made.expr)] = Wanted(wanted.text, root, hint)
            else:
                self._specialized(root.__name__, wanted.text, hint, root)
            return dim.scale * made + dim.offset
        made = found[1]
        if (known := found[2]) != hint:
            raise UserError(UserErrorType.CONSTRAINT_VIOLATION,
                            f"Constraints violated ({root.__name__})! {wanted.text} = {wanted.size} would make {root.__name__} {hint}, but "
                            f"{self.wanted[to_python(made.expr)].text if isinstance(made, SymInt) else 'another input'} makes it {known}")
        return dim.scale * made + dim.offset

    def _bound(self, made: SymInt, low: int | None, high: int | None, size: int) -> None:
        if not (low or 0) <= size <= (math.inf if high is None else high):
            raise ConstraintViolationError(f"{size} not in range {_interval(low or 0, high)}")
        name = to_python(made.expr)
        lo, hi = self.env._ranges[name]
        self.env._ranges[name] = max(lo, low or 0), min(hi, math.inf if high is None else high)

    def _specialized(self, name: str, text: str, value: int, dim: Dim | None) -> None:
        self.problems.append((name, f"You marked {name} as dynamic but your code specialized it to be a constant ({value}) [{text}]. If "
                              "you're using Dim.DYNAMIC, replace it with either Dim.STATIC or Dim.AUTO.",
                              None if dim is None else f"{name} = {value}"))

    # -- afterwards --------------------------------------------------------------------------------------------------------
    def name_of(self, symbol: str) -> str:
        """How the user calls a symbol."""
        wanted = self.wanted.get(symbol)
        return symbol if wanted is None else wanted.said.__name__ if isinstance(wanted.said, Dim) else wanted.text

    def text(self, relation: Relation) -> str:
        """A relation of sizes of inputs."""
        return self.env.text(relation, {name: w.text if not isinstance(w.said, Dim) or self.env.sources[name][:1] != [""]
                                        else w.said.__name__ for name, w in self.wanted.items()})

    def finish(self) -> list[Check]:
        """What calls must keep to; UserError that names all at once that goes against what the user has said."""
        checks = []
        for guard in self.env.guards:
            relation = guard.relation
            if free_variables(relation.left) | free_variables(relation.right) <= self.wanted.keys():
                self._judge(relation, guard.reason)
                checks.append(Check(relation.op, relation.left, relation.right, self.text(relation)))
        if self.problems:
            raise self._violated()
        return checks

    def range_checks(self) -> list[Check]:
        """The bounds that were promised, or found."""
        checks = []
        for name, wanted in self.wanted.items():
            dim, symbol = wanted.said, var(name, lo=2)
            lo, hi = (dim.min, dim.max) if isinstance(dim, Dim) else self.env._ranges[name]
            called = self.text(Relation("<=", symbol, 0)).removesuffix(" <= 0")
            if lo > 2:
                checks.append(Check(">=", symbol, int(lo), f"{called} >= {lo}"))
            if hi < math.inf:
                checks.append(Check("<=", symbol, int(hi), f"{called} <= {hi}"))
        return checks

    def _judge(self, relation: Relation, reason: str) -> None:
        """Whether a guard keeps a named or DYNAMIC size from what was promised."""
        names = sorted(free_variables(relation.left) | free_variables(relation.right))
        told = [name for name in names if isinstance(self.wanted[name].said, Dim)
                or (isinstance(self.wanted[name].said, DimHint) and self.wanted[name].said.kind == "DYNAMIC")]
        if not told:
            return
        because = f"\n      at {reason}" if reason else ""
        gap = relation.left - relation.right
        if len(names) == 1:
            self._judge_one(names[0], relation, gap, because)
        elif relation.op == "==" and len(names) == 2 and all(isinstance(self.wanted[n].said, Dim) for n in names):
            a, b = names
            text = (f"The values of {self._full(b)} and {self._full(a)} must always be related by {self.text(relation)}"
                    if not _is_plain_equality(gap) else f"The values of {self._full(b)} and {self._full(a)} must always be equal.")
            rest = self._solved(b, gap)
            self.problems.append((self.name_of(b), text + because, None if rest is None else f"{self.name_of(b)} = {rest}"))
        elif any(isinstance(self.wanted[n].said, Dim) for n in names) and relation.op != "!=":
            self.problems.append((", ".join(map(self.name_of, told)), f"Not all values of {', '.join(map(self._full, told))} in the "
                                  f"specified range satisfy the generated guard {self.text(relation)}{because}", None))

    def _solved(self, name: str, gap: Index) -> str | None:
        a = coefficient(gap, name)
        if a not in (1, -1):
            return None
        rest = var(name, lo=bounds_lo(gap, name)) - gap * a
        text = to_python(rest)
        for symbol in free_variables(rest):
            text = text.replace(symbol, self.name_of(symbol))
        return text

    def _judge_one(self, name: str, relation: Relation, gap: Index, because: str) -> None:
        wanted, called = self.wanted[name], self.name_of(name)
        named = isinstance(wanted.said, Dim)
        lo, hi = self.env._ranges[name]
        if relation.op == "==":
            value = self.env.hints[name]
            self.problems.append((called, f"You marked {called} as dynamic but your code specialized it to be a constant ({value}). If "
                                  f"you're using Dim.DYNAMIC, replace it with either Dim.STATIC or Dim.AUTO.{because}",
                                  f"{called} = {value}" if named else None))
            return
        if not named or relation.op == "!=":
            return
        dim = wanted.said
        low, high = max(dim.min, 2), dim.max
        if lo <= low and hi >= high and is_linear(gap, name):
            return
        fix = None
        if is_linear(gap, name):
            bounds = [f"min={lo}"] if lo > low else []
            bounds += [f"max={hi}"] if hi < math.inf else []
            fix = f"{called} = Dim({called!r}, {', '.join(bounds)})"
        self.problems.append((called, f"Not all values of {self._full(name)} in the specified range satisfy the generated guard "
                              f"{self.text(relation)}{because}", fix))

    def _full(self, name: str) -> str:
        called, text = self.name_of(name), self.wanted[name].text
        return called if called == text else f"{called} = {text}"

    def _violated(self) -> UserError:
        names = ", ".join(dict.fromkeys(name for name, _, _ in self.problems))
        lines = [f"Constraints violated ({names})!", *dict.fromkeys(f"  - {text}" for _, text, _ in self.problems)]
        fixes = dict.fromkeys(fix for _, _, fix in self.problems if fix)
        lines += ["Suggested fixes:", *(f"  {fix}" for fix in fixes)] if fixes else []
        return UserError(UserErrorType.CONSTRAINT_VIOLATION, "\n".join(lines))


class ConstraintViolationError(RuntimeError):
    """An example input lies outside of the range that was given for it."""


def is_linear(gap: Index, name: str) -> bool:
    """Whether an expression is `a * name + c`."""
    a = coefficient(gap, name)
    return isinstance(a, int) and a != 0 and isinstance(gap - a * var(name, lo=bounds_lo(gap, name)), int)


def _is_plain_equality(gap: Index) -> bool:
    names = sorted(free_variables(gap))
    a, b = (var(n, lo=bounds_lo(gap, n)) for n in names)
    return gap in (a - b, b - a)


def _interval(low: float, high: float | None) -> str:
    return f"[{low}, {'int_oo' if high is None or high == math.inf else high}]"


# -- the tree of what was said ---------------------------------------------------------------------------------------------
def walk(named: Mapping[str, Any], shapes: Any) -> list[Any]:
    """For each leaf of the inputs what `dynamic_shapes` says of it."""
    if shapes is None:
        shapes = dict.fromkeys(named)
    if isinstance(shapes, Mapping):
        if list(shapes) != list(named) and set(shapes) != set(named):
            raise UserError(UserErrorType.INVALID_INPUT, "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg "
                            f"names {list(named)} of `inputs`, but here they are {list(shapes)}. Alternatively, you could also ignore arg "
                            "names entirely and specify `dynamic_shapes` as a list/tuple matching `inputs`.")
        pairs = [(name, value, shapes[name]) for name, value in named.items()]
    elif isinstance(shapes, (tuple, list)):
        if len(shapes) != len(named):
            raise _mismatch(f"`inputs` has {len(named)} elements, but `dynamic_shapes` has {len(shapes)} elements")
        pairs = [(name, value, said) for (name, value), said in zip(named.items(), shapes, strict=True)]
    else:
        raise UserError(UserErrorType.INVALID_INPUT, f"dynamic_shapes must be a dict, tuple or list, got {type(shapes).__name__}")
    found: list[Any] = []
    for name, value, said in pairs:
        _walk(name, value, said, found)
    return found


def _walk(path: str, value: Any, said: Any, found: list[Any]) -> None:
    kind = _node_type(value)
    if kind not in SUPPORTED_NODES:
        _check_leaf(path, value, said)
        found.append(said)
        return
    children, context = SUPPORTED_NODES[kind].flatten_fn(value)
    names = [keystr(p[:1]) for p, _ in tree_flatten_with_path(value, lambda x: x is not value)[0]]
    if said is None:
        parts: list[Any] = [None] * len(children)
    elif isinstance(said, Mapping) and kind is dict:
        if set(said) != set(value):
            raise _mismatch(f"`inputs[{path!r}]` has keys {list(value)}, but `dynamic_shapes[{path!r}]` has keys {list(said)}")
        parts = [said[key] for key in context]
    elif isinstance(said, (tuple, list)) and len(said) == len(children):
        parts = list(said)
    elif isinstance(said, (tuple, list)):
        raise _mismatch(f"`inputs[{path!r}]` has {len(children)} elements, but `dynamic_shapes[{path!r}]` has {len(said)} elements")
    else:
        raise _mismatch(f"`inputs[{path!r}]` is a {type(value)}, but `dynamic_shapes[{path!r}]` is a {type(said)}")
    for name, child, part in zip(names, children, parts, strict=True):
        _walk(path + name, child, part, found)


def _check_leaf(path: str, value: Any, said: Any) -> None:
    if not isinstance(value, Tensor):
        if said is not None and not (isinstance(said, (Dim, DimHint)) and type(value) is int):
            raise UserError(UserErrorType.INVALID_INPUT, f"{path} is {value!r}, no tensor, so it has no dynamic dimensions, got {said!r}")
        return
    if said is None:
        return
    if isinstance(said, Mapping):
        for dim in said:
            if not isinstance(dim, int) or not -value.ndim <= dim < value.ndim:
                raise IndexError(f"dynamic_shapes has dimension {dim} of {path}, which is a tensor of shape {list(value.shape)}")
    elif isinstance(said, (tuple, list)):
        if len(said) != value.ndim:
            raise _mismatch(f"{path} is a tensor of {value.ndim} dimensions, but `dynamic_shapes` has {len(said)} for it")
    else:
        raise UserError(UserErrorType.INVALID_INPUT, f"Unexpected dynamic_shape {said!r} of {path}: give a dict from dimension to Dim, a "
                        "tuple or list with an entry for each dimension, or None")
    for one in said.values() if isinstance(said, Mapping) else said:
        if not (one is None or isinstance(one, (int, Dim, DimHint))):
            raise UserError(UserErrorType.INVALID_INPUT, f"Unexpected dimension {one!r} in dynamic_shapes of {path}: a Dim, Dim.AUTO, "
                            "Dim.DYNAMIC, Dim.STATIC, an int or None is expected")


def dims_of(value: Tensor, said: Any) -> list[Any]:
    """What was said, for each dimension of a tensor."""
    if said is None:
        return [None] * value.ndim
    if isinstance(said, Mapping):
        by_dim = {dim % value.ndim: one for dim, one in said.items()}
        return [by_dim.get(d) for d in range(value.ndim)]
    return list(said)


def solve(expr: Index, actual: int) -> tuple[str, int] | None:
    """The symbol and its value that make `a * symbol + c` equal to `actual`; None where there is none."""
    names = sorted(free_variables(expr))
    if len(names) != 1 or not is_linear(expr, names[0]):
        return None
    a: Any = coefficient(expr, names[0])
    value, rest = divmod(actual - (expr - a * var(names[0], lo=bounds_lo(expr, names[0]))), a)
    return None if rest else (names[0], value)
