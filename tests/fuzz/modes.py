"""The modes: how programs are drawn and run in each, and how a failing one is written as a script by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent
from typing import Any

from . import execute, whole
from .compare import Difference
from .program import Program


@dataclass(frozen=True)
class Mode:
    """`draws`: for what the generator draws; `run`: the difference of each program, or None; `together`: how many at once;
    `tries`: how many runs making one small may take."""

    draws: str
    run: Callable[[list[Program], Any], list[Difference | None]]
    script: Callable[[Program], str]
    together: int = 1
    tries: int = 400


def _eager(programs: list[Program], theirs: Any) -> list[Difference | None]:
    return [execute.eager(p, theirs) for p in programs]


def _gradient(programs: list[Program], theirs: Any) -> list[Difference | None]:
    return [whole.gradient(p, theirs) for p in programs]


def _compiled(programs: list[Program], theirs: Any) -> list[Difference | None]:
    return whole.compiled(programs, dynamic=False)


def _dynamic(programs: list[Program], theirs: Any) -> list[Difference | None]:
    return whole.compiled(programs, dynamic=True)


def _captured(programs: list[Program], theirs: Any) -> list[Difference | None]:
    return [whole.captured(p) for p in programs]


def _cuda(programs: list[Program], theirs: Any) -> list[Difference | None]:
    return [whole.on_a_gpu(p) for p in programs]


def _cuda_compiled(programs: list[Program], theirs: Any) -> list[Difference | None]:
    return [whole.compiled_on_a_gpu(p) for p in programs]


def _vmap(programs: list[Program], theirs: Any) -> list[Difference | None]:
    return [whole.batched(p, theirs) for p in programs]


def _eager_script(program: Program) -> str:
    return program.script()


def _grad_script(program: Program) -> str:
    return program.script(_GRADIENTS.format(values=_values(program), inputs=_wanted(program)))


def _cuda_script(program: Program) -> str:
    head, imported, rest = program.script().partition("flambeau as torch\n")
    return f"{head}{imported}torch.set_default_device('cuda')   # without this it is right\n{rest}"


def _compiled_script(how: str = "") -> Callable[[Program], str]:

    def script(program: Program) -> str:
        inputs = "\n    ".join(i.code() for i in program.inputs)
        names = ", ".join(i.name for i in program.inputs)
        text = (
            "import numpy\nimport flambeau as torch\n\n\n"
            + program.function()
            + _COMPILED.format(inputs=inputs, names=names, values=_values(program), how=how)
        )
        return text + (indent(_GRADIENTS.format(values=_values(program), inputs=_wanted(program)), "    ") if _wanted(program) else "")

    return script


def _vmap_script(program: Program) -> str:
    inputs = "\n".join(i.code() for i in program.inputs)
    stacked = ", ".join(f"torch.stack([{i.name}] * 3)" for i in program.inputs)
    head = "import numpy\nimport torch  # or: import flambeau as torch\n\n\n" + program.function()
    return f"{head}\n\n{inputs}\nprint(torch.func.vmap(program)({stacked}))\n"


def _values(program: Program) -> str:
    return ", ".join(s.target for s in program.steps if s.has_value)


def _wanted(program: Program) -> str:
    return ", ".join(i.name for i in program.inputs if i.grad)


_GRADIENTS = """
values = [t for t in torch.utils._pytree.tree_leaves([{values}]) if isinstance(t, torch.Tensor) and t.grad_fn is not None]
weights = [(1.0 + torch.arange(t.numel()) % 3).to(t.dtype).reshape(t.shape) for t in values]
print(values)
print(torch.autograd.grad(values, [{inputs}], weights, allow_unused=True))
"""
_COMPILED = """

for run in (program, torch.compile(program{how})):
    {inputs}
    {values}, = results = run({names})
    print(results)
    print({names})
"""

MODES = {
    "eager": Mode("eager", _eager, _eager_script),
    "grad": Mode("grad", _gradient, _grad_script),
    "compiled": Mode("mixed", _compiled, _compiled_script(), 12, 80),
    "dynamic": Mode("mixed", _dynamic, _compiled_script(", dynamic=True"), 8, 60),
    "vmap": Mode("plain", _vmap, _vmap_script),
    "captured": Mode("mixed", _captured, _compiled_script(", backend='aot_eager'")),
    "cuda": Mode("mixed", _cuda, _cuda_script),
    "cuda_compiled": Mode("mixed", _cuda_compiled, lambda program: _cuda_script(program) + _compiled_script()(program)),
}
