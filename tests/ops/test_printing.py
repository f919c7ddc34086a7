"""Printing as torch prints, and tensors as Python objects."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

import flambeau as fl

TEXTS = {
    "t.tensor(1.5)": "tensor(1.5000)",
    "t.tensor(3.)": "tensor(3.)",
    "t.tensor([1e-5, 1.])": "tensor([1.0000e-05, 1.0000e+00])",
    "t.tensor([1000., 1.5])": "tensor([1000.0000,    1.5000])",
    "t.tensor([inf, 1.5])": "tensor([   inf, 1.5000])",
    "t.tensor([nan, 0.])": "tensor([nan, 0.])",
    "t.tensor([1, 200, -3])": "tensor([  1, 200,  -3])",
    "t.tensor([True, False])": "tensor([ True, False])",
    "t.tensor([1+2j, 3.5-1j])": "tensor([1.0000+2.j, 3.5000-1.j])",
    "t.tensor([1.5], dtype=t.bfloat16)": "tensor([1.5000], dtype=torch.bfloat16)",
    "t.zeros(2, 0, dtype=t.int32)": "tensor([], size=(2, 0), dtype=torch.int32)",
    "t.ones(2, requires_grad=True)": "tensor([1., 1.], requires_grad=True)",
    "t.ones(2, requires_grad=True) * 2": "tensor([2., 2.], grad_fn=<MulBackward0>)",
    "t.empty(2, 3, device='meta')": "tensor(..., device='meta', size=(2, 3))",
    "t.arange(1001)": "tensor([   0,    1,    2,  ...,  998,  999, 1000])",
    "t.arange(6.).reshape(2, 3)": "tensor([[0., 1., 2.],\n        [3., 4., 5.]])",
}
MORE = [
    "t.arange(10000).reshape(100, 100)", "t.arange(30.).reshape(2, 3, 5) / 7", "t.arange(40.)", "t.arange(40.) * 100.5",
    "t.tensor([[[1]]])", "t.tensor([1e10, nan])", "t.zeros(1200, 2)[:, :1]", "t.tensor([0.1, -0.22222, 333.33333])",
    "t.tensor([1., nan, inf])", "t.ones(2, 2, dtype=t.float64, requires_grad=True) * 1", "t.tensor([1., 1000., 1001.])",
    "t.tensor([0.1] * 17, dtype=t.float64)", "t.empty(2, 3, device='meta', dtype=t.int64)", "t.tensor([1+2j, 300.5-1e-3j])",
    "t.arange(5000.).reshape(10, 20, 25)", "t.empty(3, 0, dtype=t.float64)", "t.ones(2, requires_grad=True).sum()",
    "t.ones(5, 1100)", "t.tensor(1j)", "t.tensor([])", "t.tensor([], dtype=t.int64)", "t.tensor([-0., 0.5])", "t.tensor(True)",
    "t.tensor([12345.678])", "t.tensor([1., 1e9])", "t.zeros(2, 3, dtype=t.complex64)", "t.tensor([255], dtype=t.uint8)",
]
NAMES = {"nan": math.nan, "inf": math.inf}


@pytest.mark.parametrize("expression", TEXTS)
def test_text(expression):
    assert repr(eval(expression, {"t": fl, **NAMES})) == TEXTS[expression]


@pytest.mark.parametrize("expression", [*TEXTS, *MORE])
def test_prints_as_torch(expression):
    torch = pytest.importorskip("torch")
    assert repr(eval(expression, {"t": fl, **NAMES})) == repr(eval(expression, {"t": torch, **NAMES}))


@pytest.mark.parametrize("options", [{"precision": 2}, {"threshold": 5, "edgeitems": 1}, {"linewidth": 30}, {"sci_mode": True},
                                     {"profile": "short"}, {"profile": "full"}, {"sci_mode": False}], ids=str)
def test_options(options):
    torch = pytest.importorskip("torch")
    try:
        texts = []
        for lib in (fl, torch):
            lib.set_printoptions(**options)
            texts.append([repr(lib.arange(24.0).reshape(4, 6) / 7), repr(lib.tensor([1e-6, 3.0])), repr(lib.arange(1200))[:200]])
        assert texts[0] == texts[1]
    finally:
        for lib in (fl, torch):
            lib.set_printoptions(profile="default")


def test_format():
    assert f"{fl.tensor(1.5):.3f}" == "1.500"
    assert f"{fl.tensor([1.5])}" == "tensor([1.5000])"
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{fl.tensor([1.5]):.3f}"


def test_unknown_profile():
    with pytest.raises(ValueError, match="unknown print profile"):
        fl.set_printoptions(profile="verbose")


# -- sequences -----------------------------------------------------------------------------------------------------
def test_length_and_iteration():
    x = fl.arange(6).reshape(3, 2)
    assert len(x) == 3
    assert [row.tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    assert [row.tolist() for row in reversed(x)] == [[4, 5], [2, 3], [0, 1]]
    _, second, _ = x
    assert second.tolist() == [2, 3]
    assert 5 in x
    assert 6 not in x
    assert fl.tensor(3) in x


@pytest.mark.parametrize("fn", [lambda t: len(t.tensor(1)), lambda t: iter(t.tensor(1)), lambda t: "a" in t.ones(2),
                                lambda t: bool(t.ones(2)), lambda t: bool(t.ones(0)), lambda t: int(t.ones(2)),
                                lambda t: t.ones(2).item(),
                                lambda t: [0][t.tensor(1.0)], lambda t: float(t.tensor(1j))])
def test_refused_as_torch_refuses(both_refuse, fn):
    both_refuse(fn)


def test_numbers():
    assert float(fl.tensor(2.5)) == 2.5
    assert int(fl.tensor([3.7])) == 3
    assert complex(fl.tensor(1j)) == 1j
    assert [10, 20, 30][fl.tensor(1)] == 20
    assert bool(fl.tensor([[True]]))


# -- copies and pickles -----------------------------------------------------------------------------------------------
def round_trip(x):
    return pickle.loads(pickle.dumps(x))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, round_trip])
class TestDuplicates:
    def test_has_memory_of_its_own(self, duplicate):
        x = fl.arange(3.0)
        y = duplicate(x)
        y[0] = 9
        assert x.tolist() == [0, 1, 2]

    def test_keeps_dtype_strides_and_flags(self, duplicate):
        for kind in (fl.bfloat16, fl.bool, fl.complex64, fl.int8):
            x = fl.ones(2, 3).to(kind).t()
            y = duplicate(x)
            assert y.dtype is kind
            assert y.stride() == x.stride()
            assert fl.equal(x, y)
        assert duplicate(fl.ones(2, requires_grad=True)).requires_grad

    def test_shared_memory_stays_shared(self, duplicate):
        base = fl.arange(6.0)
        base2, view2 = duplicate([base, base[2:4]])
        view2[0] = 9
        assert base2.tolist() == [0, 1, 9, 3, 4, 5]
        assert base.tolist() == [0, 1, 2, 3, 4, 5]

    def test_attributes_and_subclasses(self, duplicate):
        x = fl.ones(2).as_subclass(Sub)
        x.note = "kept"
        y = duplicate(x)
        assert type(y) is Sub
        assert y.note == "kept"

    def test_parts_of_a_graph(self, duplicate):
        """A pickle is of a leaf with the same values; a copy would have to be a part of the graph, too."""
        part = fl.ones(2, requires_grad=True) * 2
        if duplicate is round_trip:
            assert duplicate(part).is_leaf and duplicate(part).requires_grad and duplicate(part).tolist() == [2, 2]
            return
        with pytest.raises(RuntimeError, match="graph"):
            duplicate(part)


class Sub(fl.Tensor):
    pass


def test_deepcopy_takes_the_gradient_along():
    x = fl.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    y = copy.deepcopy(x)
    assert y.grad.tolist() == [3, 3]
    y.grad.zero_()
    assert x.grad.tolist() == [3, 3]


def test_copy_shares_memory():
    x = fl.zeros(2)
    copy.copy(x)[0] = 1
    assert x.tolist() == [1, 0]


def test_deepcopy_of_the_same_tensor_twice():
    x = fl.zeros(2)
    a, b = copy.deepcopy([x, x])
    assert a is b


def test_tolist():
    assert fl.tensor(2.5).tolist() == 2.5
    assert fl.tensor([[1, 2]]).tolist() == [[1, 2]]
    assert fl.tensor([1.5], dtype=fl.bfloat16).tolist() == [1.5]
    assert np.array(fl.ones(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64", "bool", "complex64", "complex128"])
@pytest.mark.parametrize("value", [1, 10, 123, 1234, 123456, 1234567, 1e-6, 1e10, 1.5 - 2.25j, 1e6 + 1e-6j])
def test_lines_end_where_torchs_do(kind, value):
    """As many elements on a line, and what is said behind them on the same line or the next."""
    torch = pytest.importorskip("torch")
    if isinstance(value, complex) and "complex" not in kind:
        value = value.real
    if "int" in kind:
        value = min(int(value), 2**31 - 1)
    for n in range(1, 13):
        for shape in ((n,), (1, n), (2, n), (1, 1, n)):
            texts = []
            for lib in (fl, torch):
                x = lib.full(shape, value, dtype=getattr(lib, kind))
                texts += [repr(x), repr(x.requires_grad_()) if x.is_floating_point() or x.is_complex() else ""]
            assert texts[:2] == texts[2:]
