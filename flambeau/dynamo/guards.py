"""Guards: what has to hold for a compiled entry to be used again, written as one Python function."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import _C
from .source import Source


@dataclass(frozen=True)
class Guard:
    """`template.format(*sources)` has to be true."""

    template: str
    sources: tuple[Source, ...]
    reason: str = ""


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


class GuardSet:
    """The guards of one compiled entry, in the order in which they are checked."""

    def __init__(self) -> None:
        self._guards: dict[tuple[str, tuple[Source, ...]], Guard] = {}
        self.tensors: dict[Source, _C.TensorSpec] = {}
        """Tensor properties by source, checked together at the end by `check_tensors`."""

    def add(self, template: str, *sources: Source, reason: str = "") -> None:
        if any(source.trusted for source in sources):
            return
        key = (template, sources)
        if key not in self._guards:
            self._guards[key] = Guard(template, sources, reason)

    def __iter__(self) -> Any:
        return iter(self._guards.values())

    def __len__(self) -> int:
        return len(self._guards) + len(self.tensors)


class GuardWriter:
    """Prints a GuardSet as a function; sub-expressions that are used twice are read once."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
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
            name = f"v{len(self.cache)}"
            lines.append(f"{name} = {source.render(self.namespace.name, self.cache)}")
            self.cache[source] = name

    def expression(self, guard: Guard) -> str:
        return guard.template.format(*(s.render(self.namespace.name, self.cache) for s in guard.sources))


def write_guard(guards: GuardSet, parameters: list[str], namespace: Namespace, checks: list[str]) -> str:
    """The source of `guard(__function, *values) -> bool`; `checks` on global state come first."""
    writer = GuardWriter(namespace)
    for guard in guards:
        for number, source in enumerate(guard.sources):
            for _ in range(guard.template.count(f"{{{number}}}")):
                writer.count(source)
    for source in guards.tensors:
        writer.count(source)
    body = [f"if not ({check}): return False" for check in checks]
    for guard in guards:
        for source in guard.sources:
            writer.hoist(source, body)
        body.append(f"if not ({writer.expression(guard)}): return False")
    if guards.tensors:
        for source in guards.tensors:
            writer.hoist(source, body)
        body.append(f"return {_tensor_checks(guards, writer)}")
    else:
        body.append("return True")
    indented = "\n".join("        " + line for line in body)
    return (
        f"def guard({', '.join(['__function', *parameters])}):\n    try:\n{indented}\n"
        "    except _lookup_errors:\n        return False\n"
    )


def _tensor_checks(guards: GuardSet, writer: GuardWriter) -> str:
    """All tensors in one native call."""
    namespace = writer.namespace
    values = [source.render(namespace.name, writer.cache) for source in guards.tensors]
    specs = list(guards.tensors.values())
    if len(specs) == 1:
        return f"{namespace.bind('_tensor_spec', specs[0])}({values[0]})"
    check = namespace.bind("_check_tensors", _C.check_tensors)
    return f"{check}(({', '.join(values)}), {namespace.bind('_tensor_specs', tuple(specs))})"


LOOKUP_ERRORS = (Exception,)
"""What reading a source may raise when the program's objects have another shape than at capture: anything, for a property."""


def compile_source(source: str, filename: str, namespace: dict[str, Any], lines: list[int] | None = None) -> Callable[..., Any]:
    """Compile one function definition; `lines[i]` is the line of the user's file that generated line i stands for."""
    tree = ast.parse(source)
    if lines is not None:
        for node in ast.walk(tree):
            for attribute in ("lineno", "end_lineno"):
                generated = getattr(node, attribute, None)
                if generated is not None:
                    setattr(node, attribute, lines[min(generated, len(lines)) - 1])
    before = set(namespace)
    exec(compile(tree, filename, "exec"), namespace)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    function: Callable[..., Any] = namespace[definition.name]
    if definition.name not in before:
        del namespace[definition.name]
    return function


def first_failure(guards: GuardSet, parameters: list[str], values: tuple[Any, ...], function: Any) -> str:
    """Which guard refuses these arguments, in words: evaluated one by one, for the recompile log."""
    namespace = Namespace()
    scope: dict[str, Any] = dict(zip(["__function", *parameters], (function, *values), strict=True))
    for guard in guards:
        text = guard.template.format(*(s.render(namespace.name) for s in guard.sources))
        shown = guard.template.format(*guard.sources)
        try:
            passed = eval(text, {**namespace.values}, scope)
        except LOOKUP_ERRORS as error:
            return f"{shown} ({type(error).__name__}: {error})"
        if not passed:
            return f"{shown}{_found(guard, namespace, scope)}{'  # ' + guard.reason if guard.reason else ''}"
    for source, spec in guards.tensors.items():
        try:
            value = eval(source.render(namespace.name), {**namespace.values}, scope)
        except LOOKUP_ERRORS as error:
            return f"{source} ({type(error).__name__}: {error})"
        difference = spec.difference(value)
        if difference:
            return f"tensor {source}: {difference}"
    return "a guard on global state"


def _found(guard: Guard, namespace: Namespace, scope: dict[str, Any]) -> str:
    try:
        value = eval(guard.sources[0].render(namespace.name), {**namespace.values}, scope)
    except LOOKUP_ERRORS:
        return ""
    text = repr(value)
    return f" (now {text})" if len(text) < 60 else ""
