"""Programs as data: inputs, then steps, that print as Python in which the library is called `torch`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

LONGEST = 61  # an input of more elements repeats this many values


@dataclass(frozen=True)
class Ref:
    """A tensor of the program: the name of a step or an input, perhaps with a subscript ("v3[0]")."""

    name: str

    @property
    def root(self) -> str:
        return self.name.split("[")[0]


@dataclass(frozen=True)
class Word:
    """What stands in the text as it is: `torch.float32`, `numpy.float32(1.5)`."""

    text: str


def code(value: Any) -> str:
    """An argument as Python."""
    if isinstance(value, Ref):
        return value.name
    if isinstance(value, Word):
        return value.text
    if isinstance(value, slice):
        parts = ["" if v is None else code(v) for v in (value.start, value.stop, value.step)]
        return ":".join(parts[: 2 if value.step is None else 3])
    if value is Ellipsis:
        return "..."
    if isinstance(value, complex):
        return f"complex({code(value.real)}, {code(value.imag)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(code, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(code, value)) + "]"
    return repr(value)


def subscript(value: Any) -> str:
    """An index as it stands between brackets."""
    return ", ".join(map(code, value)) + ("," if len(value) == 1 else "") if isinstance(value, tuple) and value else code(value)


@dataclass(frozen=True)
class Input:
    """A tensor to start with: values in row-major order, a shape to fill, and the views that make its layout."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: tuple
    views: tuple[str, ...] = ()
    grad: bool = False

    def expression(self) -> str:
        n = math.prod(self.shape)
        values = code(list(self.values[:n]))
        if n > len(self.values):
            values = f"({code(list(self.values))} * {-(-n // len(self.values))})[:{n}]"
        made = f"torch.tensor({values}, dtype=torch.{self.dtype})"
        if self.shape != (n,):
            made += f".reshape({code(self.shape)})"
        return made + "".join(self.views) + (".requires_grad_()" if self.grad else "")

    def code(self) -> str:
        return f"{self.name} = {self.expression()}"


@dataclass(frozen=True)
class Step:
    """One line. `form` is how it is written: call, method, attribute, infix, prefix, augmented, getitem or setitem."""

    target: str
    form: str
    op: str
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def code(self) -> str:
        args = self.args
        first = code(args[0]) if args else ""
        if isinstance(args[0] if args else None, (int, float, complex)):
            first = f"({first})"
        if self.form == "getitem":
            return f"{self.target} = {first}[{subscript(args[1])}]"
        if self.form == "setitem":
            return f"{first}[{subscript(args[1])}] = {code(args[2])}"
        if self.form == "augmented":
            return f"{first} {self.op} {code(args[1])}"
        if self.form == "infix":
            return f"{self.target} = {first} {self.op} {code(args[1])}"
        if self.form == "prefix":
            return f"{self.target} = {self.op}({first})"
        if self.form == "attribute":
            return f"{self.target} = {first}.{self.op}"
        rest = args[1:] if self.form == "method" else args
        listed = ", ".join([code(a) for a in rest] + [f"{k}={code(v)}" for k, v in self.kwargs.items()])
        return f"{self.target} = {first + '.' if self.form == 'method' else ''}{self.op}({listed})"

    @property
    def has_value(self) -> bool:
        return self.form not in ("setitem", "augmented")

    @property
    def name(self) -> str:
        """The operator, for signatures and counts."""
        return {"method": "Tensor.", "attribute": "Tensor."}.get(self.form, "") + (self.op or self.form)

    @property
    def written(self) -> Any:
        """What it writes to, if it does."""
        return self.args[0] if self.form in ("setitem", "augmented") or self.op.endswith("_") else self.kwargs.get("out")

    def refs(self) -> set[str]:
        return {ref.root for ref in references((self.args, tuple(self.kwargs.values())))}


def references(value: Any) -> Iterator[Ref]:
    """Every tensor that an argument mentions."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from references(item)
    elif isinstance(value, slice):
        yield from references((value.start, value.stop, value.step))


@dataclass(frozen=True)
class Program:
    """Inputs and steps. What it answers with are all its values, and its inputs as they are in the end."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]

    def without_unused(self) -> Program:
        used = set().union(*(step.refs() for step in self.steps)) if self.steps else set()
        return replace(self, inputs=tuple(i for i in self.inputs if i.name in used))

    def without_gradients(self) -> Program:
        return replace(self, inputs=tuple(replace(i, grad=False) for i in self.inputs))

    def names(self) -> list[str]:
        return [i.name for i in self.inputs] + [s.target for s in self.steps if s.has_value]

    def body(self) -> list[str]:
        return [step.code() for step in self.steps]

    def function(self, name: str = "program") -> str:
        """The steps as a function of the inputs that answers with the values of the steps."""
        values = ", ".join(s.target for s in self.steps if s.has_value)
        lines = [
            f"def {name}({', '.join(i.name for i in self.inputs)}):",
            *self.body(),
            f"return ({values}{',' if values else ''})",
        ]
        return "\n    ".join(lines) + "\n"

    def script(self, epilogue: str = "") -> str:
        """The whole as a script by itself, for either library."""
        lines = [i.code() for i in self.inputs] + self.body()
        shown = [n for n in self.names() if re.fullmatch(r"\w+", n)]
        prints = epilogue or "\n".join(f"print({n!r}, {n})" for n in shown)
        return "import numpy\nimport torch  # or: import flambeau as torch\n\n" + "\n".join(lines) + "\n" + prints + "\n"
