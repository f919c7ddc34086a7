"""torch.autograd.forward_ad: tangents that go along with values, forwards.

A `DualLevel` is a mode of dispatch. It knows the tangents of the tensors that have one; a primitive called on those is computed as ever,
by whatever lies further out, and its results get tangents by the one derivative that its record has:

    Pointwise   the partial derivative times the tangent
    Linear      the primitive itself on the tangents
    General     the transpose of its vjp, which is linear in the gradients

Operators are their bodies, unless their gradient says more (`General(forwards=True)`: norms at zero). Tangents of views are views
of tangents, and what is written in place is written to both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from weakref import ref

from ..core import dispatch
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS, Derivative, General, Linear, Pointwise, Primitive, Rule
from ..ops.writing import assign
from . import engine, graph
from .batched import Transform, below, entered, position_of
from .grad_mode import enable_grad


class UnpackedDualTensor(NamedTuple):
    """A value and its tangent (None where it has none), as `unpack_dual` gives them."""

    primal: Tensor
    tangent: Tensor | None


class _Switch(threading.local):
    """Whether tangents are made and seen, in this thread."""

    on = True


_switch = _Switch()


class _OfTensors:
    """A dictionary whose keys are tensors, by identity, and go with them."""

    def __init__(self) -> None:
        self.items: dict[int, tuple[ref, Tensor]] = {}

    def get(self, key: Tensor) -> Tensor | None:
        """What belongs to a tensor, or None."""
        found = self.items.get(id(key))
        return None if found is None else found[1]

    def __setitem__(self, key: Tensor, value: Tensor) -> None:
        at, items = id(key), self.items
        items[at] = ref(key, lambda _: items.pop(at, None)), value

    def clear(self) -> None:
        """Forget all."""
        self.items.clear()


class DualLevel(Transform):
    """A level of forward mode under way, and the tangents of its tensors."""

    def __init__(self) -> None:
        self.tangents = _OfTensors()

    def tangent(self, tensor: Tensor) -> Tensor | None:
        """The tangent of a tensor; that of a view is a view of its base's."""
        found = self.tangents.get(tensor)
        if found is None and tensor._view is not None and (of_base := self.tangents.get(tensor._view.base)) is not None:
            found = self.tangents[tensor] = graph.replay(of_base, tensor._view.chain)
        if found is not None and found.shape != tensor.shape:
            raise RuntimeError(f"a tensor that has a tangent was resized, or given other memory: it has shape {list(tensor.shape)} now, its "
                               f"tangent {list(found.shape)}; do that to its detach(), or before make_dual()")
        return found

    def holds(self, value: Any) -> Any:
        """Whether a tensor, or which tensors of a list, have a tangent."""
        if not _switch.on:
            return False
        if isinstance(value, Tensor):
            return self.tangent(value) is not None
        if type(value) in (list, tuple):
            flags = tuple([self.holds(v) for v in value])
            return flags if any(flags) else False
        return False

    def keep(self, tensor: Tensor, tangent: Tensor) -> None:
        """Give a tensor a tangent, which comes to lie in memory as it does."""
        if tangent._layout[:2] != tensor._layout[:2] and 0 not in tensor.stride():
            tangent = OPERATORS["empty_like"](tensor.detach()).copy_(tangent)
        self.tangents[tensor] = tangent

    def compute(self, record: Any, args: tuple, has: tuple, position: int) -> Any:
        """A primitive, or an operator's body, with tangents among its arguments."""
        if not isinstance(record, Primitive) and not getattr(record.derivative, "forwards", False):
            return record.fn(*args)
        tangents = [self._of(a) if h else None for a, h in zip(args, has, strict=True)]
        with below(position):
            out = record(*args)
            if record.derivative is not None:
                outs = out if type(out) is tuple else (out,)
                shared = () if "view" in record.tags else {id(t._storage) for t in _flat(tangents) if t is not None}
                for o, t in zip(outs, pushed(record, args, outs, tangents)):
                    if t is not None:   # what is written to a result is not written to what it was made of
                        self.keep(o, t.clone() if id(t._storage) in shared else t)
                self._keep_saved(outs)
        return out

    def _of(self, value: Any) -> Any:
        return [self.tangent(v) if isinstance(v, Tensor) else None for v in value] if type(value) in (list, tuple) else self.tangent(value)

    def _keep_saved(self, outs: Sequence[Any]) -> None:
        """What the tape saved of results has their tangents too: a derivative of the backward pass is asked for."""
        nodes = {id(o._grad.grad_fn): o._grad.grad_fn for o in outs if isinstance(o, Tensor) and o._grad is not None}
        for node in nodes.values():
            for value in node.saved.values() if isinstance(node, graph.PrimitiveNode) else ():
                for saved in value if type(value) is list else [value]:
                    if type(saved) is graph.Saved and saved.output is not None and (t := self.tangents.get(outs[saved.output])) is not None:
                        self.tangents[saved.tensor] = t

    def written(self, target: Tensor, source: Any) -> None:
        """What is written in place has its tangent written into the target's."""
        if not (self.holds(target) or self.holds(source)):
            return
        with below(position_of(self)):
            t = self.tangent(source) if isinstance(source, Tensor) else None
            if self.tangent(target) is None:
                base = target if target._view is None else target._view.base
                self.tangents[base] = OPERATORS["zeros_like"](base.detach())
            old = self.tangent(target)
            assert old is not None
            assign(old, old.new_zeros(old.shape) if t is None else t, anew=True)


# -- tangents of results -----------------------------------------------------------------------------------------------------------
def pushed(prim: Primitive, args: tuple, outs: tuple, tangents: Sequence[Any]) -> Sequence[Tensor | None]:
    """The tangents of a primitive's results, from those of its arguments (None where there is none, a list for a list)."""
    if not any(isinstance(o, Tensor) and _is_differentiable(o) for o in outs):
        return [None] * len(outs)
    for kind, push in _PUSHES.items():
        if isinstance(prim.derivative, kind):
            return [t if isinstance(o, Tensor) and _is_differentiable(o) else None for o, t in zip(outs, push(prim, args, outs, tangents))]
    raise NotImplementedError(f"{prim.name}: forward mode has no rule for a derivative of type {type(prim.derivative).__name__}")


def _is_differentiable(tensor: Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _pointwise(prim: Primitive, args: tuple, outs: tuple, tangents: Sequence[Any]) -> Sequence[Tensor | None]:
    """The diagonal of the Jacobian times the tangent. Rules of complex numbers, and those between dtypes, are of the transpose only."""
    tensors = [*outs, *[a for a in args if isinstance(a, Tensor) and _is_differentiable(a)]]
    if any(t.dtype.is_complex or t.dtype is not outs[0].dtype for t in tensors):
        return _transposed(prim, args, outs, tangents)
    total: Tensor | None = None
    for name, t in zip(prim.params, tangents):
        rule = None if t is None else prim.derivative.rules.get(name)  # type: ignore[union-attr]
        if rule is not None:
            answer = rule.fn(*_values(prim, rule, args, outs, (t,)))
            part = answer if "g" in rule.names else graph.times(t, answer)
            total = part if total is None else total + part
    return [total]


def _linear(prim: Primitive, args: tuple, outs: tuple, tangents: Sequence[Any]) -> Sequence[Tensor | None]:
    """The primitive on the tangents: on all at once, or, where a rule names another input (a product), on one after the other."""
    rules = prim.derivative.rules  # type: ignore[union-attr]
    places = [i for i, name in enumerate(prim.params) if name in rules]
    if "view" in prim.tags and args[0]._layout != tangents[0]._layout:   # as_strided looks past its argument
        return _transposed(prim, args, outs, tangents)
    if not any(name in rules for rule in rules.values() for name in rule.names):
        return [prim(*[_or_zeros(a, tangents[i]) if i in places else a for i, a in enumerate(args)])]
    parts = [prim(*args[:i], tangents[i], *args[i + 1:]) for i in places if tangents[i] is not None]
    return [sum(parts[1:], parts[0]) if parts else None]


def _or_zeros(value: Any, tangent: Any) -> Any:
    if type(value) in (list, tuple):
        return [_or_zeros(v, t) for v, t in zip(value, tangent or [None] * len(value))]
    if tangent is not None:
        return tangent
    return value.detach().new_zeros(value.shape) if isinstance(value, Tensor) else 0


def _transposed(prim: Primitive, args: tuple, outs: tuple, tangents: Sequence[Any]) -> Sequence[Tensor | None]:
    """The vjp is linear in the gradients; its own vjp is what takes tangents forwards."""
    outer = dispatch.state.grad_enabled
    seeds = [OPERATORS["ones_like"](o.detach()).requires_grad_() if isinstance(o, Tensor) and _is_differentiable(o) else None for o in outs]
    with enable_grad():
        pulled = _pulled(prim, args, outs, seeds, tangents)
        pairs = [(p, t) for p, t in zip(_flat(pulled), _flat(tangents)) if t is not None and isinstance(p, Tensor) and p.requires_grad]
    wanted = [s for s in seeds if s is not None]
    if not pairs or not wanted:
        return [None] * len(outs)
    found = iter(engine.run_backward([p for p, _ in pairs], [t.to(p.dtype) for p, t in pairs], inputs=wanted, retain_graph=True,
                                     create_graph=outer, accumulate=False))
    depends = outer and any(isinstance(v, Tensor) and v.requires_grad for v in (*_flat(args), *_flat(tangents)))
    answers = [None if s is None else next(found) for s in seeds]
    return [a if a is None or depends else a.detach() for a in answers]


def _pulled(prim: Primitive, args: tuple, outs: tuple, gs: Sequence[Any], tangents: Sequence[Any]) -> list:
    """What the vjp gives for gradients `gs`, for each argument."""
    derivative = prim.derivative
    if isinstance(derivative, General):
        answer = derivative.vjp.fn(*_values(prim, derivative.vjp, args, outs, gs, tangents))
        answers = dict(zip(prim.tensor_positions, answer if isinstance(answer, tuple) else (answer,)))
        return [answers.get(i) for i in range(len(args))]
    pulled: list = [None] * len(args)
    for i, name in enumerate(prim.params):
        rule = derivative.rules.get(name) if tangents[i] is not None else None  # type: ignore[union-attr]
        if rule is not None:
            answer = rule.fn(*_values(prim, rule, args, outs, gs))
            whole = isinstance(derivative, Linear) or "g" in rule.names
            pulled[i] = answer if whole else graph.times(gs[0], answer)
    return pulled


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if type(value) in (list, tuple) and any(v is None or isinstance(v, Tensor) for v in value):
            yield from value
        else:
            yield value


def _values(prim: Primitive, rule: Rule, args: tuple, outs: tuple, gs: Sequence[Any], tangents: Sequence[Any] = ()) -> list:
    """Arguments for a rule, by its parameter names."""
    given = {"g": gs[0], "gs": tuple(gs), "needs": tuple([i < len(tangents) and tangents[i] is not None for i in prim.tensor_positions])}
    return [given[name] if name in given else graph.named(prim, name, args, outs) for name in rule.names]


_PUSHES: dict[type[Derivative], Callable] = {Pointwise: _pointwise, Linear: _linear, General: _transposed}


# -- what programs call ------------------------------------------------------------------------------------------------------------
def _current() -> DualLevel | None:
    return next((mode for mode in reversed(dispatch.state.modes) if type(mode) is DualLevel), None)


class _Entered(threading.local):
    """The scopes of levels that were entered by hand."""

    def __init__(self) -> None:
        self.scopes: list = []


_entered = _Entered()


def enter_dual_level() -> int:
    """Begin a level of forward mode; its number, 0. RuntimeError within another."""
    if _current() is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment; leave the level that is under way, or nest "
                           "torch.func.jvp")
    scope = entered([DualLevel()])
    scope.__enter__()
    _entered.scopes.append(scope)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End a level of forward mode: its tangents are gone."""
    now = _current()
    if now is None:
        raise RuntimeError("Dual level must be a positive number: no level of forward mode is under way; call enter_dual_level() first")
    if level not in (None, 0):
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported: got "
                           f"level {level}, the last is 0")
    _entered.scopes.pop().__exit__(None, None, None)
    now.tangents.clear()


@contextmanager
def dual_level() -> Iterator[int]:
    """A level of forward mode for the block."""
    level = enter_dual_level()
    try:
        yield level
    finally:
        exit_dual_level(level=level)


def _at(level: int | None, name: str) -> DualLevel | None:
    if level is not None and level > 0:
        raise RuntimeError(f"{name}(): there is no level {level} of forward mode: 0 is the only one")
    return None if level is not None and level < 0 else _current()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor of the same values whose tangent is `tangent`."""
    now = _at(level, "make_dual")
    if now is None:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first.")
    for name, value in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(value, Tensor):
            raise TypeError(f"make_dual(): {name} must be a Tensor, not {type(value).__name__}")
        if not _is_differentiable(value):
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {value.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError("Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
                           f"supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
                           f"{list(tangent.shape)}.")
    if now.tangent(tensor) is not None:
        raise RuntimeError("Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is "
                           "not supported.")
    with _without(now):
        dual = tensor.view_as(tensor)
        now.keep(dual, tangent)
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value without its tangent, and the tangent."""
    now = _at(level, "unpack_dual")
    if not isinstance(tensor, Tensor):
        raise TypeError(f"unpack_dual(): argument 'tensor' must be Tensor, not {type(tensor).__name__}")
    tangent = None if now is None or not _switch.on else now.tangent(tensor)
    if now is None or tangent is None:
        return UnpackedDualTensor(tensor, None)
    with _without(now):
        primal = tensor.view_as(tensor)
        primal._view = None     # or the base's tangent would be its own
        return UnpackedDualTensor(primal, tangent)


def _without(level: DualLevel) -> Any:
    return below(position_of(level))


class _set_fwd_grad_enabled:
    """From now on tangents are made and seen, or not; as a context manager, for the block."""

    def __init__(self, mode: bool) -> None:
        self.before, _switch.on = _switch.on, bool(mode)

    def __enter__(self) -> None:
        """The switch is set already."""

    def __exit__(self, *exc: object) -> None:
        _switch.on = self.before


def seen(tangents: bool) -> Any:
    """A block in which tangents are as they were, or not seen at all."""
    return nullcontext() if tangents else _set_fwd_grad_enabled(False)


# -- Functions ---------------------------------------------------------------------------------------------------------------------
def tangents_of(args: Sequence[Any]) -> list[Tensor | None] | None:
    """The tangents of a Function's arguments; None if there is none."""
    level = _current() if _switch.on else None
    if level is None:
        return None
    found = [level.tangent(a) if isinstance(a, Tensor) else None for a in args]
    return found if any(t is not None for t in found) else None


def give(name: str, outs: Sequence[Any], tangents: Any) -> None:
    """The tangents that a Function's `jvp` answered with, for its outputs."""
    level = _current()
    tangents = tangents if isinstance(tangents, tuple) else (tangents,)
    if len(tangents) != len(outs):
        raise RuntimeError(f"{name}: jvp returned {len(tangents)} tangents for {len(outs)} outputs; give one for each (None for zeros)")
    for i, (o, t) in enumerate(zip(outs, tangents)):
        if t is None:
            continue
        if not isinstance(t, Tensor):
            raise RuntimeError(f"{name}: jvp should return Tensors or None, got {type(t).__name__} for output {i}")
        if t.shape != o.shape:
            raise RuntimeError(f"{name}: jvp returned a tangent of shape {list(t.shape)} for output {i} of shape {list(o.shape)}")
        if level is not None:
            with _without(level):
                level.keep(o, t)


def _carried(tensor: Tensor, alias: Tensor) -> Tensor:
    """The alias that was made of a tensor, with its tangent."""
    level = _current()
    if level is not None and (tangent := level.tangent(tensor)) is not None:
        level.tangents[alias] = tangent
    return alias


def _tangent_of(tensor: Tensor) -> Tensor | None:
    level = _current()
    return None if level is None else level.tangent(tensor)


def _forget(tensor: Tensor) -> None:
    """Take its tangent away from a tensor that was detached."""
    level = _current()
    if level is not None:
        level.tangents.items.pop(id(tensor), None)


dispatch.carried, dispatch.forget, dispatch.tangent_of = _carried, _forget, _tangent_of
__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]
