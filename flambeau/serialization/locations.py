"""Where storages belong: the tags that files give them, and the devices that these stand for.

A row of the registry is (priority, tagger, deserializer): the first tagger that has an answer names a storage's place in a file, the
first deserializer that has one puts a storage there. `register_package` adds rows for other devices.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from ..core.device import as_device, device
from ..core.dtypes import dtype
from ..ops.storages import CLASSES, TypedStorage, UntypedStorage

MAP_LOCATION: TypeAlias = str | device | dict[str, str] | Callable[[UntypedStorage, str], Any] | None
Tagger: TypeAlias = Callable[[UntypedStorage], str | None]
Deserializer: TypeAlias = Callable[[UntypedStorage, str], UntypedStorage | None]


def register_package(priority: int, tagger: Tagger, deserializer: Deserializer) -> None:
    """Ask `tagger` for the tags of storages that are saved, and `deserializer` to put loaded ones where the tag says, those of lower
    priority first; each answers None about what isn't its own."""
    _package_registry.append((priority, tagger, deserializer))
    _package_registry.sort(key=lambda row: row[0])


def _of_type(kind: str) -> Tagger:
    return lambda storage: str(storage.device) if storage.device.type == kind else None


_package_registry: list[tuple[int, Tagger, Deserializer]] = [
    (10, _of_type("cpu"), lambda storage, at: storage.cpu() if at == "cpu" else None),
    (20, _of_type("cuda"), lambda storage, at: storage.cuda(validate_cuda_device(at)) if at.startswith("cuda") else None),
    (22, _of_type("meta"), lambda storage, at: UntypedStorage(storage.nbytes(), device="meta") if at == "meta" else None)]


def location_tag(storage: UntypedStorage) -> str:
    """What a file calls the place of `storage`."""
    for _, tagger, _ in _package_registry:
        tag = tagger(storage)
        if tag:
            return tag
    raise RuntimeError(f"don't know how to determine data location of {type(storage).__name__} on {storage.device}")


def default_restore_location(storage: UntypedStorage, location: str) -> UntypedStorage:
    """`storage` on the device that a file calls `location`."""
    for _, _, deserializer in _package_registry:
        found = deserializer(storage, location)
        if found is not None:
            return found
    raise RuntimeError(f"don't know how to restore data location of {type(storage).__name__} (tagged with {location})")


def restored(storage: UntypedStorage, location: str, map_location: MAP_LOCATION) -> UntypedStorage:
    """`storage`, saved from `location`, where `map_location` wants it."""
    if callable(map_location) and not isinstance(map_location, device):
        answer = map_location(storage, location)
        if not isinstance(answer, (UntypedStorage, TypedStorage, type(None))):
            raise TypeError(f"map_location answered with {answer!r} for a storage of {location}: a storage or None is expected")
        return default_restore_location(storage, location) if answer is None else answer
    return default_restore_location(storage, _target(location, map_location))


def _target(location: str, map_location: MAP_LOCATION) -> str:
    if isinstance(map_location, dict):
        return map_location.get(location, location)
    return location if map_location is None or (callable(map_location) and not isinstance(map_location, device)) else str(map_location)


def wants_meta(location: str, map_location: MAP_LOCATION) -> bool:
    """Whether nothing is to be read for a storage saved from `location`: it belongs on the meta device."""
    return _target(location, map_location) == "meta"


def _device_number(kind: str, location: str, available: bool, count: int) -> int:
    if not isinstance(location, str) or device(location).type != kind:
        raise ValueError(f"Expected a {kind} device, but got: {location}")
    if not available:
        raise RuntimeError(
            f"Attempting to deserialize object on a {kind.upper()} device ({location}) but torch.{kind}.is_available() is False. "
            "If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to "
            "map your storages to the CPU."
        )
    number = int(as_device(location).index or 0)
    if number >= count:
        raise RuntimeError(f"Attempting to deserialize object on {kind.upper()} device {number} but torch.{kind}.device_count() is "
                           f"{count}. Please use torch.load with map_location to map your storages to an existing device.")
    return number


def validate_cuda_device(location: str) -> int:
    """The number of the GPU that `location` names; RuntimeError if it isn't there."""
    cuda: Any = getattr(sys.modules[__name__.partition(".")[0]], "cuda", None)
    available = cuda is not None and cuda.is_available()
    return _device_number("cuda", location, available, cuda.device_count() if available else 0)


def validate_hpu_device(location: str) -> int:
    """RuntimeError: there are no such devices."""
    if not str(location).startswith("hpu"):
        raise ValueError(f"Expected a hpu device, but got: {location}")
    raise RuntimeError(f"Attempting to deserialize object on an HPU device ({location}), which there are none of: use torch.load with "
                       "map_location=torch.device('cpu')")


def normalize_storage_type(storage_type: type) -> type:
    """The class of storages of the same dtype on the CPU."""
    kind = getattr(storage_type, "dtype", None)
    torch: Any = sys.modules[__name__.partition(".")[0]]
    return getattr(torch, CLASSES[kind.name]) if isinstance(kind, dtype) else storage_type


def storage_to_tensor_type(storage: TypedStorage) -> type:
    """The type of tensors over such a storage."""
    torch: Any = sys.modules[__name__.partition(".")[0]]
    return getattr(torch.cuda if storage.is_cuda else torch, CLASSES[storage.dtype.name].replace("Storage", "Tensor"))
