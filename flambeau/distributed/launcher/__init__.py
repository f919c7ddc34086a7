"""Jobs started from within a program: `elastic_launch(LaunchConfig(...), function)(*args)`, torchrun as a function."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..elastic.agent.server import WorkerSpec
from ..elastic.agent.server.local_elastic_agent import LocalElasticAgent
from ..elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs
from ..elastic.multiprocessing.errors import ChildFailedError
from ..elastic.rendezvous import RendezvousParameters
from ..elastic.rendezvous.registry import get_rendezvous_handler


@dataclass
class LaunchConfig:
    """`min_nodes` to `max_nodes` machines with `nproc_per_node` processes each, how they meet (`rdzv_backend` "c10d" or "static",
    `rdzv_endpoint`, further settings in `rdzv_configs`), and how often they start again."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "c10d"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"

    def __post_init__(self) -> None:
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        self.rdzv_configs.setdefault("timeout", 900)
        self.logs_specs = self.logs_specs or DefaultLogsSpecs()


class elastic_launch:
    """`elastic_launch(config, entrypoint)(*args)`: what the function returned, by rank (of this machine), or ChildFailedError."""

    def __init__(self, config: LaunchConfig, entrypoint: Callable | str | None) -> None:
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args))


def launch_agent(config: LaunchConfig, entrypoint: Callable | str | None, args: list[Any]) -> dict[int, Any]:
    """The same. Without an endpoint a job of one machine uses any free port of it."""
    settings, endpoint = dict(config.rdzv_configs), config.rdzv_endpoint
    if not endpoint and config.max_nodes == 1 and config.rdzv_backend == "c10d":
        endpoint, settings = "127.0.0.1:0", {"is_host": True, **settings}
    params = RendezvousParameters(config.rdzv_backend, endpoint, config.run_id or uuid.uuid4().hex, config.min_nodes, config.max_nodes,
                                  config.local_addr, **settings)
    spec = WorkerSpec(config.role, config.nproc_per_node, get_rendezvous_handler(params), entrypoint=entrypoint, args=tuple(args),
                      max_restarts=config.max_restarts, monitor_interval=config.monitor_interval, local_addr=config.local_addr,
                      event_log_handler=config.event_log_handler)
    assert config.logs_specs is not None
    agent = LocalElasticAgent(spec, config.logs_specs, config.start_method, log_line_prefix_template=config.log_line_prefix_template)
    result = agent.run()
    if result.is_failed():
        raise ChildFailedError(spec.get_entrypoint_name(), result.failures, result.message)
    return result.return_values


__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]
