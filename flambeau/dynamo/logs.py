"""The log channels of graph capture, and `TORCH_LOGS`, which switches on these and those of the other rooms.

`TORCH_LOGS=graph_breaks,recompiles,guards,graph_code,bytecode,aot_graphs,cache,schedule,output_code python program.py`; `dynamo`,
`aot` and `inductor` stand for all of a room's, `all` for everything. PyTorch's other names mean the channel that is nearest to them.
"""

from __future__ import annotations

import logging
import sys
import warnings

from ..core.settings import told

graph_breaks = logging.getLogger("flambeau.graph_breaks")
recompiles = logging.getLogger("flambeau.recompiles")
guards = logging.getLogger("flambeau.guards")
graph_code = logging.getLogger("flambeau.graph_code")
bytecode = logging.getLogger("flambeau.bytecode")
dynamic = logging.getLogger("flambeau.dynamic")
aot_graphs = logging.getLogger("flambeau.aot_graphs")
schedule = logging.getLogger("flambeau.schedule")
output_code = logging.getLogger("flambeau.output_code")

GROUPS: dict[str, tuple[str, ...]] = {
    "dynamo": ("graph_breaks", "recompiles", "guards", "graph_code", "bytecode", "dynamic"),
    "aot": ("aot_graphs", "cache"),
    "inductor": ("schedule", "output_code"),
}
CHANNELS = tuple(channel for channels in GROUPS.values() for channel in channels)
GROUPS |= {
    "all": CHANNELS, "recompiles_verbose": ("recompiles",), "verbose_guards": ("guards",), "graph": ("graph_code",),
    "graph_code_verbose": ("graph_code",), "graph_sizes": ("graph_code",), "trace_bytecode": ("bytecode",),
    "aot_joint_graph": ("aot_graphs",), "pre_grad_graphs": ("graph_code",), "post_grad_graphs": ("aot_graphs",), "fusion": ("schedule",),
    "ir_pre_fusion": ("schedule",), "ir_post_fusion": ("schedule",), "kernel_code": ("output_code",), "caching": ("cache",),
}
SILENT = frozenset((  # noqa: SIM905
    "annotation aot_graphs_effects async_compile auto_chunker autograd autotuning benchmarking c10d compiled_autograd "
    "compiled_autograd_verbose compute_dependencies cudagraph_static_inputs cudagraphs ddp ddp_graphs distributed dtensor export "
    "fake_tensor fsdp graph_region_expansion hierarchical_compile incremental inductor_metrics loop_ordering loop_tiling native_dsl "
    "node_runtime_estimation not_implemented onnx onnx_diagnostics overlap overlap_scheduling perf_hints pp side_effects sym_node torch "
    "trace_call trace_shape_events trace_source").split())
"""PyTorch's other names: there is nothing that they would show."""


def valid_names() -> list[str]:
    """What `TORCH_LOGS` takes, beside the dotted names of Python modules."""
    return sorted({*GROUPS, *CHANNELS, *SILENT})


def _loggers(name: str) -> list[logging.Logger]:
    """Those of a name. ValueError for an unknown one."""
    if name in SILENT:
        warnings.warn(f"TORCH_LOGS: there is nothing to show for {name!r}", UserWarning, stacklevel=4)
        return []
    if name in GROUPS or name in CHANNELS:
        return [logging.getLogger(f"flambeau.{channel}") for channel in GROUPS.get(name, (name,))]
    if "." in name:
        return [logging.getLogger(name)]
    raise ValueError(f"TORCH_LOGS: there is no channel {name!r}. Valid are {', '.join(valid_names())}, or the dotted name of a Python "
                     "module; a + before a name shows more of it, a - silences it")


def configure(setting: str) -> None:
    """Turn on the channels named in `setting`, a list separated by commas, and those with a leading - off."""
    names = [name.strip() for name in setting.split(",") if name.strip()]
    if "help" in (name.lstrip("+-") for name in names):
        print(f"Valid settings:\n{', '.join(valid_names())}", file=sys.stderr)
        names = [name for name in names if name.lstrip("+-") != "help"]
    set_levels({name.lstrip("+-"): logging.ERROR if name.startswith("-") else logging.DEBUG for name in names})


def set_levels(levels: dict[str, int]) -> None:
    """Give the channels of these names these levels."""
    found = [(logger, level) for name, level in levels.items() for logger in _loggers(name)]
    root = logging.getLogger("flambeau")
    if found and not root.handlers:
        out = told("TORCH_LOGS_OUT")
        handler = logging.FileHandler(out) if out else logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(told("TORCH_LOGS_FORMAT", "[%(name)s] %(message)s")))
        root.addHandler(handler)
    for logger, level in found:
        logger.setLevel(level)


configure(told("TORCH_LOGS"))
