"""What full backward hooks of modules are told: gradients of each tensor that goes in and comes out, beside torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


def _leaf(lib: Any) -> Any:
    return lib.tensor([1.0, 2.0], requires_grad=True)


def _plain(lib: Any) -> Any:
    return lib.tensor([3.0, 4.0])


CALLS: dict[str, tuple[Callable, tuple, int]] = {     # what the module computes, of what, and which result is asked about
    "one input needs none": (lambda lib, x, y: (x * y, x + y), (_leaf, _plain), 0),
    "both need one": (lambda lib, x, y: (x * y, x + y), (_leaf, _leaf), 0),
    "one is not used": (lambda lib, x, y: (x * 2, x + y), (_leaf, _leaf), 0),
    "one is cut off": (lambda lib, x, y: (x * 2, y.detach()), (_leaf, _leaf), 0),
    "an index": (lambda lib, x, i: (x[i],), (_leaf, lambda lib: lib.tensor([0])), 0),
    "numbers": (lambda lib, x, n: (x * n, n), (_leaf, lambda lib: 4), 0),
    "an input comes out": (lambda lib, x, y: (x * 2, y), (_plain, _leaf), 1),
    "an integer comes out": (lambda lib, x: (x * 2, x.argmax()), (_leaf,), 0),
}


@pytest.mark.parametrize("hooks", ["post", "pre", "both"])
@pytest.mark.parametrize("row", CALLS)
def test_what_hooks_are_told(row: str, hooks: str) -> None:
    compute, makers, asked = CALLS[row]

    def program(lib: Any) -> list:
        told: list = []

        class Module(lib.nn.Module):    # type: ignore[name-defined, misc]
            def forward(self, *args: Any) -> Any:
                return compute(lib, *args)

        def written(grads: tuple) -> list:
            return [None if g is None else (str(g.dtype).rpartition(".")[2], g.tolist()) for g in grads]

        module, inputs = Module(), [make(lib) for make in makers]
        if hooks != "pre":
            module.register_full_backward_hook(lambda m, gi, go: told.append((written(gi), written(go))))
        if hooks != "post":
            module.register_full_backward_pre_hook(lambda m, go: told.append(written(go)))
        outs = module(*inputs)
        outs[asked].sum().backward()
        leaves = [x for x in inputs if isinstance(x, lib.Tensor)]
        return [told, [None if x.grad is None else x.grad.tolist() for x in leaves], [getattr(o, "requires_grad", None) for o in outs]]

    assert program(flambeau) == program(torch)
