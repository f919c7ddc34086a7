"""The tape: gradients against torch and by hand, accumulation, hooks, in-place writes, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")


def both(fn, *arrays):
    """Gradients of fn's sum under Flambeau and under torch."""
    found = []
    for lib in (fl, torch):
        xs = [lib.tensor(a, requires_grad=True) for a in arrays]
        fn(lib, *xs).sum().backward()
        found.append([x.grad.numpy() for x in xs])
    return found


A = np.random.default_rng(0).standard_normal((3, 4))
B = np.random.default_rng(1).standard_normal((3, 4))
V = np.random.default_rng(2).standard_normal(4)

CASES = {
    "add": lambda t, x, y: x + 2 * y,
    "mul": lambda t, x, y: x * y * x,
    "div": lambda t, x, y: x / (y * y + 1),
    "broadcast": lambda t, x, y: (x[0] * y).exp(),
    "views": lambda t, x, y: (x.t().reshape(2, 6)[:, 1:4] * y.reshape(2, 6)[:, ::2]).tanh(),
    "reuse": lambda t, x, y: (x * y).sin() + (x * y).cos() * x,
    "where": lambda t, x, y: t.where(x > y, x * x, y),
    "matmul": lambda t, x, y: (x @ y.t()) @ x,
    "max": lambda t, x, y: t.maximum(x, y) * x.amax(1, keepdim=True),
    "softmax": lambda t, x, y: (x - x.logsumexp(-1, keepdim=True)).exp() * y,
    "inplace": lambda t, x, y: (x * 2).mul_(y).add_(x),
    "inplace_view": lambda t, x, y: _write_row(t, x, y),
    "write_base_read_view": lambda t, x, y: _write_base_read_view(t, x, y),
    "write_view_read_view": lambda t, x, y: _write_view_read_view(t, x, y),
    "index": lambda t, x, y: x[[0, 2, 2]] * y[:, [1, 3, 0, 1]],
    "cat": lambda t, x, y: t.cat([x, y, x], 1).pow(3),
    "cumsum": lambda t, x, y: x.cumsum(0) * y.cumprod(1),
    "std": lambda t, x, y: x.std(0) * y.var(0) + x.mean(),
}


def _write_row(t, x, y):
    z = x * 1
    z[1] = y[0] * 3
    z[:, 2].mul_(y[:, 1])
    return z * z


def _write_base_read_view(t, x, y):
    z = x * 1
    v = z[1:]
    z.mul_(y)
    return v * v + z.sum()


def _write_view_read_view(t, x, y):
    z = x * 0
    v, w = z.t(), z[:, 1:3]
    v[1] = x[:, 2]
    w.add_(y[:, :2])
    return v.pow(2).sum(1) * z.sum()


@pytest.mark.parametrize("name", CASES)
def test_gradients_match_torch(name):
    ours, theirs = both(CASES[name], A, B)
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith(("inplace_view", "write"))])
def test_gradgradcheck(name):
    x, y = fl.tensor(A[:2, :].copy(), requires_grad=True), fl.tensor(B[:2, :].copy(), requires_grad=True)
    if name in ("views", "index"):
        x, y = fl.tensor(A.copy(), requires_grad=True), fl.tensor(B.copy(), requires_grad=True)
    assert fl.autograd.gradcheck(lambda a, b: CASES[name](fl, a, b), (x, y))
    assert fl.autograd.gradgradcheck(lambda a, b: CASES[name](fl, a, b), (x, y), atol=1e-4)


def test_accumulates_and_zero():
    x = fl.tensor(V, requires_grad=True)
    (x * 2).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    assert x.grad is first and np.allclose(x.grad.numpy(), 5)


def test_gradients_never_share_memory():
    x, y = fl.ones(3, requires_grad=True), fl.ones(3, requires_grad=True)
    (x + y).sum().backward()
    x.grad.mul_(10)
    assert y.grad.tolist() == [1, 1, 1]


def test_backward_twice_raises():
    x = fl.ones(3, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()


def test_stale_saved_tensor_raises():
    x = fl.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_a_write_of_the_same_values_is_a_write():
    """Real numbers are their own conjugates, and what was saved of them is refused like after any other write."""
    for run in (lambda f: f, lambda f: fl.compile(f, backend="aot_eager")):
        x = fl.ones(3, requires_grad=True)
        y = run(lambda x: fl.tanh(x).conj_physical_())(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_an_operation_in_place_saves_what_it_wrote():
    x = fl.randn(4, 5, requires_grad=True)
    y = x * 1
    y.relu_()
    assert y.grad_fn._saved_out.data_ptr() == y.data_ptr()      # no second copy is kept
    y.sum().backward()
    assert (x.grad == (x > 0)).all()
    y = x * 1
    total = y.sigmoid_().sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_leaf_in_place_raises():
    x = fl.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="view of a leaf"):
        x[0].mul_(2)
    with fl.no_grad():
        x.add_(1)
    assert x.tolist() == [2, 2, 2]


def test_non_scalar_backward_raises():
    x = fl.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        fl.ones(1).backward()


def test_hooks():
    seen = []
    x = fl.ones(2, requires_grad=True)
    handle = x.register_hook(lambda g: seen.append("leaf") or g * 2)
    y = x * 3
    y.register_hook(lambda g: seen.append("inner") or g + 1)
    y.retain_grad()
    y.sum().backward()
    assert seen == ["inner", "leaf"] and x.grad.tolist() == [12, 12] and y.grad.tolist() == [2, 2]
    handle.remove()
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    (x * 3).sum().backward()
    assert seen[-1] == [6, 6]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_retained_gradient_is_memory_of_its_own(compiled):
    """Not what backward was given, nor another tensor's gradient, nor one element for all: it may be written to."""
    steps = {"view": lambda x: x.view(2, 2), "clone": lambda x: x.clone(), "add": lambda x: x + 0, "t": lambda x: x.t(),
             "mul": lambda x: x * 2}
    for (first, step), (then, end) in itertools.product(steps.items(), steps.items()):
        x = fl.ones(2, 2, requires_grad=True)
        y = (fl.compile(step) if compiled else step)(x)
        y.retain_grad()
        z = end(y)
        z.retain_grad()
        given = fl.arange(4.0).view(2, 2)
        z.backward(given, retain_graph=True)
        of_x, of_y, was = x.grad.clone(), y.grad.clone(), given.clone()
        z.grad.mul_(5)
        assert x.grad.equal(of_x) and y.grad.equal(of_y) and given.equal(was), (first, then)
        y.grad.mul_(7)
        assert x.grad.equal(of_x) and given.equal(was), (first, then)
        z.grad = None
        z.sum().backward()
        assert z.grad.zero_().equal(fl.zeros(2, 2)), (first, then)


@pytest.mark.parametrize("returned, error", [((), TypeError), (3, TypeError), (fl.ones(2), RuntimeError)])
def test_a_hook_after_accumulation_returns_nothing(returned, error):
    x = fl.ones(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda p: returned)
    with pytest.raises(error, match="hook"):
        (x * 3).sum().backward()


def test_grad_function_and_unused():
    x, y = fl.ones(2, requires_grad=True), fl.ones(2, requires_grad=True)
    out = (x * x).sum()
    with pytest.raises(RuntimeError, match="not have been used"):
        fl.autograd.grad(out, [x, y], retain_graph=True)
    gx, gy = fl.autograd.grad(out, [x, y], allow_unused=True)
    assert gx.tolist() == [2, 2] and gy is None and x.grad is None


def test_double_backward_of_norm():
    x = fl.tensor(V, requires_grad=True)
    (g,) = fl.autograd.grad((x ** 3).sum(), x, create_graph=True)
    (g * g).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 36 * V ** 3)


def test_custom_function():
    class Cube(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x * x * x * k

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x * x * g * ctx.k, None

    x = fl.tensor(V, requires_grad=True)
    assert fl.autograd.gradcheck(lambda a: Cube.apply(a, 2.0), x)
    assert fl.autograd.gradgradcheck(lambda a: Cube.apply(a, 2.0), x)
    assert Cube.apply(x, 1.0).grad_fn.name() == "CubeBackward"


def test_checkpoint_both_kinds():
    for reentrant in (False, True):
        x = fl.tensor(V, requires_grad=True)
        y = fl.autograd.checkpoint.checkpoint(lambda a: (a.sin() * a).exp(), x, use_reentrant=reentrant)
        y.sum().backward()
        z = fl.tensor(V, requires_grad=True)
        ((z.sin() * z).exp()).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), z.grad.numpy())


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_anomaly_names_the_forward():
    with fl.autograd.detect_anomaly():
        x = fl.zeros(2, requires_grad=True)
        y = (x / x).sum()
        with pytest.raises(RuntimeError, match="returned nan values"), pytest.warns(UserWarning, match="test_anomaly_names_the_forward"):
            y.backward()


def test_saved_tensors_hooks():
    packed = []
    x = fl.tensor(V, requires_grad=True)
    with fl.autograd.saved_tensors_hooks(lambda t: packed.append(t.shape) or t.numpy(force=True), lambda a: fl.tensor(a)):
        y = x * x
    y.sum().backward()
    assert packed and np.allclose(x.grad.numpy(), 2 * V)


def test_jacobian_and_hessian():
    x = fl.tensor(V)
    jacobian = fl.autograd.functional.jacobian(lambda a: a ** 2, x)
    np.testing.assert_allclose(jacobian.numpy(), np.diag(2 * V))
    hessian = fl.autograd.functional.hessian(lambda a: (a ** 3).sum(), x)
    np.testing.assert_allclose(hessian.numpy(), np.diag(6 * V))
    _, product = fl.autograd.functional.jvp(lambda a: a.exp(), x, fl.ones(4, dtype=fl.float64))
    np.testing.assert_allclose(product.numpy(), np.exp(V))


@pytest.mark.parametrize("name", ["vjp", "jvp"])
def test_products_with_jacobians_of_outputs_without_gradient(name):
    answers = []
    for t in (fl, torch):
        x, w = t.tensor(V), t.ones(4, dtype=t.float64)
        product = getattr(t.autograd.functional, name)
        answers.append([product(lambda a: w * 2, (x,), (w,)), product(lambda a: (w * 2, a * a), x, (w, w) if name == "vjp" else w)])
        with pytest.raises(RuntimeError, match="the user-provided function"):
            product(lambda a: w * 2, x, w, strict=True)
    for ours, theirs in zip(*map(fl.utils._pytree.tree_leaves, answers), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy())


def test_grad_modes():
    x = fl.ones(2, requires_grad=True)
    with fl.no_grad():
        assert not (x * 2).requires_grad and not fl.is_grad_enabled()
        with fl.enable_grad():
            assert (x * 2).requires_grad
    with fl.inference_mode():
        assert fl.is_inference_mode_enabled() and not (x * 2).requires_grad

    @fl.no_grad()
    def f(a):
        return a * 2

    assert not f(x).requires_grad and fl.is_grad_enabled()
    fl.set_grad_enabled(False)
    assert not fl.is_grad_enabled()
    fl.set_grad_enabled(True)


@pytest.mark.parametrize("pick", [lambda x: fl.topk(x, 2)[0], lambda x: fl.sort(x)[0], lambda x: x.max(-1)[0], lambda x: x.cummax(-1)[0]])
def test_picked_values_may_be_written_to(pick) -> None:
    """Their gradients need the indices only, and programs normalise the values in place."""
    x = fl.tensor([[1.0, 3.0, 2.0]], requires_grad=True)
    values = pick(x)
    values /= 2.0
    values.sum().backward()
    assert float(x.grad.sum()) == values.numel() / 2


OVERWRITES = {
    "zero_": lambda lib, y: y.zero_(),
    "fill_": lambda lib, y: y.fill_(3.0),
    "fill_ with a tensor": lambda lib, y: y.fill_(lib.tensor(2.0)),
    "uniform_": lambda lib, y: y.uniform_(),
    "normal_": lambda lib, y: y.normal_(),
    "bernoulli_": lambda lib, y: y.bernoulli_(0.5),
    "copy_": lambda lib, y: y.copy_(lib.ones(4)),
    "y[:]": lambda lib, y: y.__setitem__(slice(None), 0.0),
    "y[:2]": lambda lib, y: y.__setitem__(slice(0, 2), 0.0),
    "view": lambda lib, y: y.view(2, 2).zero_(),
    "part": lambda lib, y: y[1:].uniform_(),
    "eq_": lambda lib, y: y.eq_(2.0),
    "round_": lambda lib, y: y.round_(),
    "mul_ 0": lambda lib, y: y.mul_(0),
    "_foreach_zero_": lambda lib, y: lib._foreach_zero_([y]),
}


@pytest.mark.parametrize("name", OVERWRITES)
def test_what_is_overwritten_gets_a_gradient_of_zeros(name):
    torch = pytest.importorskip("torch")
    grads = []
    for lib in (fl, torch):
        x = lib.arange(1.0, 5.0, requires_grad=True)
        y = x * 2
        OVERWRITES[name](lib, y)
        assert y.requires_grad and not y.is_leaf
        (y * lib.arange(1.0, 5.0)).sum().backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]


def test_overwriting_with_something_that_requires_grad():
    x, w = fl.ones(3, requires_grad=True), fl.ones(3, requires_grad=True)
    y = x * 2
    y.copy_(w)
    (y * 5).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0] and w.grad.tolist() == [5.0, 5.0, 5.0]
    buffer = fl.zeros(3)
    buffer.zero_()
    assert not buffer.requires_grad


def test_a_factor_of_zero_gives_gradients_of_zeros():
    x = fl.ones(3, requires_grad=True)
    (x * 0).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
    part = fl.tensor([float("inf"), 1.0])
    z = fl.ones(2, requires_grad=True)
    y = z * 1
    y[:1] = 0.0
    y.backward(part)
    assert z.grad.tolist() == [0.0, 1.0]


def test_out_does_not_take_part_in_autograd():
    x, out = fl.ones(3, requires_grad=True), fl.zeros(3)
    with pytest.raises(RuntimeError, match=r"out=\.\.\. arguments don't support automatic differentiation"):
        fl.add(x, x, out=out)
    assert out.tolist() == [0.0, 0.0, 0.0]
    with fl.no_grad():
        assert fl.add(x, x, out=out).tolist() == [2.0, 2.0, 2.0]


def test_pieces_may_be_written_in_place():
    for pieces in (lambda y: y.tensor_split(2), lambda y: y.tensor_split([2]), lambda y: [y[i] for i in range(4)]):
        x = fl.arange(4.0, requires_grad=True)
        y = x * 1
        pieces(y)[1].mul_(3)
        (y * 2).sum().backward()
        changed = [2.0, 2.0, 6.0, 6.0] if len(pieces(y)) == 2 else [2.0, 6.0, 2.0, 2.0]
        assert x.grad.tolist() == changed


def test_a_gradient_of_two_leaves_is_copied_for_one_of_them():
    given = []

    class Sum(fl.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            both = g * 2
            given.append(both.data_ptr())
            return both, both

    a, b = fl.ones(100, requires_grad=True), fl.ones(100, requires_grad=True)
    Sum.apply(a, b).sum().backward()
    assert a.grad.data_ptr() != b.grad.data_ptr()
    assert given[0] in (a.grad.data_ptr(), b.grad.data_ptr())


def test_anomaly_detection_by_functions_of_the_namespace():
    assert not fl.is_anomaly_enabled()
    try:
        fl.set_anomaly_enabled(True, False)
        assert fl.is_anomaly_enabled() and not fl.is_anomaly_check_nan_enabled()
    finally:
        fl.set_anomaly_enabled(False)
    assert not fl.is_anomaly_enabled() and fl.is_anomaly_check_nan_enabled()


def _edges(t):
    edge = t.autograd.graph.get_gradient_edge
    x = t.ones(4, requires_grad=True)
    y = x * 2
    a, b = y.chunk(2)
    yield t.autograd.grad((a * 2 + b * 3).sum(), [edge(a), edge(b), edge(y)], retain_graph=True)
    yield t.autograd.grad(edge((y * y).sum()), x, retain_graph=True)
    yield t.autograd.grad(edge(y), x, grad_outputs=t.ones(4) * 5, retain_graph=True)
    yield t.autograd.grad([edge(b), y.sum()], edge(x), grad_outputs=[t.ones(2), None], retain_graph=True)
    yield (edge(b).output_nr, len(t.autograd.graph.GradientEdge._fields), edge(x).node is edge(x).node)
    y.sum().backward(inputs=edge(x), retain_graph=True)
    yield (x.grad,)
    t.autograd.backward(edge(y.sum()))
    yield (x.grad,)


def test_edges_of_the_graph_stand_for_tensors():
    oracle = pytest.importorskip("torch", reason="gradients are compared with torch's")
    for mine, theirs in zip(_edges(fl), _edges(oracle), strict=True):
        assert [getattr(g, "tolist", lambda g=g: g)() for g in mine] == [getattr(g, "tolist", lambda g=g: g)() for g in theirs]


@pytest.mark.parametrize("refused", [
    lambda t, edge, x: edge(t.ones(2)), lambda t, edge, x: t.autograd.grad(edge(x * 2), x),
    lambda t, edge, x: t.autograd.grad(x.sum(), edge(x * 2)),
    lambda t, edge, x: t.autograd.grad(x.sum(), edge(x * 2), allow_unused=True, materialize_grads=True),
])
def test_edges_of_the_graph_are_refused_as_tensors_are(refused):
    for library in (pytest.importorskip("torch", reason="exceptions are compared with torch's"), fl):
        with pytest.raises(RuntimeError):
            refused(library, library.autograd.graph.get_gradient_edge, library.ones(2, requires_grad=True))


def test_leaves_get_gradients_in_one_order_and_as_soon_as_they_can() -> None:
    """Where memory lies decides nothing: PyTorch's order, a leaf before all that is still to do."""
    for _ in range(4):
        ws = [torch.ones(2, requires_grad=True) for _ in range(5)]
        seen: list[int | str] = []
        for i, w in enumerate(ws):
            w.register_post_accumulate_grad_hook(lambda w, i=i: seen.append(i))
        h = x = torch.ones(2, requires_grad=True)
        x.register_post_accumulate_grad_hook(lambda x: seen.append("x"))
        for i, w in enumerate(ws):
            h = (h * w).sin()
            h.register_hook(lambda g, i=i: seen.append(f"h{i}"))
        h.sum().backward()
        assert seen == ["h4", 4, "h3", 3, "h2", 2, "h1", 1, "h0", "x", 0]
        seen.clear()
        torch.stack(ws).sum().backward()
        assert seen == [0, 2, 4, 1, 3]
        seen.clear()
        (torch.cat([ws[0], ws[1], ws[2]]) * torch.cat([ws[3], ws[4], ws[0]])).sum().backward()
        assert seen == [3, 4, 0, 1, 2]
