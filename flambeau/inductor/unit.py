"""The translation unit of a program: memory plan, kernels, library calls, and the functions that run them in order.

A unit has one function `run_0`, or several (`run_0`, `run_1`, ...) where a primitive without loops has to be called through
Python in between. All take the same arguments: the input arrays, the arrays of outputs and of what crosses into Python,
and the arena that holds everything else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flambeau.core.expr import Expr, Index, free_variables, to_cpp
from flambeau.inductor.cpp import MEMORY_TYPES, Printed
from flambeau.inductor.externs import CALLS
from flambeau.inductor.ir import Compute, Extern, Program, View
from flambeau.inductor.loops import print_kernel
from flambeau.inductor.scheduler import Kernel, Node

ALIGNMENT = 64
INCLUDES = [Path(__file__).parent.parent / "include", Path(__file__).parent]
HEADERS = ("runtime.h", "kernel.h", "scalar.h", "convert.h", "functions.h", "remote.h", "vectors.h")

_FOLD_TYPES = "float, double, int8_t, uint8_t, int16_t, int32_t, int64_t, uint32_t, uint64_t"
_PROLOGUE = f"""#include "runtime.h"
#include "kernel.h"
#pragma omp declare reduction(nanmax : {_FOLD_TYPES} : omp_out = fl::maximum(omp_out, omp_in)) initializer(omp_priv = omp_orig)
#pragma omp declare reduction(nanmin : {_FOLD_TYPES} : omp_out = fl::minimum(omp_out, omp_in)) initializer(omp_priv = omp_orig)
"""
_REMOTE = {"FMOD": r"fl::(fmod|remainder|floordiv)\(", "SIN": r"fl::sin\(", "COS": r"fl::cos\(", "TAN": r"fl::tan\("}  # see remote.h


@dataclass
class Unit:
    """A printed program. `segments`: for each function its number, or the library call that Python makes there."""

    source: str
    segments: list[int | Extern]
    arguments: list[str]                  # buffers passed one by one, in order; the arena follows them
    symbols: list[str]                    # sizes, in the order of the scalars
    arena: Index                          # bytes
    places: dict[str, Index] = field(default_factory=dict)   # temporaries: byte offsets in the arena
    kernels: list[Printed] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    @property
    def checks(self) -> bool:
        """Whether an index may turn out to be out of bounds when it runs."""
        return any(kernel.checks for kernel in self.kernels)

    @property
    def native(self) -> bool:
        """Whether no Python runs between kernels."""
        return len(self.segments) <= 1


def _vectors(text: str) -> list[str]:
    """The lines that a unit of this text needs for the vector versions of the functions that it calls."""
    used = [f"#define FL_USES_{name}" for name, calls in _REMOTE.items() if re.search(calls, text)]
    return [*used, '#include "vectors.h"'] if used else []


def print_unit(program: Program, nodes: Sequence[Node], timed: bool = False) -> Unit:
    """C++ for the scheduled `nodes` of `program`; `timed`: with a clock around each, which `times` reads."""
    return _UnitPrinter(program, nodes, timed).run()


_TIMES = """static double seconds[%d];
extern "C" int times(void** args, const int64_t*, void*) {
    for (int k = 0; k < %d; k++) ((double*)args[0])[k] = seconds[k];
    return 0;
}
"""


class _UnitPrinter:
    def __init__(self, program: Program, nodes: Sequence[Node], timed: bool):
        self.program, self.nodes, self.timed = program, list(nodes), timed
        self.readers: dict[str, set[int]] = {}  # who reads a buffer; 0 stands for the caller
        for node in self.nodes:
            for name in node.reads:
                self.readers.setdefault(name, set()).add(id(node))
        for out in program.outputs:
            if isinstance(out, View):
                self.readers.setdefault(out.buffer, set()).add(0)
        self.known: dict[str, str] = {}       # kernel text -> function
        self.kernels: list[Printed] = []

    def run(self) -> Unit:
        printed = [print_kernel(n, self.program, self._stored(n)) if isinstance(n, Kernel) else None for n in self.nodes]
        in_python = [isinstance(n, Extern) and n.op not in CALLS for n in self.nodes]
        arguments = self._arguments(in_python)
        places, arena = plan_memory(self.program, self.nodes, printed, set(arguments))
        symbols = sorted(self.program.symbols, key=lambda s: (len(s), s))
        unit = Unit("", [], arguments, symbols, arena, places, self.kernels, self.nodes)
        functions: list[list[str]] = []
        lines: list[str] | None = None
        for number, (node, kernel, slow) in enumerate(zip(self.nodes, printed, in_python, strict=True)):
            if slow:
                assert isinstance(node, Extern)
                unit.segments.append(node)
                lines = None
                continue
            if lines is None:
                lines = []
                unit.segments.append(len(functions))
                functions.append(lines)
            lines += self._call(node, kernel)
            if self.timed:
                lines.append(f"fl::lap(seconds[{number}], clock);")
        bodies = [self._function(k, body, unit) for k, body in enumerate(functions)]
        texts = [f"static void {name}{text}" for text, name in self.known.items()]
        times = [_TIMES % (len(self.nodes), len(self.nodes))] if self.timed else []
        vectors = _vectors("".join(texts))
        unit.source = "\n".join([_PROLOGUE, *vectors, *times, *texts, *bodies])
        return unit

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
            return CALLS[node.op](node, self.program, self._pointer)
        name = self.known.setdefault(kernel.text, f"k{len(self.known)}")
        kernel.name = name
        self.kernels.append(kernel)
        arguments = ["nt"] if kernel.parallel else []
        arguments += [self._pointer(buffer, offset) for buffer, offset in kernel.pointers]
        call = f"{name}({', '.join(arguments + kernel.symbols)});"
        return [call, "if (fl::out_of_bounds.failed) return fl::refuse(rt);"] if kernel.checks else [call]

    def _pointer(self, buffer: str, offset: Index = 0) -> str:
        return buffer if offset == 0 else f"{buffer} + {to_cpp(offset)}"

    def _function(self, number: int, body: list[str], unit: Unit) -> str:
        text = "\n".join(body)
        lines = ["const int nt = rt->num_threads;", "(void)nt;"]
        if self.timed:
            lines.append("double clock = fl::now();")
        for k, s in enumerate(unit.symbols):
            if s in text or self._sized(unit, s):
                read = f"scalars[{k}]" if s[0] != "f" else f"fl::bits<double>(scalars[{k}])"
                lines.append(f"const {'double' if s[0] == 'f' else 'int64_t'} {s} = {read};")
                if s[0] != "f" and any(kernel.narrow for kernel in self.kernels):
                    lines.append(f'if ({s} >= 1L << 30) return rt->fail(rt, "a size of %ld is too large", {s});')
        for k, name in enumerate(unit.arguments):
            if name in text:
                kind = MEMORY_TYPES.get(self.program.buffers[name].dtype.name, "char")
                lines.append(f"{kind}* const {name} = ({kind}*)args[{k}];")
        if any(name in text for name in unit.places):
            lines.append(f"char* const arena = (char*)args[{len(unit.arguments)}];")
        for name, place in unit.places.items():
            if name in text:
                kind = MEMORY_TYPES[self.program.buffers[name].dtype.name]
                lines.append(f"{kind}* const {name} = ({kind}*)(arena + {to_cpp(place)});")
        inner = "\n    ".join(lines + body)
        return (f'extern "C" int run_{number}(void** args, const int64_t* scalars, void* runtime) {{\n'
                f"    FlambeauRuntime* const rt = (FlambeauRuntime*)runtime;\n    (void)scalars;\n    {inner}\n    return 0;\n}}\n")

    def _sized(self, unit: Unit, symbol: str) -> bool:
        return any(symbol in free_variables(place) for place in unit.places.values())


# --- memory ---


def plan_memory(program: Program, nodes: Sequence[Node], printed: Sequence[Printed | None],
                passed: set[str]) -> tuple[dict[str, Index], Index]:
    """Byte offsets in one arena for all temporaries (but those in `passed`), and its size.

    Memory is used again after the last reader: greedily the smallest free stretch that fits (sizes known), or one of the
    same symbolic size.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for k, (node, kernel) in enumerate(zip(nodes, printed, strict=True)):
        names = [name for name, _ in kernel.pointers] if kernel is not None else [*node.reads, *node.writes]
        for name in names:
            first.setdefault(name, k)
            last[name] = k
    temporaries = [n for n in first if n not in passed]
    dying: dict[int, list[str]] = {}
    for name in temporaries:
        dying.setdefault(last[name], []).append(name)
    born: dict[int, list[str]] = {}
    for name in temporaries:
        born.setdefault(first[name], []).append(name)
    arena = _Arena()
    for k in range(len(nodes)):
        for name in born.get(k, ()):
            buffer = program.buffers[name]
            arena.take(name, _aligned(buffer.numel * buffer.dtype.itemsize))
        for name in dying.get(k, ()):
            arena.give(name)
    return arena.places, arena.end


def _aligned(size: Index) -> Index:
    return (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


class _Arena:
    """Offsets handed out and taken back. Known sizes: stretches that split and merge. Symbolic ones: exact reuse."""

    def __init__(self) -> None:
        self.places: dict[str, Index] = {}
        self.sizes: dict[str, Index] = {}
        self.end: Index = 0
        self.free: list[tuple[int, int]] = []           # (offset, length), by offset
        self.symbolic: dict[Index, list[Index]] = {}

    def take(self, name: str, size: Index) -> None:
        self.sizes[name] = size
        if isinstance(size, Expr) or isinstance(self.end, Expr):
            spare = self.symbolic.get(size)
            if spare:
                self.places[name] = spare.pop()
                return
            self.places[name] = self.end
            self.end = self.end + size
            return
        fits = [(length, offset) for offset, length in self.free if length >= size]
        if fits:
            length, offset = min(fits)
            self.free.remove((offset, length))
            if length > size:
                self.free.append((offset + size, length - size))
        else:
            offset = self.end
            tail = next(((o, n) for o, n in self.free if o + n == self.end), None)
            if tail is not None:
                self.free.remove(tail)
                offset = tail[0]
            self.end = offset + size
        self.places[name] = offset

    def give(self, name: str) -> None:
        place, size = self.places[name], self.sizes[name]
        if isinstance(size, Expr) or isinstance(self.end, Expr) or isinstance(place, Expr):
            self.symbolic.setdefault(size, []).append(place)
            return
        merged: list[tuple[int, int]] = []
        for offset, length in sorted([*self.free, (place, size)]):
            if merged and merged[-1][0] + merged[-1][1] == offset:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((offset, length))
        self.free = merged


__all__ = ["Compute", "HEADERS", "INCLUDES", "Unit", "plan_memory", "print_unit"]
