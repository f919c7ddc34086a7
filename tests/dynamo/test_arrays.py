"""NumPy's arrays in compiled functions: one graph, and the values, dtypes and kinds of result that NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest
from dynamo_harness import Counter

import flambeau as torch
from flambeau import dynamo
from flambeau.dynamo.variables.arrays import DTYPES, FUNCTIONS, UFUNCS


def alike(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype is b.dtype and alike(a.detach().numpy(), b.detach().numpy())
    if isinstance(a, (np.ndarray, np.generic)):
        tolerance = 2e-3 if a.dtype == np.float16 else 1e-6
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, tolerance, tolerance, True)
    if type(a) is type(b) is float:
        return abs(a - b) < 1e-9
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    return type(a) is type(b) and a == b


def array(kind, shape=(3, 4), seed=0) -> np.ndarray:
    values = np.random.default_rng(seed).uniform(0.1, 0.9, shape)
    return (values * (1 if np.dtype(kind).kind == "f" else 6)).astype(kind) if kind != np.bool_ else values > 0.5


def outcome(f, *args):
    """What it gives and what becomes of its arguments, or its error."""
    try:
        with np.errstate(all="ignore"):
            return f(*args), args
    except Exception as error:
        return type(error).__name__, ()


def both(f, *args, graphs=1, **settings):
    counter = Counter()
    compiled = dynamo.compile(f, backend=counter, **settings)
    for _ in range(2):
        want, got = (outcome(run, *(a.copy() for a in args)) for run in (f, compiled))
        assert alike(want, got), f"NumPy: {want}\ncompiled: {got}"
    assert graphs is None or len(counter.graphs) == graphs


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda f: f.__name__)
def test_ufuncs(ufunc) -> None:
    """Of every dtype, beside every other, a number of Python and one of NumPy; what has no model runs as it is written."""
    for kind in DTYPES:
        x = array(kind)
        if ufunc.nin == 1:
            both(lambda x: (ufunc(x), ufunc(x[0, 0]), ufunc(x.sum())), x, graphs=None)
            continue
        both(lambda x, y, z: (ufunc(x, y), ufunc(y, x), ufunc(x, z)), x, array(kind, seed=1), array(np.float32, (4,), 2), graphs=None)
        for numbers in ((2, True, np.int64(3)), (2.5, np.float32(1.5))):
            both(lambda x, numbers=numbers: [(ufunc(x, n), ufunc(n, x)) for n in numbers], x, graphs=None)


@pytest.mark.parametrize("function", [np.sum, np.mean, np.prod, np.max, np.min, np.std, np.var, np.any, np.all, np.argmax, np.argmin,
                                      np.cumsum], ids=lambda f: f.__name__)  # fmt: skip
def test_reductions(function) -> None:
    for kind in DTYPES:
        x = array(kind)
        both(lambda x: (function(x), function(x, axis=0), function(x, axis=-1)), x, graphs=None)
        both(lambda x: getattr(x, function.__name__)(), x, graphs=None)
        if function is not np.cumsum:
            both(lambda x: (function(x, axis=1, keepdims=True), function(x[0])), x, graphs=None)


def shapes(a, b):
    return (a.reshape(-1), a.reshape(4, 3), a.reshape((2, 6)), a.T, a.transpose(1, 0), a.ravel(), a.flatten(), np.expand_dims(a, 0),
            np.squeeze(a[None]), np.swapaxes(a, 0, 1), np.concatenate([a, b]), np.stack([a, b], axis=1), np.broadcast_to(a[0], (2, 4)))


def facts(a, b):
    known = a.shape, a.dtype, a.ndim, a.size, a.itemsize, a.nbytes, len(a), isinstance(a, np.ndarray), a.dtype == np.float64
    return known, [row.sum() for row in a]


def indexed(a, b):
    return a[0], a[-1, 1:], a[:, None], a[..., 0], a[0, 0], a[[0, 2]], a[np.array([1, 0])], a[a > 0.5], a[1:, ::2]


def written(a, b):
    a[0] = 3
    a[:, 1] += 2
    a += b
    a *= 2
    b[b > 0.5] = 0
    c = a.copy()
    c[0, 0] = 7.5
    return a, c, a[1]


def products(a, b):
    return a @ b.T, np.dot(a, b.T), np.matmul(a, b[0]), np.linalg.norm(a), np.linalg.norm(a, axis=1), np.einsum("ij,kj->ik", a, b)


def laid_out(a, b):
    return (np.outer(a, b), np.outer(a[0], b[1]), np.roll(a, 1), np.roll(a, -1, axis=1), np.repeat(a, 2), np.repeat(a, 3, axis=0),
            a.repeat(2), np.vstack([a, b]), np.hstack([a, b]), np.tile(a, 2), np.tile(a, (2, 1)), np.tile(a, reps=(1, 3)),
            np.triu(a), np.tril(a, k=1), np.moveaxis(a[None], 0, 2))


def in_order(a, b):
    return (np.sort(a), np.sort(a, axis=0), np.sort(a, axis=None), np.argsort(a, kind="stable"), np.argsort(a, axis=0, kind="stable"),
            a.argsort(kind="stable"), np.argsort(a, axis=None, kind="stable"))


def of_whole_numbers(a, b):
    n = (a * 10).astype(np.int64) - 4
    return n // 3, n % 3, n ** 2, np.floor_divide(n, 2), n.astype(np.uint8) % 4


def chosen(a, b):
    return np.where(a > 0.5, a, 0), np.where(a > b, a, b), np.clip(a, 0.2, 0.8), a.clip(0.3), np.maximum(a, 0.5)


def made(a, b):
    return a * np.arange(4) + np.linspace(0, 1, 4) + np.zeros(4) + np.eye(3, 4) + np.ones_like(a) + np.full((3, 1), 2), np.array([1.5, 2])


def converted(a, b):
    return a.astype(np.float32), a.astype("int64") * 2, np.asarray(a) is a, np.array(a, np.float32)


def to_tensors(a, b):
    t = torch.from_numpy(a)
    t.add_(1)
    return t, torch.tensor(b) * 2, torch.as_tensor(a, dtype=torch.float32), t.numpy() + b


def out_of_tensors(a, b):
    x = torch.ones(3, 4).double() * 2
    y = x.detach().cpu().numpy()
    y[0] = 9
    return x, y * a, torch.from_numpy(np.sin(y))


def numbers(a, b):
    total = a.sum()
    return total * 2, total / b.size, total + a, float(total) * 2, np.float32(3) * a, int(a.argmax())


PROGRAMS = [shapes, facts, indexed, written, products, laid_out, in_order, of_whole_numbers, chosen, made, converted, to_tensors,
            out_of_tensors, numbers]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(program) -> None:
    both(program, array(np.float64), array(np.float64, seed=1), fullgraph=True)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(backend) -> None:
    def f(a, x):
        b = np.tanh(a) * 2
        a[0] = b[0].sum()
        return b.mean(axis=0), torch.from_numpy(b) * x

    compiled = dynamo.compile(f, backend=backend, fullgraph=True)
    for _ in range(2):
        (a, b), x = (array(np.float64), array(np.float64)), torch.ones(4).requires_grad_()
        assert alike((f(a, x), a), (compiled(b, x), b))


def test_sizes_that_vary() -> None:
    counter = Counter()
    compiled = dynamo.compile(lambda a: np.sin(a).sum(axis=0) * a.shape[0], backend=counter)
    for n in (3, 5, 7, 9):
        a = array(np.float32, (n, 2))
        assert alike(np.sin(a).sum(axis=0) * n, compiled(a))
    assert len(counter.graphs) == 2


def test_another_dtype_or_order_is_another_graph() -> None:
    compiled = dynamo.compile(lambda a: a * 2 + 1, backend="eager")
    for a in (array(np.float32), array(np.float64), array(np.int64), array(np.float32).T, array(np.float32)[::2], array(np.float32)[::-1]):
        assert alike(a * 2 + 1, compiled(a))


def test_arrays_that_are_no_tensors_run_as_they_are() -> None:
    frozen = array(np.float64)
    frozen.flags.writeable = False
    for a in (np.array(["a", "b"]), np.array([1 + 2j]), frozen, np.array([None, 1], object), np.zeros(3, ">f8")):
        assert alike((a == a).all(), dynamo.compile(lambda a: (a == a).all(), backend="eager")(a))


def test_a_break_with_arrays_around() -> None:
    def f(a):
        b = a * 2
        print(end="")
        b += 1
        a[0] = 5
        return b, a.sum()

    both(f, array(np.float64), graphs=None)


def test_functions_without_a_model_are_called_between_graphs() -> None:
    def f(a):
        return np.percentile(a * 2, 50) + np.nancumsum(a + 1)

    assert np.nancumsum not in FUNCTIONS
    both(f, array(np.float64), graphs=None)


ARRAYS_OR_NOT = {
    "from_numpy": torch.from_numpy, "as_tensor": torch.as_tensor, "asarray": torch.asarray, "tensor": torch.tensor,
    "in another dtype": lambda a: torch.tensor(a, dtype=torch.float32), "on the cpu": lambda a: torch.tensor(a, device="cpu"),
}
MADE = {
    "given": lambda a: a, "zeros": lambda a: np.zeros(2), "arange": lambda a: np.arange(3.0), "array": lambda a: np.array([1.0, 2.0]),
    "like": np.zeros_like, "sin": np.sin, "beside a number": lambda a: np.maximum(a, 0.5), "where": lambda a: np.where(a > 0, a, 1.0),
    "a number": lambda a: np.sin(a).sum(),
}


@pytest.mark.parametrize("where", ["meta", "cpu"])
@pytest.mark.parametrize("made", MADE)
def test_arrays_are_on_the_cpu_whatever_device_is_the_default(made, where) -> None:
    for name, convert in ARRAYS_OR_NOT.items():
        if made == "a number" and name == "from_numpy":
            continue

        def f(a, convert=convert):
            return convert(MADE[made](a))

        torch._dynamo.reset()
        compiled = dynamo.compile(f, backend="eager")
        for device in (where, "cpu", "meta"):
            with torch.device(device):
                assert compiled(array(np.float64)).device == f(array(np.float64)).device, (name, device)
