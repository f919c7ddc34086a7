"""Devices: where a tensor lives. `device("cuda:1")`, `device("cpu")`, `device("meta")`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from flambeau import _C

from . import dispatch
from .settings import add_setting

_TYPES = ("cpu", "cuda", "meta")
_LIKE_DTYPES = ("float", "int", "bfloat", "uint", "bool", "complex")
_OTHERS = ("ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy", "vulkan", "mps", "hpu", "mtia",
           "privateuseone")   # can be named and compared; no tensor lies there


class device(_C.DeviceScope):
    """A device type and an optional index; hashable, compared by value."""

    __slots__ = ("_context", "index", "type")

    type: str
    index: int | None

    def __init__(self, type: str | int | device, index: int | None = None):
        if index is not None and (isinstance(type, device) or isinstance(index, bool)):
            wrong = ("type", "str", type) if isinstance(type, device) else ("index", "int", index)
            raise TypeError(f"device(): argument '{wrong[0]}' must be {wrong[1]}, not {wrong[2]!r}")
        if isinstance(type, device):
            name, index = type.type, type.index
        elif isinstance(type, int):
            name, index = "cuda", type
        elif not isinstance(type, str):
            raise TypeError(f"expected a device, its name or the number of a GPU, not {type!r}")
        else:
            name, colon, text = type.partition(":")
            if colon:
                if not text.isdigit() or (text[0] == "0" and text != "0"):
                    raise RuntimeError(f"Invalid device string: '{type}'")
                if index is not None:
                    raise RuntimeError(f"the device's name '{type}' has an index, and index={index} is another one")
                index = int(text)
        if name not in _TYPES and name not in _OTHERS:
            raise RuntimeError(f"Expected one of {', '.join(_TYPES + _OTHERS)} device type at start of device string: {name}"
                               + (f"; a dtype is torch.{name}" if name.startswith(_LIKE_DTYPES) else ""))
        if index is not None and index < 0:
            raise RuntimeError(f"Device index must not be negative, got {index} for {name!r}")
        self.type, self.index = name, index

    def __repr__(self) -> str:
        return f"device(type='{self.type}')" if self.index is None else f"device(type='{self.type}', index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, device) and self.type == other.type and self.index == other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple:
        return device, (self.type, self.index)


Device = device
CPU = device("cpu")
META = device("meta")


def default_device() -> device:
    """The device on which factories of this thread make tensors when none is named."""
    devices = dispatch.state.devices
    return CPU if devices is None else devices[-1] or CPU


def set_default_device(device: Device | str | None) -> None:
    """Make `device` (None: cpu) that of this thread's factories from now on, outside of the blocks `with torch.device(...)`."""
    new, inner = None if device is None else Device(device), (dispatch.state.devices or (None,))[1:]
    dispatch.state.devices = None if new in (None, CPU) and not inner else (new, *inner)


def as_device(where: device | str | int | None) -> device:
    """`where` as the device of a tensor: None means the default device, "cuda" without an index the current GPU, and CPUs are one."""
    if where is None:
        where = default_device()
    found = where if isinstance(where, device) else device(where)
    if found.type not in _TYPES:
        raise NotImplementedError(f"tensors on {found} are not implemented; use one of {', '.join(_TYPES)}")
    if found.type == "cpu":
        return CPU
    return device("cuda", current_cuda[0]) if found.type == "cuda" and found.index is None else found


current_cuda = [0]
enter_gpu: list[Callable[[int], AbstractContextManager | None]] = []    # the backend of GPUs puts its own in


def elsewhere(where: device) -> AbstractContextManager | None:
    """A block in which the GPU `where` is this thread's current one; None where it is already, and on other devices."""
    return enter_gpu[0](where.index or 0) if enter_gpu and where.type == "cuda" else None


def at(where: device) -> AbstractContextManager:
    """`elsewhere` for a `with`: a block that does nothing where nothing is to be done."""
    return elsewhere(where) or nullcontext()


add_setting("default device", dispatch.state, "devices", traced=True)
add_setting("current GPU", current_cuda, 0)
