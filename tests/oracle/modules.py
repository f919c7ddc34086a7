"""Readings of torch's module database: states drawn from one seed, outputs, gradients, states afterwards, reprs and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import flambeau

from . import convert
from .compare import Differs, leaves, same_structure, same_values
from .database import named
from .exclusions import MODULES
from .readings import Refused, reading, same_gradients, shown_call


def modules() -> dict[str, Any]:
    """The entries that are compared, by name."""
    from torch.testing._internal.common_modules import module_db
    return {entry.name: entry for entry in module_db if entry.name not in MODULES}


def _inputs(entry: Any, kind: torch.dtype, gradient: bool, most: int) -> Iterator[tuple[bool, Any]]:
    """(training, sample) of an entry, drawn from a fixed seed."""
    if kind not in entry.supported_dtypes("cpu"):
        return
    for training in (True, False) if entry.train_and_eval_differ else (True,):
        torch.manual_seed(0)
        drawn = entry.module_inputs_func(entry, device="cpu", dtype=kind, requires_grad=gradient, training=training)
        drawn = [sample for sample in drawn if sample.constructor_input.kwargs.get("options") is None]     # raise here
        yield from ((training, sample) for sample in (drawn[::max(1, -(-len(drawn) // most))] if most else drawn))


class _Built:
    """A module of each library, made by one constructor call from one seed, and the tensors it is called with."""

    def __init__(self, entry: Any, sample: Any, training: bool, kind: torch.dtype) -> None:
        self.how = entry, sample, training, kind
        made, given = sample.constructor_input, sample.forward_input
        calls = (tuple(given.args), dict(given.kwargs))
        arguments = (tuple(made.args), dict(made.kwargs))
        self.theirs = self._made(torch, entry.module_cls, convert.theirs(arguments)).to(kind).train(training)
        constructor = named(entry.name)
        if constructor is None:
            raise Differs("missing", entry.name)
        try:
            self.ours = self._made(flambeau, constructor, convert.ours(arguments)).to(convert.ours(kind)).train(training)
        except Exception as error:
            raise Differs("raises", f"in the constructor {type(error).__name__}: {str(error)[:300]}") from error
        self.their_arguments, self.our_arguments = convert.theirs(calls), convert.ours(calls)

    def again(self) -> _Built:
        """The same over again."""
        return _Built(*self.how)

    @staticmethod
    def _made(library: Any, constructor: Any, arguments: Any) -> Any:
        library.manual_seed(1)
        return constructor(*arguments[0], **arguments[1])

    def run_theirs(self) -> Any:
        return _called(torch, self.theirs, self.their_arguments)

    def run_ours(self) -> Any:
        return _called(flambeau, self.ours, self.our_arguments)


def _before() -> flambeau.Tensor:
    """The state of the generator that a module is called with."""
    flambeau.manual_seed(42)
    return flambeau.get_rng_state()


def _called(library: Any, module: Any, arguments: Any) -> Any:
    args, kwargs = arguments
    library.manual_seed(42)
    return module(*args, **kwargs)


def _each(entry: Any, kind: torch.dtype, gradient: bool, most: int, check: Callable[[_Built], None]) -> int:
    n = 0
    for training, sample in _inputs(entry, kind, gradient, most):
        try:
            check(_Built(entry, sample, training, kind))
            n += 1
        except Refused:
            continue
        except Differs as difference:
            made, given = sample.constructor_input, sample.forward_input
            what = f"{shown_call(made.args, made.kwargs)} | {shown_call(given.args, given.kwargs)} | training={training}"
            raise Differs(difference.kind, f"{str(difference).partition(': ')[2]} | {what}") from difference
    return n


def _state(module: Any) -> dict[str, Any]:
    return dict(module.state_dict())


def _same_state(built: _Built) -> None:
    ours, theirs = _state(built.ours), _state(built.theirs)
    if list(ours) != list(theirs):
        raise Differs("state", f"{list(ours)}, torch {list(theirs)}")
    lazy = torch.nn.parameter.is_lazy
    pairs = [(ours[k], v) for k, v in theirs.items() if not lazy(v)]
    same_structure([x for x, _ in pairs], [y for _, y in pairs])
    same_values([x for x, _ in pairs], [y for _, y in pairs], kind="state")


@reading("modules", of=modules)
def _forward(entry: Any, most: int) -> int:
    def check(built: _Built) -> None:
        if repr(built.ours) != repr(built.theirs):
            raise Differs("repr", f"{built.ours!r}, torch {built.theirs!r}")
        _same_state(built)
        try:
            theirs = built.run_theirs()
        except Exception as error:
            raise Refused(str(error)) from error
        try:
            ours = built.run_ours()
        except Exception as error:
            raise Differs("raises", f"{type(error).__name__}: {str(error)[:300]}") from error
        same_structure(ours, theirs)
        same_values(ours, theirs)
        _same_state(built)
        same_values(list(leaves(built.our_arguments)), list(leaves(built.their_arguments)), kind="inputs afterwards")
    return _each(entry, torch.float32, False, most, check)


@reading("modules, gradient", of=modules)
def _gradient(entry: Any, most: int) -> int:
    def check(built: _Built) -> None:
        same_gradients(built.run_theirs, lambda: [built.their_arguments, list(built.theirs.parameters())],
                       built.run_ours, lambda: [built.our_arguments, list(built.ours.parameters())])
    return _each(entry, torch.float64, True, most, check)


@reading("modules, errors", of=modules)
def _errors(entry: Any, most: int) -> int:
    if entry.module_error_inputs_func is None:
        return 0
    n = 0
    for training in (True, False):
        torch.manual_seed(0)
        for case in entry.module_error_inputs_func(entry, device="cpu", dtype=torch.float32, requires_grad=False, training=training):
            made, given = case.module_error_input.constructor_input, case.module_error_input.forward_input
            def run(library: Any, cls: Any, change: Any, made: Any = made, given: Any = given) -> Exception | None:
                arguments = change(((tuple(made.args), dict(made.kwargs)), (tuple(given.args), dict(given.kwargs)) if given else None))
                try:
                    module = cls(*arguments[0][0], **arguments[0][1])
                    if given:
                        module(*arguments[1][0], **arguments[1][1])
                except Exception as error:
                    return error
                return None
            expected = run(torch, entry.module_cls, convert.theirs)
            if expected is None:
                continue
            error = run(flambeau, named(entry.name), convert.ours)
            where = f"torch {type(expected).__name__}: {str(expected)[:150]} | {shown_call(made.args, made.kwargs)}"
            if error is None:
                raise Differs("no error", where)
            if type(error).__name__ != type(expected).__name__ and not isinstance(error, type(expected)):
                raise Differs("error type", f"{type(error).__name__}: {str(error)[:150]}, {where}")
            n += 1
    return n


@reading("modules, compiled", of=modules)
def _compiled(entry: Any, most: int) -> int:
    def check(built: _Built) -> None:
        try:
            built.run_theirs()
        except Exception as error:
            raise Refused(str(error)) from error
        flambeau._dynamo.reset()
        twin = built.again()
        made = flambeau.compile(twin.ours, backend="aot_eager")
        try:
            eager = built.run_ours()
            drawn = flambeau.get_rng_state()
            result = _called(flambeau, made, twin.our_arguments)
        except Exception as error:
            raise Differs("raises", f"{type(error).__name__}: {str(error)[:300]}") from error
        same_structure(result, eager)
        if not flambeau.equal(drawn, _before()):   # a compiled graph draws from another generator
            return
        same_values(result, eager, kind="compiled")
        same_values(list(_state(twin.ours).values()), list(_state(built.ours).values()), kind="state")
    return _each(entry, torch.float32, False, most, check)
