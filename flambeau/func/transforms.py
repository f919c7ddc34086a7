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
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        raise RuntimeError(f"only Tensors of floating point and complex dtype can require gradients, got {x.dtype}")
    return tape.fresh(x)


def _split_aux(out: Any, has_aux: bool, call: str) -> tuple[Any, Any]:
    """(output, aux) of what a function gave in a `call`."""
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise RuntimeError(f"{call}: output of function f should be a tuple: (output, aux) if has_aux is True")
    for leaf in flatten(out[1])[0]:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"{call}: Expected tensors, got unsupported type {type(leaf)} in aux")
    return out


def _tensors(out: Any, call: str, what: str = "f(*primals)") -> tuple[list, Any]:
    """The leaves and the structure of results that are to be differentiated."""
    leaves, spec = flatten(out)
    if not leaves:
        raise RuntimeError(f"{call}: Expected f to be a function that has non-empty output (got output = {out})")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"{call}: expected {what} to return only tensors, got unsupported type {type(leaf)}")
    return leaves, spec


def _chosen(args: tuple, argnums: int | tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(argnums, (int, tuple)) or not all(isinstance(p, int) for p in ((argnums,) if isinstance(argnums, int) else argnums)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    positions = (argnums,) if isinstance(argnums, int) else argnums
    if not positions:
        raise RuntimeError("argnums must be non-empty")
    for p in positions:
        if not -len(args) <= p < len(args):
            raise RuntimeError(f"Got argnum={p}, but only {len(args)} positional inputs")
    found = tuple(p % len(args) for p in positions)
    if len(set(found)) != len(found):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return found


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
            out, aux = _split_aux(func(*replaced, **kwargs), has_aux, "grad_and_value(f)(*args)")
            if not isinstance(out, Tensor):
                raise RuntimeError(f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(out)}")
            if out.ndim != 0:
                raise RuntimeError(f"grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with {out.ndim} "
                                   "dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
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
        out, aux = _split_aux(func(*replaced), has_aux, "vjp(f, *primals)")
    outs, out_spec = _tensors(out, "vjp(f, *primals)")

    def pullback(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        seeds, seed_spec = flatten(cotangents)
        if seed_spec != out_spec:
            raise RuntimeError("Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                               f"cotangents: {seed_spec}, primal output: {out_spec}")
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
    out, aux = _split_aux(func(*map_tree(tape.opened, replaced)), has_aux, "jvp(f, primals, tangents)")
    outs, out_spec = _tensors(out, "jvp(f, primals, tangents)")
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
        what = "primals" if not isinstance(primals, tuple) else "tangents"
        raise RuntimeError(f"jvp(f, primals, tangents): Expected {what} to be a tuple. E.g. it should be valid to call f(*primals).")
    _tangible(primals, "primals")
    _tangible(tangents, "tangents")
    with tape.recording():
        directions = _directions(primals, tangents)
        out, aux, push, inputs = _linearized(func, primals, has_aux, "jvp", strict)
        pushed = push(directions)
    return _released((out, pushed, *([aux] if has_aux else ())), inputs)


def _tangible(tree: tuple, what: str) -> None:
    leaves = flatten(tree)[0]
    if not leaves:
        raise RuntimeError(f"jvp(f, primals, tangents): Expected {what} to contain at least one Tensor.")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"jvp(f, primals, tangents): Expected {what} to only contain Tensors, got {type(leaf)}")
        if what == "primals" and not (leaf.dtype.is_floating_point or leaf.dtype.is_complex):
            raise ValueError(f"Expected primal to be floating point or complex, but got: {leaf.dtype}")


def _directions(primals: tuple, tangents: tuple, linear: bool = False) -> list:
    directions, structure = flatten(tangents)
    points, expected = flatten(primals)
    if structure != expected:
        raise RuntimeError(f"Expected the tangents {structure} to have the same argspec as the primals {expected}" if linear else
                           "jvp(f, primals, tangents): Expected primals and tangents to have the same python structure. For example, if "
                           "primals is a tuple of 3 tensors, tangents also must be. Got primals with structure "
                           f"{expected} and tangents with structure {structure}")
    for i, (x, t) in enumerate(zip(points, directions)):
        if x.shape != t.shape:
            raise RuntimeError(f"tangent:{i} with shape {t.shape} in flattened pytree doesn't match the shape {x.shape} of the corresponding "
                               "primal." if linear else "Trying to set a forward gradient that has a different size than that of the "
                               f"original Tensor, this is not supported. Tensor is of size {list(x.shape)} while the given forward gradient "
                               f"is of size {list(t.shape)}.")
        if linear and x.dtype is not t.dtype:
            raise RuntimeError(f"tangent:{i} with dtype {t.dtype} in flattened pytree doesn't match the dtype {x.dtype} of the corresponding "
                               "primal.")
    return directions


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """`(func(*primals), pushforward)`; `pushforward(*tangents)` is the derivative in that direction, without another call."""
    with tape.recording():
        out, _, push, inputs = _linearized(func, primals, False, "linearize")

    def pushforward(*tangents: Any) -> Any:
        with tape.recording():
            pushed = push(_directions(primals, tangents, linear=True))
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

    if chunk_size is not None and chunk_size < 1:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with tape.recording():
            replaced, leaves, spec = _differentiable(args, argnums)
            out, aux = _split_aux(func(*replaced, **kwargs), has_aux, "vjp(f, *primals)")
            _tensors(out, "vjp(f, *primals)")

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
        spec: Any = None

        def columns(p: int) -> Any:
            nonlocal aux, spec
            call = lambda x: func(*args[:p], x, *args[p + 1 :], **kwargs)  # noqa: E731
            points, in_spec = flatten(args[p])
            with tape.recording(randomness):
                out, aux, push, inputs = _linearized(call, (args[p],), has_aux, "jacfwd")
                outs, out_spec = flatten(out)

                def column(i: int, direction: Tensor) -> list[Tensor]:
                    pushed = push
                    if randomness == "different":
                        _, _, pushed, more = _linearized(call, (args[p],), has_aux, "jacfwd")
                        inputs.extend(more)
                    return flatten(pushed([direction if j == i else x.new_zeros(x.shape) for j, x in enumerate(points)]))[0]

                found = [along_basis(lambda direction, i=i: column(i, direction), x, -1) for i, x in enumerate(points)]  # type: ignore[misc]
                joined = unflatten([unflatten([f.reshape((*o.shape, *x.shape)) for f, x in zip(of_o, points)], in_spec)
                                    for of_o, o in zip(zip(*found), outs)], out_spec)
            joined, aux = _released((joined, aux), inputs)
            spec = out_spec
            return joined

        tables = [columns(p) for p in _chosen(args, argnums)]
        result = tables[0]
        if not isinstance(argnums, int):
            result = unflatten(list(zip(*[spec.flatten_up_to(t) for t in tables])), spec)
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
