"""The memory order of results: torch's, for elementwise operators by the rule of core/size.py, for the others by their own; compiled
results lie as eager ones."""

from __future__ import annotations

import copy
import io
import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fl
from flambeau.core.size import elementwise_strides

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")


def telling(t: Any) -> tuple:
    """The strides that say something: those of dimensions of more than one element."""
    return tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else ()


def numbers(lib: Any, shape: tuple) -> Any:
    return ((lib.arange(math.prod(shape), dtype=lib.float32) % 7 + 1) / 8).reshape(shape)


def permuted(lib: Any, shape: tuple, order: tuple) -> Any:
    """A tensor of `shape` whose dimensions lie in `order`, the outermost first."""
    return numbers(lib, tuple(shape[d] for d in order)).permute(*(order.index(d) for d in range(len(shape))))


def thinned(lib: Any, shape: tuple, order: tuple) -> Any:
    """The same with gaps."""
    x = permuted(lib, tuple(2 * n for n in shape), order)
    for d in range(len(shape)):
        x = x[(slice(None),) * d + (slice(None, None, 2),)]
    return x


def layouts(shape: tuple) -> dict[str, Callable]:
    rank = len(shape)
    orders = {
        "rows": tuple(range(rank)),
        "reversed": tuple(range(rank))[::-1],
        "channels last": (0, *range(2, rank), 1),
        "swapped": (1, 0, *range(2, rank)),
    }
    found: dict[str, Callable] = {name: lambda lib, o=o: permuted(lib, shape, o) for name, o in orders.items()}
    found["gaps"] = lambda lib: thinned(lib, shape, orders["reversed"])
    found["expanded"] = lambda lib: permuted(lib, (1, *shape[1:]), orders["reversed"]).expand(shape)
    return found


ELEMENTWISE: dict[str, Callable] = {
    "add": lambda t, x, y, z: x + y,
    "lt": lambda t, x, y, z: x < y,
    "where": lambda t, x, y, z: t.where(x > 0.5, y, z),
    "two dtypes": lambda t, x, y, z: x + y.double(),
    "addcmul": lambda t, x, y, z: t.addcmul(x, y, z),
    "lerp": lambda t, x, y, z: t.lerp(x, y, z),
    "clamp": lambda t, x, y, z: t.clamp(x, y, z),
    "xlogy": lambda t, x, y, z: t.xlogy(x, y),
    "igamma": lambda t, x, y, z: t.igamma(x, y),
    "zeta": lambda t, x, y, z: t.special.zeta(x + 1, y),
    "hypot": lambda t, x, y, z: t.hypot(x, y),
    "legendre": lambda t, x, y, z: t.special.legendre_polynomial_p(x, y),
    "heaviside": lambda t, x, y, z: t.heaviside(x, y),
    "gcd": lambda t, x, y, z: t.gcd((x * 8).long(), (y * 8).int()),
    "logical_or": lambda t, x, y, z: t.logical_or(x, (y * 8).long()),
    "clone": lambda t, x, y, z: x.clone(),
    "exp": lambda t, x, y, z: x.exp(),
    "zeros_like": lambda t, x, y, z: t.zeros_like(x),
    "double": lambda t, x, y, z: x.double(),
    "i0": lambda t, x, y, z: t.i0(x),
    "logaddexp": lambda t, x, y, z: (x.logaddexp(y)),
    "logaddexp bfloat16": lambda t, x, y, z: x.bfloat16().logaddexp(y.bfloat16()),
    "logaddexp2 bfloat16": lambda t, x, y, z: x.bfloat16().logaddexp2(y.bfloat16()),
    "sgn complex": lambda t, x, y, z: t.complex(x, y).sgn(),
    "nextafter": lambda t, x, y, z: t.nextafter(x, y),
    "nextafter bfloat16": lambda t, x, y, z: t.nextafter(x.bfloat16(), y.bfloat16()),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str) -> None:
    draw, wrong = random.Random(name), []
    for _ in range(60):
        full = [draw.choice([2, 3]) for _ in range(draw.randint(1, 4))]

        def one(full: list = full) -> Callable:
            shape = tuple(1 if draw.random() < 0.2 else n for n in full)
            order = draw.sample(range(len(shape)), len(shape))
            make = draw.choice([permuted, permuted, thinned])
            return lambda lib: make(lib, shape, tuple(order))

        operands = [one() for _ in range(3)]
        ours, theirs = (ELEMENTWISE[name](lib, *(o(lib) for o in operands)) for lib in (fl, torch))
        # where dimensions of one element decide, torch follows strides that conversions here do not keep
        if telling(ours) != telling(theirs) and all(n > 1 for n in theirs.shape):
            wrong.append(([(tuple(o(fl).shape), o(fl).stride()) for o in operands], ours.stride(), theirs.stride()))
    assert not wrong


def regular(t: Any, x: Any) -> Any:
    return x + 3 * t.eye(3)


OTHERS: dict[str, tuple[tuple, Callable]] = {
    "softmax": ((2, 3, 4), lambda t, x: x.softmax(1)),
    "log_softmax": ((2, 3, 4), lambda t, x: x.log_softmax(2)),
    "sort": ((2, 3, 4), lambda t, x: x.sort(1)),
    "argsort": ((2, 3, 4), lambda t, x: x.argsort(0)),
    "tril": ((2, 3, 4), lambda t, x: x.tril()),
    "flip": ((2, 3, 4), lambda t, x: x.flip(0)),
    "rot90": ((2, 3, 4), lambda t, x: t.rot90(x)),
    "rot270": ((2, 3, 4), lambda t, x: t.rot90(x, 3)),
    "roll": ((2, 3, 4), lambda t, x: x.roll(1)),
    "isin": ((2, 3), lambda t, x: t.isin(x, 0.5)),
    "diag_embed": ((2, 3), lambda t, x: t.diag_embed(x)),
    "fill": ((2, 3), lambda t, x: t.fill(x, 1)),
    "frexp": ((2, 3), lambda t, x: t.frexp(x)),
    "renorm": ((2, 3), lambda t, x: t.renorm(x, 2, 0, 0.1)),
    "group_norm of images": ((2, 4, 3, 2), lambda t, x: t.nn.functional.group_norm(x, 2)),
    "group_norm": ((2, 4, 3), lambda t, x: t.nn.functional.group_norm(x, 2)),
    "layer_norm": ((2, 3, 4), lambda t, x: t.nn.functional.layer_norm(x, (4,))),
    "batch_norm": ((2, 3, 4, 2), lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True)),
    "instance_norm": ((2, 3, 4), lambda t, x: t.nn.functional.instance_norm(x)),
    "logsigmoid": ((2, 3), lambda t, x: t.nn.functional.logsigmoid(x)),
    "masked_fill": ((2, 3), lambda t, x: x.masked_fill(x > 0.5, 0)),
    "masked_scatter": ((2, 3), lambda t, x: x.masked_scatter(x > 0.5, t.ones(6))),
    "index_fill": ((2, 3), lambda t, x: x.index_fill(0, t.tensor([1]), 2.0)),
    "index_put": ((2, 3), lambda t, x: x.index_put((t.tensor([0]),), t.tensor(1.0))),
    "addmm": ((3, 3), lambda t, x: t.addmm(x, x, x)),
    "permute_copy": ((2, 3), lambda t, x: t.permute_copy(x, (1, 0))),
    "nonzero": ((2, 3), lambda t, x: t.nonzero(x > 0.3)),
    "unique": ((2, 3, 4), lambda t, x: t.unique(x, dim=1)),
    "unique last": ((2, 3, 4), lambda t, x: t.unique(x, dim=2)),
    "unique_consecutive": ((2, 3, 4), lambda t, x: [t.unique_consecutive(x, dim=d) for d in range(3)][1]),
    "unfold": ((1, 2, 3, 3), lambda t, x: t.nn.functional.unfold(x, (2, 1))),
    "unfold points": ((1, 2, 3, 3), lambda t, x: t.nn.functional.unfold(x, 1)),
    "unfold a column": ((1, 3, 1), lambda t, x: t.nn.functional.unfold(x, (2, 1), 1)),
    "index front": ((2, 3, 4), lambda t, x: x[t.tensor([0, 1])]),
    "index middle": ((2, 3, 4), lambda t, x: x[:, t.tensor([[0, 1], [2, 0]])]),
    "index end": ((2, 3, 4), lambda t, x: x[..., t.tensor([0, 3])]),
    "index apart": ((2, 3, 4), lambda t, x: x[t.tensor([0, 1]), :, t.tensor([0, 1])]),
    "index mask": ((2, 3, 4), lambda t, x: x[:, t.tensor([True, False, True])]),
    "ravel": ((2, 3), lambda t, x: x.ravel()),
    "padding that crops": ((4, 3, 5), lambda t, x: t.nn.functional.pad(x, (0, -1, -1, -1))),
    "padding that crops images": ((2, 3, 4, 5), lambda t, x: (
        t.nn.functional.pad(x, (-1, -1)), t.constant_pad_nd(x, [-1, 0, 0, -2], 2))),
    "norm over one element": ((2, 1, 3, 2), lambda t, x: (
        x.norm(2, 1), t.linalg.vector_norm(x.bfloat16(), 2, 1), t.linalg.vector_norm(x, 3, 1))),
    "resized to itself": ((2, 3, 4, 5), lambda t, x: tuple(
        t.nn.functional.interpolate(x, (4, 5), mode=m) for m in ("nearest", "bilinear"))),
    "fft": ((2, 3, 4), lambda t, x: t.fft.fft(x, dim=0)),
    "fftn": ((2, 3, 4), lambda t, x: t.fft.fftn(x)),
    "rfft": ((2, 3, 4), lambda t, x: t.fft.rfft(x, dim=1)),
    "fft2": ((2, 3, 4), lambda t, x: t.fft.fft2(x, dim=(0, 1))),
    "rfftn": ((2, 3, 4), lambda t, x: t.fft.rfftn(x)),
    "irfftn": ((2, 3, 4), lambda t, x: t.fft.irfftn(x)),
    "transforms into an empty out=": ((2, 3, 4), lambda t, x: tuple(
        getattr(t.fft, of)(x, dim=(1, 0) if of == "fft2" else 1, out=t.empty(0, dtype=t.complex64))
        for of in ("fft", "rfft", "ihfft", "fft2"))),
    "into an empty out=": ((3, 3), lambda t, x: (
        t.special.ndtr(x, out=t.empty(0)), t.kron(x, x, out=t.empty(0)), t.slice_scatter(x, x[:1], 0, 0, 1, out=t.empty(0)),
        t.cholesky_solve(x, t.eye(3), out=t.empty(0)), t.linalg.tensorinv(regular(t, x), 1, out=t.empty(0)))),
    "take": ((2, 3), lambda t, x: t.take(x, (x * 8).long() % 6)),
    "one_hot": ((2, 3), lambda t, x: t.nn.functional.one_hot((x * 8).long(), 9)),
    "rrelu": ((2, 3, 4), lambda t, x: (t.nn.functional.rrelu(x), t.nn.functional.rrelu(x, training=True))),
    "inv": ((2, 3, 3), lambda t, x: t.linalg.inv(regular(t, x))),
    "solve": ((2, 3, 3), lambda t, x: t.linalg.solve(regular(t, x), x)),
    "cholesky": ((3, 3), lambda t, x: t.linalg.cholesky(regular(t, x @ x.mT))),
    "cholesky upper": ((3, 3), lambda t, x: t.linalg.cholesky(regular(t, x @ x.mT), upper=True)),
    "solve for vectors": ((2, 3), lambda t, x: t.linalg.solve(t.eye(3).repeat(2, 1, 1), x)),
    "power of a number": ((2, 3, 4, 2), lambda t, x: 2.0 ** x),
    "padding of nothing": ((2, 3, 4, 2), lambda t, x: (t.nn.functional.pad(x, (0, 0)), t.constant_pad_nd(x, [0, 0, 0, 0], 1.0))),
    "roll of images": ((2, 3, 4, 2), lambda t, x: t.roll(x, (1, 1), (0, 1))),
    "roll by nothing": ((2, 3, 4, 2), lambda t, x: (t.roll(x, (0, 1), (0, 1)), t.roll(x, (1, 0), (0, 1)), t.roll(x, 4, 2))),
    "cropped fftn": ((2, 3, 4), lambda t, x: t.fft.fftn(x, (2, 3), dim=(2, 1))),
    "cropped hfft": ((2, 3, 4), lambda t, x: t.fft.hfft(x, n=2)),
    "cropped and padded irfftn": ((2, 3, 4), lambda t, x: t.fft.irfftn(x, (2, 5), dim=(2, 1))),
    "pixel_shuffle": ((2, 4, 3, 2), lambda t, x: t.nn.functional.pixel_shuffle(x, 2)),
    "channel_shuffle": ((2, 4, 3), lambda t, x: t.nn.functional.channel_shuffle(x, 2)),
    "entr": ((2, 3), lambda t, x: t.special.entr(x)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_of_one_tensor(name: str) -> None:
    shape, fn = OTHERS[name]
    for kind, make in layouts(shape).items():
        ours, theirs = fn(fl, make(fl)), fn(torch, make(torch))
        for a, b in zip(*(o if isinstance(o, tuple) else (o,) for o in (ours, theirs)), strict=True):
            assert telling(a) == telling(b), kind


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "fftn", "ifftn", "rfftn",
                                  "irfftn"])
def test_transforms_of_what_repeats(name: str) -> None:
    draw = random.Random(name)
    for _ in range(40):
        full = tuple(draw.choice([2, 3]) for _ in range(draw.choice([2, 3, 4])))
        shape = tuple(1 if draw.random() < 0.5 else n for n in full)
        kind = draw.choice(["float32", "complex64", "int64"] if name in ("fft", "ifft", "fft2", "fftn") else ["float32", "int64"])
        dims = tuple(draw.sample(range(len(full)), 2 if name.endswith("2") else draw.randint(1, len(full))))
        given = {"dim": dims if name[-1] in "2n" else dims[0]}
        ours, theirs = (getattr(t.fft, name)(t.ones(shape, dtype=getattr(t, kind)).expand(full), **given) for t in (fl, torch))
        assert telling(ours) == telling(theirs), (shape, full, kind, given)


FACTORS: dict[str, Callable] = {
    **{f"qr {mode}": lambda t, x, mode=mode: t.linalg.qr(x, mode=mode) for mode in ("reduced", "complete", "r")},
    **{f"svd {full}": lambda t, x, full=full: t.linalg.svd(x, full_matrices=full) for full in (True, False)},
    "old svd": lambda t, x: x.svd(), "lu_factor": lambda t, x: t.linalg.lu_factor(x), "lu": lambda t, x: t.linalg.lu(x),
    "geqrf": lambda t, x: t.geqrf(x), "pinv": lambda t, x: t.linalg.pinv(x),
}
OF_TALL: dict[str, Callable] = {
    "householder_product": lambda t, x: t.linalg.householder_product(x, x[..., 0, :]), "ormqr": lambda t, x: t.ormqr(x, x[..., 0, :], x),
    "ormqr right": lambda t, x: t.ormqr(x, x[..., 0, :], x.mT.contiguous(), left=False),
}
OF_SQUARE: dict[str, Callable] = {
    "eigh": lambda t, x: t.linalg.eigh(x + x.mH), "eig": lambda t, x: t.linalg.eig(x), "inv_ex": lambda t, x: t.linalg.inv_ex(x),
    "ldl_factor": lambda t, x: t.linalg.ldl_factor(x + x.mT), "lstsq": lambda t, x: t.linalg.lstsq(x, x),
    "ldl_solve": lambda t, x: t.linalg.ldl_solve(*t.linalg.ldl_factor(x + x.mT), x),
    "solve from the right": lambda t, x: t.linalg.solve_triangular(x, x, upper=True, left=False),
    "triangular_solve": lambda t, x: t.triangular_solve(x, x), "lu_solve": lambda t, x: t.linalg.lu_solve(*t.linalg.lu_factor(x), x),
}


@pytest.mark.filterwarnings("ignore:torch.triangular_solve", "ignore:torch.svd")
@pytest.mark.parametrize("name", [*FACTORS, *OF_TALL, *OF_SQUARE])
def test_factors(name: str) -> None:
    """What LAPACK made lies column by column."""
    fn = {**FACTORS, **OF_TALL, **OF_SQUARE}[name]
    for shape in ((3, 3), (2, 3, 3), (4, 3), (2, 4, 3), (3, 4), (2, 3, 4)):
        if (name in OF_SQUARE and shape[-1] != shape[-2]) or (name in OF_TALL and shape[-1] > shape[-2]):
            continue
        for kind in ("float32", "complex128"):
            for transposed in (False, True):
                made = []
                for t in (fl, torch):
                    x = (numbers(t, shape) ** 2).to(getattr(t, kind))
                    x = x + 3 * t.eye(4, dtype=x.dtype)[: shape[-2], : shape[-1]]
                    x = x.mT.contiguous().mT if transposed else x
                    out = fn(t, x)
                    made.append([telling(o) for o in (out if isinstance(out, tuple) else (out,))])
                assert made[0] == made[1], (shape, kind, transposed)


def test_a_logical_operation_lies_as_a_sum_does() -> None:
    """What is repeated says nothing about the order of the result, whichever dtype it has."""
    for lib in (fl, torch):
        images = lib.ones(1, 3, 1, 3).contiguous(memory_format=lib.channels_last).long()
        repeated = lib.ones(1, 1).expand(3, 1, 3)
        assert telling(lib.logical_or(repeated, images)) == telling(repeated + images) == (1, 3)


@pytest.mark.parametrize("name", ["slice_scatter", "select_scatter", "diagonal_scatter"])
def test_replaced_parts(name: str) -> None:
    """The order is that of the tensor, not of the part."""
    for a, b in itertools.product(["rows", "reversed"], repeat=2):
        for lib in (fl, torch):
            x, part = layouts((3, 3))[a](lib), layouts((3, 3))[b](lib)
            out = (
                lib.slice_scatter(x, part)
                if name == "slice_scatter"
                else getattr(lib, name)(x, part[0], *((0, 0) if name == "select_scatter" else ()))
            )
            assert out.stride() == x.stride()


@pytest.mark.parametrize("name", ["softmax", "tril", "flip", "masked_fill", "index middle", "rot90", "fill", "layer_norm"])
def test_compiled_results_lie_alike(name: str) -> None:
    shape, fn = OTHERS[name]
    compiled = fl.compile(lambda x: fn(fl, x) * 1)
    for kind in ("reversed", "gaps"):
        x = layouts(shape)[kind](fl)
        assert telling(compiled(x)) == telling(fn(fl, x) * 1), kind


def test_large_results_lie_alike() -> None:
    """Generated kernels, native loops and NumPy choose one order."""
    for n in (4, 300):
        x, y = fl.ones(n, n).t(), fl.ones(2 * n, n)[::2]
        for out in (x + y, y + x, fl.hypot(x, y), fl.addcmul(y, x, y), fl.lerp(x, y, y)):
            assert out.stride() in ((1, n), (n, 1))
        assert (x + y).stride() == fl.addcmul(x, y, y).stride() == (1, n)
        assert (y + x).stride() == fl.lerp(y, x, 0.25).stride() == (n, 1)


def test_rule() -> None:
    assert elementwise_strides((2, 3), [(1, 2), (3, 1)]) == (1, 2)
    assert elementwise_strides((2, 3), [(0, 1), (1, 2)]) == (1, 2)
    assert elementwise_strides((2, 3), [(0, 0)]) == (3, 1)
    assert elementwise_strides((2, 3), [(2, 8)]) == (1, 2)
    assert elementwise_strides((2, 2, 3, 4), [(24, 1, 8, 2), (24, 1, 8, 2)]) == (24, 1, 8, 2)


# -- tensors of no elements ------------------------------------------------------------------------------------------
def saved(lib: Any, t: Any) -> Any:
    file = io.BytesIO()
    lib.save(t, file)
    file.seek(0)
    return lib.load(file)


NO_ELEMENTS: list[tuple] = [
    ((0, 3), (1, 5)), ((3, 0), (7, 2)), ((0,), (4,)), ((2, 0, 3), (1, 1, 1)), ((0, 0), (3, 9)), ((2, 0, 1, 3), (0, 9, 2, 1)),
    ((0, 3), (3, 1)),
]  # fmt: skip
KEEPING: dict[str, Callable] = {
    "empty_strided": lambda lib, t: t,
    "new_empty_strided": lambda lib, t: t.new_empty_strided(t.shape, t.stride()),
    "meta": lambda lib, t: lib.empty_strided(t.shape, t.stride(), device="meta"),
    "empty_like": lambda lib, t: lib.empty_like(t),
    "zeros_like": lambda lib, t: lib.zeros_like(t, dtype=lib.int64),
    "rand_like": lambda lib, t: lib.rand_like(t),
    "in rows": lambda lib, t: lib.ones_like(t, memory_format=lib.contiguous_format),
    "clone": lambda lib, t: t.clone(),
    "clone in rows": lambda lib, t: t.clone(memory_format=lib.contiguous_format),
    "clone of a view": lambda lib, t: lib.zeros(99).as_strided(t.shape, t.stride(), 3).clone(),
    "contiguous": lambda lib, t: t.contiguous(),
    "copy": lambda lib, t: t.to(lib.float32, copy=True),
    "deepcopy": lambda lib, t: copy.deepcopy(t),
    "detach": lambda lib, t: t.detach(),
    "saved": saved,
    "view": lambda lib, t: t.view(t.shape),
    "reshape": lambda lib, t: t.reshape(t.shape),
    "unsqueeze": lambda lib, t: t.unsqueeze(0),
    "expand": lambda lib, t: t.expand((2, *t.shape)),
    "permute": lambda lib, t: t.permute(*reversed(range(t.dim()))),
    "select": lambda lib, t: t.narrow(0, 0, 0).unsqueeze(-1).select(-1, 0),
    "in place": lambda lib, t: t.add_(1),
    "set_": lambda lib, t: lib.zeros(3).set_(t),
    "empty_permuted": lambda lib, t: lib.empty_permuted(t.shape, tuple(reversed(range(t.dim())))),
}


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("shape, strides", NO_ELEMENTS)
def test_strides_of_no_elements(name: str, shape: tuple, strides: tuple) -> None:
    """They are those that were asked for, though nothing lies anywhere; and in rows it lies whatever they are."""
    ours, theirs = (KEEPING[name](lib, lib.empty_strided(shape, strides)) for lib in (fl, torch))
    assert (ours.stride(), ours.is_contiguous()) == (theirs.stride(), theirs.is_contiguous())


ONE_ELEMENT: list[tuple] = [
    ((1, 3, 1, 1), (3, 1, 3, 3)), ((3, 1, 4), (4, 12, 1)), ((1, 4), (7, 1)), ((4, 1), (1, 9)), ((1,), (5,)), ((4, 1, 5), (1, 4, 4)),
    ((2, 1, 3, 3), (9, 1, 3, 1)), ((1, 1), (0, 0)), ((2, 1), (1, 0)), ((1, 2, 3), (1, 3, 1)), ((2, 1, 3), (1, 7, 2)),
    ((1, 2, 1), (9, 2, 4)),
]  # fmt: skip
_COPYING = ("empty_like", "zeros_like", "rand_like", "in rows", "clone", "clone in rows", "clone of a view", "contiguous", "copy",
            "deepcopy")


@pytest.mark.parametrize("name", _COPYING)
@pytest.mark.parametrize("shape, strides", ONE_ELEMENT)
def test_strides_of_dimensions_of_one_element(name: str, shape: tuple, strides: tuple) -> None:
    """A copy without gaps keeps them as they are told."""
    ours, theirs = (KEEPING[name](lib, lib.zeros(99).as_strided(shape, strides)).stride() for lib in (fl, torch))
    assert ours == theirs


@pytest.mark.parametrize("backend", ["eager", "inductor", "aot_eager"])
def test_strides_of_dimensions_of_one_element_compiled(backend: str) -> None:
    def f(t: Any) -> tuple:
        return t.clone(), fl.zeros_like(t)

    for shape, strides in ONE_ELEMENT[:4]:
        t = fl.zeros(99).as_strided(shape, strides)
        assert [r.stride() for r in fl.compile(f, backend=backend, dynamic=False)(t)] == [r.stride() for r in f(t)]


@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (2, 1, 3, 3), (2, 3, 1, 1), (1, 1, 1, 1), (1, 1, 4, 4)])
def test_images_of_one_channel_or_pixel(shape: tuple) -> None:
    """`to` asks what the strides say, `contiguous` whether they would do."""
    for source in ("contiguous_format", "channels_last"):
        for call in ("to", "contiguous", "clone"):
            for wanted in ("contiguous_format", "channels_last"):
                ours, theirs = (getattr(lib.zeros(shape).to(memory_format=getattr(lib, source)), call)(
                    memory_format=getattr(lib, wanted)).stride() for lib in (fl, torch))
                assert ours == theirs, (source, call, wanted)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_strides_of_no_elements_compiled(backend: str) -> None:
    def f(t: Any) -> tuple:
        return t.clone(), fl.empty_strided((3, 0), (7, 2)), fl.zeros_like(t), t.unsqueeze(0), fl.empty_strided((2, 0), (1, 1)).t()

    t = fl.empty_strided((0, 3), (1, 5))
    compiled = fl.compile(f, backend=backend)(t)
    assert [r.stride() for r in compiled] == [r.stride() for r in f(t)] == [(1, 5), (7, 2), (1, 5), (0, 1, 5), (1, 1)]


@pytest.mark.parametrize("shape", [(2, 1, 1), (3, 1, 3, 1), (1, 2, 1, 1), (1, 3, 1), (2, 3, 1)])
def test_indices_into_dimensions_of_one_element(shape):
    """What is in rows but for the strides of such dimensions, which decide the order of the result."""
    for order in itertools.permutations(range(len(shape))):
        for *taken, sizes in itertools.product(*[(False, True)] * len(shape), ((3,), (1, 2))):
            mine, theirs = (numbers(lib, shape).permute(*order)[tuple(
                lib.zeros(sizes, dtype=lib.int64) if index else slice(None) for index in taken)] for lib in (fl, torch))
            assert telling(mine) == telling(theirs), (order, taken)


GAPS = {
    "between images": lambda lib: lib.ones(4, 4, 3, 4).contiguous(memory_format=lib.channels_last)[::2],
    "between pixels": lambda lib: lib.ones(2, 4, 3, 8).contiguous(memory_format=lib.channels_last)[..., ::2],
    "between channels": lambda lib: lib.ones(2, 8, 3, 4).contiguous(memory_format=lib.channels_last)[:, :4],
    "of a volume": lambda lib: lib.ones(2, 4, 2, 3, 4).contiguous(memory_format=lib.channels_last_3d).select(2, 1),
    "none": lambda lib: lib.ones(2, 4, 3, 4).contiguous(memory_format=lib.channels_last),
    "rows": lambda lib: lib.ones(2, 4, 3, 8)[..., ::2],
}
NORMS = {
    "batch_norm": lambda f, x, m, v: f.batch_norm(x, None, None, training=True),
    "batch_norm, running": lambda f, x, m, v: f.batch_norm(x, m, v),
    "group_norm": lambda f, x, m, v: f.group_norm(x, 2), "instance_norm": lambda f, x, m, v: f.instance_norm(x),
    "instance_norm, running": lambda f, x, m, v: f.instance_norm(x, m, v, use_input_stats=False),
}


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_images_with_gaps(name, gap) -> None:
    ours, theirs = (NORMS[name](lib.nn.functional, GAPS[gap](lib), lib.zeros(4), lib.ones(4)).stride() for lib in (fl, torch))
    assert ours == theirs
