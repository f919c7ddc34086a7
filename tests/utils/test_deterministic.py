"""use_deterministic_algorithms: what PyTorch documents as having no deterministic form is refused, and memory is not left as found."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import flambeau as torch
from flambeau.nn import functional as F


@pytest.fixture(autouse=True)
def off_again() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True


def unpooled() -> torch.Tensor:
    return F.max_unpool2d(*F.max_pool2d(torch.ones(1, 1, 4, 4), 2, return_indices=True), 2)


REFUSED: dict[str, Callable] = {"put_": lambda: torch.ones(3).put_(torch.tensor([0]), torch.ones(1)), "max_unpool": unpooled}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_or_warned_of(name: str) -> None:
    REFUSED[name]()
    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match=name):
        REFUSED[name]()
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match=name):
        REFUSED[name]()


def test_others_work() -> None:
    torch.use_deterministic_algorithms(True)
    torch.ones(3).put_(torch.tensor([0]), torch.ones(1), accumulate=True)
    torch.zeros(3).index_add(0, torch.tensor([0, 0]), torch.ones(2))
    torch.zeros(3).scatter_add(0, torch.tensor([0, 0]), torch.ones(2))
    F.interpolate(torch.ones(1, 1, 4, 4), scale_factor=2, mode="bilinear")


FRESH: list[Callable] = [
    lambda kind: torch.empty(3, dtype=kind), lambda kind: torch.empty_like(torch.ones(3, dtype=kind)),
    lambda kind: torch.empty_strided((3,), (1,), dtype=kind), lambda kind: torch.ones(1, dtype=kind).new_empty(3),
    lambda kind: torch.ones(1, dtype=kind).resize_(4)[1:], lambda kind: torch.empty_permuted((3,), (0,), dtype=kind),
    lambda kind: torch.ones(1, dtype=kind).new_empty_strided((3,), (2,)), lambda kind: torch.empty((3,), out=torch.ones(3, dtype=kind)),
    lambda kind: torch.empty((3,), out=torch.ones(0, dtype=kind)), lambda kind: torch.ones(1, dtype=kind).new(3),
]


@pytest.mark.parametrize("make", FRESH)
def test_uninitialised_memory_is_filled(make: Callable) -> None:
    torch.use_deterministic_algorithms(True)
    for kind in (torch.float32, torch.float64, torch.bfloat16, torch.complex64):
        assert make(kind).isnan().all()
    for kind in (torch.int8, torch.uint8, torch.int64):
        assert make(kind).tolist() == [torch.iinfo(kind).max] * 3
    assert make(torch.bool).tolist() == [True] * 3


def test_the_filling_may_be_left_out() -> None:
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.use_deterministic_algorithms(True)
    x = torch.zeros(100)
    del x
    assert torch.utils.deterministic.fill_uninitialized_memory is False
    with pytest.raises(TypeError, match="bool"):
        torch.utils.deterministic.fill_uninitialized_memory = 1


def test_what_constructors_and_modules_leave_unwritten_is_filled_too() -> None:
    torch.use_deterministic_algorithms(True)
    lazy = torch.nn.UninitializedParameter()
    lazy.materialize((2,))
    for made in (torch.Tensor(3), torch.DoubleTensor(2, 2), lazy.detach()):
        assert made.isnan().all()
