"""torch.distributed: programs on several processes. `docs/distributed.md` tells how."""

from __future__ import annotations

from typing import NewType

from .._lazy import submodules
from . import captured as _captured
from .collectives import (
    P2POp,
    _coalescing_manager,
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    gather,
    irecv,
    isend,
    monitored_barrier,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from .device_mesh import DeviceMesh, init_device_mesh
from .errors import DistBackendError, DistError, DistNetworkError, DistStoreError, QueueEmptyError
from .groups import (
    Backend,
    BackendConfig,
    GroupMember,
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    shrink_group,
    split_group,
)
from .objects import all_gather_object, broadcast_object_list, gather_object, recv_object_list, scatter_object_list, send_object_list
from .process_group import DebugLevel, ProcessGroup, get_debug_level, set_debug_level, set_debug_level_from_env
from .reduce_op import ReduceOp, reduce_op, supports_complex
from .reduce_op import premul_sum as _make_nccl_premul_sum
from .reducer import BuiltinCommHookType, GradBucket
from .rendezvous import register_rendezvous_handler, rendezvous
from .stores import FileStore, HashStore, PrefixStore, Store
from .tcp_store import TCPStore
from .tools import breakpoint, record_comm
from .work import Work

all_gather_single, reduce_scatter_single = all_gather_into_tensor, reduce_scatter_tensor

GroupName = NewType("GroupName", str)
"""A group's name, for annotations."""
_submodules = submodules(__name__, "distributed_c10d", "run", "launch", "algorithms", "tensor", "device_mesh", "fsdp",
                         "_composable", "checkpoint", "_functional_collectives", "nn", "optim", "rpc", "autograd", "pipelining", "elastic",
                         "launcher")


def __getattr__(name: str) -> object:
    return _submodules(name)
