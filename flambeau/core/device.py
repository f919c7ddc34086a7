"""Devices: where a tensor lives. `device("cuda:1")`, `device("cpu")`, `device("meta")`."""

from __future__ import annotations

from .settings import add_setting

_TYPES = ("cpu", "cuda", "meta")


class device:
    """A device type and an optional index; hashable, compared by value."""

    __slots__ = ("_context", "index", "type")

    type: str
    index: int | None

    def __init__(self, type: str | int | device, index: int | None = None):
        if isinstance(type, device):
            name, index = type.type, type.index
        elif isinstance(type, int):
            name, index = "cuda", type
        elif not isinstance(type, str):
            raise TypeError(f"expected a device, its name or the number of a GPU, not {type!r}")
        else:
            name, colon, text = type.partition(":")
            if colon:
                if not text.isdigit():
                    raise RuntimeError(f"Invalid device string: '{type}'")
                index = int(text)
        if name not in _TYPES:
            raise RuntimeError(f"Expected one of {', '.join(_TYPES)} device type at start of device string: {name}")
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

    def __enter__(self) -> device:
        Defaults.around = (*Defaults.around, Defaults.where)
        Defaults.where = self
        return self

    def __exit__(self, *exc: object) -> None:
        Defaults.where, Defaults.around = Defaults.around[-1], Defaults.around[:-1]


CPU = device("cpu")
META = device("meta")


class Defaults:
    """Where factories make tensors: `where`; with those of the blocks `with torch.device(...)` that are around it."""

    where: device = CPU
    around: tuple[device, ...] = ()




def default_device() -> device:
    """The device on which factories make tensors when none is named."""
    return Defaults.where


def set_default_device(where: device | str | None) -> None:
    """Make `where` (None: cpu) the device of factories from now on."""
    new = CPU if where is None else device(where)
    if Defaults.around:
        Defaults.around = (new, *Defaults.around[1:])
    else:
        Defaults.where = new


def as_device(where: device | str | int | None) -> device:
    """`where` as the device of a tensor: None means the default device, "cuda" without an index the current GPU."""
    if where is None:
        where = Defaults.where
    found = where if isinstance(where, device) else device(where)
    return device("cuda", current_cuda[0]) if found.type == "cuda" and found.index is None else found


current_cuda = [0]

add_setting("default device", Defaults, "where", traced=True)
add_setting("blocks of devices", Defaults, "around", traced=True)
add_setting("current GPU", current_cuda, 0)
