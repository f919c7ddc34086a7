"""Programs whose calls become calls of compiled code: they go on doing what they did when they were interpreted."""

import copy
import io
import warnings
from typing import NamedTuple

import numpy as np
import pytest

import flambeau as fl
from flambeau import nn
from flambeau.jit import whole

CALLS = whole.RUNS_BEFORE + 4


class Pair(NamedTuple):
    sum: fl.Tensor
    name: str


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 2)
        self.scale = 2.0

    def forward(self, x):
        y = fl.relu(self.norm(self.first(x)))
        if self.training:
            y = y + 1
        return self.last(y) * self.scale


class Counting(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x):
        self.count += 1
        return self.last(fl.relu(self.first(x))) * self.count


class Running(nn.Module):
    """A buffer that each call writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", fl.zeros(4))

    def forward(self, x):
        self.total.mul_(0.5).add_(x.sum(0))
        return x - self.total


class Asking(nn.Module):
    seen: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(x.size(0))
        return (x * 2 + 1).tanh() * len(self.seen)


def chain(x):
    return (x * 2 + 1).tanh().sum(0) / 3


def by_value(x):
    if x.sum() > 0:
        return (x * 2 + 1).tanh()
    return (x - 3).abs() * 2


def by_size(x):
    total = x
    for i in range(x.size(0)):
        total = total + x[i] * i
    return total.relu()


def draws(x):
    return (fl.rand(4) + x).tanh() * 2


def falls(x):
    return fl.nn.functional.dropout(x * 2, 0.5, True).tanh() + 1


def prints(x):
    print("called")
    return (x * 2 + 1).tanh()


def writes(x):
    x.mul_(0.5).add_(1).tanh_()
    return x


def views(x):
    y = (x * 2).tanh()
    return y[0], y[1:], x[0], x


def named(x):
    return Pair((x * 2 + 1).tanh().sum(), "sum")


def listed(x) -> tuple[list[fl.Tensor], dict[str, fl.Tensor], int | None]:
    y = (x * 2 + 1).tanh()
    return [y, x], {"y": y.sum()}, None


def made(x):
    return (fl.zeros(4) + x).mean() * fl.ones(2)


def fails(x):
    y = (x * 2 + 1).tanh()
    assert y.size(0) == 7, "no seven rows"
    return y


PROGRAMS = {fn.__name__: lambda fn=fn: fn for fn in (chain, by_value, by_size, draws, falls, prints, writes, views, named, listed, made, fails)}
PROGRAMS |= {cls.__name__: cls for cls in (Perceptron, Counting, Running, Asking)}


def told(call, x, capsys):
    """What a call gives, prints, and leaves of its input."""
    fl.manual_seed(0)
    try:
        found = call(x)
    except Exception as error:
        found = type(error).__name__ if isinstance(error, AssertionError) else "Error"
    leaves, _ = fl.utils._pytree.tree_flatten(found)
    return [v.detach().numpy().copy() if isinstance(v, fl.Tensor) else v for v in (*leaves, x)], capsys.readouterr().out


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_go_on_as_they_began(name, loaded, capsys):
    fl.manual_seed(1)
    program = PROGRAMS[name]()
    scripted = fl.jit.script(copy.deepcopy(program))
    if loaded:
        scripted = fl.jit.load(io.BytesIO(scripted.save_to_buffer()))
    with fl.no_grad():
        for k in range(CALLS):
            x = fl.randn(3, 4)
            expected, found = told(program, x.clone(), capsys), told(scripted, x.clone(), capsys)
            assert expected[1] == found[1]
            for a, b in zip(expected[0], found[0], strict=True):
                if name == "fails":
                    continue
                assert isinstance(a, str) == isinstance(b, str), (k, a, b)
                if isinstance(a, np.ndarray):
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"call {k}")
    if name == "fails":
        with pytest.raises(fl.jit.Error, match="no seven rows"):
            scripted(fl.randn(3, 4))


def kernels(scripted) -> int:
    """How many kinds of calls are compiled."""
    return sum(made is not None for one in scripted._wholes.values() for made in one.kernels.values())


def perceptron(x=None):
    fl.manual_seed(2)
    net, x = Perceptron().eval(), fl.randn(3, 4)
    scripted = fl.jit.script(net)
    with fl.no_grad():
        for _ in range(CALLS):
            scripted(x)
    assert kernels(scripted) == 1
    return net, scripted, x


def halve_data(net):
    net.first.weight.data = net.first.weight.data / 2


CHANGES = {
    "values": lambda net: net.first.weight.detach().mul_(0.5),
    "data": halve_data,
    "a parameter": lambda net: setattr(net.last, "bias", nn.Parameter(fl.ones(2))),
    "a number": lambda net: setattr(net, "scale", 5.0),
    "the mode": lambda net: net.train(),
    "the dtype": lambda net: net.double(),
    "a state": lambda net: net.load_state_dict({n: t + 1 for n, t in net.state_dict().items()}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_a_module_are_seen(change):
    net, scripted, x = perceptron()
    net = copy.deepcopy(net)
    for module in (net, scripted):
        with fl.no_grad():
            CHANGES[change](module)
    x = x.double() if change == "the dtype" else x
    with fl.no_grad():
        for _ in range(CALLS):
            np.testing.assert_allclose(scripted(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-5)


def test_gradients_other_shapes_and_copies_are_interpreted_or_compiled_anew():
    net, scripted, x = perceptron()
    scripted(x).sum().backward()
    assert scripted.first.weight.grad is not None
    with fl.no_grad():
        for size in (1, 3, 5):
            wide = fl.randn(size, 4)
            assert fl.allclose(scripted(wide), net(wide), atol=1e-6)
        twin = copy.deepcopy(scripted)
        twin.first.weight.zero_()
        assert not fl.allclose(twin(x), scripted(x)) and kernels(twin) == 0
        strided = fl.randn(4, 3).t()
        for _ in range(CALLS):
            assert fl.allclose(scripted(strided), net(strided), atol=1e-6)
        assert kernels(scripted) == 2


def test_settings_that_operators_read_are_seen():
    scripted = fl.jit.script(made)
    x = fl.randn(3, 4)
    for _ in range(CALLS):
        assert scripted(x).dtype is fl.float32
    fl.set_default_dtype(fl.float64)
    try:
        for _ in range(CALLS):
            assert scripted(x).dtype is fl.float64
    finally:
        fl.set_default_dtype(fl.float32)


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.depth, self.plain = nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.BatchNorm2d(8, affine=False)

    def forward(self, x):
        y = fl.relu(self.norm(self.conv(x)))
        return fl.nn.functional.relu6(self.plain(self.depth(y)) * 2 - 0.5) + y


@pytest.mark.parametrize("way", ["scripted", "traced", "loaded", "frozen"])
def test_what_is_optimized_for_inference_has_its_norms_in_its_convolutions(way, monkeypatch):
    fl.manual_seed(3)
    net, x = Norms(), fl.randn(2, 3, 9, 9)
    for _ in range(3):
        net(x)
    net.eval()
    scripted = fl.jit.trace(net, x) if way == "traced" else fl.jit.script(net)
    if way == "loaded":
        scripted = fl.jit.load(io.BytesIO(scripted.save_to_buffer()))
    if way == "frozen":
        scripted = fl.jit.freeze(scripted)
    graphs = []
    compiled = whole.compile_frozen
    with warnings.catch_warnings(), fl.no_grad():
        warnings.simplefilter("error")
        made = fl.jit.optimize_for_inference(scripted)
        monkeypatch.setattr(whole, "compile_frozen", lambda *args: graphs.append(args) or compiled(*args))
        for size in (9, 12):
            x = fl.randn(2, 3, size, size)
            for _ in range(3):
                np.testing.assert_allclose(made(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-4)
    assert len(graphs) == kernels(made) == 2
    again = fl.jit.load(io.BytesIO(made.save_to_buffer()))
    assert fl.allclose(again(x), net(x), atol=1e-5)
