"""Jacobians, Hessians and products with them, row by row through the tape (torch.autograd.functional)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..ops.registry import OPERATORS
from . import engine
from .grad_mode import enable_grad


def _tuple(x: Any) -> tuple:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _fresh(inputs: tuple, create_graph: bool) -> tuple:
    return tuple(x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in inputs)


def _as_given(values: Sequence, like: Any) -> Any:
    """A tuple where `like` is a sequence, else the only value."""
    return tuple(values) if isinstance(like, (tuple, list)) else values[0]


def _grads(outs: Sequence, xs: tuple, seeds: Any, create_graph: bool, strict: bool = False) -> list[Tensor]:
    """Gradients of the sum of outs * seeds (None: of one element each), zeros where there is none."""
    pairs = [(o, s) for o, s in zip(outs, (None,) * len(outs) if seeds is None else _tuple(seeds)) if o.requires_grad]
    found: Sequence = [None] * len(xs)
    if pairs:
        found = engine.run_backward([o for o, _ in pairs], [s for _, s in pairs], inputs=xs, retain_graph=True,
                                    create_graph=create_graph, accumulate=False)
    if strict and any(g is None for g in found):
        raise RuntimeError("Output of the user-provided function is independent of an input. This is not allowed in strict mode.")
    return [x.new_zeros(x.shape) if g is None else g for g, x in zip(found, xs)]


def _ones(xs: tuple) -> tuple:
    return tuple(x.new_full(x.shape, 1) for x in xs)


def vjp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple:
    """(func(inputs), v^T J)."""
    with enable_grad():
        xs = _fresh(_tuple(inputs), create_graph)
        out = func(*xs)
        return out, _as_given(_grads(_tuple(out), xs, v, create_graph, strict), inputs)


def jvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple:
    """(func(inputs), J v), by differentiating the vjp in its (linear) seed."""
    with enable_grad():
        xs = _fresh(_tuple(inputs), create_graph)
        out = func(*xs)
        outs = _tuple(out)
        seeds = tuple(o.detach().new_full(o.shape, 1).requires_grad_() for o in outs)
        back = _grads(outs, xs, seeds, True, strict)
        return out, _as_given(_grads(back, seeds, _ones(xs) if v is None else v, create_graph), out)


def jacobian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """d func / d inputs; shape (*out.shape, *in.shape), nested as outputs of inputs. By rows whatever the `strategy`."""
    _check_strategy(strategy, create_graph, strict, vectorize)
    with enable_grad():
        xs = _fresh(_tuple(inputs), create_graph)
        out = func(*xs)
        return _as_given([_as_given(_jacobian_of(o, xs, create_graph, strict), inputs) for o in _tuple(out)], out)


def _check_strategy(strategy: str, create_graph: bool, strict: bool, vectorize: bool) -> None:
    """Refuse the combinations that torch refuses: what runs with one has to run with the other."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(f'Expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}.')
    forward = strategy == "forward-mode"
    if strict and (forward or vectorize):
        raise RuntimeError(f"`strict=True` and `{'strategy=' + repr(strategy) if forward else 'vectorize=True'}` are not supported "
                           "together; set one of them only.")
    if forward and create_graph:
        raise NotImplementedError('`create_graph=True` and `strategy="forward-mode"` are not supported together; use "reverse-mode".')
    if forward and not vectorize:
        raise NotImplementedError('strategy="forward-mode" is only implemented for `vectorize=True`.')


def _jacobian_of(out: Tensor, xs: tuple, create_graph: bool, strict: bool) -> list[Tensor]:
    flat = out.reshape(-1)
    rows = [_grads((flat[i],), xs, None, create_graph, strict) for i in range(flat.numel())]
    shapes = [tuple(out.shape) + tuple(x.shape) for x in xs]
    if not rows:
        return [x.new_zeros(shape) for x, shape in zip(xs, shapes)]
    return [OPERATORS["stack"](column).reshape(shape) for column, shape in zip(zip(*rows), shapes)]


def hessian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """Second derivatives of a function with one element as output."""

    def gradient(*xs: Tensor) -> Any:
        return _as_given(_grads((func(*xs),), xs, None, True, strict), inputs)

    return jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


def vhp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple:
    """(func(inputs), v^T H)."""
    with enable_grad():
        xs = _fresh(_tuple(inputs), create_graph)
        out = func(*xs)
        first = _grads((out,), xs, None, True, strict)
        return out, _as_given(_grads(first, xs, _ones(xs) if v is None else v, create_graph), inputs)


hvp = vhp
