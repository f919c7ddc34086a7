"""`autocast`: within the block, matrix products run in a narrow dtype and losses in float32.

It is a function mode: each operator called in the block has its tensor arguments cast first, by the tables below. Casts of
leaf weights are kept until the outermost block ends.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ..core import dispatch
from ..core.dtypes import bfloat16, dtype, float16, float32
from ..core.settings import add_setting
from ..core.tensor import Tensor
from ..ops import registry
from ..ops.custom import CustomOperator

_PRODUCTS = """linear matmul __matmul__ mm bmm addmm addbmm baddbmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
chain_matmul linalg_multi_dot linalg_vecdot inner einsum scaled_dot_product_attention prelu"""
_LOSSES = """cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss kl_div cosine_embedding_loss hinge_embedding_loss margin_ranking_loss
multi_margin_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss poisson_nll_loss binary_cross_entropy_with_logits"""
_LINALG = """cond matrix_rank solve cholesky cholesky_ex svd svdvals eig eigvals eigh eigvalsh inv inv_ex qr lstsq householder_product
tensorinv tensorsolve"""
_FFT = "fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn hfft ihfft"


def _lists(narrow: str, wide: str, promote: str) -> dict[str, str]:
    return {name: kind for kind, names in (("narrow", narrow), ("wide", wide), ("promote", promote)) for name in names.split()}


# What PyTorch documents, by device: operators on the narrow dtype, on float32, and on the widest dtype among their tensors.
CLASSES: dict[str, dict[str, str]] = {
    "cpu": _lists(f"{_PRODUCTS} tensordot", f"""{_LOSSES} huber_loss binary_cross_entropy ctc_loss avg_pool3d max_pool3d adaptive_avg_pool3d
        adaptive_max_pool3d max_unpool2d max_unpool3d fractional_max_pool2d fractional_max_pool3d local_response_norm grid_sample polar prod
        quantile nanquantile stft cdist trace view_as_complex cholesky_inverse cholesky_solve lu_solve ormqr geqrf
        {" ".join(f"linalg_{name}" for name in _LINALG.split())} {" ".join(f"fft_{name}" for name in _FFT.split())}""",
                  "cat stack index_copy"),
    "cuda": _lists(f"{_PRODUCTS} addmv addr mv", f"""{_LOSSES} acos asin cosh cosine_similarity cdist cumprod cumsum dist erfinv exp expm1
        group_norm layer_norm log log10 log1p log2 log_softmax norm linalg_norm linalg_vector_norm normalize pdist pow rpow prod reciprocal
        rsqrt sinh softmax softmin softplus sum renorm tan""",
                   "cat stack index_copy addcdiv addcmul atan2 bilinear cross linalg_cross dot grid_sample index_put scatter_add "
                   "tensordot"),
}


class _State:
    """Per device type: enabled or not, and the narrow dtype; shared: the cache and the depth of the blocks."""

    enabled: dict[str, bool] = {"cpu": False, "cuda": False}
    kinds: dict[str, dtype] = {"cpu": bfloat16, "cuda": float16}
    cache_enabled = True
    cache: dict[int, tuple[Tensor, Tensor]] = {}
    depth = 0


add_setting("autocast", _State.enabled, *_State.enabled)
add_setting("autocast dtypes", _State.kinds, *_State.kinds)
add_setting("autocast cache", _State, "cache_enabled")


def _cast(value: Any, kind: dtype, where: str) -> Any:
    if isinstance(value, Tensor):
        if not value.dtype.is_floating_point or value.dtype is kind or value.dtype.itemsize > 4 or value.device.type != where:
            return value
        if _State.cache_enabled and kind.itemsize < 4 and value.dtype is float32 and value.requires_grad and value.is_leaf \
                and dispatch.state.grad_enabled and value._data is not None:
            found = _State.cache.get(id(value))
            if found is None or found[1].dtype is not kind:
                found = _State.cache[id(value)] = (value, value.to(kind))
            return found[1]
        return value.to(kind)
    if type(value) in (list, tuple):
        return type(value)(_cast(v, kind, where) for v in value)
    return value


def _floats(values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for v in values:
        if isinstance(v, Tensor) and v.dtype.is_floating_point:
            found.append(v)
        elif type(v) in (list, tuple):
            found += _floats(v)
    return found


class _CastingMode:
    """The function mode that casts."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if type(func) is CustomOperator and func.autocast:
            return _custom(func, args, kwargs)
        name = registry.is_operator(func) and getattr(getattr(func, "_operator", None), "name", None)
        known = any(name in classes for classes in CLASSES.values()) and kwargs.get("out") is None     # what is given as out= is not cast
        tensors = _floats((*args, *kwargs.values())) if known else []
        if not tensors:
            return func(*args, **kwargs)
        where = tensors[0].device.type
        kind = self._kind(name, where, tensors) if _State.enabled.get(where) else None     # type: ignore[arg-type]
        if kind is None:
            return func(*args, **kwargs)
        return func(*_cast(args, kind, where), **{k: _cast(v, kind, where) for k, v in kwargs.items()})

    @staticmethod
    def _kind(name: str, where: str, tensors: list[Tensor]) -> dtype | None:
        found = CLASSES[where].get(name)
        if found == "narrow":    # einsum of one operand is no product
            return _State.kinds[where] if name != "einsum" or len(tensors) > 1 else None
        if found == "wide":
            return float32
        return max((t.dtype for t in tensors), key=lambda kind: kind.itemsize) if found == "promote" else None


def _custom(func: CustomOperator, args: tuple, kwargs: dict) -> Any:
    """A program's own operator, as torch.library.register_autocast says: on cast arguments, and itself without autocast."""
    where = next((t.device.type for t in _floats((*args, *kwargs.values()))), "cpu")
    kind = func.autocast.get(where)
    if kind is None or not _State.enabled.get(where):
        return func(*args, **kwargs)
    with autocast(where, enabled=False):
        return func(*_cast(args, kind, where), **{k: _cast(v, kind, where) for k, v in kwargs.items()})


_mode = _CastingMode()


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows this kind of device."""
    return device_type in _State.enabled


class autocast:
    """`with autocast("cpu", dtype=bfloat16):`, or as a decorator: mixed precision on one kind of device."""

    def __init__(self, device_type: str, dtype: dtype | None = None, enabled: bool = True,
                 cache_enabled: bool | None = None) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'; use 'cpu' or 'cuda'")
        self.device = device_type
        self.fast_dtype = dtype if dtype is not None else _State.kinds[device_type]
        self._enabled = enabled
        self._cache_enabled = _State.cache_enabled if cache_enabled is None else cache_enabled
        if enabled and self.fast_dtype not in (bfloat16, float16) and self.fast_dtype is not float32:
            warnings.warn(f"In {device_type.upper()} autocast, but the target dtype is not supported. Disabling "
                          f"autocast. {device_type.upper()} "
                          "Autocast only supports dtype of torch.bfloat16, torch.float16 currently.", stacklevel=2)
            self._enabled = False

    def __enter__(self) -> autocast:
        self._saved = (_State.enabled[self.device], _State.kinds[self.device], _State.cache_enabled)
        _State.enabled[self.device], _State.kinds[self.device] = self._enabled, self.fast_dtype
        _State.cache_enabled = self._cache_enabled
        _State.depth += 1
        registry.function_modes.append(_mode)
        dispatch.state.overrides += 1
        return self

    def __exit__(self, *exc: object) -> None:
        registry.function_modes.remove(_mode)
        dispatch.state.overrides -= 1
        _State.enabled[self.device], _State.kinds[self.device], _State.cache_enabled = self._saved
        _State.depth -= 1
        if not _State.depth:
            clear_autocast_cache()

    def __call__(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.device, self.fast_dtype, self._enabled, self._cache_enabled):
                return func(*args, **kwargs)
        return wrapper


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether an autocast block for this kind of device is active."""
    return _State.enabled.get(device_type, False)


def is_autocast_cpu_enabled() -> bool:
    """is_autocast_enabled("cpu")."""
    return is_autocast_enabled("cpu")


def get_autocast_dtype(device_type: str) -> dtype:
    """The narrow dtype of autocast on this kind of device."""
    return _State.kinds[device_type]


def get_autocast_cpu_dtype() -> dtype:
    """get_autocast_dtype("cpu")."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> dtype:
    """get_autocast_dtype("cuda")."""
    return get_autocast_dtype("cuda")


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Say that autocast is on or off for a kind of device; it acts inside `autocast` blocks."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    _State.enabled[device_type] = enabled


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Set the narrow dtype for a kind of device."""
    _State.kinds[device_type] = dtype


def is_autocast_cache_enabled() -> bool:
    """Whether casts of weights are kept within a block."""
    return _State.cache_enabled


def clear_autocast_cache() -> None:
    """Forget the casts of weights."""
    _State.cache.clear()


def _decorated(fn: Callable | None, make: Callable) -> Callable:
    return make if fn is None else make(fn)


def custom_fwd(fwd: Callable | None = None, *, device_type: str, cast_inputs: dtype | None = None) -> Callable:
    """For `forward` of a custom Function: run it without autocast on inputs cast to `cast_inputs`, or as autocast stands."""
    def decorate(fn: Callable) -> Callable:
        @functools.wraps(fn)
        def wrapper(ctx: Any, *args: Any, **kwargs: Any) -> Any:
            ctx._autocast = (is_autocast_enabled(device_type), get_autocast_dtype(device_type))
            if cast_inputs is None:
                return fn(ctx, *args, **kwargs)
            on = is_autocast_enabled(device_type)
            with autocast(device_type, enabled=False):
                return fn(ctx, *(_cast(args, cast_inputs, device_type) if on else args), **kwargs)
        return wrapper
    return _decorated(fwd, decorate)


def custom_bwd(bwd: Callable | None = None, *, device_type: str) -> Callable:
    """For `backward` of a custom Function: run it as autocast stood in its forward."""
    def decorate(fn: Callable) -> Callable:
        @functools.wraps(fn)
        def wrapper(ctx: Any, *args: Any, **kwargs: Any) -> Any:
            enabled, kind = ctx._autocast
            with autocast(device_type, kind, enabled):
                return fn(ctx, *args, **kwargs)
        return wrapper
    return _decorated(bwd, decorate)
