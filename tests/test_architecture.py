"""What docs/architecture.md and docs/interfaces.md name is there, and what they count is so many."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from flambeau import _C
from flambeau.__main__ import main
from flambeau.core import dispatch
from flambeau.core.scalar import FOLDS, TABLE
from flambeau.core.tensor import AutogradMeta, Layout, Tensor, ViewPath
from flambeau.inductor.library import LIBRARY
from flambeau.ops.higher_order import Scan
from flambeau.ops.registry import COMPOSITES, OPERATORS, PRIMITIVES

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE, INTERFACES = (ROOT.joinpath("docs", f"{name}.md").read_text(encoding="utf-8") for name in ("architecture", "interfaces"))
NAME = r"[A-Za-z_]\w*"
CALLED = {"guard", "replacement", "cb", "unchanged", "spec", "graph", "trace"}  # what such a call takes or gives, and functions of rooms above


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    found = re.search(rf"^## {re.escape(title)}.*?\n(.*?)(?=^## |\Z)", INTERFACES, re.M | re.S)
    assert found, title
    return found[1]


def facet(name: str) -> str:
    """The cell of a facet of primitives."""
    found = re.search(rf"^\| `{name}` \| (.*) \|$", INTERFACES, re.M)
    assert found, name
    return found[1]


def test_the_parts_of_a_tensor() -> None:
    text = section("Tensor")
    for name in re.findall(rf"^- `(_{NAME})`", text, re.M):
        assert hasattr(Tensor, name), name
    for cls in (Layout, ViewPath, AutogradMeta):
        given = re.search(rf"`{cls.__name__}\(([^)]*)\)", text)
        assert given, cls
        for name in re.findall(NAME, given[1]):
            assert hasattr(cls, name), f"{cls.__name__}.{name}"


def test_the_facets_of_primitives() -> None:
    record = PRIMITIVES["exp"]
    named = [name for cells in re.findall(r"^\| (`.*?`) \|", section("Primitive"), re.M) for name in re.findall(rf"`({NAME})", cells)]
    assert len(named) > 10
    assert not [name for name in named if not hasattr(record, name)]


def test_the_tags() -> None:
    of_primitives, of_operators = (set(re.findall(r"\w+", text)) for text in re.findall(r"`([a-z_ ]{30,})`", facet("tags")))
    assert of_primitives == set().union(*(p.tags for p in PRIMITIVES.values() if not p.tags & {"custom"}))
    used: set[str] = set().union(*(op._operator.tags for op in OPERATORS.values()))
    assert of_operators >= used and of_operators - used <= {"communicates"}      # which only operators on process groups are


def test_the_families_of_library_calls() -> None:
    listed = re.search(r"inductor/library: (.*?)\)", facet("library"))
    assert listed and re.findall(r"`([a-z ]+)`", listed[1]) == list(LIBRARY)
    records = [*PRIMITIVES.values(), *COMPOSITES.values(), Scan]
    assert {record.library for record in records} == {"", *LIBRARY}


def test_one_name_is_one_thing() -> None:
    defined: dict[str, list[str]] = {}
    for path in ROOT.joinpath("flambeau").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    named = re.findall(rf"`({NAME})`", section("One name, one thing"))
    assert len(named) > 15
    assert not {name: defined.get(name) for name in named if len(defined.get(name, ())) != 1}
    concepts = re.findall(r"^\| ([a-z]+) \|", section("One name, one thing"), re.M)[1:]
    assert not [name for name in defined if name.lower() in concepts and name not in named]


def test_the_folds() -> None:
    listed = re.search(r"kind: `([a-z ]+)` \(FOLDS", section("Primitive"))
    assert listed and listed[1].split() == list(FOLDS)
    assert {p.loop for p in PRIMITIVES.values() if type(p.loop) is str} <= {*FOLDS, "argmax", "argmin", "strided", "scatter"}


def test_the_state_of_dispatch() -> None:
    named = re.findall(rf"`\.({NAME})`", section("Dispatch"))
    assert len(named) > 8
    assert not [name for name in named if not hasattr(dispatch.state, name)]


@pytest.mark.parametrize("title", ["Frame hook", "Other mechanism"])
def test_the_native_module(title: str) -> None:
    text = section(title)
    known = {*vars(_C), *(name for value in vars(_C).values() if isinstance(value, type) for name in vars(value))}
    named = set(re.findall(rf"`({NAME})\(", text)) - CALLED
    assert len(named) > 5 and not [name for name in named if name not in known]


def test_the_rooms() -> None:
    drawn = re.search(r"```\nflambeau/\n(.*?)^csrc/", ARCHITECTURE, re.M | re.S)
    assert drawn
    rooms = [name for line in re.findall(r"^  (\S.*)$", drawn[1], re.M) for name in re.findall(r"^(?:[\w.]+/? )+", line + " ")[0].split()
             if name.endswith(("/", ".py"))]
    assert len(rooms) > 20
    assert not [name for name in rooms if not (ROOT / "flambeau" / name).exists()]


def test_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    listed = re.search(r"python -m flambeau: (.*)", ARCHITECTURE)
    assert listed
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = re.findall(r"^    (\w+) {2,}", capsys.readouterr().out, re.M)
    assert [word.split()[0] for word in listed[1].split(" | ")] and sorted(w.split()[0] for w in listed[1].split(" | ")) == sorted(shown)


def test_the_numbers() -> None:
    most, scalars = re.search(r"at most (\d+)", ARCHITECTURE), re.search(r"some (\d+) scalar ops", ARCHITECTURE)
    assert most and len(PRIMITIVES) <= int(most[1])
    assert scalars and round(len(TABLE), -1) == int(scalars[1])
