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


FIRST = """
import os, sys, threading, time
import flambeau as fl

def work():
    fl.compile(lambda x: (x * 3).sin().softmax(-1))(fl.ones(4, 4))
    fl.nn.Linear(3, 3), fl.linalg.svd(fl.eye(3)), fl.fft.fft(fl.ones(8)), fl.distributions

thread = threading.Thread(target=work)
thread.start()
time.sleep(float(sys.argv[1]))
child = os.fork()
if child == 0:
    work()
    os._exit(0)
thread.join()
print("forked" if os.waitpid(child, 0)[1] == 0 else "failed")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("after", [0.02, 0.06, 0.12, 0.2])
def test_a_fork_waits_for_what_another_thread_imports(tmp_path: Path, after: float) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FIRST, str(after)], capture_output=True, text=True, timeout=110,
                          env={**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path)})
    assert done.stdout.strip() == "forked" and not done.stderr, done.stdout + done.stderr[-2000:]
