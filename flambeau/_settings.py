"""Process-wide settings and small functions at the top of torch's namespace."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from . import _C
from .backends.cpu.onednn import split_products
from .backends.cuda import matmul
from .core.settings import Numerics
from .core.symbolic import SymBool, SymInt, must
from .core.tensor import Tensor
from .core.warned import Repeated
from .ops.creation import TYPED_TENSORS
from .ops.promotion import set_default_dtype


class AcceleratorError(RuntimeError):
    """Work on a device failed."""


class OutOfMemoryError(RuntimeError):
    """A device's memory is full."""


class _State:
    interop_threads = max(1, (os.cpu_count() or 2) // 2)


_MODES = {"default": 0, "warn": 1, "error": 2}
_PRODUCTS = {"highest": 6, "high": 3, "medium": 1}  # of parts, see backends.cpu.onednn.split_products


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for operators whose results are the same in each run, as they all are on the CPU here. What PyTorch documents as having no
    such form is refused (`warn_only`: warned of), and memory that nobody wrote is filled (`torch.utils.deterministic`)."""
    if not isinstance(mode, bool):
        raise TypeError(f"use_deterministic_algorithms(): argument 'mode' (position 1) must be bool, not {type(mode).__name__}")
    Numerics.deterministic = (1 if warn_only else 2) if mode else 0


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms(True)` holds."""
    return Numerics.deterministic > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether it holds with `warn_only`."""
    return Numerics.deterministic == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """The same as a number or a word: 0 "default", 1 "warn", 2 "error"."""
    level = _MODES.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if level not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected one of {sorted(_MODES)} or 0, 1, 2, but got {debug_mode!r}")
    Numerics.deterministic = level


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: "default", "warn" or "error"."""
    return Numerics.deterministic


def set_float32_matmul_precision(precision: str) -> None:
    """Accuracy of f32 matrix products: "highest" is that of f32; "high" and "medium" allow TF32 on GPUs, and 16 and 8 bits of
    mantissa on CPUs with bf16 tiles (docs/onednn.md), which then take about 0.6 and 0.3 of the time."""
    if precision not in _PRODUCTS:
        raise RuntimeError(f"Invalid float32 matmul precision {precision!r}; expected one of {', '.join(_PRODUCTS)}")
    Numerics.matmul_precision = precision
    split_products(_PRODUCTS[precision])
    matmul.allow_tf32 = precision != "highest"


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` set."""
    return Numerics.matmul_precision


def set_default_tensor_type(t: Any) -> None:
    """Make `t` ("torch.DoubleTensor", or torch.DoubleTensor) the kind of tensor that factories make: its dtype.

    Deprecated: use set_default_dtype and set_default_device.
    """
    warnings.warn("torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
                  "torch.set_default_device() as alternatives.", UserWarning, stacklevel=2)
    kind = TYPED_TENSORS.get(t.removeprefix("torch."), t) if isinstance(t, str) else t
    if not getattr(getattr(kind, "kind", None), "is_floating_point", False):
        raise TypeError(f"only floating-point types are supported as the default type, got {t}")
    set_default_dtype(kind.kind)  # type: ignore[union-attr]


def set_flush_denormal(mode: bool) -> bool:
    """Treat denormal numbers as zeros? False: that isn't supported here, they stay as they are."""
    if not isinstance(mode, bool):
        raise RuntimeError(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    return False


def set_num_threads(number: int) -> None:
    """How many threads an operator may use."""
    if not isinstance(number, int) or number < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {number!r}")
    _C.set_num_threads(number)


def init_num_threads() -> None:
    """Nothing to hand on: `set_num_threads` is about all threads."""


def get_num_threads() -> int:
    """How many threads an operator may use."""
    return _C.get_num_threads()


def set_num_interop_threads(number: int) -> None:
    """How many operators may run at once; recorded, as they run one after another."""
    if not isinstance(number, int) or number < 1:
        raise RuntimeError(f"set_num_interop_threads expects a positive integer, got {number!r}")
    _State.interop_threads = number


def get_num_interop_threads() -> int:
    """How many operators may run at once."""
    return _State.interop_threads


def set_warn_always(b: bool) -> None:
    """Show each warning every time, not once."""
    Repeated.always = bool(b)
    if b:
        warnings.simplefilter("always", append=True)


def is_warn_always_enabled() -> bool:
    """Whether `set_warn_always(True)` holds."""
    return Repeated.always


def typename(obj: Any, /) -> str:
    """The type's name with its module: "torch.FloatTensor" for tensors, "list" for a list."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    module = getattr(kind, "__module__", "")
    return kind.__qualname__ if module in ("", "builtins", "__main__") else f"{module}.{kind.__qualname__}"


# -- assertions that capture may look into ---------------------------------------------------------------
def _fail(error: type[Exception], cond: Any, message: Any) -> None:
    if not isinstance(cond, (bool, SymInt, SymBool)):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond if isinstance(cond, bool) else must(cond, said=True):
        return
    text = "Expected cond to be True, but got False." if message is None else str(message() if callable(message) else message)
    raise error(text)


def _checking(name: str, error: type[Exception]) -> Callable[..., None]:
    def check(cond: Any, message: Callable[[], Any] | None = None) -> None:
        _fail(error, cond, message)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"{error.__name__} with `message()` unless `cond`."
    return check


_check, _check_index = _checking("_check", RuntimeError), _checking("_check_index", IndexError)
_check_value, _check_type = _checking("_check_value", ValueError), _checking("_check_type", TypeError)
_check_not_implemented = _checking("_check_not_implemented", NotImplementedError)


def _check_with(error_type: type[Exception], cond: Any, message: Callable[[], Any] | None = None) -> None:
    """`error_type` with `message()` unless `cond`."""
    _fail(error_type, cond, message)


def _check_is_size(i: Any, message: Callable[[], Any] | None = None, *, max: int | None = None) -> None:
    """RuntimeError unless `i` may be a size: not negative, and at most `max`."""
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all(cond: Tensor, message: Callable[[], Any] | None = None) -> None:
    """RuntimeError with `message()` unless all elements hold."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _check_tensor_all_with(error_type: type[Exception], cond: Tensor, message: Callable[[], Any] | None = None) -> None:
    """`error_type` with `message()` unless all elements hold."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    _fail(error_type, bool(cond.all()), message)


def _assert(condition: Any, message: str) -> Any:
    """A Python assert that tracers see."""
    record = getattr(type(condition), "__torch_function__", None)
    if record is not None and not isinstance(condition, Tensor):
        return record(_assert, (type(condition),), (condition, message))
    if not condition:
        raise AssertionError(message)
    return None


def _assert_async(condition: Tensor, message: str = "") -> None:
    """RuntimeError unless the only element holds."""
    if condition.numel() != 1:
        raise RuntimeError(f"_assert_async expects one element, got shape {list(condition.shape)}")
    if not condition:
        raise RuntimeError(message or "Expected Tensor with single nonzero value, but got zero")


_assert._is_impure = True  # type: ignore[attr-defined]
_assert_scalar = _assert


def compiled_with_cxx11_abi() -> bool:
    """True: the native module follows today's C++ ABI."""
    return True


def is_vulkan_available() -> bool:
    """False."""
    return False
