"""Checks of gradients against finite differences, first and second order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from . import engine
from .grad_mode import enable_grad, no_grad


class GradcheckError(RuntimeError):
    """The analytical and the numerical Jacobian differ."""


def _outputs(fn: Callable, inputs: Sequence) -> list[Tensor]:
    out = fn(*inputs)
    outs = out if isinstance(out, (tuple, list)) else [out]
    return [o for o in outs if isinstance(o, Tensor) and o.dtype.category >= 2]


def _numerical(fn: Callable, inputs: Sequence, x: Tensor, eps: float) -> list[np.ndarray]:
    """Central differences d out / d x, one array (numel(x), numel(out)) per output. Complex x: real steps, then imaginary."""
    flat = x._data.reshape(-1) if x._data.flags.c_contiguous else None
    if flat is None:
        raise GradcheckError("gradcheck expects contiguous inputs")
    columns: list[list[np.ndarray]] = []
    steps = [eps, eps * 1j] if x.dtype.is_complex else [eps]
    for i in range(flat.size):
        rows = []
        for step in steps:
            saved = flat[i]
            with no_grad():
                flat[i] = saved + step
                up = [o._data.copy() for o in _outputs(fn, inputs)]
                flat[i] = saved - step
                down = [o._data.copy() for o in _outputs(fn, inputs)]
            flat[i] = saved
            rows.append([(u - d).reshape(-1) / (2 * eps) for u, d in zip(up, down)])
        columns.append([rows[0][k] if len(rows) == 1 else np.stack([r[k] for r in rows]) for k in range(len(rows[0]))])
    return [np.array([c[k] for c in columns]) for k in range(len(columns[0]))] if columns else []


def _analytical(out: Tensor, x: Tensor, seed: np.ndarray) -> np.ndarray:
    g = engine.run_backward(
        [out],
        [out.detach().clone().copy_(out.new_tensor(seed.reshape(out.shape)))],
        inputs=[x],
        retain_graph=True,
        create_graph=False,
        accumulate=False,
    )[0]
    return np.zeros(tuple(x.shape), x.dtype.numpy) if g is None else g._data


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
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Whether backward agrees with central differences, in every element (inputs should be f64 or c128)."""
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True."
        )
    try:
        _check(func, inputs, wanted, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(func: Callable, inputs: tuple, wanted: list[Tensor], eps: float, atol: float, rtol: float) -> None:
    with enable_grad():
        outs = _outputs(func, inputs)
    for index, x in enumerate(wanted):
        numerical = _numerical(func, inputs, x, eps)
        for k, out in enumerate(outs):
            if not out.requires_grad:
                continue
            expected = numerical[k]
            for j in range(out.numel()):
                _compare_row(out, x, expected, j, index, k, atol, rtol)


def _compare_row(out: Tensor, x: Tensor, expected: np.ndarray, j: int, index: int, k: int, atol: float, rtol: float) -> None:
    """One output element: d (Re out_j) and, for complex outputs, d (Im out_j) with respect to every input element."""
    for part in [1.0, 1j] if out.dtype.is_complex else [1.0]:
        seed = np.zeros(out.numel(), out.dtype.numpy)
        seed[j] = part
        got = _analytical(out, x, seed).reshape(-1)
        column = expected[..., j]
        real = (column * np.conj(part)).real
        want = real[:, 0] + 1j * real[:, 1] if x.dtype.is_complex else real
        if not np.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True):
            raise GradcheckError(
                f"Jacobian mismatch for output {k} with respect to input {index}, output element {j}:\n"
                f"numerical: {want}\nanalytical: {got}"
            )


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
    """gradcheck of the gradient itself."""
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        grad_outputs = [
            o.detach().new_tensor(rng.standard_normal(tuple(o.shape))).to(o.dtype).requires_grad_()
            for o in _outputs(func, inputs)
            if o.requires_grad
        ]
    grad_outputs = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs)
    count = len(inputs)

    @enable_grad()
    def gradient(*args: Any) -> tuple:
        xs, gs = args[:count], args[count:]
        outs = [o for o in _outputs(func, xs) if o.requires_grad]
        wanted = [x for x in xs if isinstance(x, Tensor) and x.requires_grad]
        found = engine.run_backward(outs, gs, inputs=wanted, retain_graph=True, create_graph=True, accumulate=False)
        return tuple(g for g in found if g is not None)

    return gradcheck(gradient, inputs + grad_outputs, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)
