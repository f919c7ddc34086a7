"""torch.backends.cuda: switches of the NVIDIA backend. The backend itself is loaded when a tensor first meets a GPU."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...core.device import current_cuda
from ...core.device import device as _device
from ...core.settings import add_setting


class matmul:
    """Precision of matrix products on a GPU. `allow_tf32`: f32 products may round their operands to TF32."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False
    fp32_precision = "none"


_sdp = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}
add_setting("GPU products", matmul, *(name for name in vars(matmul) if name[0] != "_"))
add_setting("GPU attention", _sdp, *_sdp, traced=True)


def is_built() -> bool:
    """Whether GPUs can be used here: CuPy is installed."""
    return importlib.util.find_spec("cupy") is not None


def _choice(kind: str, what: str) -> tuple[Callable[[], bool], Callable[[bool], None]]:
    """The functions that tell whether a way of computing attention may be chosen, and that say so."""
    def enabled() -> bool:
        return _sdp[kind]

    def enable(enabled: bool) -> None:
        _sdp[kind] = enabled

    enabled.__name__ = enabled.__qualname__ = f"{kind}_sdp_enabled"
    enable.__name__ = enable.__qualname__ = f"enable_{kind}_sdp"
    enabled.__doc__, enable.__doc__ = f"Whether {what} may be chosen.", f"Allow or forbid {what} on a GPU."
    return enabled, enable


flash_sdp_enabled, enable_flash_sdp = _choice("flash", "flash attention")
mem_efficient_sdp_enabled, enable_mem_efficient_sdp = _choice("mem_efficient", "memory-efficient attention")
math_sdp_enabled, enable_math_sdp = _choice("math", "attention by plain operators")
cudnn_sdp_enabled, enable_cudnn_sdp = _choice("cudnn", "cuDNN's attention")


def can_use_flash_attention(params: Any, debug: bool = False) -> bool:
    """Whether the kernel without stored scores takes this call: on a GPU, f16 or bf16 (f32 with TF32), no mask, no dropout."""
    q = params.query
    kinds = ("torch.float16", "torch.bfloat16", *(["torch.float32"] if matmul.allow_tf32 else []))
    return (q.is_cuda and str(q.dtype) in kinds and params.attn_mask is None and params.dropout == 0 and q.ndim == 4 and
            16 <= q.shape[-1] <= 128 and flash_sdp_enabled())


def can_use_efficient_attention(params: Any, debug: bool = False) -> bool:
    """False: that kernel needs a GPU."""
    return False


def can_use_cudnn_attention(params: Any, debug: bool = False) -> bool:
    """False: cuDNN's attention is not called."""
    return False


def is_flash_attention_available() -> bool:
    """Whether there is a kernel without stored scores: where GPUs can be used."""
    return is_built()


def is_ck_sdpa_available() -> bool:
    """False: that is for AMD's GPUs."""
    return False


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """Whether attention by plain operators may add in f16 and bf16: never, it adds in f32."""
    return False


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Allow attention by plain operators to add in f16 and bf16; it goes on adding in f32."""


_LIBRARIES = {"linalg": ("default", "cusolver", "magma"), "blas": ("default", "cublas", "cublaslt", "hipblaslt", "ck")}
_preferred = {"linalg": "default", "blas": "default"}


def _prefer(kind: str, backend: str | None) -> str:
    if backend is not None:
        if str(backend) not in _LIBRARIES[kind]:
            raise RuntimeError(f"Unknown input value. Choose from: {', '.join(_LIBRARIES[kind])}.")
        _preferred[kind] = str(backend)
    return _preferred[kind]


def preferred_linalg_library(backend: str | None = None) -> str:
    """The library for decompositions on a GPU, set if given. There is one, cuSOLVER; "magma" is accepted and means it too."""
    return _prefer("linalg", backend)


def preferred_blas_library(backend: str | None = None) -> str:
    """The library for products on a GPU, set if given. cuBLAS and cuBLASLt are chosen between by what a product needs."""
    return _prefer("blas", backend)


class SDPAParams:
    """The arguments of one attention call, for `can_use_flash_attention`."""

    def __init__(self, query: Any, key: Any, value: Any, attn_mask: Any, dropout: float, is_causal: bool, enable_gqa: bool) -> None:
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


@contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[None]:
    """Choose among attention kernels of a GPU for the block."""
    before = dict(_sdp)
    _sdp.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)
    try:
        yield
    finally:
        _sdp.update(before)


cuBLASModule = matmul
"""The class of `torch.backends.cuda.matmul`, whose flags are its own here."""

_BACKENDS = {"hipblaslt": "cublaslt", "cublaslt": "cublaslt"}
_workspaces = {"cublas": 4096 * 1024 * 2 + 16 * 1024 * 8, "cublaslt": 32 << 20}


def _workspace(library: str, size: int | None) -> int:
    if size is not None:
        if not isinstance(size, int) or size < 0:
            raise ValueError(f"{library}_workspace_size: a size is a number of bytes, got {size!r}")
        _workspaces[library] = size
    return _workspaces[library]


def cublas_workspace_size(size: int | None = None) -> int:
    """Bytes that cuBLAS may work in, set if given: kept, as CuPy's handles have the library's own workspace."""
    return _workspace("cublas", size)


def cublaslt_workspace_size(size: int | None = None) -> int:
    """Bytes that cuBLASLt may work in, set if given: kept, as each product asks for what its algorithm needs."""
    return _workspace("cublaslt", size)


def blas_workspace_size(size: int | None = None, backend: str | None = None) -> int:
    """That of a backend: the preferred one, if none is named."""
    return _workspace(_BACKENDS.get(str(backend or _preferred["blas"]), "cublas"), size)


def preferred_rocm_fa_library(backend: str | None = None) -> str:
    """ "default": AMD's GPUs are not supported; another choice raises."""
    if backend not in (None, "default"):
        raise NotImplementedError(f"preferred_rocm_fa_library({backend!r}): AMD's GPUs are not supported; use the CPU or an NVIDIA GPU")
    return "default"


class cuFFTPlanCache:
    """The plans of transforms that are kept for one GPU: `size`, `max_size` (may be set), `clear()`. CuPy keeps them."""

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index

    def _cache(self) -> Any:
        if not is_built():
            raise AssertionError("Torch not compiled with CUDA enabled: no NVIDIA GPU can be used here, so no plans of transforms are kept "
                                 f"for GPU {self.device_index}")
        cupy = importlib.import_module("cupy")
        with cupy.cuda.Device(self.device_index):
            return cupy.fft.config.get_plan_cache()

    @property
    def size(self) -> int:
        """How many there are."""
        return int(self._cache().get_curr_size())

    @property
    def max_size(self) -> int:
        """How many there may be."""
        return int(self._cache().get_size())

    @max_size.setter
    def max_size(self, most: int) -> None:
        self._cache().set_size(most)

    def clear(self) -> None:
        """Drop them all."""
        self._cache().clear()


class cuFFTPlanCacheManager(cuFFTPlanCache):
    """The caches of all GPUs: `cufft_plan_cache[i]`; itself that of the current one."""

    def __init__(self) -> None:
        pass

    @property
    def device_index(self) -> int:     # type: ignore[override]
        """The current GPU's number."""
        return current_cuda[0]

    def __getitem__(self, device: Any) -> cuFFTPlanCache:
        index = device if isinstance(device, int) else _device(device).index
        count = importlib.import_module("cupy").cuda.runtime.getDeviceCount() if is_built() else 0
        index = current_cuda[0] if index is None else index
        if not 0 <= index < count:
            raise RuntimeError(f"cufft_plan_cache: expected 0 <= device index < {count}, but got device with index {index}")
        return cuFFTPlanCache(index)


class cuFFTPlanCacheAttrContextProp:
    """An attribute that is read and written by functions."""

    def __init__(self, getter: Any, setter: Any) -> None:
        self.getter, self.setter = getter, setter

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self.getter()

    def __set__(self, instance: Any, value: Any) -> None:
        self.setter(value)


cufft_plan_cache = cuFFTPlanCacheManager()
