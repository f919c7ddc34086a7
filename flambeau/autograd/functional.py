"""Jacobians, Hessians and products with them, row by row through the tape (torch.autograd.functional)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..ops.registry import OPERATORS
from . import engine
from .grad_mode import enable_grad


def _tuple(x: Any) -> tuple:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _fresh(inputs: tuple, create_graph: bool) -> tuple:
    return tuple(x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in inputs)


def _grads(out: Tensor, xs: tuple, seed: Tensor | None, create_graph: bool, strict: bool) -> list[Tensor]:
    found = (
        engine.run_backward([out], [seed], inputs=xs, retain_graph=True, create_graph=create_graph, accumulate=False)
        if out.requires_grad
        else [None] * len(xs)
    )
    if strict and any(g is None for g in found):
        raise RuntimeError("Output of the user-provided function is independent of an input. This is not allowed in strict mode.")
    return [x.new_zeros(x.shape) if g is None else g for g, x in zip(found, xs)]


def vjp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple:
    """(func(inputs), v^T J)."""
    with enable_grad():
        xs = _fresh(_tuple(inputs), create_graph)
        out = func(*xs)
        outs = _tuple(out)
        seeds = (None,) * len(outs) if v is None else _tuple(v)
        found = engine.run_backward(outs, seeds, inputs=xs, retain_graph=True, create_graph=create_graph, accumulate=False)
    grads = tuple(x.new_zeros(x.shape) if g is None else g for g, x in zip(found, xs))
    return out, grads if isinstance(inputs, (tuple, list)) else grads[0]


def jvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple:
    """(func(inputs), J v), by differentiating the vjp in its (linear) seed."""
    with enable_grad():
        xs = _fresh(_tuple(inputs), create_graph)
        out = func(*xs)
        outs = _tuple(out)
        seeds = tuple(o.new_zeros(o.shape).requires_grad_() for o in outs)
        back = engine.run_backward(outs, seeds, inputs=xs, retain_graph=True, create_graph=True, accumulate=False)
        tangents = tuple(x.new_full(x.shape, 1) for x in xs) if v is None else _tuple(v)
        pairs = [(b, t) for b, t in zip(back, tangents) if b is not None]
        found = engine.run_backward(
            [b for b, _ in pairs],
            [t for _, t in pairs],
            inputs=seeds,
            retain_graph=True,
            create_graph=create_graph,
            accumulate=False,
        )
    result = tuple(s.new_zeros(s.shape) if g is None else g for g, s in zip(found, seeds))
    return out, result if isinstance(out, (tuple, list)) else result[0]


def jacobian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """d func / d inputs; shape (*out.shape, *in.shape), nested as outputs of inputs."""
    with enable_grad():
        xs = _fresh(_tuple(inputs), create_graph)
        out = func(*xs)
        table = [_jacobian_of(o, xs, create_graph, strict) for o in _tuple(out)]
    rows = tuple(tuple(r) if isinstance(inputs, (tuple, list)) else r[0] for r in table)
    return rows if isinstance(out, (tuple, list)) else rows[0]


def _jacobian_of(out: Tensor, xs: tuple, create_graph: bool, strict: bool) -> list[Tensor]:
    flat = out.reshape(-1)
    rows = [_grads(flat[i], xs, None, create_graph, strict) for i in range(flat.numel())]
    stack = OPERATORS["stack"]
    return [
        stack([r[k] for r in rows]).reshape(tuple(out.shape) + tuple(x.shape))
        if rows
        else x.new_zeros(tuple(out.shape) + tuple(x.shape))
        for k, x in enumerate(xs)
    ]


def hessian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Second derivatives of a function with one element as output."""

    def gradient(*xs: Tensor) -> Any:
        out = func(*xs)
        found = tuple(_grads(out, xs, None, True, strict))
        return found if isinstance(inputs, (tuple, list)) else found[0]

    return jacobian(gradient, inputs, create_graph, strict)


def vhp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple:
    """(func(inputs), v^T H)."""
    with enable_grad():
        xs = _fresh(_tuple(inputs), create_graph)
        out = func(*xs)
        first = _grads(out, xs, None, True, strict)
        seeds = _tuple(v) if v is not None else tuple(x.new_full(x.shape, 1) for x in xs)
        pairs = [(g, s) for g, s in zip(first, seeds) if g.requires_grad]
        found = (
            engine.run_backward(
                [g for g, _ in pairs],
                [s for _, s in pairs],
                inputs=xs,
                retain_graph=True,
                create_graph=create_graph,
                accumulate=False,
            )
            if pairs
            else [None] * len(xs)
        )
    grads = tuple(x.new_zeros(x.shape) if g is None else g for g, x in zip(found, xs))
    return out, grads if isinstance(inputs, (tuple, list)) else grads[0]


hvp = vhp
