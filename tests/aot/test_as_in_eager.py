"""Compiled and eager programs answer alike: values, shapes, strides, what their results look into, and what was written.

Static and dynamic sizes, sizes of 0 and 1. The loop IR runs through NumPy unless a test is about generated code.
"""

from __future__ import annotations

import itertools

import pytest

import flambeau as torch
from flambeau.inductor import config

F = torch.nn.functional


@pytest.fixture(autouse=True)
def without_building(request):
    before, config.native = config.native, "natively" in request.node.name
    yield
    config.native = before


def outcome(fn, arguments):
    """What a call comes to, from outside; or the type of its error."""
    torch.manual_seed(0)
    made = arguments()
    try:
        out = fn(*made)
    except Exception as error:
        return type(error).__name__
    outs = out if isinstance(out, (tuple, list)) else (out,)
    facts = [(t.shape, t.stride(), t.storage_offset(), t.dtype, t._base is None, t.requires_grad) for t in outs]
    bases = [None if t._base is None else (next((i for i, a in enumerate(made) if a is t._base), "inner"), t._base.shape) for t in outs]
    values = [t.detach().clone() for t in outs]
    shared = [[a is b or (a._base is not None and a._base is b._base) for a in outs] for b in outs]
    if any(t.requires_grad for t in outs):
        sum(t.float().sum() for t in outs if t.requires_grad).backward()
    grads = [None if t.grad is None else t.grad for t in made if t.is_floating_point() and t.is_leaf]
    return facts, bases, shared, values, [t.detach() for t in made], grads


def compare(f, arguments, dynamic):
    torch.compiler.reset()
    want, got = outcome(f, arguments), outcome(torch.compile(f, dynamic=dynamic), arguments)
    if isinstance(want, str) or isinstance(got, str):
        assert got == want
        return
    assert got[:3] == want[:3]
    for mine, theirs in zip(itertools.chain(*got[3:]), itertools.chain(*want[3:]), strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            tolerance = {"rtol": 1e-2, "atol": 1e-2} if mine.dtype.itemsize == 2 else {}
            torch.testing.assert_close(mine, theirs, equal_nan=True, **tolerance)


def normal(*shape, dtype=torch.float32, grad=False):
    return torch.randn(*shape).to(dtype).requires_grad_(grad)


def both(test):
    return pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])(test)


# -- an index of no dimensions -------------------------------------------------------------------------------------------
INDEXED = {
    "first": lambda x, i: x[i],
    "second": lambda x, i: x[:, i],
    "last": lambda x, i: x[..., i],
    "twice": lambda x, i: x[i, :, i],
    "before an index": lambda x, i: x[i, :, torch.tensor([0, 1])],
    "beside an index": lambda x, i: x[:, i, torch.tensor([0, 1, 1])],
    "after an index": lambda x, i: x[torch.tensor([0, 1, 1]), :, i],
    "with a mask": lambda x, i: x[torch.tensor([True, False, True]), i],
    "with a slice": lambda x, i: x[1:, i, 1:],
    "computed": lambda x, i: x[(i * 2 - 1) % 2],
    "used": lambda x, i: x[i] * 2 + x[:, i].sum(),
    "of an intermediate": lambda x, i: (x * 2)[:, i],
    "a view of it": lambda x, i: x[:, i].t()[1:],
    "two": lambda x, i: (x[i], x[:, i]),
    "i is changed later": lambda x, i: (x[i], i.add_(-1)),
}  # fmt: skip
INDEX_WRITES = {
    "in place": lambda x, i: x[:, i].add_(1) * 2,
    "item": lambda x, i: x.__setitem__((slice(None), i), 5.0) or x * 1,
    "item by tensor": lambda x, i: x.__setitem__(i, x[0] * 3) or x * 1,
    "read again": lambda x, i: (lambda row: (x.mul_(2), row * 1))(x[i]),
    "returned": lambda x, i: x[i].mul_(3),
    "i is changed before": lambda x, i: (lambda row: (i.add_(-1), row.mul_(3), x * 1))(x[i]),
}  # fmt: skip


@both
@pytest.mark.parametrize("at", [1, -1])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", INDEXED)
def test_an_index_of_no_dimensions_selects(name, grad, at, dynamic):
    compare(INDEXED[name], lambda: (normal(3, 2, 4, grad=grad), torch.tensor(at)), dynamic)


@both
@pytest.mark.parametrize("name", INDEX_WRITES)
def test_what_it_selects_can_be_written(name, dynamic):
    compare(INDEX_WRITES[name], lambda: (normal(3, 2, 4), torch.tensor(1)), dynamic)


@both
def test_out_of_range(dynamic):
    for f in (INDEXED["first"], INDEXED["used"]):
        compare(f, lambda: (normal(3, 2, 4), torch.tensor(7)), dynamic)


# -- views -----------------------------------------------------------------------------------------------------------------
VIEWS = {
    "transposed": lambda y: y.t(),
    "column": lambda y: y[:, :1],
    "row": lambda y: y[1:],
    "one": lambda y: y[0],
    "expanded": lambda y: y.unsqueeze(0).expand(3, -1, -1),
    "flat": lambda y: y.view(-1),
    "strided": lambda y: y[:, ::2],
    "diagonal": lambda y: y.diagonal(),
    "two": lambda y: (y.t(), y[1:]),
    "itself and one": lambda y: (y, y[1:]),
    "of two": lambda y: (y[:1], (y + 1)[1:]),
    "chunks": lambda y: y.chunk(2, 1),
    "detached": lambda y: y[1:].detach(),
    "used as well": lambda y: (y[1:], y[1:] * 2),
}  # fmt: skip


@both
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_views_come_back_as_views(name, grad, dynamic):
    view = VIEWS[name]
    compare(lambda x: view(x * 2), lambda: (normal(3, 4, grad=grad),), dynamic)
    compare(view, lambda: (normal(3, 4, grad=grad),), dynamic)


@both
def test_an_operator_is_no_view(dynamic):
    """linear works on rows; what it gives is a tensor of its own."""
    compare(lambda x, w: (F.linear(x, w), F.linear(x, w).transpose(1, 2)), lambda: (normal(2, 3, 4), normal(5, 4)), dynamic)


# -- writes through views of what repeats itself ------------------------------------------------------------------------------
@both
@pytest.mark.parametrize("write", [
    lambda e: e[0].add_(1),
    lambda e: e[1, 1:3].mul_(2),
    lambda e: e[2:].mul_(2),
    lambda e: e[:1].t().copy_(torch.arange(4.0).unsqueeze(1)),
    lambda e: e.add_(1),
])  # fmt: skip
def test_writes_through_expanded_tensors(write, dynamic):
    """The last is refused: its elements lie in one place."""
    compare(lambda x: (write(x.expand(3, 4)) * 2, x * 1), lambda: (normal(4),), dynamic)
    compare(lambda x: (write(x.expand(3, 4)) * 2, x * 1), lambda: (normal(1, 4),), dynamic)
    compare(lambda e: (write(e) * 2, e * 1), lambda: (normal(4).expand(3, 4),), dynamic)
    compare(lambda e: (write((e * 2).sum(0).expand(3, 4)) * 2,), lambda: (normal(3, 4, grad=True),), dynamic)


# -- sizes of 0 and 1, narrow floats ------------------------------------------------------------------------------------------
SIZES = {
    "softmax": lambda x: x.softmax(-1), "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]), "sum": lambda x: x.sum(0),
    "cumsum": lambda x: x.cumsum(0), "reshape": lambda x: (x * 2).t().reshape(-1), "cat": lambda x: torch.cat(x.chunk(2, 1), 0),
    "pad": lambda x: F.pad(x, (1, 1)), "mean": lambda x: x.mean(-1), "roll": lambda x: x.roll(1, 1), "repeat": lambda x: x.repeat(2, 3),
    "expand": lambda x: x.unsqueeze(0).expand(3, -1, -1) * 2, "stack": lambda x: torch.stack([x, x], 1), "tril": lambda x: x.tril(),
    "norm": lambda x: x.norm(), "prod": lambda x: x.prod(0), "gather": lambda x: x.gather(0, torch.zeros(x.shape, dtype=torch.long)),
    "interleave": lambda x: x.repeat_interleave(2, 0), "normalize": lambda x: F.normalize(x), "where": lambda x: x.where(x > 0, x.t().t()),
    "scatter": lambda x: x.scatter_add(0, torch.zeros(x.shape, dtype=torch.long), x), "index": lambda x: x[:, [0] * x.shape[1]],
}  # fmt: skip


@both
@pytest.mark.parametrize("name", SIZES)
def test_sizes(name, dynamic):
    for shape in ((0, 4), (4, 0), (0, 0), (1, 4), (4, 1), (1, 1)):
        compare(SIZES[name], lambda shape=shape: (normal(*shape, grad=True),), dynamic)


@both
def test_sizes_natively(dynamic):
    def f(x):
        return tuple(SIZES[name](x) for name in ("expand", "gather", "sum", "reshape", "softmax", "interleave"))

    for shape in ((0, 4), (4, 0)):
        compare(f, lambda shape=shape: (normal(*shape, grad=True),), dynamic)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_products_natively(dtype, dynamic):
    def f(x, y, b):
        return (x @ y).relu() + 1, F.gelu(F.linear(x, y.t(), b)), torch.bmm(x.unsqueeze(0), y.unsqueeze(0))

    for m, k, n in ((3, 5, 4), (0, 5, 4), (3, 0, 4), (3, 5, 0), (1, 5, 1)):
        compare(f, lambda m=m, k=k, n=n: tuple(normal(*s, dtype=dtype, grad=True) for s in ((m, k), (k, n), (n,))), dynamic)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("step", [
    lambda x: torch.linalg.vector_norm(x * 3, float("inf"), dim=-1),
    lambda x: torch.linalg.vector_norm(x * 3, float("-inf")),
    lambda x: (x * 3).abs().amax(-1),
    lambda x: (x * 3 + 1).max(),
    lambda x: F.normalize(x * 3, p=float("inf"), dim=-1),
    lambda x: torch.maximum(x * 3.3, x + 2.2),
    lambda x: (x * 3.3).clamp(-1.1, 1.1),
])  # fmt: skip
def test_extrema_of_narrow_floats(step, dtype, dynamic):
    """A maximum is rounded when it is stored; it is still one of its operands, which are computed again in backward."""
    compare(step, lambda: (normal(5, 6, dtype=dtype, grad=True),), dynamic)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_steps_of_narrow_floats(dtype, dynamic):
    x = normal(400, dtype=dtype)
    for step in (lambda x: (x * 3.3).floor(), lambda x: x * 3.3 > x + 2.2, lambda x: (x * 3.3).round(), lambda x: x * 1.1 == x + x * 0.1):
        assert torch.equal(torch.compile(step, dynamic=dynamic)(x), step(x))


@pytest.mark.parametrize("ask", [(0,), (1,), (0, 1), (2,), (0, 2)])
def test_no_gradient_where_eager_has_none(ask):
    """What backward was asked for decides: an input that only other results come from gets None and not zeros."""
    def work(x, y, kept, w):
        made = torch.selu(x)
        kept -= w
        return made, x * y, kept

    def gradients(call):
        x, y, w = (torch.ones(3, requires_grad=True) for _ in range(3))
        results = call(x, y, torch.ones(3), w)
        return torch.autograd.grad([results[i] for i in ask], [x, y, w], [torch.ones(3) for _ in ask], allow_unused=True)
    for got, want in zip(gradients(torch.compile(work)), gradients(work), strict=True):
        assert (got is None) == (want is None)
        assert got is None or torch.equal(got, want)


# -- what is written to an input is another input, or is written to two -------------------------------------------------
def copied(x, y, leaf):
    return x.copy_(leaf), x.sum()


def copied_to_two(x, y, leaf):
    made = leaf * 2
    x.copy_(made)
    y.copy_(made)
    return x.sum(), (y * y).sum()


def copied_to_two_from_an_input(x, y, leaf):
    x.copy_(leaf)
    y.copy_(leaf)
    return x.sum(), (y * leaf).sum()


def copied_on(x, y, leaf):
    x.copy_(leaf)
    y.copy_(x)
    return y.exp()


@both
@pytest.mark.parametrize("of_a_view", [False, True])
@pytest.mark.parametrize("f", [copied, copied_to_two, copied_to_two_from_an_input, copied_on], ids=lambda f: f.__name__)
def test_the_caller_s_leaf_stays_a_leaf(f, of_a_view, dynamic):
    def arguments():
        x = normal(2, 3)[1] if of_a_view else normal(3)
        return x, normal(3), normal(3, grad=True)

    compare(f, arguments, dynamic)
    made = arguments()
    torch.compile(f, backend="aot_eager", dynamic=dynamic)(*made)
    assert made[2].is_leaf


# -- operators that compiled code calls whole: what they answer with can be written to ----------------------------------
WHOLE = {
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x, 3),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x, 3),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
}


@both
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("write", [lambda t: t.exp_(), lambda t: t[0].mul_(2), lambda t: t.transpose(-1, -2).add_(1)])
@pytest.mark.parametrize("name", WHOLE)
def test_what_an_operator_answers_with_can_be_written(name, write, grad, dynamic):
    def f(x):
        y = WHOLE[name](x)
        write(y)
        return y, y * 2

    compare(f, lambda: (normal(2, 4, 5, grad=grad) if name.endswith("1d") else normal(1, 2, 4, 5, grad=grad),), dynamic)


# -- found by the fuzzer ----------------------------------------------------------------------------------------------------
FOUND = {
    "as_strided of what was written": (
        lambda x, i, v: (x.put_(i, v), x.as_strided((), ()), x.as_strided((2,), (1,)).tan()),
        lambda: (torch.arange(6.0)[1::2], torch.tensor([0]), torch.tensor([-0.63]))),
    "as_strided of what is written later": (
        lambda x: (x.as_strided((2,), (1,)), x.exp_(), x.as_strided((), ()) * 2), lambda: (torch.arange(8.0)[3:7],)),
    "as_strided of what was written in rows": (
        lambda x: (x.exp_(), x.as_strided((2,), (3,)), x.as_strided((2, 2), (1, 1), 2) * 2), lambda: (torch.arange(8.0),)),
    "as_strided_ called as a function": (
        lambda x, y: torch.as_strided_(torch.dot(x, y), (1,), (1,)) * 2, lambda: (normal(3), normal(3))),
    "a number where a step would have no tensor": (
        lambda x: (torch.ldexp(torch.zeros(3), x), torch.ldexp(x, torch.full((3,), 2.0)), x.zero_().ldexp_(torch.tensor(3))),
        lambda: (torch.tensor([1.0, -2.0, 3.0]),)),
    "a filled tensor decides how the result lies": (
        lambda x, y: (torch.fill(x, 1.0) != y, torch.fill(x, 1.0) + y), lambda: (normal(3, 4).t(), normal(1, 1))),
    "a check that NaN passes": (
        lambda x, v: F.gaussian_nll_loss(x, v, v), lambda: (normal(2, 2, grad=True), torch.tensor([[float("nan"), 1.0], [2.0, 3.0]]))),
    "an expanded input written with itself": (lambda x: x.__setitem__(slice(None), x), lambda: (torch.ones(1, 1).expand(3, 2),)),
    "an expanded input that an operator writes": (
        lambda x: (x.nan_to_num_(), x.sigmoid_()), lambda: (torch.ones(1, 1).expand(3, 2),)),
    "a scatter onto a product": (
        lambda x, w, i, v: (x @ w).scatter_add_(-1, i, v).multiply_(0.5),
        lambda: (normal(1, 3, 3), normal(3, 3), torch.tensor([[[2]]]), normal(1, 1, 1))),
    "a scatter onto a convolution": (
        lambda x, w, i, v: F.relu(F.conv2d(x, w).scatter_add_(-1, i, v)),
        lambda: (normal(1, 3, 4, 4), normal(2, 3, 2, 2), torch.tensor([[[[2]]]]), normal(1, 1, 1, 1))),
    "a leaf that is a view": (lambda x: x.logical_or_(x), lambda: (torch.ones(3).permute(0).requires_grad_(),)),
}


@both
@pytest.mark.parametrize("name", FOUND)
def test_found(name, dynamic):
    compare(*FOUND[name], dynamic)


# -- sizes that are equal, and orders that only strides tell ---------------------------------------------------------------------
@both
@pytest.mark.parametrize("grad", [False, True])
def test_what_has_the_common_shape_already_comes_back_itself(grad, dynamic):
    compare(lambda x, y, z: tuple(torch.broadcast_tensors(x, y, z)),
            lambda: (normal(1, 1, grad=grad), normal(1, 3).t(), normal(3, 1, grad=grad)), dynamic)


@both
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_parts_of_permuted_memory_are_written_in_its_order(backend, dynamic):
    def f(x, i):
        y, z = x * 2, x + 1
        y[i], z[:, 1] = 3, y[:, 0]
        return y, z, y + z

    for dims in itertools.permutations(range(4)):
        torch.compiler.reset()
        x, i = normal(2, 3, 3, 1).permute(dims), torch.tensor(0)
        if x.shape[1] < 2:
            continue
        for got, want in zip(torch.compile(f, dynamic=dynamic, backend=backend)(x, i), f(x, i), strict=True):
            steps = [(a, b) for a, b, n in zip(got.stride(), want.stride(), want.shape) if n > 1]
            assert all(a == b for a, b in steps) and torch.equal(got, want), dims


@both
@pytest.mark.parametrize("shape", [(2, 2, 2), (4, 6, 5), (3, 3, 1)], ids=str)
def test_what_is_a_view_eagerly_is_one_in_a_graph(shape, dynamic):
    """Permuted memory whose dimensions are split and merged."""
    for dims in itertools.permutations(range(3)):
        for f in (lambda x: x.unflatten(1, (-1, 1)), lambda x: x.flatten(1), lambda x: x.reshape(x.shape[0], 1, -1),
                  lambda x: x.unflatten(1, (2, -1)) if x.shape[1] % 2 == 0 else x, lambda x: x.reshape(-1),
                  lambda x: x.chunk(3)[0].reshape(-1, 1, 1)):
            compare(f, lambda dims=dims: (normal(*shape).permute(dims),), dynamic)


@both
def test_places_that_a_view_shows_several_times_are_written_as_eagerly(dynamic):
    for f in (lambda x: (y := x * 1, y.unfold(0, 3, 2).sin_()), lambda x: x.unfold(0, 2, 2).add_(1), lambda x: x.unfold(0, 2, 1).mul_(2)):
        compare(f, lambda: (normal(7),), dynamic)


@both
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_dense_results_lie_as_eagerly_where_another_size_says_how_long_a_stride_is(backend, dynamic):
    """A slice that happens to be everything: its size is a number, the strides of what it came from are told by symbols."""
    for dims in itertools.permutations(range(4)):
        for f in (lambda x: x[..., :2].exp(), lambda x: x[:, :2].flip(1) + 1, lambda x: x[:2].clone(), lambda x: x[:, :, :2] * x):
            torch.compiler.reset()
            x = normal(2, 2, 2, 2).permute(dims)
            assert torch.compile(f, dynamic=dynamic, backend=backend)(x).stride() == f(x).stride(), dims


@both
def test_a_value_that_lies_otherwise_is_written_through_views_of_views(dynamic):
    """Expanded, into parts of what does not lie dense."""
    def f(x, y):
        v = x.unflatten(0, (2, 2)).mul_(2)
        v[None] = y
        return v, x * 1

    for cut in (slice(2, None, 3), slice(None), slice(1, 3)):
        compare(f, lambda cut=cut: (normal(4, 3, 1)[:, cut], normal(2, 1, 1)), dynamic)


# What was detached is nobody's view: a write to it that has a gradient gives it a history of its own.
DETACHED = {
    "whole": lambda x, y: x.detach().mul_(y),
    "by data": lambda x, y: x.data.mul_(y),
    "a part": lambda x, y: x.detach()[0].mul_(y[0]),
    "a part, beside the rest": lambda x, y: (x.detach()[0].mul_(y[0]), x),
    "of an intermediate": lambda x, y: (lambda v: (v, v.detach().mul_(y)))(x.clone()),
    "a part of an intermediate": lambda x, y: (lambda v: (v, v.detach()[0].mul_(y[0])))(x * 1),
    "both it and its part": lambda x, y: (lambda v: (v[0].mul_(y[0]), v))(x.detach()),
    "by a view without gradient": lambda x, y: x.detach()[0].mul_(2.0) * y,
}


@both
@pytest.mark.parametrize("leaf", [True, False], ids=["leaf", "computed"])
@pytest.mark.parametrize("name", DETACHED)
def test_writes_with_a_gradient_to_what_was_detached(name, leaf, dynamic):
    def answers(call):
        x, y = (torch.arange(1.0, 5.0).reshape(2, 2).add(k).requires_grad_() for k in (0, 4))
        out = call(x if leaf else x.sin(), y)
        reach = [t for t in (out if isinstance(out, tuple) else (out,)) if t.grad_fn is not None]
        return [t.tolist() for t in reach], [None if g is None else g.tolist() for g in torch.autograd.grad(
            reach, [x, y], [torch.ones_like(t) for t in reach], allow_unused=True)]

    want = answers(DETACHED[name])
    for backend in ("aot_eager", "inductor"):
        torch.compiler.reset()
        assert answers(torch.compile(DETACHED[name], backend=backend, dynamic=dynamic)) == want


@both
def test_dimensions_of_one_element_may_tell_that_images_lie_channels_last(dynamic):
    for order in ((0, 1, 2, 3), (0, 3, 2, 1)):
        compare(lambda x, w: F.conv2d(x, w), lambda order=order: (normal(1, 2, 1, 3), normal(2, 2, 1, 1)
                if order == (0, 1, 2, 3) else normal(2, 1, 1, 2).permute(order)), dynamic)


@both
@pytest.mark.filterwarnings("ignore:degrees of freedom")
def test_moments_of_nothing_and_of_one(dynamic):
    def f(x):
        part = x[-2:2:2]
        return *torch.var_mean(part), part.var(0), part.std(), torch.std_mean(part, 0, correction=3)[0]

    torch.compiler.reset()
    g = torch.compile(f, dynamic=dynamic)
    for n in (2, 3, 4, 5, 6):
        x = normal(n, 1)
        for got, want in zip(g(x), f(x), strict=True):
            torch.testing.assert_close(got, want, equal_nan=True)
