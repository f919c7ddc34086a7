"""ModuleTracker: in which modules the program is."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any

from ..autograd.engine import queue_callback
from ..autograd.joint_hooks import register_multi_grad_hook
from ..core.tensor import Tensor
from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from ._pytree import tree_leaves


class ModuleTracker:
    """A context manager whose `parents` are the full names of the modules that are at work, "Global" among them; `is_bw` tells whether
    backward is."""

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []
        self.is_bw = False

    def __enter__(self) -> ModuleTracker:
        self._handles = [register_module_forward_pre_hook(self._before), register_module_forward_hook(self._after, always_call=True)]
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()

    def _name(self, module: Any) -> str:
        if module not in self._known:
            root = type(module).__name__
            for path, inner in module.named_modules():
                self._known.setdefault(inner, f"{root}.{path}" if path else root)
        return self._known[module]

    def _before(self, module: Any, args: Any) -> None:
        name = self._name(module)
        self.parents.add(name)
        self.is_bw = False
        self._on_gradients(args, lambda: self.parents.discard(name))

    def _after(self, module: Any, args: Any, output: Any) -> None:
        name = self._name(module)
        self.parents.discard(name)
        self._on_gradients(output, lambda: self._enter_backward(name))

    def _enter_backward(self, name: str) -> None:
        if not self.is_bw:
            queue_callback(self._leave_backward)
        self.is_bw = True
        self.parents.add(name)

    def _leave_backward(self) -> None:
        self.parents = {"Global"}
        self.is_bw = False

    def _on_gradients(self, values: Any, act: Any) -> None:
        tensors = [t for t in tree_leaves(values) if isinstance(t, Tensor) and t.requires_grad]
        if tensors:
            register_multi_grad_hook(tensors, lambda grads: act())


__all__ = ["ModuleTracker"]
