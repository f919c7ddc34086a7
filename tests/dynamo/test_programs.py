"""Programs that use one language feature each: compiled, they give what they give eagerly, and do the same to what they touch."""

from __future__ import annotations

import programs_calls  # noqa: F401 - registers its programs
import programs_exceptions  # noqa: F401
import programs_func  # noqa: F401
import programs_library  # noqa: F401
import programs_protocols  # noqa: F401
import programs_references  # noqa: F401
import programs_torch  # noqa: F401
import programs_values  # noqa: F401
import pytest
from dynamo_harness import Counter, same
from programs import BREAKS, PROGRAMS

import flambeau as torch
from flambeau import dynamo


def compare(name, capsys, **settings):
    want, args = run(name, lambda f: f)
    shown = capsys.readouterr().out
    counter = Counter()
    got, compiled_args = run(name, lambda f: dynamo.compile(f, backend=counter, **settings))
    assert same(want, got), f"eager gave {want}, compiled {got}"
    assert same(args, compiled_args), f"eager left the arguments as {args}, compiled as {compiled_args}"
    assert capsys.readouterr().out == shown
    return counter


def run(name, wrap):
    f, args = PROGRAMS[name](torch)
    return wrap(f)(*args), args


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program(name, capsys) -> None:
    counter = compare(name, capsys)
    assert name in BREAKS or len(counter.graphs) <= 1


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - BREAKS))
def test_whole_program(name, capsys) -> None:
    compare(name, capsys, fullgraph=True)


@pytest.mark.parametrize("name", sorted(BREAKS))
def test_programs_that_need_a_break(name) -> None:
    f, args = PROGRAMS[name](torch)
    with pytest.raises(dynamo.Unsupported, match="graph break"):
        dynamo.compile(f, backend="eager", fullgraph=True)(*args)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_second_call(name) -> None:
    """The versions of the first call serve the second one, on new arguments of the same kind."""
    f, args = PROGRAMS[name](torch)
    dynamo.compile(f, backend="eager")(*args)
    want, left = run(name, lambda g: g)
    got, compiled_left = run(name, lambda g: dynamo.compile(g, backend="eager"))
    assert same(want, got) and same(left, compiled_left)
