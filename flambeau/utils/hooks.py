"""Handles of hooks (torch.utils.hooks)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.graph import edge_of
from ..autograd.handles import RemovableHandle
from ..nn.modules.hooks import BackwardHooks


def unserializable_hook(f: Callable) -> Callable:
    """A decorator: no warning that a tensor is saved without this hook."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn that the tensor's hooks are not saved with it."""
    edge = edge_of(tensor)
    calls = {} if edge is None else edge.node.pre_hooks or {}
    for hook in [call.__wrapped__ for call in calls.values() if getattr(call, "_output_nr", None) == edge.nr]:  # type: ignore[union-attr]
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the function "
                          "with @torch.utils.hooks.unserializable_hook to suppress this warning", stacklevel=2)


class BackwardHook:
    """Full backward hooks of one call of a module: put its arguments through `setup_input_hook`, its results through `setup_output_hook`;
    `user_pre_hooks(module, grad_output)` and `user_hooks(module, grad_input, grad_output)` are called in backward."""

    def __init__(self, module: Any, user_hooks: Sequence[Callable], user_pre_hooks: Sequence[Callable]) -> None:
        self.user_hooks, self.user_pre_hooks, self.module = user_hooks, user_pre_hooks, module
        self._hooks = BackwardHooks(module, list(user_pre_hooks), list(user_hooks))

    def setup_input_hook(self, args: Any) -> Any:
        """The arguments, whose gradients are seen: a tensor, or a tuple with tensors in it."""
        return self._hooks.wrap_inputs(args) if isinstance(args, tuple) else self._hooks.wrap_inputs((args,))[0]

    def setup_output_hook(self, args: Any) -> Any:
        """The results, whose gradients are seen: a tensor, or a tuple with tensors in it."""
        return self._hooks.wrap_output(args)


__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]
