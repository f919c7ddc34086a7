"""Conjugate and negative views: the memory of their base, read and written with the other sign."""

from __future__ import annotations

import copy
import io
import warnings

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

START = np.array([[1 + 2j, 3 - 1j], [2, 1j]])
VIEWS = {
    "conj": lambda x: x.conj(), "conj twice": lambda x: x.conj().conj(), "mH": lambda x: x.mH, "H": lambda x: x.H,
    "adjoint": lambda x: x.adjoint(), "negative": lambda x: x._neg_view(), "negative conj": lambda x: x.conj()._neg_view(),
    "imag": lambda x: x.conj().imag, "real": lambda x: x.conj().real, "imag of negative": lambda x: x._neg_view().imag,
    "real of negative": lambda x: x._neg_view().real, "imag of both": lambda x: x.conj()._neg_view().imag,
    "a row": lambda x: x.conj()[1], "a column": lambda x: x[:, 1].conj(), "reshaped": lambda x: x.conj().reshape(4),
    "transposed": lambda x: x.conj().mT, "expanded": lambda x: x.conj().unsqueeze(0).expand(3, 2, 2),
    "detached": lambda x: x.conj().detach(),
    "pieces": lambda x: x.conj().split(1)[1], "pairs of a negative": lambda x: fl_or_torch(x).view_as_real(x._neg_view()),
}
WRITES = {
    "copy_": lambda v: v.copy_(v * 0 + 3), "add_": lambda v: v.add_(2), "mul_ by itself": lambda v: v.mul_(v.clone()),
    "an item": lambda v: v.__setitem__(0, 5), "fill_": lambda v: v.fill_(7), "zero_": lambda v: v.zero_(),
    "masked": lambda v: v.__setitem__(v != v, 1), "twice": lambda v: v.add_(1).neg_(),
}


def fl_or_torch(x):
    return fl if isinstance(x, fl.Tensor) else torch


def both():
    return fl.tensor(START), torch.tensor(START)


def numbers(t):
    return t.detach().resolve_conj().resolve_neg().numpy()


@pytest.mark.parametrize("name", VIEWS)
def test_views_have_the_memory_the_flags_and_the_elements_of_torchs(name):
    ours, theirs = both()
    a, b = VIEWS[name](ours), VIEWS[name](theirs)
    assert (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
    assert (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())
    assert a.data_ptr() - ours.data_ptr() == b.data_ptr() - theirs.data_ptr()
    assert a.tolist() == b.tolist() and numbers(a).tolist() == numbers(b).tolist()
    for fn in (lambda t: t + 1, lambda t: t * t, lambda t: t.sum(), lambda t: t.abs(), lambda t: t.clone(), lambda t: t.contiguous(),
               lambda t: t.to(fl_or_torch(t).complex64), lambda t: fl_or_torch(t).cat([t.reshape(-1)] * 2), lambda t: t.flatten()[0]):
        np.testing.assert_allclose(numbers(fn(a)), numbers(fn(b)))
    assert a.clone().is_conj() == b.clone().is_conj() and a.resolve_conj().is_conj() is a.resolve_neg().is_neg() is False


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", [name for name in VIEWS if name != "expanded"])
def test_writes_are_seen_by_the_base(name, write):
    ours, theirs = both()
    for x in (ours, theirs):
        WRITES[write](VIEWS[name](x))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())
    assert ours._version == theirs._version


@pytest.mark.parametrize("name", VIEWS)
def test_numpy_is_refused_where_memory_holds_something_else(name):
    view = VIEWS[name](fl.tensor(START))
    if view.is_conj() or view.is_neg():
        word = "conjugate" if view.is_conj() else "negative"
        with pytest.raises(RuntimeError, match=f"Can't call numpy\\(\\) on Tensor that has {word} bit set"):
            view.numpy()
        with pytest.raises(RuntimeError, match="bit set"):
            view.view(fl.int64)
    np.testing.assert_array_equal(view.numpy(force=True), numbers(view))


def test_pairs_of_a_conjugate_are_refused():
    with pytest.raises(RuntimeError, match="view_as_real doesn't work on unresolved conjugated tensors"):
        fl.view_as_real(fl.tensor(START).conj())


@pytest.mark.parametrize("name", ["conj", "mH", "negative", "imag", "imag of both", "negative conj"])
def test_gradients_go_through_views_and_writes(name):
    x = fl.tensor(START).requires_grad_()
    assert fl.autograd.gradcheck(lambda x: VIEWS[name](x) * VIEWS[name](x), [x], check_forward_ad=True)

    def written(x):
        y = x * 1
        VIEWS[name](y)[0].mul_(2)
        return y * y
    assert fl.autograd.gradcheck(written, [x])


@pytest.mark.parametrize("name", VIEWS)
def test_files_and_copies_keep_the_elements(name):
    ours, theirs = both()
    for library, x, load in ((fl, ours, torch), (torch, theirs, fl), (fl, ours, fl)):
        file = io.BytesIO()
        view = VIEWS[name](x)
        library.save(view, file)
        file.seek(0)
        found = load.load(file)
        assert numbers(found).tolist() == numbers(view).tolist() and (found.is_conj(), found.is_neg()) == (view.is_conj(), view.is_neg())
    for made in (copy.copy(VIEWS[name](ours)), copy.deepcopy(VIEWS[name](ours))):
        assert made.tolist() == VIEWS[name](ours).tolist()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", VIEWS)
def test_compiled_functions_have_the_same_views(name, backend):
    def fn(x):
        view = VIEWS[name](x)
        view.flatten()[0:1].add_(1)
        return view * 2, view, x.sum()
    fl._dynamo.reset()
    a, b = fl.tensor(START), fl.tensor(START)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # of graphs that refuse a write
        expected, found = fn(a), fl.compile(fn, backend=backend)(b)
    assert [t.tolist() for t in found] == [t.tolist() for t in expected] and a.tolist() == b.tolist()
    taken = VIEWS[name](fl.tensor(START))
    assert fl.compile(lambda x: x * 2, backend=backend)(taken).tolist() == (taken * 2).tolist()


def test_a_function_compiled_for_plain_tensors_reads_a_conjugate_right():
    fl._dynamo.reset()
    compiled = fl.compile(lambda x: x * 2, backend="aot_eager")
    x = fl.tensor(START)
    for given in (x, x.conj(), x.imag, x.conj().imag):
        assert compiled(given).tolist() == (given * 2).tolist()


def test_vmap_takes_and_gives_conjugates():
    x = fl.tensor(START)
    expected = x.resolve_conj().conj_physical()
    assert fl.vmap(lambda v: v.conj())(x).tolist() == expected.tolist() == fl.vmap(lambda v: v * 1)(x.conj()).tolist()
    assert fl.vmap(lambda v: v.conj().imag)(x).tolist() == expected.imag.tolist()


def test_devices_that_hold_no_such_views_copy():
    x = fl.zeros(2, 3, dtype=fl.complex64, device="meta", requires_grad=True)
    for turned in (x.conj(), x.mH, x._neg_view(), fl.ops.prims.conj_view(x), fl.ops.prims.neg_view(x)):
        assert not turned._is_view() and not turned.is_conj() and not turned.is_neg()
        assert turned.grad_fn is not None and turned.device.type == "meta"
