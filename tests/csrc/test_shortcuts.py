"""Every native shortcut on operands of every form: numbers of dimensions, broadcast, empty, expanded, strided, read-only, of other
dtypes. What is computed must not depend on how the operands lie in memory: NumPy's answers, and those on dense operands, are the oracle.
Run it under the sanitizers too (docs/native.md)."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flambeau as fl
from flambeau import _C
from flambeau.ops.registry import PRIMITIVES

KINDS = [fl.bool, fl.int32, fl.int64, fl.float32, fl.float64]  # of csrc/scalar_loops.h
OTHERS = [fl.uint8, fl.int16, fl.float16, fl.bfloat16, fl.complex64]
SHAPES = [(), (1,), (3,), (0,), (1, 3), (2, 1), (2, 3), (2, 0), (4, 2, 3), (4, 1, 3), (1, 1, 1)]


def dense(shape: tuple[int, ...], kind: fl.dtype, seed: int = 0) -> fl.Tensor:
    """Small numbers, some of them equal, none of them zero but for bool."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 2, shape) if kind is fl.bool else rng.integers(1, 5, shape) * rng.choice([1, 1, -1], shape)
    return fl.tensor(np.asarray(numbers, np.float64)).to(kind)


def forms(x: fl.Tensor) -> Iterator[tuple[str, fl.Tensor]]:
    """Tensors of x's shape and dtype in every layout that there is; the expanded ones repeat some of x's elements."""
    yield "dense", x
    yield "tail", fl.cat([fl.ones(3, dtype=x.dtype), x.reshape(-1)])[3:].view(x.shape)
    array = x.detach().numpy()
    if array.dtype != ml_dtypes.bfloat16:
        array = array.copy()
        array.flags.writeable = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is not writeable: that is the point
            yield "read-only", fl.from_numpy(array)
    if x.ndim == 0:
        yield "element", fl.stack([x, x, x])[1]
        return
    wide = fl.ones(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
    wide[..., ::2] = x
    yield "every second", wide[..., ::2]
    yield "transposed", x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim)))
    for d in range(x.ndim):
        if x.shape[d] > 0:
            yield f"expanded along {d}", x.narrow(d, 0, 1).expand(x.shape)
    yield "expanded number", fl.full((), 1, dtype=x.dtype).expand(x.shape)


def array_of(value: Any) -> Any:
    """As an array of NumPy in row-major order, or a number."""
    return np.array(value.detach().resolve_conj().resolve_neg().numpy(), order="C") if isinstance(value, fl.Tensor) else value


NATIVE = [prim for prim in PRIMITIVES.values() if prim.eager.scalar is not None]


def by_numpy(prim: Any, operands: tuple) -> np.ndarray:
    """The operation's own reading through NumPy, on dense operands of one shape."""
    arrays = [array_of(x) for x in operands]
    shape = np.broadcast_shapes(*[a.shape for a in arrays if isinstance(a, np.ndarray)])
    with np.errstate(all="ignore"):
        whole = [np.array(np.broadcast_to(a, shape)) if isinstance(a, np.ndarray) else a for a in arrays]
        return np.asarray(prim.kernels["cpu"](*whole))


def check(prim: Any, got: fl.Tensor, operands: tuple, told: Any) -> None:
    want = by_numpy(prim, operands)
    assert tuple(got.shape) == want.shape and got.dtype.numpy == want.dtype, (prim.name, told)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6 if want.dtype == np.float32 else 1e-13, err_msg=f"{prim.name} {told}")


def can_broadcast(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def mixes(prim: Any, kind: fl.dtype) -> Iterator[tuple[tuple[int, ...], tuple]]:
    """Dense operands of every mix of shapes that can be broadcast."""
    for shapes in itertools.product(SHAPES, repeat=prim.tensors):
        if can_broadcast(*shapes):
            yield shapes, tuple(dense(shape, fl.bool if prim.name == "where" and k == 0 else kind, k) for k, shape in enumerate(shapes))


@pytest.mark.parametrize("prim", NATIVE, ids=lambda prim: prim.name)
def test_elementwise_of_every_mix_of_shapes(prim):
    """It computes what NumPy does, for all mixes or for none: where there is no loop for the dtype."""
    for kind in KINDS:
        taken = set()
        for shapes, operands in mixes(prim, kind):
            got = prim.eager.scalar(*operands)
            taken.add(got is not NotImplemented)
            if got is not NotImplemented:
                check(prim, got, operands, shapes)
        assert len(taken) == 1, kind


@pytest.mark.parametrize("name", ["neg", "add", "where"])
def test_elementwise_of_every_layout(name):
    """What the loops share: one operand at a time in each form."""
    prim = PRIMITIVES[name]
    for shapes, plain in mixes(prim, fl.float32):
        for k in range(prim.tensors):
            for label, form in forms(plain[k]):
                operands = (*plain[:k], form, *plain[k + 1:])
                got, below = prim.eager.scalar(*operands), prim.eager.scalar.below(*operands)
                assert (got is NotImplemented) == (below is NotImplemented)
                if got is not NotImplemented:
                    check(prim, got, operands, (shapes, k, label))


@pytest.mark.parametrize("name", ["add", "where"])
def test_elementwise_declines_other_dtypes_and_takes_numbers(name):
    prim = PRIMITIVES[name]
    for kind, other in itertools.permutations(KINDS[1:] + OTHERS, 2):
        for left, right in itertools.product(SHAPES[:4], repeat=2):
            if can_broadcast(left, right):
                operands = (fl.tensor(True),) * (name == "where") + (dense(left, kind), dense(right, other))
                assert prim.eager.scalar(*operands) is NotImplemented and prim.eager.scalar.below(*operands) is NotImplemented
                assert not prim.eager.scalar.into(*operands)
    for kind, shape, number in itertools.product(KINDS[1:], SHAPES, (2, -3, 1.5, True, 2**40, 2**70, 1j, None, "1", float("nan"))):
        x = dense(shape, kind)
        for pair in ((x, number), (number, x)):
            operands = (dense(shape, fl.bool),) * (name == "where") + pair
            got = prim.eager.scalar(*operands)
            if got is not NotImplemented:
                assert type(number) in (int, float)
                check(prim, got, operands, (kind, shape, number))


@pytest.mark.parametrize("name", ["add", "mul", "maximum", "eq", "neg", "exp", "where"])
def test_elementwise_in_place(name):
    """What is written is what was to be computed, or nothing is; neighbours of the target keep their values."""
    prim = PRIMITIVES[name]
    for shapes in itertools.product(SHAPES, repeat=prim.tensors):
        if not can_broadcast(*shapes) or np.broadcast_shapes(*shapes) != shapes[0]:
            continue
        kind = fl.bool if name == "where" else fl.float32
        rest = [dense(shape, kind, 1 + k) for k, shape in enumerate(shapes[1:])]
        for room in (dense((3, *shapes[0]), kind), dense((*shapes[0], 3), kind).movedim(-1, 0)):
            before, target = room.clone(), room[1]
            want = by_numpy(prim, (target, *rest))
            done = prim.eager.scalar.into(target, *rest)
            np.testing.assert_allclose(target.numpy(), want if done else before[1].numpy(), rtol=1e-6)
            assert (room[::2] == before[::2]).all()
    assert not prim.eager.scalar.into(2.0, *[dense((3,), fl.float32)] * (prim.tensors - 1))


# -- targets that overlap their operands --------------------------------------------------------------------------------------
OVERLAPS: dict[str, Callable[[fl.Tensor], tuple[fl.Tensor, fl.Tensor]]] = {
    "later": lambda x: (x[1:], x[:-1]), "earlier": lambda x: (x[:-1], x[1:]), "rows": lambda x: (x.view(-1, 4)[1:], x.view(-1, 4)[:-1]),
    "inside": lambda x: (x.view(-1, 4), x.view(-1, 4)[1]), "transposed": lambda x: (x[:16].view(4, 4), x[:16].view(4, 4).t()),
    "strided": lambda x: (x[: x.numel() // 2], x[::2]),
}
SAFE: dict[str, Callable[[fl.Tensor], tuple[fl.Tensor, fl.Tensor]]] = {
    "itself": lambda x: (x, x), "the same elements": lambda x: (x[2:6], x[2:6]), "apart": lambda x: (x[:8], x[8:16]),
    "alternating": lambda x: (x[::2], x[1::2]),
}


@pytest.mark.parametrize("size", [16, 64, 1 << 17])
@pytest.mark.parametrize("form", OVERLAPS)
@pytest.mark.parametrize("write", ["add_", "mul_", "copy_", "maximum out", "sub_ alpha"])
def test_writes_over_a_part_of_an_operand_are_refused_or_right(write, form, size):
    """Either torch's error, with nothing written, or what would be written were the operand a copy."""
    x = fl.arange(float(size))
    target, other = OVERLAPS[form](x)
    before, copied = x.clone(), other.clone()
    calls: dict[str, Callable[[fl.Tensor, fl.Tensor], Any]] = {
        "add_": lambda t, o: t.add_(o), "mul_": lambda t, o: t.mul_(o), "copy_": lambda t, o: t.copy_(o),
        "maximum out": lambda t, o: fl.maximum(t, o, out=t), "sub_ alpha": lambda t, o: t.sub_(o, alpha=2)}
    want = target.clone()
    calls[write](want, copied)
    try:
        calls[write](target, other)
    except RuntimeError as error:
        assert "refer to a single memory location" in str(error)
        np.testing.assert_array_equal(x.numpy(), before.numpy())
        return
    np.testing.assert_array_equal(target.numpy(), want.numpy())


@pytest.mark.parametrize("size", [16, 64, 1 << 17])
@pytest.mark.parametrize("form", SAFE)
def test_operands_that_are_the_target_or_beside_it(form, size):
    x = fl.arange(float(size))
    target, other = SAFE[form](x)
    want = target.numpy() * 2 if target.data_ptr() == other.data_ptr() else target.numpy() + other.numpy()
    target.add_(other)
    np.testing.assert_array_equal(target.numpy(), want)


# -- programs and kernels: each primitive, each argument in each form ---------------------------------------------------------
def samples(prim: Any) -> list[tuple]:
    rng = np.random.default_rng(7)
    if prim.samples is not None:
        return prim.samples(rng)
    return [tuple(rng.standard_normal((2, 3)) for _ in prim.params)]


def tensor(value: Any, kind: fl.dtype | None) -> Any:
    if isinstance(value, list):
        return [tensor(item, kind) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    made = fl.tensor(value)
    return made.to(kind) if kind is not None and value.dtype == np.float64 else made


def with_form(args: tuple, at: tuple[int, ...], form: fl.Tensor) -> tuple:
    """`args` with the tensor at this place exchanged."""
    k = at[0]
    value = form if len(at) == 1 else [*args[k][:at[1]], form, *args[k][at[1] + 1:]]
    return (*args[:k], value, *args[k + 1:])


def places_of(args: tuple) -> Iterator[tuple[tuple[int, ...], fl.Tensor]]:
    for k, a in enumerate(args):
        if isinstance(a, fl.Tensor):
            yield (k,), a
        elif isinstance(a, list):
            yield from (((k, i), item) for i, item in enumerate(a) if isinstance(item, fl.Tensor))


def outcome(prim: Any, args: tuple) -> Any:
    """The arrays of the results, or the error's type."""
    with np.errstate(all="ignore"):
        try:
            out = prim(*args)
        except Exception as error:
            return type(error)
    return [array_of(o) if isinstance(o, fl.Tensor) else o for o in (out if isinstance(out, tuple) else (out,))]


def empties(x: fl.Tensor) -> Iterator[tuple[str, fl.Tensor]]:
    for d in range(x.ndim):
        yield f"empty along {d}", x.narrow(d, 0, 0)


WHOLE = [p for p in PRIMITIVES.values() if p.kind not in ("inplace", "factory") and "samples" not in p.why_absent]
UNIQUE_UP_TO_PHASE = {"eig", "eigh", "svd", "qr", "geqrf"}  # LAPACK takes other paths through other memory
# Their arguments are about how the input lies in memory, so that other layouts are other calls.
ABOUT_MEMORY = {"as_strided", "view", "view_dtype", "view_as_complex", "view_as_real"}


@pytest.mark.parametrize("kind", [None, fl.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("prim", WHOLE, ids=lambda prim: prim.name)
@pytest.mark.filterwarnings("ignore")
def test_no_kernel_minds_how_its_operands_lie(prim, kind):
    if "random" in prim.tags or prim.name in ABOUT_MEMORY:
        pytest.skip("not a function of the values")
    digits = 1e-4 if kind is not None else 1e-9
    for sample in samples(prim):
        args = tuple(tensor(a, kind) for a in sample)
        for at, x in list(places_of(args)):
            # The positions that a view primitive is asked for are checked before it, by the operator.
            for label, form in itertools.chain(forms(x), empties(x) if prim.kind != "view" else ()):
                plain = form.clone(memory_format=fl.contiguous_format)
                for _ in range(2):  # copies are replayed from the second time on
                    got, want = outcome(prim, with_form(args, at, form)), outcome(prim, with_form(args, at, plain))
                    told = f"{prim.name}, argument {at} {label}"
                    if isinstance(want, type) or isinstance(got, type):
                        assert got is want, (told, got, want)
                        continue
                    for g, w in zip(got, want, strict=True):
                        if not isinstance(w, np.ndarray):
                            assert g == w, told
                            continue
                        assert g.shape == w.shape and g.dtype == w.dtype, told
                        if prim.name not in UNIQUE_UP_TO_PHASE:
                            np.testing.assert_allclose(np.asarray(g, w.dtype), w, rtol=digits, atol=digits, err_msg=told)


# -- views ----------------------------------------------------------------------------------------------------------------------
VIEWS: dict[str, tuple[Callable, Callable]] = {
    "t": (lambda x: x.t(), lambda a: a.T), "select": (lambda x: x[1], lambda a: a[1]), "slice": (lambda x: x[:, 1:], lambda a: a[:, 1:]),
    "step": (lambda x: x[::2, 1::3], lambda a: a[::2, 1::3]), "empty": (lambda x: x[2:2], lambda a: a[2:2]),
    "none": (lambda x: x[None, ..., None], lambda a: a[None, ..., None]), "flatten": (lambda x: x.flatten(), lambda a: a.reshape(-1)),
    "unsqueeze": (lambda x: x.unsqueeze(1), lambda a: a[:, None]),
    "expand": (lambda x: x[:1].expand(5, -1), lambda a: np.broadcast_to(a[:1], (5, a.shape[1]))),
    "diagonal": (lambda x: x.diagonal(1), lambda a: a.diagonal(1)),
    "unfold": (lambda x: x.unfold(1, 2, 1), lambda a: np.stack([a[:, i:i + 2] for i in range(a.shape[1] - 1)], 1)),
    "reshape": (lambda x: x.reshape(-1, 2), lambda a: a.reshape(-1, 2)), "squeeze": (lambda x: x[:1].squeeze(0), lambda a: a[0]),
    "narrow": (lambda x: x.narrow(1, 1, 2), lambda a: a[:, 1:3]), "movedim": (lambda x: x.movedim(0, 1), lambda a: a.T),
    "unflatten": (lambda x: x.unflatten(0, (2, 2)), lambda a: a.reshape(2, 2, a.shape[1])),
    "last": (lambda x: x[-1, -1], lambda a: a[-1, -1]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_every_form(name):
    """Remembered or not, a view shows its elements; and what is written through it arrives."""
    view, by_numpy = VIEWS[name]
    for kind in (*KINDS, *OTHERS):
        for _ in range(3):
            for label, x in forms(dense((4, 4), kind)):
                got, want = view(x), by_numpy(array_of(x))
                assert tuple(got.shape) == want.shape, label
                np.testing.assert_array_equal(np.asarray(got.numpy()), np.asarray(want), err_msg=label)
                if label in ("dense", "every second", "transposed", "tail") and got._is_view() and name not in ("expand", "unfold"):
                    got.fill_(0)
                    assert not got.any() and not by_numpy(array_of(x)).any() and bool(x.any()) == (got.numel() < 16), label


FAR = [2**31, 2**32, 2**60, 2**61, 2**62, 2**63 - 1]


@pytest.mark.parametrize("far", FAR)
def test_no_view_leaves_the_memory(far):
    """Sizes, strides and offsets whose bytes do not fit 64 bits."""
    for kind in (fl.uint8, fl.int32, fl.float64, fl.complex128):
        for x in (fl.ones(4, dtype=kind), fl.ones(4, 4, dtype=kind)[1:, 2:]):
            for call in (lambda x: x.as_strided((2,), (far,)), lambda x: x.as_strided((far,), (1,)),
                         lambda x: x.as_strided((1,), (1,), far),
                         lambda x: x.as_strided((2, 2), (far, far)), lambda x: x.as_strided((3,), (far,), 1), lambda x: x.view(-1, far),
                         lambda x: x.as_strided((far, far), (1, 1)), lambda x: x.as_strided((far, 4), (far, 4))):
                with pytest.raises((RuntimeError, OverflowError, ValueError)):
                    call(x)


# -- kernels of arrays (kernels.cpp) ---------------------------------------------------------------------------------------------
def array_forms(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """NumPy's layouts: what `forms` has, and negative strides."""
    yield "dense", x.copy()
    yield "fortran", np.array(x, order="F")
    for d in range(x.ndim):
        yield f"backwards along {d}", np.flip(np.flip(x, d).copy(), d)
        wide = np.repeat(x, 2, d)
        yield f"every second along {d}", wide[(slice(None),) * d + (slice(None, None, 2),)]
        if x.shape[d]:
            yield f"repeated along {d}", np.broadcast_to(x.take([0], d), x.shape)
    raw = np.empty(x.nbytes + 1, np.uint8)
    unaligned = raw[1:1 + x.nbytes].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    yield "unaligned", unaligned
    yield "swapped", x.astype(x.dtype.newbyteorder()) if x.dtype.kind != "V" else x


NUMBERS = [np.dtype(t) for t in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex128")]


@pytest.mark.parametrize("to", NUMBERS, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (70,), (5, 9), (9, 1, 6), (2, 0, 3), (3, 8, 9), (40, 70, 3)], ids=str)
def test_copies_between_layouts(shape, to):
    rng = np.random.default_rng(0)
    for source in NUMBERS:
        values = rng.integers(0, 2 if to.kind == "b" else 100, shape).astype(source)
        for (label, x), (target_label, out) in itertools.product(array_forms(values), array_forms(np.ones(shape, to))):
            if not out.flags.writeable:
                with pytest.raises(ValueError, match="read-only"):
                    _C.copy_strided(out, x)
                continue
            before = out.copy()
            want = x.astype(to) if to.kind == "c" or source.kind != "c" else None
            done = _C.copy_strided(out, x)
            np.testing.assert_array_equal(out, want if done else before, err_msg=f"{source} {label} to {target_label}")


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_rows_sums_and_scans_take_what_is_dense_and_refuse_the_rest(kind):
    rng = np.random.default_rng(0)
    table = rng.integers(0, 2, (5, 3)).astype(kind)
    for label, x in array_forms(table):
        for rows in (np.array([4, 0, 2, 2]), np.array([], np.int64), np.arange(10)[::-2] % 5):
            out = np.zeros((len(rows), 3), kind)
            plain = x.flags.c_contiguous and x.flags.aligned and x.dtype.isnative and rows.flags.c_contiguous
            if not plain and len(rows):
                with pytest.raises(ValueError, match="rows: expected"):
                    _C.take_rows(out, x, rows)
                continue
            if plain:
                _C.take_rows(out, x, rows)
                np.testing.assert_array_equal(out, x[rows], err_msg=label)
    for bad in (5, -1, 2**62, -2**63):
        with pytest.raises(IndexError):
            _C.take_rows(np.zeros((1, 3), kind), table, np.array([bad]))
        with pytest.raises(IndexError):
            _C.add_rows(table.copy(), np.array([bad]), np.zeros((1, 3), kind))
    with pytest.raises(ValueError, match="one row for each"):
        _C.take_rows(np.zeros((2, 2), kind), table, np.array([1, 2]))
    for label, x in array_forms(rng.integers(0, 2, (2, 4, 3)).astype(kind)):
        out, places, total = np.zeros_like(x, order="C", subok=False), np.zeros(x.shape, np.int64), np.zeros((2, 3), kind)
        for call, want in ((lambda: _C.scan(out, x, False, False), np.cumsum(x, 1)),
                           (lambda: _C.scan_best(out, places, x, True), np.maximum.accumulate(x, 1)),
                           (lambda: _C.sum_axis(total, x, 1), np.sum(x, 1))):
            try:
                done = call()
            except ValueError:
                continue
            if done:
                got = total if want.ndim == 2 else out
                np.testing.assert_array_equal(got, want.astype(kind), err_msg=label)
        assert not _C.fill(out[..., 1:], np.ones(2, kind))
        if _C.fill(out, np.ones((), kind)):
            assert (out == 1).all()


# -- optimizer steps ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [fl.float32, fl.float64, fl.bfloat16, fl.int64], ids=str)
def test_optimizer_steps_take_any_layout_or_touch_nothing(kind):
    steps: dict[str, Callable] = {
        "adam": lambda p, g, m, v: _C.adam_step([p], [g], [m], [v], None, [1], 0.1, 0.9, 0.99, 1e-8, 0.1, True, False),
        "sgd": lambda p, g, m, v: _C.sgd_step([p], [g], [m], [False], 0.1, 0.9, 0.0, 0.1, False, False),
        "scale": lambda p, g, m, v: _C.scale_all([p], 2.0)}
    for name, step in steps.items():
        for shape in ((), (0,), (3,), (4, 3), (2, 3, 4)):
            for which in range(4):
                for label, form in forms(dense(shape, kind, 5).abs()):
                    all_dense = [dense(shape, kind, k).abs() for k in range(4)]
                    all_dense[which] = form.clone(memory_format=fl.contiguous_format)
                    mixed = [t.clone() for t in all_dense]
                    mixed[which] = form
                    before = [t.clone() for t in mixed]
                    done = step(*mixed)
                    if done:
                        step(*all_dense)
                    for got, want in zip(mixed, all_dense if done else before, strict=True):
                        np.testing.assert_array_equal(array_of(got), array_of(want), err_msg=f"{name} {shape} {which} {label}")
