"""Modules' hooks, states and parametrizations at their edges, beside torch: the results, what is raised and what is warned of."""

import collections
import warnings

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")


def failing_hook(lib):
    def hook(*args):
        raise ValueError("of the hook")

    m = lib.nn.Linear(1, 1)
    m.register_forward_hook(hook, always_call=True)
    m(lib.ones(7))


def hooked_dict(lib):
    class Names(lib.nn.Module):
        def forward(self, x):
            return {"a": x}

    m = Names()
    m.register_full_backward_hook(lambda *args: None)
    m(lib.ones(1, requires_grad=True))


def parametrized(lib, of):
    class Of(lib.nn.Module):
        def forward(self, x):
            return of(x)

    lib.nn.utils.parametrize.register_parametrization(lib.nn.Linear(2, 2), "weight", Of())


def parametrized_twice(lib):
    class Doubled(lib.nn.Module):
        def forward(self, x):
            return x * 2

        def right_inverse(self, y):
            return y / 2

    m = lib.nn.Linear(1, 1)
    m.weight.data.fill_(1)
    for _ in range(2):
        lib.nn.utils.parametrize.register_parametrization(m, "weight", Doubled())
    return m.weight.item(), m.parametrizations.weight.original.item()


CALLS = {
    "states by place": lambda l: list(l.nn.Linear(1, 1).state_dict(collections.OrderedDict(), "p.", True)),
    "a hook that fails after the forward": failing_hook,
    "backward hooks of what gives a dict": hooked_dict,
    "products of containers": lambda l: l.nn.Sequential() * "a",
    "lazy parameters shared": lambda l: l.nn.LazyLinear(3).share_memory(),
    "lazy convolutions of rows": lambda l: l.nn.LazyConv2d(1, 1)(l.ones(2, 2)),
    "parametrizations that give a number": lambda l: parametrized(l, lambda x: 3),
    "parametrizations upon others": parametrized_twice,
    "no gradients to clip": lambda l: l.nn.utils.clip_grad_norm_((p for p in ()), 1.0).item(),
    "the old functional_call": lambda l: l.nn.utils.stateless.functional_call(
        l.nn.Linear(1, 1), {"weight": l.ones(1, 1), "bias": l.zeros(1)}, l.ones(1)).item(),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_torch(name):
    def answer(lib):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                result = CALLS[name](lib)
            except Exception as error:
                result = type(error)
        return result, [(w.category, str(w.message)[:40]) for w in seen]

    assert answer(fl) == answer(torch)
