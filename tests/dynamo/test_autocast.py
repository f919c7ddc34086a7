"""Autocast: inside of captured code, around it, across graph breaks."""

from __future__ import annotations

from dynamo_harness import Counter, check, run, same

import flambeau as torch
from flambeau import dynamo


def data():
    return torch.rand(4, 4), torch.rand(4, 4)


def test_inside() -> None:
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            z = y + 1
        return y, z, x @ w

    check(f, *data())
    x, w = data()
    for backend in ("aot_eager", "inductor"):
        result = dynamo.compile(f, backend=backend)(x, w)
        assert [t.dtype for t in result] == [torch.bfloat16, torch.bfloat16, torch.float32]


def test_decorator_and_existing_scope() -> None:
    scope = torch.autocast("cpu", dtype=torch.bfloat16)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def product(x, w):
        return x @ w

    def f(x, w):
        with scope:
            y = x @ w
        return y, x + w

    check(f, *data())
    check(lambda x, w: product(x, w), *data(), graphs=None, breaks=None)


def test_around_is_guarded() -> None:
    def f(x, w):
        return x @ w

    counter = Counter()
    g = dynamo.compile(f, backend=counter)
    x, w = data()
    assert g(x, w).dtype is torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert g(x, w).dtype is torch.bfloat16
    with torch.autocast("cpu", dtype=torch.float16):
        assert g(x, w).dtype is torch.float16
    assert g(x, w).dtype is torch.float32
    assert len(counter.graphs) == 3


def test_break_inside() -> None:
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            dynamo.graph_break()
            z = x @ w
        return y, z, x @ w

    x, w = data()
    result, _, _ = run(f, x, w)
    assert same(result, f(x, w))
    assert not torch.is_autocast_enabled("cpu")


def test_error_inside_leaves_the_mode() -> None:
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ torch.ones(7, 7)

    try:
        run(f, torch.ones(4, 4))
    except RuntimeError:
        pass
    assert not torch.is_autocast_enabled("cpu") and (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def test_a_decorated_function_that_raises_leaves_the_block() -> None:
    def fail(x):
        raise ValueError(x.shape)

    def f(x):
        try:
            torch.autocast("cpu")(fail)(x)
        except ValueError:
            pass
        return x @ x

    check(f, torch.ones(2, 2))
