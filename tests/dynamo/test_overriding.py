"""`__torch_function__` of subclasses, of objects that stand for tensors, and of modes: one graph, and each sees what it sees in eager."""

from __future__ import annotations

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import dynamo

F = torch.nn.functional
SEEN: list = []


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append((func.__name__, [kind.__name__ for kind in types], len(args), sorted(kwargs or {})))
        return super().__torch_function__(func, types, args, kwargs or {})


class Deeper(Logged):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.sin:
            func = torch.cos
        return super().__torch_function__(func, types, args, kwargs)


class Unwrapped(torch.Tensor):
    """Gives plain tensors, and refuses one operator."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.exp:
            return NotImplemented
        with torch.overrides.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        return found * 2 if isinstance(found, torch.Tensor) else found


class Duck:
    def __init__(self, tensor, unit="m"):
        self.tensor, self.unit = tensor, unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(func.__name__)
        given = [arg.tensor if isinstance(arg, Duck) else arg for arg in args]
        units = {arg.unit for arg in args if isinstance(arg, Duck)}
        return cls(func(*given, **(kwargs or {})), "*".join(sorted(units)))


class Counting(torch.overrides.TorchFunctionMode):
    def __init__(self, factor=1):
        self.factor, self.calls = factor, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        SEEN.append((self.factor, func.__name__))
        result = func(*args, **(kwargs or {}))
        return result * self.factor if func is torch.sin else result


def arithmetic(x, y):
    return x * 2 + 1 - y, 2 / x, x @ y.t(), -x, x > 0, x[0], x[:, 1:], abs(x)


def functions(x, y):
    return torch.sin(x), F.relu(x), F.linear(x, y), torch.cat([x, y]), x.sum(dim=0), x.reshape(-1), torch.nn.Softmax(-1)(x)


def facts(x, y):
    return x.shape, x.ndim, x.dtype, len(x), x.T.shape, isinstance(x * 1, type(x)), type(x.sin()) is type(x), x.max(1)


def in_place(x, y):
    z = x.clone()
    z.add_(1).mul_(y)
    z[0] = 5
    z += 2
    return z


def given_classes(x, y):
    plain = y.as_subclass(torch.Tensor)
    return plain * 2, plain * x, plain.as_subclass(type(x)) + 1


TENSORS = [arithmetic, functions, facts, in_place, given_classes]


def described(value):
    if isinstance(value, torch.Tensor):
        return type(value).__name__, value.as_subclass(torch.Tensor)
    if isinstance(value, Duck):
        return "Duck", value.unit, value.tensor
    return tuple(map(described, value)) if isinstance(value, (tuple, list)) else value


def both(f, make, **settings):
    """Results and what was seen, eager and compiled."""
    found = []
    counter = Counter()
    for wrap in (lambda g: g, lambda g: dynamo.compile(g, backend=counter, **settings)):
        run = wrap(f)
        for _ in range(2):
            SEEN.clear()
            found.append((described(run(*make())), list(SEEN)))
    assert same(found[0], found[2]), f"eager: {found[0]}\ncompiled: {found[2]}"
    assert same(found[1], found[3])
    return counter


def pair(kind):
    x = torch.arange(12).reshape(3, 4) * 0.5 + 1
    return x.as_subclass(kind), (x * 2 - 3).as_subclass(kind)


@pytest.mark.parametrize("kind", [Logged, Deeper, Unwrapped])
@pytest.mark.parametrize("program", TENSORS, ids=lambda f: f.__name__)
def test_subclass(program, kind) -> None:
    counter = both(program, lambda: pair(kind), fullgraph=True)
    assert len(counter.graphs) == 1


def test_two_classes() -> None:
    def f(x, y):
        return x * y, y.sin() + x, torch.stack([x, y])

    both(f, lambda: (pair(Logged)[0], pair(Deeper)[1]), fullgraph=True)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(backend) -> None:
    def f(x, y):
        return torch.sin(x) * y

    x, y = pair(Deeper)
    assert same(described(f(x, y)), described(dynamo.compile(f, backend=backend, fullgraph=True)(x, y)))


def test_gradients_reach_the_input() -> None:
    grads = []
    for wrap in (lambda g: g, lambda g: dynamo.compile(g, backend="aot_eager", fullgraph=True)):
        x = (torch.arange(4) * 1.0).as_subclass(Logged).requires_grad_()
        wrap(lambda x: (x.sin() * 2).sum())(x).backward()
        grads.append(x.grad.as_subclass(torch.Tensor))
    assert same(*grads)


def test_nobody_answers() -> None:
    def f(x):
        try:
            return torch.exp(x)
        except TypeError as error:
            return str(error)

    x, _ = pair(Unwrapped)
    assert dynamo.compile(f, backend="eager", fullgraph=True)(x) == f(x)


def test_attributes_of_a_subclass() -> None:
    def f(x):
        y = x * x.scale
        y.scale = x.scale + 1
        return y

    found = []
    for wrap in (lambda g: g, lambda g: dynamo.compile(g, backend="eager", fullgraph=True)):
        x, _ = pair(Logged)
        x.scale = 3
        y = wrap(f)(x)
        found.append((described(y), y.scale))
    assert same(*found)


def test_duck() -> None:
    def f(duck, x):
        made = Duck(x, "s")
        return torch.add(torch.sin(made), 1), torch.mul(duck, made), torch.sum(duck, dim=0), torch.cat([x, x])

    counter = both(f, lambda: (Duck(torch.ones(3)), torch.arange(3) * 1.0), fullgraph=True)
    assert len(counter.graphs) == 1


def test_mode() -> None:
    def f(x):
        mode = Counting(3)
        with mode:
            y = torch.sin(x) + 1
            with Counting(2) as inner:
                y = y.sin() * torch.ones(3)
        return y, x.sin(), mode.calls, inner.calls

    counter = both(f, lambda: (torch.arange(3) * 1.0,), fullgraph=True)
    assert len(counter.graphs) == 1


def test_mode_that_exists() -> None:
    mode = Counting(3)

    def f(x):
        with mode:
            return torch.sin(x) + 1, mode.calls

    both(f, lambda: (setattr(mode, "calls", 0), torch.arange(3) * 1.0)[1:], fullgraph=True)


def test_mode_and_subclass() -> None:
    def f(x, y):
        with Counting(2):
            return x.sin() * y

    both(f, lambda: pair(Logged), fullgraph=True)


def test_break_inside_of_a_mode() -> None:
    def f(x):
        with Counting(3) as mode:
            y = x.sin()
            print(end="")
            y = y.sin()
        return y, mode.calls

    both(f, lambda: (torch.arange(3) * 1.0,))


def test_break_between_overridden_operators() -> None:
    def f(x, y):
        z = x * 2
        print(end="")
        return z * y

    both(f, lambda: pair(Logged))
