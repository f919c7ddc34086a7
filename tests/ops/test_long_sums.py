"""Sums over many elements of one sign, or far from zero, against float64: eager, compiled, in every layout, in gradients."""

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as functional
from flambeau.core.tensor import from_array

SIZES = (10_000, 300_000)      # below and above what programs replay, and what generated kernels are for
DATA = {
    "one sign": lambda r, n: r.random(n),
    "constant": lambda r, n: np.full(n, 0.1),
    "offset": lambda r, n: 1e4 + r.standard_normal(n),
}
LAYOUTS = {
    "all": lambda x: (x, None),
    "last": lambda x: (x.reshape(4, -1), 1),
    "first": lambda x: (x.reshape(-1, 4), 0),
    "middle": lambda x: (x.reshape(2, -1, 5), 1),
    "leading": lambda x: (x.reshape(5, -1, 2), (0, 1)),
    "strided": lambda x: (x.reshape(-1, 2)[:, 0], 0),
    "strided rows": lambda x: (x.reshape(-1, 10)[:, :5], 0),
    "transposed": lambda x: (x.reshape(-1, 10).T, 1),
    "expanded": lambda x: (np.broadcast_to(x.reshape(-1, 1), (x.size, 3)), 0),
}
REDUCTIONS = {
    "sum": lambda x, d: x.sum(d), "mean": lambda x, d: x.mean(d), "var": lambda x, d: x.var(d), "std": lambda x, d: x.std(d),
    "norm": lambda x, d: fl.linalg.vector_norm(x, 2, d), "norm 3": lambda x, d: fl.linalg.vector_norm(x, 3, d),
    "nansum": lambda x, d: x.nansum(d), "l1_loss": lambda x, d: functional.l1_loss(x, x * 0.5),
    "mse_loss": lambda x, d: functional.mse_loss(x, x * 0.5),
}


def arrays(size, kind=np.float32):
    rng = np.random.default_rng(0)
    for data, make in DATA.items():
        x = make(rng, size).astype(kind)
        for layout, view in LAYOUTS.items():
            yield f"{data}, {layout}", *view(x)


def error(got, want) -> float:
    got, want = got.detach().double().numpy(), want.numpy()
    return float(np.abs(got - want).max() / np.abs(want).max())


@pytest.mark.parametrize(("name", "size"), [*((name, 10_000) for name in REDUCTIONS), ("sum", 300_000), ("mean", 300_000)])
def test_eager(name, size) -> None:
    for case, x, dim in arrays(size):
        if not (name in ("var", "std") and "constant" in case):
            got, want = (REDUCTIONS[name](from_array(y), dim) for y in (x, x.astype(np.float64)))
            assert error(got, want) < 2e-6, (case, error(got, want))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiled(layout) -> None:
    fl.compiler.reset()
    names = [n for n in REDUCTIONS if n != "norm 3"]
    graph = None
    for data, make in DATA.items():
        x, dim = LAYOUTS[layout](make(np.random.default_rng(0), 300_000).astype(np.float32))

        def works(x, dim=dim):
            return [REDUCTIONS[n](x, dim) for n in names]
        graph = graph or fl.compile(works)
        for name, got, want in zip(names, graph(from_array(x)), works(from_array(x.astype(np.float64))), strict=True):
            assert (name in ("var", "std") and data == "constant") or error(got, want) < 2e-6, (data, name, error(got, want))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "complex64", "int32"])
def test_other_dtypes(kind, size) -> None:
    x = np.tile(np.arange(8) % 3 + 1.0, size // 8)
    for layout, view in LAYOUTS.items():
        y, dim = view(x)
        t = from_array(y).to(getattr(fl, kind))
        for keyword in (None, fl.float64) if t.dtype.category < 3 else (None, fl.complex128):
            got = t.sum(dim, dtype=keyword)
            want = fl.tensor(y.sum(dim)).to(got.dtype)
            assert got.dtype is want.dtype and bool((got == want).all()), (layout, keyword)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_what_is_broadcast(compiled) -> None:
    """A bias's gradient, an affine norm's and a scale's are long sums."""
    n, c = 40_000, 6
    x = np.full((n, c), 0.1, np.float32)

    def loss(x, w, b, s):
        return (functional.linear(x, w, b) * 1 + functional.layer_norm(x, (c,), None, b) + x * s).sum()

    def gradients(kind):
        w, b, s = (fl.ones(shape, dtype=kind, requires_grad=True) for shape in ((c, c), (c,), ()))
        (fl.compile(loss) if compiled else loss)(from_array(x).to(kind), w, b, s).backward()
        return b.grad, s.grad
    for got, want in zip(gradients(fl.float32), gradients(fl.float64), strict=True):
        assert error(got, want) < 2e-6


def test_pooling_and_running_sums() -> None:
    x = fl.full((1, 4, 500, 400), 0.1)
    for y in x, x.to(memory_format=fl.channels_last):
        for pooled in functional.avg_pool2d(y, (500, 400)), functional.avg_pool2d(y, (500, 200)), functional.adaptive_avg_pool2d(y, 1):
            np.testing.assert_allclose(pooled.numpy(), np.float32(0.1), 1e-6)
    for kind, tolerance in (fl.float32, 1e-6), (fl.float16, 1e-3), (fl.bfloat16, 1e-2):
        total = fl.full((100_000,), 0.1, dtype=kind).cumsum(0)[10_000::10_000]
        step = fl.full((), 0.1, dtype=kind).item()
        np.testing.assert_allclose(total.double().numpy(), step * np.arange(10_001, 100_001, 10_000), tolerance)


def test_deviations_of_huge_numbers() -> None:
    x = fl.tensor([1e20, 2e20, 3e20, -1e20])
    for y in x, x.repeat(20_000):
        want = np.std(y.double().numpy(), ddof=1)
        for deviation in y.std(), fl.compile(lambda y: y.std())(y), y.view(-1, 2).std(), (y * 1e-3).var().sqrt() * 1e3:
            np.testing.assert_allclose(deviation.item(), want, 1e-6)


PRODUCTS = {
    "mm": lambda a, b: a @ b, "mv": lambda a, b: fl.mv(a, b[:, 0]), "inner": lambda a, b: fl.inner(a[0], b[:, 0]),
    "linear": lambda a, b: functional.linear(a, b.mT), "bmm": lambda a, b: fl.bmm(a[None], b[None]),
    "addmm": lambda a, b: fl.addmm(fl.zeros(1, 1), a, b), "einsum": lambda a, b: fl.einsum("nk,km->nm", a, b),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 3), (2, 1)])
def test_products_of_long_rows(name, compiled, rows, columns) -> None:
    fl.compiler.reset()
    rng = np.random.default_rng(0)
    a, b = rng.random((rows, 1_000_003)), rng.random((1_000_003, columns))
    run = fl.compile(PRODUCTS[name]) if compiled else PRODUCTS[name]
    want = from_array(a @ b) if name == "addmm" else PRODUCTS[name](from_array(a), from_array(b))
    for x in (a, np.asfortranarray(a)):
        for y in (b, np.asfortranarray(b)):
            got = run(from_array(x.astype(np.float32)), from_array(y.astype(np.float32)))
            assert error(got, want) < 2e-6, error(got, want)


# -- many numbers into one place -------------------------------------------------------------------------------------
ADDING = {
    "index_add": lambda lib, at, x: lib.zeros(4).index_add(0, at, x)[0],
    "index_add of columns": lambda lib, at, x: lib.zeros(2, 4).index_add(1, at[: len(x) // 2], x.reshape(2, -1)).double().sum(),
    "scatter_add": lambda lib, at, x: lib.zeros(4).scatter_add(0, at, x)[0],
    "scatter_reduce": lambda lib, at, x: lib.zeros(4).scatter_reduce(0, at, x, "sum")[0],
    "scatter_reduce mean": lambda lib, at, x: lib.zeros(4).scatter_reduce(0, at, x, "mean", include_self=False)[0] * len(x),
    "index_put": lambda lib, at, x: lib.zeros(4).index_put((at,), x, accumulate=True)[0],
    "bincount": lambda lib, at, x: lib.bincount(at, x)[0],
    "gradient of an index": lambda lib, at, x: lib.func.grad(lambda w: (w[at] * x).sum())(lib.zeros(4))[0],
    "gradient of an embedding": lambda lib, at, x: lib.func.grad(
        lambda w: (lib.nn.functional.embedding(at[: len(x) // 8], w) * x.reshape(-1, 8)).sum())(lib.zeros(4, 8)).double().sum(),
    "gradient of expand": lambda lib, at, x: lib.func.grad(lambda w: (w.expand(len(x)) * x).sum())(lib.zeros(1))[0],
}


@pytest.mark.parametrize("name", ADDING)
def test_many_numbers_into_one_place(name):
    """In the order of the index, one after the other, as torch adds; no further from float64 than torch."""
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    numbers = np.random.default_rng(0).uniform(0.5, 1.5, 1_000_000).astype(np.float32)
    right = numbers.astype(np.float64).sum()
    ours, theirs = (abs(float(ADDING[name](lib, lib.zeros(len(numbers), dtype=lib.int64), lib.from_numpy(numbers.copy()))) - right)
                    for lib in (fl, torch))
    assert ours <= 1.5 * theirs + 5e-6 * right     # in what order torch adds a gradient is up to its threads


NORMS = {
    "layer": lambda x: functional.layer_norm(x, x.shape[-1:]), "layer, several": lambda x: functional.layer_norm(x, x.shape[1:]),
    "group": lambda x: functional.group_norm(x, 4), "instance": functional.instance_norm,
    "batch": lambda x: functional.batch_norm(x, None, None, training=True),
}


@pytest.mark.parametrize("shape", [(4, 16, 8, 8), (8, 16, 32, 32), (2, 8, 200, 200), (30, 8, 1, 1500)])
@pytest.mark.parametrize("last", [False, True])
def test_norms_of_what_lies_far_from_zero(shape, last) -> None:
    """What is left of numbers near 1000 has seven digits, whichever way the mean was rounded."""
    fl.compiler.reset()
    compiled = fl.compile(lambda x: [norm(x) for norm in NORMS.values()])
    for offset in (0, 1000, -1000):
        x = from_array((np.random.default_rng(0).standard_normal(shape) + offset).astype(np.float32))
        x = x.contiguous(memory_format=fl.channels_last) if last else x
        for (name, norm), got in zip(NORMS.items(), compiled(x), strict=True):
            want = norm(x.double())
            assert error(got, want) < 1e-6, (name, offset, error(got, want))
            assert error(norm(x), want) < 1e-6, (name, offset, error(norm(x), want))


def test_norms_of_what_has_no_finite_square() -> None:
    for size in (1e18, 1e25, 1e30):
        x = fl.tensor([1.0, -1.0, 3.0, 2.0] * 8) * size
        assert functional.layer_norm(x, (32,)).isfinite().all() and functional.layer_norm(fl.full((32,), size), (32,), eps=0.1).eq(0).all()
