"""Views and shape operators against torch, with gradients; storages; torch's other names."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

X = np.random.default_rng(8).standard_normal((2, 3, 4))

CASES = {
    "reshape": lambda t, x: x.reshape(4, -1),
    "view": lambda t, x: x.view(-1, 2),
    "view_as": lambda t, x: x.view_as(t.ones(6, 4)),
    "flatten": lambda t, x: x.flatten(1),
    "unflatten": lambda t, x: x.unflatten(2, (2, -1)),
    "ravel": lambda t, x: x.ravel(),
    "transpose": lambda t, x: x.transpose(0, -1),
    "t": lambda t, x: x[0].t(),
    "permute": lambda t, x: x.permute(2, 0, 1),
    "T": lambda t, x: x[0].T,
    "mT": lambda t, x: x.mT,
    "adjoint": lambda t, x: x.adjoint(),
    "movedim": lambda t, x: x.movedim((0, 1), (2, 0)),
    "swapaxes": lambda t, x: t.swapaxes(x, 0, 1),
    "squeeze": lambda t, x: x[:, :1].squeeze(),
    "squeeze dim": lambda t, x: x[:, :1].squeeze(1),
    "unsqueeze": lambda t, x: x.unsqueeze(-1),
    "expand": lambda t, x: x[:, :1].expand(5, -1, 6, -1),
    "expand_as": lambda t, x: x[:, :, :1].expand_as(x),
    "broadcast_to": lambda t, x: t.broadcast_to(x, (5, 2, 3, 4)),
    "broadcast_tensors": lambda t, x: t.broadcast_tensors(x, x[:, :1]),
    "narrow": lambda t, x: x.narrow(2, 1, 2),
    "narrow_copy": lambda t, x: x.narrow_copy(2, 1, 2),
    "select": lambda t, x: x.select(1, -1),
    "split": lambda t, x: x.split(3, 2),
    "split sizes": lambda t, x: x.split([1, 2], 1),
    "chunk": lambda t, x: x.chunk(3, 2),
    "tensor_split": lambda t, x: x.tensor_split(3, 2),
    "tensor_split indices": lambda t, x: x.tensor_split((1, 3), 2),
    "hsplit": lambda t, x: x.hsplit(3),
    "vsplit": lambda t, x: x.vsplit(2),
    "dsplit": lambda t, x: x.dsplit([1, 3]),
    "unbind": lambda t, x: x.unbind(1),
    "diagonal": lambda t, x: x.diagonal(1, 1, 2),
    "as_strided": lambda t, x: x.as_strided((2, 3), (4, 2), 1),
    "as_strided overlapping": lambda t, x: x.as_strided((3, 3), (1, 1)),
    "as_strided_scatter": lambda t, x: x.detach().as_strided_scatter(x.detach()[0, :2, :2] * 3, (2, 2), (4, 2), 1),
    "unfold": lambda t, x: x.unfold(2, 2, 1),
    "contiguous": lambda t, x: x.transpose(0, 1).contiguous(),
    "clone": lambda t, x: x.clone(),
    "to": lambda t, x: x.to(t.float32),
    "view_copy": lambda t, x: t.view_copy(x, (6, 4)),
    "view_as_real": lambda t, x: t.view_as_real(t.complex(x, x * 2)),
    "view_as_complex": lambda t, x: t.view_as_complex(x.reshape(2, 3, 2, 2)),
    "real": lambda t, x: t.complex(x, x * 2).real,
    "imag": lambda t, x: t.complex(x, x * 2).imag,
    "index_reduce": lambda t, x: x.detach().index_reduce(1, t.tensor([0, 0, 2]), x.detach(), "amax"),
    "unravel_index": lambda t, x: t.unravel_index(t.tensor([5, 11]), (3, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(agrees, name):
    agrees(CASES[name], X)


@pytest.mark.parametrize("name", ["reshape", "flatten", "transpose", "squeeze dim", "unsqueeze", "movedim", "unfold", "diagonal",
                                  "split", "unbind", "real", "imag"])
def test_strides_are_torchs(name):
    torch = pytest.importorskip("torch")
    for prepare in (lambda x: x, lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)):
        mine, theirs = (CASES[name](lib, prepare(lib.tensor(X))) for lib in (fl, torch))
        for a, b in zip(mine if isinstance(mine, tuple) else [mine], theirs if isinstance(theirs, (tuple, list)) else [theirs]):
            assert a.stride() == b.stride()
            assert a.storage_offset() == b.storage_offset()


@pytest.mark.parametrize("fn", [
    lambda t, x: x.view(5, 5), lambda t, x: x.view(-1, -1), lambda t, x: x.transpose(0, 1).view(24), lambda t, x: x.reshape(7, -1),
    lambda t, x: x.permute(0, 1), lambda t, x: x.permute(0, 0, 1), lambda t, x: x.transpose(0, 5), lambda t, x: x.expand(2, 5, 4),
    lambda t, x: x.expand(4), lambda t, x: x.narrow(0, 1, 5), lambda t, x: x.select(1, 7), lambda t, x: x.split([1, 1], 1),
    lambda t, x: x.t(), lambda t, x: x.chunk(0), lambda t, x: x.as_strided((9, 9), (4, 1)), lambda t, x: x.unfold(0, 5, 1),
    lambda t, x: x.hsplit(2), lambda t, x: x.unsqueeze(9), lambda t, x: x.flatten(2, 1), lambda t, x: x[0, 0].vsplit(2),
    lambda t, x: t.view_as_real(x), lambda t, x: x.diagonal(0, 1, 1), lambda t, x: t.view_as_complex(x)])
def test_refused(both_refuse, fn):
    both_refuse(fn, X)


@pytest.mark.parametrize("name", ["relayout_t_", "squeeze_", "unsqueeze_"])
def test_views_in_place(name):
    x = fl.tensor(X[0])
    {"relayout_t_": lambda: x.t_(), "squeeze_": lambda: x.unsqueeze_(0).squeeze_(0), "unsqueeze_": lambda: x.unsqueeze_(1)}[name]()
    assert x.numel() == 12


# -- storages and facts ------------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages():
    x = fl.arange(6.0).reshape(2, 3)
    storage = x.untyped_storage()
    assert storage.nbytes() == 24
    assert x[1].untyped_storage() == storage
    assert x[1].untyped_storage().data_ptr() == x.data_ptr()
    assert x.clone().untyped_storage() != storage
    assert x.storage().tolist() == [0, 1, 2, 3, 4, 5]
    assert x.storage().size() == 6
    assert x.storage()[2] == 2.0


def test_facts():
    x = fl.ones(2, 3, 4, 5).to(memory_format=fl.channels_last)
    assert x.layout is fl.strided
    assert not x.is_sparse
    assert not x.is_quantized
    assert x.dim_order() == (0, 2, 3, 1)
    assert x.resolve_conj() is x
    assert x.is_set_to(x.detach())
    assert fl.zeros(3).apply_(lambda v: v + 2).tolist() == [2, 2, 2]
    assert fl.ones(2).map_(fl.tensor([3.0, 4.0]), lambda a, b: a + b).tolist() == [4, 5]
    assert x.new(2, 2).shape == (2, 2)


@pytest.mark.parametrize("name", ["arctan2", "clip", "divide", "true_divide", "fix", "greater", "less_equal", "not_equal",
                                  "multiply",
                                  "subtract", "moveaxis", "swapdims", "concat", "concatenate", "row_stack", "ger", "inverse",
                                  "det", "matrix_power", "absolute", "negative", "arcsin", "trapz", "split_with_sizes"])
def test_other_names(name):
    assert callable(getattr(fl, name))


@pytest.mark.parametrize("name", ["tril_", "triu_", "frac_", "sinc_", "deg2rad_", "nan_to_num_", "logit_"])
def test_more_in_place_forms(agrees, name):
    agrees(lambda t, x: [y := x * 0.5 + 0.5, getattr(y, name)()][1], np.random.default_rng(1).uniform(0.1, 0.9, (3, 3)))


def test_augmented_assignments(agrees):
    def fn(t, x):
        x = x.clone()
        x += 1
        x -= 0.5
        x *= 3
        x /= 2
        x **= 2
        x %= 3
        x //= 1
        return x
    agrees(fn, X, grad=False)
    agrees(lambda t, x: [x := x.clone(), x.__ilshift__(1), x.__irshift__(2), x.__iand__(5), x.__ior__(8), x.__ixor__(1)][0],
           np.arange(8))


# -- windows and the short-time transform ----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["bartlett_window", "hann_window", "hamming_window", "blackman_window", "kaiser_window"])
@pytest.mark.parametrize("args", [(8,), (7, False), (1,), (0,)])
def test_windows(agrees, name, args):
    agrees(lambda t: getattr(t, name)(*args))


def test_stft(agrees):
    signal = np.random.default_rng(2).standard_normal((2, 200))
    agrees(lambda t, x: t.stft(x, 32, 8, window=t.hann_window(32, dtype=x.dtype), return_complex=True), signal)
    agrees(lambda t, x: t.stft(x, 32, center=False, normalized=True, window=t.ones(32, dtype=x.dtype), return_complex=True), signal)
    agrees(lambda t, x: t.istft(t.stft(x, 32, 8, window=t.hann_window(32, dtype=x.dtype), return_complex=True), 32, 8,
                                window=t.hann_window(32, dtype=x.dtype), length=200), signal)


def test_repeated_tensors_own_their_memory():
    x = fl.arange(3.0)
    for made in (x.repeat(1, 1), x.repeat(4, 1), x[:1].repeat(5), x.unsqueeze(0).repeat_interleave(4, 0), x.tile(2)):
        assert made.is_contiguous() and made.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        assert made.view(-1).shape[0] == made.numel()
        made[..., 0] = 9.0
    assert x.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("call", [
    lambda x: x.flip(dims=(0,)), lambda x: x.permute(dims=(1, 0)), lambda x: x.repeat(repeats=(2, 1)), lambda x: x.tile(dims=(2,)),
    lambda x: x[:1].expand(size=(4, 3)), lambda x: x.view(size=(3, 2)), lambda x: x.reshape(shape=(6,)),
])
def test_sizes_and_dims_by_name(call):
    x = np.arange(6.0).reshape(2, 3)
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(call(fl.from_numpy(x)).numpy(), call(torch.from_numpy(x)).numpy())


def test_sizes_that_are_tensors():
    x = fl.arange(12.0, requires_grad=True)
    n, three = fl.tensor(2), fl.tensor([3])[0]
    for made in (x.as_strided((n, three), (three, 1)), x[:6].view(n, three), x[:6].reshape(n, -1), x[:3].expand(n, three)):
        assert tuple(made.shape) == (2, 3) and all(type(size) is int for size in made.shape)
        made.sum().backward()
    assert x.grad.tolist() == [5.0, 5.0, 5.0, 3.0, 3.0, 3.0] + [0.0] * 6


@pytest.mark.parametrize("name", ["H", "mH", "mT"])
def test_transposes_of_what_is_no_matrix(name: str) -> None:
    for shape in ((), (3,), (2, 3), (2, 3, 4)):
        answers = []
        for t in (fl, torch):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    answers.append(tuple(getattr(t.ones(shape), name).shape))
            except RuntimeError as error:
                answers.append(str(error))
        assert answers[0] == answers[1]


@pytest.mark.parametrize("name", ["transpose_", "swapaxes_", "squeeze_", "unsqueeze_", "t_", "as_strided_"])
def test_a_new_layout_in_place_counts_as_a_write(name):
    args = {"transpose_": (0, 1), "swapaxes_": (0, 1), "squeeze_": (), "unsqueeze_": (0,), "t_": (), "as_strided_": ((2,), (1,))}[name]
    x = fl.ones(2, 3)
    view = x[0]
    getattr(x, name)(*args)
    assert x._version == view._version == 1


@pytest.mark.parametrize("make", [lambda n: fl.eye(n), lambda n: fl.linspace(0, 1, n), lambda n: fl.randperm(n),
                                  lambda n: fl.hann_window(n), lambda n: fl.logspace(0, 1, n), lambda n: fl.eye(2, n)])
def test_a_tensor_tells_how_many(make):
    made = make(fl.tensor(3))
    assert not made.is_fake and made.shape == make(3).shape


AS_STRIDED = {  # an input, and how it is seen
    "expanded": (lambda x: x[:1].expand(3, 4), (2, 3), (1, 1), 1),
    "expanded inside": (lambda x: x[:, :1].expand(3, 4), (3,), (4,), 0),
    "overlapping": (lambda x: x.as_strided((3, 4), (2, 1), 0), (3, 3), (1, 2), 1),
    "permuted": (lambda x: x.t(), (2, 3), (1, 2), 1),
    "gaps": (lambda x: x[:, 1:], (2, 3), (1, 2), 2),
    "rows": (lambda x: x[1:], (2, 3), (1, 2), 4),
    "ravelled": (lambda x: x.ravel(), (3, 3), (1, 2), 1),
    "expanded from nothing": (lambda x: x[:0, :1].expand(0, 4), (0,), (1,), 0),
}


@pytest.mark.parametrize("kind", ["float64", "complex128"])
@pytest.mark.parametrize("name", AS_STRIDED)
def test_gradient_of_as_strided(name, kind):
    """Each element's gradient arrives once, whatever the input's own elements share."""
    see, *how = AS_STRIDED[name]
    found = []
    for lib in (fl, torch):
        x = lib.arange(12).to(getattr(lib, kind)).reshape(3, 4).requires_grad_()
        y = see(x * 1).as_strided(*how)
        weights = lib.arange(1, 1 + y.numel()).to(y.dtype).reshape(y.shape)
        (grad,) = lib.autograd.grad(y, x, weights)
        found.append(grad.tolist())
    assert found[0] == found[1]


def test_arguments_stay_as_they_were():
    """An operator does its sums on names of its own, not in place on a tensor that was given for a number."""
    turns = fl.tensor([[5]])
    fl.rot90(fl.arange(4).reshape(2, 2), turns)
    assert turns.item() == 5


@pytest.mark.parametrize("part", [(0, 6), (2, 6), (4, 8), (6, 12)])
@pytest.mark.parametrize("layout", [((2,), (1,)), ((2,), (3,)), ((3,), (2,)), ((2, 2), (2, 1)), ((0,), (1,))])
def test_as_strided_scatter_counts_in_the_memory(part, layout):
    """Places are the memory's: what is written around the input is not seen, and beyond the memory is an error."""
    (size, stride), found = layout, []
    for lib in (fl, torch):
        x, answers = lib.arange(20.0)[slice(*part)], []
        for offset in (None, 0, 1, 2, 3, 5, 7, 18):
            try:
                answers.append(lib.as_strided_scatter(x, lib.full(size, -1.0), size, stride, offset).tolist())
            except RuntimeError:
                answers.append("refused")
        found.append(answers)
    assert found[0] == found[1]


COPIES = {
    "alias_copy": (), "detach_copy": (), "squeeze_copy": (), "t_copy": (), "permute_copy": ((1, 0),), "transpose_copy": (0, 1),
    "select_copy": (1, 2), "expand_copy": ((2, 4, 3),), "unsqueeze_copy": (0,), "unfold_copy": (1, 2, 1), "view_copy": ((2, 6),),
    "diagonal_copy": (), "as_strided_copy": ((2, 2), (1, 2)), "narrow_copy": (0, 1, 2), "slice_copy": (1, 1, 3), "split_copy": (2,),
    "split_with_sizes_copy": ([1, 3],), "unbind_copy": (1,),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.t().contiguous().t(), lambda x: x[:1].expand(4, 3)],
                         ids=["rows", "columns", "one"])
def test_copies_of_views_lie_in_rows(name, layout):
    """Also where there is no such view; the tensors of a tuple may be given as out=, one for each, and are then the whole answer."""
    found = []
    for lib in (fl, torch):
        x = layout(lib.arange(12.0).reshape(4, 3))
        copies = getattr(lib, name)(x, *COPIES[name])
        several = isinstance(copies, (tuple, list))
        out = tuple(lib.zeros(tuple(c.shape)) for c in copies) if several else lib.zeros(tuple(copies.shape))
        answer = getattr(lib, name)(x, *COPIES[name], out=out)
        assert answer is None if several else answer is out
        found.append([(c.tolist(), c.stride(), o.tolist()) for c, o in (zip(copies, out) if several else [(copies, out)])])
    assert found[0] == found[1]


@pytest.mark.parametrize("out, error", [(lambda t: (t.zeros(3),), RuntimeError), (lambda t: t.zeros(2, 3), TypeError)])
@pytest.mark.parametrize("call", [lambda t, x, out: t.unbind_copy(x, out=out), lambda t, x, out: t.split_copy(x, 1, out=out)])
def test_as_many_out_as_there_are_results(call, out, error):
    for lib in (fl, torch):
        with pytest.raises(error):
            call(lib, lib.ones(2, 3), out(lib))


def test_a_number_has_no_slice():
    for lib in (fl, torch):
        with pytest.raises(IndexError, match="0-dim"):
            lib.slice_copy(lib.tensor(1.0), 0)


@pytest.mark.parametrize("make", [
    lambda t, x: x[:1].expand(4, 3), lambda t, x: x[:, :1].expand(4, 3), lambda t, x: x.t(), lambda t, x: x.permute(1, 0)[1:]])
def test_as_strided_scatter_lies_as_its_input(make):
    """In rows where elements share a place, of which one alone is written."""
    found = []
    for lib in (fl, torch):
        out = lib.as_strided_scatter(make(lib, lib.arange(12.0).reshape(4, 3)), lib.full((2,), -1.0), (2,), (2,), 1)
        found.append((out.tolist(), out.stride() if out.is_contiguous() or out.t().is_contiguous() else None))
    assert found[0][0] == found[1][0] and found[0][1] in (found[1][1], (2, 1), (1, 2))


@pytest.mark.parametrize("shape, strides", [
    ((3, 4, 4, 4), (0, 0, 0, 1)), ((2, 3), (0, 1)), ((2, 3), (1, 0)), ((2, 3, 4), (1, 0, 2)), ((1, 3), (1, 1)), ((3, 1), (1, 3)),
    ((2, 1, 3), (3, 0, 1)), ((2, 3, 2), (6, 0, 1)), ((2, 3, 2), (0, 2, 1)), ((2, 0, 3), (1, 1, 9)), ((4, 1, 2), (1, 7, 4)),
    ((2, 3, 4, 5), (60, 1, 15, 3)), ((), ())])
def test_order_of_dimensions(shape, strides):
    assert fl.empty(400).as_strided(shape, strides).dim_order() == torch.empty(400).as_strided(shape, strides).dim_order()


@pytest.mark.parametrize("make", [
    lambda t: t.ones(1).expand(2, 2, 2, 0), lambda t: t.ones(5)[:0], lambda t: t.ones(5)[3:3], lambda t: t.ones(0), lambda t: t.ones(2, 0)])
@pytest.mark.parametrize("offset", [None, 0, 1, 5])
def test_nothing_is_written_around(make, offset):
    """Of a tensor of no elements the whole memory is copied, which part of it is written to."""
    found = []
    for lib in (fl, torch):
        try:
            found.append(lib.as_strided_scatter(make(lib), lib.tensor(7.0), (), (), offset).tolist())
        except RuntimeError:
            found.append("refused")
    assert found[0] == found[1]


@pytest.mark.parametrize("joined", [
    lambda t, none: t.cat([none, t.ones(2, 2)], 1), lambda t, none: t.cat([t.ones(2, 2), none, none]), lambda t, none: t.cat([none, none]),
    lambda t, none: t.hstack([t.ones(2, 3), none]), lambda t, none: t.cat([none, t.ones(3, dtype=t.float64)]),
    lambda t, none: t.cat([none, t.ones(0, 3)]), lambda t, none: t.cat(
        [t.ones(2, 3, 4, 5).to(memory_format=t.channels_last), none], 1)])
def test_what_stands_for_nothing_has_a_gradient_too(joined):
    """A tensor of shape (0,) fits beside all others; it is one of the inputs."""
    found = []
    for lib in (fl, torch):
        none = lib.empty(0, requires_grad=True)
        out = joined(lib, none)
        grad, = lib.autograd.grad(out.sum(), [none])
        found.append((out.tolist(), out.stride(), str(out.dtype).split(".")[1], tuple(grad.shape), str(grad.dtype).split(".")[1]))
    assert found[0] == found[1]
