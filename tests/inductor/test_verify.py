"""Programs of compiled functions are broken in many ways, and each is refused by name. That good ones pass shows in all other tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.core.dtypes import bool_, float16, float32, int64
from flambeau.core.expr import substitute, var
from flambeau.core.symbolic import ShapeEnv, SymFloat
from flambeau.inductor import graph as graphs
from flambeau.inductor.call import Call, Clear, Drop, Look, Make, Run, Take
from flambeau.inductor.cpu import memory
from flambeau.inductor.cpu.native import call_of
from flambeau.inductor.cpu.unit import Unit, print_unit
from flambeau.inductor.graph import CPU_PASSES
from flambeau.inductor.loop.boxes import Slot
from flambeau.inductor.loop.ir import Buffer, Compute, Extern, Program, Value, View, walk
from flambeau.inductor.loop.post_ops import PostOp
from flambeau.inductor.loop.scheduler import Kernel, schedule
from flambeau.inductor.targets import lower
from flambeau.inductor.verify import IRError, results_of, verify, verify_call, verify_memory
from flambeau.nn import functional as F

rng = np.random.default_rng(0)


def data(*shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


IDS = torch.from_numpy(rng.integers(0, 20, (6, 7)))
FUNCTIONS: dict[str, tuple[Callable, tuple, bool]] = {   # name: function, arguments, whether their sizes are dynamic
    "softmax": (lambda x: x.softmax(-1) * 2 + 1, (data(64, 96),), False),
    "dynamic": (lambda x: (x.softmax(-1), (x + 1).sum(0)), (data(12, 20),), True),
    "linear": (lambda x, w, b: F.gelu(F.linear(x, w, b)).sin().sum(0), (data(16, 32), data(48, 32), data(48)), False),
    "pieces": (lambda x, y: torch.cat([x, y * 2], 1).exp().softmax(1), (data(8, 32), data(8, 48)), False),
    "split": (lambda x: x.square().sum(), (data(400, 500),), False),
    "pad": (lambda x: F.pad(x, (2, 3)) * 2, (data(5, 9),), False),
    "embedding": (lambda w, ids: F.embedding(ids, w) + 1, (data(20, 8), IDS), False),
    "scatter": (lambda x, ids: torch.zeros(20, 8).index_add(0, ids.reshape(-1), x).relu(), (data(42, 8), IDS), False),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1).relu(), (data(2, 8, 9, 9), data(16, 8, 3, 3)), False),
    "dropout": (lambda x: F.dropout(x, 0.5), (data(64, 128),), False),
    "running": (lambda x: x.cummax(-1).values * 2, (data(6, 10),), False),
    "narrow": (lambda x: x.half().exp() + (x > 0).half(), (data(6, 10),), False),
    "chain": (lambda x: ((x @ x).sin() @ x).cos() @ x, (data(32, 32),), False),
    "chain of three": (lambda x, y, z: ((x @ x).sin() @ y).cos() @ z, (data(32, 32), data(32, 32), data(32, 32)), False),
}


@pytest.fixture(scope="module")
def captured() -> dict[str, Any]:
    """The graphs of primitives that the functions become."""
    found: dict[str, Any] = {}
    saved, graphs.config.native, cached, graphs.config.cache = graphs.config.native, False, graphs.config.cache, False
    for name, (fn, args, dynamic) in FUNCTIONS.items():
        seen: list[Any] = []
        graphs.listening.append(seen.append)
        try:
            torch.compile(fn, dynamic=dynamic)(*args)
        finally:
            graphs.listening.remove(seen.append)
        found[name] = seen[-1].gm
    graphs.config.native, graphs.config.cache = saved, cached
    return found


@dataclass
class Made:
    """What the compiler makes of one graph; it is made anew for each test."""

    program: Program
    wanted: list[Any]
    nodes: list[Any]
    unit: Unit

    def step(self, kind: str) -> Any:
        """The first step of a kind, or call of this name."""
        return next(s for s in self.program.steps if (s.op if isinstance(s, Extern) else s.kind) == kind)

    def put(self, old: Any, **changes: Any) -> str:
        """Change a step in its place; what it writes."""
        new = replace(old, **changes)
        self.program.steps[self.program.steps.index(old)] = new
        return new.writes[0]

    def kernel(self, members: int = 1, fold: bool = False) -> Kernel:
        """The first kernel with at least so many steps, that folds."""
        return next(n for n in self.nodes if isinstance(n, Kernel) and len(n.members) >= members and (n.split is not None or not fold))


def make(gm: Any) -> Made:
    program, _ = lower(gm)
    for one in CPU_PASSES:
        one(program)
    return Made(program, results_of(gm), [], None)      # type: ignore[arg-type]


def finish(made: Made) -> Made:
    made.nodes = schedule(made.program)
    made.unit = print_unit(made.program, made.nodes)
    return made


def rebuilt(root: Value, change: Callable[[Value, tuple], Value | None]) -> Value:
    """A body in which `change` takes the place of values."""
    new: dict[int, Value] = {}
    for v in walk([root]):
        args = tuple(new[a.uid] for a in v.args)
        new[v.uid] = change(v, args) or Value(v.op, args, v.dtype, v.attr, v.uid)
    return new[root.uid]


def loads(change: Callable[[Any], Any]) -> Callable[[Compute], dict[str, Any]]:
    """Change what a step's loads access."""
    def changed(v: Value, args: tuple) -> Value | None:
        return Value("load", args, v.dtype, change(v.attr), v.uid) if v.op == "load" else None
    return lambda step: {"body": rebuilt(step.body, changed)}


def values(op: str, **changes: Any) -> Callable[[Compute], dict[str, Any]]:
    """Change values of one operation: `kind`, `attr`, `args`, `op`."""
    def changed(v: Value, args: tuple) -> Value | None:
        if v.op != op:
            return None
        given = changes.get("args", lambda args: args)(args)
        return Value(changes.get("to", op), given, changes.get("kind", v.dtype), changes.get("attr", v.attr), v.uid)
    return lambda step: {"body": rebuilt(step.body, changed)}


def view(which: str, k: int, **changes: Any) -> Callable[[Extern], dict[str, Any]]:
    """Change one view of a call; a change may be a function of what was there."""
    def changed(step: Extern) -> dict[str, Any]:
        views = list(getattr(step, which))
        views[k] = views[k]._replace(**{n: c(getattr(views[k], n)) if callable(c) else c for n, c in changes.items()})
        return {which: tuple(views)}
    return changed


def of_step(kind: str, change: Callable[[Any], dict[str, Any]]) -> Callable[[Made], str]:
    def broken(made: Made) -> str:
        step = made.step(kind)
        return made.put(step, **change(step))
    return broken


def of_value(op: str, change: Callable[[Any], dict[str, Any]]) -> Callable[[Made], str]:
    """Change the first step that computes this."""
    def broken(made: Made) -> str:
        step = next(s for s in made.program.steps if isinstance(s, Compute) and any(v.op == op for v in s.values))
        return made.put(step, **change(step))
    return broken


def longer(step: Compute) -> dict[str, Any]:
    """The store's loop runs once more, over variables that say so."""
    (name, size), *rest = step.loops
    index = substitute(step.index, {name: var(name, size=size + 1)})
    return {"loops": ((name, size + 1), *rest), "index": index}


def half(step: Compute) -> dict[str, Any]:
    (name, size), *rest = step.loops
    return {"loops": ((name, size // 2), *rest), "index": substitute(step.index, {name: var(name, size=size // 2)}),
            "body": rebuilt(step.body, lambda v, args: Value("load", args, v.dtype, v.attr._replace(
                index=substitute(v.attr.index, {name: var(name, size=size // 2)})), v.uid) if v.op == "load" else None)}


def constant(step: Compute, number: Any, kind: Any) -> Value:
    return Value("constant", (), kind, number, 10**6)


# --- mutations of programs: (graph, what is done) -> the buffer or step that has to be named ---


def without_piece(made: Made) -> str:
    step = made.step("pointwise")
    made.program.steps.remove(step)
    return step.buffer


def reversed_order(made: Made) -> str:
    made.program.steps.reverse()
    return made.program.steps[0].writes[0]


def twice(made: Made) -> str:
    step = made.step("pointwise")
    made.program.steps.insert(made.program.steps.index(step), replace(step))
    return step.buffer


def write_after_read(made: Made) -> str:
    fold = made.step("max")
    made.program.steps.append(replace(fold))
    return fold.buffer


def into_input(made: Made) -> str:
    step = made.step("pointwise")
    made.program.buffers["arg0"] = replace(made.program.buffers["arg0"], shape=made.program.buffers[step.buffer].shape,
                                           strides=made.program.buffers[step.buffer].strides, dtype=made.program.buffers[step.buffer].dtype)
    made.put(step, buffer="arg0")
    return "arg0"


def lost_buffer(made: Made) -> str:
    step = made.step("pointwise")
    made.program.buffers.pop(step.buffer)
    return step.buffer


def renamed_buffer(made: Made) -> str:
    name = made.step("pointwise").buffer
    made.program.buffers[name] = replace(made.program.buffers[name], name="other")
    return name


def wider_result(made: Made) -> str:
    out = made.program.outputs[0]
    assert isinstance(out, View)
    made.program.outputs[0] = out._replace(offset=1)
    return out.buffer


def unknown_result_size(made: Made) -> str:
    made.program.outputs[1] = var("s99")
    return "s99"


def result_lost(made: Made) -> str:
    made.program.outputs.pop()
    return "1 results, the graph 2"


def results_swapped(made: Made) -> str:
    made.program.outputs.reverse()
    return made.program.outputs[0].buffer       # type: ignore[union-attr]


def result_by_columns(made: Made) -> str:
    out = made.program.outputs[0]
    assert isinstance(out, View)
    made.program.outputs[0] = out._replace(strides=(1, out.shape[0]))
    return out.buffer


def unmade_result(made: Made) -> str:
    made.program.buffers["ghost"] = Buffer("ghost", float32, (4,), (1,))
    made.program.outputs[0] = View("ghost", float32, (4,), (1,))
    return "ghost"


def smaller_buffer(made: Made) -> str:
    name = made.program.steps[0].writes[0]
    old = made.program.buffers[name]
    made.program.buffers[name] = replace(old, shape=(*old.shape[:-1], old.shape[-1] - 1))
    return name


def unknown_size(made: Made) -> str:
    name = made.program.steps[0].writes[0]
    made.program.buffers[name] = replace(made.program.buffers[name], shape=(var("s77"),), strides=(1,))
    return name


def shifted(step: Compute) -> dict[str, Any]:
    return {"index": step.index + 1}


def negative(step: Compute) -> dict[str, Any]:
    return {"index": step.index - 1}


def swapped_strides(step: Compute) -> dict[str, Any]:
    """Two loops with each other's steps: a hole and an overlap inside of the buffer."""
    (a, n), (b, m) = step.loops
    x, y = var(a, size=n), var(b, size=m)
    return {"index": y * m + x if n <= m else x * n + y * 0}


def mixed_loops(step: Compute) -> dict[str, Any]:
    names = [name for name, _ in step.loops]
    return {"loops": tuple((names[0], size) for _, size in step.loops)}


PROGRAMS: list[tuple[str, str, Callable[[Made], str]]] = [
    # stores
    ("softmax", "a store one element too far", of_step("pointwise", shifted)),
    ("softmax", "a store before the buffer", of_step("pointwise", negative)),
    ("dynamic", "a store too far, of symbolic size", of_step("pointwise", shifted)),
    ("dynamic", "a store before the buffer, of symbolic size", of_step("pointwise", negative)),
    ("softmax", "a loop longer than the buffer", of_step("pointwise", longer)),
    ("dynamic", "a loop longer than the buffer, of symbolic size", of_step("pointwise", longer)),
    ("softmax", "a fold's store too far", of_step("max", shifted)),
    ("scatter", "a scatter without a check of its positions", of_step("scatter_add", lambda s: {"index_values": {
        n: v.args[0] for n, v in s.index_values.items()}})),
    ("scatter", "a scatter into a shorter buffer", smaller_buffer),
    ("scatter", "a scatter that knows no position", of_step("scatter_add", lambda s: {"index_values": {}})),
    # coverage and order
    ("softmax", "half of a buffer is written", of_step("max", half)),
    ("dynamic", "half of a buffer of symbolic size is written", of_step("max", half)),
    ("pieces", "a piece is missing", without_piece),
    ("pieces", "a piece stands twice", twice),
    ("softmax", "loops with each other's strides", of_step("pointwise", swapped_strides)),
    ("softmax", "steps in reverse order", reversed_order),
    ("softmax", "a write after the read", write_after_read),
    ("softmax", "a write to an input", into_input),
    ("softmax", "a buffer that nobody made", unmade_result),
    ("embedding", "a buffer that is gone", lost_buffer),
    ("embedding", "a buffer under another name", renamed_buffer),
    ("softmax", "a result beyond its buffer", wider_result),
    ("dynamic", "a result of unknown size", unknown_result_size),
    ("dynamic", "a result is lost", result_lost),
    ("dynamic", "results in another order", results_swapped),
    ("softmax", "a result in another memory order", result_by_columns),
    ("dynamic", "a buffer of unknown size", unknown_size),
    # loads
    ("softmax", "a load too far", of_step("pointwise", loads(lambda a: a._replace(index=a.index + 1)))),
    ("dynamic", "a load too far, of symbolic size", of_step("sum", loads(lambda a: a._replace(index=a.index + 1)))),
    ("softmax", "a load before the buffer", of_step("max", loads(lambda a: a._replace(index=a.index - 1)))),
    ("softmax", "a load by a variable that there is not", of_step("max", loads(lambda a: a._replace(index=a.index + var("i9", size=1))))),
    ("pad", "a masked load that is masked no more", of_step("pointwise", lambda s: {"body": rebuilt(
        s.body, lambda v, args: Value("load", args[:-1], v.dtype, v.attr._replace(masked=False), v.uid) if v.op == "load" else None)})),
    ("pad", "a mask that holds beyond the buffer", of_step("pointwise", lambda s: {"body": rebuilt(
        s.body, lambda v, args: Value("load", (constant(s, True, bool_),), v.dtype, v.attr, v.uid) if v.op == "load" else None)})),
    ("embedding", "a computed position checked against another size", of_step("pointwise", values("checked", attr=21))),
    ("embedding", "a computed position that is not checked", of_step("pointwise", values("checked", to="add", attr=None))),
    # types
    ("softmax", "an i64 body stored to f32", of_step("pointwise", lambda s: {"body": Value("to_dtype", (s.body,), int64, None, 10**6)})),
    ("softmax", "operands of two types", of_value("mul", values("constant", kind=int64, attr=2))),
    ("softmax", "a number computed of a size that there is not",
     of_value("mul", values("constant", attr=SymFloat.variable("s77", ShapeEnv())))),
    ("softmax", "a value of another type than its operation gives", of_step("pointwise", values("exp", kind=int64))),
    ("softmax", "an operation that there is not", of_step("pointwise", values("exp", to="exq"))),
    ("softmax", "an operation with an operand too many", of_step("pointwise", values("exp", args=lambda args: (*args, *args)))),
    ("softmax", "a load of another type than the buffer", of_step("max", values("load", kind=int64))),
    ("narrow", "a float constant in a bool", of_step("pointwise", values("constant", kind=bool_))),
    ("narrow", "a rounding to the dtype that it is computed in", of_step("pointwise", values("round_to", attr=float32))),
    ("embedding", "positions that are not int64", of_step("pointwise", values("checked", kind=float32))),
    # kinds and loops
    ("softmax", "a kind of step that there is not", of_step("max", lambda s: {"kind": "median"})),
    ("softmax", "a fold without loops to fold", of_step("pointwise", lambda s: {"kind": "sum"})),
    ("softmax", "a pointwise step with loops to fold", of_step("max", lambda s: {"kind": "pointwise"})),
    ("softmax", "two loops of one name", of_step("pointwise", mixed_loops)),
    ("softmax", "a loop that is longer than its variable says", of_step("pointwise", lambda s: {
        "loops": ((s.loops[0][0], s.loops[0][1] * 2), *s.loops[1:])})),
    # library calls
    ("linear", "a library call that there is not", of_step("mm", lambda s: {"op": "mmm"})),
    ("linear", "a product of a view outside of its buffer", of_step("mm", view("inputs", 0, offset=1))),
    ("linear", "a product of rows too far apart", of_step("mm", view("inputs", 1, strides=lambda s: tuple(2 * n for n in s)))),
    ("linear", "a product into a view outside of its buffer", of_step("mm", view("outputs", 0, shape=lambda s: (s[0] + 1, s[1])))),
    ("linear", "a product into half of its buffer", of_step("mm", lambda s: {
        "inputs": (s.inputs[0]._replace(shape=(8, 32)), *s.inputs[1:]), "outputs": (s.outputs[0]._replace(shape=(8, 48)),)})),
    ("linear", "a product of matrices that do not fit", of_step("mm", view("inputs", 0, shape=(16, 31)))),
    ("linear", "a product with an operand too few", of_step("mm", lambda s: {"inputs": s.inputs[1:]})),
    ("linear", "a product that sees another type", of_step("mm", view("inputs", 0, dtype=float16))),
    ("linear", "a bias of another length", of_step("mm", view("inputs", 2, shape=lambda s: (*s[:-1], 47)))),
    ("chain", "an epilogue that takes a tensor which is not there", of_step("mm", lambda s: {
        "epilogue": (PostOp("add", tensor=True),)})),
    ("chain", "a product of no contiguous dimension", of_step("mm", view("inputs", 0, shape=(32, 32), strides=(0, 0)))),
    ("convolution", "layouts that there are not", of_step("convolution", lambda s: {"layouts": ("given", "free", "nchw")})),
    ("convolution", "a convolution with another stride", of_step("convolution", lambda s: {
        "args": (*s.args[:-4], (2, 2), *s.args[-3:])})),
    ("convolution", "a convolution without its primitive", of_step("convolution", lambda s: {"target": None})),
    ("dropout", "a draw from a state of another type", of_step("philox_uniform", view("inputs", 0, shape=(1,)))),
    ("dropout", "a draw of another count", of_step("philox_uniform", lambda s: {
        "args": (*s.args[:2], (64, 127), *s.args[3:])})),
    ("running", "an eager call that takes an operand twice", of_step("eager", lambda s: {
        "args": (Slot(0), Slot(1), *s.args[1:])})),
    ("running", "an eager call whose result is another", of_step("eager", view("outputs", 0, shape=(10, 6), strides=(6, 1)))),
    ("running", "an eager call with one result too few", of_step("eager", lambda s: {"outputs": s.outputs[:1]})),
]


@pytest.mark.parametrize(("graph", "broken"), [pytest.param(g, b, id=what) for g, what, b in PROGRAMS])
def test_a_broken_program_is_refused(captured: dict[str, Any], graph: str, broken: Callable[[Made], str]) -> None:
    made = make(captured[graph])
    verify(made.program, "nothing", wanted=made.wanted)
    named = broken(made)
    with pytest.raises(IRError, match="after breaking") as refused:
        verify(made.program, "breaking", wanted=made.wanted)
    assert named in str(refused.value).split("\n")[0]


# --- mutations of schedules ---


def lost_node(made: Made) -> str:
    return made.nodes.pop().writes[0] if isinstance(made.nodes[-1], Extern) else made.nodes.pop().members[0].step.buffer


def doubled_node(made: Made) -> str:
    made.nodes.append(made.nodes[0])
    return made.nodes[0].members[0].step.buffer


def backward_nodes(made: Made) -> str:
    made.nodes.reverse()
    return next(iter(made.nodes[0].writes))


def swapped_members(made: Made) -> str:
    made.kernel(2).members.reverse()
    return made.kernel(2).members[0].step.buffer


def lost_loop(made: Made) -> str:
    m = made.kernel().members[0]
    m.subs = dict(list(m.subs.items())[1:])
    return m.step.buffer


def other_size(made: Made) -> str:
    kernel = made.kernel()
    kernel.sizes[0] = kernel.sizes[0] * 2
    return kernel.members[0].step.buffer


def stuck_loop(made: Made) -> str:
    m = made.kernel().members[0]
    m.subs[next(iter(m.subs))] = 0
    return m.step.buffer


def shifted_iteration(made: Made) -> str:
    m = made.kernel(2).members[-1]
    name, size = m.step.loops[0]
    m.subs[name] = (size - 1) - m.subs[name]
    return m.step.buffer


def foreign_step(made: Made) -> str:
    kernel = made.kernel()
    kernel.members[0].step = replace(kernel.members[0].step)
    return kernel.members[0].step.buffer


NODES: list[tuple[str, str, Callable[[Made], str]]] = [
    ("softmax", "a kernel is lost", lost_node),
    ("softmax", "a kernel runs twice", doubled_node),
    ("chain", "kernels in reverse order", backward_nodes),
    ("softmax", "steps of a kernel in reverse order", swapped_members),
    ("softmax", "a step without one of its loops", lost_loop),
    ("softmax", "a kernel's loop twice as long", other_size),
    ("dynamic", "a kernel's loop of symbolic size twice as long", other_size),
    ("softmax", "a step that stays in one iteration", stuck_loop),
    ("softmax", "a step that reads another iteration's result", shifted_iteration),
    ("dynamic", "a step that reads another iteration's result, of symbolic size", shifted_iteration),
    ("softmax", "a step that the program does not have", foreign_step),
]


@pytest.mark.parametrize(("graph", "broken"), [pytest.param(g, b, id=what) for g, what, b in NODES])
def test_a_broken_schedule_is_refused(captured: dict[str, Any], graph: str, broken: Callable[[Made], str]) -> None:
    made = finish(make(captured[graph]))
    verify(made.program, "nothing", made.nodes)
    named = broken(made)
    with pytest.raises(IRError, match="after breaking") as refused:
        verify(made.program, "breaking", made.nodes)
    assert named in str(refused.value).split("\n")[0]


# --- mutations of memory plans ---


def same_place(made: Made) -> str:
    first, second = list(made.unit.places)[:2]
    made.unit.places[second] = made.unit.places[first]
    return second


def overlapping(made: Made) -> str:
    first, second = list(made.unit.places)[:2]
    made.unit.places[second] = made.unit.places[first] + 64
    made.unit.arena += 10**6
    return second


def small_arena(made: Made) -> str:
    made.unit.arena -= 64
    return max(made.unit.places, key=lambda name: made.unit.places[name])


def unaligned(made: Made) -> str:
    name = max(made.unit.places, key=lambda name: made.unit.places[name])
    made.unit.places[name] += 4
    made.unit.arena += 64
    return name


def without_place(made: Made) -> str:
    name = next(iter(made.unit.places))
    del made.unit.places[name]
    return name


def without_argument(made: Made) -> str:
    made.unit.arguments.remove("arg0")
    return "arg0"


def within_another(made: Made) -> str:
    first, second = list(made.unit.places)[:2]
    del made.unit.places[second]
    made.unit.within[second] = first
    return second


UNITS: list[tuple[str, str, Callable[[Made], str]]] = [
    ("chain", "two live buffers in one place", same_place),
    ("chain", "two live buffers that overlap", overlapping),
    ("chain", "a buffer that lies in another's place, which is not done with", within_another),
    ("chain", "an arena without room", small_arena),
    ("chain", "a buffer that is not aligned", unaligned),
    ("chain", "a buffer without a place", without_place),
    ("chain", "an input that is not given", without_argument),
]


@pytest.mark.parametrize(("graph", "broken"), [pytest.param(g, b, id=what) for g, what, b in UNITS])
def test_a_broken_memory_plan_is_refused(captured: dict[str, Any], graph: str, broken: Callable[[Made], str]) -> None:
    made = finish(make(captured[graph]))
    verify_memory(made.program, made.unit, "nothing")
    named = broken(made)
    with pytest.raises(IRError, match="after breaking") as refused:
        verify_memory(made.program, made.unit, "breaking")
    assert named in str(refused.value).split("\n")[0]


# --- mutations of calls ---


def first_of(call: Call, *kinds: type) -> int:
    return next(k for k, step in enumerate(call.steps) if isinstance(step, kinds))


def not_taken(call: Call) -> str:
    return call.steps.pop(first_of(call, Take)).buffer


def not_made(call: Call) -> str:
    return call.steps.pop(first_of(call, Make)).buffer


def made_twice(call: Call) -> str:
    at = first_of(call, Make)
    call.steps.insert(at, call.steps[at])
    return call.steps[at].buffer


def taken_late(call: Call) -> str:
    call.steps.insert(0, Clear())
    return call.steps[first_of(call, Take)].buffer


def dropped_early(call: Call) -> str:
    at = first_of(call, Run)
    name = call.steps[at].buffers[0]
    call.steps.insert(at, Drop((name,)))
    return name


def result_dropped(call: Call) -> str:
    name = next(r.buffer for r in call.results if isinstance(r, Look))
    call.steps.append(Drop((name,)))
    return name


def unknown_size(call: Call) -> str:
    at = first_of(call, Make)
    call.steps[at] = call.steps[at]._replace(shape=(var("s99", lo=1),))
    return "s99"


@pytest.mark.parametrize("broken", [not_taken, not_made, made_twice, taken_late, dropped_early, result_dropped, unknown_size])
def test_a_broken_call_is_refused(captured: dict[str, Any], broken: Callable[[Call], str]) -> None:
    made = finish(make(captured["chain"]))
    call = call_of(made.program, made.unit, arrays=False)
    verify_call(call, "nothing")
    named = broken(call)
    with pytest.raises(IRError, match="after breaking") as refused:
        verify_call(call, "breaking")
    assert named in str(refused.value).split("\n")[0]


# --- mutations of stages ---


def stage_of(made: Made, name: str, last: bool = False) -> Any:
    """The first segment that touches a buffer, or the last."""
    return [segment for segment in made.unit.segments if name in segment.arguments][-1 if last else 0]


def gone_too_early(made: Made) -> str:
    name = next(n for n in made.unit.arguments if n in made.program.donated and stage_of(made, n) is not made.unit.segments[0])
    stage_of(made, name, last=True).dead.remove(name)
    made.unit.segments[0].dead.append(name)
    return name


def temporary_gone_too_early(made: Made) -> str:
    name = next(n for n in made.unit.arguments if made.program.buffers[n].kind == "temp")
    stage_of(made, name, last=True).dead.remove(name)
    stage_of(made, name).dead.append(name)
    return name


def there_too_late(made: Made) -> str:
    name = next(n for n in made.unit.arguments if made.program.buffers[n].kind == "temp")
    stage_of(made, name).born.remove(name)
    stage_of(made, name, last=True).born.append(name)
    return name


def there_twice(made: Made) -> str:
    name = next(n for n in made.unit.arguments if made.program.buffers[n].kind == "temp")
    stage_of(made, name, last=True).born.append(name)
    return name


def result_gone(made: Made) -> str:
    name = next(n for n in made.unit.arguments if made.program.buffers[n].kind == "output")
    made.unit.segments[-1].dead.append(name)
    return name


def not_its_own(made: Made) -> str:
    name = next(n for n in made.unit.arguments if n in made.program.donated)
    made.program.donated.remove(name)
    return name


def not_given(made: Made) -> str:
    return made.unit.segments[-1].arguments.pop(0)


def lost_segment(made: Made) -> str:
    return str(list(made.unit.segments.pop(1).nodes)[-1])


STAGES: list[tuple[str, Callable[[Made], str]]] = [
    ("an input is let go of before it is read", gone_too_early),
    ("a temporary is let go of before it is read", temporary_gone_too_early),
    ("a temporary gets memory after it is written", there_too_late),
    ("a temporary gets memory twice", there_twice),
    ("a result is let go of", result_gone),
    ("the caller's own input is let go of", not_its_own),
    ("a segment is not given what it reads", not_given),
    ("a segment is lost", lost_segment),
]


@pytest.mark.parametrize("broken", [pytest.param(b, id=what) for what, b in STAGES])
def test_broken_stages_are_refused(captured: dict[str, Any], broken: Callable[[Made], str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LARGE", 1), ("STAGE", 1), ("STAGES", 10**6), ("WORTHWHILE", 1)):
        monkeypatch.setattr(memory, name, value)
    made = make(captured["chain of three"])
    made.program.donated.update(name for name in made.program.inputs if name)
    finish(made)
    assert len(made.unit.segments) > 2
    verify_memory(made.program, made.unit, "nothing")
    named = broken(made)
    with pytest.raises(IRError, match="after breaking") as refused:
        verify_memory(made.program, made.unit, "breaking")
    assert named in str(refused.value).split("\n")[0]
