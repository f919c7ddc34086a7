"""`autocast`: within the block, matrix products run in a narrow dtype and losses in float32.

Each operator called in the block has its tensor arguments cast first, as its record says (`autocast`), after function modes and
classes were asked. Casts of leaf weights are kept until the outermost block ends. All of it is a thread's own.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from .. import _C
from ..core import dispatch, settings
from ..core.dtypes import bfloat16, dtype, float16, float32
from ..core.tensor import Tensor
from ..cuda.library import device_count
from ..ops import registry
from ..ops.custom import CustomOperator

DEVICES = ("cpu", "cuda")


class Settings(NamedTuple):
    """Of one thread; by device where there is one for each."""

    on: bool
    """For some device. Native code reads it."""
    enabled: tuple[bool, ...]
    kinds: tuple[dtype, ...]
    caching: bool


@functools.cache
def _settings(enabled: tuple[bool, ...], kinds: tuple[dtype, ...], caching: bool) -> Settings:
    """One object for all that are equal: guards compare it."""
    return Settings(any(enabled), enabled, kinds, caching)


_UNTOUCHED = _settings((False, False), (bfloat16, float16), True)


def _now() -> tuple[Settings, dict | None]:
    """The settings of this thread, and the casts of weights by their ids: None outside of blocks."""
    return dispatch.state.autocast or (_UNTOUCHED, None)


def _with(device: str, enabled: bool | None = None, kind: dtype | None = None, caching: bool | None = None) -> Settings:
    """The settings with other ones for a device."""
    now, place = _now()[0], _place(device)

    def put(values: tuple, value: Any) -> tuple:
        return values if value is None else (*values[:place], value, *values[place + 1:])

    return _settings(put(now.enabled, enabled), put(now.kinds, kind), now.caching if caching is None else caching)


def _set(changed: Settings) -> None:
    cache = _now()[1]
    dispatch.state.autocast = None if cache is None and changed is _UNTOUCHED else (changed, cache)


def _place(device_type: str) -> int:
    if not is_autocast_available(device_type):
        raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'; use 'cpu' or 'cuda'")
    return DEVICES.index(device_type)


settings.READ["autocast"] = lambda: _now()[0]


def _cast(value: Any, kind: dtype, where: str) -> Any:
    if isinstance(value, Tensor):
        if not value.dtype.is_floating_point or value.dtype is kind or value.dtype.itemsize > 4 or value.device.type != where:
            return value
        now, cache = _now()
        if cache is not None and now.caching and kind.itemsize < 4 and value.dtype is float32 and value.requires_grad \
                and value.is_leaf and dispatch.state.grad_enabled and value._data is not None:
            found = cache.get(id(value))
            if found is None or found[1].dtype is not kind or found[2] != value._writes:     # an optimizer may step within a block
                found = cache[id(value)] = (value, value.to(kind), value._writes)
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


def _casting(func: Callable, args: tuple, kwargs: dict) -> Any:
    """An operator's answer to arguments that are cast as its record, or a program's own operator, says. What it calls is not cast, but of
    one that is made of products inside: NotImplemented, and its body is run as any program."""
    where, kind = _custom(func, args, kwargs) if type(func) is CustomOperator and func.autocast else _listed(func, args, kwargs)
    if kind == "inside":
        return NotImplemented
    if kind is not None and is_autocast_enabled(where):
        if callable(kind):     # a function that stands in the operator's place, and casts by itself
            func = kind
        else:
            args, kwargs = _cast(args, kind, where), {k: _cast(v, kind, where) for k, v in kwargs.items()}
    with without_casts():
        return func(*args, **kwargs)


def without_casts() -> dispatch.autocast_as:
    """Within the block nothing is cast; what was cast before is kept."""
    now, cache = _now()
    return dispatch.autocast_as(_settings((False, False), now.kinds, now.caching), cache)


registry.casting = _casting


def _listed(func: Callable, args: tuple, kwargs: dict) -> tuple[str, Any]:
    """Where an operator runs, and the dtype that its record wants its arguments cast to, or "inside"."""
    kinds = func._operator.autocast if type(func) is FunctionType and registry.is_operator(func) else {}   # type: ignore[attr-defined]
    tensors = _floats((*args, *kwargs.values())) if kinds and kwargs.get("out") is None else []     # what is given as out= is not cast
    where = tensors[0].device.type if tensors else ""
    return where, _kind(kinds.get(where), where, tensors) if is_autocast_enabled(where) else None


def _kind(wanted: str | None, where: str, tensors: list[Tensor]) -> Any:
    if wanted == "narrow":
        return _now()[0].kinds[_place(where)]
    if wanted == "wide":
        return float32
    if wanted == "inside":
        return wanted
    return max((t.dtype for t in tensors), key=lambda kind: kind.itemsize) if wanted == "promote" else None


def _custom(func: CustomOperator, args: tuple, kwargs: dict) -> tuple[str, Any]:
    """The same of a program's own operator, as torch.library.register_autocast says, or the function that `Library.impl` gave."""
    where = next((t.device.type for t in _floats((*args, *kwargs.values()))), "cpu")
    return where, func.autocast.get(where)


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows this kind of device."""
    return device_type in DEVICES


class autocast(_C.OverrideScope):
    """`with autocast("cpu", dtype=bfloat16):`, or as a decorator: mixed precision on one kind of device."""

    def __init__(self, device_type: str, dtype: dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        now = _now()[0]
        self.device = device_type
        self.fast_dtype = dtype if dtype is not None else now.kinds[_place(device_type)]
        if enabled and device_type == "cuda" and not device_count():
            warnings.warn("User provided device_type of 'cuda', but CUDA is not available. Disabling", stacklevel=2)
            enabled = False
        self._enabled = enabled
        self._cache_enabled = now.caching if cache_enabled is None else cache_enabled
        if enabled and self.fast_dtype not in (bfloat16, float16) and (device_type == "cpu" or self.fast_dtype is not float32):
            warnings.warn(f"In {device_type.upper()} autocast, but the target dtype is not supported. Disabling "
                          f"autocast. {device_type.upper()} "
                          "Autocast only supports dtype of torch.bfloat16, torch.float16 currently.", stacklevel=2)
            self._enabled = False

    def inside(self) -> tuple:
        """This thread's function modes and autocast within the block."""
        cache = _now()[1]
        changed = _with(self.device, self._enabled, self.fast_dtype, self._cache_enabled)
        return dispatch.state.function_modes, (changed, {} if cache is None else cache)

    def __reduce__(self) -> tuple:
        return autocast, (self.device, self.fast_dtype, self._enabled, self._cache_enabled)

    def __call__(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.device, self.fast_dtype, self._enabled, self._cache_enabled):
                return func(*args, **kwargs)
        return wrapper


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether an autocast block for this kind of device is active."""
    return device_type in DEVICES and _now()[0].enabled[_place(device_type)]


def is_autocast_cpu_enabled() -> bool:
    """is_autocast_enabled("cpu")."""
    return is_autocast_enabled("cpu")


def get_autocast_dtype(device_type: str) -> dtype:
    """The narrow dtype of autocast on this kind of device."""
    return _now()[0].kinds[_place(device_type)]


def get_autocast_cpu_dtype() -> dtype:
    """get_autocast_dtype("cpu")."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> dtype:
    """get_autocast_dtype("cuda")."""
    return get_autocast_dtype("cuda")


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Turn autocast on or off for a kind of device, in this thread, to the end of the block around."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    _set(_with(device_type, bool(enabled)))


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Set the narrow dtype for a kind of device, in this thread, to the end of the block around."""
    _set(_with(device_type, kind=dtype))


def is_autocast_cache_enabled() -> bool:
    """Whether casts of weights are kept within a block."""
    return _now()[0].caching


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep casts of weights or don't, in this thread, to the end of the block around."""
    _set(_with("cpu", caching=bool(enabled)))


def clear_autocast_cache() -> None:
    """Forget the casts of weights."""
    cache = _now()[1]
    if cache is not None:
        cache.clear()


def _decorated(fn: Callable | None, make: Callable) -> Callable:
    return make if fn is None else make(fn)


def custom_fwd(fwd: Callable | None = None, *, device_type: str, cast_inputs: dtype | None = None) -> Callable:
    """For `forward` of a custom Function: run it without autocast on inputs cast to `cast_inputs`, or as autocast stands."""
    def decorate(fn: Callable) -> Callable:
        @functools.wraps(fn)
        def wrapper(ctx: Any, *args: Any, **kwargs: Any) -> Any:
            ctx._autocast = (cast_inputs is None and is_autocast_enabled(device_type), get_autocast_dtype(device_type))
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
