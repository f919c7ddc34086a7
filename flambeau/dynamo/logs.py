"""The log channels of graph capture, switched on by `TORCH_LOGS=graph_breaks,recompiles,guards,graph_code,bytecode`."""

from __future__ import annotations

import logging

graph_breaks = logging.getLogger("flambeau.graph_breaks")
recompiles = logging.getLogger("flambeau.recompiles")
guards = logging.getLogger("flambeau.guards")
graph_code = logging.getLogger("flambeau.graph_code")
bytecode = logging.getLogger("flambeau.bytecode")
dynamic = logging.getLogger("flambeau.dynamic")
