"""Random graphs of elementwise, view, reduction and product primitives, compiled and interpreted, against eager."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from flambeau import inductor
from flambeau.fx import Node
from flambeau.inductor.graph import _interpreted
from tests.inductor.graphs import Builder, eager

UNARY = ("relu", "tanh", "sigmoid", "neg", "abs", "sin")
BINARY = ("add", "sub", "mul", "maximum", "minimum")


def shape_of(x: Node) -> tuple:
    return tuple(x.meta["val"]._layout.shape)


class Grower:
    """Grows a graph by random steps, keeping values small."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.b = Builder()
        base = [tuple(int(n) for n in self.rng.choice([1, 2, 3, 4, 6, 8, 17, 32], self.rng.integers(1, 5)))
                for _ in range(2)]
        base += [tuple(int(n) for n in self.rng.choice([16, 40, 64], 2))]
        self.values = [self.b.input(self.rng.normal(size=s).astype(np.float32)) for s in base for _ in range(2)]

    def pick(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def step(self) -> None:
        kinds = [self.unary, self.binary, self.binary, self.reduce, self.permute, self.slice, self.reshape, self.spread,
                 self.cat, self.product, self.flip]
        made = self.pick(kinds)(self.pick(self.values))
        if made is not None and math.prod(shape_of(made)) < 60000:
            self.values.append(made)

    def unary(self, x: Node) -> Node:
        return getattr(self.b, self.pick(UNARY))(x)

    def binary(self, x: Node) -> Node | None:
        same = [v for v in self.values if shape_of(v) == shape_of(x)]
        other = self.pick([*same, 0.5, 2.0])
        return getattr(self.b, self.pick(BINARY[:3] if isinstance(other, float) else BINARY))(x, other)

    def reduce(self, x: Node) -> Node | None:
        rank = len(shape_of(x))
        dims = tuple(int(d) for d in range(rank) if self.rng.random() < 0.5)
        if not dims:
            return None
        count = math.prod(shape_of(x)[d] for d in dims)
        kind = self.pick(("sum", "amax", "amin"))
        out = getattr(self.b, kind)(x, dims)
        return self.b.mul(out, 1 / count) if kind == "sum" else out

    def permute(self, x: Node) -> Node:
        return self.b.permute(x, tuple(int(d) for d in self.rng.permutation(len(shape_of(x)))))

    def slice(self, x: Node) -> Node | None:
        shape = shape_of(x)
        d = int(self.rng.integers(len(shape))) if shape else 0
        if not shape or shape[d] < 2:
            return None
        start = int(self.rng.integers(shape[d] - 1))
        return self.b.slice_(x, d, start, shape[d], int(self.rng.integers(1, 3)))

    def reshape(self, x: Node) -> Node | None:
        lay = x.meta["val"]
        if not lay.is_contiguous() or not shape_of(x):
            return None
        n = math.prod(shape_of(x))
        a = self.pick([k for k in range(1, n + 1) if n % k == 0 and k < 300])
        return self.b.view_(x, (n // a, a))

    def spread(self, x: Node) -> Node | None:
        if len(shape_of(x)) > 3:
            return None
        d = int(self.rng.integers(len(shape_of(x)) + 1))
        y = self.b.unsqueeze(x, d)
        return self.b.expand(y, tuple(5 if k == d else n for k, n in enumerate(shape_of(y))))

    def cat(self, x: Node) -> Node | None:
        if not shape_of(x):
            return None
        d = int(self.rng.integers(len(shape_of(x))))
        fits = [v for v in self.values if len(shape_of(v)) == len(shape_of(x)) and all(
            a == b for k, (a, b) in enumerate(zip(shape_of(v), shape_of(x), strict=True)) if k != d)]
        return self.b.cat([x, self.pick(fits)], d)

    def product(self, x: Node) -> Node | None:
        pairs = [v for v in self.values if len(shape_of(v)) == len(shape_of(x)) == 2 and shape_of(x)[1] == shape_of(v)[0]]
        if not pairs:
            return None
        return self.b.mul(self.b.mm(x, self.pick(pairs)), 1 / max(shape_of(x)[1], 1))

    def flip(self, x: Node) -> Node | None:
        return self.b.flip(x, (len(shape_of(x)) - 1,)) if shape_of(x) else None


@pytest.mark.parametrize("seed", range(25))
def test_random_graph(seed: int) -> None:
    grower = Grower(seed)
    for _ in range(40):
        grower.step()
    made = grower.values[6:]
    outputs = [v for v in made if not v.users] + made[-2:]
    gm = grower.b.finish(*dict.fromkeys(outputs))
    graph = inductor.compile_graph(gm)
    want = eager(gm, grower.b.inputs)
    for got in (graph(list(grower.b.inputs)), _interpreted(graph.program)(list(grower.b.inputs))):
        for w, g in zip(want, got, strict=True):
            assert w.shape == g._data.shape
            np.testing.assert_allclose(g._data, w, rtol=2e-4, atol=2e-4)
