"""torch.backends.cuda: switches of the NVIDIA backend. The backend itself is loaded when a tensor first meets a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


def flash_sdp_enabled() -> bool:
    """Whether flash attention may be chosen."""
    return _sdp["flash"]


def mem_efficient_sdp_enabled() -> bool:
    """Whether memory-efficient attention may be chosen."""
    return _sdp["mem_efficient"]


def math_sdp_enabled() -> bool:
    """Whether attention by plain operators may be chosen."""
    return _sdp["math"]


def cudnn_sdp_enabled() -> bool:
    """Whether cuDNN's attention may be chosen."""
    return _sdp["cudnn"]


def enable_flash_sdp(enabled: bool) -> None:
    """Allow or forbid flash attention on a GPU."""
    _sdp["flash"] = enabled


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Allow or forbid memory-efficient attention on a GPU."""
    _sdp["mem_efficient"] = enabled


def enable_math_sdp(enabled: bool) -> None:
    """Allow or forbid attention by plain operators on a GPU."""
    _sdp["math"] = enabled


def enable_cudnn_sdp(enabled: bool) -> None:
    """Allow or forbid cuDNN's attention on a GPU."""
    _sdp["cudnn"] = enabled


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
