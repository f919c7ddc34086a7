"""Which objects are one: `is`, `id()`, keys that hash by identity; and that a version isn't used where this differs."""

from __future__ import annotations

from dynamo_harness import Counter, check, same

import flambeau as torch
from flambeau import dynamo, nn


def x3():
    return torch.arange(3) * 1.0 + 1


class Thing:
    pass


def both(f, *pairs, **settings):
    """Eager and compiled agree for all pairs of arguments, with one compiled function."""
    compiled = dynamo.compile(f, backend="eager", **settings)
    for pair in pairs:
        assert same(compiled(*pair), f(*pair))


def test_is_of_tensors_lists_and_objects() -> None:
    def f(a, b):
        return x3() * 2 if a is b else x3()

    for make in (x3, lambda: [1], Thing, lambda: {"a": 1}, lambda: nn.Linear(2, 2)):
        a, b = make(), make()
        both(f, (a, b), (a, a), (a, b), (b, b))


def test_equality_of_plain_objects_and_membership() -> None:
    a, b = Thing(), Thing()
    both(lambda p, q: x3() + (p == q) + 10 * (p in [q]), (a, b), (a, a))


def test_keys_by_identity() -> None:
    def f(x, y):
        table = {x: 1, Thing: 2}
        return x * 2, y in table, len({x, y})

    a, b = x3(), x3()
    both(f, (a, b), (a, a), fullgraph=True)


def test_id_of_tensors() -> None:
    def f(x, y):
        z = x + 1
        seen = {id(x): 1, id(z): 2}
        seen[id(y)] = 5
        return z * seen[id(x)], id(y) in seen, id(z) != id(x), id(x) == id(y), len(seen)

    a, b = x3(), x3()
    both(f, (a, b), (a, a), fullgraph=True)
    compiled = dynamo.compile(f, backend=(counter := Counter()))
    for _ in range(20):
        compiled(x3(), x3())
    assert len(counter.graphs) == 1


def test_id_in_existing_containers() -> None:
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.seen = {}
            self.known = {1, 2}

        def forward(self, x):
            self.seen[id(self.weight)] = 1
            self.known.add(id(self.weight))
            return x * self.weight, id(self.weight) in self.seen, id(x) in self.seen

    model = Model()
    for _ in range(2):
        result = dynamo.compile(model, backend="eager")(x3())
        assert same(result[0], x3() * model.weight) and result[1:] == (True, False)
    assert model.seen == {id(model.weight): 1} and id(model.weight) in model.known


def test_id_leaves_the_function() -> None:
    box = Thing()
    x = x3()
    result = dynamo.compile(lambda t: (t + 1, id(t), id(box), hex(id(box))), backend="eager")(x)
    assert result[1:] == (id(x), id(box), hex(id(box)))


def test_reflected_operator_of_an_object() -> None:
    class Half:
        def __radd__(self, other):
            return other / 2

        def __rmatmul__(self, other):
            return other * 3

    check(lambda x: (x + Half(), x @ Half()), x3())
