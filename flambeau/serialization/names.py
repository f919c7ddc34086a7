"""How PyTorch's checkpoints spell things, both ways: its global names and the Flambeau objects that they stand for.

A checkpoint names classes and functions by module and name (`torch FloatStorage`, `torch._utils _rebuild_tensor_v2`).
Flambeau writes the same names, so that PyTorch reads its files, and answers them when it reads PyTorch's.
"""

from __future__ import annotations

import codecs
import importlib
import math
import operator
import reprlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType, NoneType
from typing import Any

from ..core.device import META, device
from ..core.dtypes import DTYPES, dtype, dtype_of_name, uint8
from ..core.homes import is_own as _is_own
from ..core.homes import own_name
from ..core.memory_format import layout, layout_named, sparse_coo
from ..core.size import Size, extent
from ..core.sparse import SparseTensor
from ..core.tensor import Layout, Tensor, fake, view_tensor
from ..core.unresolved import seen
from ..nn.parameter import Parameter, _rebuild_parameter
from ..ops.storages import CLASSES, TypedStorage, UntypedStorage
from ..sparse.construct import check_indices, sparse_compressed_tensor, sparse_coo_tensor
from .errors import LoadError


@dataclass(frozen=True)
class Global:
    """A name to write into a pickle as a reference to `module.name`, whether or not that can be imported here."""

    module: str
    name: str

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.module}.{self.name} is only a name: it can be written to a checkpoint, not called")


STORAGE_NAMES = CLASSES
"""dtype name -> the storage class of torch that holds it; the other dtypes' bytes are written as UntypedStorage."""

UNTYPED = Global("torch.storage", "UntypedStorage")


@dataclass(frozen=True)
class StorageType:
    """What `torch FloatStorage` and its like unpickle to: the dtype in which the storage's length is counted."""

    element: dtype | None  # None: bytes

    @property
    def itemsize(self) -> int:
        return 1 if self.element is None else self.element.itemsize


class LoadedStorage(TypedStorage):
    """A storage from a checkpoint: its bytes (no owner on the meta device), and its element type."""

    def __init__(self, kind: StorageType, owner: Tensor | None, nbytes: int) -> None:
        held = fake((nbytes,), uint8, META) if owner is None else owner
        super().__init__(wrap_storage=UntypedStorage(held._storage), dtype=kind.element or uint8)
        self.kind, self.owner, self.length = kind, owner, nbytes


# -- rebuilding: the functions that PyTorch's pickles call -----------------------------------------------------
MOST_BYTES, MOST_DIMENSIONS = (1 << 63) - 1, 64  # of one tensor; the latter is NumPy's


def _plain_tuple(numbers: Any) -> tuple:
    if not isinstance(numbers, (tuple, list)):
        raise LoadError(f"the checkpoint gives sizes or strides as a {type(numbers).__name__}")
    return tuple(numbers)


def _check_layout(kind: dtype, offset: Any, size: tuple, stride: tuple, nbytes: int = MOST_BYTES) -> None:
    """Refuse a layout that would look outside its storage of `nbytes`, or that no tensor can have: the file may lie."""
    integers = (offset, *size, *stride)
    impossible = (not isinstance(kind, dtype) or len(size) != len(stride) or len(size) > MOST_DIMENSIONS
                  or not all(type(n) is int and n >= 0 for n in integers)
                  or math.prod(n for n in size if n) * kind.itemsize > MOST_BYTES)
    if impossible:
        raise LoadError(f"the checkpoint describes an impossible tensor: {reprlib.repr(kind)}, size {reprlib.repr(size)}, stride "
                        f"{reprlib.repr(stride)}, offset {reprlib.repr(offset)}")
    if (offset + extent(size, stride)) * kind.itemsize > nbytes:
        raise LoadError(f"the checkpoint describes a {kind} tensor of size {list(size)}, stride {list(stride)} and "
                        f"offset {offset}, which does not fit its storage of {nbytes} bytes")


def rebuild_tensor(storage: LoadedStorage, offset: int, size: tuple, stride: tuple, requires_grad: bool = False,
                   hooks: Any = None, kind: dtype | None = None, metadata: Any = None) -> Tensor:
    """A tensor over `storage`; `kind` is its dtype where the storage is untyped."""
    if not isinstance(storage, LoadedStorage):
        raise LoadError(f"the checkpoint describes a tensor over {reprlib.repr(storage)}, which is no storage")
    kind = kind or storage.kind.element
    if kind is None:
        raise LoadError("the checkpoint gives no dtype for a tensor over an UntypedStorage")
    size, stride = _plain_tuple(size), _plain_tuple(stride)
    _check_layout(kind, offset, size, stride, storage.length)
    if storage.owner is None:
        tensor = fake(size, kind, META, stride, offset)
    else:
        tensor = view_tensor(storage.owner, kind, Layout(size, stride, offset))
    waiting = [isinstance(metadata, dict) and bool(metadata.get(name)) for name in ("conj", "neg")]
    if any(waiting) and tensor._data is not None:
        tensor._data = seen(tensor._data, *waiting)
    if requires_grad:
        tensor.requires_grad = True
    return tensor


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    return rebuild_tensor(storage, offset, size, stride)


def _rebuild_tensor_v2(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, metadata: Any = None) -> Tensor:
    return rebuild_tensor(storage, offset, size, stride, requires_grad, hooks, metadata=metadata)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, hooks: Any, state: Any) -> Parameter:
    return _with_state(_rebuild_parameter(data, requires_grad, hooks), state)


def _rebuild_meta_tensor_no_storage(kind: dtype, size: tuple, stride: tuple, requires_grad: bool) -> Tensor:
    size, stride = _plain_tuple(size), _plain_tuple(stride)
    _check_layout(kind, 0, size, stride)
    tensor = fake(size, kind, META, stride)
    tensor.requires_grad = bool(requires_grad)
    return tensor


def _rebuild_sparse_tensor(kind: Any, parts: Any) -> Tensor:
    """A tensor of this layout. Its indices are checked once their bytes are read (`check_sparse`), as the file may lie."""
    counts = (3, 4) if kind is sparse_coo else (4,)    # older files do not say whether it is coalesced
    if not isinstance(kind, layout) or not isinstance(parts, tuple) or len(parts) not in counts:
        raise LoadError(f"the checkpoint describes a tensor of layout {reprlib.repr(kind)} with parts {reprlib.repr(parts)}")
    for part in parts[:2 if kind is sparse_coo else 3]:
        if type(part) is not Tensor:
            raise LoadError(f"the checkpoint describes a sparse tensor made of {reprlib.repr(part)}")
    size = _plain_tuple(parts[2 if kind is sparse_coo else 3])
    try:
        if kind is sparse_coo:
            return sparse_coo_tensor(parts[0], parts[1], size, check_invariants=False, is_coalesced=parts[3:] == (True,))
        return sparse_compressed_tensor(parts[0], parts[1], parts[2], size, layout=kind, check_invariants=False)
    except (RuntimeError, TypeError) as error:
        raise _impossible(kind, size, error) from error


class SizesNote:
    """What PyTorch's compiler notes beside a jagged tensor of its sizes: nothing that is read here."""

    def __setstate__(self, state: Any) -> None:
        """Forget it."""


def _rebuild_njt(parts: Any) -> Tensor:
    """A jagged nested tensor. Where its rows lie is looked at when they are asked for."""
    known: dict[str, Any] = {"values": Tensor, "offsets": Tensor, "lengths": (Tensor, NoneType), "_ragged_idx": int}
    if not isinstance(parts, dict) or not all(isinstance(parts.get(name), kind) for name, kind in known.items()):
        raise LoadError(f"the checkpoint describes a jagged tensor made of {reprlib.repr(parts)}")
    values = parts["values"].detach()       # without what the compiler noted
    made: Tensor = _nested().rebuilt(values, parts["offsets"], parts.get("lengths"), parts["_ragged_idx"], bool(parts.get("requires_grad")))
    return made


def _rebuild_nested_tensor(buffer: Tensor, sizes: Tensor, strides: Tensor, offsets: Tensor) -> Tensor:
    """A strided nested tensor. Its components are views, which look at nothing outside their buffer."""
    if any(type(part) is not Tensor for part in (buffer, sizes, strides, offsets)):
        raise LoadError(f"the checkpoint describes a nested tensor made of {reprlib.repr((buffer, sizes, strides, offsets))}")
    made: Tensor = _nested().rebuilt_strided(buffer, sizes.tolist(), strides.tolist(), offsets.tolist())
    if not made.numel() and buffer.numel():
        raise LoadError("the checkpoint describes a nested tensor of no elements: in files of old, where sizes come last, none is read")
    return made


def _nested() -> Any:
    return importlib.import_module(f"{ROOM}.nested.tensor")     # which programs without nested tensors need not load


def check_sparse(tensors: Iterable[SparseTensor]) -> None:
    """LoadError where the indices of one of them are not what its layout and its size ask for."""
    for tensor in tensors:
        try:
            check_indices(tensor)
        except (RuntimeError, TypeError) as error:
            raise _impossible(tensor.layout, tuple(tensor.shape), error) from error


def _impossible(kind: Any, size: tuple, error: Exception) -> LoadError:
    return LoadError(f"the checkpoint describes a {kind} tensor of size {list(size)} that cannot be: {error}")


def _get_layout(name: Any) -> layout:
    if name not in ("torch.strided", "torch.jagged", "torch.sparse_coo", "torch.sparse_csr", "torch.sparse_csc", "torch.sparse_bsr",
                    "torch.sparse_bsc"):
        raise LoadError(f"the checkpoint names a layout {reprlib.repr(name)}")
    return layout_named(name)


def _rebuild_from_type_v2(func: Callable, new_type: type, args: tuple, state: Any) -> Tensor:
    made = func(*args)
    if func is _rebuild_njt:
        return made     # the state only says again what it is made of
    if type(made) is not new_type:
        made = made._as_subclass(new_type)
    return _with_state(made, state)


def _with_state(made: Any, state: Any) -> Any:
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    for part in (attributes, slots):
        if part is not None and not isinstance(part, dict):
            raise TypeError(f"the attributes of a tensor are given as a {type(part).__name__}")
        made.__dict__.update(part or {})
    return made


REBUILDERS: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter_with_state,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _rebuild_meta_tensor_no_storage,
    ("torch._utils", "_rebuild_sparse_tensor"): _rebuild_sparse_tensor,
    ("torch._utils", "_rebuild_nested_tensor"): _rebuild_nested_tensor,
    ("torch.nested._internal.nested_tensor", "_rebuild_njt"): _rebuild_njt,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type_v2,
}

TORCH_GLOBALS: dict[tuple[str, str], Any] = {
    **REBUILDERS,
    **{("torch", name): StorageType(dtype_of_name(kind)) for kind, name in STORAGE_NAMES.items()},
    **{("torch", name): kind for name, kind in DTYPES.items()},
    ("torch.storage", "UntypedStorage"): StorageType(None),
    ("torch", "UntypedStorage"): StorageType(None),
    ("torch", "Size"): Size,
    ("torch", "device"): device,
    ("torch.serialization", "_get_layout"): _get_layout,
    ("torch", "Tensor"): Tensor,
    ("torch.nested._internal.nested_tensor", "NestedTensor"): Tensor,
    ("torch._dynamo.decorators", "_DimRange"): SizesNote,
    ("torch._tensor", "Tensor"): Tensor,
    ("torch.nn.parameter", "Parameter"): Parameter,
    ("torch.nn", "Parameter"): Parameter,
}
"""What PyTorch's names in a checkpoint stand for here."""


# -- what a weights-only file may name, and call ---------------------------------------------------------------
def _given(value: Any, *kinds: type) -> Any:
    """`value`, one of the `kinds` of plain data: anything else might be asked for a billion elements."""
    if type(value) not in kinds:
        raise TypeError(f"a file may not make this of a {type(value).__name__}")
    return value


def encode_latin1(text: str, encoding: str = "latin1") -> bytes:
    """What protocol 2 calls to rebuild `bytes`; no other codec is let in."""
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"a checkpoint may encode text as latin1 only, not as {reprlib.repr(encoding)}")
    return codecs.encode(_given(text, str), "latin1")


def _safe_rebuild_from_type(func: Any, new_type: Any, args: Any, state: Any) -> Tensor:
    if func is _rebuild_from_type_v2 or not any(func is known for known in REBUILDERS.values()):
        raise TypeError("a tensor of another class is to be made by something other than the functions that make tensors")
    if not isinstance(new_type, type) or not issubclass(new_type, Tensor):
        raise TypeError(f"a tensor is to be made a {reprlib.repr(new_type)}")
    return _rebuild_from_type_v2(func, new_type, args, state)


SAFE_CALLS: dict[Any, Callable] = {
    **{function: function for function in REBUILDERS.values()},
    _rebuild_parameter: lambda data, requires_grad, hooks: _rebuild_parameter(_given(data, Tensor), requires_grad, hooks),
    _rebuild_from_type_v2: _safe_rebuild_from_type,
    OrderedDict: lambda pairs=(): OrderedDict([tuple(_given(pair, tuple, list)) for pair in _given(pairs, tuple, list)]),
    Counter: lambda *counts: Counter(*(_given(given, dict) for given in counts)),
    set: lambda items=(): set(_given(items, list, tuple, set)),
    bytes: lambda: b"",  # protocol 2 spells the empty ones so; PyTorch writes them and does not read them
    bytearray: lambda data=b"", *encoding: bytearray(encode_latin1(data, *encoding) if encoding else _given(data, bytes, list)),
    complex: lambda real, imag=0.0: complex(_given(real, float, int), _given(imag, float, int)),
    Size: lambda sizes=(): Size([_given(n, int) for n in _given(sizes, tuple, list)]),
    device: lambda kind, *index: device(_given(kind, str), *(_given(i, int) for i in index)),
    _get_layout: _get_layout,
    encode_latin1: encode_latin1,
}
"""What a file loaded with weights_only=True may call, and what is called instead: it takes plain data and nothing else."""

SAFE_GLOBALS: dict[tuple[str, str], Any] = {
    **TORCH_GLOBALS,
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "Counter"): Counter,
    ("_codecs", "encode"): encode_latin1,
    **{("builtins", kind.__name__): kind for kind in (set, complex, bytes, bytearray)},
}
"""Everything that a file loaded with weights_only=True may name: what PyTorch lets it name, and `bytes`."""


# -- classes of the library ------------------------------------------------------------------------------------
ROOM = __name__.partition(".")[0]
_PUBLIC = ("nn", "optim", "optim.lr_scheduler", "utils.data", "", "nn.utils.rnn", "distributions", "return_types")


_NAMESPACES = {("torch._C", "_VariableFunctionsClass"): importlib.import_module(ROOM), ("torch._C", "TensorBase"): Tensor}
"""What PyTorch's pickles take functions and methods from, as attributes."""


def is_own(thing: Any) -> bool:
    """Whether a class or function is Flambeau's."""
    return _is_own(getattr(thing, "__module__", None))


def torch_name_of(thing: type | FunctionType) -> Global | None:
    """PyTorch's name for one of Flambeau's own classes or functions; None for anything else."""
    if not is_own(thing):
        return None
    for key, known in TORCH_GLOBALS.items():
        if known is thing:
            return Global(*key)
    name = thing.__name__ if "<locals>" in thing.__qualname__ else thing.__qualname__
    for room in _PUBLIC if isinstance(thing, type) else ("nn.functional", *_PUBLIC):
        if getattr(importlib.import_module(f"{ROOM}.{room}".rstrip(".")), name, None) is thing:
            return Global(f"torch.{room}".rstrip("."), name)
    return Global("torch" + own_name(thing.__module__).removeprefix(ROOM), name)


def find_torch_global(module: str, name: str) -> Any:
    """The Flambeau object that PyTorch calls `module.name`; AttributeError if there is none.

    PyTorch keeps `Linear` in torch.nn.modules.linear, Flambeau elsewhere: the public namespaces above it are tried too.
    """
    known = TORCH_GLOBALS.get((module, name))
    if known is not None:
        return known
    if (module, name) in _NAMESPACES:
        return _NAMESPACES[module, name]
    parts = [ROOM, *module.split(".")[1:]]
    while parts:
        try:
            return operator.attrgetter(name)(importlib.import_module(".".join(parts)))
        except (ModuleNotFoundError, AttributeError):
            parts.pop()
    raise AttributeError(f"Flambeau has nothing called {module}.{name}")
