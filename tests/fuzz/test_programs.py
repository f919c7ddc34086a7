"""A fixed seed's programs in every mode: about a minute of what `./dev fuzz` runs."""

from __future__ import annotations

import itertools

import pytest

from tests.fuzz.hunt import Hunt, seeds
from tests.fuzz.open import is_open

PROGRAMS = {"eager": 300, "grad": 100, "vmap": 60, "compiled": 48, "dynamic": 16, "captured": 60}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", PROGRAMS)
def test_no_new_difference(mode):
    theirs = pytest.importorskip("torch")
    threads = theirs.get_num_threads()
    theirs.set_num_threads(1)
    try:
        hunting = Hunt(mode, theirs, small=False)
        numbers = seeds(0, mode)
        while hunting.programs < PROGRAMS[mode]:
            hunting.batch(list(itertools.islice(numbers, hunting.how.together)))
    finally:
        theirs.set_num_threads(threads)
    new = [f"seed {find.seed}: {find.difference.op}: {find.difference.kind}: {find.difference.detail}"
           for find in hunting.finds.values() if not is_open(mode, find.difference.op, find.difference.kind)]
    assert not new, "\n".join(new)
