"""The oracle: a function of the tensor library runs under Flambeau and under torch, and both must agree."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau as fl

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-9, "complex64": 2e-5, "complex128": 1e-9}


def _host(x):
    x = x.detach()
    if str(x.dtype) == "torch.bfloat16":
        return x.float().numpy()
    return x.numpy(force=True)


def _is_tensor(x):
    return hasattr(x, "requires_grad")


def _tensors(lib, arrays, grad):
    made = []
    for a in arrays:
        if isinstance(a, np.ndarray):
            bf16 = a.dtype.name == "bfloat16"
            x = lib.tensor(a.astype(np.float32), dtype=lib.bfloat16) if bf16 else lib.tensor(a)
            made.append(x.requires_grad_() if grad and (bf16 or a.dtype.kind in "fc") else x)
        else:
            made.append(a)
    return made


def _flat(out):
    if isinstance(out, (tuple, list)):
        return [leaf for item in out for leaf in _flat(item)]
    return [out]


def _run(lib, fn, arrays, grad):
    """(outputs, gradients of a weighted sum of the floating outputs)."""
    inputs = _tensors(lib, arrays, grad)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outs = _flat(fn(lib, *inputs))
        total = 0
        for o in outs:
            if grad and _is_tensor(o) and o.requires_grad:
                weights = lib.tensor(np.cos(np.arange(o.numel()) + 0.5).reshape(tuple(o.shape)).astype(_host(o).real.dtype))
                value = lib.view_as_real(o).sum(-1) if o.is_complex() else o
                total = total + (value * weights.to(value.dtype)).sum()
        if _is_tensor(total) and total.requires_grad:
            total.backward()
    return outs, [x.grad for x in inputs if _is_tensor(x)]


def _same(mine, theirs, tolerance, what):
    if not _is_tensor(theirs):
        assert type(mine).__name__ == type(theirs).__name__, what
        assert mine == theirs or (mine != mine and theirs != theirs), f"{what}: {mine} is not {theirs}"
        return
    assert str(mine.dtype) == str(theirs.dtype), f"{what}: dtype {mine.dtype}, torch has {theirs.dtype}"
    assert tuple(mine.shape) == tuple(theirs.shape), f"{what}: shape {tuple(mine.shape)}, torch has {tuple(theirs.shape)}"
    a, b = _host(mine), _host(theirs)
    if a.dtype.kind in "fc":
        bound = tolerance or TOLERANCE[str(theirs.dtype).removeprefix("torch.")]
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound, err_msg=what)
    else:
        np.testing.assert_array_equal(a, b, err_msg=what)


@pytest.fixture
def agrees():
    """agrees(fn, *arrays, grad=True, tolerance=None): fn(lib, *tensors) gives the same values and gradients under both."""
    torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

    def check(fn, *arrays, grad=True, tolerance=None):
        mine, my_grads = _run(fl, fn, arrays, grad)
        theirs, their_grads = _run(torch, fn, arrays, grad)
        assert len(mine) == len(theirs)
        for i, (a, b) in enumerate(zip(mine, theirs)):
            _same(a, b, tolerance, f"output {i}")
        for i, (a, b) in enumerate(zip(my_grads, their_grads)):
            if a is None or b is None:  # no gradient is a gradient of zero
                present = a if b is None else b
                assert present is None or not _host(present).any(), f"gradient {i}: {a} against torch's {b}"
            else:
                _same(a, b, None if tolerance is None else tolerance * 10, f"gradient {i}")

    return check


@pytest.fixture
def both_refuse():
    """both_refuse(fn, *arrays): both raise, exceptions of one type; a text gives a part of Flambeau's message."""
    torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

    def check(fn, *arrays, text=None):
        raised = []
        for lib in (fl, torch):
            with warnings.catch_warnings(), pytest.raises(Exception) as info:
                warnings.simplefilter("ignore")
                fn(lib, *_tensors(lib, arrays, False))
            raised.append(info.value)
        names = [type(error).__name__.lstrip("_") for error in raised]
        assert isinstance(raised[0], type(raised[1])) or names[0] == names[1], \
            f"{type(raised[0]).__name__}: {raised[0]}; torch raises {type(raised[1]).__name__}: {raised[1]}"
        if text is not None:
            assert text in str(raised[0])

    return check
