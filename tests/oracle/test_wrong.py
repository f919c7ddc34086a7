"""A sample, by a fixed seed, of calls that are one argument away from a right one, and of reductions in every form."""

from __future__ import annotations

import random
import warnings
from collections import Counter

import pytest
import torch

pytest.importorskip("expecttest", reason="torch's operator database imports it: pip install expecttest")

from . import reductions  # noqa: F401 - it enters its reading
from .wrong import SOURCES, differences

SEED = 2013
# how many entries, and what share of their calls may be refused by another type of exception, and taken though torch refuses them
SHARES = {"wrong calls": (60, 0.02, 0.02), "wrong calls, in place": (80, 0.03, 0.03), "wrong calls, optimizers": (6, 0.06, 0.06),
          "reductions": (20, 0.02, 0.02)}


@pytest.mark.parametrize("name", SHARES)
def test_wrong_calls_are_refused_as_torch_refuses_them(name: str) -> None:
    calls, source = SOURCES[name]
    every, (count, other, taken) = source(), SHARES[name]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [(title, *d) for title in random.Random(SEED).sample(sorted(every), min(count, len(every)))
                 for d in differences(every[title], calls, 1)]
    torch.set_num_threads(threads)
    kinds = Counter(kind for _, kind, *_ in found)
    assert len(found) > 50 and kinds["agrees"]
    assert kinds["error type"] <= other * len(found), [d for d in found if d[1] == "error type"]
    assert kinds["no error"] <= taken * len(found), [d for d in found if d[1] == "no error"]
