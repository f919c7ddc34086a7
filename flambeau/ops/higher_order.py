"""Operators that take functions of tensors: what they share, and the loop over a sequence, `scan`.

On real tensors they are Python. Where tensors are fake, the call is a primitive of its own that holds the functions: its shape rule is
what they do on fake tensors, its kernel runs them, and a compiler may compile them as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from ..core import dispatch
from ..core.size import contiguous_strides
from ..core.tensor import Tensor, fake
from .batching import spread
from .joining import stack
from .registry import Derivative, Primitive

Function = Callable[..., Sequence[Any]]
Step = Callable[[tuple, tuple, tuple], tuple[Sequence[Tensor], Sequence[Tensor]]]


class _WithoutDraws:
    """A mode in which random numbers are refused: how many are drawn would depend on data."""

    def handle(self, prim: Any, args: tuple) -> Any:
        return dispatch.run(prim, args)

    def rng_state(self, count: Any, where: Any, generator: Any) -> None:
        if generator is not None:
            return None
        raise NotImplementedError("random numbers are drawn in a function that may not run; draw them outside, and pass them in")


class HigherOrder(Primitive):
    """One call of an operator that takes functions. `compiled` runs instead of the functions, once they are."""

    over_batches: Callable[[Function, int, Sequence[bool]], Function]
    """A function of batches, those of its arguments that have one, made of a function of examples (autograd.batched sets it)."""

    def __init__(self, name: str, shape: Callable, *functions: Function, derivative: Derivative | None = None) -> None:
        super().__init__(name, shape, tags={"custom", "decides", "refuses_values"},    # as its functions may
                         tensors=len(signature(shape).parameters), derivative=derivative, batch=type(self).for_batch)
        self.functions = self.compiled = functions
        self.recording = dispatch.state.recording

    def calls(self, args: tuple) -> tuple[Sequence[Any], ...]:
        """For each function what it is called with."""
        raise NotImplementedError

    def on_fakes(self, args: tuple) -> Sequence[Tensor]:
        """Tensors like the results."""
        raise NotImplementedError

    def on_tensors(self, args: tuple) -> Sequence[Tensor]:
        """The results."""
        raise NotImplementedError

    def for_batch(self, size: int, args: tuple, has: tuple) -> tuple:
        """The call within vmap."""
        raise NotImplementedError(f"torch.{self.name} in a compiled vmap")

    def run(self, args: tuple) -> tuple:
        given = [t for a in args for t in (a if isinstance(a, list) else (a,)) if isinstance(t, Tensor)]
        if dispatch.state.fake or any(t._data is None for t in given):
            return tuple(map(_without_data, self.on_fakes(args)))
        results: list[Tensor] = []
        taken = {t._storage.memory for t in given}
        for out in self.on_tensors(args):  # in memory of their own
            results.append(out.clone() if out._storage.memory in taken else out)
            taken.add(results[-1]._storage.memory)
        return tuple(results)


def _tried(function: Function, args: Sequence[Any]) -> list[Tensor]:
    """What a function gives for arguments like these."""
    with dispatch.fake_mode(), dispatch.push_mode(_WithoutDraws()):
        return list(function(*map(_without_data, args)))


def _without_data(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    shape, strides, offset = value._layout
    return fake(shape, value.dtype, value.device, strides, offset)


# -- scan ----------------------------------------------------------------------------------------------------
def scan(step: Step, carried: Sequence[Tensor], xs: Sequence[Tensor], captured: Sequence[Any] = (),
         reverse: bool = False) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The last of what is carried, and all results, of a loop over the first dimension of `xs` (from its end on where `reverse`).

    `carried, results = step(carried, xs at one place, captured)`; results are stacked in the order of `xs`, which has one place at least.
    """
    values = (*carried, *xs, *captured)
    if stays_a_loop(values) and not is_recorded(values):
        made = Scan(step, (len(carried), len(xs)), reverse)(list(carried), list(xs), list(captured))
        return made[:len(carried)], made[len(carried):]
    return unrolled(step, carried, xs, captured, reverse)


def unrolled(step: Step, carried: Sequence[Tensor], xs: Sequence[Tensor], captured: Sequence[Any],
             reverse: bool) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What `scan` gives, a step at a time."""
    order = slice(None, None, -1 if reverse else 1)
    results = []
    state: Sequence[Tensor] = tuple(carried)
    constants = tuple(captured)
    for inputs in list(zip(*[x.unbind(0) for x in xs]))[order]:
        state, made = step(tuple(state), inputs, constants)
        results.append(made)
    return tuple(state), tuple([stack(part[order], 0) for part in zip(*results)])


def stepped(function: Function, count: int) -> Step:
    """A function that gives what is carried, `count` tensors, and then results, as a step of `scan`."""
    def step(carried: tuple, inputs: tuple, captured: tuple) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        made = function(*carried, *inputs, *captured)
        return made[:count], made[count:]

    return step


def stays_a_loop(values: Sequence[Any]) -> bool:
    """Whether a loop over tensors like these is a primitive: in graphs for CPUs. Those for GPUs have its steps, which may be recorded."""
    tensors = [t for t in values if isinstance(t, Tensor)]
    return any(t._data is None for t in tensors) and all(t.device.type == "cpu" for t in tensors)


def is_recorded(values: Sequence[Any]) -> bool:
    """Whether autograd records what is done with these."""
    return dispatch.state.grad_enabled and any(isinstance(t, Tensor) and t.requires_grad for t in values)


class Scan(HigherOrder):
    """`scan` where tensors aren't known. Its results, contiguous all: the last of what is carried, and what is stacked.

    `body` is its one function as a functional graph of what is carried, the inputs at one place and what is captured, where somebody
    has traced it; `places` says which of the graph's results each of the step's results is.
    """

    library = "scan"
    body: Any = None
    places: tuple[int, ...] = ()

    def __init__(self, step: Step, counts: tuple[int, int], reverse: bool, derivative: Derivative | None = None) -> None:
        super().__init__("scan", lambda carried, xs, captured: None, self._flat, derivative=derivative)
        self.step, self.reverse = step, reverse
        self.count, self.inputs = counts     # how much is carried, and how many inputs a step takes

    def _flat(self, *values: Tensor) -> list[Tensor]:
        """The step on one list of all that it is given: all that it makes."""
        given = values[:self.count], values[self.count:self.count + self.inputs], values[self.count + self.inputs:]
        carried, results = self.step(*given)
        return [*carried, *results]

    def at_one_place(self, args: tuple) -> list[Tensor]:
        """Tensors like those that the step is called with."""
        carried, xs, captured = args
        return [*map(_compact, carried), *[_compact(x, 1) for x in xs], *map(_without_data, captured)]

    def calls(self, args: tuple) -> tuple[Sequence[Any], ...]:
        return (self.at_one_place(args),)

    def on_fakes(self, args: tuple) -> Sequence[Tensor]:
        made = _tried(self._flat, self.at_one_place(args))
        for i, (before, after) in enumerate(zip(args[0], made)):
            if (before.shape, before.dtype) != (after.shape, after.dtype):
                raise RuntimeError(f"scan: what is carried keeps its shape and dtype; number {i} has {list(before.shape)} of {before.dtype}"
                                   f" before a step and {list(after.shape)} of {after.dtype} after it")
        length = args[1][0]._layout.shape[0]
        return [*map(_compact, made[:self.count]), *[fake((length, *t._layout.shape), t.dtype, t.device) for t in made[self.count:]]]

    def on_tensors(self, args: tuple) -> Sequence[Tensor]:
        carried, xs, captured = args
        finals, results = scan(stepped(self.compiled[0], self.count), carried, xs, captured, self.reverse)
        return [*[t.contiguous() for t in finals], *results]

    def for_batch(self, size: int, args: tuple, has: tuple) -> tuple:
        carried, xs, captured = args
        of_carried, of_xs, of_captured = ([*h] if h else [False] * len(a) for h, a in zip(has, args))
        over = HigherOrder.over_batches(self._flat, size, [True] * len(carried) + of_xs + of_captured)
        starts = [spread(c, h, size) for c, h in zip(carried, of_carried)]
        moved = [x.movedim(1, 0) if h else x for x, h in zip(xs, of_xs)]
        finals, results = scan(stepped(over, self.count), starts, moved, captured, self.reverse)
        return (*finals, *[r.movedim(0, 1) for r in results])


def _compact(t: Tensor, skipped: int = 0) -> Tensor:
    """A fake tensor like `t` without its first dimensions, in memory of its own."""
    shape = t._layout.shape[skipped:]
    return fake(shape, t.dtype, t.device, contiguous_strides(shape))
