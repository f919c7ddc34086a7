"""Operations that give a tensor another layout, or other memory, in place: of what comes from outside they break the graph, unless there is
nothing to do; what the graph made becomes a view of itself."""

from __future__ import annotations

import itertools
import math

import pytest

import flambeau as fl
from flambeau.aot.trace import make_fx

WORKS = {
    "squeeze_": lambda x: x.squeeze_(-1),
    "squeeze_ all": lambda x: x.squeeze_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "transpose_": lambda x: x.transpose_(0, -1),
    "t_": lambda x: x.t_(),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "swapdims_": lambda x: x.swapdims_(0, 1).contiguous(),
    "as_strided_": lambda x: x.as_strided_((2,), (1,)),
    "resize_": lambda x: x.resize_(1, 2),
    "resize_ to the same": lambda x: x.resize_(*x.shape),
    "resize_as_": lambda x: x.resize_as_(fl.ones(1, 2)),
    "set_": lambda x: x.set_(fl.ones(2)),
    "set_ empty": lambda x: x.set_(),
    "data": lambda x: setattr(x, "data", fl.ones(3)),
    "then written": lambda x: x.squeeze_(-1).add_(1),
    "of a view": lambda x: x.view(-1).unsqueeze_(0).mul_(2),
    "there and back": lambda x: x.t_().t_().add_(1),
    "out": lambda x: fl.sin(fl.ones(2, 1), out=x),
    "out of a view": lambda x: (fl.sin(fl.ones(2, 1), out=x.view(-1)), x * 2)[1],
    "out of a view of the graph's": lambda x: (y := x * 1, fl.sin(fl.ones(2, 1), out=y.view(-1)), y * 2)[2],
    "written before": lambda x: x.add_(1).t_() * 2,
}


def outcome(work, shape):
    x = fl.arange(float(math.prod(shape))).reshape(shape).clone()
    try:
        made = work(x)
    except (RuntimeError, IndexError) as error:
        return type(error)
    return [(t.tolist(), t.shape, t.stride()) for t in (x, made) if t is not None], made is x


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize(("backend", "dynamic"), [("aot_eager", None), ("inductor", True)])
@pytest.mark.parametrize("name", WORKS)
def test_inputs(name, backend, dynamic):
    for shape in ((2, 1), (2, 2), (1, 1), (2, 3), (2,), ()):
        assert outcome(fl.compile(lambda x: WORKS[name](x), backend=backend, dynamic=dynamic), shape) == outcome(WORKS[name], shape), shape


@pytest.mark.parametrize("work", [
    lambda x: (x * 1).t_().add_(1), lambda x: (x + 1).squeeze_(-1) * 2,
    lambda x: (x + 1).unsqueeze_(dim=0).mul_(3).squeeze_(0).transpose_(0, 1),
    lambda x: [y := x + 1, y.t_(), y.add_(1), y.sum(0)][::3]])
def test_what_the_graph_made(work):
    def one(x):
        made = work(x)
        return made if isinstance(made, fl.Tensor) else made[1]
    compiled = fl.compile(one, fullgraph=True)
    for shape in ((2, 1), (2, 2), (2, 3)):
        assert outcome(compiled, shape) == outcome(one, shape)


def test_traced_by_itself_it_is_refused():
    for change in (lambda y: y.t_(), lambda y: y.unsqueeze_(0)):
        with pytest.raises(NotImplementedError, match="another layout in place"):
            make_fx(lambda x, change=change: change(x * 1).add_(1))(fl.randn(2, 3))


def test_gradients_go_through():
    def work(x, shape):
        return ((x * 2).reshape(shape).t_() * fl.arange(6.0).reshape(3, 2)).sum()
    x = fl.randn(6, requires_grad=True)
    want, = fl.autograd.grad(work(x, (2, 3)), x)
    got, = fl.autograd.grad(fl.compile(work, fullgraph=True)(x, (2, 3)), x)
    fl.testing.assert_close(got, want)
    assert list(itertools.islice(want.tolist(), 2)) == [0.0, 4.0]
