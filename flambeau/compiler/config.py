"""Settings of torch.compiler: PyTorch's."""

from __future__ import annotations

from typing import Any, Final

from ..core.config_module import install

ACCEPTED: Final[dict[str, Any]] = {
    "force_disable_caches": False,
    "job_id": None, "pgo_extra_read_key": None, "pgo_extra_write_key": None, "cache_key_tag": "", "dynamic_sources": "",
    "dynamic_values": "", "unbacked_sources": "", "force_cudagraph_gc": False
}  # fmt: skip

install(__name__, ACCEPTED, shown_as="torch.compiler.config")
