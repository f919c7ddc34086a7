"""What a worker is called, and what may be said when it begins."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from typing import Any

DEFAULT_RPC_TIMEOUT_SEC = 60.0
UNSET_RPC_TIMEOUT = -1.0
DEFAULT_NUM_WORKER_THREADS = 16
DEFAULT_INIT_METHOD = "env://"


class BackendType(enum.Enum):
    """The one way in which calls travel; the name is torch's."""

    TENSORPIPE = "TENSORPIPE"


@dataclass(frozen=True)
class WorkerInfo:
    """A process of the job: its name and its rank."""

    name: str
    id: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[A-Za-z0-9_:-]{1,127}", self.name):
            raise RuntimeError(f"Worker name must match ^[A-Za-z0-9-_:]*$ and have 1 to 127 characters, but got {self.name!r}")

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"


def _no_devices(name: str) -> NotImplementedError:
    return NotImplementedError(f"{name} is not implemented: calls carry tensors of CPUs; send tensor.cpu(), and move it on the other side")


@dataclass
class TensorPipeRpcBackendOptions:
    """Of `init_rpc`: threads that run the others' calls, seconds that a call may take (0: any), and where the processes meet."""

    num_worker_threads: int = DEFAULT_NUM_WORKER_THREADS
    rpc_timeout: float = DEFAULT_RPC_TIMEOUT_SEC
    init_method: str = DEFAULT_INIT_METHOD
    device_maps: dict[str, dict] = field(default_factory=dict)
    devices: list = field(default_factory=list)
    _transports: list | None = None
    _channels: list | None = None

    def __post_init__(self) -> None:
        if self.device_maps:
            raise _no_devices("device_maps")
        if self.devices:
            self.set_devices(self.devices)
        if self._transports or self._channels:
            raise NotImplementedError("_transports and _channels are not implemented: calls travel over TCP; leave them out")
        if self.num_worker_threads < 1:
            raise ValueError(f"num_worker_threads must be positive, got {self.num_worker_threads}")
        if self.rpc_timeout < 0:
            raise ValueError(f"rpc_timeout is a number of seconds, or 0 for no end; got {self.rpc_timeout}")

    def set_device_map(self, to: str, device_map: dict) -> None:
        """Not implemented: tensors of GPUs do not travel."""
        raise _no_devices(f"set_device_map({to!r}, {device_map})")

    def set_devices(self, devices: list) -> None:
        """The devices that calls use: the CPU alone."""
        if any(str(device).partition(":")[0] != "cpu" for device in devices):
            raise _no_devices(f"set_devices({devices})")
        self.devices = list(devices)


RpcBackendOptions = TensorPipeRpcBackendOptions


def options_of(given: Any) -> TensorPipeRpcBackendOptions:
    """`given`, or those that hold if none are."""
    if given is None:
        return TensorPipeRpcBackendOptions()
    if not isinstance(given, TensorPipeRpcBackendOptions):
        raise TypeError(f"rpc_backend_options should be TensorPipeRpcBackendOptions, not {type(given).__name__}")
    return given
