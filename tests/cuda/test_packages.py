"""Ahead-of-time packages of programs on a GPU: what they compute is what eager does there."""

from __future__ import annotations

import io
from typing import Any

import pytest

import flambeau as torch
from flambeau.export import Dim, export


class Block(torch.nn.Module):
    """Kernels, products in one and several matrices, a table, a buffer that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = torch.nn.Embedding(32, 16), torch.nn.LayerNorm(16)
        self.up, self.down = torch.nn.Linear(16, 64), torch.nn.Linear(64, 16)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, ids: torch.Tensor) -> Any:
        self.count.add_(1)
        x = self.norm(self.table(ids))
        scores = (x @ x.transpose(-1, -2) / 4).softmax(-1)
        return self.down(torch.nn.functional.gelu(self.up(scores @ x))) + x, self.count * 2


def packaged(module: torch.nn.Module, args: tuple, **options: Any) -> Any:
    file = io.BytesIO()
    torch._inductor.aoti_compile_and_package(export(module.eval(), args, **options), package_path=file)
    file.seek(0)
    return torch._inductor.aoti_load_package(file)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_block(kind: Any) -> None:
    torch.manual_seed(0)
    module, ids = Block().to("cuda", kind), torch.randint(0, 32, (3, 7), device="cuda")
    program = packaged(module, (ids,), dynamic_shapes=({0: Dim("batch", max=64)},))
    before = float(module.count)
    assert module.table.weight.device.type == "cuda"
    for call, batch in enumerate((3, 40, 3), 1):
        ids = torch.randint(0, 32, (batch, 7), device="cuda")
        out, count = program(ids)
        tolerance = 1e-5 if kind in (torch.float32, torch.float64) else 3e-2
        assert out.device.type == "cuda" and torch.allclose(out, module(ids)[0], atol=tolerance, rtol=tolerance)
        assert float(count) == 2 * (before + call)


def test_on_the_host_and_on_the_gpu() -> None:
    module, x = torch.nn.Linear(4, 3), torch.randn(5, 4)
    program = packaged(module.cuda(), (x.cuda(),))
    assert program(x).device.type == "cpu" and torch.allclose(program(x), module(x.cuda()).cpu(), atol=1e-5)
    assert program(x.cuda()).device.type == "cuda"
    assert program(x.t().contiguous().t().cuda()).shape == (5, 3)


def test_an_index_out_of_bounds() -> None:
    program = packaged(torch.nn.Embedding(4, 2).cuda(), (torch.tensor([0, 1], device="cuda"),))
    with pytest.raises(IndexError, match="12"):
        program(torch.tensor([0, 12], device="cuda"))
    assert program(torch.tensor([0, 3], device="cuda")).shape == (2, 2)
