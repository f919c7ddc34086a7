"""Conjugate and negative views in captured programs: what is written, before, after or through them, is seen as in eager code."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

import flambeau as fl

LAYOUTS: dict[str, Callable] = {
    "rows": lambda x: x, "every second": lambda x: x[::2], "columns": lambda x: x.mT, "a part": lambda x: x[1:, 1:3],
    "a row": lambda x: x[1],
    "expanded": lambda x: x[:, :1].expand(4, 3), "one column": lambda x: x[:, :1], "none": lambda x: x[:0],
}
VIEWS: dict[str, Callable] = {
    "conj": lambda v: v.conj(), "negative": lambda v: v._neg_view(), "both": lambda v: v.conj()._neg_view(),
    "twice": lambda v: v.conj().conj(),
    "imag": lambda v: v.conj().imag, "first": lambda v: v.conj()[:1], "flat": lambda v: v.conj().reshape(-1),
    "turned": lambda v: v.conj().permute(*range(v.ndim)[::-1]),
}
PROGRAMS: dict[str, Callable] = {
    "the view": lambda x, look: look(x),
    "what is made of it": lambda x, look: look(x) * 2,
    "the base is written after": lambda x, look: (y := look(x), x.mul_(2 + 1j), y + 0)[2],
    "before": lambda x, look: (x.mul_(2 + 1j), look(x))[1],
    "the view is written": lambda x, look: (y := look(x), y.mul_(2), x + 0, y)[2:],
    "of an intermediate": lambda x, look: look(x * 2),
    "of what is written": lambda x, look: (z := x * 2, y := look(z), z.add_(1), y.clone())[3],
}


def _facts(x: fl.Tensor, out: object) -> list:
    outs = out if isinstance(out, tuple) else (out,)
    return [(o.resolve_conj().resolve_neg().tolist(), o.shape, o.is_conj(), o.is_neg(), [s for s, n in zip(o.stride(), o.shape) if n > 1],
             o.numel() > 0 and o.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()) for o in outs] + [x.tolist()]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager_code(program: str, backend: str) -> None:
    run = PROGRAMS[program]
    for layout, view in itertools.product(LAYOUTS, VIEWS):
        if program == "the view is written" and layout == "expanded":
            continue    # refused
        fl._dynamo.reset()

        def look(x: fl.Tensor, layout: str = layout, view: str = view) -> fl.Tensor:
            return VIEWS[view](LAYOUTS[layout](x))

        start = fl.arange(12.0).reshape(4, 3) + 1j * fl.arange(12.0).reshape(4, 3).sin()
        a, b = start.clone(), start.clone()
        want = _facts(a, run(a, look))
        got = _facts(b, fl.compile(lambda x, look=look: run(x, look), backend=backend)(b))
        assert got == want, (layout, view)
