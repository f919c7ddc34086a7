"""functional_call on attributes of every kind; vmap in chunks with the same random numbers."""

from __future__ import annotations

import flambeau as torch


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.plain = torch.nn.Parameter(torch.ones(2)), torch.ones(2)
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.plain + self.shift


def test_plain_attributes_are_replaced_and_put_back() -> None:
    module, x = Scaled(), torch.ones(2)
    for name in ("weight", "plain", "shift"):
        out = torch.func.functional_call(module, {name: torch.full((2,), 5.0)}, (x,))
        assert out.tolist() == [7, 7]
    assert module(x).tolist() == [3, 3] and isinstance(module.weight, torch.nn.Parameter)


def test_chunks_draw_the_same_numbers_when_asked_to() -> None:
    for chunk in (1, 2, 5):
        same = torch.func.vmap(lambda x: x + torch.rand(3), randomness="same", chunk_size=chunk)(torch.zeros(5, 3))
        assert (same == same[0]).all()
        different = torch.func.vmap(lambda x: x + torch.rand(3), randomness="different", chunk_size=chunk)(torch.zeros(5, 3))
        assert len({tuple(row) for row in different.tolist()}) == 5
