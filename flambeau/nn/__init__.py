"""torch.nn: layers, losses, initialisation, and the functions that layers call."""

from __future__ import annotations

import importlib
from typing import Any

from .._lazy import submodules
from ..fx.graph_module import set_module_base
from . import functional, init, modules, parameter
from .modules import *  # noqa: F403
from .modules.module import Module
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

set_module_base(Module, Parameter)


def factory_kwargs(kwargs: dict | None) -> dict:
    """device, dtype and memory_format out of `kwargs`; TypeError for anything else."""
    if kwargs is None:
        return {}
    known = {"device", "dtype", "memory_format"}
    given = {**kwargs.get("factory_kwargs", {}), **{k: v for k, v in kwargs.items() if k in known}}
    unexpected = kwargs.keys() - known - {"factory_kwargs"}
    if unexpected:
        raise TypeError(f"unexpected kwargs {unexpected}")
    return given


_submodule = submodules(__name__, "utils", "attention", "grad", "parallel")


def __getattr__(name: str) -> Any:
    if name == "DataParallel":
        return importlib.import_module(f"{__name__}.parallel").DataParallel
    return _submodule(name)


__all__ = [*modules.__all__, "Buffer", "Module", "Parameter", "UninitializedBuffer", "UninitializedParameter", "functional", "init",
           "modules", "parameter", "factory_kwargs"]
