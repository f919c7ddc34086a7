"""Lowering for the device that a graph runs on."""

from __future__ import annotations

from typing import Any

from flambeau.core.tensor import Tensor
from flambeau.inductor.cpu.target import OnCpu
from flambeau.inductor.gpu.target import OnGpu
from flambeau.inductor.loop.ir import Program
from flambeau.inductor.loop.lowering import Lowering
from flambeau.inductor.loop.target import Target

ON_CPU, ON_GPU = OnCpu(), OnGpu()


def target_of(gm: Any) -> Target:
    """The device of a graph: a GPU, if it has any tensor there."""
    tensors = (val for n in gm.graph.nodes if isinstance(val := n.meta.get("val"), Tensor))
    return ON_GPU if any(t.device.type == ON_GPU.device for t in tensors) else ON_CPU


def lower(gm: Any) -> tuple[Program, list[str]]:
    """The loop IR of `gm`, a graph of primitives over fake tensors, and the names of primitives that run eagerly."""
    lowering = Lowering(target_of(gm))
    return lowering.run(gm), lowering.fallbacks
