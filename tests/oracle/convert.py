"""torch's arguments as Flambeau's: tensors through NumPy with dtype, strides, offset and requires_grad; dtypes and layouts by name."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import flambeau

_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
_NAMED = (torch.dtype, torch.layout, torch.memory_format)


def _dense(t: torch.Tensor, memory: dict[Any, Any]) -> flambeau.Tensor:
    """A tensor with the same elements, strides and offset; those that share memory go on to do so."""
    place = t.untyped_storage().data_ptr(), t.dtype
    if place not in memory:
        memory[place] = _flat(t)
    if not t.numel():
        return flambeau.empty(tuple(t.shape), dtype=memory[place].dtype)
    whole = t.storage_offset() == 0 and t.is_contiguous() and t.numel() == memory[place].numel()
    return memory[place].view(tuple(t.shape)) if whole else memory[place].as_strided(tuple(t.shape), t.stride(), t.storage_offset())


def _flat(t: torch.Tensor) -> flambeau.Tensor:
    """All that lies in a tensor's memory."""
    flat = t.detach().as_strided((t.untyped_storage().nbytes() // t.dtype.itemsize,), (1,), 0)
    name = str(t.dtype).removeprefix("torch.")
    try:
        return flambeau.from_numpy(flat.numpy().copy())
    except TypeError:  # NumPy has no such dtype: its bits
        bits = _BITS[t.dtype.itemsize]
        return flambeau.from_numpy(flat.view(getattr(torch, bits)).numpy().copy()).view(getattr(flambeau, name))


def tensor(t: torch.Tensor, memory: dict[Any, Any] | None = None) -> flambeau.Tensor:
    """The same tensor, as a leaf."""
    memory = {} if memory is None else memory
    if t.device.type == "meta":
        kind = getattr(flambeau, str(t.dtype).removeprefix("torch."))
        return flambeau.empty(tuple(t.shape), dtype=kind, device="meta", requires_grad=t.requires_grad)
    if t.layout == torch.sparse_coo:
        indices, values = tensor(t._indices()), tensor(t._values())
        ours = flambeau.sparse_coo_tensor(indices, values, tuple(t.shape), is_coalesced=t.is_coalesced())
    elif t.layout in (torch.sparse_csr, torch.sparse_csc):
        by_row = t.layout == torch.sparse_csr
        parts = (t.crow_indices(), t.col_indices()) if by_row else (t.ccol_indices(), t.row_indices())
        make = flambeau.sparse_csr_tensor if by_row else flambeau.sparse_csc_tensor
        ours = make(*(tensor(p) for p in parts), tensor(t.values()), tuple(t.shape))
    elif t.is_conj():
        ours = tensor(t.detach().conj()).conj()
    elif t.is_neg():
        ours = tensor(torch._neg_view(t.detach()))._neg_view()
    else:
        ours = _dense(t, memory).detach()
    return ours.requires_grad_() if t.requires_grad else ours


def _module(value: torch.nn.Module, seen: dict[Any, Any]) -> flambeau.nn.Module:
    """A module of ours with the attributes of torch's, which have the same names (as in a pickle of either library)."""
    from .database import named
    own = vars(torch.nn.Module()).keys() - {"training", "_parameters", "_buffers", "_modules"}
    made: flambeau.nn.Module = object.__new__(named(f"{type(value).__module__}.{type(value).__name__}"))
    flambeau.nn.Module.__init__(made)
    made.__dict__.update({k: ours(v, seen) for k, v in vars(value).items() if k not in own})
    return made


def ours(value: Any, seen: dict[Any, Any] | None = None, change: Callable[[torch.Tensor], torch.Tensor] = lambda t: t) -> Any:
    """Arguments of torch as arguments of Flambeau; a tensor that stands in two places stays one."""
    seen = {} if seen is None else seen
    if isinstance(value, torch.Tensor):
        if id(value) not in seen:
            made = tensor(change(value), seen)
            seen[id(value)] = flambeau.nn.Parameter(made, value.requires_grad) if isinstance(value, torch.nn.Parameter) else made
        return seen[id(value)]
    if isinstance(value, _NAMED):
        return getattr(flambeau, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return flambeau.device(str(value))
    if isinstance(value, torch.Size):
        return flambeau.Size(value)
    if isinstance(value, torch.Generator):
        return flambeau.Generator().manual_seed(value.initial_seed())
    if isinstance(value, list | tuple):
        return type(value)(ours(v, seen, change) for v in value)
    if isinstance(value, dict):
        return {k: ours(v, seen, change) for k, v in value.items()}
    if isinstance(value, torch.nn.Module):
        return _module(value, seen)
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType) and (value.__module__ or "").startswith("torch"):
        from .database import named, translated
        return translated(value) or named(value.__name__)
    return value


def theirs(value: Any, change: Callable[[torch.Tensor], torch.Tensor] = lambda t: t, seen: dict[Any, Any] | None = None) -> Any:
    """torch's arguments over again in memory of their own, so that one sample can be used twice."""
    seen = {} if seen is None else seen
    if isinstance(value, torch.Tensor):
        if id(value) not in seen:
            seen[id(value)] = change(_again(value, seen))
        return seen[id(value)]
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)(theirs(v, change, seen) for v in value)
    if isinstance(value, dict):
        return {k: theirs(v, change, seen) for k, v in value.items()}
    return value


def _again(t: torch.Tensor, memory: dict[Any, Any]) -> torch.Tensor:
    if t.layout != torch.strided or t.is_conj() or t.is_neg() or t.is_meta:
        return t.detach().clone().requires_grad_(t.requires_grad)
    place = t.untyped_storage().data_ptr(), t.dtype
    if place not in memory:
        memory[place] = t.detach().as_strided((t.untyped_storage().nbytes() // t.dtype.itemsize,), (1,), 0).clone()
    return memory[place].as_strided(t.shape, t.stride(), t.storage_offset()).detach().requires_grad_(t.requires_grad)


def array(t: Any) -> np.ndarray:
    """The values of either library's tensor, widened where NumPy has no such dtype."""
    t = t.detach().clone()      # of zeros that torch only notes, memory
    if str(t.layout).rpartition(".")[2] != "strided":
        t = t.to_dense()
    name = str(t.dtype).rpartition(".")[2]
    if name == "complex32":
        t = t.cfloat()
    elif name in ("bfloat16", "float16") or name.startswith("float8"):
        t = t.float()
    return np.asarray(t.resolve_conj().resolve_neg().cpu().numpy())
