"""The frame hook's callback: one `Compiler` for each way of compiling, with what it knows of each code object."""

from __future__ import annotations

import gc
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .. import _C, fx
from ..aot.unknown import Pieces
from ..core import dispatch
from ..core.homes import own_name
from ..core.locks import reentrant_lock
from ..core.symbolic import ConstraintViolationError, is_symbolic
from ..core.tensor import Tensor
from ..core.watching import watched
from ..ops.asked import unasked
from . import config, debug, logs, policy
from .backends import lookup_backend
from .break_kinds import KINDS, Break
from .convert import Captured, NothingToCompile, Request, convert_frame
from .counts import counters, seconds
from .dynamic import Shapes
from .exceptions import BackendCompilerFailed, GraphBreak, RecompileError, RecompileLimitExceeded, RunEagerly
from .guards import first_failure
from .owners import family_of, is_plain, owner_of
from .resume import given_anew, note_unknown_sizes, origin, unknown_sizes
from .stance import AFTER_A_CALL, Current

OF_THIS_CALL = ("exception", "fake tensor")
"""Reasons to run a frame eagerly that say nothing about its next call."""

_lock = reentrant_lock()
"""One compilation at a time."""


class _Active(threading.local):
    compiler: Any = None
    observer: Any = None


active = _Active()


class Callbacks:
    """Functions that are called when a compilation begins and when it ends, with a text of what is compiled."""

    start: ClassVar[list[Callable[..., Any]]] = []
    end: ClassVar[list[Callable[..., Any]]] = []


@dataclass
class CodeState:
    """What one compiler knows of one code object as it is used by one family of calls (`owners.family_of`)."""

    shapes: Shapes
    entries: list[Captured] = field(default_factory=list)
    failures: int = 0
    eager_calls: int = 0
    """In a stance that waits for the second call."""
    warned: bool = False


@dataclass
class Families:
    """What one compiler knows of one code object. Kept by its id: codes of equal text are equal, but each has entries of its own."""

    code: types.CodeType
    states: dict[tuple[Any, ...], CodeState] = field(default_factory=dict)


class Compiler:
    """A way of compiling: backend, options, dynamic, fullgraph. It is the frame hook's callback."""

    def __init__(self, backend: Any, fullgraph: bool, dynamic: bool | None, options: dict[str, Any], limit: int | None = None,
                 name: str | None = None) -> None:
        self.backend = lookup_backend(backend)
        self.limit, self.name = limit, name
        """The most versions of a function, where it isn't config.recompile_limit; what profiles call its work."""
        self.backend_name = backend if isinstance(backend, str) else getattr(backend, "__name__", repr(backend))
        self.fullgraph, self.dynamic, self.options = fullgraph, dynamic, options
        self.told = True
        """Do observers hear of what it captures?"""
        self.states: dict[int, Families] = {}
        self.given_up: dict[int, types.CodeType] = {}
        """By id: code that runs eagerly when no function or module is involved; asked at every call of it."""

    def __call__(self, function: types.FunctionType, code: types.CodeType, values: tuple[Any, ...]) -> Any:
        if id(code) in self.given_up and is_plain(function, values):
            return None
        if policy.skips_frames_of(code.co_name, code.co_filename, function.__globals__.get("__name__")):
            _C.skip_code(code)
            return None
        if dispatch.state.word:  # somebody traces or transforms: capture would disturb them
            return None
        with _lock, unasked(), observing(active.observer if self.told else None):
            if dispatch.state.watchers:
                return watched(f"torch.compile {self.name or code.co_name}", self._compile, (function, code, values), {})
            return self._compile(function, code, values)

    def _compile(self, function: types.FunctionType, code: types.CodeType, values: tuple[Any, ...]) -> Any:
        families = self.states.setdefault(id(code), Families(code)).states
        family = family_of(function, values)
        state = families.get(family)
        if state is None:
            state = families[family] = CodeState(Shapes(self.dynamic, not self.fullgraph, given_anew(code), unknown_sizes(code)))
        if state.failures >= config.eager_attempts and not self.fullgraph:
            if not family:
                self.given_up[id(code)] = code
            return None
        for entry in state.entries:  # another thread may have compiled this while we waited
            if entry.guard(function, *values):
                return entry.guard, entry.replacement
        if self._stays_as_it_is(state, function, code, values):
            return None
        request = Request(function, code, values, state.shapes, self.backend, self.backend_name, self.options, self.fullgraph,
                          active, self)  # fmt: skip
        counters["frames"]["total"] += 1
        state.shapes.begin()
        for callback in Callbacks.start:
            callback(code.co_name)
        try:
            with debug.watching(code.co_name) as folder, _collecting_later(), _C.HooksScope():   # without the caller's hooks
                captured = convert_frame(request)
            if folder is not None:
                folder.finish(captured)
        except NothingToCompile:
            counters["frames"]["ok"] += 1
            state.failures += 1
            return None
        except (RunEagerly, GraphBreak) as error:
            state.failures += isinstance(error, RunEagerly) and error.info.kind not in OF_THIS_CALL
            self._report_break(error.info, whole_frame=True)
            return None
        except BackendCompilerFailed as error:
            return self._backend_failed(state, error)
        except ConstraintViolationError:
            raise
        except Exception as error:
            return self._capture_failed(state, code, error)
        finally:
            for callback in Callbacks.end:
                callback(code.co_name)
        if captured.broken is not None:
            whole = own_name(function.__globals__.get("__name__") or "") in policy.WHOLE   # `__module__` is what it wraps
            self._report_break(captured.broken, whole_frame=whole)
            if whole:
                state.failures += 1
                return None
        if not captured.guard(function, *values):
            return self._capture_failed(state, code, RuntimeError(
                "the guards don't hold for the call that they were made for: "
                + first_failure(captured.guards, captured.parameters, values, function)))  # fmt: skip
        captured.owner = owner_of(function, values)
        return self._install(state, code, captured)

    def _stays_as_it_is(self, state: CodeState, function: types.FunctionType, code: types.CodeType, values: tuple[Any, ...]) -> bool:
        """Whether the stance, or what this code has come to before, says that a call runs eagerly; an error where they forbid compiling."""
        where = f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"
        if Current.stance == "fail_on_recompile" and not state.failures:
            raise RuntimeError(f"Detected recompile when torch.compile stance is 'fail_on_recompile'. {where}: "
                               f"{self._reason(state, function, values)}")
        if config.error_on_recompile and state.entries:
            raise RecompileError(f"recompiling {where}: {self._reason(state, function, values)}")
        if Current.stance in AFTER_A_CALL and state.eager_calls == 0:
            state.eager_calls += 1
            return True
        return Current.stance not in ("default", *AFTER_A_CALL) or not self._may_compile(state, function, code, values)

    def _install(self, state: CodeState, code: types.CodeType, captured: Captured) -> tuple[Any, Any]:
        state.entries.insert(0, captured)
        _count(captured)
        _compiled_codes[id(code)] = code
        if active.observer is not None:
            active.observer.captured.append(captured)
        if logs.guards.isEnabledFor(10):
            logs.guards.debug("guards of %s\n%s", captured.where, captured.guard_source)
        if logs.bytecode.isEnabledFor(10):
            logs.bytecode.debug("replacement of %s\n%s", captured.where, captured.source)
        return captured.guard, captured.replacement

    def _backend_failed(self, state: CodeState, error: BackendCompilerFailed) -> None:
        if not config.suppress_errors:
            raise error
        state.failures = config.eager_attempts
        warnings.warn(f"{error}\nThe function runs eagerly.", stacklevel=2)

    def _capture_failed(self, state: CodeState, code: types.CodeType, error: Exception) -> None:
        """A fault of capture itself: the program is right, so it runs eagerly."""
        if self.fullgraph:
            raise error
        state.failures = config.eager_attempts
        warnings.warn(
            f"torch.compile: capture of {code.co_name} ({code.co_filename}:{code.co_firstlineno}) failed with "
            f"{type(error).__name__}: {error}. The function runs eagerly. This is a fault of Flambeau; please report it.", stacklevel=2,
        )

    # -- recompilation ------------------------------------------------------------------------------------------------------
    def _may_compile(self, state: CodeState, function: Any, code: types.CodeType, values: tuple[Any, ...]) -> bool:
        """Is there room for one more version? Says why it is needed."""
        owner = owner_of(function, values)
        count = sum(entry.owner is owner for entry in state.entries)
        where = f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"
        limit = "recompile_limit"
        full = count >= (config.recompile_limit if self.limit is None else self.limit)
        if not full and self._total(code) >= config.accumulated_recompile_limit:
            self._forget_the_dead(code, state)
            limit, count = "accumulated_recompile_limit", self._total(code)
            full = count >= config.accumulated_recompile_limit
        if full:
            self._limit_reached(state, where, limit, count, self._reason(state, function, values))
            return False
        if state.entries and (logs.recompiles.isEnabledFor(10) or active.observer is not None):
            reason = self._reason(state, function, values)
            logs.recompiles.debug("recompiling %s: %s", where, reason)
            if active.observer is not None:
                active.observer.recompiles.append(f"{where}: {reason}")
        return True

    def _total(self, code: types.CodeType) -> int:
        return sum(len(state.entries) for state in self.states[id(code)].states.values())

    def _forget_the_dead(self, code: types.CodeType, current: CodeState) -> None:
        """Drop the versions of modules that are gone."""
        families = self.states[id(code)].states
        dead = {
            id(entry.guard) for state in families.values() for entry in state.entries if entry.owner is not None and entry.owner() is None
        }  # fmt: skip
        kept = [entry for entry in _C.cache_entries(code) if id(entry[0]) not in dead]
        _C.clear_cache(code)
        for guard, replacement in reversed(kept):
            _C.add_cache_entry(code, guard, replacement)
        for family, state in list(families.items()):
            state.entries = [entry for entry in state.entries if id(entry.guard) not in dead]
            if not state.entries and not state.failures and state is not current:
                del families[family]

    def _reason(self, state: CodeState, function: Any, values: tuple[Any, ...]) -> str:
        if not state.entries:
            return "it isn't compiled yet, or serves another function or class of modules"
        last = state.entries[0]
        return first_failure(last.guards, last.parameters, values, function)

    def _limit_reached(self, state: CodeState, where: str, limit: str, count: int, reason: str) -> None:
        most = self.limit if self.limit is not None and limit == "recompile_limit" else getattr(config, limit)
        text = (
            f"torch.compile: {where} has {count} compiled versions, which is {'' if most is self.limit else 'config.'}{limit} "
            f"({most}); from now on it runs eagerly when none of them fits. The last one doesn't fit "
            f"because: {reason}\n  way out: pass what changes as a tensor, mark sizes with torch._dynamo.mark_dynamic or "
            f"compile with dynamic=True, or raise torch._dynamo.config.{limit}. TORCH_LOGS=recompiles shows all reasons."
        )
        if config.fail_on_recompile_limit_hit or (self.fullgraph and self.limit is not None):
            raise RecompileLimitExceeded(text)
        if not state.warned:
            state.warned = True
            warnings.warn(text, stacklevel=2)

    # -- graph breaks -------------------------------------------------------------------------------------------------------
    def _report_break(self, info: Break, whole_frame: bool) -> None:
        counters["graph_break"][info.kind] += 1
        if active.observer is not None:
            active.observer.breaks.append(info)
        if (self.fullgraph or Current.breaks_are_errors) and info.kind not in OF_THIS_CALL:
            said = "fullgraph=True" if self.fullgraph else "error_on_graph_break(True)"
            raise KINDS[info.kind].error(f"{said}, but there is a graph break:\n{info}")
        if logs.graph_breaks.isEnabledFor(10):
            what = "graph break; the frame runs eagerly" if whole_frame else "graph break"
            logs.graph_breaks.debug("%s at %s\n%s", what, info.where, info)


def _count(captured: Captured) -> None:
    counters["frames"]["ok"] += 1
    seconds["_compile.compile_inner"].append(captured.seconds)
    if captured.graph is not None:
        counters["stats"]["unique_graphs"] += 1
        counters["stats"]["calls_captured"] += sum(node.op.startswith("call") for node in captured.graph.graph.nodes)


@contextmanager
def _collecting_later() -> Iterator[None]:
    """A graph is many small objects that stay: the collector would go through them again and again while they are made."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


_compilers: dict[Any, Compiler] = {}
_compiled_codes: dict[int, types.CodeType] = {}


def get_compiler(backend: Any, fullgraph: bool, dynamic: bool | None, options: dict[str, Any], limit: int | None = None,
                 name: str | None = None, isolated: bool = False) -> Compiler:
    """One compiler for equal settings, so that compiling a function twice shares its versions; or one `isolated` from all others, which
    counts its own."""
    key = (backend, fullgraph, dynamic, repr(sorted(options.items(), key=repr)), limit, name, object() if isolated else None)
    with _lock:
        found = _compilers.get(key)
        if found is None:
            found = _compilers[key] = Compiler(backend, fullgraph, dynamic, options, limit, name)
        return found


def reset() -> None:
    """Forget all compiled versions."""
    with _lock:
        for code in _compiled_codes.values():
            _C.clear_cache(code)
        _compiled_codes.clear()
        for compiler in _compilers.values():
            compiler.states.clear()
            compiler.given_up.clear()


def _by_stance(compiler: Compiler) -> Compiler | None:
    """The compiler that takes its place; None: run eagerly."""
    if Current.backend is not None:
        return get_compiler(Current.backend, compiler.fullgraph, compiler.dynamic, compiler.options)
    return None if Current.stance == "force_eager" or config.disable else compiler


def optimize(function: Callable[..., Any], compiler: Compiler) -> Callable[..., Any]:
    """A callable that runs `function` with the frame hook on."""
    set_callback = _C.set_frame_callback

    def compiled(*args: Any, **kwargs: Any) -> Any:
        outer = active.compiler
        active.compiler = chosen = compiler if Current.usual and not config.disable else _by_stance(compiler)
        previous = set_callback(chosen)
        try:
            return function(*args, **kwargs)
        finally:
            set_callback(previous)
            active.compiler = outer

    _C.skip_code(compiled.__code__)
    return compiled


def _compile_piece(module: fx.GraphModule, backend: Any) -> Callable[..., Any]:
    """A part of a graph as a function of its own; what is told of captures does not tell of it. Sizes that varied in the graph do so here."""
    given = [(node.name, val) for node in module.graph.nodes if node.op == "placeholder" and isinstance(val := node.meta.get("val"), Tensor)]
    note_unknown_sizes(module._compiled().__code__, [(name, dim) for name, val in given for dim, n in enumerate(val.shape) if is_symbolic(n)])
    compiler = Compiler(backend, False, None, {})
    compiler.told = False
    return optimize(module.forward, compiler)


Pieces.compile = staticmethod(_compile_piece)


@contextmanager
def observing(observer: Any) -> Iterator[Any]:
    """Let `observer` see what is captured in this thread."""
    outer = active.observer
    active.observer = observer
    try:
        yield observer
    finally:
        active.observer = outer


def entries_of(code: types.CodeType) -> list[Captured]:
    """All compiled versions of a function's code, resume functions included."""
    return [
        entry for compiler in _compilers.values() for families in compiler.states.values() if origin(families.code) is code
        for state in families.states.values() for entry in state.entries
    ]
