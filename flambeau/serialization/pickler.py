"""Pickling as PyTorch does it: protocol 2, each tensor a call of a rebuild function over a reference to its storage."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from types import FunctionType
from typing import IO, Any

from ..core.device import device
from ..core.dtypes import dtype
from ..core.memory_format import jagged, layout, sparse_coo
from ..core.size import Size, extent
from ..core.sparse import SparseTensor
from ..core.storage import Storage
from ..core.tensor import Tensor
from ..core.unresolved import waits
from ..nn.parameter import Parameter
from ..ops.storages import UntypedStorage
from ..sparse.convert import in_lead
from .locations import location_tag
from .names import STORAGE_NAMES, UNTYPED, Global, is_own, torch_name_of
from .options import skipping


class StorageReference:
    """Stands in a pickle for a storage, which is written beside it; `kind` is the dtype of the tensor over it, None for bytes."""

    def __init__(self, storage: Storage, kind: dtype | None) -> None:
        self.storage, self.kind = storage, kind


_PythonPickler: Any = pickle._Pickler
_OWN = (Tensor.__reduce_ex__, Parameter.__reduce_ex__, SparseTensor.__reduce_ex__)     # what is spelled as PyTorch does


class Pickler(_PythonPickler):
    """Writes an object's pickle and gathers the storages that it refers to in `storages`, by key.

    It is the pickler in Python, because only that one lets the names of classes be spelled as PyTorch spells them.
    """

    def __init__(self, file: IO[bytes], legacy: bool = False, protocol: int = 2) -> None:
        super().__init__(file, protocol=protocol)
        self.storages: dict[str, Storage] = {}
        self.itemsizes: dict[str, int] = {}
        self._more = (None,) if legacy else ()    # of which other storage it is a part
        self._keys: dict[int, tuple[str, Global]] = {}
        self._names: dict[Global, Global] = {}     # each once, so that it is spelled once

    # -- tensors ----------------------------------------------------------------------------------------------------
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor) and type(obj).__reduce_ex__ not in _OWN and not obj.is_nested:
            return NotImplemented   # a class that is made of others says how
        if isinstance(obj, Tensor):
            return self._reduce_tensor(obj)
        if type(obj) is device:
            return Global("torch", "device"), (obj.type,) if obj.index is None else (obj.type, obj.index)
        if type(obj) is layout:
            return Global("torch.serialization", "_get_layout"), (repr(obj),)
        if type(obj) is Size:
            return Global("torch", "Size"), (tuple(obj),)
        return NotImplemented

    def _reduce_tensor(self, tensor: Tensor) -> tuple:
        state = dict(tensor.__dict__)
        if isinstance(tensor, SparseTensor):
            return self._reduce_sparse(tensor)
        if tensor.is_nested:
            return self._reduce_nested(tensor)
        if type(tensor) is Tensor and not state:
            return self._reduce_plain(tensor)
        function: Global
        args: tuple
        if isinstance(tensor, Parameter):
            data = tensor.detach()._as_subclass(Tensor)
            function, args = Global("torch._utils", "_rebuild_parameter"), (data, tensor.requires_grad, OrderedDict())
            if state:
                function, args = Global("torch._utils", "_rebuild_parameter_with_state"), (*args, state)
            if type(tensor) is Parameter:
                return function, args
        function, args = self._reduce_plain(tensor)
        return Global("torch._tensor", "_rebuild_from_type_v2"), (function, type(tensor), args, state)

    def _reduce_plain(self, tensor: Tensor) -> tuple[Global, tuple]:
        size, stride = tuple(tensor.shape), tuple(tensor.stride())
        if tensor._storage.buffer is None:
            if not tensor.is_meta and not skipping.materialize:
                raise RuntimeError("cannot save a tensor that has a shape but no elements (a fake tensor)")
            if tensor._storage.nbytes is None:      # nobody has asked yet
                tensor._storage.nbytes = (int(tensor.storage_offset()) + extent(size, stride)) * tensor.dtype.itemsize
            if tensor.is_meta:
                return Global("torch._utils", "_rebuild_meta_tensor_no_storage"), (tensor.dtype, size, stride, tensor.requires_grad)
        reference = StorageReference(tensor._storage.memory, tensor.dtype)
        args: tuple = (reference, int(tensor.storage_offset()), size, stride, tensor.requires_grad, OrderedDict())
        waiting = {name: True for name, turned in zip(("conj", "neg"), waits(tensor._data)) if turned}
        metadata = (waiting,) if waiting else ()
        if tensor.dtype.name in STORAGE_NAMES:
            return Global("torch._utils", "_rebuild_tensor_v2"), (*args, *metadata)
        return Global("torch._utils", "_rebuild_tensor_v3"), (*args, tensor.dtype, *metadata)

    def _reduce_sparse(self, tensor: SparseTensor) -> tuple[Global, tuple]:
        """As PyTorch does: the layout, and what the tensor is made of; that it wanted gradients is not kept."""
        pattern = tensor._pattern
        parts: tuple = (*pattern.indices, in_lead(tensor, tensor._entries.detach()), Size(pattern.shape))
        if pattern.layout is sparse_coo:
            parts += (pattern.coalesced,)
        return Global("torch._utils", "_rebuild_sparse_tensor"), (pattern.layout, parts)

    def _reduce_nested(self, tensor: Any) -> tuple[Global, tuple]:
        """As PyTorch does: the values, and where the rows lie among them."""
        if tensor.layout is jagged:
            names = ("values", "offsets", "lengths", "_ragged_idx", "requires_grad")
            parts = dict(zip(names, tensor.__reduce_ex__(2)[1]), _metadata_cache={})
            return Global("torch.nested._internal.nested_tensor", "_rebuild_njt"), (parts,)
        told = (tensor._nested_tensor_size(), tensor._nested_tensor_strides(), tensor._nested_tensor_storage_offsets())
        return Global("torch._utils", "_rebuild_nested_tensor"), (tensor.values().detach(), *told)

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, UntypedStorage):
            obj = StorageReference(obj._storage, getattr(obj, "dtype", None))
        if not isinstance(obj, StorageReference):
            return None
        storage, name = obj.storage, obj.kind and STORAGE_NAMES.get(obj.kind.name)
        kind = Global("torch", name) if name else UNTYPED
        key, first_kind = self._keys.setdefault(id(storage), (str(len(self._keys)), kind))
        if first_kind != kind:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types: "
                               f"{first_kind.name} and {kind.name}. Save a clone() of one of them.")
        self.storages[key] = storage
        self.itemsizes[key] = obj.kind.itemsize if obj.kind and name else 1
        return "storage", kind, key, location_tag(UntypedStorage(storage)), storage.nbytes // self.itemsizes[key], *self._more

    # -- names ------------------------------------------------------------------------------------------------------
    def save_name(self, obj: Any) -> None:
        """Write a reference to a global, found or not: a name itself, or what PyTorch has a name for."""
        name = obj if isinstance(obj, Global) else Global("torch", obj.name) if isinstance(obj, dtype) else torch_name_of(obj)
        if name is None:
            self._plain[type(obj)](self, obj)
            return
        name = self._names.setdefault(name, name)
        known = self.memo.get(id(name))
        if known is not None:
            self.write(self.get(known[0]))
        else:
            self.write(pickle.GLOBAL + f"{name.module}\n{name.name}\n".encode())
            self.memoize(name)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Classes with a metaclass of their own (enumerations) come here, and what is pickled as its name."""
        if name is None and isinstance(obj, type) and torch_name_of(obj) is not None:
            self.save_name(obj)
        elif name is not None and is_own(type(obj)):
            self.save_name(Global("torch", name))
        else:
            super().save_global(obj, name)

    _plain = _PythonPickler.dispatch
    dispatch = {**_plain, **dict.fromkeys((Global, dtype, type, FunctionType), save_name)}


def pickler_of(module: Any) -> type[Pickler]:
    """The class of picklers that write tensors as PyTorch does and all else as `module.Pickler`, which has to be one in Python."""
    kind: Any = pickle.Pickler if module is None else module.Pickler
    if kind in (pickle.Pickler, _PythonPickler):
        return Pickler
    if not isinstance(kind, type) or not issubclass(kind, _PythonPickler):
        raise NotImplementedError(f"torch.save(pickle_module=) takes a module whose Pickler is one in Python (a subclass of pickle._Pickler, "
                                  f"as dill's), not {kind!r}; pickle the object with it, and save the bytes")
    plain: dict = getattr(kind, "dispatch")  # noqa: B009 - types know it of no class
    return type("Pickler", (Pickler, kind), {"_plain": plain, "dispatch": {**plain, **dict.fromkeys(
        (Global, dtype, type, FunctionType), Pickler.save_name)}})
