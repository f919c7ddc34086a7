"""TensorSpec and check_tensors: what they accept, what they refuse, and the reason they give."""

import copy
import gc
import pickle
import sys
import weakref

import numpy as np
import pytest

from flambeau import _C
from flambeau.core.device import device
from flambeau.core.dtypes import float32
from flambeau.core.tensor import AutogradMeta, Layout, Tensor, ViewPath, fake, from_array, view_tensor

CPU = device("cpu")


class Parameter(Tensor):
    pass


def tensor(shape=(3, 4), dtype=np.float32, requires_grad=False):
    made = from_array(np.zeros(shape, dtype))
    made.requires_grad = requires_grad
    return made


def spec_of(t, **changes):
    facts = {
        "type": type(t),
        "dtype": t.dtype,
        "device": t.device,
        "shape": tuple(t.shape),
        "strides": tuple(t.stride()),
        "requires_grad": t.requires_grad,
    }
    return _C.TensorSpec(**{**facts, **changes})


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 1, 3), (0, 4), (1, 1)])
def test_a_tensor_meets_its_own_spec(shape):
    t = tensor(shape)
    spec = spec_of(t)
    assert spec(t) is True and spec.difference(t) is None
    assert _C.check_tensors((t, t), (spec, spec)) is True


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda: tensor((3, 5)), "size 4 expected at dimension 1, got 5"),
        (lambda: tensor((3, 4, 1)), "2 dimensions expected, got 3"),
        (lambda: tensor(dtype=np.float64), "dtype torch.float32 expected, got torch.float64"),
        (lambda: tensor(requires_grad=True), "requires_grad=False expected"),
        (lambda: tensor()._as_subclass(Parameter), "type Tensor expected, got Parameter"),
        (lambda: from_array(np.zeros((4, 3), np.float32).T), "contiguous strides expected"),
        (lambda: fake((3, 4), float32, device("meta")), "device cpu expected, got meta"),
        (lambda: fake((3, 4), float32), "a tensor with data expected, got a fake one"),
        (lambda: np.zeros((3, 4), np.float32), "type Tensor expected, got numpy.ndarray"),
        (lambda: None, "type Tensor expected, got NoneType"),
    ],
)
def test_differences_are_told(other, reason):
    spec, other = spec_of(tensor()), other()
    assert spec(other) is False
    assert spec.difference(other) == reason
    assert _C.check_tensors((tensor(), other), (spec, spec)) is False


def test_none_in_the_shape_stands_for_any_size():
    spec = spec_of(tensor(), shape=(None, 4), strides=(None, 1))
    assert spec(tensor((7, 4))) and spec(tensor((1, 4)))
    assert not spec(tensor((7, 5)))
    assert not spec(from_array(np.zeros((4, 7), np.float32).T))


def test_true_for_strides_means_contiguous():
    spec = spec_of(tensor(), shape=(None, None), strides=True)
    assert spec(tensor((7, 5)))
    assert not spec(from_array(np.zeros((5, 7), np.float32).T))
    assert spec(from_array(np.zeros((1, 7), np.float32).T))  # (7, 1): both orders


def test_strides_may_be_left_out():
    spec = spec_of(tensor(), strides=None)
    assert spec(from_array(np.zeros((4, 3), np.float32).T))


def test_other_strides_are_compared_in_elements():
    t = from_array(np.zeros((4, 3), np.float32).T)
    spec = spec_of(t)
    assert spec(t) and not spec(tensor())
    assert spec.difference(tensor()) == "stride 3 expected at dimension 1, got 1"
    view = view_tensor(tensor((6, 8)), float32, Layout((3, 4), (16, 2), 0))
    assert spec_of(view)(view) and not spec(view)


def test_strides_of_single_elements_are_not_compared():
    spec = spec_of(tensor((1, 4)))
    odd = from_array(np.lib.stride_tricks.as_strided(np.zeros(100, np.float32), (1, 4), (400, 4)))
    assert spec(odd)


@pytest.mark.parametrize("wanted", [True, False, None])
@pytest.mark.parametrize("given", [True, False, "grad_fn"])
def test_requires_grad(wanted, given):
    t = tensor(requires_grad=given is True)
    if given == "grad_fn":
        t._grad = AutogradMeta(grad_fn=object())
    assert spec_of(t, requires_grad=wanted)(t) is (wanted is None or wanted is bool(given))


def test_a_view_is_asked_whether_it_requires_grad(monkeypatch):
    asked = []
    monkeypatch.setattr(Tensor, "_refresh_view", asked.append, raising=False)
    t = tensor(requires_grad=True)
    t._view = ViewPath(t, (), 0)
    assert spec_of(t, requires_grad=True)(t)
    assert asked and asked[-1] is t


def test_an_error_while_asking_propagates(monkeypatch):
    def broken(_):
        raise KeyError("broken")

    t = tensor()
    spec = spec_of(t)
    monkeypatch.setattr(Tensor, "_refresh_view", broken, raising=False)
    t._view = ViewPath(t, (), 0)
    for ask in (spec, spec.difference, lambda t: _C.check_tensors((t,), (spec,))):
        with pytest.raises(KeyError, match="broken"):
            ask(t)


def test_devices_are_compared_by_value():
    t = tensor()
    assert spec_of(t, device=device("cpu"))(t)
    assert not spec_of(t, device=device("cpu", 0))(t)


def test_specs_pickle_and_copy():
    t = tensor()
    spec = spec_of(t, shape=(None, 4), strides=(None, 1))
    for other in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)):
        assert repr(other) == repr(spec) and other(t)
    assert (spec.shape, spec.strides, spec.dtype, spec.type) == ((None, 4), (None, 1), float32, Tensor)


def test_references_are_given_back():
    t = tensor(requires_grad=True)
    spec = spec_of(t)
    tensors, specs = (t, t), (spec, spec)
    objects = (t, t._data, t._grad, t.dtype, t.device, spec, Tensor)
    before = [sys.getrefcount(x) for x in objects]
    for _ in range(100):
        spec(t), spec.difference(t), _C.check_tensors(tensors, specs), spec(tensor()), spec_of(t)
    assert [sys.getrefcount(x) for x in objects] == before


def test_a_spec_in_a_cycle_is_collected():
    def make():
        class Local(Tensor):
            pass

        Local.spec = spec_of(tensor()._as_subclass(Local))
        return weakref.ref(Local)

    alive = make()
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"shape": [3, 4]}, TypeError),
        ({"shape": (3, "x")}, TypeError),
        ({"shape": (3, -1)}, ValueError),
        ({"strides": (1,)}, TypeError),
        ({"strides": "dense"}, TypeError),
        ({"type": "Tensor"}, TypeError),
        ({"shape": (3, 1 << 70)}, OverflowError),
    ],
)
def test_wrong_specs_are_refused(changes, error):
    with pytest.raises(error):
        spec_of(tensor(), **changes)


@pytest.mark.parametrize(
    "arguments",
    [(), ((),), ((tensor(),), ()), ([tensor()], [spec_of(tensor())]), ((tensor(),), (3,)), ((), (), ())],
)
def test_wrong_calls_are_type_errors(arguments):
    with pytest.raises(TypeError):
        _C.check_tensors(*arguments)
    with pytest.raises(TypeError):
        spec_of(tensor())(*arguments, tensor(), tensor())
