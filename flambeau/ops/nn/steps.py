"""One optimizer step over lists of tensors: the formulas, and for eager tensors the native loops that do them in one pass.

The formulas are the definition: they run for other dtypes, under capture and in the tests that compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import _C
from ...core import dispatch
from ...core.dtypes import float32, float64
from ...core.tensor import Tensor, bump_version, from_array
from ..registry import operator
from ..writing import write

# device type -> {name of a step: one pass over all tensors, falsy where the formula must do it}. Backends fill it in.
FUSED: dict[str, dict[str, Callable[..., Any]]] = {}


def _watched(params: Sequence[Tensor]) -> bool:
    """Whether a mode, or the tape (of a differentiable step), is to see the operations."""
    return bool(dispatch.state.word) or (dispatch.state.grad_enabled and any(p.requires_grad for p in params))


def _fused(name: str, params: Sequence[Tensor], *also_written: Sequence[Tensor] | None) -> Callable[..., Any] | None:
    """A backend's pass for these tensors: real, writable, and nobody watching."""
    found = FUSED.get(params[0].device.type, {}).get(name) if FUSED and not _watched(params) else None
    if found is None or _C.any_refuses_writes(params, *also_written):
        return None
    return found if all(p._data is not None for p in params) else None


def _native(params: Sequence[Tensor], *also_written: Sequence[Tensor] | None) -> bool:
    """Whether the native loops may take these tensors: real, writable, on the CPU, f32 or f64, and nobody watching."""
    if _watched(params) or _C.any_refuses_writes(params, *also_written):
        return False
    return all(type(p._data) is np.ndarray and p.dtype in (float32, float64) for p in params)


def _bump(*lists: Sequence[Tensor] | None) -> None:
    for tensors in lists:
        for t in tensors or ():
            bump_version(t)


def write_all(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """`write` for each target; on a GPU in one launch."""
    fused = _fused("write_all", targets)
    if fused is not None and all(v._data is not None for v in values) and fused(targets, values):
        _bump(targets)
        return
    for target, value in zip(targets, values, strict=True):
        write(target, value)


def step_number(step: Any) -> Any:
    """The count of steps as a Python number; as the tensor itself when it has no value yet (under capture) or lies on a GPU."""
    if not isinstance(step, Tensor):
        return step
    return step if step._data is None or dispatch.state.modes or step.device.type != "cpu" else step.item()


def in_float64(x: Any) -> Any:
    """A count that is a tensor, to compute with as with a Python number: powers of it in float32 would be 1e-8 off."""
    return x.double() if isinstance(x, Tensor) and x.dtype is float32 else x


def _are_numbers(values: Sequence) -> bool:
    """Whether these numbers, or 0-dim tensors, are known on the host."""
    return not any(isinstance(v, Tensor) and v.device.type != "cpu" for v in values)


def square_root(x: Any) -> Any:
    """The square root of a number or tensor."""
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def larger(x: Any, bound: Any) -> Any:
    """max(x, bound); a tensor where `x` is one."""
    return x.clamp(min=bound) if isinstance(x, Tensor) else max(x, bound)


def smaller(x: Any, bound: Any) -> Any:
    """min(x, bound); a tensor where `x` is one."""
    return x.clamp(max=bound) if isinstance(x, Tensor) else min(x, bound)


def add_scaled(param: Any, update: Any, factor: Any) -> None:
    """param += factor * update, in place; the factor may be a 0-dim tensor."""
    if isinstance(factor, Tensor):
        param.add_(update * factor)
    else:
        param.add_(update, alpha=factor)


def as_number(x: Any) -> Any:
    """A learning rate given as a 0-dim tensor, as a number where it has a value."""
    return step_number(x)


# -- Adam ----------------------------------------------------------------------------------------------------
@operator(tags=("alone",))
def adam_step_(params: list, grads: list, means: list, squares: list, max_squares: list | None, steps: list, lr: Any,
               beta1: float, beta2: float, eps: float, weight_decay: float, decoupled: bool, maximize: bool) -> None:
    """Adam (Kingma and Ba 2014), or with `decoupled` weight decay AdamW (Loshchilov and Hutter 2017), in place.

    `steps` are the 0-dim counters, already counting this step; `max_squares` makes it AMSGrad.
    """
    if _native(params, means, squares, max_squares):
        numbers = [float(s._data) if isinstance(s, Tensor) else float(s) for s in steps]
        if _C.adam_step(params, grads, means, squares, max_squares, numbers, float(as_number(lr)), beta1, beta2, eps, weight_decay,
                        decoupled, maximize):
            _bump(params, means, squares, max_squares)
            return
    fused = _fused("adam_step", params, means, squares, max_squares) if _are_numbers((lr, *steps)) else None
    if fused and fused(params, grads, means, squares, max_squares, [float(as_number(s)) for s in steps],
                       float(as_number(lr)), beta1, beta2, eps, weight_decay, decoupled, maximize):
        _bump(params, means, squares, max_squares)
        return
    for i, param in enumerate(params):
        top = None if max_squares is None else max_squares[i]
        adam_formula(param, grads[i], means[i], squares[i], top, steps[i], lr, beta1, beta2, eps, weight_decay, decoupled, maximize)


def adam_formula(param: Any, grad: Any, mean: Any, square: Any, top: Any, step: Any, lr: Any, beta1: float, beta2: float,
                 eps: float, weight_decay: float, decoupled: bool, maximize: bool) -> None:
    """The step of one parameter."""
    grad = -grad if maximize else grad
    lr = in_float64(as_number(lr))
    if weight_decay:
        if decoupled:
            param.mul_(1 - lr * weight_decay)
        else:
            grad = grad.add(param, alpha=weight_decay)
    mean.lerp_(grad, 1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    t = in_float64(step_number(step))
    correction1, correction2 = 1 - beta1**t, 1 - beta2**t
    if top is not None:
        top.copy_(top.maximum(square))
        square = top
    denominator = square.sqrt() / square_root(correction2) + eps
    if isinstance(correction1, Tensor) or isinstance(lr, Tensor):
        param.add_(-(mean / denominator) * (lr / correction1))
    else:
        param.addcdiv_(mean, denominator, value=-lr / correction1)


# -- SGD -----------------------------------------------------------------------------------------------------
@operator(tags=("alone",))
def sgd_step_(params: list, grads: list, buffers: list | None, fresh: list, lr: Any, momentum: float, dampening: float,
              weight_decay: float, nesterov: bool, maximize: bool) -> None:
    """Stochastic gradient descent in place, with momentum `buffers` or None; a `fresh` buffer begins as the gradient."""
    if _native(params, buffers) and _C.sgd_step(
            params, grads, buffers, [float(f) for f in fresh], float(as_number(lr)), momentum, dampening, weight_decay, nesterov, maximize):
        _bump(params, buffers)
        return
    fused = _fused("sgd_step", params, buffers) if _are_numbers((lr,)) else None
    if fused and fused(params, grads, buffers, fresh, float(as_number(lr)), momentum, dampening, weight_decay, nesterov, maximize):
        _bump(params, buffers)
        return
    for i, param in enumerate(params):
        sgd_formula(param, grads[i], None if buffers is None else buffers[i], fresh[i], lr, momentum, dampening, weight_decay,
                    nesterov, maximize)


def sgd_formula(param: Any, grad: Any, buffer: Any, fresh: bool, lr: Any, momentum: float, dampening: float, weight_decay: float,
                nesterov: bool, maximize: bool) -> None:
    """The step of one parameter."""
    grad = -grad if maximize else grad
    if weight_decay:
        grad = grad.add(param, alpha=weight_decay)
    if buffer is not None:
        if fresh:
            buffer.copy_(grad)
        else:
            buffer.mul_(momentum).add_(grad, alpha=1 - dampening)
        grad = grad.add(buffer, alpha=momentum) if nesterov else buffer
    add_scaled(param, grad, -as_number(lr))


# -- norms -----------------------------------------------------------------------------------------------------
@operator
def total_norm(tensors: list) -> Tensor:
    """The 2-norm of all elements of the tensors together, as a 0-dim tensor."""
    first = tensors[0]
    if _native(tensors):
        value = _C.total_norm(tensors)
        if value is not None:
            return first.new_full((), value)
    fused = _fused("total_norm", tensors)
    norm = fused(tensors) if fused else None
    if norm is not None:
        return from_array(norm, first.dtype, first.device)
    norms = [t.norm(2).reshape(1) for t in tensors]
    return first.new_cat([n.to(first.device) for n in norms], 0).norm(2)


@operator(tags=("alone",))
def scale_all_(tensors: list, factor: Any) -> None:
    """Multiply all the tensors in place."""
    if _native(tensors) and not (isinstance(factor, Tensor) and factor._data is None) and _C.scale_all(tensors, float(factor)):
        _bump(tensors)
        return
    fused = _fused("scale_all", tensors)
    if fused and fused(tensors, factor):
        _bump(tensors)
        return
    for t in tensors:
        t.mul_(factor.to(t.device) if isinstance(factor, Tensor) else factor)
