"""Checks of gradients against finite differences, first and second order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.dtypes import FLOAT
from ..core.tensor import Tensor, example_of, from_array
from . import batched, engine, forward_ad
from .grad_mode import enable_grad, no_grad


class GradcheckError(RuntimeError):
    """The analytical and the numerical Jacobian differ, or the gradient is not what gradients have to be."""


class _Function(NamedTuple):
    """What is checked: outputs, and the inputs that they are differentiated by."""

    call: Callable
    inputs: tuple
    wanted: list[Tensor]

    def outputs(self) -> list[Tensor]:
        """The floating-point tensors among the results."""
        out = self.call(*self.inputs)
        return [o for o in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(o, Tensor) and o.dtype.category >= FLOAT]

    def recorded(self) -> list[Tensor]:
        """The outputs that have a gradient."""
        with enable_grad():
            return [o for o in self.outputs() if o.requires_grad]


def _numerical(fn: _Function, x: Tensor, eps: float) -> list[np.ndarray]:
    """Central differences d out / d x, one array (numel(x), numel(out)) per output. Complex x: real steps, then imaginary."""
    steps = [eps, eps * 1j] if x.dtype.is_complex else [eps]

    def moved(at: tuple, step: complex) -> list[np.ndarray]:
        saved = x._data[at]
        x._data[at] = saved + step
        try:
            with no_grad():
                return [o._data.copy() for o in fn.outputs()]
        finally:
            x._data[at] = saved

    columns: list[list[np.ndarray]] = []
    for at in np.ndindex(*x.shape):
        rows = [[(u - d).reshape(-1) / (2 * eps) for u, d in zip(moved(at, step), moved(at, -step))] for step in steps]
        columns.append([rows[0][k] if len(rows) == 1 else np.stack([r[k] for r in rows]) for k in range(len(rows[0]))])
    return [np.array([c[k] for c in columns]) for k in range(len(columns[0]))] if columns else []


def _iter_tensors(x: Any, only_requiring_grad: bool = False) -> Iterator[Tensor]:
    """The tensors in nested sequences."""
    if isinstance(x, Tensor):
        if x.requires_grad or not only_requiring_grad:
            yield x
    elif isinstance(x, Iterable) and not isinstance(x, str):
        for item in x:
            yield from _iter_tensors(item, only_requiring_grad)


def _get_numerical_jacobian(fn: Callable, inputs: Any, *, target: Any = None, eps: float = 1e-3) -> list[tuple[Tensor, ...]]:
    """By central differences: for each tensor of `target` (or of the inputs, where it requires a gradient) the Jacobian
    (numel(input), numel(output)) of every output."""
    call = _Function(lambda *_: list(_iter_tensors(fn(inputs))), (), [])
    wanted = inputs if target is None else target
    return [tuple(from_array(j) for j in _numerical(call, x, eps))
            for x in _iter_tensors(wanted, only_requiring_grad=True)]


def _gradients(outs: Sequence[Tensor], seeds: Sequence[Tensor | None], fn: _Function, run: Callable = engine.run_backward) -> Sequence:
    return run(tuple(outs), tuple(seeds), inputs=tuple(fn.wanted), retain_graph=True, create_graph=False, accumulate=False)


def _values(g: Tensor | None, x: Tensor) -> np.ndarray:
    return np.zeros(tuple(x.shape), x.dtype.numpy) if g is None else g._data


def _unit(out: Tensor, element: int, value: complex) -> Tensor:
    seed = np.zeros(out.numel(), out.dtype.numpy)
    seed[element] = value
    return out.detach().clone().copy_(out.new_tensor(seed.reshape(out.shape)))


def _parts(out: Tensor) -> list[complex]:
    return [1.0, 1j] if out.dtype.is_complex else [1.0]


def _rows(out: Tensor) -> Iterator[tuple[int, complex]]:
    """The rows of a Jacobian: d (Re out_j) and, for complex outputs, d (Im out_j)."""
    return ((element, part) for element in range(out.numel()) for part in _parts(out))


# -- the checks ----------------------------------------------------------------------------------------------------------------
def _check_jacobians(fn: _Function, eps: float, atol: float, rtol: float, nondet_tol: float) -> None:
    outs = fn.outputs()
    recorded = any(out.requires_grad for out in outs)
    for index, x in enumerate(fn.wanted):
        numerical = _numerical(fn, x, eps)
        if not recorded and any(np.abs(j).max(initial=0) > eps for j in numerical):
            raise GradcheckError(f"Numerical gradient for function expected to be zero, as no output requires a gradient; for input {index} it "
                                 f"is {numerical}")
        for k, out in enumerate(outs):
            for element, part in _rows(out) if out.requires_grad else ():
                got, again = (_values(_gradients([out], [_unit(out, element, part)], fn)[index], x).reshape(-1) for _ in range(2))
                real = (numerical[k][..., element] * np.conj(part)).real
                want = real[:, 0] + 1j * real[:, 1] if x.dtype.is_complex else real
                if not np.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True):
                    raise GradcheckError(f"Jacobian mismatch for output {k} with respect to input {index}, output element {element}:\n"
                                         f"numerical: {want}\nanalytical: {got}")
                if not np.allclose(got, again, rtol=0, atol=nondet_tol, equal_nan=True):
                    raise GradcheckError(f"Backward is not reentrant: for output {k} and input {index} two runs with the same inputs and "
                                         f"gradients differ by more than nondet_tol={nondet_tol}:\n{got}\n{again}")


def _check_forward(fn: _Function, eps: float, atol: float, rtol: float) -> None:
    """The columns of the Jacobians, by forward mode."""
    count = len(fn.outputs())
    for index, x in enumerate(fn.wanted):
        numerical = _numerical(fn, x, eps)
        for element, part in _rows(x):
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x, _unit(x, element, part))
                given = tuple(dual if a is x else a for a in fn.inputs)
                found = [forward_ad.unpack_dual(o) for o in _Function(fn.call, given, []).outputs()]
            for k in range(count):
                column = numerical[k][element]
                want = column[int(part != 1.0)] if x.dtype.is_complex else column
                got = _values(found[k].tangent, found[k].primal).reshape(-1)
                if not np.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True):
                    raise GradcheckError(f"Jacobian computed with forward mode mismatch for output {k} with respect to input {index}, "
                                         f"input element {element}:\nnumerical: {want}\nanalytical: {got}")


def _tangents(fn: _Function, x: Tensor, tangent: Tensor) -> list[Tensor | None]:
    """What forward mode gives for a tangent of `x`, by output."""
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        given = tuple(dual if a is x else a for a in fn.inputs)
        return [forward_ad.unpack_dual(o).tangent for o in _Function(fn.call, given, []).outputs()]


def _check_forward_batches(fn: _Function) -> None:
    """Several tangents at once, as vmap computes them, give what they do one by one."""
    for index, x in enumerate(fn.wanted):
        tangents = [_unit(x, element, part) for element, part in _rows(x)]
        if not tangents:
            continue
        one_by_one = [_tangents(fn, x, tangent) for tangent in tangents]
        level = batched.Level(len(tangents), "same")
        with batched.entered([level]):
            wide = example_of(x.new_tensor(np.stack([tangent._data for tangent in tangents])), level)
            together = [None if t is None else level.spread(t)._data for t in _tangents(fn, x, wide)]
        for k, got in enumerate(together):
            rows: list[Any] = [None if t is None else t._data for t in (row[k] for row in one_by_one)]
            if (got is None) != (rows[0] is None) or (got is not None and not np.allclose(got, np.stack(rows), equal_nan=True)):
                raise GradcheckError(f"the batched forward gradient of output {k} with respect to input {index} differs from the tangents "
                                     f"one by one:\n{got}\n{rows}")


def _random_seeds(outs: Sequence[Tensor]) -> list[Tensor]:
    rng = np.random.default_rng(0)
    return [o.detach().new_tensor(rng.standard_normal(tuple(o.shape))).to(o.dtype) for o in outs]


def _check_missing_gradients(fn: _Function) -> None:
    """A gradient that doesn't arrive counts as zeros."""
    outs = fn.recorded()
    seeds = _random_seeds(outs)
    for k in range(len(outs) if len(outs) > 1 else 0):
        missing, zeros = ([value if n == k else seed for n, seed in enumerate(seeds)] for value in (None, seeds[k] * 0))
        rest = [n for n in range(len(outs)) if n != k]
        for index, (a, b, x) in enumerate(zip(_gradients([outs[n] for n in rest], [missing[n] for n in rest], fn),
                                              _gradients(outs, zeros, fn), fn.wanted)):
            if not np.allclose(_values(a, x), _values(b, x), equal_nan=True):
                raise GradcheckError(f"backward does not take a missing gradient of output {k} for zeros: input {index} has the gradient "
                                     f"{_values(a, x)}, with zeros {_values(b, x)}")


def _check_dtypes(fn: _Function) -> None:
    outs = fn.recorded()
    for index, (g, x) in enumerate(zip(_gradients(outs, _random_seeds(outs), fn), fn.wanted)):
        if g is not None and (g.dtype is not x.dtype or g.device != x.device):
            raise GradcheckError(f"the gradient of input {index} has dtype {g.dtype} and device {g.device}, the input {x.dtype} and "
                                 f"{x.device}")


def _check_batches(fn: _Function) -> None:
    """Several rows at once, as vmap computes them, are what they are one by one."""
    for k, out in enumerate(fn.recorded()):
        seeds = [_unit(out, element, part) for element, part in _rows(out)]
        if not seeds:
            continue
        one_by_one = [_gradients([out], [seed], fn) for seed in seeds]
        together = _gradients([out], [out.new_tensor(np.stack([seed._data for seed in seeds]))], fn, batched.run_backward)
        for index, x in enumerate(fn.wanted):
            want = np.stack([_values(row[index], x) for row in one_by_one])
            got = want * 0 if together[index] is None else together[index]._data
            if not np.allclose(got, want, equal_nan=True):
                raise GradcheckError(f"the batched gradient of output {k} with respect to input {index} differs from the gradients one by "
                                     f"one:\n{got}\n{want}")


def _wanted(inputs: tuple) -> list[Tensor]:
    found = [(k, x) for k, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not found:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True.")
    for k, x in found:
        if x.dtype.to_real().itemsize < 8:
            warnings.warn(f"Input #{k} requires gradient and is not a double precision floating point or complex. This check will likely "
                          "fail if all the inputs are not of double precision floating point or complex.", stacklevel=4)
        if any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride())):
            raise RuntimeError(f"The {k}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to "
                               "be able to compute the numerical gradients correctly. You should call .contiguous on the input before "
                               "passing it to gradcheck.")
    return [x for _, x in found]


def gradcheck(
    func: Callable,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Whether backward agrees with central differences, in every element (inputs should be f64 or c128), twice alike within `nondet_tol`.

    `check_undefined_grad`: whether gradients that don't arrive count as zeros; `check_batched_grad`: whether vmap over gradients gives
    what they are one by one; `check_grad_dtypes`: whether gradients have the inputs' dtypes. `fast_mode` is allowed to check less, which
    is not made use of; `masked` is of sparse tensors. `check_forward_ad`: whether forward mode agrees with the differences too, and
    `check_batched_forward_grad` whether it gives for several tangents by vmap what it does one by one.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    fn = _Function(func, inputs, _wanted(inputs))
    try:
        with enable_grad():
            if check_forward_ad:
                _check_forward(fn, eps, atol, rtol)
            if check_batched_forward_grad:
                _check_forward_batches(fn)
            if check_backward_ad:
                _check_jacobians(fn, eps, atol, rtol, nondet_tol)
            if check_batched_grad:
                _check_batches(fn)
            if check_undefined_grad and check_backward_ad:
                _check_missing_gradients(fn)
            if check_grad_dtypes:
                _check_dtypes(fn)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """gradcheck of the gradient itself. `gen_non_contig_grad_outputs`: for gradients of outputs that lie apart in memory."""
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if grad_outputs is None:
        seeds = _random_seeds(_Function(func, inputs, []).recorded())
        grad_outputs = [_apart(g) if gen_non_contig_grad_outputs else g.requires_grad_() for g in seeds]
    grad_outputs = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs)
    count = len(inputs)

    @enable_grad()
    def gradient(*args: Any) -> tuple:
        xs, gs = args[:count], args[count:]
        outs = _Function(func, xs, []).recorded()
        wanted = [x for x in xs if isinstance(x, Tensor) and x.requires_grad]
        found = engine.run_backward(outs, gs, inputs=wanted, retain_graph=True, create_graph=True, accumulate=False)
        return tuple(g for g in found if g is not None)

    return gradcheck(gradient, inputs + grad_outputs, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
                     check_undefined_grad=check_undefined_grad, check_forward_ad=check_fwd_over_rev,
                     check_backward_ad=check_rev_over_rev, check_grad_dtypes=check_grad_dtypes, check_batched_grad=check_batched_grad,
                     fast_mode=fast_mode, masked=masked)


def _apart(g: Tensor) -> Tensor:
    """The same values with room for others between the elements."""
    wide = g.new_zeros((*g.shape, 2))
    wide[..., 0] = g
    return wide.detach()[..., 0].requires_grad_()
