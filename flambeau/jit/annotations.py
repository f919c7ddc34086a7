"""The types that TorchScript annotations are written with (torch.jit.annotations)."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035 - libraries import these names from here


class _BroadcastingList:
    """`BroadcastingList2[int]`: a list of two ints, or one int for both."""

    def __getitem__(self, item: Any) -> Any:
        return List[item]  # noqa: UP006


BroadcastingList1 = _BroadcastingList()
BroadcastingList2 = _BroadcastingList()
BroadcastingList3 = _BroadcastingList()

__all__ = ["Any", "Dict", "List", "Optional", "Tuple", "Union", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3"]
