"""A sample of torch's operator database by a fixed seed; `./dev test --full` runs it whole."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("expecttest", reason="torch's operator database imports it: pip install expecttest")

from . import modules, optimizers  # noqa: F401 - they enter their readings
from .convert import ours, theirs
from .database import title
from .differs import listed
from .exclusions import ENTRIES
from .readings import READINGS, entries_of, judged

SEED = 2013
# how many entries of each reading; a compiled one costs a hundred eager ones
COUNTS = {"compiled (aot_eager)": 8, "compiled (inductor)": 1, "compiled (dynamic sizes)": 5, "vmap": 15, "double backward": 15,
          "forward mode": 15, "modules, compiled": 5, "optimizers": 5, "optimizers, schedules": 5, "optimizers, compiled": 1}
# a difference of these kinds hangs on no rounding: when it is gone it is gone on every machine
CERTAIN = ("missing", "raises", "error type", "no error", "dtype", "structure", "node")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """torch computes in one thread, so that its sums come in one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def eager_again() -> Iterator[None]:
    import flambeau
    yield
    flambeau._dynamo.reset()


def _chosen(reading: str) -> list[str]:
    titles = sorted(entries_of(reading))
    return random.Random(f"{SEED} {reading}").sample(titles, min(COUNTS.get(reading, 25), len(titles)))


@pytest.mark.usefixtures("eager_again")
@pytest.mark.parametrize("reading", READINGS)
def test_sample(reading: str) -> None:
    every, known = entries_of(reading), listed()
    found = {title: judged(every[title], reading, 3) for title in _chosen(reading) if (reading, title) not in known}
    assert {title: answer for title, answer in found.items() if answer[0] not in ("agrees", "none")} == {}


def test_the_list_of_what_differs_shrinks() -> None:
    """An entry that is listed and agrees by now is to be taken from differs.txt (`./dev test --full --write` does it)."""
    every, known = {reading: entries_of(reading) for reading in READINGS}, listed()
    assert [pair for pair in known if pair[0] not in READINGS or pair[1] not in every[pair[0]]] == []
    certain = sorted(pair for pair, kind in known.items() if kind in CERTAIN and not pair[0].startswith("compiled"))
    some = random.Random(SEED).sample(certain, min(len(certain), 12))
    assert [(reading, title) for reading, title in some if judged(every[reading][title], reading, 0)[0] == "agrees"] == []


def test_what_is_excluded_is_there() -> None:
    from torch.testing._internal.common_methods_invocations import op_db
    assert set(ENTRIES) - {name for entry in op_db for name in (entry.name, title(entry))} == set()
    assert all(ENTRIES.values())


_LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows": lambda t: t, "columns": lambda t: t.mT, "every other": lambda t: t[:, ::2], "offset": lambda t: t[1:],
    "expanded": lambda t: t[:1].expand(3, -1), "a number": lambda t: t[0, 0], "empty": lambda t: t[:0]}


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "bool", "int16"])
def test_arguments_are_the_same_in_both_libraries(layout: str, dtype: str) -> None:
    """Strides, offset, dtype and the identity of a tensor given twice survive."""
    t = _LAYOUTS[layout](torch.arange(12).reshape(3, 4).to(getattr(torch, dtype)))
    arguments: Any = (t, [t, 3], {"dtype": torch.float16, "size": torch.Size((2, 3))})
    for made in (ours(arguments), theirs(arguments)):
        first, (second, three), named = made
        assert first is second and three == 3 and tuple(named["size"]) == (2, 3)
        assert str(named["dtype"]).endswith("float16")
        assert (tuple(first.shape), first.stride(), first.storage_offset()) == (tuple(t.shape), t.stride(), t.storage_offset())
        assert str(first.dtype).rpartition(".")[2] == dtype and first.tolist() == t.tolist()
        assert first.data_ptr() != t.data_ptr() or not t.numel()
