"""`.data` that a captured function gives back, unused or used: the memory that it is in eager mode, whoever writes to it."""

from __future__ import annotations

import itertools

import pytest

import flambeau as fl

OF = {
    "the input": lambda x: x,
    "a view": lambda x: x[1:],
    "a view of a view": lambda x: x.t()[:1],
    "a result": lambda x: x * 2,
    "a view of a result": lambda x: (x * 2).t(),
    "a written result": lambda x: (x * 2).add_(1),
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
}
GIVEN = {
    "alone": lambda y: [y.data],
    "beside it": lambda y: [y.data, y],
    "twice": lambda y: [y.data, y.data],
    "beside a view": lambda y: [y.data, y.data[:1]],
    "used": lambda y: [d := y.data, d * 3],
    "written": lambda y: [d := y.data, d.mul_(3)],
    "of data": lambda y: [y.data.data],
    "with others": lambda y: [y.sum().detach(), y.data, (y.detach() + 1).data],
}


def _layouts(results):
    """Which results, and the input before them, share memory, and how they lie."""
    places = [r.untyped_storage().data_ptr() for r in results]
    return [(places.index(p), r.shape, r.stride(), r.storage_offset(), r.requires_grad) for p, r in zip(places, results)]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("needs", [False, True])
def test_data_is_given_back_as_the_memory_that_it_is(needs, backend):
    for (of, take), (how, give) in itertools.product(OF.items(), GIVEN.items()):
        fl._dynamo.reset()

        def program(x, take=take, give=give):
            return give(take(x))

        found = []
        for fn in (program, fl.compile(program, backend=backend)):
            x = fl.arange(6.0).view(2, 3).clone().requires_grad_(needs)
            results = fn(x)
            before = [r.tolist() for r in results]
            results[1 if how == "with others" else 0].add_(100)
            found.append((before, _layouts([x, *results]), [r.tolist() for r in (x, *results)]))
        assert found[0] == found[1], (of, how)
