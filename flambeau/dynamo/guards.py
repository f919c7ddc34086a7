"""Guards: what has to hold for a compiled entry to be used again, written as one Python function."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .. import _C
from .guards_plan import GuardPlan
from .source import Source
from .surroundings import explain

About = Literal["value", "identity", "distinct", "keys", "length", "absent", "any"]
"""What a guard depends on: the immutable values of its sources; which objects they are; that they are different ones; the keys of
a dict, in order; the length of a list, tuple or dict; that a dict or an instance `{0}` has none of the keys `{1}`; or anything at all."""


@dataclass(frozen=True)
class Guard:
    """`template.format(*sources)` has to be true."""

    template: str
    sources: tuple[Source, ...]
    reason: str = ""
    about: About = "value"


class Namespace:
    """Globals of generated functions: constants get short names, each object once."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def name(self, value: Any) -> str:
        known = self._names.get(id(value))
        if known is None:
            known = f"_c{len(self._names)}"
            label = getattr(value, "__name__", None)
            if isinstance(label, str) and label.isidentifier() and label.isascii():
                known = f"_c{len(self._names)}_{label}"
            self._names[id(value)] = known
            self.values[known] = value
        return known

    def bind(self, prefix: str, value: Any) -> str:
        """A fresh name for `value`."""
        name = prefix if prefix not in self.values else f"{prefix}_{len(self.values)}"
        self.values[name] = value
        return name


def typed(values: Iterable[Any]) -> tuple[list[Any], list[type]]:
    """Elements in order, and their types."""
    return [*values], [*map(type, values)]


class GuardSet:
    """The guards of one compiled entry, in the order in which they are checked."""

    def __init__(self, surroundings: Any = None) -> None:
        self._guards: dict[tuple[str, tuple[Source, ...]], Guard] = {}
        self.surroundings = surroundings
        """What is around the function: as capture notes it, and then as the native object that tells whether it is the same."""
        self.tensors: dict[Source, _C.TensorSpec] = {}
        """Tensor properties by source, checked together at the end by `check_tensors`."""

    def add(self, template: str, *sources: Source, reason: str = "", about: About = "value") -> None:
        if any(source.trusted for source in sources):
            return
        key = (template, sources)
        if key not in self._guards:
            self._guards[key] = Guard(template, sources, reason, about)

    def insert(self, guard: Guard) -> None:
        self.add(guard.template, *guard.sources, reason=guard.reason, about=guard.about)

    def __iter__(self) -> Any:
        return iter(self._guards.values())

    def __len__(self) -> int:
        return len(self._guards) + len(self.tensors)


class GuardWriter:
    """Prints guards as statements; sub-expressions that are used twice are read once."""

    def __init__(self, namespace: Namespace, prefix: str = "_v") -> None:
        self.namespace, self.prefix = namespace, prefix
        self.cache: dict[Source, str] = {}
        self.uses: Counter[Source] = Counter()

    def count(self, source: Source) -> None:
        self.uses[source] += 1
        if self.uses[source] == 1:
            for base in source.bases:
                self.count(base)

    def hoist(self, source: Source, lines: list[str]) -> None:
        if source in self.cache or not source.bases:
            return
        for base in source.bases:
            self.hoist(base, lines)
        if self.uses[source] > 1:
            name = f"{self.prefix}{len(self.cache)}"
            lines.append(f"{name} = {source.render(self.namespace.name, self.cache)}")
            self.cache[source] = name

    def expression(self, guard: Guard) -> str:
        return guard.template.format(*(s.render(self.namespace.name, self.cache) for s in guard.sources))

    def statements(self, guards: list[Guard], tensors: dict[Source, _C.TensorSpec]) -> list[str]:
        """Statements that return False where one doesn't hold."""
        for guard in guards:
            for number, source in enumerate(guard.sources):
                for _ in range(guard.template.count(f"{{{number}}}")):
                    self.count(source)
        for source in tensors:
            self.count(source)
        lines: list[str] = []
        for guard in guards:
            for source in guard.sources:
                self.hoist(source, lines)
            lines.append(f"if not ({self.expression(guard)}): return False")
        for source in tensors:
            self.hoist(source, lines)
        if tensors:
            lines.append(f"if not {self.tensor_checks(tensors)}: return False")
        return lines

    def tensor_checks(self, tensors: dict[Source, _C.TensorSpec]) -> str:
        """All tensors in one native call."""
        namespace = self.namespace
        values = [source.render(namespace.name, self.cache) for source in tensors]
        specs = list(tensors.values())
        if len(specs) == 1:
            return f"{namespace.bind('_tensor_spec', specs[0])}({values[0]})"
        check = namespace.bind("_check_tensors", _C.check_tensors)
        return f"{check}(({', '.join(values)}), {namespace.bind('_tensor_specs', tuple(specs))})"


FEW = 6
"""So many guards are checked before one could look whether anything has changed."""


class Lasting:
    """The guards that need to be asked again only after something was written to the objects that they read: to a model, mostly.

    `name` is what generated code calls the `_C.Unchanged` that can tell, and `roots` are its arguments; `numbers` are those of
    the tensors that it knows. `values` are the arguments that capture saw, by name.
    """

    def __init__(self, guards: GuardSet, namespace: Namespace, values: dict[str, Any]) -> None:
        plan = GuardPlan(values)
        self.tensors = {source: spec for source, spec in guards.tensors.items() if plan.add_tensor(source, spec)}
        self.guards: list[Guard] = []
        self.others: list[Guard] = []
        mixed: list[tuple[list[Source], list[Source]]] = []
        for guard in guards:
            inside = [source for source in guard.sources if source in self.tensors]
            outside = [source for source in guard.sources if source not in self.tensors]
            parts = [guard]
            if guard.about == "distinct" and inside and outside:
                mixed.append((inside, outside))
                parts = [distinct(part, guard.reason) for part in (inside, outside) if len(part) > 1]
            for part in parts:
                (self.guards if plan.add_guard(part) else self.others).append(part)
        self.worthwhile = len(self.guards) + len(self.tensors) >= FEW
        if not self.worthwhile:
            self.guards, self.others, self.tensors = [], list(guards), {}
            return
        self.numbers = plan.numbers()
        self.name, self.roots = namespace.bind("_unchanged", _C.Unchanged(plan.nodes())), ", ".join(plan.roots)
        self.others += [self._apart(inside, outside, namespace) for inside, outside in mixed]

    def _apart(self, inside: list[Source], outside: list[Source], namespace: Namespace) -> Guard:
        """None of the few tensors `outside` is one of the model's many `inside`."""
        few = "".join(f"{{{i}}}, " for i in range(len(outside)))
        return Guard(f"{self.name}.apart(({few}), {self._numbers_of(inside, namespace)}, {self.roots})", tuple(outside), "distinct")

    def _numbers_of(self, sources: list[Source], namespace: Namespace) -> str:
        return namespace.bind("_numbers", tuple(self.numbers[source] for source in sources))

    def statements(self, namespace: Namespace) -> list[str]:
        """Those of the guard function."""
        if not self.worthwhile:
            return []
        return [
            f"if not {self.name}({self.roots}):",
            f"    _seen = {self.name}.look({self.roots})",
            *("    " + line for line in GuardWriter(namespace, "_m").statements(self.guards, self.tensors)),
            f"    {self.name}.keep(_seen, {self.roots})",
        ]

    def fetch(self, sources: list[Source], namespace: Namespace) -> str:
        """An expression for the tuple of these tensors."""
        return f"{self.name}.fetch({self._numbers_of(sources, namespace)}, {self.roots})"


def distinct(sources: Sequence[Source], reason: str) -> Guard:
    """No two of them are one object."""
    ids = ", ".join(f"id({{{i}}})" for i in range(len(sources)))
    return Guard(f"len({{{{{ids}}}}}) == {len(sources)}", tuple(sources), reason, "distinct")


def write_guard(guards: GuardSet, parameters: list[str], namespace: Namespace, checks: list[str], lasting: Lasting) -> str:
    """The source of `guard(__function, *values) -> bool`; `checks` on global state come first, then the lasting guards."""
    body = [f"if not ({check}): return False" for check in checks] + lasting.statements(namespace)
    others = {source: spec for source, spec in guards.tensors.items() if source not in lasting.tensors}
    body += GuardWriter(namespace).statements(lasting.others, others)
    indented = "\n".join("        " + line for line in [*body, "return True"])
    return (
        f"def guard({', '.join(['__function', *parameters])}):\n    try:\n{indented}\n    except _lookup_errors:\n        return False\n"
    )


LOOKUP_ERRORS = (Exception,)
"""What reading a source may raise when the program's objects have another shape than at capture: anything, for a property."""


def compile_source(source: str, filename: str, namespace: dict[str, Any], lines: list[int] | None = None) -> Callable[..., Any]:
    """Compile one function definition; `lines[i]` is the line of the user's file that generated line i stands for."""
    tree: Any = source
    if lines is not None:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            for attribute in ("lineno", "end_lineno"):
                generated = getattr(node, attribute, None)
                if generated is not None:
                    setattr(node, attribute, lines[min(generated, len(lines)) - 1])
    name = source[len("def "):source.index("(")]
    hidden = namespace.get(name, namespace)
    exec(compile(tree, filename, "exec"), namespace)
    function: Callable[..., Any] = namespace.pop(name)
    if hidden is not namespace:
        namespace[name] = hidden
    return function


def first_failure(guards: GuardSet, parameters: list[str], values: tuple[Any, ...], function: Any) -> str:
    """Which guard refuses these arguments, in words: evaluated one by one, for the recompile log."""
    namespace = Namespace()
    scope: dict[str, Any] = dict(zip(["__function", *parameters], (function, *values), strict=True))

    def look_up(text: str) -> tuple[Any, str]:
        try:
            return eval(text, {**namespace.values}, scope), ""
        except LOOKUP_ERRORS as error:
            return None, f" ({type(error).__name__}: {error})"

    difference = guards.surroundings.difference()
    if difference is not None:
        return explain(difference)
    for guard in guards:
        shown = guard.template.format(*(source.words for source in guard.sources))
        passed, error = look_up(guard.template.format(*(s.render(namespace.name) for s in guard.sources)))
        if error:
            return shown + error
        if not passed:
            now = look_up(f"repr({guard.sources[0].render(namespace.name)})")[0]   # which may raise, of an object of the program's
            return f"{shown}{f' (now {now})' if now and len(now) < 60 else ''}{'  # ' + guard.reason if guard.reason else ''}"
    for source, spec in guards.tensors.items():
        value, error = look_up(source.render(namespace.name))
        difference = error or spec.difference(value)
        if difference:
            shown = source.words
            return f"{shown}{error}" if error else f"tensor {shown}: {difference}"
    return "another way of compiling is at work"
