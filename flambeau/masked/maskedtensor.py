"""`MaskedTensor`: a tensor of which only the elements count where its mask is true.

It is its data, as a class of its own, and a mask beside it. What computes element by element computes with the data and keeps the mask;
views and moves go over both; reductions and normalizations are those of torch.masked. Anything else refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from .. import nn, ops
from .._lazy import submodules
from ..core import dispatch
from ..core.dtypes import bool_
from ..core.tensor import Tensor
from ..ops.elementwise import Elementwise
from ..ops.registry import OPERATORS, is_operator
from ..overrides import DisableTorchFunctionSubclass
from ..utils._pytree import tree_leaves, tree_map

__path__: list[str] = []  # torch's is a package; what it keeps there is in `_homes`
__getattr__ = submodules(__name__)

FORMS: dict[Any, Callable] = {}
"""By operator: what it is for arguments of which some are masked."""
REFUSED = ("bfloat16", "complex64", "complex128")


class MaskedTensor(Tensor):
    """`data`, of which those elements count where `mask`, of the same shape, is true. With `requires_grad` it is a leaf; its gradient is
    masked as it is."""

    _masked_mask: Tensor

    def __new__(cls, data: Any, mask: Any, requires_grad: bool = False) -> MaskedTensor:
        _check(data, mask)
        made = _around(data.detach().clone(), mask.clone())
        return made.requires_grad_(requires_grad)  # type: ignore[return-value]

    def __init__(self, data: Any, mask: Any, requires_grad: bool = False) -> None:
        """All is done in `__new__`."""

    def get_data(self) -> Tensor:
        """All elements; those that are masked out may be anything."""
        with DisableTorchFunctionSubclass():
            return self._as_subclass(Tensor)

    def get_mask(self) -> Tensor:
        """Which elements count."""
        return self._masked_mask

    def to_tensor(self, value: Any) -> Tensor:
        """The elements that count, and `value` in the others' places."""
        return self.get_data().masked_fill(~self._masked_mask, value)

    def is_sparse_coo(self) -> bool:
        """False: data are dense."""
        return False

    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        """False: data are dense."""
        return False

    def tolist(self) -> Any:
        """RuntimeError: a list has no place for what is masked out."""
        raise RuntimeError(".tolist() is not supported for tensor subclasses, got MaskedTensor; use to_tensor(value).tolist()")

    def item(self) -> Any:
        """The only element as a Python number; ValueError where it is masked out."""
        if self.numel() == 1 and not self._masked_mask.item():
            raise ValueError(f"item(): the element of the MaskedTensor of shape {list(self.shape)} is masked out; use to_tensor(value)")
        return self.get_data().item()

    def __bool__(self) -> bool:
        return bool(self.item()) if self.numel() == 1 else bool(self.get_data())

    def numpy(self, *, force: bool = False) -> Any:
        """RuntimeError, or with `force` the array of all data."""
        if force:
            return self.get_data().numpy(force=True)
        raise RuntimeError(".numpy() is not supported for tensor subclasses; use to_tensor(value).numpy()")

    @property  # type: ignore[misc]
    def grad(self) -> Any:
        """The gradient, masked as the tensor is."""
        with DisableTorchFunctionSubclass():
            found = Tensor.grad.__get__(self)
        return found if found is None or isinstance(found, MaskedTensor) else _around(found, self._masked_mask)

    T = property(lambda self: self.permute(tuple(range(self.ndim))[::-1]))
    mT = property(lambda self: self.transpose(-2, -1))
    data = property(lambda self: self.detach())

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in FORMS:
            return FORMS[func](*args, **kwargs)
        if not is_operator(func):
            return _of_itself(func, args, kwargs)
        return _element_by_element(func, args, kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        text = _lines(self.get_data().detach(), self._masked_mask, 1 if self.ndim else 0) if tensor_contents is None else tensor_contents
        return f"MaskedTensor({text}, {bool(self._masked_mask)})" if not self.ndim else f"MaskedTensor(\n{text}\n)"

    __str__ = __repr__

    def __deepcopy__(self, memo: dict) -> MaskedTensor:
        if id(self) not in memo:
            memo[id(self)] = MaskedTensor(self.get_data(), self._masked_mask, self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return MaskedTensor, (self.get_data().detach(), self._masked_mask, self.requires_grad)


def _check(data: Any, mask: Any) -> None:
    for name, given in (("data", data), ("mask", mask)):
        if not isinstance(given, Tensor) or isinstance(given, MaskedTensor):
            raise TypeError(f"{name} must be a Tensor, got {type(given).__name__}")
    if data.layout != mask.layout:
        raise TypeError(f"data and mask must have the same layout, got {data.layout} and {mask.layout}.")
    if data.layout.name != "strided":
        raise NotImplementedError(f"MaskedTensor takes dense tensors, not {data.layout}: use to_dense()")
    if data.dtype.name in REFUSED:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if mask.dtype is not bool_:
        raise TypeError(f"mask must have dtype bool, got {mask.dtype}.")
    if data.ndim != mask.ndim:
        raise ValueError(f"data.dim() must equal mask.dim(), got shapes {list(data.shape)} and {list(mask.shape)}")
    if data.shape != mask.shape:
        raise ValueError(f"data.size() must equal mask.size(), got {list(data.shape)} and {list(mask.shape)}")


def _around(data: Tensor, mask: Tensor) -> MaskedTensor:
    """The masked tensor that is `data` itself, on the tape where it is."""
    made = data._as_subclass(MaskedTensor)
    made._masked_mask = mask
    return made


def masked_tensor(data: Any, mask: Any, requires_grad: bool = False) -> MaskedTensor:
    """A MaskedTensor of copies; with `requires_grad` a leaf."""
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Any, mask: Any) -> MaskedTensor:
    """A MaskedTensor of these tensors themselves; gradients flow to `data`."""
    _check(data, mask)
    return _around(data, mask)


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether an object is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)


# -- what operators do -----------------------------------------------------------------------------------------------------------
def _data(value: Any) -> Any:
    return value.get_data() if isinstance(value, MaskedTensor) else value


def _mask(value: Any) -> Any:
    return value._masked_mask if isinstance(value, MaskedTensor) else value


def _of_itself(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Facts and methods that are no operators (shape, requires_grad, backward): of the first argument as the tensor that it is."""
    if getattr(func, "__module__", None) == nn.functional.__name__:
        raise TypeError(f"no implementation found for 'torch.nn.functional.{func.__name__}' on MaskedTensor; use get_data() and get_mask()")
    with DisableTorchFunctionSubclass():
        return func(*args[:1], *tree_map(_data, args[1:]), **tree_map(_data, kwargs))


def _refuse(name: str, step: str) -> NoReturn:
    raise TypeError(f"no implementation found for '{name}' on MaskedTensor: it is not of single elements ({step} in it). Use "
                    "get_data() and get_mask(), to_tensor(value), or the functions of torch.masked")


def _element_by_element(func: Callable, args: tuple, kwargs: dict) -> Any:
    """An operator on the data; the mask, one for all arguments, stays."""
    masks = [leaf._masked_mask for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, MaskedTensor)]
    if any(mask is not masks[0] and not (mask.shape == masks[0].shape and bool((mask == masks[0]).all())) for mask in masks):
        raise ValueError(f"Input masks must match for {func.__name__}. If you need support for this, combine them with get_mask()")
    with dispatch.push_mode(Elementwise(func.__name__, _refuse)):
        out = func(*tree_map(_data, args), **tree_map(_data, kwargs))
    if not isinstance(out, Tensor):
        return out
    if args and isinstance(args[0], MaskedTensor) and "inplace" in func._operator.tags:  # type: ignore[attr-defined]
        return args[0]
    if out.shape != masks[0].shape:
        raise TypeError(f"no implementation found for '{func.__name__}' on MaskedTensor: the result has shape {list(out.shape)}, the mask "
                        f"{list(masks[0].shape)}")
    return _around(out, masks[0])


def form(*operators: Any) -> Callable:
    """Enter a function as what these operators are for masked tensors."""
    def enter(fn: Callable) -> Callable:
        FORMS.update(dict.fromkeys(operators, fn))
        return fn
    return enter


def _moving(operator: Callable) -> None:
    """Views, parts and joints: what happens to the data happens to the mask."""
    @form(operator)
    def both(*args: Any, **kwargs: Any) -> Any:
        tensors = [leaf for leaf in tree_leaves(args[:1]) if isinstance(leaf, Tensor)]
        if not all(isinstance(leaf, MaskedTensor) for leaf in tensors):
            raise TypeError(f"{operator.__name__}: all tensors must be masked, got {[type(t).__name__ for t in tensors]}")
        data = operator(*tree_map(_data, args), **tree_map(_data, kwargs))
        mask = operator(*tree_map(_mask, args), **tree_map(_mask, kwargs))
        return _around(data, mask) if isinstance(data, Tensor) else type(data)(map(_around, data, mask))


_MOVING = (ops.cat, ops.stack, ops.hstack, ops.vstack, ops.column_stack, ops.index_select, ops.gather, ops.split, ops.chunk, ops.repeat,
           ops.flip, ops.roll, ops.reshape, ops.flatten, ops.ravel, ops.contiguous, ops.clone, ops.detach, ops.tril, ops.triu)
_VIEWS = (op for op in OPERATORS.values() if {"view", "views"} & set(op._operator.tags))     # type: ignore[attr-defined]
for _operator in (*_MOVING, Tensor.__getitem__, *_VIEWS):
    _moving(_operator)


@form(ops.where)
def _where(condition: Any, input: Any = None, other: Any = None) -> MaskedTensor:
    """Of the data, and of the masks: where a tensor is not masked all of it counts."""
    masks = [x._masked_mask if isinstance(x, MaskedTensor) else ops.ones_like(_data(condition), dtype=bool_) for x in (input, other)]
    chosen = _data(condition)
    return _around(ops.where(chosen, _data(input), _data(other)), ops.where(chosen, *masks))


@form(ops.copy_)
def _copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """The data alone: which elements count stays."""
    ops.copy_(_data(self), _data(src), non_blocking)
    return self


@form(Tensor.__setitem__)
def _write(self: Any, key: Any, value: Any) -> None:
    if not isinstance(self, MaskedTensor) or not isinstance(value, MaskedTensor):
        raise TypeError(f"no implementation found for writing a {type(value).__name__} into a {type(self).__name__}: both have to be masked")
    self.get_data()[key], self._masked_mask[key] = value.get_data(), value._masked_mask


def reducing(operators: tuple, function: Callable, keeps: bool) -> None:
    """Enter a function of torch.masked as what operators are: with `keeps` the mask stays, else a result counts where an element did."""
    @form(*operators)
    def masked(input: Any, *args: Any, **kwargs: Any) -> MaskedTensor:
        kwargs.pop("_stacklevel", None)     # of torch.nn.functional
        names = ("dim", "keepdim")
        given = {**dict(zip(names, args)), **kwargs} if function.__name__ != "norm" else {**dict(zip(("ord", *names), args)), **kwargs}
        if "p" in given:
            given["ord"] = given.pop("p")
        if keeps and "dim" not in given:
            raise TypeError(f"{function.__name__}() missing 1 required positional arguments: \"dim\"")
        mask, dim = input._masked_mask, given.get("dim")
        out = function(input.get_data(), **{"dim": None, **given}, mask=mask)
        if keeps:
            return _around(out, mask)
        kept = bool(given.get("keepdim", False))
        left = ops.any(mask, dim, kept) if dim is not None else ops.any(mask).reshape(out.shape)
        return _around(out, left)


# -- how it prints ---------------------------------------------------------------------------------------------------------------
def _shown(value: Any, counts: bool) -> str:
    return "--" if not counts else f"{value:8.4f}" if isinstance(value, float) else str(value)


def _row(values: list, counts: list) -> str:
    """What is masked out is as wide as the widest element of the row."""
    texts = list(map(_shown, values, counts))
    width = max((8, *map(len, texts)))
    return ", ".join(text if known else text.rjust(width) for text, known in zip(texts, counts))


def _lines(data: Tensor, mask: Tensor, depth: int) -> str:
    """Row by row, two spaces further in for each dimension."""
    space = "  " * depth
    if not data.ndim:
        return _shown(data.item(), bool(mask))
    if data.ndim == 1:
        return f"{space}[{_row(data.tolist(), mask.tolist())}]"
    inner = ",\n".join(_lines(part, which, depth + 1) for part, which in zip(data, mask)) or space
    return f"{space}[\n{inner}\n{space}]"


__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]
