"""The helpers of torch._utils that libraries use: flat gradients, device numbers, errors that travel between threads."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from . import cuda
from .accelerator import get_device_module
from .core.device import device
from .core.tensor import Tensor
from .ops.registry import OPERATORS
from .serialization.names import REBUILDERS

globals().update({name: made for (module, name), made in REBUILDERS.items() if module == "torch._utils"})  # pickles name them so


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of some tensors of one dtype, one after the other."""
    return OPERATORS["cat"]([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of `flat` with the shapes of `tensors`."""
    return tuple(part.view(t.shape) for part, t in zip(flat.split([t.numel() for t in tensors]), tensors))


def _take_tensors(tensors: Sequence[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Groups of tensors of one dtype and device, each of at least `size_limit` bytes but for the last ones."""
    waiting: dict[Any, list[Tensor]] = {}
    for t in tensors:
        group = waiting.setdefault((t.dtype, t.device), [])
        group.append(t)
        if sum(member.numel() * member.element_size() for member in group) >= size_limit:
            yield waiting.pop((t.dtype, t.device))
    yield from waiting.values()


def _get_available_device_type() -> str | None:
    """"cuda" where there is a GPU, else None."""
    return "cuda" if cuda.is_available() else None


def _is_privateuse1_backend_available() -> bool:
    """False: no extension has added a device type."""
    return False


def _get_device_module(device_type: str) -> Any:
    """The module of a device type."""
    return get_device_module(device_type)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a GPU; of the current one for None where `optional`; -1 for the CPU where `allow_cpu`."""
    if isinstance(device, int):
        return device
    if device is None and optional:
        return int(cuda.current_device())
    found = _device(device)
    if found.type == "cpu":
        if allow_cpu:
            return -1
        raise ValueError(f"Expected a non cpu device, but got: {device}")
    return int(found.index or 0)


_device = device


def _get_all_device_indices() -> list[int]:
    """The numbers of all GPUs."""
    return list(range(cuda.device_count()))


class KeyErrorMessage(str):
    """A message that a KeyError shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception of another thread or process with its traceback as text, to be raised here."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, value, place = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.where = where
        self.exc_msg = "".join(traceback.format_exception(kind, value, place))

    def reraise(self) -> None:
        """Raise an exception of the same class with the message and traceback of the other."""
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        try:
            error = self.exc_type(KeyErrorMessage(message) if self.exc_type is KeyError else message)
        except Exception:  # its constructor takes other arguments
            raise RuntimeError(message) from None
        raise error


def _element_size(dtype: Any) -> int:
    """Bytes of one element."""
    return dtype.itemsize
