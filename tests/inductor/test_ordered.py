"""Sorting, selection, histograms and products of groups are native in compiled code, and give what eager gives."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau.core.dtypes import DTYPES

KINDS = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool", "bfloat16", "float16", "uint32", "uint64")
SHAPES = ((), (0, 3), (5,), (3, 70), (2, 3, 40), (900,), (4, 33, 2))


def compiled(fn, *args, dynamic=None):
    """What a function gives compiled, whole: nothing of it may go through Python."""
    fl._dynamo.reset()
    codes = fl._inductor.utils.run_and_get_code(fl.compile(fn, fullgraph=True, dynamic=dynamic), *args)
    assert not any("extern(steps" in code for code in codes[1])
    return codes[0]


def same(found, expected):
    for got, want in zip(found, expected, strict=True):
        assert got.dtype is want.dtype and got.shape == want.shape and got.stride() == want.stride()
        assert fl.equal(fl.nan_to_num(got.double(), 12345.0), fl.nan_to_num(want.double(), 12345.0))


def numbers(kind, shape):
    """Numbers of which some are equal; NaN, infinities and zeros of both signs among floats."""
    fl.manual_seed(0)
    x = (fl.randn(shape) * 20).abs().to(DTYPES[kind]) if kind.startswith("u") else (fl.randn(shape) * 20).round().to(DTYPES[kind])
    if x.dtype.is_floating_point and x.numel() > 4:
        x.view(-1)[:5] = fl.tensor([float("nan"), float("-inf"), -0.0, 0.0, float("inf")]).to(x.dtype)
        x.view(-1)[-1] = float("nan")
    return x


@pytest.mark.parametrize("kind", KINDS)
def test_sorts_and_selections_are_those_of_eager(kind):
    inputs = [numbers(kind, shape) for shape in SHAPES]

    def all_of_them(*xs):
        out = []
        for x in xs:
            for dim in range(-x.ndim, 0) or (-1,):
                for descending in (False, True):
                    out += fl.sort(x, dim=dim, descending=descending, stable=True)
                    n = x.shape[dim] if x.ndim else 1
                    out += [fl.topk(x, k, dim, descending)[0] for k in {0, min(n, 1), n // 9, n} if kind != "bool"]
            if x.ndim == 2:
                out += fl.sort(x.t(), 0, stable=True)
        return out

    same(compiled(all_of_them, *inputs), all_of_them(*inputs))


def test_places_of_the_largest_are_theirs():
    x = fl.randperm(4000, generator=fl.Generator().manual_seed(1)).view(4, 1000).float()
    fn = lambda x: (*fl.topk(x, 7), *fl.topk(x, 300, largest=False), *fl.topk(x.t(), 2, 0))
    same(compiled(fn, x), fn(x))
    same(compiled(fn, x[:, :900], dynamic=True), fn(x[:, :900]))


@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("edges", [(-2.0, 2.0), (0.0, 0.0), (3.0, 3.0), (-1e38, 1e38)])
def test_histograms_are_those_of_eager(kind, edges):
    x = fl.linspace(-4, 4, 500).to(DTYPES[kind])
    fn = lambda x: (fl.histc(x, 20, *edges),)
    same(compiled(fn, x), fn(x))


def test_a_histogram_without_a_range_raises_as_in_eager():
    x = fl.tensor([1.0, float("nan")])
    for fn in (lambda x: fl.histc(x, 4), fl.compile(lambda x: fl.histc(x, 4))):
        with pytest.raises(RuntimeError, match=r"range of \[nan, nan\] is not finite"):
            fn(x)


@pytest.mark.parametrize("ends", [[3, 3, 10, 12], [0, 0, 0, 0], [12, 12, 12, 12], [1, 2, 3, 4]])
def test_products_of_groups_are_those_of_eager(ends):
    fl.manual_seed(0)
    x, w, offs = fl.randn(12, 16), fl.randn(4, 16, 24), fl.tensor(ends, dtype=fl.int32)
    fn = lambda x, w, offs: (fl._grouped_mm(x, w, offs),)
    for dynamic in (False, True):
        assert fl.allclose(compiled(fn, x, w, offs, dynamic=dynamic)[0], fn(x, w, offs)[0], atol=1e-5)


def test_groups_that_end_nowhere_are_refused():
    x, w = fl.ones(4, 2), fl.ones(2, 2, 2)
    fn = fl.compile(lambda x, w, offs: fl._grouped_mm(x, w, offs))
    for ends in ([3, 2], [2, 9], [-1, 4]):
        with pytest.raises(RuntimeError, match="offs must not decrease, nor end behind the 4 that there are; got"):
            fn(x, w, fl.tensor(ends, dtype=fl.int32))
