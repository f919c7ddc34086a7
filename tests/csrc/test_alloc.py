"""The caching allocator behind NumPy arrays: contents, alignment, reuse, bounds, threads and forks."""

import functools
import gc
import os
import random
import subprocess
import sys
import threading

import numpy as np
import pytest

import flambeau
from flambeau import _C
from tests.threads import in_threads

MB = 1 << 20


def resident():
    """Bytes of memory in this process that have pages."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def limit():
    """Sets the cache limit for one test."""
    before = _C.memory_stats()["limit"]
    yield _C.set_cache_limit
    _C.set_cache_limit(before)


@pytest.mark.parametrize("size", [1024, 1025, 4096, 70_001, MB, 3 * MB + 7, 40 * MB])
def test_blocks_are_aligned_to_64_bytes(size):
    arrays = [np.empty(size, np.uint8) for _ in range(3)]
    assert all(array.ctypes.data % 64 == 0 for array in arrays)


@pytest.mark.parametrize("size", [2000, 100_000, 5 * MB])
def test_a_freed_block_serves_the_next_request(size):
    first = np.empty(size, np.uint8)
    address = first.ctypes.data
    del first
    before = _C.memory_stats()
    second = np.empty(size, np.uint8)
    after = _C.memory_stats()
    assert second.ctypes.data == address
    assert (after["reused"], after["fresh"]) == (before["reused"] + 1, before["fresh"])


def test_statistics_follow_live_and_cached_memory():
    gc.collect()
    _C.empty_cache()
    before = _C.memory_stats()
    array = np.empty(8 * MB - 64, np.uint8)    # and room for what sanitizers put behind it
    during = _C.memory_stats()
    assert during["live"] - before["live"] == 8 * MB
    assert during["peak"] >= during["live"]
    del array
    after = _C.memory_stats()
    assert after["live"] == before["live"]
    assert after["cached"] - before["cached"] == 8 * MB


@pytest.mark.parametrize("size", [1500, 5000, 64 * 1024, 300_001, 2 * MB, 9 * MB + 123])
def test_zeros_are_zero_whatever_was_there(size):
    def check():
        array = np.zeros(size, np.uint8)
        assert not array.any()
        array.fill(255)

    for _ in range(3):  # fresh or reused
        check()
    for _ in range(3):  # evicted
        _C.empty_cache()
        check()
    pair = [np.zeros(size, np.uint8) for _ in range(2)]
    for array in pair:
        assert not array.any()
        array.fill(7)
    assert all((array == 7).all() for array in pair)


def test_eviction_touches_no_neighbour():
    sizes = [70_000, 65_536, 131_072, 1024, 200_000, 5 * MB, 3 * MB]
    arrays = [np.full(size, i, np.uint8) for i, size in enumerate(sizes * 3)]
    kept = arrays[::2]
    del arrays
    _C.empty_cache()
    for i, array in enumerate(kept):
        assert (array == 2 * i).all()


def test_resize_keeps_the_contents():
    array = np.arange(1000, dtype=np.int64)
    for size in (1001, 1100, 5000, 400_000, 10, 900, 60_000):
        kept = min(size, array.size)
        expected = array[:kept].copy()
        array.resize(size, refcheck=False)
        np.testing.assert_array_equal(array[:kept], expected)
        assert not array[kept:].any()


def test_the_cache_is_bounded_and_gives_memory_back(limit):
    limit(32 * MB)
    arrays = [np.ones(4 * MB, np.uint8) for _ in range(32)]
    full = resident()
    evicted = _C.memory_stats()["evicted"]
    del arrays
    stats = _C.memory_stats()
    assert stats["cached"] <= 32 * MB
    assert stats["evicted"] - evicted >= 24
    assert full - resident() > 80 * MB


def test_empty_cache_gives_memory_back():
    _C.empty_cache()
    small = _C.memory_stats()["cached"]  # small blocks keep their pages
    arrays = [np.ones(16 * MB, np.uint8) for _ in range(4)]
    full = resident()
    del arrays
    _C.empty_cache()
    assert full - resident() > 50 * MB
    assert _C.memory_stats()["cached"] < small + MB


def test_the_oldest_blocks_are_evicted_first(limit):
    _C.empty_cache()
    limit(20 * MB)
    old, young = np.ones(12 * MB, np.uint8), np.ones(10 * MB, np.uint8)
    address = young.ctypes.data
    del old
    del young
    assert np.empty(10 * MB, np.uint8).ctypes.data == address
    assert _C.memory_stats()["cached"] <= 20 * MB


@pytest.mark.own_memory
def test_huge_zeros_cost_no_memory():
    before = resident()
    array = np.zeros(_C.free_memory() // 2 >> 30 << 30, np.uint8)
    array[:: 1 << 30] = 1
    assert int(array[:: 1 << 29].sum()) == array.size >> 30
    assert resident() - before < 200 * MB


TOO_MUCH = {
    "empty": lambda n: flambeau.empty(n), "zeros": lambda n: flambeau.zeros(n), "full": lambda n: flambeau.full((n,), 2.0),
    "randn": lambda n: flambeau.randn(n), "arange": lambda n: flambeau.arange(n), "sin": lambda n: flambeau.ones(1).expand(n).sin(),
    "add": lambda n: flambeau.ones(1).expand(n) + 1, "clone": lambda n: flambeau.ones(1).expand(n, 1).contiguous(),
    "softmax": lambda n: flambeau.ones(1).expand(n).softmax(0), "numpy": lambda n: np.empty(n, np.float32),
}


@pytest.mark.parametrize("name", TOO_MUCH)
@pytest.mark.parametrize("more", ["than there is", "than can be"])
def test_more_memory_than_there_is_is_refused(name, more):
    """Also where the kernel would promise it: the process would be killed once it is used."""
    n = {"than there is": _C.free_memory() // 4 + (1 << 28), "than can be": 1 << 50}[more]
    for expected in (RuntimeError, MemoryError):
        with pytest.raises(expected, match=r"tried to allocate \d+ bytes.*bytes \(\d+\.\d GiB\) are free"):
            TOO_MUCH[name](n)


def test_what_was_promised_counts():
    """Two arrays that fit alone and not together: the second is refused, for the first may yet be filled."""
    size = int(_C.free_memory() * 0.6)
    first = np.zeros(size, np.uint8)
    with pytest.raises(MemoryError):
        np.empty(size, np.uint8)
    del first
    assert np.empty(size, np.uint8).size == size


def test_sizes_that_overflow():
    with pytest.raises(RuntimeError, match="overflowed with sizes"):
        flambeau.empty(1 << 62)


def test_random_use_never_mixes_blocks(limit):
    limit(8 * MB)
    rng = random.Random(0)
    live = {}
    for step in range(4000):
        if live and rng.random() < 0.48:
            key = rng.choice(list(live))
            array, value = live.pop(key)
            assert array[0] == value and array[-1] == value and (array[:: max(1, array.size // 50)] == value).all()
        else:
            size = int(2 ** rng.uniform(8, 21))
            zeroed = rng.random() < 0.3
            array = np.zeros(size, np.uint8) if zeroed else np.empty(size, np.uint8)
            if zeroed:
                assert not array.any()
            value = step % 251 + 1
            array.fill(value)
            live[step] = (array, value)


def test_threads_share_the_allocator():
    wrong = []

    def work(seed):
        rng = random.Random(seed)
        for _ in range(1500):
            arrays = [np.full(int(2 ** rng.uniform(8, 17)), seed, np.uint8) for _ in range(3)]
            if any((array != seed).any() for array in arrays):
                wrong.append(seed)

    in_threads(*[functools.partial(work, seed) for seed in range(1, 5)])
    assert not wrong


def test_other_threads_use_it_too():
    addresses = []

    def work():
        addresses.append(np.empty(5 * MB, np.uint8).ctypes.data)

    before = _C.memory_stats()["requests"]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert _C.memory_stats()["requests"] > before
    assert addresses[0] % 64 == 0


def test_a_forked_child_can_allocate_and_free():
    array = np.full(3 * MB, 5, np.uint8)
    child = os.fork()
    if child == 0:
        other = array + np.uint8(1)
        del array
        os._exit(0 if (other == 6).all() and not np.zeros(3 * MB, np.uint8).any() else 1)
    assert os.waitpid(child, 0) == (child, 0)
    assert (array == 5).all()


RUN_ALONE = {
    "arrays made before the import are freed by malloc": """
import numpy as np
before = [np.ones(n, np.uint8) for n in (1, 2000, 1 << 16, 1 << 20, 40 << 20)]
from flambeau import _C
for array in before:
    array.resize(array.size * 2, refcheck=False)
after = [np.ones(array.size, np.uint8) for array in before]
del before, after, array
""",
    "a limit on address space before the import": """
import resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
import numpy as np
import flambeau as fl
assert np.ones(50 << 20, np.uint8).all() and not np.zeros(50 << 20, np.uint8).any()
assert fl.ones(1000, 1000).sum() == 1e6
""",
    "a limit on address space after the import": """
import resource
import numpy as np
import flambeau as fl
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
import decimal, sqlite3, scipy.linalg, xml.dom.minidom
kept = [fl.ones(100) for i in range(1000)] + [fl.ones(1 << i) for i in range(25)]
assert all(t.mean() == 1 for t in kept)
for make in (lambda: fl.empty(1 << 30), lambda: fl.zeros(1 << 30), lambda: fl.ones(1).expand(1 << 30) + 1):
    try:
        make()
        raise SystemExit("allowed")
    except RuntimeError as error:
        assert "4294967296 bytes" in str(error) and "GiB) are free" in str(error), error
assert fl.ones(1 << 20).sum() == 1 << 20
""",
    "a limit below what is used": """
import resource
import flambeau as fl
held = fl.ones(10)
resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
for _ in range(20):
    held = [fl.ones(10) + 1, fl.ones(1000) * 2]
""",
    "many blocks of middling size leave no pages behind": """
import gc
import numpy as np
import flambeau
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
gc.collect()
before = resident()
for _ in range(2):
    made = [np.ones(40_000, np.uint8) for _ in range(30_000)]
    kept = made[::1000]
    made = None
    gc.collect()
    assert all(k.all() for k in kept) and not any(np.zeros(40_000, np.uint8).any() for _ in range(2000))
    kept = None
    gc.collect()
    assert resident() - before < 16 << 20, resident() - before
assert not any(np.zeros(size, np.uint8).any() for size in range(40_000, 2_000_000, 9_999) for _ in range(3))
""",
    "memory goes back at a collection": """
import gc, os
import numpy as np
import flambeau as fl
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
def use(n):
    made = [np.ones(size, np.uint8) for size in (1500, 30_000, 100_000, 900_000, 5 << 20) for _ in range(n * (2 << 20) // size)]
    model = fl.nn.Sequential(fl.nn.Linear(64, 8 * n), fl.nn.Linear(8 * n, 64))
    model(fl.ones(32, 64)).sum().backward()
    made += [fl.ones(i) for i in range(n)]
use(2)
gc.collect()
before = resident()
for _ in range(3):
    use(100)
    gc.collect()
    assert resident() - before < 64 << 20, resident() - before
""",
    "memory goes back by itself": """
import os, threading, time
import numpy as np
from flambeau import _C
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
def threads():
    return len(os.listdir("/proc/self/task"))
before, alone = resident(), threads()
for round in range(2):
    held = [np.ones(size, np.uint8) for size in (1500, 100_000, 5 << 20) for _ in range((150 << 20) // size)]
    del held
    until = time.monotonic() + 20
    while (resident() - before > 64 << 20 or threads() > alone) and time.monotonic() < until:
        time.sleep(0.05)
    assert resident() - before < 64 << 20 and threads() == alone
""",
    "what is kept makes room for blocks of other sizes": """
import resource
import numpy as np
from flambeau import _C
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
before = most()
for size in (5 << 20, 9 << 20, 300_000, 14 << 20, 3 << 20):     # 256 MB each, one after the other
    held = [np.ones(size, np.uint8) for _ in range((256 << 20) // size)]
    del held
assert most() - before < (256 + 64 + 48) << 20, (most() - before) >> 20    # and at most 64 MB, and a fifth of a block unused
evicted = _C.memory_stats()["evicted"]
for _ in range(3):      # of sizes that fit side by side, all are kept
    for size in (5 << 20, 9 << 20):
        held = [np.ones(size, np.uint8) for _ in range((64 << 20) // size)]
        del held
assert _C.memory_stats()["evicted"] - evicted < 30
""",
    "forks while memory is kept": """
import os, time
import numpy as np
def work():
    held = [np.ones(3 << 20, np.uint8) for _ in range(40)]
    assert all(h.all() for h in held)
for i in range(6):
    work()
    time.sleep(0.1 * i)
    child = os.fork()
    work()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
""",
}


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.own_memory] if "resident" in text or "RLIMIT" in text else [])
                                  for case, text in RUN_ALONE.items()])
def test_in_a_process_of_its_own(case):
    command = [sys.executable, "-W", "error", "-c", RUN_ALONE[case]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_negative_limit_is_refused():
    with pytest.raises(ValueError, match="bytes >= 0"):
        _C.set_cache_limit(-1)
