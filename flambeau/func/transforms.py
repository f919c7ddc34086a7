"""Derivatives of functions, by the tape."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..ops.registry import OPERATORS
from . import tape
from .trees import flatten, map_tree, unflatten
from .vmap import RANDOMNESS, vmap


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


def _linearized(func: Callable, primals: tuple, has_aux: bool, name: str, strict: bool = False) -> tuple[Any, Any, Callable, list[Tensor]]:
    """(outputs, aux, pushforward of a list of directions, tensors that are fresh). The pullback is linear in its cotangents; its
    own transpose is the pushforward. `strict`: RuntimeError for outputs that don't depend on the primals."""
    replaced = tuple(map_tree(_fresh, p) for p in primals)
    leaves = flatten(replaced)[0]
    out, aux = _split_aux(func(*replaced), has_aux, name)
    outs, out_spec = flatten(out)
    if strict and tape.independent(outs, leaves):
        raise RuntimeError(f"{name}(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not "
                           "allowed with strict=True.")
    seeds = [tape.fresh(o.new_full(o.shape, 1)) for o in outs]
    pulled = tape.gradients(outs, seeds, leaves)

    def push(directions: list) -> Any:
        return unflatten(tape.gradients(pulled, directions, seeds), out_spec)

    return out, aux, push, leaves + seeds


def jvp(func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False) -> tuple:
    """`(func(*primals), J tangents)`. `strict`: RuntimeError for outputs that don't depend on the primals."""
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp(f, primals, tangents): expected primals and tangents to be tuples, got "
                           f"{type(primals).__name__} and {type(tangents).__name__}")
    with tape.recording():
        directions = _directions(primals, tangents)
        out, aux, push, inputs = _linearized(func, primals, has_aux, "jvp", strict)
        pushed = push(directions)
    return _released((out, pushed, *([aux] if has_aux else ())), inputs)


def _directions(primals: tuple, tangents: tuple) -> list:
    directions, structure = flatten(tangents)
    expected = flatten(primals)[1]
    if structure != expected:
        raise RuntimeError(f"jvp(f, primals, tangents): structures differ: {expected} and {structure}")
    return directions


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """`(func(*primals), pushforward)`; `pushforward(*tangents)` is the derivative in that direction, without another call."""
    with tape.recording():
        out, _, push, inputs = _linearized(func, primals, False, "linearize")

    def pushforward(*tangents: Any) -> Any:
        with tape.recording():
            pushed = push(_directions(primals, tangents))
        return _released(pushed, inputs)

    return _released(out, inputs), pushforward


def _basis(x: Tensor) -> Tensor:
    """The unit tensors of the shape of `x`, one after the other."""
    return OPERATORS["eye"](x.numel(), dtype=x.dtype, device=x.device).reshape((x.numel(), *x.shape))


def _along_basis(linear: Callable[[Tensor], list], x: Tensor, out_dim: int, chunk_size: int | None = None) -> list[Tensor]:
    """The answers of a linear function of tensors like `x` to all unit tensors, side by side along `out_dim`."""
    return vmap(linear, out_dims=out_dim, chunk_size=chunk_size)(_basis(x))


def _one_by_one(linear: Callable[[Tensor], list], x: Tensor, out_dim: int) -> list[Tensor]:
    """`_along_basis`, with a call for each unit tensor."""
    return [OPERATORS["stack"](column, out_dim) for column in zip(*[linear(unit) for unit in _basis(x)])]


def jacrev(func: Callable, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, chunk_size: int | None = None,
           _preallocate_and_copy: bool = False) -> Callable:
    """The Jacobian, by a pullback of all rows at once (`chunk_size` at once); entries have shape (*out.shape, *in.shape)."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with tape.recording():
            replaced, leaves, spec = _differentiable(args, argnums)
            out, aux = _split_aux(func(*replaced, **kwargs), has_aux, "jacrev")

            def rows(o: Tensor) -> Any:
                found = _along_basis(lambda seed: tape.gradients([o], [seed], leaves), o, 0, chunk_size)
                return unflatten([f.reshape((*o.shape, *x.shape)) for f, x in zip(found, leaves)], spec)

            result = map_tree(rows, out)
        return _released((result, aux) if has_aux else result, leaves)

    return wrapped


def jacfwd(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable:
    """The Jacobian, by a pushforward of all columns at once; entries have shape (*out.shape, *in.shape).

    `randomness`: "error" refuses random numbers, "same" draws once for all columns, "different" calls `func` for each column.
    """
    if randomness not in RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are {', '.join(RANDOMNESS)}. Got {randomness}")
    along_basis = _one_by_one if randomness == "different" else _along_basis

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        aux: Any = None

        def columns(p: int) -> Any:
            nonlocal aux
            call = lambda x: func(*args[:p], x, *args[p + 1 :], **kwargs)  # noqa: E731
            with tape.recording(randomness):
                out, aux, push, inputs = _linearized(call, (args[p],), has_aux, "jacfwd")
                outs, out_spec = flatten(out)

                def column(direction: Tensor) -> list[Tensor]:
                    pushed = push
                    if randomness == "different":
                        _, _, pushed, more = _linearized(call, (args[p],), has_aux, "jacfwd")
                        inputs.extend(more)
                    return flatten(pushed([direction]))[0]

                found = along_basis(column, args[p], -1)
                joined = unflatten([f.reshape((*o.shape, *args[p].shape)) for f, o in zip(found, outs)], out_spec)
            return _released(joined, inputs)

        tables = [columns(p) for p in _chosen(args, argnums)]
        result = tables[0]
        if not isinstance(argnums, int):
            spec = flatten(result)[1]
            result = unflatten(list(zip(*[flatten(t)[0] for t in tables])), spec)
        return (result, aux) if has_aux else result

    return wrapped


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
    """Second derivatives of a function with a scalar Tensor as output."""
    return jacrev(jacrev(func, argnums), argnums)


def functionalize(func: Callable, *, remove: str = "mutations") -> Callable:
    """The function, whose graph has no writes in place (nor views that are written to): graphs here never have (`make_fx`), and what a
    call changes of its arguments is changed all the same."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are: "
                           "remove='mutations', remove='mutations_and_views'")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapped
