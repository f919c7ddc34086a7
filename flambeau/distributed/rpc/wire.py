"""Calls and answers as bytes. They are pickles, and come from workers that have proved to be of this job.

Tensors travel by value. Other kinds that do not travel as their pickle register here (RRef does).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

from ...core.tensor import Tensor, from_array
from ...nn.parameter import Parameter
from ...utils._pytree import tree_map
from . import gradients
from .options import WorkerInfo


class Message:
    """One on its way: who is at its other end, and the tensors in it that gradients flow through."""

    def __init__(self, peer: WorkerInfo, context: int | None, number: int) -> None:
        self.peer, self.context, self.number = peer, context, number
        self.sent: list[Tensor] = []
        self.received: gradients.RecvRpcBackward | None = None

    def slot(self, tensor: Tensor) -> int | None:
        """The number among the tensors whose gradients come back; None for one that needs none."""
        if self.context is None or not tensor.requires_grad:
            return None
        self.sent.append(tensor)
        return len(self.sent) - 1

    def node(self) -> gradients.RecvRpcBackward:
        """Where the gradients of what came end."""
        if self.received is None:
            assert self.context is not None
            self.received = gradients.RecvRpcBackward(gradients.of(self.context), self.peer, self.number)
        return self.received


class Way(NamedTuple):
    """How a kind of objects travels: `send(object, message)` has plain data, of which `receive(data, message)` makes it again."""

    send: Callable[[Any, Message], Any]
    receive: Callable[[Any, Message], Any]


WAYS: dict[type, Way] = {}


def _send_tensor(tensor: Tensor, message: Message) -> tuple:
    if tensor.device.type != "cpu" or tensor.is_fake:
        raise NotImplementedError(f"RPC sends tensors of CPUs alone, not one on {tensor.device}; send tensor.cpu()")
    return tensor.detach()._data, tensor.requires_grad, message.slot(tensor)


def _receive_tensor(data: tuple, message: Message) -> Tensor:
    array, requires_grad, slot = data
    made = from_array(array)
    if slot is not None:
        return message.node().attach(made, slot)
    return made.requires_grad_() if requires_grad else made


WAYS[Tensor] = Way(_send_tensor, _receive_tensor)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, message: Message) -> None:
        super().__init__(file, 5)
        self.message = message
        self.known: dict[int, tuple[Any, int]] = {}  # what is there twice travels once

    def persistent_id(self, obj: Any) -> Any:
        way = WAYS.get(type(obj))
        if way is None:
            return None
        if id(obj) in self.known:
            return self.known[id(obj)][1]
        number = len(self.known)
        self.known[id(obj)] = obj, number
        return number, type(obj), way.send(obj, self.message)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, message: Message) -> None:
        super().__init__(file)
        self.message = message
        self.known: dict[int, Any] = {}

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, int):
            return self.known[pid]
        number, kind, data = pid
        made = self.known[number] = WAYS[kind].receive(data, self.message)
        return made


def _plain(value: Any) -> Any:
    """A parameter as a tensor that was made of it, which gradients flow through."""
    return value.view(value.shape) if type(value) is Parameter and value.requires_grad else value


def pack(value: Any, to: WorkerInfo, context: int | None) -> bytes:
    """The bytes of `value` for `to`. Within a context gradients come back for its tensors."""
    message = Message(to, context, gradients.new_message())
    file = io.BytesIO()
    pickle.dump((context, message.number), file)
    _Pickler(file, message).dump(value if context is None else tree_map(_plain, value))
    if context is not None:
        here = gradients.of(context)
        here.known.add(to.id)
        if message.sent:
            here.sent[message.number] = gradients.SendRpcBackward(message.sent)
    return file.getvalue()


def unpack(body: bytes, sender: WorkerInfo) -> Any:
    """The value that `sender` packed."""
    file = io.BytesIO(body)
    context, number = pickle.load(file)
    if context is not None:
        gradients.of(context).known.add(sender.id)
    return _Unpickler(file, Message(sender, context, number)).load()


def context_of(body: bytes) -> int | None:
    """The context to which a message belongs."""
    return pickle.load(io.BytesIO(body))[0]
