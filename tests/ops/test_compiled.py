"""Every case of the operator tests once more through capture and the functional graphs: values and gradients are eager's.

Sizes are symbolic, so that an operator which looks at them too closely is found out. No code is generated here: tests/inductor
does that.
"""

from __future__ import annotations

import importlib.util
import pathlib
import warnings

import numpy as np
import pytest

import flambeau as fl


def cases_of(name):
    """The module of operator tests called `name`."""
    path = pathlib.Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"cases_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _method(name):
    return lambda t, *xs: getattr(t, name)(*xs)


def collect():
    found = []
    reductions, sorting, indexing = cases_of("test_reductions"), cases_of("test_sorting"), cases_of("test_indexing")
    linalg, shapes, pointwise = cases_of("test_linalg"), cases_of("test_shapes"), cases_of("test_pointwise")
    for module, array in ((reductions, reductions.X), (sorting, sorting.X), (shapes, shapes.X)):
        found += [(name, fn, [array]) for name, fn in module.CASES.items()]
    found += [(f"read {name}", fn, [indexing.X]) for name, fn in indexing.READS.items()]
    found += [(name, fn, [indexing.M]) for name, fn in indexing.MOVES.items()]
    found += [(f"write {name}", lambda t, x, name=name: indexing._write(t, x * 2, name), [indexing.M]) for name in indexing.WRITES]
    found += [(name, lambda t, x, fn=fn: [y := x * 2, fn(t, y), y][1:], [indexing.M]) for name, fn in indexing.IN_PLACE.items()]
    for table in (linalg.PRODUCTS, linalg.DECOMPOSITIONS, cases_of("test_math").CASES, cases_of("test_fft").CASES):
        found += [(name, fn, arrays) for name, (fn, *arrays) in table.items()]
    found += [(f"matmul {a} {b}", lambda t, x, y: x @ y, [linalg.normal(*a), linalg.normal(*b)]) for a, b in linalg.MATMUL]
    for equation, *sizes in linalg.EINSUM:
        found.append((equation, lambda t, *xs, e=equation: t.einsum(e, *xs), [linalg.normal(*s) for s in sizes]))
    found += [(name, fn, [pointwise.X, pointwise.Y]) for name, fn in pointwise.OTHERS.items()]
    found += [(name, _method(name), [array]) for name, array in pointwise.UNARY.items()]
    found += [(name, _method(name), list(arrays)) for name, arrays in pointwise.BINARY.items()]
    found += [(f"make {name}", fn, []) for name, fn in cases_of("test_creation").CASES.items() if "numpy" not in name]
    return [pytest.param(fn, arrays, id=f"{i} {name}") for i, (name, fn, arrays) in enumerate(found)]


def leaves(out):
    return [leaf for item in out for leaf in leaves(item)] if isinstance(out, (tuple, list)) else [out]


def run(fn, arrays):
    inputs = [fl.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    outs, total = leaves(fn(*inputs)), 0
    for o in outs:
        if isinstance(o, fl.Tensor) and o.requires_grad and not o.is_complex():
            total = total + (o * o.detach().cos()).sum()
    if isinstance(total, fl.Tensor):
        total.backward()
    return outs, [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in inputs]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(("fn", "arrays"), collect())
def test_compiled_is_eager(fn, arrays, dynamic):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fl._dynamo.reset()
        expected, expected_grads = run(lambda *xs: fn(fl, *xs), arrays)
        outs, grads = run(fl.compile(lambda *xs: fn(fl, *xs), backend="aot_eager", dynamic=dynamic), arrays)
    for a, b in zip(outs, expected, strict=True):
        if isinstance(b, fl.Tensor):
            assert a.dtype is b.dtype
            assert a.shape == b.shape
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6, atol=1e-7)
        else:
            assert a == b
    for a, b in zip(grads, expected_grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["argmax", "sum", "cumsum", "softmax"])
def test_dimensions_that_change_are_numbers(name):
    """What counts dimensions is no size: a graph holds for one of them."""
    x = fl.randn(3, 4, 5)
    fl.compiler.reset()
    compiled = fl.compile(lambda x, dim: getattr(x, name)(dim))
    for dim in (0, 1, 2, -1):
        np.testing.assert_allclose(compiled(x, dim).numpy(), getattr(x, name)(dim).numpy(), rtol=1e-5, atol=1e-5)
