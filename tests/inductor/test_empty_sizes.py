"""Operators that read and write by index, reduce or move elements, where there are none: compiled as eager, with sizes known when
compiling and with sizes that a later call makes zero. Nothing is read before a loop that does not run."""

from __future__ import annotations

import itertools
import warnings

import pytest

import flambeau as fl

F = fl.nn.functional


def positions(s):
    return fl.zeros_like(s, dtype=fl.int64)


def reduced(name, mode, **how):
    return lambda x, i, s: getattr(x, name)(0, i if name.startswith("index") else positions(s), s, mode, **how)


WORKS = {
    "index_select": lambda x, i, s: x.index_select(0, i),
    "rows": lambda x, i, s: x[i],
    "columns": lambda x, i, s: x[:, i],
    "both": lambda x, i, s: x[i, i],
    "apart": lambda x, i, s: x[i, None, i],
    "index_add": lambda x, i, s: x.index_add(0, i, s),
    "index_copy": lambda x, i, s: x.index_copy(0, i, s),
    "index_fill": lambda x, i, s: x.index_fill(0, i, 3.0),
    **{f"{name} {mode}": reduced(name, mode) for name in ("index_reduce", "scatter_reduce") for mode in ("prod", "mean", "amax")},
    "index_reduce apart": reduced("index_reduce", "amin", include_self=False),
    "index_put": lambda x, i, s: x.index_put((i,), s),
    "index_put added": lambda x, i, s: x.index_put((i,), s, accumulate=True),
    "gather": lambda x, i, s: x.gather(0, positions(s)),
    "gather along rows": lambda x, i, s: x.gather(1, positions(s)),
    "scatter": lambda x, i, s: x.scatter(0, positions(s), s),
    "scatter along rows": lambda x, i, s: x.scatter(1, positions(s), s),
    "scatter_add": lambda x, i, s: x.scatter_add(0, positions(s), s),
    "scatter a number": lambda x, i, s: x.scatter(0, positions(s), 2.0),
    "take_along_dim": lambda x, i, s: fl.take_along_dim(x, positions(s), 0),
    "take": lambda x, i, s: x.take(i),
    "put": lambda x, i, s: x.put(i, fl.ones_like(i) * 2.0),
    "masked_scatter": lambda x, i, s: x.masked_scatter(x > 0, x),
    "embedding": lambda x, i, s: F.embedding(i, x),
    "embedding_bag": lambda x, i, s: F.embedding_bag(i.reshape(1, -1), x, mode="max"),
    "embedding_bag, offsets": lambda x, i, s: F.embedding_bag(i, x, fl.tensor([0]), mode="sum"),
    "one_hot": lambda x, i, s: F.one_hot(i, 4),
    "nll_loss": lambda x, i, s: F.nll_loss(s, i, reduction="none"),
    "bincount": lambda x, i, s: fl.bincount(i, minlength=2),
    "first": lambda x, i, s: x[0],
    "last": lambda x, i, s: x[-1],
    "by a tensor": lambda x, i, s: x[i.sum()],
    "select": lambda x, i, s: x.select(0, 1),
    "bucketize": lambda x, i, s: fl.bucketize(x, s.flatten()),
    "roll": lambda x, i, s: x.roll((1, 2), (0, 1)),
    "argmax": lambda x, i, s: x.argmax(0),
    "amax": lambda x, i, s: x.amax(0),
    "max": lambda x, i, s: x.max(),
    **{name: lambda x, i, s, name=name: getattr(x, name)() for name in ("median", "nanmedian", "mean", "std", "norm", "sum", "nansum")},
    "cummax": lambda x, i, s: x.cummax(0),
    "sort": lambda x, i, s: x.sort(0),
    "logsumexp": lambda x, i, s: x.logsumexp(0),
    "softmax": lambda x, i, s: x.softmax(0),
    "diag_embed": lambda x, i, s: x.diag_embed(),
    "reflected": lambda x, i, s: F.pad(x, (1, 1)),
    "product": lambda x, i, s: x @ s.T,
    **{f"{mode} from {part}": lambda x, i, s, mode=mode, rows=rows: F.interpolate(fl.ones(1, 1, 3, 3)[:, :, rows:], mode=mode,
                                                                                 size=(x.shape[0], 2))
       for mode in ("nearest", "bilinear", "bicubic") for part, rows in (("some", 0), ("none", 3))},
}


def arguments(n, m, k, more=0):
    """A table of n rows, m indices, m rows: of k elements each."""
    return fl.ones(n + more, k + more), fl.zeros(m + more, dtype=fl.int64), fl.ones(m + more, k + more) * 2


def sliced(work):
    """The work on what is left behind the first three of each dimension: sizes that others decide."""
    return lambda x, i, s: work(x[3:, 3:], i[3:], s[3:, 3:])


def refuses(work, args):
    try:
        work(*args)
    except (IndexError, RuntimeError):
        return True
    return False


def check(call, works, args, dynamic):
    """Those of the works that run eagerly, compiled as one graph, come to the same; compiled alone, the others refuse too."""
    good = {name: work for name, work in works.items() if not refuses(work, args())}
    compiled = call or fl.compile(lambda *a: [work(*a) for work in good.values()], dynamic=dynamic)
    for (name, work), got in zip(good.items(), compiled(*args()), strict=True):
        fl.testing.assert_close(got, work(*args()), rtol=0, atol=0, equal_nan=True, msg=name)
    return good


SIZES = [s for s in itertools.product((0, 1, 3), (0, 2), (0, 2)) if 0 in s]


@pytest.fixture(autouse=True)
def _anew():
    fl._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)    # beta operators, degrees of freedom
        yield


@pytest.mark.parametrize("sizes", SIZES)
def test_compiled_as_eager(sizes):
    good = check(None, WORKS, lambda: arguments(*sizes), None)
    for name, work in WORKS.items():
        if name not in good:
            with pytest.raises((IndexError, RuntimeError)):
                fl.compile(lambda *a, work=work: work(*a))(*arguments(*sizes))


@pytest.mark.parametrize("sizes", [(3, 2, 0), (0, 0, 2)])
def test_sizes_that_become_zero(sizes):
    """Compiled for sizes that are none of them zero, then called where they are."""
    good = {name: work for name, work in WORKS.items() if not refuses(work, arguments(*sizes)) and not refuses(work, arguments(3, 2, 2))}
    call = fl.compile(lambda *a: [sliced(work)(*a) for work in good.values()], dynamic=True)
    for now in ((3, 2, 2), sizes):
        check(call, {name: sliced(work) for name, work in good.items()}, lambda now=now: arguments(*now, more=3), True)


@pytest.mark.parametrize("name", ["rows", "index_put", "gather", "scatter", "first", "last", "by a tensor", "select", "argmax", "amax",
                                  "max", "cummax", "bicubic from some"])
@pytest.mark.parametrize("sizes", [(0, 2, 2), (0, 2, 0)])
def test_what_needs_elements_refuses_sizes_that_become_zero(name, sizes):
    work = sliced(WORKS[name])
    call = fl.compile(work, dynamic=True)
    call(*arguments(3, 2, 2, more=3))
    if refuses(work, arguments(*sizes, more=3)):
        with pytest.raises((IndexError, RuntimeError)):
            call(*arguments(*sizes, more=3))


@pytest.mark.parametrize("x, i, s", list(itertools.product([(), (1,)], [(), (1,)], [(), (1,)])))
def test_numbers_are_vectors_of_one(x, i, s):
    """Tensors of no dimensions among those that are read and written by index."""
    works = {name: WORKS[name] for name in (
        "index_select", "rows", "index_fill", "gather", "scatter", "scatter_add", "scatter a number", "take", "put", "scatter_reduce prod",
        "scatter_reduce mean", "index_reduce amax", "index_add", "index_copy")}
    works |= {"gather at": lambda x, i, s: x.gather(-1, i), "scatter at": lambda x, i, s: x.scatter(0, i, s)}
    good = check(None, works, lambda: (fl.ones(x) * 2, fl.zeros(i, dtype=fl.int64), fl.ones(s) * 5), None)
    assert {"gather at", "scatter at", "index_fill", "scatter_add"} <= set(good)
    for name in ("gather at", "scatter at"):
        with pytest.raises(RuntimeError, match="index 1 is out of bounds"):
            works[name](fl.ones(x), fl.ones(i, dtype=fl.int64), fl.ones(s))


@pytest.mark.parametrize(("width", "count"), [(6, 1024), (10, 2560)])
def test_sizes_that_the_likely_one_divides_by_zero(width: int, count: int) -> None:
    """Whether oneDNN is fast is asked of likely sizes; where there are none such, the answer is no."""
    def heads(x: fl.Tensor, y: fl.Tensor, w: fl.Tensor) -> fl.Tensor:
        parts = y.shape[0] // 512
        return (x.reshape(-1, parts, x.shape[1] // parts).transpose(0, 1) @ w).relu() + 1

    fl.manual_seed(0)
    parts = count // 512
    args = fl.randn(4, width), fl.ones(count), fl.randn(parts, width // parts, 5)
    fl.testing.assert_close(fl.compile(heads, dynamic=True)(*args), heads(*args))
