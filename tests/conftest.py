"""What tests of several rooms need."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.aot import cache as programs
from flambeau.core import cache
from flambeau.core.settings import Verification
from flambeau.inductor.cpu import compile as build

SHARED_MEMORY = ("tests/distributed/", "tests/test_multiprocessing.py")


def pytest_configure() -> None:
    """Everything that is compiled is verified, here and in processes that tests start (unless one says FLAMBEAU_VERIFY=0); and whoever
    runs the tests, there is a cache of compiled code to write to: a user may have no home. Ctrl-C interrupts, in the background too
    (a shell without job control has what it starts there ignore it). `CI`, which services set, is taken out: torch's test helpers
    and other libraries read it, and do other things or need other packages then."""
    os.environ.pop("CI", None)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Verification.on = os.environ.setdefault("FLAMBEAU_VERIFY", "1") != "0"
    try:
        cache.make_folder(cache.cache_directory())
        with tempfile.TemporaryFile(dir=cache.cache_directory()):
            pass
    except OSError:
        os.environ["FLAMBEAU_CACHE_DIR"] = str(cache.temporary_folder("flambeau-cache-"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every test draws the same numbers, whatever ran before it; and some make no sense under the sanitizers."""
    random.seed(0)
    np.random.seed(0)       # noqa: NPY002 - the global one, which tests read too
    torch.manual_seed(0)
    if "torch" in sys.modules:      # the oracle
        sys.modules["torch"].manual_seed(0)
    if item.get_closest_marker("own_memory") and "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("AddressSanitizer keeps freed memory for a while, and twenty terabytes of address space")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With -n, a process takes whole files, so that what a file compiles and makes once is not made by several; those that look at
    the machine's shared memory, in which they would find each other's, are taken as one."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "shared memory" if nodeid.startswith(SHARED_MEMORY) else super()._split_scope(nodeid)

    return Files(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Under `./dev test --without PACKAGE` what says that it needs the package is not tested; all else is."""
    try:
        return (yield)
    except RuntimeError as error:
        if f"pip install {os.environ.get('FLAMBEAU_WITHOUT')}" in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture
def only_new_objects_collected() -> Iterator[None]:
    """For tests that collect garbage often, or in many forked processes: one that has run other tests is large."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns after ten microseconds."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache directory of the test's own, which nothing was compiled into, and no compiled code from before."""
    build._give_up()  # what other tests began and never came for
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "package_hash", lambda: "this version")  # the real one asks whether files have changed
    torch._dynamo.reset()
    programs.stats.clear()
    yield tmp_path / "cache"
    torch._dynamo.reset()
