"""Steps whose results nobody reads: they are left out, but for their checks of values, which raise as they do in eager."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.nn import functional as F

REFUSED: dict[str, tuple] = {
    "one_hot": (lambda x: F.one_hot(x, 3), torch.tensor([0, 5])),
    "one_hot of less than none": (lambda x: F.one_hot(x, 3), torch.tensor([-1])),
    "binary_cross_entropy": (lambda x: F.binary_cross_entropy(x, x.round()), torch.tensor([0.5, 2.0])),
    "bernoulli": (lambda x: torch.bernoulli(x), torch.tensor([0.5, 2.0])),
    "poisson": (lambda x: torch.poisson(x), torch.tensor([0.5, -2.0])),
    "multinomial": (lambda x: torch.multinomial(x, 1), torch.tensor([0.5, -2.0])),
    "gaussian_nll_loss": (lambda x: F.gaussian_nll_loss(x, x, x), torch.tensor([0.5, -2.0])),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_reads_still_refuses_values(name: str, backend: str) -> None:
    call, wrong = REFUSED[name]

    def program(x: Any) -> Any:
        call(x)
        return x + 1

    with pytest.raises((RuntimeError, ValueError)):
        program(wrong)
    torch._dynamo.reset()
    compiled = torch.compile(program, backend=backend)
    assert torch.equal(compiled(wrong.abs().clamp(max=1)), wrong.abs().clamp(max=1) + 1)
    with pytest.raises((RuntimeError, ValueError)):
        compiled(wrong)


def test_what_refuses_nothing_is_left_out() -> None:
    graphs: list = []

    def program(x: Any) -> Any:
        x.sin().sum(), x @ x.t(), F.softmax(x, 0), x.repeat(2, 1), torch.cat([x, x])
        return x + 1

    def backend(graph: Any, examples: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compile(program, backend=backend)(torch.ones(2, 3))
    assert [node.op for node in graphs[0].graph.nodes] == ["placeholder", "call_function", "output"]
