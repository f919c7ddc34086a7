"""aot_eager against eager: results, gradients, written inputs, aliases."""

import numpy as np
import pytest

import flambeau as torch
from flambeau import fx, nn
from flambeau.aot import aot_compile, aot_eager, interpret
from flambeau.autograd.graph import saved_tensors_hooks


def data(*shape, seed=0, grad=True):
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    tensor = torch.from_numpy(array)
    return tensor.requires_grad_() if grad else tensor


def clones(tensors):
    made = []
    for t in tensors:
        c = t.detach().clone() if isinstance(t, torch.Tensor) else t
        if isinstance(t, torch.Tensor) and t.requires_grad:
            c.requires_grad_()
        made.append(c)
    return made


def flat(value):
    return [v for item in value for v in flat(item)] if isinstance(value, (tuple, list)) else [value]


def same(a, b, exact=True):
    if not isinstance(a, torch.Tensor):
        return a == b
    assert a.shape == b.shape and a.dtype is b.dtype and a.stride() == b.stride(), (a.shape, b.shape, a.stride(), b.stride())
    check = np.testing.assert_array_equal if exact else np.testing.assert_allclose
    check(a.detach().numpy(), b.detach().numpy(), **({} if exact else {"rtol": 1e-5, "atol": 1e-6}))
    return True


def check(f, *inputs, exact=True, gm=None, non_leaf=False):
    """`f` compiled by aot_eager does what `f` does; returns both answers."""
    mine, theirs = clones(inputs), clones(inputs)
    if non_leaf:
        used_mine, used_theirs = (
            [t * 1 if isinstance(t, torch.Tensor) and t.requires_grad else t for t in ts] for ts in (mine, theirs)
        )
    else:
        used_mine, used_theirs = mine, theirs
    gm = gm or fx.symbolic_trace(f)
    compiled = aot_eager(gm, used_mine)
    got, want = compiled(*used_mine), f(*used_theirs)
    for a, b in zip(flat(got), flat(want), strict=True):
        assert same(a, b, exact)
        if isinstance(a, torch.Tensor):
            assert a.requires_grad == b.requires_grad
    for a, b in zip(used_mine, used_theirs, strict=True):
        assert same(a, b, exact)
    roots = [(a, b) for a, b in zip(flat(got), flat(want), strict=True) if isinstance(a, torch.Tensor) and a.requires_grad]
    if roots:
        weights = [data(*a.shape, seed=i + 50, grad=False) for i, (a, _) in enumerate(roots)]
        sum((a * w).sum() for (a, _), w in zip(roots, weights, strict=True)).backward()
        sum((b * w).sum() for (_, b), w in zip(roots, weights, strict=True)).backward()
        for a, b in zip(mine, theirs, strict=True):
            if isinstance(a, torch.Tensor) and a.requires_grad:
                assert (a.grad is None) == (b.grad is None)
                if a.grad is not None:
                    same(a.grad, b.grad, exact=False)
    return got, want


# -- values and gradients ----------------------------------------------------------------------------------------------


def test_forward_and_gradients():
    check(lambda x, w: (torch.tanh(x @ w), (x * 2).sum()), data(3, 4), data(4, 5, seed=1))


def test_only_some_inputs_need_gradients():
    check(lambda x, w: torch.exp(x) * w, data(3), data(3, seed=1, grad=False))


def test_no_gradients_at_all():
    got, _ = check(lambda x: (x + 1, x.sum()), data(3, grad=False))
    assert not got[0].requires_grad


def test_results_that_need_no_gradient():
    got, _ = check(lambda x: (x > 0, x * 2, x.argmax(0)), data(5))
    assert not got[0].requires_grad and got[1].requires_grad


def test_unused_input_gets_no_gradient():
    x, y = data(3), data(3, seed=1)
    out = aot_eager(fx.symbolic_trace(lambda a, b: a * 2), [x, y])(x, y)
    out.sum().backward()
    assert y.grad is None and x.grad is not None


def test_missing_tangents_are_zeros():
    x = data(3)
    _a, b = aot_eager(fx.symbolic_trace(lambda x: (x * 2, x * 3)), [x])(x)
    b.sum().backward()
    assert x.grad.tolist() == [3, 3, 3]


def test_grad_mode_decides_at_the_call():
    x = data(3)
    f = aot_eager(fx.symbolic_trace(lambda x: x * 2), [x])
    with torch.no_grad():
        assert not f(x).requires_grad
    assert f(x).requires_grad
    assert not f(x.detach()).requires_grad
    with torch.no_grad():
        f = aot_eager(fx.symbolic_trace(lambda x: x * 2), [x])
    f(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_structures_are_kept():
    got, _want = check(lambda x: [x + 1, (x * 2, x - 1)], data(3))
    assert isinstance(got, list) and isinstance(got[1], tuple)
    x = data(2)
    made = aot_eager(fx.symbolic_trace(lambda x: {"a": x + 1, "n": None, "k": 3}), [x])(x)
    assert set(made) == {"a", "n", "k"} and made["k"] == 3 and made["n"] is None


def test_non_tensor_arguments():
    gm = fx.symbolic_trace(lambda x, k, s: x * k, concrete_args={"k": 3, "s": "name"})
    x = data(2)
    assert aot_eager(gm, [x, 3, "name"])(x, 3, "name").tolist() == (x * 3).tolist()


@pytest.mark.parametrize("rank", [4, 5])
def test_gradients_of_channels_last_results_are_taken_in_that_order(rank):
    last = torch.channels_last if rank == 4 else torch.channels_last_3d
    taken = []

    def backward_compiler(gm, examples):
        run = interpret(gm, examples)

        def noted(inputs):
            taken.append(inputs[-1].is_contiguous(memory_format=last) and not inputs[-1].is_contiguous())
            return run(inputs)
        return noted

    def backend(gm, examples):
        return aot_compile(gm, examples, forward_compiler=interpret, backward_compiler=backward_compiler)

    x = torch.randn(2, 3, *[4] * (rank - 2)).contiguous(memory_format=last).requires_grad_()
    f = torch.compile(lambda x: x.sin() * 2, backend=backend)
    g = torch.randn_like(x)
    for given in (g, g.contiguous()):
        (grad,) = torch.autograd.grad(f(x), x, given)
        torch.testing.assert_close(grad, 2 * g * x.detach().cos())
    assert taken == [True, True]


def test_transposed_tangents_and_results():
    check(lambda x, w: (x @ w).t(), data(3, 4), data(4, 5, seed=1))


def test_backward_twice_and_retain():
    x = data(3)
    f = aot_eager(fx.symbolic_trace(lambda x: torch.sin(x)), [x])
    out = f(x).sum()
    out.backward(retain_graph=True)
    first = x.grad.clone()
    out.backward()
    assert (x.grad == first * 2).all()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()


def test_double_backward_is_refused_when_followed():
    x = data(3)
    out = aot_eager(fx.symbolic_trace(lambda x: torch.sin(x)), [x])(x).sum()
    (g,) = torch.autograd.grad(out, x, create_graph=True)
    assert g.requires_grad
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        g.sum().backward()


def test_writing_to_a_saved_input_is_noticed():
    x, w = data(3), data(3, seed=1)
    out = aot_eager(fx.symbolic_trace(lambda x, w: x * w), [x, w])(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_writing_to_a_saved_result_is_noticed():
    x = data(3)
    out = aot_eager(fx.symbolic_trace(lambda x: torch.exp(x)), [x])(x)
    total = out.sum()
    with torch.no_grad():
        out.add_(1)
    try:
        total.backward()  # exp may be computed again from x, which is as good
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        assert (x.grad == torch.exp(x.detach())).all()


def test_saved_tensor_hooks_see_what_is_saved():
    x, w = data(3), data(3, seed=1)
    f = aot_eager(fx.symbolic_trace(lambda x, w: x * w), [x, w])
    packed = []
    with saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        out = f(x, w)
    out.sum().backward()
    assert len(packed) == 2 and x.grad.tolist() == w.tolist()


def test_tensor_constants_are_kept():
    table = data(3, grad=False)
    check(lambda x: x * table + table, data(3))


# -- writes ------------------------------------------------------------------------------------------------------------


def test_in_place_on_intermediates():
    def f(x):
        y = x * 2
        y.add_(1)
        y.mul_(x)
        return y

    check(f, data(3))


def test_written_inputs():
    def f(x, w):
        x.mul_(2)
        return x + w

    check(f, data(3, grad=False), data(3, seed=1))


def test_written_input_that_is_returned():
    def f(x):
        return x.add_(1)

    x = data(3, grad=False)
    got = aot_eager(fx.symbolic_trace(f), [x])(x)
    assert got is x
    check(f, data(3, grad=False))


def test_written_input_with_history():
    def f(x, w):
        x.mul_(w)
        return (x * 3).sum()

    check(f, data(3), data(3, seed=1), non_leaf=True)


def test_writing_to_a_leaf_is_refused():
    x = data(3)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        aot_eager(fx.symbolic_trace(lambda x: x.add_(1)), [x])


def test_swapped_inputs():
    def f(x, y):
        t = x.clone()
        x.copy_(y)
        y.copy_(t)
        return t

    check(f, data(3, grad=False), data(3, seed=1, grad=False))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[1],
        lambda x: x[:, 1:3],
        lambda x: x[::2],
        lambda x: x.t(),
        lambda x: x.view(-1),
        lambda x: x.view(2, 2, 4)[1],
        lambda x: x.diagonal(),
        lambda x: x.unsqueeze(0).squeeze(),
        lambda x: x.t()[1:].view(-1, 2, 2)[0],
        lambda x: x.detach(),
        lambda x: x.as_strided((2, 2), (1, 4), 1),
    ],
)
def test_writes_through_views(view):
    def f(x):
        y = x * 2
        part = view(y)
        part.mul_(3)
        z = y + 1
        part.add_(z.mean())
        return y, part.sum()

    def on_input(x):
        view(x).add_(10)
        return x * 2

    with torch.no_grad():
        check(f, data(4, 4), exact=False)
    check(on_input, data(4, 4, grad=False))


@pytest.mark.parametrize("view", [lambda x: x[1], lambda x: x.t(), lambda x: x[:, 1:3], lambda x: x.view(-1)])
def test_writes_through_views_with_gradients(view):
    def f(x):
        y = x * 2
        part = view(y)
        part.mul_(part.sum())
        return y * y, part.sum()

    check(f, data(4, 4), exact=False)


def test_view_sees_a_later_write_to_its_base():
    def f(x):
        y = x.clone()
        part = y[1:]
        y.mul_(2)
        return part + 1, y

    check(f, data(4))


def test_setitem():
    def f(x, v):
        y = x * 1
        y[1] = v
        y[2:, 0] = 5
        return y

    check(f, data(4, 3), data(3, seed=1))


def test_write_of_another_layout():
    def f(x, y):
        z = torch.zeros_like(x)
        z.copy_(y.t())
        return z.view(-1) + 1, z

    check(f, data(3, 4), data(4, 3, seed=1))


def test_write_of_an_input_does_not_alias_it():
    def f(x):
        y = torch.empty_like(x)
        y.copy_(x)
        return y

    x = data(3, grad=False)
    out = aot_eager(fx.symbolic_trace(f), [x])(x)
    out.add_(1)
    assert (x != out).all()


def test_input_overwritten_after_use_in_backward():
    def f(x, w):
        y = torch.sin(x.clone() * 1) * w
        x.add_(1)
        return y

    check(f, data(3, grad=False), data(3, seed=1))


class BufferTracer(fx.Tracer):
    proxy_buffer_attributes = True


def test_running_statistics():
    mean = torch.zeros(3)

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", mean)

        def forward(self, x):
            self.mean.mul_(0.9).add_(x.mean(0).detach() * 0.1)
            return x - x.mean(0)

    module = Norm()
    x = data(5, 3)
    gm = fx.GraphModule(module, BufferTracer().trace(module))
    gm.graph.eliminate_dead_code()
    f = aot_eager(gm, [x])
    for _ in range(2):
        f(x)
    want = x.detach().mean(0) * 0.1
    np.testing.assert_allclose(mean.numpy(), (want * 0.9 + want).numpy(), rtol=1e-5)
    assert mean._version == 2


def test_inputs_that_share_memory_run_uncompiled():
    def f(x, y):
        x.mul_(2)
        return y + 1

    whole = data(4, grad=False)
    g = aot_eager(fx.symbolic_trace(f), [data(2, grad=False), data(2, grad=False)])
    out = g(whole[:2], whole[:2])
    assert (out == whole[:2] + 1).all()


# -- aliases -----------------------------------------------------------------------------------------------------------


def shares(a, b):
    return a._storage is b._storage


def test_returned_input_is_the_input():
    x = data(3)
    f = aot_eager(fx.symbolic_trace(lambda x: (x, x * 2)), [x])
    assert f(x)[0] is x


def test_returned_views_of_an_input():
    x = data(3, 4)
    a, b, c = aot_eager(fx.symbolic_trace(lambda x: (x.t(), x[1], x.detach())), [x])(x)
    assert shares(a, x) and shares(b, x) and shares(c, x)
    assert a.requires_grad and not c.requires_grad
    (a.sum() + (b * 2).sum()).backward()
    assert x.grad.tolist() == [[1] * 4, [3] * 4, [1] * 4]
    with torch.no_grad():
        b.zero_()
    assert not x[1].any()


def test_returned_views_of_a_written_input():
    def f(x):
        part = x[1:]
        x.mul_(2)
        return part

    _got, _ = check(f, data(3, grad=False))
    x = data(3, grad=False)
    assert shares(aot_eager(fx.symbolic_trace(f), [x])(x), x)


def test_results_that_share_memory():
    def f(x):
        y = x * 2
        return y, y[1:], y.view(-1), y.detach()

    got, _ = check(f, data(3, 2))
    assert shares(got[0], got[1]) and shares(got[0], got[2]) and shares(got[0], got[3])
    check(lambda x: (x * 2).chunk(2), data(4, 2))
    check(lambda x: (x * 2).unbind(0), data(2, 3))


def test_the_same_result_twice():
    def f(x):
        y = x * 2
        return y, y

    a, b = check(f, data(3))[0]
    assert a is b


def test_equal_results_are_apart():
    x = data(3)
    a, b = aot_eager(fx.symbolic_trace(lambda x: (x * 2, x * 2)), [x])(x)
    assert not shares(a, b)


def test_overhead_of_the_wrapper_is_a_function_call():
    x = data(4, grad=False)
    calls = []

    def compiler(gm, examples):
        run = interpret(gm, examples)
        return lambda inputs: calls.append(len(inputs)) or run(inputs)

    f = aot_compile(fx.symbolic_trace(lambda x: (x + 1,)), [x], forward_compiler=compiler)
    assert f(x)[0].tolist() == (x + 1).tolist() and calls == [1]


def test_a_gradient_that_cannot_be_traced_fails_in_backward_alone():
    def f(x):
        y = torch.exp(x)
        y.detach().add_(1)
        return y * 2, x + 1

    x = data(3)
    out, other = aot_eager(fx.symbolic_trace(f), [x])(x)
    np.testing.assert_allclose(out.detach().numpy(), f(x)[0].detach().numpy(), rtol=1e-6)
    assert out.requires_grad and other.requires_grad
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_result_kept_in_an_input_without_its_history():
    def f(x, cache):
        y = x * 2
        cache.detach().copy_(y.detach())
        return y

    inputs = data(3), data(3, seed=1, grad=False)
    check(f, *inputs)
    x, cache = clones(inputs)
    aot_eager(fx.symbolic_trace(f), [x, cache])(x, cache)
    assert not cache.requires_grad


def test_a_detached_alias_with_a_history_of_its_own():
    def f(x, y):
        d = y.detach()
        d.add_(x)
        return d, d.t()

    got, _ = check(f, data(3, 3), data(3, 3, seed=1, grad=False))
    assert got[0].requires_grad and shares(got[0], got[1])


def test_input_written_behind_the_back_of_autograd():
    def f(x):
        y = x * 2
        x.detach().add_(1)
        return y + x

    check(f, data(3))
    check(f, data(3), non_leaf=True)
