"""What torch.nn.functional's signatures are written with for TorchScript: lists of a length, functions that an argument chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, List  # noqa: UP035


class _BroadcastingList:
    """`BroadcastingList2[int]`: a list of two ints, or one int for both."""

    def __getitem__(self, item: Any) -> Any:
        return List[item]  # noqa: UP006


BroadcastingList1 = _BroadcastingList()
BroadcastingList2 = _BroadcastingList()
BroadcastingList3 = _BroadcastingList()


def boolean_dispatch(arg_name: str, arg_index: int, default: bool, if_true: Callable, if_false: Callable, module_name: str,
                     func_name: str) -> Callable:
    """A function that calls `if_true` or `if_false` by the truth of one of its arguments."""
    def chosen(*args: Any, **kwargs: Any) -> Any:
        which = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if which else if_false)(*args, **kwargs)

    chosen.__name__, chosen.__module__ = func_name, module_name
    chosen.__doc__ = if_true.__doc__
    return chosen
