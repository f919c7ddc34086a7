"""Libraries of others give the same numbers on Flambeau as on PyTorch: `./dev test --ecosystem`, where they are installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import jobs
import scan

pytestmark = pytest.mark.skipif("FLAMBEAU_ECOSYSTEM" not in os.environ, reason="libraries of others: ./dev test --ecosystem")


def run(by: str, library: str, *options: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(Path(jobs.__file__)), by, library, *options], capture_output=True, text=True, timeout=600,
                          check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("library", sorted(jobs.JOBS))
def test_job(library: str) -> None:
    if importlib.util.find_spec(jobs.PACKAGES.get(library, library)) is None or importlib.util.find_spec("torch") is None:
        pytest.skip(f"{library} or torch is not installed")
    expected = run("torch", library)
    for options in ((), ("--compile",)):
        got = run("flambeau", library, *options)
        assert got.keys() == expected.keys()
        for name in expected:
            np.testing.assert_allclose(got[name], expected[name], rtol=1e-3, atol=1e-5, err_msg=f"{library} {options} {name}")


def test_few_names_that_libraries_import_are_unanswered() -> None:
    libraries = [name for name in jobs.JOBS if importlib.util.find_spec(name)]
    by_name = scan.wanted(libraries)
    by_name = {name: by_name[name] for name in set(by_name) - scan.unanswered(by_name, "torch")}
    missing = scan.unanswered(by_name)
    assert len(missing) <= 0.05 * len(by_name), sorted(missing)
