"""A call written down as C++: what `call.print_call` is in Python, for a library that runs without it.

The text is of a function `int call(FlambeauFrame* f)` over the functions of flambeau/include/package.h, and the tables around it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flambeau import _C
from flambeau.core.dtypes import dtype
from flambeau.core.expr import Expr, Index, free_variables, is_var, to_cpp, to_python
from flambeau.core.size import contiguous_strides, extent
from flambeau.inductor.call import Call, Clear, Drop, Look, Make, Run, Step, Take

ALIGNMENT = 64      # of a constant among the weights


class Port(NamedTuple):
    """An input or an output as the program was made for it; sizes may be symbolic."""

    name: str
    dtype: dtype
    shape: tuple[Index, ...]


class Input(NamedTuple):
    """A graph's input that is the caller's tensor of this number."""

    number: int


class State(NamedTuple):
    """A graph's input that is a buffer which the program writes to, of this number."""

    number: int


class Size(NamedTuple):
    """A graph's input that is a size of the caller's tensor of this number."""

    number: int
    dim: int


class Requirement(NamedTuple):
    """What sizes have to keep to, as C++ and as it is told."""

    condition: str
    text: str


class Written(NamedTuple):
    """A result that is copied to an input, or to a buffer with these strides."""

    result: int
    to: Input | State
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]


@dataclass
class PackagePlan:
    """What of a call a package runs, and how its ends are called.

    `sources` are the graph's inputs in order; `results[k]` is output k as one of the call's results.
    """

    call: Call
    inputs: list[Port]
    outputs: list[Port]
    sources: list[Input | State | Size]
    results: list[int]
    written: list[Written] = field(default_factory=list)
    requirements: list[Requirement] = field(default_factory=list)
    states: list[str] = field(default_factory=list)     # the constants that buffers begin as


class Weights:
    """The bytes of constants, each once, and where they lie."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.places: dict[str, tuple[int, int]] = {}        # offsets and bytes by name
        self._known: dict[Any, tuple[int, int]] = {}
        self.size = 0

    def add(self, name: str, data: bytes, of: Any) -> None:
        """A constant's bytes; equal memory (`of`) lies there once."""
        if of not in self._known:
            gap = -self.size % ALIGNMENT
            self.parts += [b"\0" * gap, data]
            self._known[of] = (self.size + gap, len(data))
            self.size += gap + len(data)
        self.places[name] = self._known[of]

    def content(self) -> bytes:
        """All of them."""
        return b"".join(self.parts)


class Writer:
    """Writes one plan down."""

    def __init__(self, plan: PackagePlan, weights: Weights):
        self.plan, self.call, self.weights = plan, plan.call, weights
        self.lines: list[str] = []
        self.blocks: set[str] = set()

    def text(self) -> str:
        """The whole of it."""
        self._define_sizes()
        self.lines += [f"if (flambeau_require(f, {r.condition}, {_string(r.text)})) return 1;" for r in self.plan.requirements]
        for step in self.call.steps:
            self.WRITE[type(step)](self, step)
        self._finish()
        for written in self.plan.written:
            self._write_back(written)
        for k, result in enumerate(self.plan.results):
            self._give(k, self.call.results[result])
        body = "\n    ".join(self.lines)
        return f"{_NUMBERS}static int call(FlambeauFrame* f) {{\n    {body}\n    return 0;\n}}\n{self._tables()}"

    # -- steps ---------------------------------------------------------------------------------------------------------
    def _define_sizes(self) -> None:
        """Symbols by the first input that has them as a size, and what other inputs' sizes have to be."""
        inputs = self.plan.inputs
        places = [(port, k, d, size) for k, port in enumerate(inputs) for d, size in enumerate(port.shape) if isinstance(size, Expr)]
        known: dict[str, tuple[int, int]] = {}
        for _, k, d, size in places:
            if is_var(size):
                known.setdefault(to_python(size), (k, d))
        missing = {name for *_, size in places for name in free_variables(size)} | {s.name for s in self.call.symbols}
        if missing := missing - known.keys():
            raise NotImplementedError(f"aoti_compile_and_package: {', '.join(sorted(missing))} is no size of an input itself; a package "
                                      "computes sizes from those of its inputs, so give the program a tensor that has it")
        self.lines += [f"const int64_t {name} = f->inputs[{k}].sizes[{d}]; (void){name};" for name, (k, d) in known.items()]
        for port, k, d, size in places:
            if known.get(to_python(size)) != (k, d):
                where = ", ".join(f"{name} is {inputs[known[name][0]].name}.size()[{known[name][1]}]" for name in free_variables(size))
                text = _string(f"{port.name}.size()[{d}] == {to_python(size)}, where {where}")
                self.lines.append(f"if (flambeau_require(f, f->inputs[{k}].sizes[{d}] == {to_cpp(size)}, {text})) return 1;")

    def _take(self, step: Take) -> None:
        if step.position is None:
            place = self.weights.places[step.buffer][0]
            return self._memory(step.buffer, f"f->weights + {place}L")
        source = self.plan.sources[step.position]
        if isinstance(source, State):
            return self._memory(step.buffer, f"f->states[{source.number}]")
        assert isinstance(source, Input) and step.strides is not None
        strides = [s // step.dtype.itemsize for s in step.strides]
        return self._memory(step.buffer, f"flambeau_fit(f, {source.number}, {numbers(strides)})", checked=True)

    def _memory(self, name: str, value: str, checked: bool = False) -> None:
        self.lines.append(f"void* const {name} = {value};" + (f" if ({name} == nullptr) return 1;" if checked else ""))

    def _make(self, step: Make) -> None:
        strides = contiguous_strides(step.shape) if step.strides is None else [s // step.dtype.itemsize for s in step.strides]
        self._memory(step.buffer, f"flambeau_make(f, {elements_text(step.shape, strides, step.dtype.itemsize)})", checked=True)
        self.blocks.add(step.buffer)

    def _drop(self, step: Drop) -> None:
        self.lines += [f"flambeau_drop(f, {name});" for name in step.buffers if name in self.blocks]

    def _run(self, step: Run) -> None:
        arrays = ", ".join(name or "nullptr" for name in step.buffers)
        scalars = ", ".join(step.symbols) or "0"
        self.lines.append(f"{{ void* args[] = {{{arrays}}}; const int64_t scalars[] = {{{scalars}}}; "
                          f"if ({step.name}(args, scalars, f->runtime)) return 1; }}")

    def _clear(self, step: Clear) -> None:
        """The caller keeps its inputs."""

    # -- results -------------------------------------------------------------------------------------------------------
    def _strides(self, look: Look) -> list[Index]:
        if look.strides is not None:
            return [s // look.dtype.itemsize for s in look.strides]
        made = next((m for m in self.call.of(Make) if m.buffer == look.buffer), None)
        if made is not None and made.strides is not None:
            return [s // look.dtype.itemsize for s in made.strides]
        taken = next((t for t in self.call.of(Take) if t.buffer == look.buffer), None)
        if taken is not None and taken.strides is not None:
            return [s // look.dtype.itemsize for s in taken.strides]
        return list(contiguous_strides(look.shape))

    def _give(self, k: int, result: Look | Index | None) -> None:
        if not isinstance(result, Look):
            value = to_cpp(result) if result is not None else "0"
            self.lines.append(f"{{ int64_t value = {value}; if (flambeau_give(f, {k}, nullptr, &value, nullptr, nullptr)) return 1; }}")
            return
        self.lines.append(f"if (flambeau_give(f, {k}, {result.buffer}, (char*){result.buffer} + {to_cpp(result.offset)}, "
                          f"{numbers(result.shape)}, {numbers(self._strides(result))})) return 1;")

    def _finish(self) -> None:
        """After the steps."""

    def _write_back(self, written: Written) -> None:
        result = self.call.results[written.result]
        assert isinstance(result, Look)
        self._copy_back(written, f"(char*){result.buffer} + {to_cpp(result.offset)}")

    def _copy_back(self, written: Written, source: str) -> None:
        result, to, shape = self.call.results[written.result], written.to, written.shape
        assert isinstance(result, Look)
        data, strides = (f"f->inputs[{to.number}].data", f"f->inputs[{to.number}].strides") if isinstance(to, Input) else \
            (f"f->states[{to.number}]", numbers(written.strides))
        some = " && ".join(f"{to_cpp(n)} > 0" for n in shape) or "true"
        self.lines.append(f"if ({some}) flambeau_copy({len(shape)}, {numbers(shape)}, {result.dtype.itemsize}, {data}, {strides}, "
                          f"{source}, {numbers(self._strides(result))});")

    WRITE: Mapping[type[Step], Callable[[Any, Any], None]] = {Take: _take, Make: _make, Clear: _clear, Drop: _drop, Run: _run}
    """What writes a step down. The others belong to GPUs, or need Python."""

    # -- tables --------------------------------------------------------------------------------------------------------
    def _tables(self) -> str:
        plan, places = self.plan, self.weights.places
        states = ", ".join(f"{{{places[name][0]}, {places[name][1]}}}" for name in plan.states) or "{0, 0}"
        counts = f"{len(plan.inputs)}, {len(plan.outputs)}, {len(plan.states)}"
        return f"""{_ports("inputs", plan.inputs)}{_ports("outputs", plan.outputs)}static const FlambeauState states[] = {{{states}}};
static const FlambeauModel model = {{FLAMBEAU_PACKAGE_ABI, {counts}, inputs, outputs, states, {self.weights.size}UL, call, flambeau_open,
    flambeau_close, flambeau_new_session, flambeau_end_session, flambeau_run, flambeau_release}};
extern "C" __attribute__((visibility("default"))) const FlambeauModel* flambeau_model() {{ return &model; }}
"""


def _ports(name: str, ports: Sequence[Port]) -> str:
    lines, rows = [], []
    for k, port in enumerate(ports):
        dims = ", ".join(_string(to_python(n)) for n in port.shape) or "nullptr"
        sizes = ", ".join("-1" if isinstance(n, Expr) else str(n) for n in port.shape) or "0"
        lines += [f"static const char* const {name}_{k}_dims[] = {{{dims}}};", f"static const int64_t {name}_{k}_sizes[] = {{{sizes}}};"]
        rows.append(f"{{{_string(port.name)}, {name}_{k}_dims, {name}_{k}_sizes, {code_of(port.dtype)}, {len(port.shape)}}}")
    return "\n".join([*lines, f"static const FlambeauPort {name}[] = {{{', '.join(rows) or '{}'}}};", ""])


def code_of(kind: dtype) -> int:
    """A dtype as package.h numbers it. NotImplementedError for one that it has not."""
    if kind.name not in _C.package_dtypes:
        raise NotImplementedError(f"ahead-of-time packages have no tensors of {kind}; convert it inside the program")
    return _C.package_dtypes.index(kind.name)


_NUMBERS = """template <int n> struct Numbers { int64_t at[n]; operator const int64_t*() const { return at; } };
"""


def numbers(values: Sequence[Index]) -> str:
    """An array of numbers, which lives to the end of its statement; for no dimensions, of one that nobody reads."""
    return f"Numbers<{max(1, len(values))}>{{{{{', '.join(map(to_cpp, values)) or '0'}}}}}"


def _string(text: str) -> str:
    """A C++ literal: JSON's escapes are C++'s, with plain letters alone."""
    return json.dumps(text.encode("ascii", "backslashreplace").decode()).replace("?", "\\?")


def elements_text(shape: Sequence[Index], strides: Sequence[Index], itemsize: int) -> str:
    """The bytes from the first element of a layout to the last, as C++: one at least."""
    some = " && ".join(f"{to_cpp(n)} > 0" for n in shape if isinstance(n, Expr))
    size = to_cpp(extent(shape, strides) * itemsize or 1)
    return f"{some} ? {size} : 1" if some else size
