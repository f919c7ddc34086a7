"""vmap computes batches by batching rules: each primitive against a loop over the examples, and what is built on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap
from flambeau.ops import batching
from flambeau.ops.registry import PRIMITIVES
from tests.threads import in_threads

SIZE = 3


def same(got: Any, want: Any) -> None:
    got, want = (v if isinstance(v, tuple) else (v,) for v in (got, want))
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.shape == w.shape and g.dtype is w.dtype
        np.testing.assert_allclose(g.detach().numpy(force=True), w.detach().numpy(force=True), rtol=1e-9, atol=1e-9)


def looped(f: Callable, args: tuple, dims: tuple) -> Any:
    """The meaning of vmap."""
    size = next(a.shape[d] for a, d in zip(args, dims) if d is not None)
    rows = [f(*[a if d is None else a.select(d, i).clone() for a, d in zip(args, dims)]) for i in range(size)]
    return tuple(map(torch.stack, zip(*rows))) if isinstance(rows[0], tuple) else torch.stack(rows)


# -- every primitive ---------------------------------------------------------------------------------------------------------------
def _tensors(args: tuple) -> list[np.ndarray]:
    """The arrays of a sample in order, those in lists too."""
    return [a for arg in args for a in (arg if isinstance(arg, list) else [arg]) if isinstance(a, np.ndarray)]


def _filled(args: Any, tensors: Any) -> list:
    rest = iter(tensors)
    return [_filled(a, rest) if isinstance(a, list) else next(rest) if isinstance(a, np.ndarray) else a for a in args]


SAMPLED = sorted(
    name for name, p in PRIMITIVES.items()
    if p.samples is not None and p.kind not in ("factory", "inplace") and "random" not in p.tags and p.batch is not batching.refused
)  # fmt: skip


def _batches(array: np.ndarray) -> torch.Tensor:
    """Examples that differ: the array, and itself along its first dimension in other orders."""
    turns = [np.roll(array, k, 0) if array.ndim else array + k for k in range(SIZE)]
    return torch.from_numpy(np.stack(turns))


@pytest.mark.parametrize("name", SAMPLED)
def test_every_primitive(name: str) -> None:
    prim = PRIMITIVES[name]
    for sample in prim.samples(np.random.default_rng(0)):
        arrays = _tensors(sample)
        if name in ("cholesky", "ldl_factor", "ldl_solve", "lu_rows", "eigh", "matrix_exp", "searchsorted", "eig",
                    "grouped_mm"):
            batches = [torch.from_numpy(np.stack([a] * SIZE)) for a in arrays]  # what must be sorted, symmetric, ...
        else:
            batches = [_batches(a) for a in arrays]
        plain = [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]
        for which in itertools.product((True, False), repeat=len(arrays)):
            if any(which):
                dims = tuple(0 if b else None for b in which)
                args = tuple(b if w else p for b, p, w in zip(batches, plain, which))
                call = lambda *tensors: prim(*_filled(sample, tensors))
                same(vmap(call, in_dims=dims)(*args), looped(call, args, dims))


@pytest.mark.parametrize("name", sorted(n for n, p in PRIMITIVES.items() if p.batch is batching.refused))
def test_what_depends_on_values_is_refused(name: str) -> None:
    prim = PRIMITIVES[name]
    sample = prim.samples(np.random.default_rng(0))[0]
    with pytest.raises(RuntimeError, match="depends on values"):
        vmap(lambda *t: prim(*_filled(sample, t)))(*[_batches(a) for a in _tensors(sample)])


# -- functions ---------------------------------------------------------------------------------------------------------------------
ROWS = torch.tensor([[0, 2], [1, 1], [2, 0], [0, 1]])
X, Y, W = (torch.from_numpy(np.random.default_rng(k).standard_normal(shape)) for k, shape in enumerate([(4, 3), (4, 3), (3, 5)]))
IMAGES = torch.from_numpy(np.random.default_rng(5).standard_normal((4, 2, 3, 6, 6)))
LABELS = torch.tensor([[0, 2, 1, 1, 0]] * 4)
KERNELS = torch.from_numpy(np.random.default_rng(6).standard_normal((4, 5, 3, 3, 3)))
SQUARES, MATRICES = KERNELS[:, 0], KERNELS[:, :, 0, 0]
F = torch.nn.functional

FUNCTIONS: dict[str, tuple[Callable, tuple, tuple]] = {
    "broadcasting": (lambda a, b: (a + b.unsqueeze(1)).mean(0) * 2, (X, Y), (0, 0)),
    "products": (lambda a, w: a @ w + w.T @ a, (X, W.unsqueeze(0).repeat(4, 1, 1)[..., :3]), (0, 0)),
    "outer": (lambda a, b: torch.outer(a, b).tril().sum(1), (X, Y[0]), (0, None)),
    "softmax": (lambda a: torch.softmax(a, 0) * torch.log_softmax(a, -1), (X,), (0,)),
    "norms": (lambda a, w: F.layer_norm(a, (3,), w, w * 2) + F.rms_norm(a, (3,)) + a.norm() + a.std(), (X, Y), (0, 0)),
    "linear": (lambda a, w: F.gelu(F.linear(a, w.T, w[0])), (X, W), (0, None)),
    "views": (lambda a: a.reshape(1, 3, 1).transpose(0, 1).expand(3, 4, 2)[1:, ::2].squeeze(-1).flatten(), (X,), (0,)),
    "indices": (lambda a, i: a[i] + a.roll(1)[i.flip(0)] + torch.take_along_dim(a, i, 0), (X, ROWS), (0, 0)),
    "embedding": (lambda i, w: F.embedding(i, w).sum(0), (ROWS, W), (0, None)),
    "embeddings": (lambda i, w: F.embedding(i, w).sum(0), (ROWS, MATRICES), (0, 0)),
    "where": (lambda a, b: torch.where(a > 0, a, b).clamp(-1, 1).masked_fill(a > b, 0), (X, Y), (0, 0)),
    "sorted": (lambda a: a.sort(descending=True)[0].cumsum(0) + a.topk(2)[0].sum() + a.cummax(0)[0] + a.cumprod(0), (X,), (0,)),
    "writes": (lambda a, b: _written(a, b), (X, Y), (0, 0)),
    "einsum": (lambda a, b: torch.einsum("i,j,jk->ik", a, b, W), (X, Y[0]), (0, None)),
    "convolution": (lambda x: F.conv2d(x, KERNELS[0], padding=1), (IMAGES,), (0,)),
    "convolutions": (lambda x, w: F.conv2d(x, w, stride=2), (IMAGES, KERNELS), (0, 0)),
    "kernels": (lambda w: F.conv2d(IMAGES[0], w, w[:, 0, 0, 0]), (KERNELS,), (0,)),
    "transposed": (lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1)), (IMAGES, KERNELS), (0, 0)),
    "pools": (lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2), (IMAGES,), (0,)),
    "adaptive pools": (lambda x: F.adaptive_avg_pool2d(x, 4) + F.adaptive_max_pool2d(x, 4), (IMAGES,), (0,)),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True) + F.group_norm(x, 3) + F.instance_norm(x), (IMAGES,), (0,)),
    "resized": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (IMAGES,), (0,)),
    "padded": (lambda x: F.pad(x, (1, 2, 3, 3), mode="reflect") + F.pad(x, (2, 1, 6, 0)), (IMAGES,), (0,)),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), (IMAGES, IMAGES.flip(0)), (0, 0)),
    "cross entropy": (lambda a, t: F.cross_entropy(a, t) + F.mse_loss(a, a * 2), (MATRICES, LABELS), (0, 0)),
    "linalg": (lambda a: torch.linalg.inv(a @ a.mT + torch.eye(3, dtype=a.dtype)).det() + torch.linalg.svdvals(a).sum(), (SQUARES,), (0,)),
    "fft": (lambda a: torch.fft.rfft(a, dim=-1).abs() + torch.fft.fft2(a).real[..., :2], (SQUARES,), (0,)),
    "others": (lambda a: torch.stack([a, a.flip(0)]).diff(dim=1).prod(1) + torch.cat([a[:1], a[1:2]]), (X,), (0,)),
    "split": (lambda a: torch.cat([p * (i + 1) for i, p in enumerate(a.split(2))]) + a.unbind()[0], (X,), (0,)),
    "functions of one's own": (lambda a, b: _Cube.apply(a, b), (X, Y), (0, 0)),
    "functions of one's own and what is shared": (lambda a, b: _Cube.apply(a, b), (X, Y[0]), (0, None)),
}  # fmt: skip


class _Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a**3 * b

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple:
        a, b = ctx.saved_tensors
        return 3 * a**2 * b * g, a**3 * g


def _written(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = a * 1
    out[1:].mul_(b[1:]).add_(1)
    out[0] = b[2]
    out.index_add_(0, torch.tensor([2, 2]), b[:2])
    return out.relu_()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    f, args, dims = FUNCTIONS[name]
    same(vmap(f, in_dims=dims)(*args), looped(f, args, dims))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_through_vmap(name: str) -> None:
    """grad(vmap(f)): gradients reach the batches, and what all examples share."""
    f, args, dims = FUNCTIONS[name]

    def gradients(run: Callable) -> tuple:
        inputs = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
        out = run(*inputs)
        weight = torch.linspace(1, 2, out.numel(), dtype=torch.float64).reshape(out.shape)
        return torch.autograd.grad((out * weight).sum(), [i for i in inputs if i.requires_grad])

    same(gradients(vmap(f, in_dims=dims)), gradients(lambda *a: looped(f, a, dims)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_within_vmap(name: str) -> None:
    """vmap(grad(f)): each example has a gradient of its own, also by what all share."""
    f, args, dims = FUNCTIONS[name]
    numbers = tuple(i for i, a in enumerate(args) if a.is_floating_point())
    if not numbers:
        return
    each = grad(lambda *a: (f(*a) ** 2).sum(), argnums=numbers)
    same(vmap(each, in_dims=dims)(*args), looped(each, args, dims))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobians(name: str) -> None:
    f, args, _ = FUNCTIONS[name]
    if not args[0].is_floating_point() or args[0].numel() > 50:
        return
    row = args[0][0]
    rest = [a if d is None else a[0] for a, d in zip(args[1:], FUNCTIONS[name][2][1:])]
    call = lambda x: f(x, *rest)
    out, pull = vjp(call, row)
    units = torch.eye(out.numel(), dtype=out.dtype).reshape(out.numel(), *out.shape)
    want = torch.stack([pull(u)[0] for u in units]).reshape(*out.shape, *row.shape)
    same(jacrev(call)(row), want)
    same(jacrev(call, chunk_size=2)(row), want)
    same(jacfwd(call)(row), want)


# -- transforms of transforms, modules, random numbers ---------------------------------------------------------------------------------
def test_levels_nest() -> None:
    same(vmap(vmap(lambda a, b: a.sin() @ b), in_dims=(0, None))(KERNELS[0], SQUARES[0]), KERNELS[0].sin() @ SQUARES[0])
    both = vmap(vmap(lambda a, b: torch.outer(a, b).softmax(0), in_dims=(None, 0)), in_dims=(0, None))(X, Y)
    same(both[1, 2], torch.outer(X[1], Y[2]).softmax(0))
    f = lambda a, w: (a @ w).tanh().sum()
    got = vmap(vmap(grad(f, argnums=1), in_dims=(0, None)), in_dims=(None, 0))(X, torch.stack([W, 2 * W]))
    same(got[1, 3], grad(f, argnums=1)(X[3], 2 * W))
    h = vmap(hessian(lambda a: (a**3).sum() * a[0]))(X)
    same(h[2], torch.autograd.functional.hessian(lambda a: (a**3).sum() * a[0], X[2]))
    columns = vmap(lambda a, t: jvp(lambda b: (b @ W).sin(), (a,), (t,))[1])(X, Y)
    same(columns[1], ((X[1] @ W).cos() * (Y[1] @ W)))
    same(vmap(jacrev(lambda a: a.prod() * a), in_dims=1)(X)[1], jacrev(lambda a: a.prod() * a)(X[:, 1]))
    same(jacfwd(jacrev(lambda a: (a**4).sum()))(X[0]), torch.diag(12 * X[0] ** 2))


def test_a_pullback_of_a_batch() -> None:
    """As torch's documentation does it: vmap over the gradients of outputs."""
    x = X.clone().requires_grad_()
    y = (x @ W).sin().sum(0)
    rows = vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(torch.eye(5, dtype=x.dtype))
    same(rows, jacrev(lambda a: (a @ W).sin().sum(0))(X))
    all_rows = torch.autograd.grad(y, x, torch.eye(5, dtype=x.dtype), is_grads_batched=True, retain_graph=True)[0]
    same(all_rows, rows)
    _, pull = vjp(vmap(lambda a: (a @ W).sin()), X)
    same(vmap(pull)(torch.stack([torch.ones(4, 5, dtype=x.dtype), W[0].expand(4, 5)]))[0][1], pull(W[0].expand(4, 5))[0])


def _network() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3), torch.nn.GroupNorm(1, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(12, 4),
    ).double()


def test_gradients_of_a_network_for_each_sample() -> None:
    torch.manual_seed(0)
    model, x, labels = _network(), IMAGES[:, 0, :1], torch.tensor([0, 1, 2, 3])
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params: dict, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, params, (image.unsqueeze(0),)), label.unsqueeze(0))

    got = vmap(grad(loss), in_dims=(None, 0, 0))(params, x, labels)
    for i in range(4):
        model.zero_grad()
        F.cross_entropy(model(x[i : i + 1]), labels[i : i + 1]).backward()
        for name, p in model.named_parameters():
            same(got[name][i], p.grad)


def test_an_ensemble() -> None:
    torch.manual_seed(0)
    models = [_network() for _ in range(3)]
    params, buffers = stack_module_state(models)
    x = IMAGES[:, 0, :1]
    out = vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None))(params, buffers, x)
    same(out, torch.stack([m(x) for m in models]))
    out.sum().backward()
    assert all(p.grad is not None for p in params.values())


def test_random_numbers() -> None:
    x = torch.zeros(5, 4)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda a: a + torch.rand(4))(x)
    for draw in (torch.rand_like, torch.randn_like, lambda a: F.dropout(a + 1), torch.bernoulli, lambda a: torch.randperm(400).to(a.dtype)):
        torch.manual_seed(0)
        own = vmap(draw, randomness="different")(x + 0.5)
        assert not (own == own[0]).all()
        torch.manual_seed(0)
        assert (vmap(draw, randomness="different")(x + 0.5) == own).all()
        shared = vmap(draw, randomness="same")(x + 0.5)
        assert (shared == shared[0]).all()
    generator = torch.Generator().manual_seed(1)
    own = vmap(lambda a: a + torch.rand(4, generator=generator), randomness="different")(x)
    assert not (own == own[0]).all()
    twice = vmap(vmap(lambda a: a + torch.rand(()), randomness="different"), randomness="same")(x)
    assert (twice == twice[0]).all() and twice[0].unique().numel() == 4


def test_chunks() -> None:
    f = lambda a, w: (a @ w, a.sum())
    for size in (1, 2, 3, 4, 9):
        same(vmap(f, in_dims=(0, None), out_dims=(1, 0), chunk_size=size)(X, W), ((X @ W).T, X.sum(1)))


def test_custom_operators() -> None:
    @torch.library.custom_op("flambeau_vmap_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)

    same(vmap(twice)(X), X * 2)


def test_compiled_functions() -> None:
    f = torch.compile(lambda a: (a @ W).sin().sum(), backend="eager")
    same(vmap(f)(X), (X @ W).sin().sum(1))


def test_what_an_example_looks_like() -> None:
    seen = []
    vmap(lambda a: seen.append((a.shape, a.stride(), a.ndim, a.dtype, a.numel(), len(a), repr(a))) or a)(X.T.contiguous().T)
    assert seen == [((3,), (4,), 1, torch.float64, 3, 3, "BatchedTensor(..., size=(3,), dtype=torch.float64)")]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: vmap(lambda a: a.sum().item())(X), RuntimeError, "torch.where in place of a branch"),
        (lambda: vmap(lambda a: a if a.sum() > 0 else -a)(X), RuntimeError, "torch.where in place of a branch"),
        (lambda: vmap(lambda a: torch.tensor(a.tolist()))(X), RuntimeError, "torch.where in place of a branch"),
        (lambda: vmap(lambda a: a.numpy())(X), RuntimeError, "torch.where in place of a branch"),
        (lambda: vmap(lambda a: a[a > 0])(X), RuntimeError, "depends on values"),
        (lambda: vmap(lambda a, b: b.add_(a), in_dims=(0, None))(X, Y[0]), RuntimeError, "the same for all"),
        (lambda: vmap(lambda a: a.requires_grad_())(X), RuntimeError, "torch.func.grad"),
        (lambda: vmap(lambda a: a, out_dims=None)(X), ValueError, "when out_dim is None"),
        (lambda: vmap(lambda a: a, out_dims=3)(X), IndexError, "out of range"),
        (lambda: vmap(lambda a: a, chunk_size=0)(X), ValueError, "chunk_size"),
        (lambda: vmap(lambda a: a + torch.zeros(7))(X), RuntimeError, "7"),
    ],
)
def test_bad_use(call: Callable, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
    assert (X + 1).sum().item() == pytest.approx(float(X.sum()) + 12)  # no level is left behind


def test_threads(quick_switches: None) -> None:
    """Levels belong to the thread that entered them."""
    wrong: list[str] = []

    def work() -> None:
        for _ in range(40):
            got = vmap(grad(lambda a: (a @ W).sin().sum()))(X)
            if not torch.allclose(got, (X @ W).cos() @ W.T):
                wrong.append("batched")
            if not torch.equal(X + 1, 1 + X):
                wrong.append("plain")

    in_threads(*[work] * 4)
    assert not wrong


@pytest.mark.parametrize("name", ["hardtanh", "relu6", "elu", "celu", "selu", "hardswish", "hardsigmoid", "softplus", "gelu", "silu",
                                  "mish", "leaky_relu", "softsign", "tanhshrink", "hardshrink", "softshrink", "logsigmoid"])
def test_activations_of_a_batch_with_bounds_that_are_numbers(name):
    x = torch.linspace(-4, 8, 12).reshape(3, 4)
    activation = getattr(torch.nn.functional, name)
    assert torch.equal(torch.vmap(activation)(x), activation(x))
    slope = torch.func.grad(lambda rows: activation(rows).sum())
    assert torch.equal(torch.vmap(slope)(x), slope(x))


def _mapped(prim: Any, arguments: list, which: list[int], size: int) -> list:
    """The results of a primitive over a batch of `size` of the arguments at `which`."""
    def call(*given: Any) -> Any:
        taken = iter(given)
        return prim(*[next(taken) if k in which else a for k, a in enumerate(arguments)])

    out = vmap(call)(*[arguments[k].unsqueeze(0).expand((size, *arguments[k].shape)) for k in which])
    return list(out) if isinstance(out, (tuple, list)) else [out]


def test_batches_of_no_examples() -> None:
    """Every primitive's rule answers with results of the shapes and dtypes that any other batch has."""
    tried, rng = 0, np.random.default_rng(0)
    for prim in PRIMITIVES.values():
        if prim.samples is None or prim.kind in ("factory", "inplace"):
            continue
        for sample in prim.samples(rng):
            arguments = [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in sample]
            places = [k for k, a in enumerate(arguments) if isinstance(a, torch.Tensor)]
            for which in [places, *([k] for k in places if len(places) > 1)]:
                try:
                    some = _mapped(prim, arguments, which, 2)
                except Exception:   # what vmap refuses
                    continue
                none = _mapped(prim, arguments, which, 0)
                assert [(0, *r.shape[1:], r.dtype) for r in some] == [(*r.shape, r.dtype) for r in none], (prim.name, which)
                tried += 1
    assert tried > 200


@pytest.mark.parametrize("f, shape", [
    (lambda x: torch.linalg.tensorinv(x, 1), (0, 0)), (torch.linalg.inv, (0, 3, 3)), (lambda x: x @ torch.ones(3, 2), (0, 3)),
    (lambda x: torch.ones(2, 3) @ x, (3, 0)), (lambda x: torch.nn.functional.conv1d(x, torch.ones(2, 2, 2)), (0, 2, 4)),
    (lambda x: torch.cat([x, torch.ones(2)]), (0,)), (lambda x: x.sort()[0], (0, 2)),
])  # fmt: skip
def test_derivatives_by_nothing(f: Any, shape: tuple) -> None:
    x = torch.zeros(shape)
    for jacobian in (jacrev, jacfwd):
        assert jacobian(f)(x).shape == (*f(x).shape, *shape)
    assert hessian(lambda x: f(x).sum())(x).shape == shape * 2


def test_gradients_through_a_batch_of_none() -> None:
    x, w = torch.zeros(0, 2, 3, requires_grad=True), torch.ones(3, 4, requires_grad=True)
    vmap(lambda x: x @ w)(x).sum().backward()
    assert x.grad.shape == x.shape
    same(w.grad, torch.zeros(3, 4))


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("tolerances", [("atol",), ("rtol",), ("atol", "rtol")], ids=" ".join)
@pytest.mark.parametrize("name", ["pinv", "matrix_rank"])
def test_tolerances_that_are_tensors_differ_between_examples(name, tolerances, hermitian):
    a = torch.diag_embed(torch.tensor([[4.0, 1.0, 0.01], [2.0, 1.0, 0.5]]))
    given = {key: torch.tensor([0.1, 0.6]) for key in tolerances}
    fn = getattr(torch.linalg, name)
    expected = torch.stack([fn(a[i], hermitian=hermitian, **{k: float(v[i]) for k, v in given.items()}) for i in range(2)])
    names = list(given)
    torch.testing.assert_close(fn(a, hermitian=hermitian, **given), expected)
    torch.testing.assert_close(torch.vmap(lambda m, *t: fn(m, hermitian=hermitian, **dict(zip(names, t))))(a, *given.values()), expected)
