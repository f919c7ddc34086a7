"""torch.distributed: Flambeau trains in one process. `is_available()` says so; the rest names what is missing."""

from __future__ import annotations

import enum
from typing import Any

from .._absent import absent_names

_INSTEAD = "Flambeau runs in one process; guard with torch.distributed.is_available(), which is False"


def is_available() -> bool:
    """False: there are no process groups."""
    return False


def is_initialized() -> bool:
    """False: there is no default process group."""
    return False


is_mpi_available = is_nccl_available = is_gloo_available = is_available


def is_torchelastic_launched() -> bool:
    """False: torchrun does not start Flambeau programs as a group."""
    return False


def _no_group(*args: Any, **kwargs: Any) -> int:
    raise ValueError(
        "Default process group has not been initialized, please make sure to call init_process_group "
        f"(which is not implemented; {_INSTEAD})"
    )


get_rank = get_world_size = get_backend = _no_group


class ReduceOp(enum.Enum):
    """How a collective combines what the processes bring."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


class ProcessGroup:
    """A set of processes; here a name for annotations."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"torch.distributed.ProcessGroup is not implemented; {_INSTEAD}")


class Work:
    """A collective under way; here a name for annotations."""


class group:
    """Holds the default group, which does not exist."""

    WORLD: ProcessGroup | None = None


class GroupMember:
    """Holds the default group, which does not exist."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


__getattr__ = absent_names(
    "torch.distributed",
    (
        "init_process_group", "destroy_process_group", "new_group", "init_device_mesh", "DeviceMesh", "barrier", "broadcast",
        "broadcast_object_list", "all_reduce", "reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "gather",
        "gather_object", "scatter", "scatter_object_list", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
        "all_to_all_single", "send", "recv", "isend", "irecv", "monitored_barrier", "get_process_group_ranks", "Store", "TCPStore",
        "FileStore", "HashStore", "PrefixStore",
    ),
    _INSTEAD,
)
