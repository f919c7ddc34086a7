"""What torch.cuda, torch.backends.cuda, torch.cpu and torch.accelerator answer where there is no GPU, as torch's build for CPUs does."""

from __future__ import annotations

import importlib
import platform
from typing import Any

import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])
pytestmark = pytest.mark.skipif(fl.cuda.is_available() or torch.cuda.is_available(), reason="about machines without a GPU")

ANSWERS = {
    "cuda.host_memory_stats()": {}, "cuda.host_memory_stats_as_nested_dict()": {}, "cuda.memory_stats()": {}, "cuda.get_arch_list()": [],
    "cuda.amp.amp_definitely_not_available()": True, "cuda.nccl.is_available([])": False, "cuda.caching_allocator_enable(True)": None,
    "cuda.cudaStatus.SUCCESS": 0, "cuda.cudaStatus.ERROR_NOT_READY": 34, "backends.cuda.cuBLASModule().allow_tf32": False,
    "cpu.StreamContext(None).__enter__()": None}
REFUSALS = {
    "cuda.current_solver_handle()": AssertionError, "cuda.use_mem_pool(None).__enter__()": AssertionError,
    "cuda.get_stream_from_external(0)": AssertionError, "cuda.CUDAPluggableAllocator('x', 'a', 'b')": OSError,
    "backends.cuda.cufft_plan_cache.size": AssertionError, "backends.cuda.cufft_plan_cache.clear()": AssertionError,
    "backends.cuda.cufft_plan_cache[0]": RuntimeError, "accelerator.Graph()": RuntimeError}


@pytest.mark.filterwarnings("ignore:PyTorch is not compiled with NCCL")
@LIBRARIES
@pytest.mark.parametrize("asked", ANSWERS)
def test_answers(asked: str, t: Any) -> None:
    for module in ("cuda.nccl", "cuda.amp", "backends.cuda"):
        importlib.import_module(f"{t.__name__}.{module}")
    assert eval(f"t.{asked}", {"t": t}) == ANSWERS[asked]


@LIBRARIES
@pytest.mark.parametrize("asked", REFUSALS)
def test_refusals(asked: str, t: Any) -> None:
    with pytest.raises(REFUSALS[asked]):
        eval(f"t.{asked}", {"t": t})


def test_workspaces_and_allocators_are_asked_of_the_gpu() -> None:
    cuda = fl.backends.cuda
    before = cuda.cublas_workspace_size()
    assert cuda.cublas_workspace_size(1024) == cuda.blas_workspace_size() == 1024
    cuda.cublas_workspace_size(before)
    assert cuda.blas_workspace_size(backend="cublaslt") == cuda.cublaslt_workspace_size()
    with pytest.raises(ValueError, match="bytes"):
        cuda.cublas_workspace_size(-1)
    with pytest.raises(NotImplementedError, match="AMD"):
        cuda.preferred_rocm_fa_library("ck")
    for call in (fl.cuda.MemPool, lambda: fl.cuda.change_current_allocator(None), fl.cuda.memory_usage):
        with pytest.raises(AssertionError, match="use device='cpu'"):
            call()
    with pytest.raises(fl.cuda.CudaError, match="2"):
        fl.cuda.check_error(2)
    assert fl.cuda.check_error(0) is None
    with fl.cuda.caching_allocator_disabled():
        pass


def test_attributes_by_functions() -> None:
    kept = [1]

    class Flags:
        most = fl.backends.cuda.cuFFTPlanCacheAttrContextProp(lambda: kept[0], lambda value: kept.__setitem__(0, value))

    flags = Flags()
    flags.most = 3
    assert flags.most == 3


def test_what_the_processor_can_do() -> None:
    theirs, ours = torch.cpu.get_capabilities(), fl.cpu.get_capabilities()
    assert ours["architecture"] == platform.machine()
    shared = {name for name in theirs if isinstance(theirs[name], bool)}
    assert shared <= set(ours) and {n: ours[n] for n in shared} == {n: theirs[n] for n in shared}
    with pytest.raises(TypeError):
        ours["avx2"] = False  # type: ignore[index]
