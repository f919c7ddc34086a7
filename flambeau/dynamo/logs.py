"""The log channels of graph capture, and `TORCH_LOGS`, which switches on these and those of the other rooms.

`TORCH_LOGS=graph_breaks,recompiles,guards,graph_code,bytecode,aot_graphs,cache,schedule,output_code python program.py`; `dynamo`,
`aot` and `inductor` stand for all of a room's.
"""

from __future__ import annotations

import logging
import os
import sys

graph_breaks = logging.getLogger("flambeau.graph_breaks")
recompiles = logging.getLogger("flambeau.recompiles")
guards = logging.getLogger("flambeau.guards")
graph_code = logging.getLogger("flambeau.graph_code")
bytecode = logging.getLogger("flambeau.bytecode")
dynamic = logging.getLogger("flambeau.dynamic")
aot_graphs = logging.getLogger("flambeau.aot_graphs")
schedule = logging.getLogger("flambeau.schedule")
output_code = logging.getLogger("flambeau.output_code")

GROUPS = {
    "dynamo": ("graph_breaks", "recompiles", "guards", "graph_code", "bytecode", "dynamic"),
    "aot": ("aot_graphs", "cache"),
    "inductor": ("schedule", "output_code"),
}


def configure(setting: str) -> None:
    """Turn on the channels named in `setting`, a list separated by commas; a leading + or - is accepted."""
    names = [name.strip().lstrip("+") for name in setting.split(",") if name.strip() and not name.strip().startswith("-")]
    root = logging.getLogger("flambeau")
    if names and not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
        root.addHandler(handler)
    for name in names:
        for channel in GROUPS.get(name, (name,)):
            logging.getLogger(f"flambeau.{channel}").setLevel(logging.DEBUG)


configure(os.environ.get("TORCH_LOGS", ""))
