"""Writing in place, and into `out=`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

import numpy as np

from flambeau import _C

from ..backends.cpu import native
from ..core import dispatch
from ..core.device import at
from ..core.dtypes import FLOAT, can_cast
from ..core.size import is_dense, may_overlap
from ..core.tensor import Tensor, bump_version, refuse_inference_write
from ..core.unresolved import resolved, waits
from ..core.warned import warn
from . import prims
from .order import in_rows
from .primitives import PRIMITIVES, InAten, Primitive, register
from .promotion import cast, times_alpha
from .registry import operator

F = TypeVar("F", bound=Callable)


class InPlace:
    """Slots that autograd fills: refuse a forbidden write, and give the target the history of what was written."""

    check: Callable[..., None] = staticmethod(lambda target, value=None: None)
    rebase: Callable[[Tensor, Any, bool], None] = staticmethod(lambda target, source, anew: None)


def assign(target: Tensor, value: Any, *, anew: bool = False, changes: bool = False) -> Tensor:
    """Overwrite `target` with `value` (of a castable dtype, broadcastable to its shape), as a recorded in-place write.

    `anew`: the value was made without a look at `target`, whose former history then gets a gradient of zeros. `changes`: `value` is
    what an operation made of `target`: of elements in one place (windows of `unfold`) those that it left alone undo nothing.
    """
    if (noted := dispatch.asked_mode("assigned")) is not None:
        return noted(_assign, target, value, anew, changes)
    if _C.write_plainly(target, value):
        return target
    InPlace.check(target, value)
    if target._data is None or not target._data.flags.c_contiguous:    # what is expanded need not be a view: it may be detached
        refuse_repeated(target)
    if isinstance(value, Tensor):
        if not can_cast(value.dtype, target.dtype):
            raise RuntimeError(f"result type {value.dtype} can't be cast to the desired output type {target.dtype}")
        value = cast(value, target.dtype)
        if value.shape != target.shape:
            raise RuntimeError(f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(value.shape)}")
    write(target, value, changes)
    InPlace.rebase(target, value, anew)
    return target


def _assign(target: Tensor, value: Any, anew: bool, changes: bool) -> Tensor:
    return assign(target, value, anew=anew, changes=changes)


def assign_uncounted(target: Tensor, value: Tensor) -> Tensor:
    """`assign` that autograd isn't told of: what it saved of `target` counts as unchanged."""
    if (noted := dispatch.asked_mode("in_place")) is not None:
        return noted(assign_uncounted, target, (value,))
    assign(target.data, value)
    return target


def refuse_repeated(x: Tensor) -> None:
    """RuntimeError if `x` was expanded: it has elements, and some dimension of more than one has stride 0."""
    shape, strides, _ = x._layout
    known = [n if type(n) is int else 2 for n in shape]
    if 0 not in known and any(type(s) is int and s == 0 and n > 1 for n, s in zip(known, strides)):
        raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a single memory "
                           "location. Please clone() the tensor before performing the operation.")


def write(target: Tensor, value: Any, changes: bool = False) -> None:
    """The bare write: memory and version counter, through the modes but without autograd. `value` may be a number; `changes`: as for
    `assign`."""
    refuse_inference_write(target)
    state = dispatch.state
    if state.modes or target._data is None or (dispatch.wrapping and dispatch.answers(value)):
        with dispatch.grad_enabled(False):
            dispatch.run(copy_into, (target, value))
        return
    source = value._data if isinstance(value, Tensor) else value
    if isinstance(value, Tensor) and value._data is None:
        raise RuntimeError("cannot write a fake tensor's values into a real tensor")
    if not target._data.flags.writeable if isinstance(target._data, np.ndarray) else False:
        raise RuntimeError("the memory of this tensor is read-only (it came from a read-only NumPy array); clone() it first")
    if isinstance(value, Tensor) and value.device != target.device:
        source = value.to(target.device)._data
    if isinstance(target._data, np.ndarray):
        _store(target, source, changes)
    else:
        with at(target.device):
            _store(target, source, changes)
    bump_version(target)


def _store(target: Tensor, source: Any, changes: bool) -> None:
    array, (conj, neg) = target._data, waits(target._data)
    if changes and not array.flags.c_contiguous and may_overlap(*target._layout[:2]):
        changed = (source != array) & ((source == source) | (array == array))
        array[changed] = source[changed]
    elif not conj and not neg and isinstance(source, np.ndarray):
        native.copy_strided(array, resolved(source))
    else:
        array[...] = source


class _CopyInto(Primitive):
    """copy_into(target, value): the one primitive that writes memory. Tracers functionalise it."""

    def run(self, args: tuple) -> Any:
        target, value = args
        if (out := dispatch.ask(self, args)) is not NotImplemented:
            return out
        if target._data is None:
            bump_version(target)
            return target
        write(target, value)
        return target


copy_into = _CopyInto("copy_into", lambda target, value: None, tensors=2, tags=("inplace",), kind="inplace",
                      doc="Overwrite target with value (a tensor of its shape and dtype, or a number).",
                      why_absent={"derivative": "autograd rebases the target's history instead", "loop": "a store, not a value"})
copy_into.aten = InAten("copy_", True)
register(PRIMITIVES, "copy_into", copy_into)


_PRIMITIVE_OF = {"div_": "truediv"}  # where operator and primitive have different names


def inplace(fn: Callable, name: str, *, refuses: bool = False) -> Callable:
    """The in-place form of an operator: compute, check the cast, write. `refuses`: `fn` refuses some operands that its primitive takes."""
    prim = getattr(prims, _PRIMITIVE_OF.get(name, name.rstrip("_")), None)

    scalar = None if refuses or prim is None else prim.eager.scalar
    into = None if scalar is None else scalar.into
    scales = list(inspect.signature(fn).parameters)[:3] == ["input", "other", "alpha"]

    @functools.wraps(fn)
    def body(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if scales and kwargs.keys() == {"alpha"} and args and (self.dtype.category != FLOAT or self.dtype.itemsize >= 4):  # add_ and sub_
            args, kwargs = (times_alpha(self, args[0], kwargs["alpha"]),), {}
        if not kwargs and (noted := dispatch.asked_mode("in_place")) is not None:
            return noted(body, self, args)
        if into is not None and not kwargs and self._data is not None and into(self, *args):
            bump_version(self)
            return self
        return assign(self, _shaped(new_value(fn, self, args, kwargs), self, name), changes=True)

    in_place = operator(name=name, method=True, tags=("inplace",))(body)
    in_place.__name__ = in_place.__qualname__ = name
    return in_place


def new_value(fn: Callable, target: Tensor, args: tuple, kwargs: dict) -> Tensor:
    """What an in-place operation is to write into `target`; autograd saves a copy of `target`, not what it will be."""
    state = dispatch.state
    outer, state.overwriting = state.overwriting, target
    try:
        return fn(target, *args, **kwargs)
    finally:
        state.overwriting = outer


def _shaped(value: Tensor, target: Tensor, name: str) -> Tensor:
    if value.shape != target.shape:
        raise RuntimeError(f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(value.shape)} ({name})")
    return value


def store_out(out: Tensor, result: Tensor, exact: bool = False) -> Tensor:
    """Write `result` into the tensor given as `out=`, resized with a warning if it has another shape; what a view then reaches of its
    storage, elements around it too, is written. One whose storage would have to grow is refused: others look into it. `exact`: so is one
    of another dtype; else it is one that the result's can be cast to."""
    if dispatch.state.grad_enabled and (a_tensor_as_out(out).requires_grad or result.requires_grad):
        raise RuntimeError("functions with out=... arguments don't support automatic differentiation, but one of the arguments requires "
                           "grad; use the function's result, or torch.no_grad()")
    if exact and out.dtype is not result.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead")
    _fit(out, result)
    return assign(out, result, anew=True)


def a_tensor_as_out(out: Any) -> Tensor:
    """What was given as `out=` where one tensor is computed. TypeError for several."""
    if not isinstance(out, Tensor):
        raise TypeError(f"argument 'out' must be Tensor, not {type(out).__name__}")
    return out


def _fit(out: Tensor, result: Tensor) -> None:
    """Give what is given as `out=` the shape of the result; it must be where that is."""
    if out.device != result.device:
        raise RuntimeError(f"Attempting to copy from device {result.device} to device {out.device}, but cross-device copies are not "
                           "allowed! out= must be where the operands are")
    if out.shape != result.shape:
        if out.shape.numel():
            last = out._layout.offset + result.shape.numel()
            if out._view is not None and last * out.dtype.itemsize > out._storage.nbytes:
                raise RuntimeError(f"out= is a view of shape {list(out.shape)}, the result has shape {list(result.shape)}, which doesn't "
                                   "fit into the storage that it looks into; give a tensor of that shape, or an empty one")
            warn(f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not match "
                          f"the required output shape {list(result.shape)}; give one of that shape, or an empty one")
        out.resize_(result.shape)
        if not result.is_contiguous() and is_dense(*result._layout[:2]):
            out.as_strided_(*result._layout[:2], out._layout.offset)    # an empty one lies as the result would


@overload
def with_out(fn: F, *, exact: bool = ..., apart: bool = ..., rows: bool = ...) -> F: ...
@overload
def with_out(*, exact: bool = ..., apart: bool = ..., rows: bool = ...) -> Callable[[F], F]: ...
def with_out(fn: Any = None, *, exact: bool = False, apart: bool = False, rows: bool = False) -> Any:
    """Mark the body of an operator: it takes `out=`, a tensor to write the result into, or a tuple of them for a named tuple's.

    `exact`: of the result's own dtype. `apart`: it shares no memory with an argument, for an operator that writes while it reads. `rows`:
    the result lies otherwise by itself than in an empty `out=`, where it is in rows.
    """
    if fn is None:
        return functools.partial(with_out, exact=exact, apart=apart, rows=rows)
    vars(fn)["into_out"] = functools.partial(into_out, exact=exact, rows=rows)
    if apart:
        vars(fn)["checks_out"] = refuse_shared
    return fn


def with_out_of_pieces(fn: Callable) -> Callable:
    """As `with_out`, for as many tensors as there are pieces: who asks has them, and nothing comes back."""
    vars(fn)["into_out"] = _into_pieces
    return fn


def _into_pieces(result: Any, out: Any) -> None:
    if isinstance(out, (tuple, list)) and len(out) != len(result):
        raise RuntimeError(f"expected {len(result)} tensors as out=, got {len(out)}")
    into_out(result, out)


def into_out(result: Any, out: Any, exact: bool = False, rows: bool = False) -> Any:
    """Into a tensor, or those of a tuple, which must be as many."""
    several = isinstance(result, tuple)
    if several != isinstance(out, (tuple, list)) or (several and len(out) != len(result)):
        raise TypeError(f"argument 'out' must be {f'a tuple of {len(result)} Tensors' if several else 'Tensor'}, not "
                        f"{f'{len(out)} of them' if isinstance(out, (tuple, list)) else type(out).__name__}")
    made = [store_out(o, in_rows(r) if rows else r, exact) for o, r in (zip(out, result) if several else ((out, result),))]
    return made[0] if not several else type(result)(*made) if hasattr(result, "_make") else tuple(made)


def store_apart(out: Tensor, result: Tensor, *args: Tensor) -> Tensor:
    """`store_out` of an `out=` that shares no memory with an argument, of the result's own dtype."""
    refuse_shared(out, args)
    if a_tensor_as_out(out).dtype is result.dtype:
        _fit(out, result)       # it may reach into an argument now
        refuse_shared(out, args)
    return store_out(out, result, exact=True)


def refuse_shared(out: Any, args: Any) -> None:
    """RuntimeError if memory of a tensor given as `out=` is that of an argument, or shows one element in two places."""
    for y in out if isinstance(out, (tuple, list)) else (out,):
        refuse_repeated(y)
        for x in args:
            if isinstance(x, (tuple, list)):
                refuse_shared(y, x)
            elif x is y or (isinstance(x, Tensor) and isinstance(x._data, np.ndarray) and np.may_share_memory(x._data, y._data)):
                raise RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                                   "memory location. Please clone() the tensor before performing the operation.")
