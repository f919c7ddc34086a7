"""Generated kernels for eager execution: the compiler run on one operator's own graph.

`operator_kernel(fn)` serves an operator that a library would do in many passes (softmax, norms, cross entropy, optimizer
steps), and large arrays through one pointwise primitive. Sizes are symbolic, so that one kernel serves all:
what counts is the dtypes, the memory orders, which sizes are 0, 1 or equal, and the other arguments. Small arrays are left
to NumPy, as is everything where g++ is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from flambeau.aot.trace import TraceMode, tracing
from flambeau.core import dispatch
from flambeau.core.dtypes import dtype_of_numpy
from flambeau.core.size import is_dense, memory_order, permuted_strides
from flambeau.core.symbolic import DataDependentFloat, ShapeEnv, SymFloat, SymInt
from flambeau.core.tensor import Tensor, fake
from flambeau.fx import GraphModule, map_aggregate
from flambeau.inductor.cpu.compile import have_compiler
from flambeau.inductor.graph import compile_graph
from flambeau.ops.primitives import generated

MOST = 64       # kernels of one operator; beyond, something varies that should not

Kernel = Callable[..., Any]
Check = Callable[[Sequence[Any]], bool]


def operator_kernel(fn: Callable) -> Kernel:
    """A kernel for `fn`, a function of tensors over primitives: takes arrays for tensors, returns an array or a tuple.

    It answers NotImplemented where it has nothing better than `fn` itself.
    """
    made: dict[Any, list[tuple[Check | None, Callable | None]]] = {}
    fixed: set[int] = set()  # the floats that `fn` looks at: they are part of the key, the others are parameters

    def kernel(*args: Any) -> Any:
        key = describe(args, fixed)
        variants = made.setdefault(key, [])
        for holds, run in variants:
            if holds is None or holds(args):
                return NotImplemented if run is None else run(args)
        variants.append(_make(fn, args, fixed) if len(made) < MOST and len(variants) < MOST else (None, None))
        run = variants[-1][1]
        return NotImplemented if run is None else run(args)
    return kernel


def generated_cpu(fn: Callable, args: tuple) -> Any:
    """What the kernel of `fn`, made at its first call, makes of arrays and other arguments. The slot of `ops/primitives.py`."""
    kernel = _kernels.get(fn)
    if kernel is None:
        kernel = _kernels[fn] = operator_kernel(fn)
    return kernel(*args)


_kernels: dict[Any, Kernel] = {}


def describe(args: Sequence[Any], fixed: Collection[int] = ()) -> tuple:
    """What a kernel for `args` depends on; `fixed` are the positions of floats whose value matters."""
    sizes: dict[int, int] = {0: 0, 1: 1}
    key: list[Any] = []
    for position, a in enumerate(args):
        if type(a) is float and position not in fixed:
            key.append(float)
        elif type(a) is np.ndarray:
            pattern = tuple([sizes.setdefault(n, len(sizes)) for n in a.shape])
            key.append((a.dtype, pattern, None if a.flags.c_contiguous else a.strides if a.ndim < 2 else _order(a)))
        else:
            key.append(a if a.__hash__ is not None and not isinstance(a, (list, dict)) else repr(a))
            key.append(type(a))
    return tuple(key)


def _order(a: np.ndarray) -> tuple[tuple, tuple] | None:
    """(the dimensions that are not expanded, their memory order) of an array that is dense but for expanded dimensions; None
    for others, which are copied."""
    kept = tuple([d for d, (n, s) in enumerate(zip(a.shape, a.strides)) if s or n == 1])
    shape, strides = tuple([a.shape[d] for d in kept]), tuple([a.strides[d] // a.itemsize for d in kept])
    return (kept, tuple(memory_order(strides, shape))) if is_dense(shape, strides) else None


def _strides_like(a: np.ndarray, shape: Sequence[Any]) -> tuple | None:
    """The strides of a's memory order for these sizes; None for contiguous ones."""
    order = None if a.flags.c_contiguous else _order(a)
    if order is None:
        return None
    kept = dict(zip(order[0], permuted_strides([shape[d] for d in order[0]], order[1])))
    return tuple([kept.get(d, 0) for d in range(a.ndim)])


def _make(fn: Callable, args: Sequence[Any], fixed: set[int]) -> tuple[Check | None, Callable | None]:
    """The compiled kernel, from the tuple of arguments to the result (None where there is none), and for which arguments
    it holds (None: for all like these)."""
    if not have_compiler(asked=False) or any(type(a) is np.ndarray and a.dtype.kind == "c" for a in args):
        return None, None
    while True:
        try:
            return _build(fn, args, fixed)
        except DataDependentFloat as looked_at:
            fixed.add(int(looked_at.args[0][1:]))


def _build(fn: Callable, args: Sequence[Any], fixed: Collection[int]) -> tuple[Check | None, Callable | None]:
    env = ShapeEnv()
    sizes: dict[str, tuple[int, int]] = {}
    made = [_stand_in(a, position, env, sizes, fixed) for position, a in enumerate(args)]
    floats = [position for position, a in enumerate(made) if isinstance(a, SymFloat)]
    inputs = [(f"size{position}_{d}", made[position]._layout.shape[d]) for position, d in sizes.values()]
    mode, answer = trace_call(fn, made, [*inputs, *((f"number{position}", made[position]) for position in floats)])
    holds = None
    if env.guards:  # it looked at the sizes
        names = {name: f"args[{position}].shape[{d}]" for name, (position, d) in sizes.items()}
        text = " and ".join(env.text(guard.relation, names) for guard in env.guards)
        holds = eval(f"lambda args: {text}")
    if mode.constants:
        return holds, None
    graph = compile_graph(GraphModule({}, mode.graph), arrays=True)
    if graph.unit is None or not graph.unit.native or graph.fallbacks:
        return holds, None
    return holds, _runner(graph, args, list(sizes.values()), floats, isinstance(answer, tuple))


def trace_call(fn: Callable, made: Sequence[Any], sizes: Sequence[tuple[str, Any]]) -> tuple[TraceMode, Any]:
    """(the graph of `fn(*made)` over fake tensors, its answer); its inputs are the named `sizes`, then the tensors."""
    mode = TraceMode()
    with tracing(mode), dispatch.grad_enabled(False):
        for name, value in sizes:
            mode.size_input(name, value)
        for position, a in enumerate(made):
            if isinstance(a, Tensor):
                mode.input(f"array{position}", a)
        answer = fn(*made)
        leaves: list[Any] = []
        map_aggregate(answer, leaves.append)
        mode.graph.output(tuple([mode.argument(leaf) for leaf in leaves]))
    mode.graph.eliminate_dead_code(lambda node: False)
    return mode, answer


def _stand_in(a: Any, position: int, env: ShapeEnv, sizes: dict, fixed: Collection[int]) -> Any:
    """A fake tensor of symbolic sizes for an array, a variable for a float; other arguments as they are."""
    if type(a) is float and position not in fixed:
        return SymFloat.variable(f"f{position}", env)
    if type(a) is not np.ndarray:
        return a
    shape = []
    for d, n in enumerate(a.shape):
        size = env.create_symint(n, f"args[{position}].shape[{d}]")
        if isinstance(size, SymInt):
            sizes.setdefault(str(size), (position, d))
        shape.append(size)
    return fake(tuple(shape), dtype_of_numpy(a.dtype), strides=_strides_like(a, shape))


def _runner(call: Any, args: Sequence[Any], sizes: list[tuple[int, int]], floats: list[int], several: bool) -> Callable:
    places = [k for k, a in enumerate(args) if type(a) is np.ndarray]

    def run(args: Sequence[Any]) -> Any:
        inputs = [args[k].shape[d] for k, d in sizes]
        inputs += [args[k] for k in (*floats, *places)]
        results = call(inputs)
        return tuple(results) if several else results[0]
    return run


def install() -> None:
    """Serve eager execution: every operator that asks for a generated kernel, and the primitives."""
    generated.cpu = generated_cpu
