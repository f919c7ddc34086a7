"""RemoteModule: a module that lives in another worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ...core.device import device as Device
from ...futures import Future
from ...nn import Module
from ..rpc import RRef, remote, rpc_async, rpc_sync, wire
from ..rpc.calls import agent


def _make(kind: type[Module], args: tuple, kwargs: dict, device: str) -> Module:
    made = kind(*args, **kwargs)
    if not isinstance(made, Module):
        raise ValueError(f"Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, but it returns an instance of "
                         f"{type(made)}.")
    return made.to(device)


def _parameters(module: RRef, recurse: bool) -> list[RRef]:
    return [RRef(p) for p in module.local_value().parameters(recurse)]


def _forward(module: RRef, args: tuple, kwargs: dict) -> Any:
    return module.local_value()(*args, **kwargs)


def _mode(module: RRef, training: bool) -> None:
    module.local_value().train(training)


def _place(remote_device: Any) -> tuple[str | int, str]:
    """The worker and the device of "worker/cpu" or "rank:1/cpu"."""
    worker, _, device = str(remote_device).partition("/")
    if not worker:
        raise ValueError(f"Could not parse remote_device: {remote_device}. The valid format is '<workername>/<device>' or "
                         "'rank:<rank>/<device>'")
    kind = Device(device or "cpu")
    if kind.type != "cpu":
        raise NotImplementedError(f"RemoteModule on {kind} is not implemented: calls carry tensors of CPUs; say \"{worker}/cpu\"")
    prefix, _, rank = worker.partition(":")
    return (int(rank) if prefix == "rank" and rank.isdigit() else worker), str(kind)


class RemoteModule(Module):
    """`module_cls(*args, **kwargs)` made in worker `remote_device` ("name/cpu", "rank:1/cpu"), and called as if it were here.

    Within a context of distributed autograd gradients flow through it; `remote_parameters()` are for a DistributedOptimizer.
    Other methods of modules (state_dict, to, parameters ...) raise ValueError: write a function that does it there, and call it by RPC.
    """

    def __init__(self, remote_device: Any, module_cls: type[Module], args: tuple | None = None, kwargs: dict[str, Any] | None = None,
                 _module_interface_cls: Any = None) -> None:
        if _module_interface_cls is not None:
            raise NotImplementedError("_module_interface_cls is not implemented: there is no TorchScript here; leave it out")
        super().__init__()
        self.on, self.device = _place(remote_device)
        self.is_scriptable, self.is_device_map_set = False, False
        name = agent().worker(self.on).name
        self.module_rref: RRef = remote(name, _make, (module_cls, tuple(args or ()), kwargs or {}, self.device))
        self.module_rref._get_type()  # what can't be made says so here

    @staticmethod
    def init_from_module_rref(remote_device: Any, module_rref: RRef, _module_interface_cls: Any = None) -> RemoteModule:
        """That of a module which is in its worker already."""
        if _module_interface_cls is not None:
            raise NotImplementedError("_module_interface_cls is not implemented: there is no TorchScript here; leave it out")
        return _around(*_place(remote_device), module_rref, True)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        return self.forward_async(*args, **kwargs).wait()

    def forward_async(self, *args: Any, **kwargs: Any) -> Future:
        """A future of it."""
        return rpc_async(self.module_rref.owner(), _forward, (self.module_rref, args, kwargs))

    def remote_parameters(self, recurse: bool = True) -> list[RRef]:
        """References to the module's parameters."""
        return rpc_sync(self.module_rref.owner(), _parameters, (self.module_rref, recurse))

    def get_module_rref(self) -> RRef:
        """The reference to the module."""
        return self.module_rref

    def train(self, mode: bool = True) -> RemoteModule:
        """Training mode, there."""
        rpc_sync(self.module_rref.owner(), _mode, (self.module_rref, mode))
        self.training = mode
        return self

    def eval(self) -> RemoteModule:
        """Evaluation mode, there."""
        return self.train(False)

    def __repr__(self) -> str:
        return f"RemoteModule({self.on}/{self.device}, {self.module_rref!r})"

    def __reduce__(self) -> Any:
        raise RuntimeError("Cannot pickle RemoteModule in python pickler. RemoteModule can only be pickled when using RPC")


def _around(on: str | int, device: str, rref: RRef, training: bool) -> RemoteModule:
    made = RemoteModule.__new__(RemoteModule)
    Module.__init__(made)
    made.on, made.device, made.module_rref, made.training = on, device, rref, training
    made.is_scriptable, made.is_device_map_set = False, False
    return made


def _send(module: RemoteModule, message: wire.Message) -> tuple:
    del message
    return module.on, module.device, module.module_rref, module.training


wire.WAYS[RemoteModule] = wire.Way(_send, lambda data, message: _around(*data))


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError(f"Method ``{name}`` not supported for RemoteModule")

    refuse.__name__ = name
    return refuse



def _refuse_others(methods: Mapping[str, Any]) -> None:
    """What a module does with what it holds can't be done from here."""
    for name, method in methods.items():
        if callable(method) and not name.startswith("_") and name not in vars(RemoteModule):
            setattr(RemoteModule, name, _refusal(name))


_refuse_others(vars(Module))
