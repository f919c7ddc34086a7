"""The promotion lattice and the limits of dtypes, against torch."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

import flambeau as fl
from flambeau.core.dtypes import DTYPES

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")
COMMON = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("a,b", list(itertools.product(COMMON, COMMON)))
def test_promote_types(a, b):
    theirs = torch.promote_types(getattr(torch, a), getattr(torch, b))
    assert fl.promote_types(getattr(fl, a), getattr(fl, b)).name == str(theirs)[6:]


@pytest.mark.parametrize("a,b", list(itertools.product(COMMON, COMMON)))
def test_can_cast(a, b):
    assert fl.can_cast(getattr(fl, a), getattr(fl, b)) == torch.can_cast(getattr(torch, a), getattr(torch, b))


OPERANDS = [("dim", n) for n in COMMON] + [("zero", n) for n in COMMON] + [("number", v) for v in (True, 2, 2.5, 1j)]


def _operand(lib, spec):
    kind, what = spec
    if kind == "number":
        return what
    return lib.ones((2,) if kind == "dim" else (), dtype=getattr(lib, what))


@pytest.mark.parametrize("a,b", list(itertools.product(OPERANDS, OPERANDS)))
def test_result_type(a, b):
    ours = fl.result_type(_operand(fl, a), _operand(fl, b))
    theirs = torch.result_type(_operand(torch, a), _operand(torch, b))
    if theirs is not torch.complex32:  # half-precision complex numbers do not exist here
        assert ours.name == str(theirs)[6:]


@pytest.mark.parametrize("name", [n for n in COMMON if n.startswith(("f", "bf"))])
def test_finfo(name):
    ours, theirs = fl.finfo(getattr(fl, name)), torch.finfo(getattr(torch, name))
    for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal"):
        assert getattr(ours, field) == pytest.approx(getattr(theirs, field))


def test_identity_survives_pickle():
    for d in DTYPES.values():
        assert pickle.loads(pickle.dumps(d)) is d


def test_unknown_numpy_dtype():
    with pytest.raises(TypeError, match=r"can't convert np\.ndarray of type"):
        fl.from_numpy(np.array(["a"]))


PYTHON_TYPES = [bool, int, float, complex]
TAKING_A_DTYPE = {
    "ones": lambda lib, kind: lib.ones(2, dtype=kind).dtype,
    "tensor": lambda lib, kind: lib.tensor([1], dtype=kind).dtype,
    "to": lambda lib, kind: lib.ones(2).to(kind).dtype,
    "to by name": lambda lib, kind: lib.ones(2).to(dtype=kind).dtype,
    "promote_types": lambda lib, kind: lib.promote_types(kind, lib.float32),
    "sum": lambda lib, kind: lib.ones(2).sum(dtype=kind).dtype,
    "new_zeros": lambda lib, kind: lib.ones(2).new_zeros(2, dtype=kind).dtype,
    "view": lambda lib, kind: lib.zeros(2, dtype=lib.complex128).view(kind).dtype,
}


@pytest.mark.parametrize("kind", PYTHON_TYPES)
@pytest.mark.parametrize("call", TAKING_A_DTYPE)
def test_types_of_python_as_dtypes(call, kind):
    assert TAKING_A_DTYPE[call](fl, kind).name == str(TAKING_A_DTYPE[call](torch, kind))[6:]


def test_types_of_python_in_modules_and_limits():
    assert fl.nn.Linear(2, 2).to(float).weight.dtype is fl.nn.Linear(2, 2, dtype=float).weight.dtype is fl.float64
    assert fl.finfo(float).bits == 64 and fl.iinfo(int).bits == 64


@pytest.mark.parametrize("kind", [str, "float32", np.float32, np.dtype("float32")])
def test_what_is_no_dtype(kind):
    with pytest.raises(TypeError):
        torch.ones(2, dtype=kind)
    with pytest.raises(TypeError, match=r"ones\(\): argument 'dtype' must be torch.dtype, not .*; also taken are bool, int"):
        fl.ones(2, dtype=kind)
