"""The types that TorchScript annotations are written with (torch.jit.annotations)."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035 - libraries import these names from here

from ..nn.branches import BroadcastingList1, BroadcastingList2, BroadcastingList3

__all__ = ["Any", "Dict", "List", "Optional", "Tuple", "Union", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3"]
