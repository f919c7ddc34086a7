"""NativeGraph: calling compiled kernel libraries, their failures, and what the runtime offers them."""

import copy
import ctypes
import functools
import gc
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import flambeau
from flambeau import _C
from tests.threads import in_threads

INCLUDE = Path(flambeau.__path__[0]) / "include"

SOURCE = r"""
#include <cstring>
#include <stdexcept>
#include <unistd.h>
#include "runtime.h"
#include "philox_rounds.h"
#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int add(void** args, const int64_t* scalars, void*) {
    const float *a = (const float*)args[0], *b = (const float*)args[1];
    float* out = (float*)args[2];
    for (int64_t i = 0; i < scalars[0]; i++) out[i] = a[i] + b[i];
    return 0;
}
EXPORT int pointers(void** args, const int64_t* scalars, void*) {
    for (int64_t i = 0; i < scalars[0]; i++) ((int64_t*)args[0])[i] = (int64_t)args[i];
    return 0;
}
EXPORT int scalars(void** args, const int64_t* values, void*) {
    std::memcpy(args[0], values, values[0] * 8);
    return 0;
}
EXPORT int fails(void**, const int64_t* scalars, void* runtime) {
    FlambeauRuntime* rt = (FlambeauRuntime*)runtime;
    if (scalars[0] == 0) return rt->fail(rt, "no luck with %d", 42);
    if (scalars[0] == 1) throw std::runtime_error("thrown");
    if (scalars[0] == 2) throw 3;
    return 7;
}
EXPORT int out_of_bounds(void**, const int64_t* scalars, void* runtime) {
    FlambeauRuntime* rt = (FlambeauRuntime*)runtime;
    return rt->out_of_bounds(rt, scalars[0], scalars[1]);
}
EXPORT int runtime_facts(void** args, const int64_t*, void* runtime) {
    FlambeauRuntime* rt = (FlambeauRuntime*)runtime;
    int64_t* out = (int64_t*)args[0];
    char* memory = (char*)rt->alloc(100000);
    std::memset(memory, 1, 100000);
    out[0] = rt->version, out[1] = rt->num_threads, out[2] = (int64_t)memory % 64;
    out[3] = (int64_t)rt->find("nothing");
    rt->free(memory);
    rt->free(nullptr);
    return 0;
}
EXPORT int slow(void** args, const int64_t*, void*) {
    usleep(200000);
    ((float*)args[0])[0] += 1;
    return 0;
}
EXPORT int rounds(void** args, const int64_t*, void*) {
    uint32_t *c = (uint32_t*)args[0], *key = (uint32_t*)args[1];
    philox_rounds(c[0], c[1], c[2], c[3], key[0], key[1]);
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("g++") or pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("library")
    source, built = folder / "kernel.cpp", folder / "kernel.so"
    source.write_text(SOURCE)
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{INCLUDE}", str(source), "-o", str(built)]
    subprocess.run(command, check=True)
    return built


def numbers(*values):
    return np.array(values, np.float32)


def test_arrays_in_tuples_and_lists(library):
    add = _C.NativeGraph(library, "add", 3)
    out = np.empty(3, np.float32)
    assert add((numbers(1, 2, 3), numbers(10, 20, 30), out), (3,)) is None
    assert out.tolist() == [11, 22, 33]
    add([numbers(1, 2, 3), numbers(0, 0, 0), out], [2])
    assert out.tolist() == [1, 2, 33]


def test_tensors_are_passed_by_their_data(library):
    tensor = pytest.importorskip("flambeau.core.tensor")

    class Parameter(tensor.Tensor):
        pass

    add = _C.NativeGraph(str(library), "add", 3)
    a, b, out = (tensor.from_array(numbers(1, 2)) for _ in range(3))
    add((a, b._as_subclass(Parameter), out), (2,))
    assert out._data.tolist() == [2, 4]
    with pytest.raises(TypeError, match="fake"):
        add((a, b, tensor.fake((2,), a.dtype)), (2,))


def test_none_and_addresses(library):
    pointers = _C.NativeGraph(str(library), "pointers", 4)
    out, other = np.zeros(4, np.int64), numbers(1)
    pointers((out, None, 12345, other), (4,))
    assert out.tolist() == [out.ctypes.data, 0, 12345, other.ctypes.data]


def test_many_arrays_and_scalars(library):
    n = 200
    pointers, scalars = _C.NativeGraph(str(library), "pointers", n), _C.NativeGraph(str(library), "scalars", 1)
    arrays = [np.zeros(n, np.int64) for _ in range(n)]
    pointers(arrays, (n,))
    assert arrays[0].tolist() == [array.ctypes.data for array in arrays]
    out = np.zeros(n, np.int64)
    scalars((out,), [n, *range(-1, n - 2)])
    assert out.tolist() == [n, *range(-1, n - 2)]


def test_floats_are_passed_as_bits(library):
    out = np.zeros(3, np.int64)
    _C.NativeGraph(str(library), "scalars", 1)((out,), (3, 0.5, np.int64(7)))
    assert out[1:2].view(np.float64)[0] == 0.5 and out[2] == 7


@pytest.mark.parametrize(
    ("scalar", "message"),
    [(0, "no luck with 42"), (1, "thrown"), (2, r"unknown C\+\+ exception"), (3, "status 7, no message")],
)
def test_failures_are_runtime_errors(library, scalar, message):
    fails = _C.NativeGraph(str(library), "fails", 0)
    with pytest.raises(RuntimeError, match=rf"fails\(\) of .*kernel.so failed: {message}"):
        fails((), (scalar,))


def test_an_index_out_of_bounds_is_an_index_error(library):
    refuses = _C.NativeGraph(str(library), "out_of_bounds", 0)
    with pytest.raises(IndexError, match=r"^index 9 is out of bounds for dimension with size 5$"):
        refuses((), (9, 5))


def test_the_runtime_offers_threads_and_memory(library):
    out = np.full(4, -1, np.int64)
    _C.NativeGraph(str(library), "runtime_facts", 1)((out,))
    assert out.tolist() == [3, _C.get_num_threads(), 0, 0]


def test_the_gil_is_released(library):
    slow = _C.NativeGraph(str(library), "slow", 1)
    outs = [numbers(i) for i in range(4)]
    start = time.perf_counter()
    in_threads(*[functools.partial(slow, (out,)) for out in outs])
    assert time.perf_counter() - start < 0.6
    assert [out[0] for out in outs] == [1, 2, 3, 4]


def test_an_array_taken_from_its_tensor_stays_alive(library):
    tensor = pytest.importorskip("flambeau.core.tensor")
    slow = _C.NativeGraph(str(library), "slow", 1)
    holder = tensor.from_array(np.zeros(1 << 16, np.float32))
    before = holder._data
    base = sys.getrefcount(before)
    thread = threading.Thread(target=slow, args=([holder],))
    thread.start()
    time.sleep(0.05)
    holder._data = numbers(5)
    assert sys.getrefcount(before) == base  # the tensor's reference is gone, the call's is there
    thread.join()
    assert before[0] == 1 and sys.getrefcount(before) == base - 1


M = 0xFFFFFFFF
# Random123's kat_vectors for philox4x32 with 10 rounds: counter, key, output.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((M, M, M, M), (M, M), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers(library, counter, key, output):
    words = np.array(counter, np.uint32)
    _C.NativeGraph(str(library), "rounds", 2)((words, np.array(key, np.uint32)))
    assert tuple(words.tolist()) == output



def test_graphs_pickle_and_copy_by_path(library):
    add = _C.NativeGraph(str(library), "add", 3)
    for other in (pickle.loads(pickle.dumps(add)), copy.deepcopy(add), copy.copy(add)):
        assert (other.path, other.symbol, other.n_args) == (str(library), "add", 3)
        out = np.empty(1, np.float32)
        other((numbers(1), numbers(2), out), (1,))
        assert out[0] == 3
    assert repr(add) == f"NativeGraph({str(library)!r}, 'add', 3)"


def test_unusable_libraries_are_os_errors(library, tmp_path):
    with pytest.raises(OSError, match=r"cannot load the kernel library .*missing\.so"):
        _C.NativeGraph(tmp_path / "missing.so", "add", 3)
    broken = tmp_path / "broken.so"
    broken.write_bytes(library.read_bytes()[:100])
    with pytest.raises(OSError, match="cannot load"):
        _C.NativeGraph(broken, "add", 3)
    with pytest.raises(OSError, match="has no function nothing"):
        _C.NativeGraph(library, "nothing", 3)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ((), (), ()),
        (3,),
        ((numbers(1), numbers(2)), (1,)),  # too few
        ((numbers(1), numbers(2), [3.0]), (1,)),
        ((numbers(1), numbers(2), numbers(3)), ("n",)),
        ((numbers(1), numbers(2), numbers(3)), 1),
        ((numbers(1), numbers(2), object()), (1,)),
    ],
)
def test_wrong_arguments_are_type_errors(library, arguments):
    add = _C.NativeGraph(str(library), "add", 3)
    with pytest.raises(TypeError):
        add(*arguments)
    with pytest.raises(TypeError):
        add(*arguments, extra=1)


def test_too_large_a_scalar_is_an_overflow_error(library):
    with pytest.raises(OverflowError):
        _C.NativeGraph(str(library), "add", 3)((numbers(1), numbers(2), numbers(3)), (1 << 70,))


def test_a_list_that_shrinks_during_the_call(library):
    args = [numbers(1), numbers(2), numbers(3)]

    class Hostile:
        def __index__(self):
            args.clear()
            return 1

    with pytest.raises(RuntimeError, match="changed during the call"):
        _C.NativeGraph(str(library), "add", 3)(args, [Hostile()])


def test_references_are_given_back(library):
    add = _C.NativeGraph(str(library), "add", 3)
    fails = _C.NativeGraph(str(library), "fails", 3)
    arrays, scalars = (numbers(1), numbers(2), numbers(3)), (1,)
    objects = (*arrays, arrays, scalars, add, fails)
    before = [sys.getrefcount(x) for x in objects]
    for _ in range(100):
        add(arrays, scalars)
        with pytest.raises(RuntimeError):
            fails(arrays, scalars)
    gc.collect()
    assert [sys.getrefcount(x) for x in objects] == before


def test_the_library_is_closed_with_its_last_graph(library, tmp_path):
    own = tmp_path / "own.so"
    shutil.copy(library, own)
    graphs = [_C.NativeGraph(own, "add", 3), _C.NativeGraph(own, "slow", 1)]

    def is_loaded():
        return str(own) in Path("/proc/self/maps").read_text()

    assert is_loaded()
    graphs.pop()
    assert is_loaded()
    graphs.pop()
    gc.collect()
    assert not is_loaded()


def test_symbols_stay_local(library):
    graph = _C.NativeGraph(str(library), "runtime_facts", 1)
    assert not hasattr(ctypes.CDLL(None), "runtime_facts")
    assert graph.n_args == 1 and os.path.exists(graph.path)
