"""A backward pass that keeps no graph lets go of each saved value after its last use, not when it is over."""

from __future__ import annotations

import weakref

import pytest

import flambeau as fl
from flambeau.aot import aot_compile, interpret


def chain(x, w, y):
    return ((x @ w).sin() @ w).sin() @ w + y


@pytest.mark.parametrize("passed_through", [False, True], ids=["computed", "passed through"])
@pytest.mark.parametrize("retain_graph", [False, True])
def test_saved_values_die_when_the_backward_graph_is_done_with_them(retain_graph, passed_through):
    """Also where a gradient is one of the graph's inputs: that of y is the result's."""
    alive: list[list[bool]] = []

    def backward_compiler(gm, examples):
        run = interpret(gm, examples)

        def watched(inputs):
            copies = [t.clone() for t in inputs]
            seen = [weakref.ref(t._data) for t in inputs]
            inputs.clear()
            alive.append([r() is not None for r in seen[:-1]])      # the last is the gradient of the result
            return run(copies)
        return watched

    def backend(gm, examples):
        return aot_compile(gm, examples, forward_compiler=interpret, backward_compiler=backward_compiler)

    x, w, y = fl.randn(8, 8, requires_grad=True), fl.randn(8, 8), fl.randn(8, 8, requires_grad=passed_through)
    loss = fl.compile(chain, backend=backend)(x, w, y).sum()
    loss.backward(retain_graph=retain_graph)
    assert y.grad is None or fl.equal(y.grad, fl.ones(8, 8))
    assert (False in alive[0]) is not retain_graph
    if retain_graph:
        loss.backward()
        assert False in alive[1]
    else:
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
