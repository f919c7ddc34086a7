"""Sizes that only a run knows: what slices, joins and pairs tensors of such sizes is exported, and asks at a run what it needs."""

from __future__ import annotations

import io
import itertools
from typing import Any

import pytest

import flambeau as torch
from flambeau.export import export, load, save

X = torch.arange(12.0).reshape(6, 2)
MASKS = [torch.tensor([bool(i) for i in bits]) for bits in ([1, 0, 1, 1, 0, 1], [0] * 6, [1] * 6, [1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0])]
BOUNDS = (None, 0, 1, 3, 9, -1, -3)

ALONE: dict[str, Any] = {     # of a size alone: right for every mask
    "slices": lambda x, m: [x[m][a:b] for a, b in itertools.product(BOUNDS, BOUNDS)],
    "sizes of slices": lambda x, m: [x.sum() + x[m][a:b].shape[0] for a, b in itertools.product(BOUNDS, BOUNDS)],
    "steps": lambda x, m: [x[m][a:b:s] for a, b, s in itertools.product((None, 1, -2), (None, 3, -1), (2, 3))],
    "slices of places": lambda x, m: (m.nonzero()[:2], m.nonzero()[1:, 0]),
    "narrow": lambda x, m: x[m].narrow(1, 0, 1),
    "cat of two": lambda x, m: torch.cat([x[m], x[~m]]),
    "cat of slices": lambda x, m: torch.cat([x[m][1:3], x[~m][:1], x]),
    "cat beside itself": lambda x, m: torch.cat([x[m], x[m] * 2], 1),
    "stack": lambda x, m: torch.stack([x[m], x[m] + 1]),
    "products": lambda x, m: (x[m].T @ x[m], torch.bmm(x[m].unsqueeze(1), x[m].unsqueeze(2)), torch.einsum("ni,nj->ij", x[m], x[m])),
    "gather": lambda x, m: x[m].gather(1, torch.zeros_like(x[m]).long()),
    "losses": lambda x, m: [getattr(torch.nn.functional, name)(x[m], x[m] * 2, reduction="sum") for name in
                            ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss")],
    "cross entropy": lambda x, m: torch.nn.functional.cross_entropy(x[m], m.nonzero()[:, 0] * 0, reduction="sum"),
    "index_add": lambda x, m: torch.zeros(6, 2).index_add(0, m.nonzero()[:, 0], x[m]),
    "scatter": lambda x, m: torch.zeros(6, 2).scatter(0, m.nonzero().expand(-1, 2), x[m]),
    "masks of parts": lambda x, m: x[m][x[m][:, 0] > 2],
    "where": lambda x, m: torch.where(x[m] > 2, x[m], x[m] * 2),
    "arithmetic": lambda x, m: (x[m] + x[m][:, :1] * x[m], x[m].clamp(x[m] - 1, x[m] + 1), torch.lerp(x[m], x[m] * 2, x[m])),
    "shapes": lambda x, m: (x[m].reshape(-1), x[m].view(-1, 1, 2), x[m].flip(0), x[m].repeat(2, 1), x[m].t().contiguous()),
}
PAIRS: dict[str, Any] = {     # of two sizes that have to be equal
    "cat": lambda x, m, k: torch.cat([x[m], x[k]], 1),
    "stack": lambda x, m, k: torch.stack([x[m], x[k]]),
    "add": lambda x, m, k: x[m] + x[k],
    "where": lambda x, m, k: torch.where(x[m] > 2, x[m], x[k]),
    "mm": lambda x, m, k: x[m].t() @ x[k],
    "bmm": lambda x, m, k: x[m].unsqueeze(1) @ x[k].unsqueeze(2),
    "loss": lambda x, m, k: torch.nn.functional.mse_loss(x[m], x[k], reduction="sum"),
    "slices": lambda x, m, k: x[m][1:3] * x[k][1:3],
    "copy": lambda x, m, k: x[m].copy_(x[k]),
    "index_add": lambda x, m, k: torch.zeros(6, 2).index_add(0, m.nonzero()[:, 0], x[k]),
}


class Of(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def same(got: Any, wanted: Any) -> bool:
    pairs = zip(*(torch.utils._pytree.tree_leaves(v) for v in (got, wanted)), strict=True)
    return all(a.shape == b.shape and torch.allclose(a, b, equal_nan=True) for a, b in pairs)


@pytest.mark.parametrize("strict", (False, True))
@pytest.mark.parametrize("name", ALONE)
def test_a_size_alone(name: str, strict: bool) -> None:
    program = export(Of(ALONE[name]), (X, MASKS[0]), strict=strict)
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    for run in (program.module(), program.run_decompositions().module(), load(file).module()):
        for mask in MASKS:
            assert same(run(X * 2 - 3, mask), ALONE[name](X * 2 - 3, mask)), mask


@pytest.mark.parametrize("strict", (False, True))
@pytest.mark.parametrize("name", PAIRS)
def test_two_sizes_that_are_equal(name: str, strict: bool) -> None:
    """The program has a check of it, which tells what it needs."""
    program = export(Of(PAIRS[name]), (X, MASKS[2], MASKS[2].clone()), strict=strict)
    run = program.module()
    for mask in MASKS:
        assert same(run(X, mask, mask.flip(0)), PAIRS[name](X, mask, mask.flip(0)))
    with pytest.raises(RuntimeError, match=r"Runtime assertion failed for expression .*u"):
        run(X, MASKS[0], MASKS[3])
    with pytest.raises(RuntimeError, match=r"Runtime assertion failed for expression .*u"):
        program.run_decompositions().module()(X, MASKS[0], MASKS[3])


@pytest.mark.parametrize("strict", (False, True))
def test_what_a_place_needs(strict: bool) -> None:
    run = export(Of(lambda x, m: x[m][2]), (X, MASKS[0]), strict=strict).module()
    assert same(run(X, MASKS[2]), X[2])
    with pytest.raises((RuntimeError, IndexError)):
        run(X, MASKS[3])


def test_what_data_decides_is_still_refused() -> None:
    for function in (lambda x, m: x if x[m].shape[0] > 2 else x + 1, lambda x, m: x + 1 if x[m].shape[0] == x[~m].shape[0] else x):
        with pytest.raises(torch._dynamo.exc.UserError, match="Could not guard on data-dependent expression"):
            export(Of(function), (X, MASKS[0]), strict=False)


NUMBERS: dict[str, Any] = {     # places that a tensor holds, which may count from the end
    "from": lambda x, n: (x[n:], x.sum() + x[n:].shape[0], x.new_zeros(x[n:].shape[0])),
    "to": lambda x, n: (x[:n], x.sum() + x[:n].shape[0]),
    "between": lambda x, n: (x[n:-1], x[1:n], x.sum() + x[n:-1].shape[0], x.sum() + x[1:n].shape[0]),
    "from the end": lambda x, n: (x[-n:], x[:-n], x.sum() + x[-n:].shape[0]),
    "one": lambda x, n: x[n:n + 1],
    "steps": lambda x, n: (x[n::2], x[::2][n:], x.sum() + x[n::2].shape[0]),
    "both parts": lambda x, n: torch.cat([x[:n], x[n:]]) + x,
}


@pytest.mark.parametrize("dynamic", (False, True))
@pytest.mark.parametrize("name", NUMBERS)
def test_slices_by_numbers_of_either_sign(name: str, dynamic: bool) -> None:
    function = NUMBERS[name]
    shapes = {"args": ({0: torch.export.Dim("rows")}, None)} if dynamic else None
    program = export(Of(lambda x, n: function(x, n.item())), (X, torch.tensor(1)), dynamic_shapes=shapes)
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    for run, x in itertools.product((program.module(), program.run_decompositions().module(), load(file).module()),
                                    (X, torch.arange(8.0).reshape(4, 2)) if dynamic else (X,)):
        for number in (-9, -6, -3, -1, 0, 1, 2, 5, 6, 9):
            assert same(run(x, torch.tensor(number)), function(x, number)), number


def test_numbers_that_are_checked_to_be_sizes() -> None:
    def function(x: Any, n: Any) -> Any:
        size = n.item()
        torch._check_is_size(size, max=5)
        return x.new_ones(size)

    run = export(Of(function), (X, torch.tensor(2))).module()
    assert [run(X, torch.tensor(n)).shape[0] for n in (0, 1, 5)] == [0, 1, 5]
    for number in (-1, 6):
        with pytest.raises(RuntimeError, match="Runtime assertion failed"):
            run(X, torch.tensor(number))


def test_numbers_that_operators_read_themselves_are_told_with_the_line() -> None:
    with pytest.raises(torch._dynamo.exc.UserError, match=r"within an operator is known only(.|\n)*one_hot"):
        export(Of(lambda x: torch.nn.functional.one_hot(x.long())), (X,))
