"""A fork while other threads compile and compute: the child compiles and computes too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys, threading, time
import flambeau as fl

def work(n, x):
    for k in range(n):
        x = (x * 1.5 + k).sin()
    return x @ x.t() + x.softmax(-1).sum()

fl.compile(lambda x: work(1, x))(fl.ones(2, 2))    # what is yet to be imported would be waited for: that is Python's own lock

stop = False
def busy(seed):
    fl.manual_seed(seed)
    weight, k = fl.randn(64, 64), 0
    while not stop:
        fl.nn.functional.linear(fl.randn(33 + k % 7, 64), weight).softmax(-1)
        fl.compile(lambda x: work(2 + k % 5, x), dynamic=False)(fl.randn(8, 8 + seed))
        k += 1

threads = [threading.Thread(target=busy, args=(seed,)) for seed in range(3)]
for t in threads: t.start()
for attempt in range(4):
    time.sleep(0.3)
    child = os.fork()
    if child == 0:
        x = fl.ones(8, 4)
        got = fl.compile(lambda x: work(9, x))(x)
        fl.nn.functional.linear(fl.randn(5, 64), fl.randn(64, 64))
        os._exit(0 if fl.allclose(got, work(9, x)) and fl.rand(3).shape == (3,) else 1)
    deadline = time.time() + 60
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done: break
        if time.time() > deadline:
            os.kill(child, 9); os.waitpid(child, 0); print("the child hangs"); os._exit(2)
        time.sleep(0.02)
    if status: print("the child failed:", status); os._exit(3)
stop = True
for t in threads: t.join()
print("forked")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_forked_while_threads_compile_is_free(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=110,
                          env={**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path)})
    assert done.stdout.strip() == "forked", done.stdout + done.stderr[-2000:]
