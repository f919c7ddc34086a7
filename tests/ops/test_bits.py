"""One meaning: the bits of an elementwise result depend on the element alone, not on how many there are, how they lie, how many
threads compute them, where in a vector they stand, or whether they were compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import _C
from flambeau.core.scalar import TABLE
from flambeau.dynamo import compiler
from flambeau.inductor.cpu import compile as build
from flambeau.ops import prims
from flambeau.ops.registry import PRIMITIVES

SIZE = 70_000
SIZES = (1, 7, 1000)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
ALL = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
KINDS = {"F": FLOATS, "I": INTEGERS, "B": (torch.bool,)}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e-40, -1e-42, 3e-39, 1e-310, 65504.0, 3e4, -100.0, -104.0, 88.8, 89.5,
           709.0, -745.0, 1e6, -3e7, 1e10, 1e22, 1e30, -1e30, 2.0**31, -(2.0**31), 2.0**63, 300.0, -1.5, 2.5, 3.5, 0.99999994, 1.0000001]


def elements(kind: Any, seed: int) -> torch.Tensor:
    """Every scale of numbers, and special ones, mixed."""
    r = np.random.default_rng(seed)
    if kind is torch.bool:
        return torch.tensor(r.integers(0, 2, SIZE).astype(bool))
    if not (kind.is_floating_point or kind.is_complex):
        info = torch.iinfo(kind)
        x = r.integers(info.min, info.max, SIZE, dtype=np.int64, endpoint=True)
        x[::3] = r.integers(0 if info.min == 0 else -9, 10, x[::3].size)
        return torch.tensor(x).to(kind)
    x = r.standard_normal(SIZE) * np.exp(r.uniform(-3, 5, SIZE))
    x[::4] = r.uniform(-1, 1, x[::4].size)
    x[1::9] = np.exp(r.uniform(-100, 80, x[1::9].size)) * r.choice([-1, 1], x[1::9].size)
    x[r.integers(0, SIZE, 40 * len(SPECIAL))] = SPECIAL * 40
    if kind.is_complex:
        return torch.complex(torch.tensor(x), torch.tensor(np.roll(x, 17))).to(kind)
    with np.errstate(all="ignore"):
        return torch.tensor(x).to(kind)


def bits(x: torch.Tensor) -> np.ndarray:
    """What must be equal: the bits, but of a NaN only that it is one."""
    a = np.ascontiguousarray(x.detach().contiguous().numpy() if x.dtype is not torch.bfloat16 else x.float().numpy())
    if a.dtype.kind == "c":
        a = a.view(a.real.dtype)
    if a.dtype.kind != "f":
        return a
    words = a.view(f"i{a.dtype.itemsize}").copy()
    words[np.isnan(a)] = -1
    return words


def check(what: str, got: torch.Tensor, want: torch.Tensor) -> None:
    a, b = bits(got), bits(want)
    if not np.array_equal(a, b):
        at = tuple(np.argwhere(a != b)[0])
        raise AssertionError(f"{what}: {int((a != b).sum())} of {a.size} differ, first at {at}: {got.flatten()[0]} ... {want.flatten()[0]}")


def bodies(kind: Any) -> dict[str, tuple[Callable, int]]:
    """The pointwise primitives over this dtype: name -> (function of tensors, how many)."""
    letter = next(k for k, kinds in KINDS.items() if kind in kinds)
    found: dict[str, tuple[Callable, int]] = {}
    for name, prim in PRIMITIVES.items():
        row = TABLE.get(name)
        if row is None or prim.kind != "pointwise" or letter not in row.native:
            continue
        if name == "where":
            found[name] = (lambda x, y: prims.where(x > y, x, y)) if kind is not torch.bool else (lambda x, y: prims.where(x, y, x)), 2
        elif name == "nextafter":
            found[name] = torch.nextafter, 2
        else:
            found[name] = prim, row.arity
    return found


def layouts(fn: Callable, xs: list[torch.Tensor], large: bool) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    """(what, result, what it must be) of `fn` on parts of `xs`, in other layouts, by other ways; of `large` ones too, for each of which
    code may be compiled."""
    whole = fn(*xs)
    made = [(f"{n} elements from {at}", fn(*(x[at:at + n] for x in xs)), whole[at:at + n]) for n in SIZES for at in (0, 3, SIZE // 2 + 5)]
    made.append(("copied", fn(*(x[5:5 + 1000].clone() for x in xs)), whole[5:1005]))
    made += [(f"every third of {n}", fn(*(x[:n:3] for x in xs)), whole[:n:3]) for n in ((90, SIZE) if large else (90,))]
    n = 21_000 if large else 2100
    part, ys = whole[:n], [x[:n] for x in xs]
    made.append(("transposed", fn(*(y.view(100, -1).t() for y in ys)), part.view(100, -1).t()))
    made.append(("rows and columns", fn(*(y.view(100, 7, -1).transpose(0, 1) for y in ys)), part.view(100, 7, -1).transpose(0, 1)))
    if large and len(xs) > 1:
        mixed = fn(xs[0].view(100, -1).t(), *(x.view(100, -1).t().contiguous() for x in xs[1:]))
        made.append(("several orders", mixed, whole.view(100, -1).t()))
    made.append(("numbers of no dimension", fn(*(x[11] for x in xs)), whole[11]))
    made.append(("expanded", fn(*(x[9].expand(40, 50) for x in xs)), whole[9].expand(40, 50)))
    if len(xs) > 1:
        wide = fn(xs[0][:600].view(20, 30), *(x[40:41].expand(20, 30) for x in xs[1:]))
        made.append(("one against many", wide, fn(xs[0][:600], *(x[40:41].repeat(600) for x in xs[1:])).view(20, 30)))
    return made


@pytest.mark.parametrize("kind", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_primitives_in_every_layout(kind: Any) -> None:
    threads = torch.get_num_threads()
    for number, (name, (fn, arity)) in enumerate(bodies(kind).items()):
        xs = [elements(kind, seed) for seed in range(arity)]
        for what, got, want in layouts(fn, xs, turns(kind, number)):
            check(f"{name} of {kind}, {what}", got, want)
        want = fn(*xs)
        try:
            torch.set_num_threads(3 if threads == 1 else 1)
            check(f"{name} of {kind} on other threads", fn(*xs), want)
        finally:
            torch.set_num_threads(threads)
        array = _array_reading(name, xs)
        if array is not None:
            check(f"{name} of {kind} by the table", array, want)


def turns(kind: Any, number: int) -> bool:
    """Whether the function of this number is shown large tensors of this dtype: every one is of float32, and of every dtype each third, so
    that each function meets each layout, and each layout each dtype."""
    return kind is torch.float32 or (number + ALL.index(kind)) % 3 == 0


def _array_reading(name: str, xs: list[torch.Tensor]) -> torch.Tensor | None:
    if name in ("where", "nextafter") or xs[0].dtype is torch.bfloat16:
        return None
    return torch.from_numpy(PRIMITIVES[name].kernels["cpu"](*(x.numpy() for x in xs)))


COMPOSITES: dict[str, Callable] = {
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish, "softplus": F.softplus,
    "logsigmoid": F.logsigmoid, "elu": F.elu, "selu": F.selu, "celu": F.celu, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid,
    "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh, "relu6": F.relu6, "softsign": F.softsign, "tanhshrink": F.tanhshrink,
    "hardshrink": F.hardshrink, "softshrink": F.softshrink, "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "clamp": lambda x: x.clamp(-0.5, 2), "logit": lambda x: torch.logit(x, eps=1e-6), "sinc": torch.sinc, "square": torch.square,
    "frac": torch.frac, "lerp": lambda x: torch.lerp(x, x * 2, 0.3), "addcmul": lambda x: torch.addcmul(x, x, x, value=0.3),
    "addcdiv": lambda x: torch.addcdiv(x, x, x, value=0.3), "xlogy": lambda x: torch.xlogy(x, x), "nan_to_num": torch.nan_to_num,
    "deg2rad": torch.deg2rad, "logaddexp": lambda x: torch.logaddexp(x, -x), "pow": lambda x: x ** 1.7, "pow 4": lambda x: x ** 4,
    "pow of 4s": lambda x: x ** torch.full_like(x, 4), "pow of 3s": lambda x: x ** torch.full_like(x, 3),
    "pow of halves": lambda x: x ** torch.full_like(x, 0.5), "float_power": lambda x: x ** 3,
    "round": lambda x: torch.round(x, decimals=2), "chain": lambda x: (x * 1.3 + 0.7) * x - x / 3,
    "rotary": lambda x: x * torch.cos(x) + torch.sin(x) * -x, "where": lambda x: torch.where(x > 0, x * 3, x),
}


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_composites_in_every_layout(kind: Any) -> None:
    x = elements(kind, 3)
    for number, (name, fn) in enumerate(COMPOSITES.items()):
        for what, got, want in layouts(fn, [x], turns(kind, number)):
            check(f"{name} of {kind}, {what}", got, want)


def _compiled(functions: list[Callable], xs: list[torch.Tensor]) -> None:
    def all_of(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [fn(*xs) for fn in functions]

    compiler.reset()  # a code has at most so many versions
    compiled = torch.compile(all_of, dynamic=True)
    for n in (SIZE, 1001, 7):
        parts = [x[:n] for x in xs]
        for k, (got, want) in enumerate(zip(compiled(*parts), all_of(*parts), strict=True)):
            check(f"function {k} of {parts[0].dtype}, compiled, {n} elements", got, want)


@pytest.mark.skipif(not build.have_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("kind", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_compiled_primitives(kind: Any) -> None:
    found = bodies(kind)
    functions = [lambda x, y, z, fn=fn, arity=arity: fn(*(x, y, z)[:arity]) for fn, arity in found.values()]
    _compiled(functions, [elements(kind, seed) for seed in range(3)])


@pytest.mark.skipif(not build.have_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_compiled_composites(kind: Any) -> None:
    _compiled(list(COMPOSITES.values()), [elements(kind, 3)])


@pytest.mark.skipif(not build.have_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_sums_and_means_of_negative_zeros(kind: Any) -> None:
    """Sums begin with 0.0, to which a negative zero adds nothing: of one element as of many."""
    def all_of(x: torch.Tensor) -> list[torch.Tensor]:
        row = x.reshape(1, 1, -1)
        sums = [x.sum(0), row.sum(2), row.sum(0), row.sum((0, 1)), row.mean(2), row.mean(1), row.cumsum(2), row.cumsum(0)]
        sums.append(row[..., :1].sum())
        pools = [F.avg_pool1d(row, k, padding=k // 2) for k in (1, 3, 12) if k <= row.shape[2]]
        pools += [F.avg_pool2d(row[None], 1), F.avg_pool3d(row[None, None], 1), F.adaptive_avg_pool1d(row, row.shape[2]),
                  F.adaptive_avg_pool1d(row, 1), F.adaptive_avg_pool2d(row[None], (1, max(1, row.shape[2] // 2)))]
        return sums + pools

    for n in (1, 7, 1000):
        compiler.reset()
        x = torch.full((n,), -0.0, dtype=kind)
        for k, (got, want) in enumerate(zip(torch.compile(all_of)(x), all_of(x), strict=True)):
            assert not torch.signbit(want).any(), (k, n)
            check(f"sum {k} of {n} negative zeros", got, want)


@pytest.mark.skipif(not build.have_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
def test_compiled_primitives_of_filled_tensors(kind: Any) -> None:
    """The compiler takes the number for a tensor filled with it: the number that the tensor holds, rounded to its dtype."""
    binary = [fn for fn, arity in bodies(kind).values() if arity == 2]

    def all_of(x: torch.Tensor) -> list[torch.Tensor]:
        number, row = torch.full((), 0.3, dtype=kind).expand(300), torch.full((300,), -1.7, dtype=kind)
        return [out for fn in binary for out in (fn(x, number), fn(row, x))]

    compiler.reset()
    x = elements(kind, 7)[:300]
    for k, (got, want) in enumerate(zip(torch.compile(all_of)(x), all_of(x), strict=True)):
        check(f"function {k // 2} of {kind} and a filled tensor", got, want)


@pytest.mark.skipif(not build.have_compiler(), reason="no C++ compiler")
def test_conversions() -> None:
    kinds = [*FLOATS, *INTEGERS, torch.bool, torch.uint16, torch.uint32, torch.uint64]
    for source in kinds[:-3]:
        compiler.reset()
        x = elements(source, 4)
        compiled = torch.compile(lambda x: [x.to(kind) for kind in kinds], dynamic=True)
        for kind, got in zip(kinds, compiled(x), strict=True):
            want = x.to(kind)
            check(f"{source} to {kind}, compiled", got, want)
            for n in SIZES:
                check(f"{source} to {kind}, {n} elements", x[3:3 + n].to(kind), want[3:3 + n])
            check(f"{source} to {kind}, strided", x[::3].to(kind), want[::3])
        if source in FLOATS:
            compiler.reset()
            rounds = torch.compile(lambda x: [x.to(kind).to(source) for kind in INTEGERS] + [x.int().long().to(source)], dynamic=True)
            for kind, got in zip([*INTEGERS, torch.int32], rounds(x), strict=True):
                check(f"{source} to {kind} and back, compiled", got, x.to(kind).to(source))


@pytest.mark.parametrize("kind", COMPLEX, ids=str)
def test_complex_numbers(kind: Any) -> None:
    functions: dict[str, tuple[Callable, int]] = {
        "add": (torch.add, 2), "mul": (torch.mul, 2), "div": (torch.div, 2), "exp": (torch.exp, 1), "sqrt": (torch.sqrt, 1),
        "abs": (torch.abs, 1), "log": (torch.log, 1), "sin": (torch.sin, 1), "tanh": (torch.tanh, 1), "angle": (torch.angle, 1)}
    for name, (fn, arity) in functions.items():
        xs = [elements(kind, seed) for seed in range(arity)]
        for what, got, want in layouts(fn, xs, large=True):
            check(f"{name} of {kind}, {what}", got, want)


def test_every_row_has_a_native_loop() -> None:
    for row in TABLE.values():
        if row.native:
            assert _C.Elementwise(row.name).name == row.name


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_rounded_value_of_a_repeated_row_is_stored_and_used(kind):
    """What is the same for every row is computed once, before the stores."""
    def program(v):
        s = v.sin()
        return s, F.elu(s).float(), F.selu(s).double()

    x = torch.rand(1, 64).to(kind).expand(16, 64)
    for got, want in zip(torch.compile(program)(x), program(x)):
        assert got.dtype is want.dtype and torch.equal(got, want)
