"""Operators that take functions of tensors, as graphs hold them: `choose` is `cond`, `repeat` is `while_loop`, `scanned` is `scan`,
`mapped` is `vmap`.

On real tensors they are Python. Where tensors are fake, nothing tells which function runs and how often, so the call is a primitive of its
own that holds the functions. Its shape rule is what they do on fake tensors, its kernel runs those that it has to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.batched import Level
from ..core import dispatch
from ..core.size import is_dense
from ..core.tensor import Tensor
from ..ops.higher_order import Function, HigherOrder, Scan, _tried, is_recorded, scan, stays_a_loop, stepped, unrolled
from ..ops.registry import General
from . import tape
from .trees import Spec, flatten, unflatten


class Capturing(threading.local):
    """Slot: who captures functions that are given to these operators, in this thread; None where nobody does."""

    by: Any = None
    """It has the methods `cond(pred, true_fn, false_fn, operands)`, `while_loop(cond_fn, body_fn, carried)` and `scan(combine_fn, carried,
    carried_spec, rows, rows_spec, reverse)`."""


capturing = Capturing()


def choose(pred: Tensor | bool, true: Function, false: Function, operands: Sequence[Any]) -> tuple:
    """`true(*operands)` if `pred` holds, else `false(*operands)`: tuples of tensors of the same shapes and dtypes."""
    if isinstance(pred, Tensor) and pred._data is None:
        return Choice(true, false)(pred, list(operands))
    return tuple((true if pred else false)(*operands))


def repeat(condition: Function, body: Function, carried: Sequence[Any], captured: Sequence[Any]) -> tuple:
    """What becomes of `carried = body(*carried, *captured)` while the one result of `condition` of the same arguments holds."""
    if any(isinstance(x, Tensor) and x._data is None for x in (*carried, *captured)):
        return Repetition(condition, body)(list(carried), list(captured))
    while condition(*carried, *captured)[0]:
        carried = body(*carried, *captured)
    return tuple(carried)


def scan_rows(combine_fn: Callable, carried: list, carried_spec: Spec, rows: list, rows_spec: Spec, reverse: bool) -> tuple[list, Any]:
    """(what is carried in the end, the tree of stacked results) of the loop over the first dimension of `rows`.

    Capture has a graph for the step, and calls `scanned`.
    """
    if capturing.by is not None:
        return tuple(capturing.by.scan(combine_fn, carried, carried_spec, rows, rows_spec, reverse))
    specs = []

    def step(carried: tuple, inputs: tuple, captured: tuple) -> tuple[list, list]:
        after, made = call_step(combine_fn, list(carried), carried_spec, list(inputs), rows_spec)
        leaves, spec = flatten(made)
        specs.append(spec)
        return after, leaves

    last, results = unrolled(step, carried, rows, (), reverse)
    return list(last), unflatten(list(results), specs[0])


def call_step(combine_fn: Callable, carried: list, carried_spec: Spec, inputs: list, rows_spec: Spec) -> tuple[list, Any]:
    """One step: what is carried on, and the tree of its results."""
    made = combine_fn(unflatten(carried, carried_spec), unflatten(inputs, rows_spec))
    if not isinstance(made, (tuple, list)) or len(made) != 2:
        raise RuntimeError(f"scan: combine_fn must return a pair, what it carries on and a result, but got {type(made).__name__}")
    after, spec = flatten(made[0])
    if spec != carried_spec:
        raise RuntimeError(f"scan: combine_fn must carry on what init is like, a tree of {len(carried)} tensors, but gave one of "
                           f"{len(after)}, or of another structure")
    for k, (a, b) in enumerate(zip(carried, after)):
        if not isinstance(b, Tensor) or (a.shape, a.dtype) != (b.shape, b.dtype):
            got = f"{list(b.shape)} of {b.dtype}" if isinstance(b, Tensor) else type(b).__name__
            raise RuntimeError(f"scan: combine_fn must carry on tensors like those of init; number {k} is {list(a.shape)} of {a.dtype} "
                               f"before and {got} after")
    for leaf in flatten(made[1])[0]:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"scan: the results of combine_fn must be tensors, got {type(leaf).__name__}")
    return after, made[1]


def scanned(function: Function, carried: Sequence[Tensor], xs: Sequence[Tensor], captured: Sequence[Any], reverse: bool) -> tuple:
    """The last of what is carried, and all results, of a loop over `xs` (ops.higher_order.scan): `function(*carried, *inputs, *captured)`
    gives what is carried on and then results."""
    values = (*carried, *xs, *captured)
    count, step = len(carried), stepped(function, len(carried))
    if stays_a_loop(values) and is_recorded(values):
        return Recorded(function, (count, len(xs)), reverse)(list(carried), list(xs), list(captured))[:-count or None]
    finals, results = scan(step, carried, xs, captured, reverse)
    return (*finals, *results)


def mapped(function: Function, batches: Sequence[Tensor], shared: Sequence[Any], size: int, randomness: str,
           wanted: Sequence[bool]) -> tuple[Tensor, ...]:
    """`function` of examples of the batches, and of what is shared: its results with the batch in front, where that is wanted."""
    level = Level(size, randomness)
    results = level.call(function, (*batches, *shared), [True] * len(batches) + [False] * len(shared))
    return tuple([whole(r, w, level) for r, w in zip(results, wanted, strict=True)])


def whole(result: Any, wanted: bool, level: Level, name: str = "f") -> Tensor:
    """What the function, of this name, answered for one example, for all of them. What isn't a tensor is, where no dimension is `wanted`."""
    if not isinstance(result, Tensor):
        if not wanted:
            return result
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(result)}. Did you mean to set out_dims= to "
                         "None for output?")
    if wanted:
        return level.spread(result)
    if level.holds(result):
        raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None: it differs between examples")
    return result


class Choice(HigherOrder):
    """`choose` where the predicate isn't known."""

    def __init__(self, true: Function, false: Function) -> None:
        super().__init__("cond", lambda pred, operands: None, true, false,
                         derivative=General(lambda gs, pred, operands: self.vjp(gs, pred, operands)))

    def calls(self, args: tuple) -> tuple[Sequence[Any], ...]:
        return args[1], args[1]

    def on_fakes(self, args: tuple) -> Sequence[Tensor]:
        taken, other = (_tried(function, args[1]) for function in self.functions)
        _check_alike(taken, other, "torch.cond: the branches give results")
        return taken

    def on_tensors(self, args: tuple) -> Sequence[Tensor]:
        return self.compiled[0 if args[0] else 1](*args[1])

    def for_batch(self, size: int, args: tuple, has: tuple) -> tuple:
        if has[0]:
            raise NotImplementedError("torch.cond in vmap, with a predicate that differs between examples; use torch.where")

        true, false = (self.over_batches(function, size, has[1]) for function in self.functions)
        return choose(args[0], true, false, args[1])

    def vjp(self, gs: tuple, pred: Tensor, operands: list) -> tuple:
        """The same choice between the gradients of the functions."""
        used = [i for i, g in enumerate(gs) if g is not None]
        wanted = [i for i, x in enumerate(operands) if _wants_gradient(x)]
        true, false = (_pulled_through(function, len(operands), used, wanted) for function in self.functions)
        found = choose(pred, true, false, [*operands, *(gs[i] for i in used)])
        return None, _spread(found, wanted, len(operands))


class Repetition(HigherOrder):
    """`repeat` where tensors aren't known."""

    def __init__(self, condition: Function, body: Function) -> None:
        super().__init__("while_loop", lambda carried, captured: None, condition, body,
                         derivative=General(lambda gs, carried, captured: self.vjp(gs, carried, captured)))

    def calls(self, args: tuple) -> tuple[Sequence[Any], ...]:
        values = (*args[0], *args[1])
        return values, values

    def on_fakes(self, args: tuple) -> Sequence[Tensor]:
        after = [_tried(function, given) for function, given in zip(self.functions, self.calls(args))][1]
        _check_alike(args[0], after, "torch.while_loop: body_fn takes and gives tensors")
        return after

    def on_tensors(self, args: tuple) -> Sequence[Tensor]:
        return repeat(self.compiled[0], self.compiled[1], *args)

    def vjp(self, gs: tuple, carried: list, captured: list) -> tuple:
        """The loop again, with all that is carried kept, and then its rounds from the last to the first."""
        if dispatch.state.grad_enabled:
            raise NotImplementedError("torch.while_loop: the gradient of its gradient; run it outside of the compiled function")
        values, count = [*carried, *captured], len(carried)
        moving = [i for i, x in enumerate(carried) if x.dtype.is_floating_point or x.dtype.is_complex]
        wanted = [*moving, *(count + i for i, x in enumerate(captured) if _wants_gradient(x))]
        seeds = [carried[i].new_zeros(carried[i].shape) if gs[i] is None else gs[i] for i in moving]
        pulled = _pulled_through(self.functions[1], len(values), moving, wanted)
        found = _spread(Return(*self.functions, pulled, moving=moving, wanted=wanted)(values, seeds), wanted, len(values))
        return found[:count], found[count:]


class Return(HigherOrder):
    """The gradient of a `Repetition`: by `wanted` values, given those of the results `moving`."""

    def __init__(self, *functions: Function, moving: list[int], wanted: list[int]) -> None:
        super().__init__("while_loop_backward", lambda values, seeds: None, *functions)
        self.moving, self.wanted = moving, wanted

    def calls(self, args: tuple) -> tuple[Sequence[Any], ...]:
        return args[0], args[0], (*args[0], *args[1])

    def on_fakes(self, args: tuple) -> Sequence[Tensor]:
        return _tried(self.functions[2], (*args[0], *args[1]))

    def on_tensors(self, args: tuple) -> Sequence[Tensor]:
        values, seeds = args
        condition, body, pulled = self.compiled
        rounds = []
        while condition(*values)[0]:
            rounds.append(values)
            after = body(*values)
            values = [*after, *values[len(after) :]]
        total = [values[i].new_zeros(values[i].shape) for i in self.wanted[len(seeds) :]]
        for values in reversed(rounds):
            found = pulled(*values, *seeds)
            seeds = found[: len(seeds)]
            total = [t + g for t, g in zip(total, found[len(seeds) :])]
        return [*seeds, *total]


class Recorded(Scan):
    """`scanned` whose gradient may be asked for: what is carried into each step is stacked after its results, and then gone back over."""

    def __init__(self, function: Function, counts: tuple[int, int], reverse: bool) -> None:
        plain = stepped(function, counts[0])

        def step(carried: tuple, inputs: tuple, captured: tuple) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
            after, made = plain(carried, inputs, captured)
            return after, [*made, *carried]

        super().__init__(step, counts, reverse, General(lambda gs, carried, xs, captured, outs: self.vjp(gs, carried, xs, captured, outs)))
        self.function = function

    def vjp(self, gs: tuple, carried: list, xs: list, captured: list, outs: tuple) -> tuple:
        """The loop from its other end, with the gradients of what is carried, and the sums of those of what is captured."""
        if dispatch.state.grad_enabled:
            raise NotImplementedError("torch.scan: the gradient of its gradient; run it outside of the compiled function")
        count, first = self.count, self.count + self.inputs
        seeds, before = gs[count:len(gs) - count], outs[len(outs) - count:]
        moving = [i for i, x in enumerate(carried) if x.dtype.is_floating_point or x.dtype.is_complex]
        given = [i for i, g in enumerate(seeds) if g is not None]
        of_xs = [i for i, x in enumerate(xs) if _wants_gradient(x)]
        shared = [i for i, x in enumerate(captured) if _wants_gradient(x)]
        wanted = [*moving, *(count + i for i in of_xs), *(first + i for i in shared)]
        pulled = _pulled_through(self.function, first + len(captured), [*moving, *(count + i for i in given)], wanted)

        def step(flow: tuple, inputs: tuple, constants: tuple) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
            found = pulled(*inputs[:first], *constants, *flow[:len(moving)], *inputs[first:])
            ends = len(moving) + len(of_xs)
            return [*found[:len(moving)], *[t + g for t, g in zip(flow[len(moving):], found[ends:])]], found[len(moving):ends]

        starts = [carried[i].new_zeros(carried[i].shape) if gs[i] is None else gs[i] for i in moving]
        totals = [captured[i].new_zeros(captured[i].shape) for i in shared]
        rows = [*before, *xs, *(seeds[i] for i in given)]
        flow, made = scan(step, starts + totals, rows, captured, not self.reverse)
        return (_spread(flow[:len(moving)], moving, count), _spread(made, of_xs, len(xs)),
                _spread(flow[len(moving):], shared, len(captured)))


def _wants_gradient(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _pulled_through(function: Function, count: int, used: list[int], wanted: list[int]) -> Function:
    """`pulled(*inputs, *seeds)`: the gradients of `function` by its inputs `wanted`, given those of its results `used`."""

    def pulled(*values: Any) -> list[Tensor]:
        inputs = list(values[:count])
        with tape.recording():
            for i in wanted:
                inputs[i] = tape.fresh(inputs[i])
            leaves, outs = [inputs[i] for i in wanted], function(*inputs)
            found = tape.gradients([outs[i] for i in used], values[count:], leaves)
            return tape.released([g.contiguous() for g in found], leaves)

    return pulled


def _spread(found: Sequence[Tensor], places: list[int], count: int) -> list[Tensor | None]:
    """A list of `count` with what was found in its places."""
    spread: list[Tensor | None] = [None] * count
    for i, gradient in zip(places, found, strict=True):
        spread[i] = gradient
    return spread


def _check_alike(left: Sequence[Tensor], right: Sequence[Tensor], what: str) -> None:
    if len(left) != len(right):
        raise RuntimeError(f"{what} of different number: {len(left)} and {len(right)}")
    for i, (a, b) in enumerate(zip(left, right)):
        for fact in ("shape", "dtype", "device"):
            if getattr(a, fact) != getattr(b, fact):
                raise RuntimeError(f"{what} of different {fact}: number {i} has {getattr(a, fact)} and {getattr(b, fact)}")
        if tuple(a.stride()) != tuple(b.stride()) or not is_dense(a.shape, a.stride()):
            raise RuntimeError(f"{what} that lie in memory in different ways or with gaps: number {i} has strides {a.stride()} and "
                               f"{b.stride()}; use .contiguous()")
