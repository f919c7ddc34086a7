"""What `dir` and so the TAB key show: names that load on first use too, each of which is there when it is asked for."""

from __future__ import annotations

import difflib
import pickle
import subprocess
import sys

import pytest

import flambeau

WALK = """
import flambeau
unseen = {"nn", "optim", "compile", "vmap", "save", "distributed", "mtia"} - set(dir(flambeau))
assert not unseen and "data" in dir(flambeau.utils) and "scheduler" not in dir(flambeau.optim), unseen

def outside(error):
    return isinstance(error, ImportError) and not (error.name or "").startswith("flambeau")

broken, seen = [], set()
def walk(module, path):
    seen.add(module)
    for name in dir(module):
        try:
            value = getattr(module, name)
        except Exception as error:      # but for an extra that is not installed
            broken.extend([] if outside(error) else [(f"{path}.{name}", error)])
            continue
        if type(value) is type(flambeau) and value.__name__.startswith("flambeau.") and value not in seen:
            walk(value, f"{path}.{name}")

walk(flambeau, "torch")
print(len(seen), broken)
"""


def test_every_name_that_is_shown_is_there() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", WALK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, broken = done.stdout.split(maxsplit=1)
    assert int(count) > 300 and broken.strip() == "[]", broken


def test_a_misspelt_name_is_told_its_neighbour() -> None:
    done = subprocess.run([sys.executable, "-c", "import flambeau as torch\ntorch.sofmax"], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("AttributeError: module 'flambeau' has no attribute 'sofmax'; did you mean 'softmax'?\n"), done.stderr


def test_asking_for_a_name_that_is_not_there_looks_for_no_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries ask `hasattr(torch, ...)` often, and the neighbours of 2,000 names take milliseconds."""
    looked: list[str] = []
    found = difflib.get_close_matches
    monkeypatch.setattr(difflib, "get_close_matches", lambda name, *given: looked.append(name) or found(name, *given))
    assert not hasattr(flambeau, "sofmax") and not looked
    with pytest.raises(AttributeError, match="did you mean 'softmax'") as caught:
        _ = flambeau.sofmax
    assert looked and caught.type.__name__ == "AttributeError" and str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
