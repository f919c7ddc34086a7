"""What `dir` and so the TAB key show: names that load on first use too, each of which is there when it is asked for."""

from __future__ import annotations

import subprocess
import sys

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
