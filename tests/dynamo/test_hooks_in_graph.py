"""Hooks on tensors and `tensor.data = ...` inside of compiled functions: one graph, gradients and effects as in eager."""

from __future__ import annotations

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import dynamo

CALLED: list = []


def tripled(x, s):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y.sin()


def with_what_is_around(x, s):
    y = x * 2
    z = s.exp()
    y.register_hook(lambda g: g * s + z)
    return y.sin() + y.cos()


def twice(x, s):
    y = x * 2
    y.register_hook(lambda g: g + 1)
    early = y.sin()
    y.register_hook(lambda g: g * 5)
    return early * y


def removed(x, s):
    y = x * 2
    handle = y.register_hook(lambda g: g * 3)
    y.register_hook(lambda g: None)
    handle.remove()
    return y.sin()


def on_an_input(x, s):
    x.register_hook(lambda g: g * 3)
    gone = x.register_hook(lambda g: g * 100)
    gone.remove()
    return (x * 2).sin()


def with_an_effect(x, s):
    x.register_hook(lambda g: CALLED.append(float(g.sum())))
    return (x * 2).sin()


def after_accumulation(x, s):
    x.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2) is None or None)
    return (x * 2).sin()


def clipped_gradient(x, s):
    y = torch.nn.functional.relu(x * s)
    y.register_hook(lambda g: g.clamp(-0.1, 0.1))
    return y * y, y


def data_of_an_input(x, s):
    s.data = x.detach() * 2
    s += 1
    return s * x, s.sum()


def data_of_a_leaf(x, s):
    old = x.data
    x.data = s * 0.5
    y = x.sin()
    old.mul_(2)
    return y * x, old


def data_kept(x, s):
    x.data = x.data * 0.5 + s
    return x.sin() * s


def data_of_an_intermediate(x, s):
    z = x * 3
    z.data = s * 2
    return z * z.sin()


def data_after_use(x, s):
    """What was saved of it for backward is what it holds then."""
    old = x.data
    x.data = s * 0.5
    y = x.sin()
    x.data = old
    return y * x


def data_of_an_intermediate_after_use(x, s):
    z = x * 3
    w = z.sin()
    z.data = s * 2
    return z * w


def data_without_recording(x, s):
    """Whether it needs a gradient stays as it was."""
    with torch.no_grad():
        x.data = x.data * 0.5
        x.data.add_(s)
        needs = x.requires_grad
    return x.sin() * s, x * needs


PROGRAMS = [tripled, with_what_is_around, twice, removed, on_an_input, with_an_effect, after_accumulation, clipped_gradient,
            data_of_an_input, data_of_a_leaf, data_kept, data_of_an_intermediate, data_without_recording]


def outcome(f):
    CALLED.clear()
    x = (torch.arange(6) * 0.3 - 0.7).requires_grad_()
    s = torch.arange(6) * 0.1 + 0.5
    out = f(x, s)
    results = out if isinstance(out, tuple) else (out,)
    sum((r * r.detach()).sum() for r in results if r.requires_grad).backward()
    return [r.detach() for r in results], x.detach(), x.grad, s, list(CALLED)


def close(a, b):
    if isinstance(a, torch.Tensor):
        return torch.allclose(a, b, rtol=1e-5, atol=1e-6)
    return len(a) == len(b) and all(map(close, a, b)) if isinstance(a, (list, tuple)) else abs(a - b) < 1e-4


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph(program) -> None:
    counter = Counter()
    compiled = dynamo.compile(program, backend=counter, fullgraph=True)
    for _ in range(2):
        assert same(outcome(program), outcome(compiled))
    assert len(counter.graphs) == 1


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_compiled(program) -> None:
    compiled = dynamo.compile(program, backend="inductor" if program is twice else "aot_eager", fullgraph=True)
    for _ in range(2):
        assert close(outcome(program), outcome(compiled))


@pytest.mark.parametrize("program", [data_after_use, data_of_an_intermediate_after_use], ids=lambda f: f.__name__)
def test_data_after_use_breaks_the_graph(program) -> None:
    compiled = dynamo.compile(program, backend="eager")
    for _ in range(2):
        assert close(outcome(program), outcome(compiled))


def test_a_hook_with_effects_on_an_intermediate_breaks_the_graph() -> None:
    def f(x, s):
        y = x * 2
        y.register_hook(lambda g: CALLED.append(float(g.sum())))
        return y.sin()

    assert same(outcome(f), outcome(dynamo.compile(f, backend="eager")))
    with pytest.raises(dynamo.Unsupported, match="a hook on tensor mul"):
        outcome(dynamo.compile(f, backend="eager", fullgraph=True))


def test_hooks_of_a_compiled_module_are_in_its_graph() -> None:
    """Forward hooks and those of backward, of the module that is compiled itself: with it, in one graph; what breaks in one breaks there."""
    seen: list = []

    def module():
        torch.manual_seed(0)
        made = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
        made.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
        made.register_forward_hook(lambda m, args, out: out + args[0])
        made.register_forward_hook(lambda m, args, kwargs, out: out * 3, with_kwargs=True)
        return made

    counter = Counter()
    x = torch.randn(2, 3)
    eager, whole = module(), torch.compile(module(), backend=counter, fullgraph=True)
    assert same(eager(x), whole(x)) and len(counter.graphs) == 1
    eager.register_forward_hook(lambda m, args, out: seen.append(out.sum().item()))
    written = torch.compile(eager, backend=counter)
    assert same(eager(x), written(x)) and len(seen) == 2 and seen[0] == seen[1]
    with pytest.raises(dynamo.Unsupported, match="print"):
        printing = module()
        printing.register_forward_hook(lambda m, args, out: print(out))
        torch.compile(printing, backend="eager", fullgraph=True)(x)
