"""Subscripts, gather and scatter, joining, repeating and writing through views, against torch with gradients."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops import facts, primitives, prims
from flambeau.ops.indexing import view_scatter

RNG = np.random.default_rng(2)
X = RNG.standard_normal((2, 3, 4))
M = np.arange(6.0).reshape(2, 3)
ROWS = np.array([[0, 2], [1, 1]])

READS = {
    "int": lambda t, x: x[1],
    "negative": lambda t, x: x[-1, -2],
    "slices": lambda t, x: x[:, 1:, ::2],
    "slice beyond": lambda t, x: x[:, -10:2, 5:],
    "empty slice": lambda t, x: x[:, 2:1],
    "ellipsis": lambda t, x: x[..., 1],
    "two ellipses": lambda t, x: x[..., ...],
    "none": lambda t, x: x[:, None, 0, None],
    "nothing": lambda t, x: x[()],
    "numpy int": lambda t, x: x[np.int64(1)],
    "tensor int": lambda t, x: x[t.tensor(1), :, t.tensor(-1)],
    "slice of a tensor": lambda t, x: x[0:t.tensor(1)],
    "list": lambda t, x: x[[1, 0, 1]],
    "empty list": lambda t, x: x[[]],
    "range": lambda t, x: x[range(2)],
    "array": lambda t, x: x[:, np.array([2, 0])],
    "two lists": lambda t, x: x[[0, 1], [2, 0]],
    "nested list": lambda t, x: x[[[0, 1], [1, 0]]],
    "int and list": lambda t, x: x[1, :, [0, 2]],
    "split lists": lambda t, x: x[[0, 1], :, [0, 2]],
    "lists with none": lambda t, x: x[:, [0, 1], None, [0, 2]],
    "matrix index": lambda t, x: x[:, t.tensor([[0, 1], [1, 2]])],
    "broadcast": lambda t, x: x[t.tensor([[-1], [0]]), t.tensor([1, 2])],
    "mask": lambda t, x: x[x > 0],
    "row mask": lambda t, x: x[t.tensor([True, False]), 1:],
    "inner mask": lambda t, x: x[:, t.tensor([True, False, True]), 0],
    "matrix mask": lambda t, x: x[t.tensor([[True, False, True], [False, False, True]])],
    "bool list": lambda t, x: x[[True, False]],
    "true": lambda t, x: x[True],
    "false": lambda t, x: x[False],
    "0-dim bool": lambda t, x: x[t.tensor(True), 0],
    "list of a number": lambda t, x: x[[t.tensor(1)]],
    "list of numbers": lambda t, x: x[[t.tensor(1), t.tensor(0)]],
    "list of a number and an int": lambda t, x: x[[t.tensor(1), 0]],
    "int after list": lambda t, x: x[[1, 0], :, -1],
    "repeated": lambda t, x: x[[0, 0, 0]].sum(0),
}


@pytest.mark.parametrize("name", READS)
def test_reading(agrees, name):
    agrees(READS[name], X)


@pytest.mark.parametrize("name", READS)
def test_reading_transposed(agrees, name):
    agrees(lambda t, x: READS[name](t, x.permute(1, 2, 0).contiguous().permute(2, 0, 1)), X)


@pytest.mark.parametrize("index", [None, ..., True, ()])
def test_reading_zero_dimensions(agrees, index):
    agrees(lambda t, x: x[index], np.array(2.5))


WRITES = {
    "int": (0, 7),
    "column": ((slice(None), 1), lambda t: t.tensor([8.5, 9], dtype=t.float64)),
    "list": ([0, 1], 5),
    "pairs": (([0, 1], [1, 1]), lambda t: t.tensor([7.0, 8], dtype=t.float64)),
    "everything": (..., lambda t: t.tensor([7.0, 8, 9], dtype=t.float64)),
    "mask": (lambda t, x: x > 2, 0),
    "mask with values": (lambda t, x: x > x.max() / 2, lambda t: t.tensor([9.0, 8, 7], dtype=t.float64)),
    "inner mask": (lambda t, x: (slice(None), t.tensor([True, False, True])), 3),
    "row and mask": (lambda t, x: (0, t.tensor([True, False, True])), 9),
    "none": ((slice(None), None, 0), lambda t: t.tensor([[1.0], [2]], dtype=t.float64)),
    "leading ones": (0, lambda t: t.ones(1, 1, 3, dtype=t.float64)),
    "leading ones, advanced": (lambda t, x: t.tensor([0]), lambda t: t.ones(1, 1, 1, 3, dtype=t.float64)),
    "converted": (0, lambda t: t.tensor([1, 2, 3])),
    "bool number": (slice(0, 2), True),
    "true": (True, 9),
    "false": (lambda t, x: t.tensor(False), 9),
    "step": ((slice(None), slice(None, None, 2)), 4),
}


def _write(t, x, name):
    index, value = WRITES[name]
    x[index(t, x) if callable(index) else index] = value(t) if callable(value) else value
    return x


@pytest.mark.parametrize("name", WRITES)
def test_writing(agrees, name):
    agrees(lambda t, x: _write(t, x.clone(), name), M, grad=False)


@pytest.mark.parametrize("name", WRITES)
def test_writing_recorded(agrees, name):
    """The written region passes no gradient, and the whole is differentiated after the write."""
    agrees(lambda t, x: _write(t, x * 2, name) ** 2, M)


@pytest.mark.parametrize("name", ["int", "mask", "list", "step"])
def test_writing_into_a_view_writes_its_base(agrees, name):
    agrees(lambda t, x: [base := x.clone(), _write(t, base.view(2, 3), name), base][2], M, grad=False)


@pytest.mark.parametrize("index", [(slice(None), 0), ([0, 1], [2, 0]), ..., slice(0, 1), (0, slice(None, None, 2))])
def test_gradients_of_the_written_value(agrees, index):
    def fn(t, x, v):
        y = x * 1
        y[index] = v.sum()
        return y * x
    agrees(fn, M, np.array([3.0, 2.0]))


@pytest.mark.parametrize("fn", [
    lambda t, x: x[5], lambda t, x: x[0, 0, 0], lambda t, x: x[1.5], lambda t, x: x[t.tensor(1.5)], lambda t, x: x[t.tensor([7])],
    lambda t, x: x[t.tensor([True])], lambda t, x: x[[0, 1], [0, 1, 2]], lambda t, x: x[::-1], lambda t, x: x[0, 0][0],
    lambda t, x: x.__setitem__(0, t.ones(4)), lambda t, x: x.__setitem__((0, 0), "a"), lambda t, x: x.__setitem__(t.tensor([5]), 1),
    lambda t, x: x.__setitem__(t.tensor([0]), t.ones(3, dtype=t.int64)), lambda t, x: x.__setitem__((0, 0), [1]),
    lambda t, x: x.__setitem__(t.tensor([0]), t.ones(4, dtype=t.float64)),
    lambda t, x: x.__setitem__(t.tensor([True, False, True]), 1), lambda t, x: x[0].expand(3, 3).add_(1)])
def test_subscripts_refused(both_refuse, fn):
    both_refuse(fn, M)


MOVES = {
    "put counted from the end": lambda t, x: t.put(x, t.tensor([1, -1]), x[0, :2]),
    "put adding": lambda t, x: x.put(t.tensor([1, 1]), x[0, :2], accumulate=True),
    "nonzero_static": lambda t, x: t.nonzero_static(x > 0, size=3),
    "nonzero_static filled up": lambda t, x: (x > 0).nonzero_static(size=9, fill_value=7),
    "nonzero_static of nothing": lambda t, x: t.nonzero_static(x[:0] > 0, size=2),
    "nonzero_static of a number": lambda t, x: t.nonzero_static(x[0, 0] > 9, size=2),
    "hardshrink": lambda t, x: x.hardshrink(0.4),
    "slice_copy": lambda t, x: t.slice_copy(x, 1, -2, None, 2),
    "alias_copy": lambda t, x: t.alias_copy(x).mul_(2),
    "split_with_sizes_copy": lambda t, x: t.split_with_sizes_copy(x, [1, x.shape[1] - 1], 1),
    "gather": lambda t, x: x.gather(1, t.tensor(ROWS)),
    "gather fewer rows": lambda t, x: x.gather(0, t.tensor([[0, 1]])),
    "gather nothing": lambda t, x: x.gather(1, t.zeros(2, 0, dtype=t.int64)),
    "take_along_dim": lambda t, x: t.take_along_dim(x, t.tensor([[1]]), dim=1),
    "scatter": lambda t, x: x.scatter(1, t.tensor([[0, 2], [1, 0]]), x[:, 1:] * 3),
    "scatter number": lambda t, x: x.scatter(1, t.tensor(ROWS), 5.0),
    "scatter add": lambda t, x: x.scatter_add(1, t.tensor(ROWS), x[:, :2] * 2),
    "scatter_reduce sum": lambda t, x: x.scatter_reduce(1, t.tensor(ROWS), x[:, 1:] * 2, "sum"),
    "scatter_reduce mean": lambda t, x: x.scatter_reduce(1, t.tensor(ROWS), x[:, 1:] * 2, "mean"),
    "scatter_reduce mean alone": lambda t, x: x.scatter_reduce(1, t.tensor(ROWS), x[:, 1:] * 2, "mean", include_self=False),
    "scatter_reduce amax": lambda t, x: x.detach().scatter_reduce(1, t.tensor(ROWS), x.detach()[:, 1:] * 2, "amax"),
    "scatter_reduce amin alone": lambda t, x: x.detach().scatter_reduce(1, t.tensor(ROWS), x.detach()[:, 1:], "amin",
                                                                        include_self=False),
    "scatter_reduce prod": lambda t, x: x.detach().scatter_reduce(1, t.tensor(ROWS), x.detach()[:, 1:] * 2, "prod"),
    "index_select": lambda t, x: x.index_select(1, t.tensor([2, 0, 2])),
    "index_add": lambda t, x: x.index_add(1, t.tensor([0, 0]), x[:, 1:], alpha=2),
    "index_copy": lambda t, x: x.index_copy(1, t.tensor([2, 0]), x[:, :2] * 5),
    "index_fill": lambda t, x: x.index_fill(1, t.tensor([1]), 3),
    "index_put": lambda t, x: x.index_put((t.tensor([1, 1]), t.tensor([0, 0])), x[0, :2], accumulate=True),
    "index_put mask": lambda t, x: x.index_put((x > 2,), t.tensor(9.0, dtype=x.dtype)),
    "masked_select": lambda t, x: x.masked_select(t.tensor([True, False, True])),
    "masked_scatter": lambda t, x: x.masked_scatter(t.tensor([True, False, True]), x * 10),
    "take": lambda t, x: x.take(t.tensor([[-1, 0], [0, 3]])),
    "put": lambda t, x: x.put(t.tensor([0, 4]), x[0, :2] * 7),
    "nonzero": lambda t, x: x.nonzero(),
    "nonzero as tuple": lambda t, x: x.nonzero(as_tuple=True),
    "argwhere": lambda t, x: t.argwhere(x > 2),
    "where": lambda t, x: t.where(x > 2, x, -x),
    "where condition": lambda t, x: t.where(x > 2),
    "cat": lambda t, x: t.cat([x, x * 2, x[:, :1]], dim=-1),
    "cat promotes": lambda t, x: t.cat([x, t.ones(1, 3, dtype=t.int64)]),
    "cat skips empty vectors": lambda t, x: t.cat([t.ones(0), x]),
    "stack": lambda t, x: t.stack([x, x + 1], -1),
    "hstack": lambda t, x: t.hstack([x[0], x[1]]),
    "vstack": lambda t, x: t.vstack([x[0], x]),
    "dstack": lambda t, x: t.dstack([x, x]),
    "column_stack": lambda t, x: t.column_stack([x, x[:, 0]]),
    "atleast": lambda t, x: t.atleast_3d(x[0], x),
    "repeat": lambda t, x: x.repeat(2, 1, 2),
    "repeat once": lambda t, x: x.repeat(1, 1),
    "tile": lambda t, x: x.tile((2,)),
    "repeat_interleave": lambda t, x: x.repeat_interleave(2),
    "repeat_interleave dim": lambda t, x: x.repeat_interleave(3, dim=1),
    "repeat_interleave counts": lambda t, x: x.repeat_interleave(t.tensor([1, 0, 2]), dim=1),
    "flip": lambda t, x: x.flip(0, -1),
    "fliplr": lambda t, x: t.fliplr(x),
    "flipud": lambda t, x: t.flipud(x),
    "roll": lambda t, x: x.roll(2),
    "roll dims": lambda t, x: x.roll((1, -4), (0, 1)),
    "rot90": lambda t, x: t.rot90(x, -1),
    "searchsorted": lambda t, x: t.searchsorted(x[1], x, right=True),
    "bucketize": lambda t, x: t.bucketize(x, t.tensor([1.0, 3.0], dtype=x.dtype), out_int32=True),
    "isin": lambda t, x: t.isin(x, t.tensor([1.0, 4.0])),
    "cartesian_prod": lambda t, x: t.cartesian_prod(x[0], x[1]),
    "combinations": lambda t, x: t.combinations(x[0], 2, with_replacement=True),
    "slice_scatter": lambda t, x: x.slice_scatter(x[:, :2] * 3, 1, 0, 3, 2),
    "select_scatter": lambda t, x: x.select_scatter(x[:, 0] * 3, 1, -1),
    "diagonal_scatter": lambda t, x: x.diagonal_scatter(x[0, :2] * 3, 1),
}


@pytest.mark.parametrize("name", MOVES)
def test_moving_elements(agrees, name):
    agrees(MOVES[name], M)


@pytest.mark.parametrize("fn", [
    lambda t, x: x.gather(0, t.tensor([0, 0])), lambda t, x: x.index_select(0, t.tensor([0])), lambda t, x: x.take(t.tensor(0)),
    lambda t, x: x.flip(()), lambda t, x: x.repeat(3), lambda t, x: t.stack([x, x]), lambda t, x: x.nonzero(as_tuple=True),
    lambda t, x: x.scatter(0, t.tensor([0]), 3.0), lambda t, x: x.roll(1), lambda t, x: x.masked_select(x > 0)])
def test_zero_dimensions(agrees, fn):
    agrees(fn, np.array(2.5))


IN_PLACE = {
    "fill_": lambda t, x: x.fill_(4),
    "zero_": lambda t, x: x.zero_(),
    "fill_diagonal_": lambda t, x: x.fill_diagonal_(2),
    "scatter_": lambda t, x: x.scatter_(1, t.tensor(ROWS), 5.0),
    "scatter_add_": lambda t, x: x.scatter_add_(1, t.tensor(ROWS), t.ones(2, 2, dtype=x.dtype)),
    "index_add_": lambda t, x: x.index_add_(0, t.tensor([1]), t.ones(1, 3, dtype=x.dtype)),
    "index_copy_": lambda t, x: x.index_copy_(0, t.tensor([1]), t.ones(1, 3, dtype=x.dtype)),
    "index_fill_": lambda t, x: x.index_fill_(1, t.tensor([1]), 3),
    "index_put_": lambda t, x: x.index_put_((t.tensor([1, 1]),), t.tensor(2.0, dtype=x.dtype), accumulate=True),
    "masked_fill_": lambda t, x: x.masked_fill_(x > 1, 0),
    "masked_scatter_": lambda t, x: x.masked_scatter_(x > 1, t.arange(9.0, dtype=x.dtype)),
    "put_": lambda t, x: x.put_(t.tensor([1, 2]), t.ones(2, dtype=x.dtype)),
    "copy_": lambda t, x: x.copy_(t.arange(3)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(agrees, name):
    agrees(lambda t, x: [y := x * 2, IN_PLACE[name](t, y), y][1:], M)


@pytest.mark.parametrize("fn", [
    lambda t, x: t.cat([]), lambda t, x: t.cat([x, x[0]]), lambda t, x: t.cat([x, x[:, :1]]), lambda t, x: t.cat([1]),
    lambda t, x: t.stack([x, x[0]]), lambda t, x: t.stack([]), lambda t, x: t.cat([x[0, 0], x[0, 0]]),
    lambda t, x: x.gather(0, t.tensor([[5]])), lambda t, x: x.gather(0, t.tensor([[-1]])), lambda t, x: x.gather(0, x),
    lambda t, x: x.gather(0, t.tensor([0])), lambda t, x: x.index_select(0, t.tensor([9])), lambda t, x: x.take(t.tensor([9])),
    lambda t, x: x.index_select(0, t.tensor([[0]])), lambda t, x: x.scatter(0, t.tensor([[9]]), 1.0), lambda t, x: x.repeat(2),
    lambda t, x: x.flip(5), lambda t, x: x.masked_select(t.ones(4, dtype=t.bool)), lambda t, x: x.roll((1, 2), (0,)),
    lambda t, x: x.scatter(0, t.tensor([[0]]), t.ones(1, 1, dtype=t.int64)),
    lambda t, x: x.index_add(0, t.tensor([0]), t.ones(1, 3, dtype=t.int64)), lambda t, x: x.masked_fill(x, 0),
    lambda t, x: x.slice_scatter(t.ones(5, 5)), lambda t, x: x.fill_(t.ones(2))])
def test_refused(both_refuse, fn):
    both_refuse(fn, M)


# -- view_scatter: the functional form of writing through a view --------------------------------------------------
CHAINS = {
    "select": [(prims.select, (1, 2))],
    "slice": [(prims.slice_, (2, 1, 4, 2))],
    "permute then slice": [(prims.permute, ((2, 0, 1))), (prims.slice_, (0, 1, 3, 1))],
    "view then select": [(prims.view_, ((6, 4),)), (prims.select, (0, 4))],
    "diagonal": [(prims.diagonal, (1, 1, 2))],
    "unsqueeze, squeeze": [(prims.unsqueeze, (1,)), (prims.squeeze, ((1,),)), (prims.select, (0, 0))],
    "alias": [(prims.alias, ())],
    "as_strided": [(prims.as_strided, ((2, 2), (5, 1), 3))],
}
CHAINS["permute then slice"][0] = (prims.permute, ((2, 0, 1),))


@pytest.mark.parametrize("name", CHAINS)
def test_view_scatter_is_a_write_through_the_view(name):
    x = fl.tensor(X)
    view = written = x.clone()
    for prim, attrs in CHAINS[name]:
        view = prim(view, *attrs)
    value = fl.tensor(RNG.standard_normal(tuple(view.shape)))
    functional = view_scatter(x, tuple(CHAINS[name]), value)
    view.copy_(value)
    assert fl.equal(functional, written)
    assert fl.equal(x, fl.tensor(X))


@pytest.mark.parametrize("name", CHAINS)
def test_view_scatter_gradients(name):
    x = fl.tensor(X, requires_grad=True)
    view = x
    for prim, attrs in CHAINS[name]:
        view = prim(view, *attrs)
    value = fl.tensor(RNG.standard_normal(tuple(view.shape)), requires_grad=True)
    assert fl.autograd.gradcheck(lambda a, b: view_scatter(a, tuple(CHAINS[name]), b), (x, value))


LARGE = {
    "gather": lambda t, x, i: x.gather(1, i),
    "scatter_add": lambda t, x, i: x.scatter_add(1, i, x[:30, :1100].repeat(1, 2)),
    "amax": lambda t, x, i: x.scatter_reduce(1, i, x[:30, :1100].repeat(1, 2), "amax"),
    "index_add": lambda t, x, i: x.index_add(1, i[0], x.repeat(1, 2)[:, :1200]),
    "index_select": lambda t, x, i: x.index_select(1, i[0]),
}


@pytest.mark.parametrize("kind", ["float64", "float32", "bfloat16", "int64", "complex64"])
@pytest.mark.parametrize("name", LARGE)
def test_large_arrays(name, kind):
    """Through the generated loops, against NumPy's in f64: the same program on small pieces would not reach them."""
    if name == "amax" and kind == "complex64":
        pytest.skip("complex numbers have no order")
    rng = np.random.default_rng(0)
    x, i = fl.tensor(rng.integers(-8, 8, (40, 1000))), fl.tensor(rng.integers(0, 1000, (30, 1200)))
    got = LARGE[name](fl, x.to(getattr(fl, kind)), i)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(primitives, "SMALL", 1 << 30)
        want = LARGE[name](fl, x, i)
    np.testing.assert_array_equal(got.to(fl.complex128).numpy(), want.to(fl.complex128).numpy())


@pytest.mark.parametrize("kind", ["float64", "float32", "bfloat16", "float16", "int64", "uint8"])
@pytest.mark.parametrize("reduce", ["prod", "amax", "amin"])
def test_large_arrays_are_combined_by_loops(reduce, kind, monkeypatch):
    rng = np.random.default_rng(0)
    x, src = (fl.tensor(rng.integers(0, 4, shape)).to(getattr(fl, kind)) for shape in ((40, 1000), (30, 1200)))
    if x.dtype.is_floating_point:
        src[0, 0], src[3, 5], x[7, 7] = np.nan, np.inf, -np.inf
    i = fl.tensor(rng.integers(0, 1000, (30, 1200)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(primitives, "SMALL", 1 << 30)
        want = x.scatter_reduce(1, i, src, reduce)
    monkeypatch.setattr(prims.indexing, "SCATTERED_BY", {})
    np.testing.assert_array_equal(x.scatter_reduce(1, i, src, reduce).to(fl.float64).numpy(), want.to(fl.float64).numpy())
    fl.compiler.reset()
    compiled = fl.compile(lambda x, i, src: x.scatter_reduce(1, i, src, reduce))(x, i, src)
    np.testing.assert_array_equal(compiled.to(fl.float64).numpy(), want.to(fl.float64).numpy())


PUT_LARGE = {
    "rows": (slice(None), lambda i: (i[:, 0],)), "columns": (slice(None), lambda i: (None, i[0])),
    "negative": (slice(None), lambda i: (i[0] - 40,)),
    "elements": (slice(None), lambda i: (i, i.T)), "apart": (slice(None), lambda i: (i, None, i.T)),
    "strided": ((slice(None), slice(None, None, 2)), lambda i: (None, i[0] % 5)), "broadcast": (slice(None), lambda i: (i[:, :1], i[:1]))}


@pytest.mark.parametrize("kind", ["float64", "float32", "bfloat16", "int64"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("name", PUT_LARGE)
def test_large_arrays_are_written_by_loops(name, accumulate, kind, monkeypatch):
    """index_put_ and reading, against NumPy's own loops, and (the generated ones being what is meant) without them."""
    rng = np.random.default_rng(0)
    basic, indices = PUT_LARGE[name][0], PUT_LARGE[name][1](rng.integers(0, 40, (40, 40)))
    full = tuple(slice(None) if i is None else i for i in indices)
    x = rng.integers(-4, 5, (40, 40, 40) if name in ("apart",) else (40, 40, 60)).astype(bool if kind == "bool" else np.int64)
    wanted = x.copy()
    values = rng.integers(-4, 5, wanted[basic][full].shape).astype(x.dtype)
    if accumulate:
        np.add.at(wanted[basic], full, values)
    else:
        wanted[basic][full] = values
    got, held = (fl.tensor(a).to(getattr(fl, kind)) for a in (x, values))
    places = tuple(None if i is None else fl.tensor(i) for i in indices)
    before = got.clone()
    if name not in ("strided",) and (accumulate or indices[0] is None):
        monkeypatch.setattr(prims.indexing, "_put_by_numpy", None)
    got[basic].index_put_(places, held, accumulate)
    np.testing.assert_array_equal(got.to(fl.float64).numpy(), wanted)
    again = fl.index_put(before[basic], places, held, accumulate)
    np.testing.assert_array_equal(again.to(fl.float64).numpy(), wanted[basic])
    read = before[basic][tuple(slice(None) if i is None else i for i in places)]
    np.testing.assert_array_equal(read.to(fl.float64).numpy(), x[basic][full])


@pytest.mark.parametrize("shape", [(1024, 1024), (64, 3, 70), (5,), (), (0, 3), (3, 0)])
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16", "int8", "bool", "complex64"])
def test_nonzero_and_masked_select(agrees, kind, shape):
    x = np.random.default_rng(0).integers(0, 2, shape) * 3
    agrees(lambda t, x: (t.nonzero(x.to(getattr(t, kind))), t.masked_select(x, x > 1)), np.asarray(x), grad=False)
    got = fl.nonzero(fl.tensor(x.T).to(getattr(fl, kind)))
    np.testing.assert_array_equal(got.numpy(), np.argwhere(x.T))


@pytest.mark.parametrize("stray", [1000, -1])
@pytest.mark.parametrize("name", ["gather", "index_add", "index_select"])
def test_large_arrays_and_an_index_that_is_out_of_range(name, stray):
    i = fl.zeros(30, 1200, dtype=fl.int64)
    i[0, 7] = stray
    with pytest.raises((IndexError, RuntimeError), match=str(stray)):
        LARGE[name](fl, fl.zeros(40, 1000), i)


def test_resize_keeps_the_storage():
    x = fl.arange(6.0)
    x.resize_(2, 2)
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    x.resize_(8)
    assert x[:6].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_small_writes_do_not_touch_the_rest():
    x = fl.zeros(1000, 10)
    version = x._version
    x[fl.tensor([3, 5])] = 1.0
    assert x.sum().item() == 20
    assert x._version == version + 1


def test_views_share_memory():
    x = fl.zeros(3, 4)
    x[1:, ::2][0, 1] = 5
    assert x[1, 2].item() == 5
    assert x[1]._base is x


@pytest.mark.parametrize("fn", [
    lambda t, x: t.put(x, t.tensor([99]), x[0, :1]), lambda t, x: t.put(x, t.tensor([0]), x[0, :2]),
    lambda t, x: t.put(x, t.tensor([0.0]), x[0, :1]), lambda t, x: t.put(x, t.tensor([0]), t.tensor([1])),
    lambda t, x: t.nonzero_static(x, size=-1), lambda t, x: x.clone().as_strided_((9, 9), (9, 2), 1)])
def test_put_and_its_kin_refuse(both_refuse, fn):
    both_refuse(fn, M)


@pytest.mark.parametrize("fn", [
    lambda t, x: x.swapaxes_(0, 1), lambda t, x: x.swapdims_(0, -1), lambda t, x: x.as_strided_((2, 2), (1, 2), 1),
    lambda t, x: t.as_strided_(x, (2,), (1,)), lambda t, x: t.resize_as_(x.detach(), x.detach()[:1])])
def test_views_in_place(agrees, fn):
    agrees(lambda t, x: fn(t, x.clone()), M)


def test_methods_that_are_functions_too():
    x = fl.tensor(M, requires_grad=True)
    assert fl.is_signed(x) and not fl.is_signed(x.byte()) and not fl.is_conj(x) and not fl.is_neg(x) and fl.get_device(x) == -1
    x.record_stream(None)  # nothing to wait for on a CPU
    y = x * 2
    assert fl.detach_(y) is y and not y.requires_grad
    compiled = fl.compile(lambda x: x * fl.is_signed(x) + fl.detach_(x * 2), backend="aot_eager")
    np.testing.assert_allclose(compiled(x.detach()).numpy(), M * 3)


def test_memory_is_kept_for_a_stream_until_its_work_is_done():
    class Mark:
        done = False

    class Queue:
        def record(self):
            return mark

    mark, kept = Mark(), facts._in_use
    kept.clear()
    facts._until_done(Queue(), "memory")
    facts._until_done(Queue(), "other memory")
    assert [memory for _, memory in kept] == ["memory", "other memory"]
    mark.done = True
    mark = Mark()
    facts._until_done(Queue(), "third")
    assert [memory for _, memory in kept] == ["third"]
    kept.clear()


def test_map2(agrees):
    agrees(lambda t, x: x.clone().map2_(x, x[0], lambda a, b, c: a + b * c), M, grad=False)


@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16", "float16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("count", [0, 3, 40])
def test_isin_of_few_and_of_many(kind, count):
    rng = np.random.default_rng(0)
    x, tests = (rng.integers(0, 60, n).astype(np.float64) for n in (500, count))
    if "float" in kind:
        x[:3], tests[:2] = (np.nan, np.inf, -0.0), (np.nan, 0.0)[:count]
    x, tests = (fl.tensor(a).to(getattr(fl, kind)) for a in (x, tests))
    want = np.isin(x.to(fl.float64).numpy(), tests.to(fl.float64).numpy())
    np.testing.assert_array_equal(fl.isin(x, tests.reshape(-1, 1)).numpy(), want)
    np.testing.assert_array_equal(fl.isin(x.reshape(5, 100), tests, invert=True).numpy(), ~want.reshape(5, 100))


NUMBERS = {
    "index_add": lambda t: t.tensor(2.0).index_add(0, t.tensor(0), t.tensor(1.0)),
    "index_add_": lambda t: t.tensor(2.0).index_add_(-1, t.tensor([0]), t.tensor(1.0), alpha=3),
    "index_copy": lambda t: t.tensor(2.0).index_copy(0, t.tensor([0]), t.tensor([5.0])),
    "index_copy of a number": lambda t: t.tensor(2.0).index_copy(-1, t.tensor(0), t.tensor(5.0)),
    "index_fill_": lambda t: t.tensor(2.0).index_fill_(0, t.tensor([0]), 3),
    "index_reduce": lambda t: t.tensor(2.0).index_reduce(0, t.tensor(0), t.tensor(4.0), "prod"),
    "index_reduce of a vector by a number": lambda t: t.tensor([2.0, 1.0]).index_reduce(0, t.tensor(1), t.tensor([4.0]), "amax"),
    "movedim": lambda t: t.tensor(2.0).movedim(0, -1),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_numbers_are_vectors_of_one(agrees, name):
    agrees(NUMBERS[name])


WRONG_SLICES = {
    "one slice for two": lambda t: t.zeros(3, 2).index_copy(0, t.tensor([0, 2]), t.ones(1, 2)),
    "a vector for rows": lambda t: t.zeros(3, 2).index_copy(0, t.tensor([0, 2]), t.ones(2)),
    "rows too short": lambda t: t.zeros(3, 2).index_add(0, t.tensor([0, 2]), t.ones(2, 1)),
    "two indices, one value": lambda t: t.zeros(3).index_reduce(0, t.tensor([1, 2]), t.tensor([1.0]), "prod"),
    "a matrix of indices": lambda t: t.zeros(3).index_copy(0, t.tensor([[1, 2]]), t.ones(2)),
    "a number, two indices": lambda t: t.tensor(0.0).index_add(0, t.tensor([0, 0]), t.tensor(1.0)),
}


@pytest.mark.parametrize("name", [n for n in WRONG_SLICES if n != "a number, two indices"])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_wrong_slices_are_refused(both_refuse, name):
    both_refuse(WRONG_SLICES[name])


def test_a_number_takes_one_index():
    with pytest.raises(IndexError, match="source tensor shape"):
        WRONG_SLICES["a number, two indices"](fl)


# -- gradients of products by index, and of what overwrites all --------------------------------------------------------------------
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("method", ["scatter_reduce", "index_reduce"])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_products_are_the_products_of_the_others(method, include_self, compiled):
    """Also where one factor is zero, or several are."""
    at = [0, 0, 1, 0]

    def work(x, s):
        return getattr(x, method)(0, fl.tensor(at), s, "prod", include_self=include_self)
    call = fl.compile(work) if compiled else work
    for xs in ([2.0, 3.0, 4.0], [0.0, 3.0, 4.0]):
        for ss in ([5.0, 6.0, 7.0, 2.0], [0.0, 6.0, 7.0, 2.0], [0.0, 6.0, 0.0, 2.0], [0.0, 0.0, 7.0, 2.0]):
            x, s = (fl.tensor(v, dtype=fl.float64, requires_grad=True) for v in (xs, ss))
            got = fl.autograd.grad(call(x, s), [x, s], fl.tensor([1.0, 2.0, 3.0], dtype=fl.float64))
            hit = [x_ * (k not in at or include_self) for k, x_ in enumerate([1.0, 1.0, 1.0])]
            for k in range(3):
                others = [v for v, a in zip(ss, at) if a == k]
                assert got[0][k] == hit[k] * math.prod(others) * (k + 1)
            for j, k in enumerate(at):
                others = [v for i, (v, a) in enumerate(zip(ss, at)) if a == k and i != j] + [xs[k]] * include_self
                assert got[1][j] == math.prod(others) * (k + 1)


@pytest.mark.parametrize("overwrite", [lambda x: fl.fill(x, 2.0), lambda x: fl.fill(x, fl.tensor(2.0)), lambda x: fl.matrix_power(x, 0)])
def test_what_does_not_look_at_its_input_has_a_gradient_of_zeros(overwrite):
    x = fl.randn(3, 3, requires_grad=True)
    made = overwrite(x)
    assert made.requires_grad and fl.equal(fl.autograd.grad(made.sum(), x)[0], fl.zeros(3, 3))


def test_nextafter_moves_with_its_input():
    x, y = fl.tensor([1.0, 2.0, 0.5], requires_grad=True), fl.tensor([3.0, 2.0, -1.0], requires_grad=True)
    got = fl.autograd.grad(fl.nextafter(x, y).sum(), [x, y])
    assert [g.tolist() for g in got] == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]    # torch's: where they are equal, of neither


@pytest.mark.parametrize("wrap", [False, True])
def test_fill_diagonal_of_all_shapes_and_layouts(wrap):
    torch = pytest.importorskip("torch")
    for shape in ((3, 3), (2, 4), (4, 2), (7, 3), (8, 3), (9, 2), (5, 1), (4, 0), (0, 4), (3, 3, 3), (2, 2, 2, 2)):
        want = torch.zeros(shape).fill_diagonal_(3.0, wrap).tolist()    # of permuted ones it wraps wrongly
        for mine in (fl.zeros(shape), fl.zeros(shape[::-1]).permute(*range(len(shape))[::-1]), fl.zeros(*shape, 2)[..., 1]):
            assert mine.fill_diagonal_(3.0, wrap).tolist() == want, shape
    x = fl.ones(7, 3, requires_grad=True)
    assert fl.autograd.grad((x * 1).t().fill_diagonal_(0.0).sum(), x)[0].sum() == 21 - 3


def test_what_is_all_overwritten_has_a_gradient_of_zeros():
    x, s = fl.randn(4, 3, requires_grad=True), fl.randn(4, 3, requires_grad=True)
    for made in (fl.slice_scatter(x, s), fl.slice_scatter(x, s, 1, 0, 9)):
        assert made.data_ptr() != s.data_ptr() and [g.sum().item() for g in fl.autograd.grad(made.sum(), [x, s])] == [0, 12]
    nothing = fl.zeros(0, requires_grad=True)
    made = x.masked_scatter(fl.zeros(3, dtype=fl.bool), nothing)
    assert [g.sum().item() for g in fl.autograd.grad(made.sum(), [x, nothing])] == [12, 0]


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [False, True])
def test_scatter_reduce_of_truth_values(agrees, reduce, include_self):
    x, s = np.array([True, False, True, False]), np.array([False, False, True, True])
    agrees(lambda t, x, s: x.scatter_reduce(0, t.tensor([0, 0, 1, 3]), s, reduce, include_self=include_self), x, s)


def test_an_overwritten_number_is_saved_for_its_gradient():
    """Though the operator looks at it as a vector of one."""
    for reduce in ("amin", "amax", "prod"):
        x, s = fl.tensor([2.0, 3.0]), fl.tensor(0.5, requires_grad=True)
        made = x[1].scatter_reduce_(0, fl.tensor(0), s, reduce)
        want = fl.tensor(3.0).scatter_reduce(0, fl.tensor(0), s, reduce)
        assert fl.equal(*(fl.autograd.grad(out, s)[0] for out in (made, want)))


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", ["index_add", "index_copy", "index_reduce"])
def test_of_several_mistakes_the_first_is_told(name):
    """Dimension, rank of the index, dtypes, shapes: whatever else is wrong."""
    torch = pytest.importorskip("torch")
    shapes = ((3, 4), (), (3,), (1,))
    for (shape, dim, index, given), kinds in itertools.product(
            itertools.product(shapes, (0, 1, 5), ([0, 0], [0], [], [[0]], 0), (*shapes, (2, 4), (2,), (2, 3), (0, 4), (1, 4))),
            (("float32", "int64", "float32"), ("float32", "float32", "int64"), ("bool", "int32", "float32"))):
        for more in ((("prod",), ("best",)) if name == "index_reduce" else ((),)):
            made = []
            for t in (fl, torch):
                x, i, source = (make(getattr(t, kind)) for make, kind in zip((
                    lambda d, t=t: t.zeros(shape, dtype=d), lambda d, t=t: t.tensor(index, dtype=d),
                    lambda d, t=t: t.zeros(given, dtype=d)), kinds))
                try:
                    made.append(tuple(getattr(x, name)(dim, i, source, *more).shape))
                except (RuntimeError, IndexError) as error:
                    made.append(type(error))
            assert made[0] == made[1], (shape, dim, index, given, kinds, more)


BY_NAME = {
    "index_add": lambda t: dict(source=t.ones(2, 1)), "index_copy": lambda t: dict(source=t.ones(2, 1)),
    "index_fill": lambda t: dict(value=7), "index_reduce": lambda t: dict(source=t.ones(2, 1), reduce="amax"),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("positional", [0, 1, 2])
@pytest.mark.parametrize("ending", ["", "_"])
def test_indices_and_slices_by_name(name, positional, ending):
    """Every argument along a dimension may be given by its name."""
    torch = pytest.importorskip("torch")
    found = []
    for lib in (fl, torch):
        given = dict(dim=1, index=lib.tensor([1]), **BY_NAME[name](lib))
        first = [given.pop(key) for key in ("dim", "index")[:positional]]
        found.append(getattr(lib.zeros(2, 3), name + ending)(*first, **given).tolist())
    assert found[0] == found[1]


def test_missing_slices_are_told_of():
    for name in ("index_add", "index_copy", "index_fill"):
        with pytest.raises(TypeError, match=r"source|value"):
            getattr(fl, name)(fl.zeros(2, 3), 1, fl.tensor([1]))


def test_values_added_over_an_index_of_several_dimensions():
    """They are broadcast, and nothing beside them is read."""
    rng = np.random.default_rng(0)
    for sizes in ((2, 3), (3, 1), (2, 2, 3)):
        for shape in (sizes[-1:], (1,), (), sizes):
            x, index, values = rng.integers(-9, 9, 4), rng.integers(-4, 4, sizes), rng.integers(-9, 9, shape)
            want = x.copy()
            for i, v in zip(index.reshape(-1), np.broadcast_to(values, sizes).reshape(-1)):
                want[i] += v
            got = fl.from_numpy(x.copy())
            assert got.index_put((fl.from_numpy(index),), fl.from_numpy(values), accumulate=True).tolist() == want.tolist()
            assert got.index_put_((fl.from_numpy(index),), fl.from_numpy(values), accumulate=True).tolist() == want.tolist()


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64", "complex64", "int64", "uint8", "bool"])
def test_index_put_at_indices_without_dimensions(kind, accumulate):
    """Every shape of values at one place of tensors of 1 to 3 dimensions, in place, anew and recorded: what torch makes, or its refusal."""
    def results(t, shape, depth, values):
        index, given = tuple(t.tensor(1) for _ in range(depth)), t.ones(values).to(getattr(t, kind))
        def zeros(grad=False):
            return t.zeros(shape, dtype=getattr(t, kind), requires_grad=grad)
        ways = [lambda: zeros().index_put_(index, given, accumulate=accumulate), lambda: zeros().index_put(index, given, accumulate)]
        if zeros().is_floating_point():
            ways.append(lambda: zeros(True).clone().index_put_(index, given, accumulate).detach())
        for way in ways:
            try:
                yield way().to(t.complex128).tolist()
            except (RuntimeError, IndexError) as error:
                yield type(error).__name__

    torch = pytest.importorskip("torch")
    for shape, depth in (((3,), 1), ((3, 2), 1), ((3, 2), 2), ((3, 2, 2), 2)):
        for values in ((), (1,), (1, 1), (2,), (1, 2), (3,)):
            assert list(results(fl, shape, depth, values)) == list(results(torch, shape, depth, values)), (shape, depth, values)


STRIDED = {"as_strided": lambda t, x, *way: x.as_strided(*way), "as_strided_": lambda t, x, *way: (x * 1).as_strided_(*way),
           "as_strided_copy": lambda t, x, *way: t.as_strided_copy(x, *way), "empty_strided": lambda t, x, *way: t.empty_strided(*way),
           "as_strided_scatter": lambda t, x, *way: x.as_strided_scatter(t.ones(way[0]), *way),
           "new_empty_strided": lambda t, x, *way: x.new_empty_strided(*way)}


@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize("way", [((1, 2), ()), ((), (1,)), ((2,), (1, 1)), ((2, 1), (1,))])
def test_each_size_has_a_stride(both_refuse, name, way):
    both_refuse(lambda t, x: STRIDED[name](t, x.flatten(), *way), M)
