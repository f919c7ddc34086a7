"""The verifier of loop programs: tables of checks over the data of a program, its schedule and its memory plan.

`verify(program, after)` raises `IRError`, which names the pass, the step and the buffer, with what was seen. A check is a short
function that yields what is wrong; what it refuses is wrong at values that it names (places.py), so a good program passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau.core.expr import free_variables, to_python
from flambeau.inductor.call import Call, print_call
from flambeau.inductor.loop.ir import Compute, Extern, Program, Step, View, print_program, print_step
from flambeau.inductor.loop.scheduler import Kernel
from flambeau.inductor.verify.calls import EXTERN
from flambeau.inductor.verify.order import wrongs_of
from flambeau.inductor.verify.places import Memory, possible_sizes
from flambeau.inductor.verify.schedule import KERNEL, UNIT, all_steps_run_once, steps_of
from flambeau.inductor.verify.steps import COMPUTE, Facts, result_is_like, view_is_inside


class IRError(AssertionError):
    """A loop program breaks one of its rules; the message names the pass after which it does, and prints the step."""


def verify(program: Program, after: str, nodes: Sequence[Any] | None = None, rewritten: bool = False,
           wanted: Sequence[Any] | None = None) -> None:
    """Refuse a program that is wrong after the pass `after`; with `nodes`, the schedule of it.

    `rewritten`: the nodes are no longer of the program's own steps, for a pass changed them. `wanted`: tensors and numbers like the
    results.
    """
    sizes = possible_sizes(program)
    facts = Facts(program, sizes, Memory(program, sizes))
    _check_buffers(facts, after)
    if nodes is not None:
        for step, wrong in all_steps_run_once(nodes, program.steps) if not rewritten else ():
            _refuse(after, step, wrong, program)
    order = program.steps if nodes is None else [step for node in nodes for step in steps_of(node)]
    for step in order:
        _check_step(step, facts, after)
    for node in nodes or ():
        kernel = getattr(node, "kernel", node)      # a product's
        for check in KERNEL if isinstance(kernel, Kernel) else ():
            for step, wrong in check(kernel, facts):
                _refuse(after, step, wrong, program)
    _check_results(facts, after, wanted)


def results_of(gm: Any) -> list[Any]:
    """What a graph's results are like."""
    results = next((n.args[0] for n in gm.graph.nodes if n.op == "output"), ())
    return [r.meta.get("val") if hasattr(r, "meta") else r for r in (results if isinstance(results, (tuple, list)) else (results,))]


def verify_memory(program: Program, unit: Any, after: str) -> None:
    """Refuse a memory plan in which buffers share bytes while both are needed, or have none."""
    facts = Facts(program, (sizes := possible_sizes(program)), Memory(program, sizes))
    for check in UNIT:
        for wrong in check(unit, facts):
            raise IRError(f"after {after}: {wrong}\n{print_nodes(unit.nodes)}")


def verify_call(call: Call, after: str) -> None:
    """Refuse a call whose steps need what is not there."""
    for wrong in wrongs_of(call):
        raise IRError(f"after {after}: {wrong}\n{print_call(call)}")


def print_nodes(nodes: Sequence[Any]) -> str:
    """What each node writes, a line each."""
    return "\n".join(f"    node {k}: {type(node).__name__} of {', '.join(dict.fromkeys(node.writes))}" for k, node in enumerate(nodes))


def _check_buffers(facts: Facts, after: str) -> None:
    program = facts.program
    for name in (n for n in (*program.inputs, *program.constants) if n is not None):
        if name not in program.buffers:
            raise IRError(f"after {after}: the input {name} has no buffer")
    for key, buffer in program.buffers.items():
        unknown = {name for n in (*buffer.shape, *buffer.strides) for name in free_variables(n)} - facts.sizes[0].keys()
        wrong = (f"is called {buffer.name}" if key != buffer.name else
                 f"has {len(buffer.shape)} sizes and {len(buffer.strides)} strides" if len(buffer.shape) != len(buffer.strides) else
                 f"has the unknown size {sorted(unknown)[0]}" if unknown else None)
        if wrong is not None:
            raise IRError(f"after {after}: the buffer {key} {wrong}")


def _check_step(step: Step, facts: Facts, after: str) -> None:
    program = facts.program
    for name in (*sorted(step.reads), *step.writes):
        if name not in program.buffers:
            _refuse(after, step, f"there is no buffer {name}", program)
    for wrong in _wrongs(step, facts):
        _refuse(after, step, wrong, program)
    own = ", ".join(step.writes)
    for name in sorted(step.reads):
        if (missing := facts.memory.read(name, f"the step that writes {own}")) is not None:
            _refuse(after, step, missing, program)
    if isinstance(step, Compute):
        if not step.kind.startswith("scatter"):
            _store(step.buffer, step, step, facts, after)
        return
    for view in step.outputs:
        _store(view.buffer, view, step, facts, after)


def _wrongs(step: Step, facts: Facts) -> Iterator[str]:
    if isinstance(step, Compute):
        for check in COMPUTE:
            yield from check(step, facts)
    else:
        for rule in EXTERN:
            yield from rule(step, facts)


def _store(name: str, piece: View | Compute, step: Step, facts: Facts, after: str) -> None:
    wrong = facts.memory.write(name, piece)
    if wrong is not None:
        _refuse(after, step, wrong, facts.program)


def _check_results(facts: Facts, after: str, wanted: Sequence[Any] | None) -> None:
    outputs = facts.program.outputs
    if wanted is not None and len(wanted) != len(outputs):
        raise IRError(f"after {after}: the program has {len(outputs)} results, the graph {len(wanted)}")
    for k, out in enumerate(outputs):
        if isinstance(out, View):
            wrong = view_is_inside(out, facts) or facts.memory.read(out.buffer, "the caller")
            if wrong is None and wanted is not None:
                wrong = result_is_like(out, wanted[k], k < facts.program.exact)
        else:
            unknown = free_variables(out) - facts.sizes[0].keys() if out is not None else ()
            wrong = f"{to_python(out)} has the unknown size {sorted(unknown)[0]}" if unknown else None      # type: ignore[arg-type]
        if wrong is not None:
            raise IRError(f"after {after}: result {k}: {wrong}\n" + "\n".join(print_program(facts.program)))


def _refuse(after: str, step: Step, wrong: str, program: Program) -> None:
    at = next((f"step {k}" for k, other in enumerate(program.steps) if other is step), "a step")
    kind = step.op if isinstance(step, Extern) else step.kind
    lines = "\n    ".join(print_step(step))
    raise IRError(f"after {after}: {at} ({kind} to {', '.join(step.writes)}): {wrong}\n    {lines}")
