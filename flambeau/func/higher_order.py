"""Operators that take functions of tensors, as graphs hold them: `choose` is `cond`, `repeat` is `while_loop`, `mapped` is `vmap`.

On real tensors they are Python. Where tensors are fake, nothing tells which function runs and how often, so the call is a primitive of its
own that holds the functions. Its shape rule is what they do on fake tensors, its kernel runs those that it has to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.batched import Level
from ..core import dispatch
from ..core.size import is_dense
from ..core.tensor import Tensor, fake
from ..ops.registry import General, Primitive
from . import tape

Function = Callable[..., Sequence[Any]]


def choose(pred: Tensor, true: Function, false: Function, operands: Sequence[Any]) -> tuple:
    """`true(*operands)` if `pred` holds, else `false(*operands)`: tuples of tensors of the same shapes and dtypes."""
    if pred._data is None:
        return Choice(true, false)(pred, list(operands))
    return tuple((true if pred else false)(*operands))


def repeat(condition: Function, body: Function, carried: Sequence[Any], captured: Sequence[Any]) -> tuple:
    """What becomes of `carried = body(*carried, *captured)` while the one result of `condition` of the same arguments holds."""
    if any(isinstance(x, Tensor) and x._data is None for x in (*carried, *captured)):
        return Repetition(condition, body)(list(carried), list(captured))
    while condition(*carried, *captured)[0]:
        carried = body(*carried, *captured)
    return tuple(carried)


def mapped(function: Function, batches: Sequence[Tensor], shared: Sequence[Any], size: int, randomness: str,
           wanted: Sequence[bool]) -> tuple[Tensor, ...]:
    """`function` of examples of the batches, and of what is shared: its results with the batch in front, where that is wanted."""
    level = Level(size, randomness)
    results = level.call(function, (*batches, *shared), [True] * len(batches) + [False] * len(shared))
    return tuple([whole(r, w, level) for r, w in zip(results, wanted, strict=True)])


def whole(result: Any, wanted: bool, level: Level) -> Tensor:
    """What the function answered for one example, for all of them."""
    if not isinstance(result, Tensor):
        raise ValueError(f"vmap: expected the function to return Tensors, got {type(result).__name__}")
    if wanted:
        return level.spread(result)
    if level.holds(result):
        raise ValueError("vmap: out_dims is None for a result that differs between examples; give the dimension for them")
    return result


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

    def __init__(self, name: str, shape: Callable, *functions: Function, vjp: Callable | None = None) -> None:
        super().__init__(name, shape, tags={"extern", "custom", "decides"}, tensors=2, derivative=General(vjp) if vjp else None,
                         batch=type(self).for_batch)
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
        taken = {id(t._storage) for t in given}
        for out in self.on_tensors(args):  # in memory of their own
            results.append(out.clone() if id(out._storage) in taken else out)
            taken.add(id(results[-1]._storage))
        return tuple(results)


class Choice(HigherOrder):
    """`choose` where the predicate isn't known."""

    def __init__(self, true: Function, false: Function) -> None:
        super().__init__("cond", lambda pred, operands: None, true, false, vjp=lambda gs, pred, operands: self.vjp(gs, pred, operands))

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

        def for_all(function: Function) -> Function:
            def of_batches(*operands: Any) -> list[Tensor]:
                level = Level(size, "error")
                return [level.spread(r).contiguous() for r in level.call(function, operands, has[1])]

            return of_batches

        return choose(args[0], for_all(self.functions[0]), for_all(self.functions[1]), args[1])

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
                         vjp=lambda gs, carried, captured: self.vjp(gs, carried, captured))

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


def _tried(function: Function, args: Sequence[Any]) -> list[Tensor]:
    """What a function gives for arguments like these."""
    with dispatch.fake_mode(), dispatch.push_mode(_WithoutDraws()):
        return list(function(*map(_without_data, args)))


def _without_data(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    shape, strides, offset = value._layout
    return fake(shape, value.dtype, value.device, strides, offset)


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
