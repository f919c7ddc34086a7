"""`Tensor`: storage, strided layout, dtype, device and an autograd record.

Only the mechanism is here. The operators in `flambeau.ops` install themselves as methods (see `ops/registry.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flambeau import _C

from . import dispatch, memory
from .device import CPU, device
from .dtypes import dtype, dtype_of_numpy
from .homes import PACKAGE
from .size import Size, contiguous_strides, is_contiguous
from .storage import UNASKED, Aside, Examples, Storage, Unasked, flat_bytes, view_of


class Layout(NamedTuple):
    """Where a tensor's elements lie in its storage, counted in elements."""

    shape: tuple
    strides: tuple
    offset: Any = 0


class ViewPath(NamedTuple):
    """How a view came about: the tensor it looks into and the (primitive, attrs) steps that lead there."""

    base: Tensor
    chain: tuple
    version: int = 0  # the base's in-place generation for which the view's grad_fn holds
    origin: str | None = None  # "no_grad", "many" (one of the views that one operator gave) or "function": no history follows a write to it


class AutogradMeta:
    """The autograd record of a tensor; absent (None) for one that never needed it."""

    __slots__ = (
        "accumulator", "generation", "grad", "grad_fn", "hooks", "output_nr", "post_accumulate_hooks", "requires_grad",
        "retains_grad",
    )

    def __init__(self, requires_grad: bool = False, grad_fn: Any = None, output_nr: int = 0):
        self.requires_grad, self.grad_fn, self.output_nr = requires_grad, grad_fn, output_nr
        self.grad: Tensor | None = None
        self.hooks: dict | None = None
        self.retains_grad: Any = None  # the handle of the hook that leaves the gradient in `grad`
        self.accumulator: Any = None
        self.post_accumulate_hooks: dict | None = None
        self.generation = 0


if TYPE_CHECKING:   # the operators, which flambeau.ops attaches as methods (tools/stubs.py)
    from .tensor_methods import Methods
else:
    Methods = object


class Tensor(Methods):
    """A multi-dimensional array of one dtype on one device, with gradients."""

    __slots__ = ("__dict__", "__weakref__", "_data", "_grad", "_lay", "_store", "_view", "device", "dtype")

    _data: Any
    dtype: dtype
    device: device
    _grad: AutogradMeta | None
    _view: ViewPath | None
    _lay: Layout | None
    _store: Storage | Unasked | None

    # Slots filled by the rooms above.
    _legacy_constructor: Callable[..., Tensor]
    _refresh_view: Callable[[Tensor], None]  # autograd: bring a view's grad_fn up to date with its base

    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor:
        made = Tensor._legacy_constructor(*args, **kwargs)
        return made if cls is Tensor else made._as_subclass(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __init_subclass__(cls, counted: bool = True, **kwargs: Any) -> None:
        """`counted`: operators look for arguments of this class from now on; else it is counted when the first one is made."""
        super().__init_subclass__(**kwargs)
        if "__torch_function__" in cls.__dict__ and "_plain_torch_function" not in cls.__dict__:
            cls._plain_torch_function = False           # type: ignore[attr-defined]
        if "__torch_dispatch__" in cls.__dict__:
            dispatch.wrapping = True
            if getattr(cls.__torch_function__, "__func__", None) is Tensor.__torch_function__.__func__:    # type: ignore[attr-defined]
                cls._plain_torch_function = True        # type: ignore[attr-defined]
        if "__torch_function__" in cls.__dict__ and not cls.__dict__.get("_plain_torch_function", False):
            cls._plain_torch_function = False       # type: ignore[attr-defined]
            if counted:
                dispatch.count_override(cls)
            if cls.__module__.partition(".")[0] != PACKAGE:
                dispatch.overriding_class(cls)

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """The default: run the operator as if nothing overrode it, and keep this subclass on its results; not beside classes that
        this one is not derived from."""
        if not all(issubclass(cls, t) for t in types) or _is_foreign(func):
            return NotImplemented
        found = _run_without_overrides(func, args, kwargs or {})
        if cls is Tensor or getattr(cls, "_plain_torch_function", False) or func in ATTRIBUTES_AS_THEY_ARE:
            return found
        return _of_class(found, cls)

    # -- shape, layout, memory -------------------------------------------------------------------
    @property
    def shape(self) -> Size:
        """The sizes, as a `Size`."""
        return _C.tensor_shape(self)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        data = self._data
        return data.ndim if data is not None else len(self._lay.shape)  # type: ignore[union-attr]

    @property
    def _array_shape(self) -> tuple | None:
        """The sizes of its array, as plain numbers; None where there is none."""
        data = self._data
        return None if data is None else data.shape

    @property
    def _checked_array(self) -> Any:
        """Its array, for checks that only say more clearly what the records that follow refuse as well; None where there is none."""
        return self._data

    @property
    def _root(self) -> Tensor:
        """The tensor that this one is a view of, or itself."""
        return self if self._view is None else self._view.base

    @property
    def _layout(self) -> Layout:
        lay = self._lay
        if lay is None:
            lay = _C.tensor_layout(self)
            if lay is NotImplemented:
                data = self._data
                lay = self._lay = Layout(data.shape, element_strides(data), 0)
        return lay

    @property
    def _storage(self) -> Storage:
        store: Any = self._store
        if store is None or store is UNASKED:
            self._layout  # noqa: B018 - the layout must be fixed before views share the storage
            store = _C.tensor_storage(self)
            if store is NotImplemented:
                flat = flat_bytes(self._data)
                store = self._store = Storage(flat, flat.nbytes, self.device, inference=self._store is not None)
        return store

    @property
    def _version(self) -> int:
        """How often the memory was written in place."""
        store = self._store
        if store is None:
            return 0
        if store.inference:
            raise RuntimeError("Inference tensors do not track version counter; clone() one to get a tensor that does")
        return store.version

    @property
    def _writes(self) -> int:
        """`_version`, for Flambeau's own eyes: the memory of inference tensors is written to as well."""
        return 0 if self._store is None else self._store.writes

    def is_inference(self) -> bool:
        """Whether this is an inference tensor: its memory was allocated in inference mode (see torch.inference_mode)."""
        store = self._store
        return store is not None and store.inference

    @property
    def _base(self) -> Tensor | None:
        if self._view is None:
            return None
        base = self._view.base
        known: Tensor | None = getattr(base, "_was", lambda: base)()    # what was laid out anew in place, and is a view itself now
        return None if known is self else known

    @property
    def is_fake(self) -> bool:
        """Whether this tensor has shapes but no elements."""
        return self._data is None

    def _is_view(self) -> bool:
        return Tensor._base.__get__(self) is not None   # no class is asked for that

    def stride(self, dim: int | None = None) -> Any:
        """Strides in elements: all of them, or that of `dim`."""
        strides = self._layout.strides
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> Any:
        """Position of the first element in the storage, in elements. NotImplementedError of a view whose place a number in a tensor chooses,
        within a compiled function."""
        if self._data is None:
            self._storage.asked_where = True
            if self._view is not None and any(isinstance(a, Tensor) for _, attrs in self._view.chain for a in attrs):
                raise NotImplementedError("where a view lies that a number in a tensor chooses is known only when it runs: ask for its "
                                          "storage_offset() outside of the compiled function, or choose by an int")
        return self._layout.offset

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie in row-major order (or in `memory_format`) without gaps."""
        name = "contiguous_format" if memory_format is None else getattr(memory_format, "name", None)
        if memory_format is not None and not hasattr(memory_format, "matches"):
            raise TypeError(f"is_contiguous(): argument 'memory_format' must be torch.memory_format, not {type(memory_format).__name__}")
        if name == "contiguous_format":
            data = self._data
            if type(data) is np.ndarray:
                return data.flags.c_contiguous
            return is_contiguous(self._layout.shape, self._layout.strides)
        return memory_format.matches(self._layout.shape, self._layout.strides)

    # -- autograd ----------------------------------------------------------------------------------
    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this tensor."""
        view = self._view
        if view is not None:
            if view.origin is not None and view.base._grad is not None and view.version != view.base._grad.generation:
                return view.base.requires_grad
            Tensor._refresh_view(self)
        meta = self._grad
        return meta is not None and (meta.requires_grad or meta.grad_fn is not None)

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        if not isinstance(flag, bool):
            raise RuntimeError("requires_grad must be a bool")
        if self.grad_fn is not None:
            raise RuntimeError("you can only change requires_grad flags of leaf variables." + (
                "" if flag else " If you want to use a computed variable in a subgraph that doesn't require differentiation use "
                                "var_no_grad = var.detach()."))
        if flag and is_example(self):
            raise RuntimeError("You are attempting to call Tensor.requires_grad_() inside of a function being transformed by vmap, on a tensor "
                               "that it batches; use torch.func.grad, vjp or jvp there, or call requires_grad_() outside")
        if flag and self.is_inference() and not dispatch.state.inference:
            raise RuntimeError("requires_grad=True cannot be set on an inference tensor outside of inference mode; clone() it to get a "
                               "normal tensor")
        if flag and self.dtype.category < 2:
            raise RuntimeError(f"only Tensors of floating point and complex dtype can require gradients, this one is {self.dtype}")
        if self._grad is None:
            if not flag:
                return
            self._grad = AutogradMeta()
        self._grad.requires_grad = bool(flag)

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` accumulated, or None."""
        meta = self._grad
        if meta is None:
            return None
        if meta.grad is None and meta.grad_fn is not None and not meta.retains_grad:
            warnings.warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
                          "populated during autograd.backward(). If you indeed want it, use .retain_grad() on the non-leaf Tensor.",
                          stacklevel=2)
        return meta.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is None:
            if self._grad is not None:
                self._grad.grad = None
            return
        if not isinstance(value, Tensor):
            raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}")
        given, own = shape_of(value), shape_of(self)
        if given != own:
            raise RuntimeError(f"attempting to assign a gradient of size '{list(given)}' to a tensor of size '{list(own)}'. "
                               "Please ensure that the gradient and the tensor are the same size")
        if value is self:
            raise RuntimeError("can't assign Variable as its own grad; assign grad.detach() or a clone()")
        kind = vars(self).get("_grad_dtype", self.dtype)
        if kind is not None and value.dtype is not kind:
            raise RuntimeError(f"attempting to assign a gradient with dtype '{value.dtype}' to a tensor with grad_dtype '{kind}'. The gradient "
                               "must match the tensor's grad_dtype (defaults to the tensor's dtype); set that to the gradient's, or to None "
                               "for any")
        if self._grad is None:
            self._grad = AutogradMeta()
        self._grad.grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def grad_dtype(self) -> Any:
        """The dtype that gradients of a leaf are cast to: its own, what was set, or None for the one that they come with."""
        if not self.is_leaf:
            raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
        return vars(self).get("_grad_dtype", self.dtype)

    @grad_dtype.setter
    def grad_dtype(self, kind: Any) -> None:
        if not self.is_leaf:
            raise RuntimeError("grad_dtype can only be set on leaf tensors.")
        if kind is not None and not isinstance(kind, dtype):
            raise RuntimeError(f"grad_dtype must be a torch.dtype or None, but got {type(kind).__name__}")
        held = self.grad
        if held is not None and kind is not None and held.dtype is not kind:
            raise RuntimeError(f"Cannot set grad_dtype to {kind} because there is already a gradient with dtype {held.dtype}. Please "
                               "clear the gradient (.grad = None) before changing grad_dtype")
        vars(self)["_grad_dtype"] = kind
        if self._grad is not None:
            self._grad.accumulator = None

    @property
    def grad_fn(self) -> Any:
        """The node of the tape that made this tensor, or None for a leaf."""
        if self._view is not None:
            Tensor._refresh_view(self)
        return None if self._grad is None else self._grad.grad_fn

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor was made by the user, not by a recorded operation."""
        return self.grad_fn is None

    @property
    def output_nr(self) -> int:
        """Which output of `grad_fn` this tensor is."""
        return 0 if self._grad is None else self._grad.output_nr

    # -- facts -------------------------------------------------------------------------------------
    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"

    @property
    def is_meta(self) -> bool:
        return self.device.type == "meta"

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def _as_subclass(self, cls: type) -> Any:
        """The same tensor as an instance of `cls`: shares memory and autograd record."""
        if cls is not Tensor and not getattr(cls, "_plain_torch_function", False):
            dispatch.count_override(cls)
        made: Any = object.__new__(cls)
        look_at(made, self)
        made._grad, made._view = self._grad, self._view
        return made


def look_at(tensor: Any, other: Tensor) -> None:
    """Let `tensor` have the memory, layout, dtype and device of `other`, whatever their classes say of the last two (properties)."""
    tensor._data, tensor._lay, tensor._store = other._data, other._lay, other._store
    for slot in _PUBLIC:
        slot.__set__(tensor, slot.__get__(other))


_PUBLIC: tuple[Any, ...] = (Tensor.dtype, Tensor.device)


def _of_class(value: Any, cls: type) -> Any:
    """A result with its tensors as instances of `cls`."""
    if isinstance(value, Tensor):
        return value if isinstance(value, cls) else value._as_subclass(cls)
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(_of_class(v, cls) for v in value)
    return type(value)(_of_class(v, cls) for v in value) if type(value) in (tuple, list) else value


def _is_foreign(func: Any) -> bool:
    """Whether a function is PyTorch's own, which asks here too and has nothing for these tensors."""
    return isinstance(func, BuiltinFunctionType) or str(getattr(func, "__module__", "")).partition(".")[0] == "torch"


def _run_without_overrides(func: Callable, args: tuple, kwargs: dict) -> Any:
    plain = getattr(func, "_plain", func)
    with dispatch.classes_off():
        return plain(*args, **kwargs)


memory.install()
_new = object.__new__
_C.know_tensors(Tensor, AutogradMeta, Storage, Layout, ViewPath, CPU, dtype_of_numpy, UNASKED)


ATTRIBUTES_AS_THEY_ARE: frozenset[Any] = frozenset(prop.__get__ for prop in (Tensor.grad, Tensor._base))
"""Functions of tensors that hold a tensor which is there already: it stays of the class that it is of."""


def shape_of(tensor: Tensor) -> tuple:
    """The sizes as a plain tuple, for code that asks often."""
    lay = tensor._lay
    return tensor._data.shape if lay is None else lay.shape


def from_array(array: Any, kind: dtype | None = None, where: device = CPU) -> Tensor:
    """A tensor around a fresh backend array (no copy). The array must not be shared with a live tensor."""
    return _C.tensor_around(array, kind, where)


def laid_out(array: Any, kind: dtype, strides: tuple | None, where: device = CPU) -> Tensor:
    """`from_array` of an array that lies by these strides. In a dimension of at most one element it lies in any way: its strides are
    those that are told."""
    made = from_array(array, kind, where)
    if strides is not None and (not array.size or (1 in array.shape and array.flags.c_contiguous)):
        made._lay = Layout(tuple(array.shape), strides, 0)
    return made


def fake(
    shape: tuple, kind: dtype, where: device = CPU, strides: tuple | None = None, offset: Any = 0, storage: Storage | None = None
) -> Tensor:
    """A tensor with a layout but no elements; `storage` is given for a view."""
    made: Tensor = _new(Tensor)
    made._data = made._grad = made._view = None
    shape = tuple(shape)
    made._lay = Layout(shape, contiguous_strides(shape) if strides is None else tuple(strides), offset)
    made._store = Storage(None, None, where) if storage is None else storage
    made.dtype, made.device = kind, where
    return made


def view_tensor(base: Tensor, kind: dtype, layout: Layout) -> Tensor:
    """A tensor over the storage of `base` with another layout; knows nothing of autograd."""
    return tensor_over(base._storage, kind, layout)


def tensor_over(storage: Storage, kind: dtype, layout: Layout) -> Tensor:
    """A tensor over a storage."""
    if storage.buffer is None:
        return fake(layout.shape, kind, storage.device, layout.strides, layout.offset, storage)
    made: Tensor = _new(Tensor)
    made._data = view_of(storage.buffer, kind.numpy, layout.shape, layout.strides, layout.offset)
    made._lay, made._store = layout, storage
    made._grad = made._view = None
    made.dtype, made.device = kind, storage.device
    return made


def example_of(values: Tensor, level: Any) -> Tensor:
    """A tensor that stands for each of the `values` along their first dimension, one after another: it has the layout of one."""
    shape, strides, _ = values._layout
    return fake(shape[1:], values.dtype, values.device, strides[1:], 0, Examples(values, level))


def is_example(tensor: Tensor) -> bool:
    """Whether the tensor stands for one example of a batch, whatever the example (see vmap)."""
    return type(tensor._store) is Examples


def no_view(tensor: Tensor) -> Tensor:
    """The tensor, which, as what is behind an example, is to autograd no view from here on."""
    behind = tensor
    while is_example(behind):
        behind = behind._store.values  # type: ignore[union-attr]
    behind._view = None
    return tensor


def element_strides(array: np.ndarray) -> tuple:
    """Strides of an array in elements, with torch's convention for contiguous shapes with sizes 0 and 1."""
    if array.flags.c_contiguous:
        return contiguous_strides(array.shape)
    size = array.itemsize
    return tuple(s // size for s in array.strides)


def refuse_inference_write(tensor: Tensor) -> None:
    """RuntimeError where `tensor` is an inference tensor that is about to be written to outside of inference mode."""
    store = tensor._store
    if store is not None and store.inference and not dispatch.state.inference:
        raise RuntimeError(
            f"Inplace update to inference tensor outside InferenceMode is not allowed (of shape {list(tensor.shape)}); clone() it to "
            "get a normal tensor"
        )


def is_inference(input: Tensor) -> bool:
    """Whether `input` is an inference tensor: allocated in inference mode, or a view of one."""
    if not isinstance(input, Tensor):
        raise TypeError(f"is_inference(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return input.is_inference()


def set_inference(tensor: Tensor, flag: bool) -> None:
    """Make a fresh tensor an inference tensor, or a normal one."""
    if isinstance(tensor._store, Storage):
        tensor._store.inference = flag
    else:
        tensor._store = UNASKED if flag else None


def bump_version(tensor: Tensor) -> None:
    """Note an in-place write."""
    store: Any = tensor._store
    if store is None or store is UNASKED:
        store = tensor._storage
    store.version += 1
    if type(store) is Aside:
        store.memory.uncounted += 1
