"""Derivatives of functions, by the tape."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ..core.tensor import Tensor
from ..ops.registry import OPERATORS
from . import tape
from .trees import flatten, map_tree, unflatten


def _fresh(x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise RuntimeError(f"expected Tensors to differentiate by, got {type(x).__name__}")
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        raise RuntimeError(f"only Tensors of floating point and complex dtype can require gradients, got {x.dtype}")
    return tape.fresh(x)


def _split_aux(out: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise RuntimeError(f"{name}(f, has_aux=True)(*args): expected f to return a tuple (output, aux), got {type(out).__name__}")
    return out


def _chosen(args: tuple, argnums: int | tuple[int, ...]) -> tuple[int, ...]:
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for p in positions:
        if not -len(args) <= p < len(args):
            raise RuntimeError(f"Got argnum={p}, but only {len(args)} positional inputs")
    return tuple(p % len(args) for p in positions)


def _differentiable(args: tuple, argnums: int | tuple[int, ...]) -> tuple[tuple, list, Any]:
    """(arguments with fresh tensors at `argnums`, those tensors, how to give results their structure)."""
    positions = _chosen(args, argnums)
    replaced = list(args)
    for p in positions:
        replaced[p] = map_tree(_fresh, args[p])
    structure = replaced[positions[0]] if isinstance(argnums, int) else tuple(replaced[p] for p in positions)
    leaves, spec = flatten(structure)
    return tuple(replaced), leaves, spec


def _released(tree: Any, inputs: list[Tensor]) -> Any:
    """Results for the caller, whose graph is not of how they depend on the fresh inputs."""
    leaves, spec = flatten(tree)
    return unflatten(tape.released(leaves, inputs), spec)


def grad_and_value(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """`f(...) -> (gradient, value)`, or `(gradient, (value, aux))`, for a function with a scalar Tensor as output."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with tape.recording():
            replaced, leaves, spec = _differentiable(args, argnums)
            out, aux = _split_aux(func(*replaced, **kwargs), has_aux, "grad")
            if not isinstance(out, Tensor):
                raise RuntimeError(f"grad(f)(*args): Expected f(*args) to return a tensor, got {type(out).__name__}")
            if out.ndim != 0:
                raise RuntimeError("grad(f)(*args): Expected f(*args) to return a scalar tensor (0 dimensions), got "
                                   f"tensor of shape {list(out.shape)}")
            found = unflatten(tape.gradients([out], [None], leaves), spec)
        return _released((found, (out, aux)) if has_aux else (found, out), leaves)

    return wrapped


def grad(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """The gradient of a function with a scalar Tensor as output, by the arguments `argnums`."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return wrapped


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """`(func(*primals), pullback)`; `pullback(cotangents)` is a tuple with a gradient for each primal."""
    with tape.recording():
        replaced = tuple(map_tree(_fresh, p) for p in primals)
        leaves, spec = flatten(replaced)
        out, aux = _split_aux(func(*replaced), has_aux, "vjp")
    outs, out_spec = flatten(out)

    def pullback(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        seeds, seed_spec = flatten(cotangents)
        if seed_spec != out_spec:
            raise RuntimeError("Expected pytree structure of cotangents to be the same as that of the outputs: got "
                               f"{seed_spec}, expected {out_spec}")
        with tape.recording():
            found = unflatten(tape.gradients(outs, seeds, leaves), spec)
        return _released(found, leaves)

    result, aux = _released((out, aux), leaves)
    return (result, pullback, aux) if has_aux else (result, pullback)


def jvp(func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False) -> tuple:
    """`(func(*primals), J tangents)`. The pullback is linear in its cotangents; its own transpose is the pushforward."""
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp(f, primals, tangents): expected primals and tangents to be tuples, got "
                           f"{type(primals).__name__} and {type(tangents).__name__}")
    with tape.recording():
        replaced = tuple(map_tree(_fresh, p) for p in primals)
        leaves, spec = flatten(replaced)
        directions, direction_spec = flatten(tangents)
        if direction_spec != spec:
            raise RuntimeError(f"jvp(f, primals, tangents): structures differ: {spec} and {direction_spec}")
        out, aux = _split_aux(func(*replaced), has_aux, "jvp")
        outs, out_spec = flatten(out)
        seeds = [tape.fresh(o.new_zeros(o.shape)) for o in outs]
        pulled = tape.gradients(outs, seeds, leaves)
        pushed = tape.gradients(pulled, directions, seeds)
    return _released((out, unflatten(pushed, out_spec), *([aux] if has_aux else ())), leaves + seeds)


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """`(func(*primals), pushforward)`; `pushforward(*tangents)` is the derivative in that direction."""
    value = func(*primals)
    return value, lambda *tangents: jvp(func, primals, tangents)[1]


def _basis(x: Tensor) -> Iterable[Tensor]:
    """The unit tensors of x's shape."""
    for i in range(x.numel()):
        unit = x.new_zeros((x.numel(),))
        unit[i] = 1
        yield unit.reshape(x.shape)


def jacrev(func: Callable, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, chunk_size: int | None = None,
           _preallocate_and_copy: bool = False) -> Callable:
    """The Jacobian, one row at a time in reverse mode; entries have shape (*out.shape, *in.shape)."""
    stack = OPERATORS["stack"]

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with tape.recording():
            replaced, leaves, spec = _differentiable(args, argnums)
            out, aux = _split_aux(func(*replaced, **kwargs), has_aux, "jacrev")

            def rows(o: Tensor) -> Any:
                flat = o.reshape(-1)
                found = [tape.gradients([flat[i]], [None], leaves) for i in range(flat.numel())]
                joined = [
                    stack([row[k] for row in found]).reshape((*o.shape, *x.shape)) if found else x.new_zeros((*o.shape, *x.shape))
                    for k, x in enumerate(leaves)
                ]
                return unflatten(joined, spec)

            result = map_tree(rows, out)
        return _released((result, aux) if has_aux else result, leaves)

    return wrapped


def jacfwd(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable:
    """The Jacobian, one column at a time in forward mode; entries have shape (*out.shape, *in.shape)."""
    stack = OPERATORS["stack"]

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        positions = _chosen(args, argnums)
        aux_of: list = []

        def of_position(p: int) -> Any:
            def along(x: Any) -> Any:
                out = func(*args[:p], x, *args[p + 1 :], **kwargs)
                if has_aux:
                    aux_of.append(out[1])
                    return out[0]
                return out

            columns = [jvp(along, (args[p],), (unit,))[1] for unit in _basis(args[p])]
            leaves = [flatten(c)[0] for c in columns]
            joined = [
                stack([c[k] for c in leaves], -1).reshape((*leaves[0][k].shape, *args[p].shape)) for k in range(len(leaves[0]))
            ]
            return unflatten(joined, flatten(columns[0])[1])

        tables = [of_position(p) for p in positions]
        if isinstance(argnums, int):
            result = tables[0]
        else:
            columns, spec = [flatten(t)[0] for t in tables], flatten(tables[0])[1]
            result = unflatten([tuple(c[k] for c in columns) for k in range(len(columns[0]))], spec)
        return (result, aux_of[0]) if has_aux else result

    return wrapped


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
    """Second derivatives of a function with a scalar Tensor as output."""
    return jacrev(jacrev(func, argnums), argnums)
