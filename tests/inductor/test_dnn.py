"""Convolution, pooling and batch norm for GPUs, checked without one: what cuDNN is told, and what the kernels around it compute."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as fl
from flambeau.aot.trace import make_fx
from flambeau.backends.cuda import dnn_library
from flambeau.core.dispatch import fake_mode
from flambeau.inductor.call import ByAddress
from flambeau.inductor.gpu import cuda
from flambeau.inductor.loop.scheduler import GPU, schedule
from flambeau.inductor.targets import lower

INT64 = dnn_library.INT64


class Recorder:
    """Stands for libcudnn: keeps what descriptors are told; heuristics propose three engines, of which the first cannot be built."""

    def __init__(self) -> None:
        self.descriptors: dict[int, dict] = {}
        self.executed: list[dict] = []
        self.destroyed = 0

    def cudnnBackendCreateDescriptor(self, kind: int, out: ctypes._Pointer) -> int:
        number = len(self.descriptors) + 1
        self.descriptors[number] = {"kind": kind}
        ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = number
        return 0

    def cudnnBackendDestroyDescriptor(self, pointer: ctypes.c_void_p) -> int:
        self.destroyed += 1
        return 0

    def cudnnBackendSetAttribute(self, pointer: ctypes.c_void_p, name: int, kind: int, count: int, values: ctypes.Array) -> int:
        assert len(values) == count and values._type_ is dnn_library.C_TYPES[kind]
        assert name not in self.descriptors[pointer.value]
        self.descriptors[pointer.value][name] = list(values)
        return 0

    def cudnnBackendGetAttribute(self, pointer: ctypes.c_void_p, name: int, kind: int, most: int, count: ctypes._Pointer,
                                 values: ctypes.Array) -> int:
        found = ctypes.cast(count, ctypes.POINTER(ctypes.c_int64))
        if name == 202:
            found[0] = 3
            for rank in range(3):
                self.descriptors[values[rank]]["rank"] = rank
        elif name == 402:
            config = self.descriptors[self.descriptors[pointer.value][401][0]]
            found[0], values[0] = 1, 100 * config["rank"]
        elif name == 1303:
            found[0], values[0] = 1, dnn_library.TENSOR_CORE
        else:
            found[0] = 1
        return 0

    def cudnnBackendFinalize(self, pointer: ctypes.c_void_p) -> int:
        facts = self.descriptors[pointer.value]
        facts["final"] = True
        return 3000 if facts["kind"] == dnn_library.PLAN and self.descriptors[facts[401][0]]["rank"] == 0 else 0

    def cudnnBackendExecute(self, handle: ctypes.c_void_p, plan: ctypes.c_void_p, pack: ctypes.c_void_p) -> int:
        self.executed.append(self.descriptors[pack.value])
        return 0

    def cudnnGetErrorString(self, status: int) -> bytes:
        return b"STATUS %d" % status

    def cudnnGetLastErrorString(self, said: ctypes.Array, size: int) -> None:
        said.value = b"said the library"


@pytest.fixture
def library() -> dnn_library.Library:
    made = dnn_library.Library.__new__(dnn_library.Library)
    made.lib = Recorder()
    return made


def _of_kind(recorder: Recorder, kind: int) -> list[dict]:
    return [d for d in recorder.descriptors.values() if d["kind"] == kind]


@pytest.mark.parametrize(("kind", "first"), [("convolution", 700), ("convolution_input_grad", 706), ("convolution_weight_grad", 712)])
def test_what_a_convolution_is_described_as(library, kind, first):
    conv = dnn_library.describe(kind, "bfloat16", [(2, 8, 9, 7), (16, 4, 3, 1), (2, 16, 5, 7)], True, (2, 1), (1, 0), (1, 1))
    plans = list(dnn_library.plans(library, ctypes.c_void_p(77), conv))
    recorder = library.lib
    x, y, w = sorted(_of_kind(recorder, dnn_library.TENSOR), key=lambda d: (d[902][0], d[902][1]))
    assert x[902] == [2, 8, 9, 7] and x[903] == [9 * 7 * 8, 1, 7 * 8, 8] and x[901] == [9] and x[906] == [dnn_library.UIDS["x"]]
    assert w[902] == [16, 4, 3, 1] and w[903] == [12, 1, 4, 4] and y[902] == [2, 16, 5, 7]
    slide, = _of_kind(recorder, dnn_library.CONVOLUTION)
    assert (slide[103], slide[104], slide[105], slide[102], slide[106], slide[100]) == ([2, 1], [1, 0], [1, 0], [1, 1], [2], [0])
    operation, = _of_kind(recorder, dnn_library.OPERATIONS[kind][0])
    assert operation[first] == [1.0] and operation[first + 1] == [0.0]
    uids = [recorder.descriptors[operation[first + 3 + k][0]][906][0] for k in range(3)]
    assert uids == [dnn_library.UIDS[name] for name in "wxy"]
    graph, = _of_kind(recorder, dnn_library.GRAPH)
    assert graph[800] == [77]
    assert [p.workspace for p in plans] == [100, 200] * 2       # heuristics, then fallbacks; the first engine cannot be built


def test_plans_run_on_addresses_and_keep_their_descriptors(library):
    conv = dnn_library.describe("convolution", "float32", [(1, 4, 4, 4), (4, 4, 1, 1), (1, 4, 4, 4)], True, (1, 1), (0, 0), (1, 1))
    call = next(dnn_library.plans(library, ctypes.c_void_p(1), conv)).call
    before = library.lib.destroyed
    for _ in range(3):
        call(16, 32, 48, 64)
    call(16, 32, 48, 80)
    packs = library.lib.executed
    assert [p[1001] for p in packs] == [[16, 32, 48]] * 4 and [p[1003] for p in packs] == [[64]] * 3 + [[80]]
    assert packs[0] is packs[2] and packs[2] is not packs[3] and library.lib.destroyed == before


def test_exact_sums_take_no_tensor_cores(library):
    with fl.backends.cudnn.flags(allow_tf32=False):
        conv = dnn_library.describe("convolution", "float32", [(1, 4, 4, 4), (4, 4, 1, 1), (1, 4, 4, 4)], True, (1, 1), (0, 0), (1, 1))
    assert conv.exact and not list(dnn_library.plans(library, ctypes.c_void_p(1), conv))
    assert list(dnn_library.plans(library, ctypes.c_void_p(1), conv._replace(exact=False)))


def test_a_plan_that_needs_too_much_memory_is_passed_over(library):
    conv = dnn_library.describe("convolution", "float16", [(1, 4, 4, 4), (4, 4, 1, 1), (1, 4, 4, 4)], True, (1, 1), (0, 0), (1, 1))
    assert [p.workspace for p in dnn_library.plans(library, ctypes.c_void_p(1), conv, 150)] == [100, 100]


def test_one_spatial_axis_becomes_two():
    conv = dnn_library.describe("convolution", "float32", [(2, 4, 9), (6, 4, 3), (2, 6, 4)], False, (2,), (1,), (1,))
    assert conv.x == ((2, 4, 1, 9), (36, 9, 9, 1)) and conv.window == ((1, 2), (0, 1), (1, 1))


def test_a_missing_library_says_what_to_install():
    with pytest.raises(RuntimeError, match="pip install nvidia-cudnn-cu13"):
        dnn_library.Library(["libcudnn_that_is_not_there.so.9"])


def test_errors_carry_the_librarys_words(library):
    with pytest.raises(dnn_library.CudnnError, match="attribute 5: STATUS 2000 said the library") as caught:
        library.check(2000, "attribute 5")
    assert caught.value.status == 2000


def _network(x, w1, w2, scale, shift):
    y = fl.nn.functional.conv2d(x, w1, None, 2, 3)
    y = fl.nn.functional.max_pool2d(fl.nn.functional.batch_norm(y, None, None, scale, shift, True).relu(), 3, 2, 1)
    return fl.nn.functional.adaptive_avg_pool2d(fl.nn.functional.conv2d(y, w2, None, 1, 1), 1).flatten(1)


def test_compiled_networks_lay_channels_innermost_take_blocks_and_fill_words():
    with fake_mode():
        def made(*shape):
            return fl.empty(shape, device="cuda", dtype=fl.bfloat16)
        inputs = made(4, 3, 32, 32), made(64, 3, 7, 7), made(64, 64, 3, 3), made(64), made(64)
    program, fallbacks = lower(make_fx(_network)(*inputs))
    assert not fallbacks
    unit = cuda.print_program(program, schedule(program, GPU))
    first, second = [step.facts[0] for step in unit.code.call.of(ByAddress)]
    assert first.x.shape == (4, 16, 19, 19) and first.w.shape == (64, 16, 4, 4) and second.x.shape == (4, 64, 8, 8)
    assert all(o.strides[1] == 1 for conv in (first, second) for o in (conv.x, conv.w, conv.y))
    compile(unit.code.text(), "wrapper", "exec")
    statistics = [k for k in unit.kernels if k.text.count("tl.load") and "acc1" in k.text]
    assert statistics, "both sums of batch norm in one pass"


def test_kernels_around_convolutions_compile_to_cubins(tmp_path, monkeypatch):
    pytest.importorskip("triton", reason="Triton is an optional extra (flambeau[cuda])")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton-cache"))
    with fake_mode():
        inputs = [fl.empty(s, device="cuda") for s in ((2, 3, 16, 16), (8, 3, 7, 7), (8, 8, 3, 3), (8,), (8,))]
    program, _ = lower(make_fx(_network)(*inputs))
    for kernel in cuda.print_program(program, schedule(program, GPU)).kernels:
        assert cuda.compile_cubin(kernel, 90, cuda.aligned_parameters(program, kernel)).code[:4] == b"\x7fELF"


@pytest.mark.parametrize("case", ["convolutions", "blocks", "settled", "pooling", "batch_norm"])
def test_kernels_compute_the_right_numbers_under_the_interpreter(case, tmp_path):
    pytest.importorskip("triton", reason="Triton is an optional extra (flambeau[cuda])")
    script = Path(__file__).parent / "triton_windows.py"
    found = subprocess.run([sys.executable, str(script), case], capture_output=True, text=True, timeout=110,
                           env=os.environ | {"TRITON_INTERPRET": "1", "FLAMBEAU_CACHE_DIR": str(tmp_path)})
    assert found.returncode == 0 and f"{case} is right" in found.stdout, found.stderr[-3000:]
