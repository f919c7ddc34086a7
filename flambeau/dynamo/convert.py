"""From a frame to `(guard, replacement)`: capture, compile the graph, write the two functions."""

from __future__ import annotations

import builtins
import inspect
import sys
import time
import types
import warnings
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from .. import _C, fx
from ..core import dispatch
from ..core.settings import Verification
from ..core.symbolic import ConstraintViolationError, DataDependentFloat, DataDependentSize
from ..core.tensor import Tensor
from ..fx.lint import lint_graph
from ..ops.generators import all_states, set_all_states
from ..ops.linalg.decompositions import LinAlgError
from . import breaks, config, logs, minifier, policy
from .autograd_functions import keep_freed, leaves_escape
from .break_kinds import Break, describe
from .bytecode import loop_of
from .debug import source_of
from .dynamic import Shapes
from .exceptions import LEAVES, PRESUMING, BackendCompilerFailed, GraphBreak, RaisedInTrace, RestartTrace, RunEagerly
from .frame import Frame
from .graph_builder import must_hold
from .guards import LOOKUP_ERRORS, GuardSet, Lasting, Namespace, compile_source, distinct, write_guard
from .refusals import refuses_values
from .replacement import Writer
from .resume import origin, words_of_arguments
from .source import FUNCTION, Source, argument_name, argument_source, constant_source
from .surroundings import write_setting
from .tails import Tail, unknown_sizes_of
from .trace import Trace
from .variables.autocast import enter_autocast, exit_autocast, only_autocast_is_active
from .variables.base import LazyVariable, Variable
from .variables.contexts import ScopeExit, set_grad_mode
from .variables.tensor import TensorVariable


@dataclass
class Captured:
    """One compiled version of a frame, as `explain` and the logs show it."""

    code: types.CodeType
    guard_source: str
    source: str
    guards: GuardSet
    parameters: list[str]
    graph: fx.GraphModule | None = None
    broken: Break | None = None
    seconds: float = 0.0
    guard: Any = None
    replacement: Any = None
    resumes: list[types.CodeType] = field(default_factory=list)
    owner: weakref.ref[Any] | None = None
    """The module that it was compiled for."""

    @property
    def where(self) -> str:
        return f"{self.code.co_filename}:{self.code.co_firstlineno} in {self.code.co_name}"


@dataclass
class Request:
    """What is to be compiled and how."""

    function: types.FunctionType
    code: types.CodeType
    values: tuple[Any, ...]
    shapes: Shapes
    backend: Any
    backend_name: str
    options: dict[str, Any]
    fullgraph: bool
    active: Any
    """Thread-local whose `.compiler` tells which compiler is at work; part of each guard."""
    compiler: Any


DATA_ERRORS = (IndexError, ValueError, ArithmeticError, RuntimeError, LinAlgError)
"""What operators raise because of the contents of tensors."""

DEEP = 10_000
_SWITCHES = (set_grad_mode, enter_autocast, exit_autocast, write_setting)
"""Nodes that only switch state."""


class NothingToCompile(Exception):
    """The frame holds no tensor operation."""


def convert_frame(request: Request) -> Captured:
    """Capture a frame until it works out: each graph break and each new fact starts the capture anew."""
    started = time.perf_counter()
    known_breaks: dict[int, Break] = {}
    pinned: set[str] = set()
    needed: set[int] = set()
    unknown: set[tuple[str, int]] = set()
    while True:
        conversion = _Conversion(request, known_breaks, pinned, needed, unknown)
        try:
            captured = conversion.run()
        except RestartTrace:
            continue
        captured.seconds = time.perf_counter() - started
        return captured


class _Conversion:
    """One attempt."""

    def __init__(self, request: Request, known_breaks: dict[int, Break], pinned: set[str], needed: set[int],
                 unknown: set[tuple[str, int]]) -> None:  # fmt: skip
        self.request = request
        self.breaks, self.pinned, self.needed = known_breaks, pinned, needed
        self.namespace = Namespace()
        self.namespace.values.update(__builtins__=builtins, _lookup_errors=LOOKUP_ERRORS)
        code = request.code
        count = len(request.values)
        self.parameters = [argument_name(i, name) for i, name in enumerate(code.co_varnames[:count])]
        self.resumes: list[types.CodeType] = []
        self.unknown = unknown

    def run(self) -> Captured:
        if not only_autocast_is_active():
            raise RunEagerly(describe("unknown context manager", "a function mode (TorchFunctionMode) is active"))
        grad_mode, recursion = dispatch.state.recording, sys.getrecursionlimit()
        self.tx = Trace(self.request.shapes, self.pinned, self.needed)
        sys.setrecursionlimit(max(recursion, DEEP))  # an inlined call takes about ten of the tracer's own
        try:
            return self._run()
        except DataDependentFloat as needed:
            if needed.args[0] in self.tx.births:
                self._need((needed.args[0],), str(needed))
            self.pinned.add(str(self.tx.number_sources[needed.args[0]]))
            raise RestartTrace from None
        except DataDependentSize as needed:
            self._need(needed.names, str(needed))
        finally:
            sys.setrecursionlimit(recursion)
            self.tx.abandon_scopes()
            self.tx.surroundings.put_back()
            self.tx.release()
            dispatch.state.recording = grad_mode

    def _run(self) -> Captured:
        tx = self.tx
        frame = self._root_frame(tx)
        broken = self._interpret(frame)
        self.writer = writer = Writer(tx, self.namespace)
        writer.begin()
        try:
            if broken is None:
                assert frame.returned is not None
                tail = [(f"return {writer.value(frame.returned)}", frame.line)]
            else:
                tail = self._tail(frame)
            tx.effects.replay(writer)
        except GraphBreak as error:  # a value that can't exist outside of the graph
            error.info.stack = tx.stack()
            self._enter_outside(frame, error.info)
            raise RunEagerly(error.info) from None
        if any(generator.has_cleanup() for generator in tx.generators):
            raise RunEagerly(describe("iterator escapes", "a generator inside of a finally or with block is given up"))
        return self._finish(frame, broken, tail)

    def _need(self, names: Iterable[str], text: str) -> NoReturn:
        """The program needs numbers that only tensors tell: start anew, with graph breaks where they are read."""
        found = {i for i, name in enumerate(self.tx.births) if name in names} - self.needed
        if not found:
            raise RunEagerly(describe("data-dependent size", text))
        self.needed |= found
        raise RestartTrace from None

    def _root_frame(self, tx: Trace) -> Frame:
        request, code = self.request, self.request.code
        local: dict[str, Variable] = {}
        words = words_of_arguments(code)
        for i, (name, value) in enumerate(zip(code.co_varnames, request.values, strict=False)):
            local[name] = LazyVariable(value, argument_source(i, name, words.get(name, "")))
        closure = [
            tx.existing_cell(cell, FUNCTION.cell(i, name))
            for i, (name, cell) in enumerate(zip(code.co_freevars, request.function.__closure__ or (), strict=False))
        ]
        frame = Frame(tx, code, request.function.__globals__, local, closure)
        tx.guard("{0}.__globals__ is {1}", FUNCTION, constant_source(request.function.__globals__))
        tx.frames.append(frame)
        return frame

    def _interpret(self, frame: Frame) -> Break | None:
        """Run the symbolic frame to its end (None) or to a known break point."""
        tx = self.tx
        while frame.returned is None:
            if frame.ip in self.breaks:
                return self.breaks[frame.ip]
            try:
                frame.step()
            except GraphBreak as error:
                self._note_break(frame, error.info)
            except DataDependentSize as error:
                if self.request.shapes.breaks_allowed:
                    raise
                self._note_break(frame, describe("data-dependent size", str(error)))
            except RaisedInTrace as error:
                cls = error.value.python_type()
                info = describe("exception", f"{cls.__name__}: {getattr(error.value, 'text', str)()}")
                info.stack = error.stack or tx.stack()
                raise RunEagerly(info) from None
            except RecursionError:
                raise RunEagerly(describe("recursion", "Python's recursion limit")) from None
        return None

    def _note_break(self, frame: Frame, info: Break) -> None:
        """Remember where to break and start anew, or give the frame up."""
        info.stack = self.tx.stack()
        index = frame.current
        made_here = next((error for error in frame.handling if error.source is None), None)
        if made_here is not None:  # done as plain Python, what raised it gives a real exception, with the program's own traceback
            index, info = frame.raised_at[id(made_here)], _around(info, "except block with a graph break")
        loop = loop_of(frame.code, index)
        if info.kind == "frame inspection":
            raise RunEagerly(info)
        if loop is not None:
            if loop.head < 0 or not _handles_tensors(self.tx, frame):
                raise RunEagerly(_around(info, "break inside a loop"))
            index, info = loop.head, _around(info, "loop with a graph break")
        elif frame.program.instructions[index].opname not in breaks.RECIPES:
            raise RunEagerly(info)
        if index in self.breaks:
            raise RunEagerly(info)
        self.breaks[index] = info
        self.unknown |= unknown_sizes_of(frame)
        raise RestartTrace from None

    def _enter_outside(self, frame: Frame, info: Break) -> None:
        """A context manager that is a half-run generator can't go from one graph to the next: enter it between two graphs."""
        if info.kind != "iterator escapes":
            return
        for exit_method, index in frame.scopes:
            half_run = exit_method in frame.stack and not isinstance(exit_method, ScopeExit)
            if half_run and index not in self.breaks and loop_of(frame.code, index) is None:
                self.breaks[index] = _around(info, "context manager with a graph break")
                raise RestartTrace from None

    def _tail(self, frame: Frame) -> list[tuple[str, int]]:
        """What is done at the break and after it."""
        index = frame.current = frame.ip
        tail = Tail(frame, self.writer, self.request.function.__qualname__, self.unknown)
        loop = loop_of(frame.code, index)
        lines = tail.of_operation(index) if loop is None else tail.of_loop(loop)
        self.resumes = tail.resumes
        return [(text, frame.line) for text in lines]

    # -- the end ------------------------------------------------------------------------------------------------------------
    def _finish(self, frame: Frame, broken: Break | None, tail: list[tuple[str, int]]) -> Captured:
        tx, writer = self.tx, self.writer
        tx.close_scopes()
        final_mode = dispatch.state.recording
        if final_mode != tx.entry_grad_mode:
            tx.set_grad_mode(tx.entry_grad_mode)
            writer.effect(f"{writer.constant(set_grad_mode)}({final_mode})")
        if tx.presumptions and not self._may_run_again(tx.graph):
            self.needed.add(PRESUMING)
            raise RestartTrace
        if leaves_escape(tx, list(writer.outputs)):
            self.needed.add(LEAVES)
            raise RestartTrace
        for held in tx.presumptions:
            writer.output(held)
        keep_freed(tx.graph, list(writer.outputs))
        graph = self._close_graph()
        if tx.numbers_as_sizes(graph):
            raise RestartTrace
        assumed = [node.meta["assumed"] for node in graph.nodes if node.meta.get("assumed")]
        if assumed and tx.shapes.breaks_allowed and not self._may_run_again(graph):
            self._need(assumed, "a number that is read from a tensor and used as a size may be negative")
        useful = any(node.op.startswith("call") and node.target not in _SWITCHES for node in graph.nodes)
        if not useful and broken is None and not tx.tells_compiling:
            raise NothingToCompile
        self._pin_sizes()
        module, compiled = self._compile(graph) if useful else (None, None)
        self._final_guards(graph)    # with those on sizes that the backend asked for
        values = dict(zip(["__function", *self.parameters], (self.request.function, *self.request.values), strict=True))
        self.lasting = Lasting(tx.guards, self.namespace, values)
        calls = []
        if useful:
            sources = [source for _, source, _ in tx.inputs]
            calls = [writer.graph_call(self.namespace.bind("_graph", compiled), sources, self.lasting)]
        after = [(line, tail[0][1]) for line in writer.building + writer.effects] + tail
        if calls and self._may_run_again(graph):
            after = self._or_as_written(calls.pop(), after)
        captured = self._write([*writer.prelude, *calls], after)
        captured.graph = module
        captured.broken = broken
        captured.resumes = self.resumes
        return captured

    def _may_run_again(self, graph: fx.Graph) -> bool:
        """Is what a graph has done when it fails half-way undone by doing nothing?"""
        if self.tx.draws:
            return False
        calls = [node for node in graph.nodes if node.op.startswith("call") and node.target not in (must_hold, set_grad_mode)]
        given = {tensor._storage.memory for _, tensor in self.tx.given_tensors()}
        return not any(any(tensor._storage.memory in given for tensor in node.meta.get("writes", ()))
                       or (node.is_impure() and not node.meta.get("writes")) or policy.runs_user_code(node.target) for node in calls)

    def _or_as_written(self, call: str, after: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Call the graph and go on; if it fails because of what is in a tensor, run the function as it is written, so that the
        error is the operator's own, with the program's line, its effects come before the error and its handlers after it."""
        errors, again = self.namespace.bind("_data_errors", DATA_ERRORS), self.namespace.bind("_as_written", as_written)
        told = "''" if self.tx.has_handlers else "f'{type(_failed).__name__}: {_failed}'"
        lines = ["try:", f"    {call}", f"except {errors} as _failed:", f"    _refused = {told}", "else:"]
        lines += ["    " + text for text, _ in after]
        if self.tx.draws_tensors():     # the numbers that the graph took are there again
            lines.insert(0, f"_states = {self.namespace.bind('_all_states', all_states)}()")
            lines.append(f"{self.namespace.bind('_set_all_states', set_all_states)}(_states)")
        if any(node.target is set_grad_mode for node in self.tx.graph.nodes):
            lines.append(f"{self.namespace.bind('_set_grad_mode', set_grad_mode)}({self.tx.entry_grad_mode})")
        lines.append(f"return {again}({', '.join(['_refused', '__function', *self.parameters])})")
        return [(text, after[0][1]) for text in lines]

    def _close_graph(self) -> fx.Graph:
        tx, graph = self.tx, self.tx.graph
        graph.output(tuple(self.writer.outputs))
        graph.eliminate_dead_code(lambda node: node.is_impure() or not {"draws", "communicates"}.isdisjoint(node.meta) or refuses_values(node))
        tx.drop_unused_inputs()
        if Verification.on:
            lint_graph(graph, "capture", whole=True)
        return graph

    def _compile(self, graph: fx.Graph) -> tuple[fx.GraphModule, Any]:
        request = self.request
        module = fx.GraphModule(self.tx.functions, graph)
        examples = [example for _, _, example in self.tx.inputs]
        where = f"{request.code.co_filename}:{request.code.co_firstlineno} in {request.code.co_name}"
        if logs.graph_code.isEnabledFor(10):
            logs.graph_code.debug("graph of %s\n%s", where, source_of(module))
        reference = minifier.copied(module) if minifier.wanted() else module
        self.tx.shape_env.floats_frozen = True    # what compilers ask in addition is not kept with what they make
        try:
            compiled = request.backend(module, examples, **request.options)
        except DataDependentFloat:
            raise
        except Exception as error:
            failed = BackendCompilerFailed(request.backend_name, error, where)
            if minifier.wanted():
                failed.add_note(minifier.report_crash(reference, request.backend, request.backend_name, request.options, error))
            raise failed from error
        if not callable(compiled):
            wrong = TypeError(f"it returned {type(compiled).__name__} instead of a callable")
            raise BackendCompilerFailed(request.backend_name, wrong, where)
        if minifier.wanted() and config.repro_level > 2:
            compiled = minifier.compared(reference, compiled, request.backend, request.backend_name, request.options)
        return module, _C.undisturbed(self.tx.surroundings.putting_back(compiled))

    def _pin_sizes(self) -> None:
        """Start anew if sizes that were taken as variables have turned out to be fixed."""
        pinned = self.tx.newly_pinned()
        if wrong := {source: pinned[source] for source in sorted(self.request.shapes.marked & pinned.keys())}:
            raise ConstraintViolationError(f"{', '.join(wrong)} was marked with torch._dynamo.mark_dynamic, but the program works "
                                           "for this size alone. Don't mark it, or use torch._dynamo.maybe_mark_dynamic", wrong)
        if pinned:
            self.pinned.update(pinned)
            raise RestartTrace

    def _final_guards(self, graph: fx.Graph) -> None:
        tx = self.tx
        self._pin_sizes()
        for source, names in tx.absent.items():
            tx.guard("{1}.isdisjoint({0}.__dict__)", source, constant_source(frozenset(names)),
                     reason=", ".join(sorted(names)), about="absent")
        for left, op, right, answer in tx.shape_env.float_guards.values():
            tx.guard(f"({{0}} {op} {{1}}) is {answer}", tx.number_source(left), tx.number_source(right), reason="number", about="any")
        for template, sources in tx.shape_guards():
            tx.guards.add(template, *sources, reason="size", about="any")
        for source, given in tx.given_tensors():
            if getattr(given._storage, "asked_where", False):
                tx.guard(f"{{0}}.storage_offset() == {given._layout.offset}", source, reason="storage_offset()")
        self._distinct_guards(graph)

    def _distinct_guards(self, graph: fx.Graph) -> None:
        """What is written to must not be reachable in a second way that capture took for another object."""
        tx = self.tx
        self._guard_distinct([v.source for v in tx.told_apart.values() if v.source is not None], "keys by identity")
        if any(node.is_impure() for node in graph.nodes if node.op.startswith("call") and node.target not in _SWITCHES):
            tensors = [tx.plain_of.get(source, source) for _, source, example in tx.inputs if hasattr(example, "dtype")]
            self._guard_distinct(tensors, "distinct tensors")
        for changed in tx.effects.touched():
            assert changed.source is not None
            for _, other in tx.effects.existing():
                if other is changed or type(other) is not type(changed) or other.source is None:
                    continue
                if other.python_type() is changed.python_type():
                    tx.guard("{0} is not {1}", changed.source, other.source, reason="distinct objects", about="identity")

    def _guard_distinct(self, sources: list[Source], reason: str) -> None:
        sources = [source for source in sources if not source.trusted]
        if len(sources) > 1:
            self.tx.guards.insert(distinct(sources, reason))

    def _write(self, lines: list[str], tail: list[tuple[str, int]]) -> Captured:
        user = origin(self.request.code)
        head_line = tail[0][1]
        name = user.co_name if user.co_name.isidentifier() else "replacement"
        text = [f"def {name}({', '.join(['__function', *self.parameters])}):", *("    " + line for line in lines)]
        numbers = [head_line] * len(text)
        for statement, line in tail:
            text.append("    " + statement)
            numbers.append(line)
        source = "\n".join(text) + "\n"
        replacement = compile_source(source, user.co_filename, self.namespace.values, numbers)
        _C.skip_code(replacement.__code__)
        guard_source, guard = self._write_guard()
        return Captured(user, guard_source, source, self.tx.guards, self.parameters, guard=guard, replacement=replacement)

    def _write_guard(self) -> tuple[str, Any]:
        tx = self.tx
        tx.guards.surroundings = tx.surroundings.guard()
        checks = [
            f"{self.namespace.bind('_active', self.request.active)}.compiler is {self.namespace.bind('_compiler', self.request.compiler)}",
            f"{self.namespace.bind('_surroundings', tx.guards.surroundings)}()",
        ]
        text = write_guard(tx.guards, self.parameters, self.namespace, checks, self.lasting)
        guard = compile_source(text, "<flambeau guard>", self.namespace.values)
        return text, guard


def as_written(refused: str, function: types.FunctionType, *values: Any) -> Any:
    """Call a function whose frame would have these arguments (of `*args` the tuple, of `**kwargs` the dict) as ordinary Python,
    because its graph has raised `refused` (empty: the function may handle that itself)."""
    code = function.__code__
    names = code.co_varnames[: len(values)]
    rest = list(values[code.co_argcount + code.co_kwonlyargcount :])
    args = values[: code.co_argcount] + (rest.pop(0) if code.co_flags & inspect.CO_VARARGS else ())
    keywords = dict(zip(names[code.co_argcount :], values[code.co_argcount : code.co_argcount + code.co_kwonlyargcount], strict=False))
    callback = _C.set_frame_callback(None)
    try:
        answer = function(*args, **keywords, **(rest.pop() if rest else {}))
        if refused:
            warnings.warn(f"torch.compile: the graph of {code.co_name} ({code.co_filename}:{code.co_firstlineno}) raised {refused}, which "
                          "the function as it is written did not; the result is that of the latter.", stacklevel=2)
        return answer
    finally:
        _C.set_frame_callback(callback)


def _handles_tensors(tx: Trace, frame: Frame) -> bool:
    """Is there anything to compile in a loop? For a loop over plain Python values it isn't worth the trouble."""
    variables = [*frame.locals.values(), *(cell.contents for cell in frame.cells.values())]
    values = [variable.value if isinstance(variable, LazyVariable) else variable for variable in variables]
    return bool(tx.inputs or tx.calls) or frame.program.instructions[frame.current].opname == "FOR_ITER" or any(
        isinstance(value, (Tensor, TensorVariable)) or policy.is_nn_module(value)
        or (isinstance(value, (list, tuple, dict)) and any(isinstance(v, Tensor) for v in _elements(value)))
        for value in values
    )


def _elements(value: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _around(info: Break, kind: str) -> Break:
    """What becomes of a loop with a break in it, around the break that is the cause."""
    outer = describe(kind, f"{info.kind}: {info.context}")
    outer.cause = info
    outer.hints = (*info.hints, *outer.hints)
    outer.stack = info.stack
    return outer
