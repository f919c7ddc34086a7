"""An ONNX graph while it is written: its steps, its tensors, and the values that go from one to another."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.dtypes import bool_, dtype, float32, int64, uint8
from ..core.tensor import Tensor

NUMBERS: dict[dtype, int] = {getattr(dtypes, name): number for number, name in (
    (1, "float32"), (2, "uint8"), (3, "int8"), (4, "uint16"), (5, "int16"), (6, "int32"), (7, "int64"), (9, "bool_"), (10, "float16"),
    (11, "float64"), (12, "uint32"), (13, "uint64"), (14, "complex64"), (15, "complex128"), (16, "bfloat16"), (17, "float8_e4m3fn"),
    (19, "float8_e5m2"))}
"""ONNX's numbers for dtypes."""

_RESULTS: dict[str, dtype] = {
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf"), bool_),
    **dict.fromkeys(("Shape", "Size", "NonZero", "ArgMax", "ArgMin"), int64)}
"""What ONNX's operators give whose results are of another dtype than their first input."""


class Value:
    """A tensor of the graph: its name, its dtype and, where that is known, its shape (with symbols for sizes that vary)."""

    def __init__(self, name: str, kind: dtype, shape: Sequence[Any] | None = None) -> None:
        self.name, self.dtype = name, kind
        self.shape = None if shape is None else tuple(shape)

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        assert self.shape is not None, f"{self.name} is of a rank that is not known here"
        return len(self.shape)

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.name}{'' if self.shape is None else list(self.shape)}"


class Number(Value):
    """A number that only a run knows, such as a size that varies: a tensor of one dimension and one element."""

    def __init__(self, name: str, kind: dtype = int64) -> None:
        super().__init__(name, kind, (1,))


class Step:
    """One node: what it computes, of what, into what."""

    def __init__(self, op: str, inputs: list[str], outputs: list[str], attributes: dict[str, Any], domain: str, name: str) -> None:
        self.op, self.inputs, self.outputs = op, inputs, outputs
        self.attributes, self.domain, self.name = attributes, domain, name


class Body:
    """A graph within a step: what a branch or a loop runs."""

    def __init__(self, steps: list[Step], inputs: list[Value], outputs: list[Value]) -> None:
        self.steps, self.inputs, self.outputs = steps, inputs, outputs


class Writer:
    """Writes a graph. `writer.MatMul(a, b)` is a step, and answers with its result; so is every other name that begins with a capital.

    Among a step's inputs a number is a constant of the first tensor's dtype, a list of ints and Numbers a tensor of one dimension, and
    None an input that is left out. `_dtype` is the result's dtype where it is not the first input's, `_outputs` how many results there are.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.steps: list[Step] = []
        self.tensors: dict[str, Any] = {}      # initializers: NumPy arrays, or tensors
        self.functions: dict[str, Any] = {}    # of custom translations: FunctionProto by name
        self.domains: dict[str, int] = {}      # beside ONNX's own
        self.at = ""                           # what the steps belong to, for their names
        self.out: Any = None                   # what the operator that is being translated gives: fake tensors
        self.inner: Callable[..., Body]        # writes a function's graph
        self.given: tuple = ()                 # and its arguments, as fake tensors
        self._names: set[str] = set()
        self._constants: dict[Any, Value] = {}

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if not op[:1].isupper():
            raise AttributeError(op)
        return functools.partial(self.step, op)

    def name(self, wanted: str) -> str:
        """`wanted`, or like it where that is taken."""
        made, count = wanted, 0
        while made in self._names:
            count += 1
            made = f"{wanted}_{count}"
        self._names.add(made)
        return made

    def step(self, op: str, *inputs: Any, _dtype: dtype | None = None, _outputs: int = 1, _domain: str = "", **attributes: Any) -> Any:
        """A node; its result, or a tuple of them."""
        first = next((x for x in inputs if isinstance(x, Value)), None)
        kind = _dtype or _RESULTS.get(op) or (first.dtype if first is not None else float32)
        names = ["" if x is None else self.value(x, kind if first is None else first.dtype).name for x in inputs]
        while names and not names[-1]:
            names.pop()
        made = [self.name(f"{self.at or 'value'}_{op}") for _ in range(_outputs)]
        self.steps.append(Step(op, names, made, {k: v for k, v in attributes.items() if v is not None}, _domain, f"node_{made[0]}"))
        if _domain:
            self.domains.setdefault(_domain, 1)
        results = tuple([Value(name, kind) for name in made])
        return results if _outputs > 1 else results[0]

    # -- constants ---------------------------------------------------------------------------------------------------
    def value(self, x: Any, kind: dtype = int64) -> Value:
        """A tensor of the graph as it is; a number, a list or an array as a constant."""
        if isinstance(x, Value):
            return x
        if isinstance(x, (list, tuple)):
            return self.sizes(x)
        return self.constant(x, kind)

    def constant(self, x: Any, kind: dtype | None = None) -> Value:
        """A number or an array as a tensor of the graph."""
        array = np.asarray(x) if kind is None else _array(x, kind)
        kind = kind or next(d for d in NUMBERS if np.dtype(d.numpy) == array.dtype)
        key = kind, array.shape, array.tobytes()
        if key not in self._constants:
            name = self.name("constant")
            self.tensors[name] = array
            self._constants[key] = Value(name, kind, array.shape)
        return self._constants[key]

    def sizes(self, parts: Sequence[Any]) -> Value:
        """A tensor of one dimension with these ints and Numbers."""
        if all(not isinstance(p, Value) for p in parts):
            return self.constant(np.asarray([int(p) for p in parts], np.int64))
        runs: list[Any] = []
        for part in parts:
            if isinstance(part, Value):
                runs.append(part)
            elif runs and isinstance(runs[-1], list):
                runs[-1].append(int(part))
            else:
                runs.append([int(part)])
        values = [self.value(run) for run in runs]
        return values[0] if len(values) == 1 else self.Concat(*values, axis=0)

    # -- small words -------------------------------------------------------------------------------------------------
    def cast(self, x: Any, kind: dtype) -> Any:
        """`x` as a tensor of `kind`; a number as a constant."""
        if isinstance(x, Number):
            x = self.scalar(x)
        if not isinstance(x, Value):
            return self.constant(x, kind)
        if x.dtype is kind:
            return x
        if kind is uint8 and x.dtype.is_floating_point:    # ORT saturates here, where negative numbers wrap around
            x = self.cast(x, int64)
        made = self.Cast(x, to=NUMBERS[kind], _dtype=kind)
        made.shape = x.shape
        return made

    def scalar(self, x: Any, kind: dtype = int64) -> Value:
        """A number as a tensor of no dimension."""
        if isinstance(x, Number):
            made = self.Squeeze(x, [0])
            made.shape = ()
            return made
        return self.value(x, kind)

    def size(self, x: Value, dim: int) -> Any:
        """How many elements `x` has along `dim`: an int where that is fixed."""
        if x.shape is not None and isinstance(x.shape[dim], int):
            return x.shape[dim]
        end = None if dim == -1 else dim + 1
        return Number(self.Shape(x, start=dim, end=end).name)

    def shape(self, x: Value) -> list[Any]:
        """All sizes of `x`, of ints and Numbers."""
        return [self.size(x, d) for d in range(x.rank)]


def _array(x: Any, kind: dtype) -> np.ndarray:
    if kind is bool_:
        return np.asarray(x, bool)
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(kind.numpy)


def plain_name(text: str) -> str:
    """A text as a name in the graph."""
    return re.sub(r"[^\w.]+", "_", text).strip("_") or "value"


def needed(steps: Sequence[Step], results: Sequence[str]) -> list[Step]:
    """The steps that the results depend on, equal ones once."""
    wanted, kept = set(results), []
    for step in reversed(steps):
        if wanted & set(step.outputs):
            kept.append(step)
            wanted |= set(step.inputs) | _free(step)
    return kept[::-1]


def _free(step: Step) -> set[str]:
    """What the graphs within a step read of the graph around."""
    found: set[str] = set()
    for body in step.attributes.values():
        if isinstance(body, Body):
            found |= {v.name for v in body.outputs}
            for inner in body.steps:
                found |= set(inner.inputs) | _free(inner)
    return found


_RANDOM = ("RandomNormalLike", "RandomUniformLike", "Bernoulli", "Dropout")


def without_repeats(steps: Sequence[Step], outputs: set[str]) -> list[Step]:
    """The steps, those that compute what an earlier one does left out. Outputs of the model keep their names."""
    same: dict[str, str] = {}
    seen: dict[Any, Step] = {}
    kept = []
    for step in steps:
        _renamed(step, same)
        key = step.domain, step.op, tuple(step.inputs), repr(sorted(step.attributes.items(), key=lambda item: item[0]))
        plain = step.op not in _RANDOM and not any(isinstance(x, Body) for x in step.attributes.values())
        before = seen.setdefault(key, step) if plain and not outputs & set(step.outputs) else step
        if before is step:
            kept.append(step)
        else:
            same |= dict(zip(step.outputs, before.outputs))
    return kept


def without_copies(steps: Sequence[Step]) -> list[Step]:
    """The steps, an output of the model written by the step that makes it, where that is no other output, instead of by an Identity."""
    makers = {name: step for step in steps for name in step.outputs}
    same: dict[str, str] = {}
    for step in steps:
        source = step.inputs[0] if step.op == "Identity" else ""
        if step.op == "Identity" and source in makers and source not in same and makers[source].op != "Identity":
            same[source] = step.outputs[0]
    kept = [step for step in steps if not (step.op == "Identity" and same.get(step.inputs[0]) == step.outputs[0])]
    for step in kept:
        _renamed(step, same)
        step.outputs = [same.get(name, name) for name in step.outputs]
    return kept


def _renamed(step: Step, same: dict[str, str]) -> None:
    step.inputs = [same.get(name, name) for name in step.inputs]
    for body in step.attributes.values():
        if isinstance(body, Body):
            for inner in body.steps:
                _renamed(inner, same)
            for value in body.outputs:
                value.name = same.get(value.name, value.name)


def used(steps: Sequence[Step]) -> set[str]:
    """All names that steps read."""
    return {name for step in steps for name in (*step.inputs, *_free(step))}


def array_of(x: Any) -> np.ndarray:
    """A tensor's or an array's elements in order."""
    data = x.detach().cpu().resolve_conj().resolve_neg().contiguous()._data if isinstance(x, Tensor) else np.asarray(x)
    return np.ascontiguousarray(data).reshape(data.shape)     # which NumPy gives a dimension where there is none
