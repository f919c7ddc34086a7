"""What users call: compile, disable, explain, mark_dynamic, reset and the like."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _C
from ..core.tensor import Tensor
from . import policy
from .break_kinds import Break
from .break_kinds import graph_break as _break
from .compiler import Compiler, get_compiler, observing, optimize
from .convert import Captured
from .debug import source_of
from .optimized_module import optimize_module
from .source import constant_source
from .stance import Exporting
from .variables.arrays import DTYPES, ArrayVariable
from .variables.base import Variable
from .variables.builtins import HANDLERS, handles
from .variables.tensor import TensorVariable

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class _Default:
    backend: Any = "inductor"


def get_default_backend() -> Any:
    """What `compile` takes for a backend where none is given: "inductor" at first."""
    return _Default.backend


def set_default_backend(backend: Any) -> None:
    """Let `compile` take `backend` (a name or a callable; None: "inductor") where none is given."""
    if not (backend is None or isinstance(backend, str) or callable(backend)):
        raise TypeError(f"backend must be a string or callable, got {type(backend)}")
    _Default.backend = "inductor" if backend is None else backend


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = None,
            mode: str | None = None, options: dict[str, Any] | None = None, name: str | None = None, disable: bool = False,
            recompile_limit: int | None = None, isolate_recompiles: bool = False, shapes_spec: Any = None) -> Any:  # fmt: skip
    """Compile a function or an nn.Module just in time.

    The first call with given kinds of inputs captures the tensor operations of the function and of all that it calls, hands
    the graphs to `backend`, and keeps the result behind guards. Usable as a decorator, with or without arguments.

    `fullgraph=True`: an error, instead of a graph break, at what can't be captured. `dynamic`: None, sizes become variables
    when they change; True, from the start; False, never. `backend`: "inductor", "aot_eager", "eager" or a callable
    `backend(gm, example_inputs) -> callable`; None is `get_default_backend()`, "inductor" at first. `mode` and `options` go to the
    backend. `disable=True` returns `model` as it is. `name`: what profiles call the compilation. `recompile_limit`: the most versions of a
    function, instead of torch._dynamo.config.recompile_limit (with `fullgraph` one more is an error); `isolate_recompiles`: versions that
    other calls of compile have made of the function do not count.
    """
    if shapes_spec is not None:
        raise NotImplementedError(f"torch.compile(shapes_spec={shapes_spec!r}) is not implemented; say dynamic=True, or mark sizes with "
                                  "torch._dynamo.mark_dynamic")
    if recompile_limit is not None and (not isinstance(recompile_limit, int) or recompile_limit < 1):
        raise ValueError(f"torch.compile(recompile_limit=...) is a positive number, got {recompile_limit!r}")
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
                                 name=name, disable=disable, recompile_limit=recompile_limit,
                                 isolate_recompiles=isolate_recompiles)  # fmt: skip
    if disable:
        return model
    if not callable(model):
        raise TypeError(f"torch.compile needs a callable or an nn.Module, got {type(model).__name__}")
    chosen = dict(options or {})
    if mode not in (None, "default"):
        chosen["mode"] = mode
    compiler = get_compiler(_Default.backend if backend is None else backend, fullgraph, dynamic, chosen, recompile_limit, name,
                            isolate_recompiles)
    check = getattr(compiler.backend, "check_options", None)
    if options and check is not None:
        check(options)
    if policy.is_nn_module(model):
        return optimize_module(model, compiler)
    return _compile_function(model, compiler)


def _compile_function(function: Callable[..., Any], compiler: Compiler) -> Callable[..., Any]:
    function = _original_of(function)
    compiled = optimize(_with_a_frame(function), compiler)
    functools.update_wrapper(compiled, function, updated=())
    compiled._flambeau_original = function  # type: ignore[attr-defined]
    compiled._torchdynamo_orig_callable = function  # type: ignore[attr-defined]
    return compiled


def _original_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a compiled function, or a bound method that is one, was made of; any other function itself."""
    inner = getattr(function, "_flambeau_original", function)
    return types.MethodType(inner, function.__self__) if isinstance(function, types.MethodType) and inner is not function else inner


def _with_a_frame(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is captured when it is called. Operators, what is written in C and the library's own functions are not: of them, one
    that calls them."""
    inner: Any = function
    while isinstance(inner, (functools.partial, types.MethodType)):
        inner = inner.func if isinstance(inner, functools.partial) else inner.__func__
    if isinstance(inner, type) or getattr(inner, "_flambeau_disabled", False):
        return function
    entry = inner if isinstance(inner, types.FunctionType) else type(inner).__call__
    if isinstance(entry, types.FunctionType) and not policy.skips_frames_of(
            entry.__code__.co_name, entry.__code__.co_filename, entry.__globals__.get("__name__")):
        return function
    owner = getattr(function, "__self__", None)
    bound = inner is not function or not isinstance(owner, types.ModuleType | None)      # to something that is not to be kept
    return _calling.__wrapped__(function) if bound else _calling(function)


@functools.lru_cache(256)
def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a code object of its own that calls another one; the same one again for the same."""
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return types.FunctionType(call.__code__.replace(), {"__name__": "called"}, call.__name__, None, call.__closure__)


# -- inside of a program -------------------------------------------------------------------------------------------------------
def is_compiling() -> bool:
    """True while the program is captured, or exported."""
    return Exporting.active


def is_exporting() -> bool:
    """True while torch.export traces the program."""
    return Exporting.active


HANDLERS[is_compiling] = lambda tx: tx.compiling()


def graph_break(msg: str = "") -> None:
    """Break the graph here; outside of compiled code it does nothing."""


@handles(graph_break)
def _graph_break(tx: Any, *args: Variable, **kwargs: Variable) -> Variable:
    _break("explicit graph break", "torch._dynamo.graph_break()")


def array_of(value: Any) -> Any:
    """A tensor as a NumPy array over its memory; other values as they are. In a graph the array is the tensor, with its gradient."""
    return value.numpy() if isinstance(value, Tensor) else value


@handles(array_of)
def _array_of(tx: Any, value: Variable) -> Variable:
    known = type(value) is TensorVariable and np.dtype(value.fake.dtype.numpy) in DTYPES
    return ArrayVariable(value) if known else value


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Never capture `fn`: it runs as plain Python, between two graphs. Usable as a decorator.

    With `recursive=False` only `fn` itself is left alone; what it calls is still captured.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if policy.is_nn_module(fn):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    if isinstance(fn, type):
        return fn
    inner = _C.undisturbed(fn) if recursive else fn

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    _C.skip_code(disabled.__code__)  # type: ignore[attr-defined]
    if not recursive and hasattr(fn, "__code__"):
        _C.skip_code(fn.__code__)
    disabled._flambeau_disabled = True  # type: ignore[attr-defined]
    return disabled


def allow_in_graph(fn: Any) -> Any:
    """Put calls of `fn` into the graph whole, without looking inside."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(item) for item in fn]
    HANDLERS[fn] = lambda tx, *args, **kwargs: tx.emit(fn, list(args), kwargs)
    return fn


def substitute(original: Callable, traceable: Callable) -> Callable:
    """Where a program calls `original`, capture `traceable` in its place."""
    if original in HANDLERS:
        raise ValueError(f"{original} is captured in a way of its own already")
    HANDLERS[original] = lambda tx, *args, **kwargs: tx.call(tx.wrap(traceable, constant_source(traceable)), list(args), kwargs)
    return traceable


def assume_constant_result(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Call `fn` once during capture and take its result as a constant."""
    HANDLERS[fn] = lambda tx, *args, **kwargs: tx.fold(fn, list(args), kwargs)
    return fn


# -- sizes ---------------------------------------------------------------------------------------------------------------------
def mark_dynamic(t: Tensor, index: int | list[int] | tuple[int, ...], **bounds: Any) -> None:
    """Take these dimensions of `t` as variables from the first compilation on. ConstraintViolationError where the program fixes one."""
    _mark(t, index, "_dynamo_dynamic_dims")


def maybe_mark_dynamic(t: Tensor, index: int | list[int] | tuple[int, ...]) -> None:
    """Take these dimensions of `t` as variables from the first compilation on, but for those that the program fixes."""
    _mark(t, index, "_dynamo_weak_dynamic_dims")


def mark_static(t: Tensor, index: int | list[int] | tuple[int, ...] | None = None) -> None:
    """Never take these dimensions (None: all) of `t` as variables."""
    _mark(t, index if index is not None else tuple(range(t.ndim)), "_dynamo_static_dims")


def _mark(t: Tensor, index: Any, attribute: str) -> None:
    if not isinstance(t, Tensor):
        raise TypeError(f"expected a Tensor, got {type(t).__name__}")
    dims = index if isinstance(index, (list, tuple)) else [index]
    for dim in dims:
        if not -t.ndim <= dim < t.ndim:
            raise IndexError(f"dimension {dim} is out of range for a tensor of shape {tuple(t.shape)}")
    marked = getattr(t, attribute, frozenset()) | {dim % t.ndim for dim in dims}
    setattr(t, attribute, frozenset(marked))


# -- explain -------------------------------------------------------------------------------------------------------------------
@dataclass
class Explanation:
    """What capture made of one call. `print` it."""

    captured: list[Captured] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)

    @property
    def graphs(self) -> list[Any]:
        return [entry.graph for entry in self.captured if entry.graph is not None]

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.breaks)

    @property
    def break_reasons(self) -> list[Break]:
        return self.breaks

    @property
    def op_count(self) -> int:
        return sum(node.op.startswith("call") for graph in self.graphs for node in graph.graph.nodes)

    @property
    def ops_per_graph(self) -> list[list[Any]]:
        return [[node.target for node in graph.graph.nodes if node.op.startswith("call")] for graph in self.graphs]

    @property
    def out_guards(self) -> list[str]:
        return [entry.guard_source for entry in self.captured]

    def distinct_breaks(self) -> list[tuple[Break, list[Break]]]:
        """Each line that breaks the graph, and for what, once, as it was met with most frames around; and all that it was met as."""
        met: dict[Any, list[Break]] = {}
        for info in self.breaks:
            cause = info.innermost
            met.setdefault((cause.kind, cause.where), []).append(info)
        return [(max((info.innermost for info in found), key=lambda cause: len(cause.stack)), found) for found in met.values()]

    def __str__(self) -> str:
        breaks = self.distinct_breaks()
        lines = [f"{self.graph_count} graph(s), {len(breaks)} graph break(s), {self.op_count} operation(s)"]
        lines += [f"  {info.where}: {info.kind}: {info.context}" for info, _ in breaks]
        for number, (info, found) in enumerate(breaks, 1):
            lines.append(f"\nbreak {number}{f' (met {len(found)} times)' if len(found) > 1 else ''}: {info}")
            lines += dict.fromkeys(f"  {outer.kind}: {outer.explanation}" for outer in found if outer.cause is not None)
        for number, entry in enumerate(self.captured, 1):
            lines.append(f"\nframe {number}: {entry.where} ({1000 * entry.seconds:.1f} ms, {len(entry.guards)} guards)")
            if entry.graph is not None:
                lines.append(source_of(entry.graph).strip())
        return "\n".join(lines)


def observe_call(explanation: Explanation, f: Any, args: tuple, kwargs: dict) -> None:
    """Run f once with capture; what is met is in the explanation, also where f raises."""
    function = f.__call__ if policy.is_nn_module(f) else _original_of(f)
    with observing(explanation):
        optimize(function, Compiler("eager", False, None, {}))(*args, **kwargs)


def explain(f: Any, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """`explain(f)(*args)` runs f once with capture and tells graphs, graph breaks with their way out, and guards."""

    def inner(*args: Any, **kwargs: Any) -> Explanation:
        explanation = Explanation()
        observe_call(explanation, f, args, kwargs)
        return explanation

    if extra_args or extra_kwargs:
        return inner(*extra_args, **extra_kwargs)
    return inner
