"""Random programs, drawn step by step while torch runs them, so that most steps are calls that make sense."""

from __future__ import annotations

import warnings
from random import Random
from typing import Any

import numpy as np

from . import inputs
from .draw import Draw
from .parameters import Skip
from .program import Program, Ref, Step, Word
from .table import Row

MOST_ELEMENTS = 4000


def _tensors(name: str, value: Any, lib: Any) -> list[tuple[Ref, Any]]:
    if isinstance(value, lib.Tensor):
        return [(Ref(name), value)]
    if isinstance(value, (tuple, list)):
        return [pair for i, item in enumerate(value[:4]) for pair in _tensors(f"{name}[{i}]", item, lib)]
    return []


def _overlaps(tensor: Any) -> bool:
    """Whether several elements of a tensor are one place, as windows are: which of them stays when it is written to is nobody's
    promise. (Where one is repeated, torch refuses the write.)"""
    places = sum(s * i for s, i in zip(tensor.stride(), np.indices(tensor.shape)))
    return 0 not in tensor.stride() and np.unique(places).size < tensor.numel()


def _wrong(d: Draw, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The same call with one argument spoilt."""
    spoilt = list(args)
    bad = d.choice([17, -9, "x", None, 2.5, (1, 2), Word("torch.float32"), d.fresh((3, 5, 2)), True])
    if len(spoilt) > 1 and d.chance(0.7):
        spoilt[d.int(1, len(spoilt) - 1)] = bad
    elif kwargs:
        kwargs = {**kwargs, d.choice(kwargs): bad}
    else:
        spoilt.append(bad)
    return tuple(spoilt), kwargs


def _with_out(d: Draw, step: Step, value: Any) -> Step | None:
    """The same call writing into a tensor given as `out`, or into several."""
    if step.form != "call" or step.op.endswith("_"):
        return None
    if isinstance(value, d.lib.Tensor):
        out: Any = _out(d, value)
    elif isinstance(value, tuple) and all(isinstance(v, d.lib.Tensor) for v in value):
        out = tuple(_out(d, v) for v in value)
    else:
        return None
    if None in (out if isinstance(out, tuple) else (out,)):
        return None
    return Step(step.target, step.form, step.op, step.args, {**step.kwargs, "out": out})


def _out(d: Draw, value: Any) -> Ref | None:
    """What a result may be written to: a tensor at hand of its shape and dtype, or a fresh one, now and then of another or empty."""
    if value.ndim > 5:
        return None
    d.it = value
    if d.chance(0.25):
        return d.like(reuse=0.9)
    shape = tuple(value.shape) if d.chance(0.85) else (0,)
    dtype = str(value.dtype).removeprefix("torch.") if d.chance(0.85) else inputs.dtype(d.rng)
    out = d.fresh(shape, dtype, plain=0.4)
    expanded = d.value(out).untyped_storage().nbytes() < d.value(out).numel() * d.value(out).itemsize
    return None if expanded else out    # which torch refuses, or writes beyond: avg_pool3d


class Generator:
    """Draws programs from a table. `mode`: "eager" (wrong calls too), "plain" (none), "grad" (inputs that require grad), "mixed"."""

    def __init__(self, lib: Any, table: list[Row], mode: str):
        self.lib, self.mode = lib, mode
        self.table = [row for row in table if mode == "eager" or not row.eager]
        self.weights = [row.weight for row in self.table]
        self.uses: dict[str, int] = {}

    def program(self, seed: int) -> Program:
        """The program of a seed."""
        d = Draw(Random(seed), self.lib, 0.75 if self.mode == "grad" or (self.mode == "mixed" and seed % 2) else 0.0)
        made: list[Any] = []
        steps: list[Step] = []
        count = d.int(3, 15) if self.mode == "eager" else d.int(3, 9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(count * 6):
                if len(steps) >= count:
                    break
                d.pending = []
                step = self._step(d, len(steps))
                if step is not None:
                    steps.append(step)
                    made += d.pending
                    d.pool += [(Ref(i.name), d.space[i.name]) for i in d.pending]
                    if step.has_value and step.target in d.space:
                        d.pool += _tensors(step.target, d.space[step.target], self.lib)
        return Program(tuple(made), tuple(steps)).without_unused()

    def _step(self, d: Draw, number: int) -> Step | None:
        row = d.rng.choices(self.table, self.weights)[0]
        target = f"v{number}"
        try:
            args, kwargs = row.draw(d)
        except Skip:
            return None
        except Exception:  # a drawer met a tensor that it cannot use (sizes of zero, too few dimensions)
            return None
        spoil = d.chance(0.03)
        if spoil:
            args, kwargs = _wrong(d, args, kwargs)
        step = Step(target, row.form, row.op, args, kwargs)
        if isinstance(step.written, Ref) and _overlaps(d.value(step.written)):
            return None
        worked = self._run(d, step)
        if not worked:
            return step if self.mode == "eager" and (spoil or d.chance(0.03)) else None
        self.uses[row.name] = self.uses.get(row.name, 0) + 1
        value = d.space.get(target)
        if any(t.numel() > MOST_ELEMENTS for _, t in _tensors(target, value, self.lib)):
            d.space.pop(target, None)
            return None
        if self.mode in ("eager", "mixed") and d.chance(0.06):
            written = _with_out(d, step, value)
            if written is not None and self._run(d, written):
                return written
        return step

    def _run(self, d: Draw, step: Step) -> bool:
        try:
            exec(step.code(), d.space)
        except Exception:
            return False
        return True
