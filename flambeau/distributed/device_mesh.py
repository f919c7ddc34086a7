"""torch.distributed.device_mesh: names to import and to test values against."""

from __future__ import annotations

from .._absent import absent_names

__getattr__ = absent_names(
    "torch.distributed.device_mesh",
    ("DeviceMesh", "init_device_mesh"),
    "use groups of new_group() and new_subgroups()",
)
