"""Calls that make no sense raise the exception that torch raises, and calls that do are answered: one row each, walked beside torch."""

from __future__ import annotations

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")
NAN = float("nan")
CALLS = {
    **{f"index {kind} {name}": lambda t, kind=kind, name=name, more=more: getattr(t.ones(2), name)(
        *(() if name in ("take", "put") else (0,)), t.tensor([0], dtype=getattr(t, kind)), *(m(t) for m in more))
       for kind in ("int32", "float32", "complex64", "bool")
       for name, more in {"take": (), "put": (lambda t: t.ones(1),), "index_copy": (lambda t: t.ones(1),), "index_fill": (lambda t: 1,),
                          "gather": (), "scatter": (lambda t: 1,)}.items()},
    **{f"{name} of a number": lambda t, name=name, args=args: getattr(t, name)(t.tensor(1.0), *args)
       for name, args in {"chunk": (2,), "diff": (), "cholesky_inverse": (), "tensor_split": (2,), "split": (2,), "unbind": (),
                          "renorm": (1, 0, 1), "hsplit": (2,), "vsplit": (2,), "dsplit": (2,), "tril": (), "nonzero": (), "rot90": (),
                          "fliplr": (), "flipud": (), "unfold_copy": (0, 1, 1)}.items()},
    **{f"unfold of rank {n}": lambda t, n=n: t.nn.functional.unfold(t.ones((3,) * n), (2, 2)) for n in range(6)},
    **{f"fold of rank {n}": lambda t, n=n: t.nn.functional.fold(t.ones((4,) * n), (3, 3), (2, 2)) for n in range(5)},
    **{f"rms_norm of rank {n}": lambda t, n=n: t.nn.functional.rms_norm(t.ones((2,) * n), (1, 2)) for n in range(5)},
    **{f"cdist {mode}": lambda t, mode=mode: t.cdist(t.ones(2, 2), t.ones(2, 2), 2, mode) for mode in ((1, 2), 7, "x")},
    **{f"{name} of nothing over {dim}": lambda t, name=name, dim=dim: getattr(t.ones(2, 0), name)(dim=dim)
       for name in ("amin", "amax") for dim in ((), None, 0, 1, (0, 1))},
    "both extremes of nothing": lambda t: t.ones(2, 0).aminmax(),
    "less than no variates": lambda t: t.mvlgamma(t.ones(2), -9),
    "cells of negative size": lambda t: t.nn.functional.adaptive_avg_pool2d(t.ones(1, 1, 1, 1), -9),
    "an index in rows": lambda t: t.ones(2, 3).index_fill(0, t.zeros(1, 1, dtype=t.int64), 1),
    "nuclear_norm over one dimension": lambda t: t.nuclear_norm(t.ones(2), 17),
    "repeats in rows": lambda t: t.repeat_interleave(t.tensor([[4]])),
    "repeats in rows, given": lambda t: t.repeat_interleave(t.tensor([1, 2]), t.tensor([[1, 2]])),
    "combinations of less than none": lambda t: t.combinations(t.ones(2), -1),
    "a tensor counts frequencies": lambda t: t.fft.fftfreq(t.tensor(3)),
    **{f"{name} over {dim}": lambda t, name=name, dim=dim: getattr(t.fft, name)(t.ones(()) if dim == 0 else t.ones(2, 2), dim)
       for name in ("fftshift", "ifftshift") for dim in (0, 2, -9, (0, 5))},
    "a tuple for a memory format": lambda t: t.ones(2).is_contiguous(memory_format=(1, 2)),
    "a number for a type": lambda t: t.ones(2).type_as(3),
    "gradient of an embedding of no columns": lambda t: t.autograd.grad(t.nn.functional.embedding(
        t.zeros(2, dtype=t.int64), w := t.ones(3, 0, requires_grad=True)).sum(), w)[0],
    "no pixels": lambda t: t.nn.functional.pixel_shuffle(t.ones(2, 0, 3, 3), 2),
    "rows exchanged of nothing": lambda t: t.vmap(lambda a, b: t.linalg.solve_ex(a, b)[0])(t.ones(2, 0, 0), t.ones(2, 0)),
    "no sizes": lambda t: t.ones(2).unflatten(0, ()),
    "a tuple for a bias": lambda t: t.conv_transpose3d(t.ones(1, 1, 1, 1), t.ones(1, 1, 1, 1, 1), (1, 2)),
    "a tuple for positions": lambda t: t.cumulative_trapezoid(t.ones(2, 2), (1, 2)),
    "a tuple for a dtype": lambda t: t.ones(1).new_full((1,), 1.5, dtype=(1, 2)),
    "erf of complex numbers": lambda t: t.ones(1, dtype=t.complex64).erf(),
    "digamma of complex numbers": lambda t: t.ones(1, dtype=t.complex64).digamma(),
    "lgamma_ of complex numbers": lambda t: t.ones(1, dtype=t.complex128).lgamma_(),
    "no complex numbers in order": lambda t: t.ones(0, 1, dtype=t.complex64).cummax(0),
    "modes of NaN": lambda t: t.mode(t.tensor([[NAN] * 3, [1, 2, 2], [NAN, 1, 1], [1, NAN, NAN]])),
    "means of complex numbers": lambda t:
        t.ones(3, dtype=t.complex64).scatter_reduce(0, t.tensor([0, 0]), t.ones(2, dtype=t.complex64), "mean"),
    "largest of bools": lambda t:
        t.zeros(2, dtype=t.bool).scatter_reduce(0, t.tensor([0]), t.ones(1, dtype=t.bool), "amax", include_self=False),
    "reduced into out": lambda t: t.index_reduce(t.ones(2), 0, t.tensor([0]), t.ones(1), "mean", out=t.empty(2)),
    "none divided by zero": lambda t: t.ones(0, dtype=t.int64) % 0,
    "none floor-divided by zero": lambda t: t.div(t.ones(0, dtype=t.int64), 0, rounding_mode="floor"),
    "some divided by zero": lambda t: t.ones(1, dtype=t.int64) % 0,
    "output padding of dilated windows": lambda t: t.conv_transpose1d(t.ones(2, 4, 6), t.ones(4, 1, 1), output_padding=1, dilation=2),
    **{f"{name} beside None": lambda t, name=name, args=args: getattr(t, name)(*(t.ones(2) if a else None for a in args))
       for name in ("atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors", "meshgrid") for args in ((1, 0), (0, 1))},
    **{f"{name} of None": lambda t, name=name: getattr(t.ones(1), name)(None) for name in ("is_set_to", "resize_as_", "type_as")},
    **{f"permute of rank {n} by {dims}": lambda t, n=n, dims=dims: t.ones((2,) * n).permute(dims)
       for n in (0, 1, 2) for dims in ((), (0,), (17,), (0, 0), (1, 0), (0, 5), (-1, 0))},
    "map_ over None": lambda t: t.ones(1).map_(None, max),
    **{f"{name} that accumulates {flag}": lambda t, name=name, flag=flag: getattr(t.ones(2), name)((t.tensor([0]),), t.ones(1), flag)
       for name in ("index_put", "index_put_") for flag in (None, 1, "x", True)},
    **{f"narrow from {start}, {length}": lambda t, start=start, length=length: t.ones(2).narrow(0, start, length)
       for start in (-3, -2, 2, 3, 17) for length in (-1, 0, 1)},
    **{f"{name} of {kinds}": lambda t, name=name, kinds=kinds: getattr(t, name)(*(t.ones(1, 2, dtype=getattr(t, k)) for k in kinds))
       for name in ("cdist",) for kinds in (("complex64",) * 2, ("int64",) * 2, ("float32", "int64"), ("float32",) * 2)},
    "pdist of complex numbers": lambda t: t.pdist(t.ones(2, 2, dtype=t.complex64)),
    **{f"bilinear of {kinds}": lambda t, kinds=kinds: t.bilinear(*(t.ones(*shape, dtype=getattr(t, k)) for k, shape in zip(
        kinds, ((1, 2), (1, 2), (1, 2, 2), (1,))))) for kinds in (("float32", "float64", "float32"), ("float32",) * 3,
                                                                  ("float32", "float32", "float32", "float64"))},
    **{f"nanmean of {kind} in {to}": lambda t, kind=kind, to=to: t.nanmean(t.ones(2, dtype=getattr(t, kind)), dtype=getattr(t, to))
       for kind, to in (("int64", "float64"), ("int64", "complex128"), ("float32", "float64"))},
    **{f"addr({name}={n}) of {kind}": lambda t, name=name, n=n, kind=kind: t.addr(*(t.ones(s, dtype=getattr(t, kind)) for s in (
        (2, 1), 2, 1)), **{name: n}) for name in ("alpha", "beta") for n in (True, 2) for kind in ("int64", "float32", "bool")},
    **{f"{name} to {ends}": lambda t, name=name, ends=ends: getattr(t, name)(*ends, 3)
       for name in ("linspace", "logspace") for ends in ((0, True), (False, True), (False, 2.0))},
    "a running product past the rank, in another dtype": lambda t: t.ones(1).cumprod_(17, dtype=t.uint8),
    **{f"a value of {value} under a mask beside a number, in {kind}": lambda t, value=value, kind=kind: written(t, value, kind)
       for kind in ("bool", "int64", "float32") for value in ("float32", "int64")},
    **{f"the loss of a score of {x}, target {y}": lambda t, x=x, y=y:
        t.nn.functional.binary_cross_entropy_with_logits(t.tensor([x]), t.tensor([y]))
       for x in (float("inf"), 5.0, -1e30) for y in (0.0, 0.5, 1.0, 2.0)},
    **{f"ldexp({x}, {y})": lambda t, x=x, y=y: t.ldexp(t.tensor([x]), t.tensor([y])) for x in (-float("inf"), 0.0, 1e-30, 1e30)
       for y in (-(1 << 31), -300, 0, 200)},
    **{f"digamma next to {near}": lambda t, near=near: t.digamma(t.tensor([near - d for d in (1.9e-30, 1e-20, -1e-20, 0.25)]))
       for near in (0.0, -1.0)},
    "one value under a mask": lambda t: t.zeros(2, 2).index_put_((t.tensor([[True, False], [True, True]]),), t.tensor(3.0)),
}


def written(lib, value, kind):
    x = lib.ones(4, 2, dtype=getattr(lib, kind))
    x[lib.tensor([True, False, True, True]), lib.tensor(1)] = lib.zeros((), dtype=getattr(lib, value))
    return x


def outcome(lib, call):
    try:
        return call(lib)
    except Exception as error:
        return error


@pytest.mark.filterwarnings("ignore:index_reduce")      # torch's, once a process
@pytest.mark.parametrize("name", CALLS)
def test_as_torch(name):
    got, want = outcome(fl, CALLS[name]), outcome(torch, CALLS[name])
    if isinstance(want, Exception):
        assert isinstance(got, type(want)), (got, want)
        return
    assert not isinstance(got, Exception), got
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, want)), strict=True):
        assert fl.allclose(a, fl.from_numpy(b.numpy()), equal_nan=True)


def test_products_of_bools():
    """Whether some pair is true; torch has them for some shapes and strides only."""
    a, b = fl.rand(2, 3, 4) > 0.7, fl.rand(2, 4, 5) > 0.7
    for x, y in ((a, b), (a[0], b[0]), (a[0], b[0, :, 0]), (a[0, 0], b[0, :, 0]), (a[:, :, :0], b[:, :0])):
        assert fl.equal(x @ y, (x.int() @ y.int()) > 0) and fl.equal(fl.compile(fl.matmul)(x, y), x @ y)


def test_one_element_under_a_mask_is_converted():
    for lib in (fl, torch):
        x = lib.zeros(2, 2)
        x[lib.tensor([[True, False], [True, True]])] = lib.tensor([3])
        assert x.tolist() == [[3.0, 0.0], [3.0, 3.0]]
