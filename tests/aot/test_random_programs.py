"""Programs made at random: compiled by aot_eager they do what they do in eager."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau import fx
from flambeau.aot import aot_eager

UNARY = [torch.sin, torch.tanh, torch.exp, torch.abs, lambda x: x * 2, lambda x: 1 - x, lambda x: x.clone(), torch.sigmoid]
BINARY = [torch.add, torch.mul, torch.sub, torch.maximum]
VIEWS = [
    lambda x: x.t(), lambda x: x.view(-1).view(4, 4), lambda x: x.detach(), lambda x: x.reshape(2, 8).reshape(4, 4),
    lambda x: x.unsqueeze(1).squeeze(1), lambda x: x[:, :],
]  # fmt: skip
SHRINKING = [lambda x: x.sum(0, keepdim=True), lambda x: x.mean(1, keepdim=True), lambda x: x.amax(0, keepdim=True)]
WRITES = [
    lambda x, v: x.add_(v), lambda x, v: x.mul_(0.5), lambda x, v: x[1:3].add_(1), lambda x, v: x.t().copy_(v),
    lambda x, v: x[0].copy_(v[1]), lambda x, v: x.fill_(2), lambda x, v: x[:, 1].mul_(v[2]),
]  # fmt: skip

STEP = st.one_of(
    st.tuples(st.just("unary"), st.integers(0, len(UNARY) - 1), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("binary"), st.integers(0, len(BINARY) - 1), st.integers(0, 20), st.integers(0, 20)),
    st.tuples(st.just("view"), st.integers(0, len(VIEWS) - 1), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("shrink"), st.integers(0, len(SHRINKING) - 1), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("write"), st.integers(0, len(WRITES) - 1), st.integers(0, 20), st.integers(0, 20)),
)


def program(steps, returned):
    """A function of two 4x4 inputs. Only values that are no leaves, or need no gradient, are written to."""

    def f(x, y):
        values = [x, y, x * 1]
        for kind, op, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            if kind == "write":
                target = values[2 + i % (len(values) - 2)]
                WRITES[op](target, b)
            elif kind == "binary":
                values.append(BINARY[op](a, b))
            elif kind == "shrink":
                values.append(SHRINKING[op](a).expand(4, 4) + 0.0)
            else:
                values.append({"unary": UNARY, "view": VIEWS}[kind][op](a))
        return tuple(values[i % len(values)] for i in returned)

    return f


def attempt(call):
    """(answer, None) or (None, the kind of error)."""
    try:
        return call(), None
    except RuntimeError as error:
        return None, error


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(STEP, min_size=1, max_size=12), st.lists(st.integers(0, 20), min_size=1, max_size=3), st.booleans())
def test_random_program(steps, returned, grad):
    f = program(steps, returned)
    arrays = [np.random.default_rng(i).uniform(-1, 1, (4, 4)).astype(np.float32) for i in range(2)]

    def inputs():
        made = [torch.from_numpy(a.copy()) for a in arrays]
        if grad:
            made[0].requires_grad_()
        return made

    gm = fx.GraphModule({}, opaque(f))
    mine, theirs = inputs(), inputs()
    want, refused = attempt(lambda: f(*theirs))
    got, also = attempt(lambda: aot_eager(gm, mine)(*mine))
    if refused is not None:  # a write that autograd forbids
        assert also is not None and type(also) is type(refused)
        return
    assert also is None
    for a, b in zip([*got, *mine], [*want, *theirs], strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)
        assert a.requires_grad == b.requires_grad
    for i, a in enumerate(got):
        for j, b in enumerate(got):
            assert (a._storage is b._storage) == (want[i]._storage is want[j]._storage)
    gradient, wanted = backward(got, mine[0]), backward(want, theirs[0])
    if isinstance(gradient, RuntimeError) or isinstance(wanted, RuntimeError):
        # eager and compiled code save different values, so one may miss what the other overwrote
        assert "modified by an inplace operation" in str(gradient if isinstance(gradient, RuntimeError) else wanted)
        return
    if gradient is None or wanted is None:
        assert gradient is wanted
    else:
        np.testing.assert_allclose(gradient.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def backward(outs, x):
    """The gradient of a weighted sum; None without one; or the error."""
    roots = [(i, o) for i, o in enumerate(outs) if o.requires_grad]
    if not roots:
        return None
    total = sum((o * (i + 1.5)).sum() for i, o in roots)
    try:
        return torch.autograd.grad(total, x, allow_unused=True)[0]
    except RuntimeError as error:
        return error


def opaque(f):
    """A graph with one step that calls `f`."""
    graph = fx.Graph()
    graph.output(graph.call_function(f, (graph.placeholder("x"), graph.placeholder("y"))))
    return graph
