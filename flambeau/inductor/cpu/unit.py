"""The translation unit of a program: memory plan, kernels, library calls, and the functions that run them in order.

A unit has one function `run_0`, or several (`run_0`, `run_1`, ...) where something has to be done in Python in between: a
primitive without loops is called, or memory comes and goes (memory.py). A function takes what its nodes touch of the inputs,
outputs and large or crossing temporaries, and the arena that holds everything else.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from flambeau.core.expr import Index, to_cpp
from flambeau.core.scalar import FOLDS
from flambeau.inductor.cpu.cpp import Printed
from flambeau.inductor.cpu.loops import print_kernel
from flambeau.inductor.cpu.memory import Lives, coming_and_going, plan_memory, plan_stages, written_over
from flambeau.inductor.library import family_of
from flambeau.inductor.library.cpp import MEMORY_TYPES
from flambeau.inductor.library.scans import StepFunction, print_scan
from flambeau.inductor.loop.ir import Extern, Program, Scanned, View
from flambeau.inductor.loop.scheduler import Kernel, Node, schedule

_FOLD_TYPES = "float, double, int8_t, uint8_t, int16_t, int32_t, int64_t, uint32_t, uint64_t"
_PROLOGUE = """#include "runtime.h"
#include "kernel.h"
""" + "".join(f"#pragma omp declare reduction({fold.openmp} : {_FOLD_TYPES} : omp_out = "
              f"{fold.combine.cpp.format('omp_out', 'omp_in')}) initializer(omp_priv = omp_orig)\n"
              for fold in FOLDS.values() if fold.openmp.isidentifier())


@dataclass
class Segment:
    """Nodes that run at one go: in a function of the library, or the one that Python calls."""

    run: int | Extern                                    # the function's number, or the call
    nodes: range
    arguments: list[str] = field(default_factory=list)   # what the function takes, in order; the arena follows
    born: list[str] = field(default_factory=list)        # gets memory before it
    dead: list[str] = field(default_factory=list)        # is let go of after it


@dataclass
class Unit:
    """A printed program."""

    source: str
    segments: list[Segment]
    arguments: list[str]                  # buffers that have memory of their own
    symbols: list[str]                    # sizes, in the order of the scalars
    arena: Index                          # bytes
    places: dict[str, Index] = field(default_factory=dict)   # temporaries: byte offsets in the arena
    within: dict[str, str] = field(default_factory=dict)     # temporaries that lie where another buffer does
    kernels: list[Printed] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    @property
    def native(self) -> bool:
        """Whether no Python runs between kernels."""
        return len(self.segments) <= 1


def _vectors(kernels: Sequence[Printed]) -> list[str]:
    """The lines that a unit needs for the vector versions of the functions that its kernels call."""
    used = [f"#define FL_USES_{name}" for name in sorted(frozenset().union(*(kernel.far for kernel in kernels)))]
    return [*used, '#include "vectors.h"'] if used else []


def print_unit(program: Program, nodes: Sequence[Node], stages: bool = True) -> Unit:
    """C++ for the scheduled `nodes` of `program`; without `stages` in one function, however much memory that takes."""
    return _UnitPrinter(program, nodes).run(stages)


class _UnitPrinter:
    def __init__(self, program: Program, nodes: Sequence[Node]):
        self.program, self.nodes = program, list(nodes)
        self.readers: dict[str, set[int]] = {}  # who reads a buffer; 0 stands for the caller
        for node in self.nodes:
            for name in node.reads:
                self.readers.setdefault(name, set()).add(id(node))
        for out in program.outputs:
            if isinstance(out, View):
                self.readers.setdefault(out.buffer, set()).add(0)
        self.known: dict[str, str] = {}       # kernel text -> function
        self.calls: dict[tuple[int, str], str] = {}     # the parameters and the text of a library call or a loop -> function
        self.steps: dict[str, str] = {}                 # the text of a loop's step -> function
        self.functions: list[str] = []                  # those of calls and steps, callees first
        self.kernels: list[Printed] = []
        self.symbols = sorted(program.symbols, key=lambda s: (len(s), s))

    def run(self, stages: bool) -> Unit:
        printed, touched = self._printed()
        in_python = [isinstance(node, Extern) and node.in_python for node in self.nodes]
        arguments = self._arguments(in_python)
        within = self._written_over(printed, touched, arguments)
        held = [[within.get(name, name) for name in names] for names in touched]
        lives = Lives(held)
        plan = plan_stages(self.program, lives, in_python, arguments) if stages else None
        plan = plan or plan_memory(self.program, lives, arguments)
        unit = Unit("", [], plan.apart, self.symbols, plan.arena, plan.places, within, self.kernels, self.nodes)
        unit.segments = self._segments(in_python, held, lives, plan.apart, plan.cuts | _where_begun_is_needed(self.nodes))
        bodies = [f'extern "C" FL_CALLS int run_{segment.run}'
                  + self._function(segment, unit, printed, {name for k in segment.nodes for name in touched[k]})
                  for segment in unit.segments if isinstance(segment.run, int)]
        texts = [f"static FL_SHARED void {name}{text}" for text, name in self.known.items()]
        texts += self.functions
        vectors = _vectors(self.kernels)
        unit.source = "\n".join([_PROLOGUE, *vectors, *texts, *bodies])
        return unit

    def _segments(self, in_python: Sequence[bool], touched: Sequence[Sequence[str]], lives: Lives, apart: Sequence[str],
                  cuts: Set[int]) -> list[Segment]:
        """The nodes by what runs them; what lies `apart` from the arena comes and goes with those that touch it."""
        segments: list[Segment] = []
        functions = 0
        for k, (node, slow) in enumerate(zip(self.nodes, in_python, strict=True)):
            if slow or not segments or k in cuts or in_python[k - 1]:
                segments.append(Segment(node if slow else functions, range(k, k)))  # type: ignore[arg-type]
                functions += not slow
            segments[-1].nodes = range(segments[-1].nodes.start, k + 1)
        comes, goes = coming_and_going(self.program)
        for segment in segments:
            names = {name for k in segment.nodes for name in touched[k]}
            segment.arguments = [name for name in apart if name in names]
            segment.born = [name for name in segment.arguments if name in comes and lives.first[name] in segment.nodes]
            segment.dead = [name for name in segment.arguments if name in goes and lives.last[name] in segment.nodes]
        return segments

    def _stored(self, kernel: Kernel) -> set[str]:
        """The kernel's buffers that others read."""
        return {name for name in kernel.writes if self.readers.get(name, set()) - {id(kernel)}}

    def _arguments(self, in_python: Sequence[bool]) -> list[str]:
        names = [n for n in self.program.inputs if n is not None]
        names += self.program.constants
        names += [b.name for b in self.program.buffers.values() if b.kind == "output"]
        for node, slow in zip(self.nodes, in_python, strict=True):
            if slow:
                names += [*sorted(node.reads), *node.writes]
        return list(dict.fromkeys(names))

    def _call(self, node: Node, kernel: Printed | None) -> list[str]:
        if kernel is None:
            assert isinstance(node, Extern)
            return self._library_call(node)
        name = self.known.setdefault(kernel.text, f"k{len(self.known)}")
        kernel.name = name
        self.kernels.append(kernel)
        arguments = ["nt"] if kernel.parallel else []
        arguments += [self._pointer(buffer, offset) for buffer, offset in kernel.pointers]
        call = f"{name}({', '.join(arguments + kernel.symbols)});"
        return [call, "if (fl::out_of_bounds.failed) return fl::refuse(rt);"] if kernel.checks else [call]

    def _library_call(self, node: Extern) -> list[str]:
        """Equal calls on other buffers are one function."""
        given: list[str] = []
        step = self._step(node.body) if node.body is not None else None

        def parameter(buffer: str, offset: Index = 0) -> str:
            given.append(self._pointer(buffer, offset))
            return f"p{len(given) - 1}"

        family = family_of(node)
        lines = print_scan(node, step, parameter) if step is not None else family.cpp(node, self.program, parameter)    # type: ignore
        text = "\n    ".join(lines)
        name = self.calls.get((len(given), text))
        if name is None:
            name = self.calls[len(given), text] = f"c{len(self.calls)}"
            self.functions.append(self._call_function(name, len(given), text))
        return [f"if ({name}({', '.join(['rt', 'scalars', *given])})) return 1;"]

    def _step(self, body: Scanned) -> StepFunction:
        """The function of a loop's step, which shares what it calls with the rest of the unit."""
        inner = _UnitPrinter(body.program, schedule(body.program))
        inner.known, inner.calls, inner.steps, inner.functions = self.known, self.calls, self.steps, self.functions
        inner.kernels, inner.symbols = self.kernels, self.symbols
        unit, text = inner.as_step()
        name = self.steps.get(text)
        if name is None:
            name = self.steps[text] = f"step{len(self.steps)}"
            self.functions.append(f"static FL_CALLS int {name}{text}")
        return StepFunction(name, unit.arguments, unit.arena)

    def as_step(self) -> tuple[Unit, str]:
        """The program as one function of a unit: the text from its parameters on."""
        printed, touched = self._printed()
        plan = plan_memory(self.program, Lives(touched), self._arguments([False] * len(self.nodes)))
        unit = Unit("", [], plan.apart, self.symbols, plan.arena, plan.places, {}, self.kernels, self.nodes)
        everything = Segment(0, range(len(self.nodes)), plan.apart)
        return unit, self._function(everything, unit, printed, {name for names in touched for name in names}, watched=False)

    def _printed(self) -> tuple[list[Printed | None], list[list[str]]]:
        """The kernels among the nodes, and what each node touches."""
        printed = [print_kernel(n, self.program, self._stored(n)) if isinstance(n, Kernel) else None for n in self.nodes]
        return printed, [[name for name, _ in kernel.pointers] if kernel is not None else [*sorted(node.reads), *node.writes]
                         for node, kernel in zip(self.nodes, printed, strict=True)]

    def _written_over(self, printed: list[Printed | None], touched: list[list[str]], arguments: Sequence[str]) -> dict[str, str]:
        """The temporaries that lie where another buffer does; the kernels that write over them are printed as such."""
        within = written_over(self.program, self.nodes, Lives(touched), arguments)
        for k, node in enumerate(self.nodes):
            over = {name: within[name] for name in node.reads if name in within and within[name] in node.writes}
            if over and isinstance(node, Kernel):
                printed[k] = print_kernel(node, self.program, self._stored(node), {*over, *over.values()})
        for name in reversed(within):       # what is made last is where all before it lie
            within[name] = within.get(within[name], within[name])
        return within

    def _call_function(self, name: str, count: int, body: str) -> str:
        parameters = "".join(f", void* p{k}" for k in range(count))
        symbols = "".join(f"    {self._symbol(k)}\n" for k in range(len(self.symbols)))
        return (f"static FL_SHARED int {name}(FlambeauRuntime* rt, const int64_t* scalars{parameters}) {{\n"
                f"{symbols}    {body}\n    return 0;\n}}")

    def _symbol(self, k: int) -> str:
        """The definition of a size or a number."""
        name = self.symbols[k]
        return f"const double {name} = fl::bits<double>(scalars[{k}]);" if name[0] == "f" else f"const int64_t {name} = scalars[{k}];"

    def _pointer(self, buffer: str, offset: Index = 0) -> str:
        return buffer if offset == 0 else f"{buffer} + {to_cpp(offset)}"

    def _function(self, segment: Segment, unit: Unit, printed: Sequence[Printed | None], touched: Set[str], watched: bool = True) -> str:
        """The segment's function, from its parameters on; `touched`: the buffers that its nodes do; `watched`: it notes the time."""
        kernels = [kernel for k in segment.nodes if (kernel := printed[k]) is not None]
        narrow = {s for kernel in kernels if kernel.narrow for s in kernel.symbols}
        lines = ["const int nt = rt->num_threads;", "(void)nt;"]
        for k, s in enumerate(self.symbols):
            lines.append(self._symbol(k))
            if s in narrow and s[0] != "f":
                lines.append(f'if ({s} >= 1L << 30) return rt->fail(rt, "a size of %ld is too large", {s});')
        for k, name in enumerate(segment.arguments):
            lines.append(f"{self._memory(name)}* const {name} = ({self._memory(name)}*)args[{k}];")
        inside = sorted(name for name in touched if name in unit.within)
        held = touched | {unit.within[name] for name in inside}
        placed = [name for name in unit.places if name in held]
        if placed:
            lines.append(f"char* const arena = (char*)args[{len(segment.arguments)}];")
        lines += [f"{self._memory(name)}* const {name} = ({self._memory(name)}*)(arena + {to_cpp(unit.places[name])});" for name in placed]
        lines += [f"{self._memory(name)}* const {name} = {unit.within[name]};" for name in inside]
        for n, k in enumerate(segment.nodes):
            lines += [*self._call(self.nodes[k], printed[k]), *([f"FL_LAP({n});"] if watched else [])]
        inner = "\n    ".join(lines)
        return ("(void** args, const int64_t* scalars, void* runtime) {\n"
                f"    FlambeauRuntime* const rt = (FlambeauRuntime*)runtime;\n    (void)scalars;\n    {inner}\n    return 0;\n}}\n")

    def _memory(self, name: str) -> str:
        """The C++ type of a buffer's elements as they lie in memory."""
        return MEMORY_TYPES.get(self.program.buffers[name].dtype.name, "char")


def _where_begun_is_needed(nodes: Sequence[Node]) -> set[int]:
    """The first node that needs the results of each that was begun: what is before it runs meanwhile."""
    found = set()
    for begun in (node for node in nodes if isinstance(node, Extern) and node.begins):
        found.update([k for k, node in enumerate(nodes) if node.reads & set(begun.writes)][:1])
    return found
