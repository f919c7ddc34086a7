"""The smallest program that shows what went wrong: `TORCHDYNAMO_REPRO_AFTER=dynamo` (or `aot`), `TORCHDYNAMO_REPRO_LEVEL`.

At level 1 the captured graph is written down, from 2 on the smallest graph that fails in the same way; from 3 on results are compared with
those of the graph run as it is, too, at the first call. The program is `minifier/repro_N.py` in the folder of `TORCH_COMPILE_DEBUG_DIR`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import fx
from ..core.settings import told
from ..core.symbolic import hint_of
from ..core.tensor import Tensor
from ..ops.generators import get_rng_state, set_rng_state
from ..ops.registry import OPERATORS
from . import config
from .debug import repro, write

Fails = Callable[[fx.GraphModule], bool]
_numbers = itertools.count()


class AccuracyError(AssertionError):
    """Compiled code gives other results than the graph that it was made of."""


def wanted() -> bool:
    """Is a program to be written when something fails?"""
    return config.repro_after in ("dynamo", "aot")


def report_crash(gm: fx.GraphModule, backend: Any, name: str, options: dict[str, Any], error: Exception) -> str:
    """Write the program for a backend that raised, and tell where it is."""
    def fails(candidate: fx.GraphModule) -> bool:
        try:
            backend(copied(candidate), _examples(candidate), **options)
        except Exception as now:
            return type(now) is type(error)
        return False

    return _written(gm if config.repro_level < 2 else minify(gm, fails), name, f"The backend raises {type(error).__name__}: {error}")


def compared(gm: fx.GraphModule, compiled: Callable[..., Any], backend: Any, name: str, options: dict[str, Any]) -> Callable[..., Any]:
    """`compiled`, whose first call on new memory is compared with the graph; AccuracyError with the place of the program."""
    checked = False

    def run(*args: Any) -> Any:
        nonlocal checked
        if not checked:
            checked = True
            if (difference := _difference(gm, compiled, args)) is not None:
                raise AccuracyError(f"{name} and the graph disagree: {difference}\n{_report_difference(gm, backend, name, options)}")
        return compiled(*args)

    return run


def _report_difference(gm: fx.GraphModule, backend: Any, name: str, options: dict[str, Any]) -> str:
    def fails(candidate: fx.GraphModule) -> bool:
        try:
            made = backend(copied(candidate), _examples(candidate), **options)
            return _difference(candidate, made, _real(candidate)) is not None
        except Exception:
            return False

    smallest = minify(gm, fails) if fails(gm) else gm
    return _written(smallest, name, f"Its results differ from the graph's. {_blame(smallest, name, backend, options)}")


def _blame(gm: fx.GraphModule, name: str, backend: Any, options: dict[str, Any]) -> str:
    """Whether the loop IR's NumPy reading differs too."""
    if name != "inductor":
        return ""
    try:
        read = backend(copied(gm), _examples(gm), **{**options, "native": False, "cache": False})
        agrees = _difference(gm, read, _real(gm)) is None
    except Exception as error:
        return f"The loop IR does not run: {type(error).__name__}: {error}"
    return ("The loop IR's NumPy reading agrees with the graph: the fault is in the generated code." if agrees else
            "The loop IR's NumPy reading differs as well: the fault is in tracing or lowering.")


# -- smaller graphs ---------------------------------------------------------------------------------------------------------------


def minify(gm: fx.GraphModule, fails: Fails) -> fx.GraphModule:
    """The smallest graph that is found that still fails: one result, few steps, the rest given as inputs."""
    best, smaller = gm, True
    while smaller:
        smaller = False
        for candidate in _candidates(best):
            if len(candidate.graph.nodes) < len(best.graph.nodes) and _steps(candidate) and fails(candidate):
                best, smaller = candidate, True
                break
    return best


def _steps(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op.startswith("call")]


def _candidates(gm: fx.GraphModule) -> Any:
    """Graphs with one of the steps for their result, the earliest first; then with a step, the latest first, given as an input."""
    steps = [node for node in _steps(gm) if isinstance(node.meta.get("val"), Tensor)]
    for node in steps:
        yield _part(gm, node, None)
    result = gm.graph.output_node().args[0]
    for node in reversed(steps):
        yield _part(gm, result, node)


def _part(gm: fx.GraphModule, result: Any, given: fx.Node | None) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            break
        copies[node] = graph.placeholder("given") if node is given else graph.node_copy(node, copies.__getitem__)
        copies[node].meta = dict(node.meta)
    graph.output((copies[result],) if isinstance(result, fx.Node) else fx.map_arg(result, copies.__getitem__))
    graph.eliminate_dead_code()
    for node in [n for n in graph.nodes if n.op == "placeholder" and not n.users]:
        graph.erase_node(node)
    ordered = sorted(graph.nodes, key=lambda n: n.op != "placeholder")
    moved = fx.Graph()
    again: dict[fx.Node, fx.Node] = {}
    for node in ordered:
        again[node] = moved.node_copy(node, again.__getitem__)
    return fx.GraphModule(gm, moved)


# -- running them ---------------------------------------------------------------------------------------------------------------


def copied(gm: fx.GraphModule) -> fx.GraphModule:
    """A graph that backends may change."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(gm, graph)


def _examples(gm: fx.GraphModule) -> list[Any]:
    return [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]


def _real(gm: fx.GraphModule) -> list[Any]:
    """Inputs with data."""
    made = []
    for value in _examples(gm):
        if not isinstance(value, Tensor):
            made.append(hint_of(value))
            continue
        shape = tuple(int(hint_of(n)) for n in value.shape)
        real = OPERATORS["randn"](shape) if value.dtype.is_floating_point else OPERATORS["zeros"](shape)
        made.append(real.to(value.dtype))
    return made


def _fresh(args: Sequence[Any]) -> list[Any]:
    return [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in args]


def _difference(gm: fx.GraphModule, compiled: Callable[..., Any], args: Sequence[Any]) -> str | None:
    """How the results of two ways to run a graph differ, on copies of the arguments."""
    state = get_rng_state()
    expected = gm(*_fresh(args))
    set_rng_state(state)
    for i, (a, b) in enumerate(zip(expected, compiled(*_fresh(args)))):
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            continue
        if a.shape != b.shape or a.dtype is not b.dtype:
            return f"result {i} is {a.dtype} of shape {tuple(a.shape)}, compiled {b.dtype} of shape {tuple(b.shape)}"
        tolerance = config.repro_tolerance  # type: ignore[attr-defined]
        if not bool(a.detach().isclose(b.detach(), rtol=tolerance, atol=tolerance, equal_nan=True).all()):
            return f"result {i} differs by up to {float((a - b).detach().abs().max()):.3g}"
    return None


def _written(gm: fx.GraphModule, name: str, what: str) -> str:
    folder = Path(told("TORCH_COMPILE_DEBUG_DIR", "flambeau_debug")) / "minifier"
    path = folder / f"repro_{next(_numbers)}.py"
    comment = "".join(f"# {line}\n" for line in what.splitlines())
    write(path, comment + repro(gm).replace("backend='inductor'", f"backend={name!r}"))
    return f"The smallest program that shows it ({len(_steps(gm))} operation(s)) is {path}. {what.splitlines()[0]}"
