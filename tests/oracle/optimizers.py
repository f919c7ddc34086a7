"""Readings of torch's optimizer database: steps from the same parameters and gradients, with schedules, and errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import flambeau

from . import convert
from .compare import AUTOCAST, Differs, same_structure, same_values
from .database import named, translated
from .readings import Refused, reading

STEPS = 6
WORKS_HERE = ("lr as a Tensor is not supported", "betas[0] as a Tensor is not supported")   # what torch refuses, by its words
SHAPES = ((3, 4), (2, 5), (1, 1))   # matrices, as Muon takes no others


def optimizers() -> dict[str, Any]:
    """The entries, by name."""
    from torch.testing._internal.common_optimizers import optim_db
    return {entry.name: entry for entry in optim_db}


def _bowl(distance: Any) -> Any:
    return (distance ** 2 + distance ** 4).sum()


class _Run:
    """An optimizer of either library on parameters of its own, which a bowl-shaped function of them gives gradients."""

    def __init__(self, library: Any, entry: Any, kwargs: dict[str, Any], kind: str = "float64") -> None:
        random = np.random.default_rng(3)
        def draw(shape: tuple[int, ...]) -> Any:
            real, imaginary = random.uniform(-1, 1, (2, *shape))
            return library.from_numpy(real + 1j * imaginary if "complex" in kind else real).to(self.kind)
        self.library, self.entry, self.kind = library, entry, getattr(library, kind)
        self.parameters = [draw(shape).requires_grad_() for shape in SHAPES]
        self.goals = [draw(shape) for shape in SHAPES]
        self.optimizer = (entry.optim_cls if library is torch else named("optim." + entry.name))(self.parameters, **kwargs)
        self.schedules: list[Any] = []

    def loss(self) -> Any:
        """The function, with the gradients left in the parameters."""
        self.optimizer.zero_grad()
        loss = sum(_bowl((p - goal).abs()) * (i + 1) for i, (p, goal) in enumerate(zip(self.parameters, self.goals, strict=True)))
        loss.backward()
        if self.entry.only_supports_sparse_grads:
            for p in self.parameters:
                p.grad = (p.grad * (p.grad > 0)).to_sparse()
        return loss

    def step(self) -> Any:
        """One step, and one of each schedule."""
        if self.entry.step_requires_closure:
            loss = self.optimizer.step(self.loss)
        else:
            loss = self.loss()
            self.optimizer.step()
        for schedule in self.schedules:
            schedule.step(*([float(loss)] if type(schedule).__name__ == "ReduceLROnPlateau" else []))
        return loss.detach()

    def all(self) -> tuple[list[Any], Any]:
        """The losses of some steps, and all that was written."""
        losses = [self.step() for _ in range(1 if self.entry.step_requires_closure else STEPS)]    # which many iterations make one of
        state = self.optimizer.state_dict()
        return losses, [list(self.parameters), list(_flat(state["state"])), [_numbers(g) for g in state["param_groups"]]]


def _flat(state: dict[Any, Any]) -> Iterator[Any]:
    for _, value in sorted(state.items(), key=lambda item: str(item[0])):
        yield list(_flat(value)) if isinstance(value, dict) else value


def _numbers(group: dict[str, Any]) -> list[Any]:
    """What a group of parameters holds, by name; which of several ways is taken says nothing of the steps."""
    values = [group[k] for k in sorted(group) if k not in ("foreach", "fused", "params")]
    return [v if isinstance(v, int | float | tuple) or hasattr(v, "dtype") else 0 for v in values]


def _kinds(entry: Any) -> list[str]:
    return ["float64", "complex128"] if entry.supports_complex else ["float64"]


def _ways(entry: Any) -> list[dict[str, bool]]:
    """The ways of computing a step: one tensor after another, all together, in one kernel, recorded by autograd."""
    return [{}, *({"foreach": flag} for flag in (True, False) if "foreach" in entry.supported_impls),
            *([{"fused": True}] if "fused" in entry.supported_impls and "cpu" in entry.supports_fused_on else [])]


def _each(entry: Any, most: int, check: Callable[[dict[str, Any], str], None]) -> int:
    drawn = entry.optim_inputs_func("cpu")
    n = 0
    for sample in drawn[::max(1, -(-len(drawn) // most))] if most else drawn:
        for way in _ways(entry):
            for kind in _kinds(entry):
                try:
                    check(dict(sample.kwargs) | way, kind)
                    n += 1
                except Refused:
                    continue
                except Differs as difference:
                    raise Differs(difference.kind, f"{str(difference).partition(': ')[2]} | {sample.kwargs | way} {kind}") from difference
    return n


def _beside(entry: Any, kwargs: dict[str, Any], kind: str, prepare: Callable[[_Run], None]) -> None:
    try:
        run = _Run(torch, entry, convert.theirs(kwargs), kind)
        prepare(run)
        theirs = run.all()
    except Exception as error:
        raise Refused(str(error)) from error
    try:
        run = _Run(flambeau, entry, convert.ours(kwargs), kind)
        prepare(run)
        ours = run.all()
    except Exception as error:
        raise Differs("raises", f"{type(error).__name__}: {str(error)[:300]}") from error
    same_structure(ours[1], theirs[1])
    same_values(ours, theirs, least=AUTOCAST if entry.name == "Muon" else 1e-5)      # Muon computes in bfloat16


@reading("optimizers", of=optimizers)
def _steps(entry: Any, most: int) -> int:
    return _each(entry, most, lambda kwargs, kind: _beside(entry, kwargs, kind, lambda run: None))


@reading("optimizers, schedules", of=optimizers)
def _schedules(entry: Any, most: int) -> int:
    n = 0
    for schedules in entry.scheduler_inputs:
        def prepare(run: _Run, schedules: Any = schedules) -> None:
            made = schedules if run.library is torch else map(translated, schedules)
            run.schedules = [schedule(run.optimizer) for schedule in made]
        try:
            _beside(entry, {"lr": 0.01}, "float64", prepare)
            n += 1
        except Refused:
            continue
    return n


def _through(library: Any, cls: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Gradients of parameters after two steps that autograd records, by the first parameters and by the gradients stepped along."""
    random = np.random.default_rng(5)
    first, along = ([library.from_numpy(random.uniform(0.5, 1, shape)).requires_grad_() for shape in SHAPES] for _ in range(2))
    parameters = [p.clone() for p in first]
    optimizer = cls(parameters, differentiable=True, **kwargs)
    for _ in range(2):
        for p, g in zip(parameters, along, strict=True):
            p.grad = g
        optimizer.step()
    return list(library.autograd.grad(sum((p ** 2).sum() for p in parameters), first + along, allow_unused=True))


@reading("optimizers, differentiable", of=optimizers)
def _differentiable(entry: Any, most: int) -> int:
    if "differentiable" not in entry.supported_impls:
        return 0
    n = 0
    for sample in entry.optim_inputs_func("cpu"):
        kwargs = {k: v for k, v in sample.kwargs.items() if k != "differentiable"}
        try:
            theirs = _through(torch, entry.optim_cls, convert.theirs(kwargs))
        except Exception:
            continue
        try:
            ours = _through(flambeau, named("optim." + entry.name), convert.ours(kwargs))
        except Exception as error:
            raise Differs("raises", f"{type(error).__name__}: {str(error)[:300]} | {kwargs}") from error
        pairs = [(x, y) for x, y in zip(ours, theirs, strict=True) if y is not None]
        try:
            same_values([x for x, _ in pairs], [y for _, y in pairs], kind="gradient", least=1e-6)   # torch counts in float32
        except Differs as difference:
            raise Differs("gradient", f"{difference} | {kwargs}") from difference
        n += 1
    return n


@reading("optimizers, compiled", of=optimizers)
def _compiled(entry: Any, most: int) -> int:
    def check(kwargs: dict[str, Any], kind: str) -> None:
        flambeau._dynamo.reset()
        eager = _Run(flambeau, entry, convert.ours(kwargs), kind)
        made = _Run(flambeau, entry, convert.ours(kwargs), kind)
        made.optimizer.step = flambeau.compile(made.optimizer.step, backend="aot_eager")
        try:
            expected, found = eager.all(), made.all()
        except Exception as error:
            raise Differs("raises", f"{type(error).__name__}: {str(error)[:300]}") from error
        same_structure(found[1], expected[1])
        same_values(found, expected, kind="compiled")
    return _each(entry, most, check)


@reading("optimizers, errors", of=optimizers)
def _errors(entry: Any, most: int) -> int:
    n = 0
    for case in entry.optim_error_inputs_func("cpu", torch.float32):
        given = case.optimizer_error_input
        def run(library: Any, change: Any, given: Any = given) -> Exception | None:
            cls = entry.optim_cls if library is torch else named("optim." + entry.name)
            params = change(given.params) if given.params is not None else [change(torch.nn.Parameter(torch.ones(3, 4)))]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    optimizer = cls(params, **change(dict(given.kwargs)))
                    if case.error_on.name == "STEP_ERROR":
                        for p in params:
                            p.grad = library.ones_like(p)
                        optimizer.step()
                except (Exception, UserWarning) as error:
                    return error
            return None
        expected = run(torch, convert.theirs)
        if expected is None or str(expected).startswith(WORKS_HERE):
            continue
        error = run(flambeau, convert.ours)
        where = f"torch {type(expected).__name__}: {str(expected)[:150]} | {given}"
        if error is None:
            raise Differs("no error", where)
        if type(error).__name__ != type(expected).__name__ and not isinstance(error, type(expected)):
            raise Differs("error type", f"{type(error).__name__}: {str(error)[:150]}, {where}")
        n += 1
    return n
