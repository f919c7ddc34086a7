"""Hooks on tensors, `tensor.data = ...` and `tensor.requires_grad = ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...autograd.function import Function
from ...autograd.grad_mode import no_grad
from ...core import dispatch
from ...func.tape import leaf
from ...fx.node import mark_impure
from ..break_kinds import describe, graph_break
from ..exceptions import LEAVES, RunEagerly
from .base import NONE, Args, Kwargs, NamedMethod, Variable
from .contexts import recording_in

if TYPE_CHECKING:
    from ..replacement import Writer
    from ..trace import Trace
    from .tensor import TensorVariable


@mark_impure
def hook_in_graph(tensor: Any, hook: Any, captured: Any) -> None:
    """Put into graphs: a hook on a tensor that the graph makes; it is a graph of its own, and takes what it uses of the rest."""
    tensor.register_hook(lambda gradient: hook(gradient, *captured)[0])


class _Carried(Function):
    """The values of the second, where gradients go to the first."""

    @staticmethod
    def forward(ctx: Any, owner: Any, values: Any) -> Any:
        return values.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


def carried(owner: Any, values: Any) -> Any:
    """Put into graphs for `owner.data = values`: what `owner` is from there on."""
    return _Carried.apply(owner, values)


class HookHandle(Variable):
    """What `tensor.register_hook(hook)` gives: in the graph a node, for a tensor that existed before a call after the graph."""

    def __init__(self, tx: Trace, owner: TensorVariable, name: str, hook: Variable, node: Any = None) -> None:
        self.owner, self.name, self.hook, self.node = owner, name, hook, node
        if owner.source is not None:
            tx.effects.check(owner)
            tx.effects.hooks.append(self)

    def describe(self) -> str:
        return f"the handle of a hook on {self.owner.describe()}"

    def attr(self, tx: Trace, name: str) -> Variable:
        if name != "remove":
            graph_break("unknown attribute", f"{self.describe()}.{name}")
        return NamedMethod(self, name)

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        if name != "remove":
            return super().method(tx, name, args, kwargs)
        if self in tx.effects.hooks:
            tx.effects.hooks.remove(self)
        elif self.node is not None:
            tx.graph.erase_node(self.node)
            self.node = None
        return NONE

    def make(self, w: Writer) -> str:
        if self.owner.source is None:
            graph_break("value can't be rebuilt", self.describe())
        return w.bind(f"{w.value(self.owner)}.{self.name}({w.value(self.hook)})")


def register_hook(tx: Trace, owner: TensorVariable, name: str, hook: Variable) -> Variable:
    """`owner.register_hook(hook)` or `register_post_accumulate_grad_hook`."""
    if not owner.fake.requires_grad or (owner.source is None and name != "register_hook"):
        graph_break("autograd inside a compiled function", f"{owner.describe()}.{name}()")
    if owner.source is not None:
        return HookHandle(tx, owner, name, hook)
    return HookHandle(tx, owner, name, hook, tx.hooked(owner, hook))


def _carried_on(tx: Trace, owner: TensorVariable, values: Variable) -> Variable:
    """`owner` with these values from here on: whether it needs a gradient is not for the grad mode to say."""
    mode = dispatch.state.recording
    tx.set_grad_mode(recording_in(no_grad, True))
    made = tx.emit(carried, [owner, values], {})
    tx.set_grad_mode(mode)
    return made


def set_data(tx: Trace, owner: TensorVariable, value: Variable) -> None:
    """`owner.data = value`."""
    new: Any = value.realize(tx)
    fakes = [owner.fake, getattr(new, "fake", None)]
    if fakes[1] is None or any(getattr(fakes[0], name) != getattr(fakes[1], name) for name in ("dtype", "device", "shape")):
        graph_break("unknown attribute", f"{owner.describe()}.data = a tensor of another shape, dtype or device")
    if any(getattr(user.meta.get("val"), "requires_grad", False) for user in owner.node.users):
        what = f"{owner.describe()}.data = ... after it was used: what was saved of it for backward changes too"
        raise RunEagerly(describe("unknown attribute", what))
    tx.effects.check(owner)
    detached = tx.emit_method("detach", [new], {})
    made = _carried_on(tx, owner, detached) if owner.fake.requires_grad else detached
    tx.turned(owner, made)
    if owner.source is not None:
        tx.effects.data[owner] = detached


def set_requires_grad(tx: Trace, owner: TensorVariable, flag: bool) -> None:
    """`owner.requires_grad = flag`. Of an existing leaf that the graph has not used so far it is done before the graph, else after it; then
    what uses it next breaks the graph. A tensor of the graph is from there on a leaf of its own, which must not leave the graph."""
    if flag == tx.known(owner.attr(tx, "requires_grad")):
        return
    floating = owner.fake.dtype.is_floating_point or owner.fake.dtype.is_complex
    if not owner.is_leaf(tx) or not floating or (owner.source is None and LEAVES in tx.needed):
        graph_break("autograd inside a compiled function", f"{owner.describe()}.requires_grad = {flag}")
    if owner.source is None:
        tx.turned(owner, tx.emit(leaf, [owner], {}) if flag else tx.emit_method("detach", [owner], {}))
        return
    tx.effects.check(owner)
    if owner.node.users:
        tx.effects.late_flags[owner] = flag
        return
    tx.effects.flags[owner] = flag
    for example in (owner.fake, owner.node.meta["val"]):
        example.requires_grad = flag
