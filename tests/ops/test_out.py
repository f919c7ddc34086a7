"""`out=`: the elements of the tensor given are written, and nothing around them."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fl

# Factories of numbers in a row, which an `out=` of as many elements takes in its own shape.
LINES: dict[str, Callable] = {
    "arange": lambda lib, out: lib.arange(6, out=out), "arange by halves": lambda lib, out: lib.arange(1, 4, 0.5, out=out),
    "linspace": lambda lib, out: lib.linspace(0, 5, 6, out=out), "logspace": lambda lib, out: lib.logspace(0, 1, 6, out=out),
    "range": lambda lib, out: lib.range(0, 5, out=out),
}
OTHERS: dict[str, Callable] = {
    "zeros": lambda lib, out: lib.zeros(2, 3, out=out), "ones": lambda lib, out: lib.ones(2, 3, out=out),
    "full": lambda lib, out: lib.full((2, 3), 7, out=out), "eye": lambda lib, out: lib.eye(2, 3, out=out),
    "add": lambda lib, out: lib.add(lib.ones(2, 3), 2, out=out), "exp": lambda lib, out: lib.exp(lib.zeros(2, 3), out=out),
    "mm": lambda lib, out: lib.mm(lib.ones(2, 4), lib.ones(4, 3), out=out), "cat": lambda lib, out: lib.cat([lib.ones(1, 3)] * 2, out=out),
    "sum": lambda lib, out: lib.sum(lib.ones(2, 3, 2), 2, out=out), "cumsum": lambda lib, out: lib.cumsum(lib.ones(2, 3), 1, out=out),
    "clamp": lambda lib, out: lib.clamp(lib.ones(2, 3), 0, 0.5, out=out), "tril": lambda lib, out: lib.tril(lib.ones(2, 3), out=out),
    "softmax": lambda lib, out: lib.softmax(lib.ones(2, 3), 1, out=out),
    "log_softmax": lambda lib, out: lib.log_softmax(lib.ones(2, 3), 1, lib.float32, out=out),
    "threshold": lambda lib, out: lib.threshold(lib.ones(2, 3), 2.0, 3.0, out=out),
    "bernoulli": lambda lib, out: lib.bernoulli(lib.ones(2, 3), out=out),
    "index_copy": lambda lib, out: lib.index_copy(lib.ones(2, 3), 0, lib.tensor([1]), lib.zeros(1, 3), out=out),
    **{name: lambda lib, out, name=name, shape=shape, args=args: getattr(lib, name)(lib.ones(shape), *args, out=out)
       for name, shape, args in (
           ("view_copy", (6,), ((2, 3),)), ("expand_copy", (1, 3), ((2, 3),)), ("permute_copy", (3, 2), ((1, 0),)), ("t_copy", (3, 2), ()),
           ("transpose_copy", (3, 2), (0, 1)), ("squeeze_copy", (2, 1, 3), ()),
           ("select_copy", (2, 4, 3), (1, 0)), ("diagonal_copy", (2, 3, 3), (0, 1, 2)), ("detach_copy", (2, 3), ()),
           ("as_strided_copy", (6,), ((2, 3), (3, 1))), ("unfold_copy", (4,), (0, 3, 1)), ("slice_copy", (4, 3), (0, 1, 3)))},
    "gather": lambda lib, out: lib.gather(lib.ones(4, 3), 0, lib.tensor([[0, 1, 1], [0, 0, 0]]), out=out),
}


def rows(lib: Any) -> tuple:
    room = lib.full((4, 6), 63.0)
    return room, room[::2, ::2]


def inner(lib: Any) -> tuple:
    room = lib.full((4, 5), 63.0)
    return room, room[1:-1, 1:-1]


def columns(lib: Any) -> tuple:
    room = lib.full((3, 2), 63.0)
    return room, room.t()


def call(lib: Any, fn: Callable, out: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fn(lib, out)


@pytest.mark.parametrize("view", [rows, inner, columns])
@pytest.mark.parametrize("name", [*LINES, *OTHERS])
def test_nothing_around_a_view_is_written(name: str, view: Callable) -> None:
    torch = pytest.importorskip("torch", reason="torch is the oracle of this test")
    fn, found = (LINES | OTHERS)[name], []
    for lib in (fl, torch):
        room, out = view(lib)
        assert call(lib, fn, out) is out
        found.append((room.tolist(), tuple(out.shape), out.stride()))
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:torch.range")
@pytest.mark.parametrize("name", [*LINES, *OTHERS])
def test_another_shape(name: str) -> None:
    fn = (LINES | OTHERS)[name]
    expected = call(fl, fn, None)
    empty = fl.empty(0)
    assert fl.equal(call(fl, fn, empty), expected.to(fl.float32))
    with pytest.warns(UserWarning, match="resized"):
        assert fl.equal(fn(fl, fl.zeros(4, 4)), expected.to(fl.float32))
    room = fl.full((9,), 63.0)
    call(fl, fn, room[2:7])     # a view reaches further into its storage
    assert fl.equal(room[2:8].reshape(expected.shape), expected.to(fl.float32)) and room[[0, 1, 8]].tolist() == [63.0] * 3
    small = fl.full((7,), 63.0)
    with pytest.raises(RuntimeError, match="doesn't fit into the storage"):
        call(fl, fn, small[2:7])
    assert small.tolist() == [63.0] * 7


@pytest.mark.parametrize("name", [*LINES, "zeros", "full", "eye"])
def test_factories_make_the_dtype_of_out(name: str) -> None:
    for kind in (fl.float64, fl.float16, fl.int64):
        if kind is fl.int64 and name == "arange by halves":
            continue    # a step that an integer dtype rounds to 0
        out = fl.empty(0, dtype=kind)
        assert call(fl, (LINES | OTHERS)[name], out).dtype is kind
    assert fl.equal(fl.logspace(0, 1, 6, out=fl.empty(0, dtype=fl.float64)), fl.logspace(0, 1, 6, dtype=fl.float64))
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        fl.zeros(3, dtype=fl.float32, out=fl.zeros(3, dtype=fl.float64))


@pytest.mark.parametrize("name", OTHERS)
def test_what_needs_a_gradient_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        OTHERS[name](fl, fl.zeros(2, 3, requires_grad=True))


def test_operands_may_be_written_over() -> None:
    x = fl.arange(6.0)
    assert fl.add(x[:5], x[1:], out=x[1:]) is not None and x.tolist() == [0, 1, 3, 5, 7, 9]


def test_a_tensor_of_its_own_size_is_not_resized() -> None:
    x = fl.arange(6.0).view(2, 3).t()
    assert x.resize_(3, 2).stride() == (1, 3)


@pytest.mark.parametrize("name", ["sum", "prod", "nansum", "cumsum", "cumprod"])
def test_sums_and_products_are_computed_in_the_dtype_of_out(name: str) -> None:
    """Not in that of the elements, which may be too narrow for the result."""
    dim = (0,) if name != "sum" else ()
    cases = [([2**40, 2**40, 3], fl.int64, fl.float32), ([6e4, 6e4], fl.float16, fl.float32), ([1.5, 2.5], fl.float32, fl.int64)]
    for values, own, kind in cases[:2] if name == "nansum" else cases:     # of which NaN are no integers
        x = fl.tensor(values, dtype=own)
        out = fl.empty(0, dtype=kind)
        assert getattr(fl, name)(x, *dim, out=out) is out
        assert fl.equal(out, getattr(fl, name)(x, *dim, dtype=kind)) and out.dtype is kind
        assert fl.equal(out, getattr(fl, name)(x.to(kind), *dim))


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies_are_written(name: str) -> None:
    of = getattr(fl.fft, name)
    for kind in (fl.float32, fl.float64, fl.complex64):
        for out in (fl.empty(0, dtype=kind), fl.empty(len(of(6)), dtype=kind)):
            assert of(6, out=out) is out and out.equal(of(6, dtype=kind))
    with pytest.raises(RuntimeError, match="floating point or complex"):
        of(6, out=fl.empty(6, dtype=fl.int64))
    with pytest.raises(RuntimeError, match="does not match"):
        of(6, out=fl.empty(6), dtype=fl.float64)


def test_narrow_copy() -> None:
    """torch's own writes what lies behind such a view."""
    room, out = rows(fl)
    assert fl.narrow_copy(fl.ones(3, 3), 0, 1, 2, out=out) is out
    assert out.equal(fl.ones(2, 3)) and int((room == 1).sum()) == 6


def test_out_of_a_class_of_ones_own():
    """A class that leaves operators to the default has `out=` as a tensor has it."""
    class Own(fl.Tensor):
        pass

    for name, args in (("add", (fl.ones(2), 1)), ("exp", (fl.ones(2),)), ("eq", (fl.ones(2), 1)), ("logical_or", (fl.ones(2), fl.ones(2)))):
        expected = getattr(fl, name)(*args)
        out = fl.zeros(2, dtype=expected.dtype).as_subclass(Own)
        assert getattr(fl, name)(*args, out=out) is out and out.tolist() == expected.tolist()


def test_elementwise_operators_can_be_pickled():
    for name in ("add", "sub", "mul", "eq", "lt", "maximum", "neg", "exp", "relu", "logical_and", "bitwise_xor", "remainder", "abs", "div"):
        assert pickle.loads(pickle.dumps(getattr(fl, name))) is getattr(fl, name)


IN_ROWS: dict[str, Callable] = {
    "cholesky": lambda a, out: fl.cholesky(a, out=out), "cholesky upper": lambda a, out: fl.cholesky(a, True, out=out),
    "matrix_power": lambda a, out: fl.linalg.matrix_power(a, -1, out=out), "lu": lambda a, out: fl.lu(a, out=out)[0],
    "quantile": lambda a, out: fl.quantile(a, fl.tensor([0.1, 0.7]), dim=0, out=out),
    "nanquantile": lambda a, out: fl.nanquantile(a, fl.tensor([0.1, 0.7]), dim=0, out=out),
}


@pytest.mark.filterwarnings("ignore:torch.* is deprecated in favor of")
@pytest.mark.parametrize("name", IN_ROWS)
def test_an_empty_out_lies_in_rows_where_the_result_does_not(name):
    a = fl.eye(3) * 4 + 1
    given = (fl.empty(0), fl.empty(0, dtype=fl.int32)) if name == "lu" else fl.empty(0)
    made = IN_ROWS[name](a, given)
    assert made.is_contiguous() and not IN_ROWS[name](a, None).is_contiguous()
    fl.testing.assert_close(made, IN_ROWS[name](a, None))


@pytest.mark.parametrize("name,args", [("unbind_copy", (0,)), ("split_copy", (1, 0)), ("split_with_sizes_copy", ([1, 1], 0))])
def test_pieces_go_into_a_list_of_tensors(name, args):
    x = fl.arange(6.0).reshape(2, 3)
    out = [fl.empty(0), fl.empty(0)]
    assert getattr(fl, name)(x, *args, out=out) is None
    for a, b in zip(out, getattr(fl, name)(x, *args)):
        fl.testing.assert_close(a, b)
    with pytest.raises(RuntimeError, match="expected 2 tensors as out=, got 1"):
        getattr(fl, name)(x, *args, out=[fl.empty(0)])


def test_an_out_that_grows_into_an_argument_is_refused():
    memory = fl.tensor([0, 1, 2])
    out = memory.as_strided((1,), (1,), 0).detach()
    with pytest.warns(UserWarning, match="was resized"), pytest.raises(RuntimeError, match="single memory location"):
        fl.gather(fl.tensor([5, 6, 7]), 0, memory[1:], out=out)
