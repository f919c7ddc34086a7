"""A launcher of processes of its own machine."""

from __future__ import annotations

import signal
from string import Template
from typing import Any

from ...multiprocessing import LogsSpecs, PContext, RunProcsResult, start_processes
from ...utils import macros
from . import SimpleElasticAgent, WorkerGroup, WorkerSpec, environment


class LocalElasticAgent(SimpleElasticAgent):
    """Starts `spec`'s processes here, functions by `start_method`; what they print goes where `logs_specs` says, and lines that are shown
    begin with `log_line_prefix_template` (${role_name}, ${rank}, ${local_rank})."""

    def __init__(self, spec: WorkerSpec, logs_specs: LogsSpecs, start_method: str = "spawn", exit_barrier_timeout: float = 300,
                 log_line_prefix_template: str | None = None, shutdown_timeout: int = 10) -> None:
        super().__init__(spec, exit_barrier_timeout, shutdown_timeout)
        self._logs_specs, self._start_method, self._prefix = logs_specs, start_method, log_line_prefix_template
        self._pcontext: PContext | None = None

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        spec, workers = worker_group.spec, worker_group.workers
        envs = {w.local_rank: environment(self, w) for w in workers}
        args = {i: tuple(macros.substitute(list(spec.args), str(i))) if isinstance(spec.entrypoint, str) else spec.args for i in envs}
        prefixes = None if self._prefix is None else {
            w.local_rank: Template(self._prefix).safe_substitute(role_name=spec.role, rank=w.global_rank, local_rank=w.local_rank)
            for w in workers}
        self._pcontext = start_processes(spec.role, spec.entrypoint, args, envs, self._logs_specs, prefixes,  # type: ignore[arg-type]
                                         self._start_method)
        return self._pcontext.pids()

    def _stop_workers(self, worker_group: WorkerGroup, death_sig: signal.Signals | None = None) -> None:
        if self._pcontext is not None:
            self._pcontext.close(death_sig, self._shutdown_timeout)
            self._pcontext = None

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunProcsResult | None:
        return self._pcontext.wait(0) if self._pcontext is not None else None
