"""Steps of a captured graph whose results nobody reads, but that refuse some values of their tensors: as in eager, they still do."""

from __future__ import annotations

from typing import Any

from .. import fx
from ..core import dispatch
from ..core.tensor import Tensor
from ..fx.node import map_arg
from ..ops.primitives import has_effect
from ..ops.registry import CompositeRecord


class _Looks:
    """A mode that sees whether a call comes to a record that checks what its tensors hold."""

    def __init__(self) -> None:
        self.found = False

    def handle(self, prim: Any, args: tuple) -> Any:
        self.found = self.found or has_effect(prim, sum(isinstance(a, Tensor) for a in args))
        if isinstance(prim, CompositeRecord):
            with dispatch.push_mode(self):
                return prim.fn(*args)
        return dispatch.run(prim, args)


def refuses_values(node: fx.Node) -> bool:
    """Whether a step checks what its tensors hold: it is run on its examples once more."""
    if node.op not in ("call_function", "call_method"):
        return False
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    call = node.target if node.op == "call_function" else getattr(args[0], str(node.target), None)
    looks = _Looks()
    try:
        with dispatch.fake_mode(), dispatch.push_mode(looks):
            call(*args[node.op == "call_method":], **kwargs)    # type: ignore[operator,misc]
    except Exception:
        pass    # of sizes that nobody knows yet: what it did so far is what is known of it
    return looks.found
