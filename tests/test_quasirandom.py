"""Sobol' sequences: torch's own, point for point."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl
from flambeau.quasirandom import SobolEngine


@pytest.mark.parametrize("dimension", [1, 2, 5, 10, 11, 40, 300])
def test_points_are_torchs(dimension):
    torch = pytest.importorskip("torch")
    if dimension > 10:
        pytest.importorskip("scipy")
    mine, theirs = SobolEngine(dimension), torch.quasirandom.SobolEngine(dimension)
    assert repr(mine) == repr(theirs)
    assert np.array_equal(mine.sobolstate.numpy(), theirs.sobolstate.numpy())
    for step in (lambda e: e.draw(70), lambda e: e.fast_forward(13).draw(7),
                 lambda e: e.reset().draw_base2(4), lambda e: e.draw_base2(4)):
        assert np.array_equal(step(mine).numpy(), step(theirs).numpy())
        assert np.array_equal(mine.quasi.numpy(), theirs.quasi.numpy())
        assert mine.num_generated == theirs.num_generated


def test_every_dimension_of_the_published_table():
    torch = pytest.importorskip("torch")
    pytest.importorskip("scipy")
    assert np.array_equal(SobolEngine(21201).sobolstate.numpy(), torch.quasirandom.SobolEngine(21201).sobolstate.numpy())


def test_scrambled_points_stay_balanced():
    points = SobolEngine(4, scramble=True, seed=3).draw(64)
    again = SobolEngine(4, scramble=True, seed=3)
    assert fl.equal(again.draw(64), points)
    assert repr(again) == "SobolEngine(dimension=4, scramble=True, seed=3)"
    assert not fl.equal(SobolEngine(4, scramble=True, seed=4).draw(64), points)
    for column in points.T:     # one point in each of 64 equal parts
        assert sorted((column * 64).long().tolist()) == list(range(64))


def test_dtypes_and_out():
    assert SobolEngine(2).draw(3, dtype=fl.float64).dtype is fl.float64
    out = fl.empty(0)
    assert SobolEngine(2).draw(3, out=out) is out
    assert out.tolist() == SobolEngine(2).draw(3).tolist()


def test_what_is_refused():
    for dimension in (0, 21202):
        with pytest.raises(ValueError, match=r"dimensionality for SobolEngine is \[1, 21201\]"):
            SobolEngine(dimension)
    engine = SobolEngine(2)
    engine.draw_base2(2)
    with pytest.raises(ValueError, match="balance properties"):
        engine.draw_base2(1)
    with pytest.raises(ValueError, match="of which 4 were generated"):
        engine.draw(-1)
