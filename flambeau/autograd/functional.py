"""Jacobians, Hessians and products with them, row by row through the tape (torch.autograd.functional)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..ops.registry import OPERATORS
from . import engine
from .grad_mode import enable_grad


def _tuple(x: Any) -> tuple:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _tensors(x: Any, what: str) -> tuple:
    """A tensor, or a tuple of them, as a tuple."""
    for part in x if isinstance(x, tuple) else (x,):
        if not isinstance(part, Tensor):
            raise TypeError(f"The {what} must be either a Tensor or a tuple of Tensors but the given {what} has type {type(x)}.")
    return x if isinstance(x, tuple) else (x,)


def _as_tuple(inp: Any, arg_name: str, fn_name: str) -> tuple[bool, tuple]:
    """Whether what is given to `fn_name` is a tuple, and it as one."""
    return isinstance(inp, tuple), _tensors(inp, f"{arg_name} given to {fn_name}")


def _construct_standard_basis_for(tensors: Sequence[Tensor], tensor_numels: Sequence[int]) -> tuple[Tensor, ...]:
    """The rows of the unit matrix over all elements of the tensors, cut into the tensors' shares: (sum of numels, numel) each."""
    if not tensors or len(tensors) != len(tensor_numels):
        raise AssertionError(f"as many sizes as tensors are needed, and at least one; got {len(tensors)} tensors, {len(tensor_numels)} sizes")
    total = sum(tensor_numels)
    ends = itertools.accumulate(tensor_numels)
    return tuple(tensor.new_ones(total).diag()[:, end - n:end] for tensor, n, end in zip(tensors, tensor_numels, ends))


def _grad_postprocess(inputs: Any, create_graph: bool) -> Any:
    """Tensors, or tuples of tuples of them, without their history unless `create_graph`."""
    if isinstance(inputs, tuple):
        return tuple(_grad_postprocess(part, create_graph) for part in inputs)
    return inputs if create_graph else inputs.detach()


def _tuple_postprocess(res: Any, to_unpack: bool | tuple[bool, bool]) -> Any:
    """A result without the tuples, around it and in it, that what it was made of had not."""
    around, inside = to_unpack if isinstance(to_unpack, tuple) else (to_unpack, True)
    res = res if inside else tuple(part[0] for part in res)
    return res if around else res[0]


def _called(func: Callable, xs: tuple, name: str) -> tuple[Any, tuple]:
    """What a function gives, and the same as a tuple."""
    out = func(*xs)
    return out, _tensors(out, f"outputs of the user-provided function given to {name}")


def _fresh(inputs: tuple, create_graph: bool) -> tuple:
    return tuple(x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in inputs)


def _as_given(values: Sequence, like: Any) -> Any:
    """A tuple where `like` is a sequence, else the only value."""
    return tuple(values) if isinstance(like, (tuple, list)) else values[0]


def _grads(outs: Sequence, xs: tuple, seeds: Any, create_graph: bool, strict: bool = False) -> list[Tensor]:
    """Gradients of the sum of outs * seeds (None: of ones), zeros where there is none."""
    pairs = [(o, s) for o, s in zip(outs, _ones(outs) if seeds is None else _tuple(seeds)) if o.requires_grad]
    found: Sequence = [None] * len(xs)
    if pairs:
        found = engine.run_backward([o for o, _ in pairs], [s for _, s in pairs], inputs=xs, retain_graph=True,
                                    create_graph=create_graph, accumulate=False)
    if strict and any(g is None for g in found):
        raise RuntimeError("Output of the user-provided function is independent of an input: they must be computed in a differentiable manner "
                           "from the input. This is not allowed in strict mode.")
    return [x.new_zeros(x.shape) if g is None else g for g, x in zip(found, xs)]


def _ones(xs: Sequence) -> tuple:
    return tuple(x.detach().new_full(x.shape, 1) for x in xs)


def _results(values: Sequence, create_graph: bool) -> list:
    """Results with their history where that is asked for."""
    return [value if create_graph else value.detach() for value in values]


def _of_one_element(out: Any) -> Tensor:
    if not isinstance(out, Tensor) or out.numel() != 1:
        raise RuntimeError("The Tensor returned by the function given to hessian should contain a single element, and is of shape "
                           f"{getattr(out, 'shape', out)!r}")
    return out


def _checked(v: Any, xs: Sequence, what: str) -> Any:
    """The vector of a product, which has the shapes of `what`."""
    if v is None:
        if len(xs) != 1 or xs[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {what} is a single Tensor with a single element, and not of shapes "
                               f"{[tuple(x.shape) for x in xs]}.")
        return v
    parts = _tensors(v, "vector v")
    if len(parts) != len(xs):
        raise RuntimeError(f"The given v should contain {'a single Tensor' if len(xs) == 1 else f'{len(xs)} Tensors'}, and has {len(parts)}.")
    for i, (part, x) in enumerate(zip(parts, xs)):
        if part.shape != x.shape:
            raise RuntimeError(f"{'v' if len(xs) == 1 else f'Entry {i} in v'} has invalid size: should be {x.shape} but got {part.shape}.")
    return parts


def vjp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple:
    """(func(inputs), v^T J)."""
    with enable_grad():
        xs = _fresh(_tensors(inputs, "inputs given to vjp"), create_graph)
        out, outs = _called(func, xs, "vjp")
        found = _grads(outs, xs, _checked(v, outs, "the output of the user-provided function"), create_graph, strict)
        return _as_given(_results(outs, create_graph), out), _as_given(_results(found, create_graph), inputs)


def jvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple:
    """(func(inputs), J v), by differentiating the vjp in its (linear) seed."""
    with enable_grad():
        xs = _fresh(_tensors(inputs, "inputs given to jvp"), create_graph)
        out, outs = _called(func, xs, "jvp")
        seeds = tuple(o.detach().new_full(o.shape, 1).requires_grad_() for o in outs)
        back = _grads(outs, xs, seeds, True, strict)
        found = _grads(back, seeds, _checked(v, xs, "the input to the user-provided function"), create_graph)
        return _as_given(_results(outs, create_graph), out), _as_given(_results(found, create_graph), out)


def jacobian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """d func / d inputs; shape (*out.shape, *in.shape), nested as outputs of inputs. By rows whatever the `strategy`."""
    _check_strategy(strategy, create_graph, strict, vectorize)
    with enable_grad():
        xs = _fresh(_tensors(inputs, "inputs given to jacobian"), create_graph)
        out, outs = _called(func, xs, "jacobian")
        return _as_given([_as_given(_jacobian_of(o, xs, create_graph, strict), inputs) for o in outs], out)


def _check_strategy(strategy: str, create_graph: bool, strict: bool, vectorize: bool) -> None:
    """Refuse the combinations that torch refuses: what runs with one has to run with the other."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(f'Expected strategy to be either "forward-mode" or "reverse-mode", and not {strategy!r}.')
    forward = strategy == "forward-mode"
    if strict and (forward or vectorize):
        raise RuntimeError(f"`strict=True` and `{'strategy=' + repr(strategy) if forward else 'vectorize=True'}` are not supported "
                           "together. Please set one of them only.")
    if forward and create_graph:
        raise NotImplementedError('`create_graph=True` and `strategy="forward-mode"` are not supported together; use "reverse-mode".')
    if forward and not vectorize:
        raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for "
                                  "`vectorize=True`.")


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
        return _as_given(_grads((_of_one_element(func(*xs)),), xs, None, True, strict), inputs)

    return jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


def vhp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple:
    """(func(inputs), v^T H)."""
    with enable_grad():
        xs = _fresh(_tensors(inputs, "inputs given to vhp"), create_graph)
        out = _of_one_element(func(*xs))
        first = _grads((out,), xs, None, True, strict)
        found = _grads(first, xs, _checked(v, xs, "the input to the user-provided function"), create_graph)
        return _results((out,), create_graph)[0], _as_given(_results(found, create_graph), inputs)


hvp = vhp
