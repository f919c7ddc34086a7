"""Devices: a GPU without a number is the current one, whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as fl
from flambeau._subclasses import FakeTensorMode
from flambeau.core.device import current_cuda, elsewhere

ON_THE_CURRENT_GPU: dict[str, Callable[[], Any]] = {
    "factory": lambda: fl.zeros(2, device="cuda"),
    "factory, device object": lambda: fl.ones(2, device=fl.device("cuda")),
    "random": lambda: fl.randn(2, device="cuda"),
    "like": lambda: fl.zeros(2).new_ones(3, device="cuda"),
    "to": lambda: fl.zeros(2).to("cuda"),
    "to keyword": lambda: fl.zeros(2).to(device="cuda", dtype=fl.float64),
    "Tensor.cuda": lambda: fl.zeros(2).cuda(),
    "Module.cuda": lambda: fl.nn.Linear(2, 2).cuda().weight,
    "Module.to": lambda: fl.nn.Linear(2, 2).to("cuda").bias,
    "Module.to_empty": lambda: fl.nn.Linear(2, 2).to_empty(device="cuda").bias,
    "module's argument": lambda: fl.nn.Linear(2, 2, device="cuda").weight,
    "PackedSequence": lambda: fl.nn.utils.rnn.pack_sequence([fl.zeros(2)]).cuda().data,
}


@pytest.fixture
def fourth() -> Iterator[None]:
    """The fourth GPU is the current one."""
    before, current_cuda[0] = current_cuda[0], 3
    yield
    current_cuda[0] = before


@pytest.mark.parametrize("name", ON_THE_CURRENT_GPU)
def test_no_number_means_the_current_gpu(name: str, fourth: None) -> None:
    with FakeTensorMode():
        assert ON_THE_CURRENT_GPU[name]().device == fl.device("cuda:3")


def test_a_given_number_is_kept(fourth: None) -> None:
    with FakeTensorMode():
        assert fl.nn.Linear(2, 2).cuda(1).weight.device.index == 1
        assert fl.nn.Linear(2, 2).cuda(fl.device("cuda:0")).weight.device.index == 0


def test_nothing_is_elsewhere_on_the_cpu() -> None:
    assert elsewhere(fl.device("cpu")) is None and elsewhere(fl.device("meta")) is None
