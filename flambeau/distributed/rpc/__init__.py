"""torch.distributed.rpc: functions called in other processes, and references to values there. docs/distributed.md tells how."""

from __future__ import annotations

from ..._lazy import submodules
from . import functions
from .api import _set_rpc_timeout, _wait_all_workers, get_rpc_timeout, get_worker_info, init_rpc, is_available, rpc_async, rpc_sync, shutdown
from .calls import Here as _Here
from .options import UNSET_RPC_TIMEOUT as _UNSET_RPC_TIMEOUT
from .options import BackendType, RpcBackendOptions, TensorPipeRpcBackendOptions, WorkerInfo
from .rref import RRef, remote

PyRRef = RRef


def _is_current_rpc_agent_set() -> bool:
    return _Here.agent is not None


__getattr__ = submodules(__name__, "api", "options", "rref")

__all__ = [
    "BackendType", "PyRRef", "RRef", "RpcBackendOptions", "TensorPipeRpcBackendOptions", "WorkerInfo", "_UNSET_RPC_TIMEOUT",
    "_is_current_rpc_agent_set", "_set_rpc_timeout", "_wait_all_workers", "functions", "get_rpc_timeout", "get_worker_info", "init_rpc",
    "is_available", "remote", "rpc_async", "rpc_sync", "shutdown",
]
