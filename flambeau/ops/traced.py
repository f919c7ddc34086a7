"""What the body of an operator calls, found out once and followed natively from then on (csrc/traced.cpp).

Between a call and the records that compute it lies the body's Python: dimensions are checked, dtypes promoted, shapes broadcast. On small
tensors that takes longer than the work. For the same layouts, dtypes and constants it comes to the same records with the same constants,
unless the body looks at something else: what is in a tensor, whether it needs a gradient, a generator's state. So the fourth call of a kind
runs the body once more, on stand-ins that refuse to be looked at, and writes down what it calls; the next ones run those steps. A body
that looks, warns, draws or makes tensors of its own is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from flambeau import _C

from ..core import dispatch
from ..core.device import device
from ..core.dtypes import dtype
from ..core.memory_format import layout, memory_format
from ..core.settings import TABLE, bound_names
from ..core.size import may_overlap
from ..core.storage import Storage
from ..core.tensor import Tensor, fake, tensor_over

_CONSTANT, _VALUE, _LIST, _TUPLE, _NAMED = range(5)     # as in csrc/traced.cpp
_MOST_STEPS, _MOST_ARGUMENTS, _MOST_RESULTS, _MOST_COPIED = 32, 16, 64, 1 << 20
OWN_WAYS = frozenset({"random", "from_data", "alone"})
"""Tags of operators that have a memory of their own, or whose work is no call of records."""


class Unsteady(Exception):
    """What the body does is no function of layouts, dtypes and constants alone."""


def _unseen(self: Any) -> NoReturn:
    raise Unsteady("the body looks at a tensor")


class StandIn(Tensor):
    """A tensor in a body that is being traced: it has sizes, a dtype and a device, and says nothing else."""

    _plain_torch_function = True
    _twin: Tensor

    _wants: bool | None

    _data = _grad = _view = property(_unseen)
    grad = grad_fn = is_leaf = output_nr = is_fake = is_inference = _storage = _version = _writes = property(_unseen)
    _array_shape = _checked_array = property(lambda self: None)
    _root = property(lambda self: self._twin._root)
    ndim = property(lambda self: len(self._lay.shape))
    requires_grad = property(lambda self: self._wants if self._wants is not None else _unseen(self))

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return self._twin.is_contiguous(memory_format)

    def storage_offset(self) -> Any:
        return self._lay.offset     # type: ignore[union-attr]


_slots = [vars(Tensor)[name] for name in ("_data", "_grad", "_view")]


def _stand_in(twin: Tensor, wants: bool | None) -> StandIn:
    made: Any = object.__new__(StandIn)
    for slot in _slots:
        slot.__set__(made, None)
    made._store, made._lay, made.dtype, made.device = Storage(None, None, twin.device), twin._layout, twin.dtype, twin.device
    made._twin, made._wants = twin, wants
    return made


class Tracer:
    """The dispatch mode that writes the calls down."""

    def __init__(self, body: Callable, opens: bool):
        self.body = body
        self.opens = opens      # operators without a derivative, which a gradient is to flow through
        self.recording = dispatch.state.grad_enabled
        self.count = 0
        self.written: list[Tensor] = []     # targets, of which each shares memory with an input
        self.inputs: list[Tensor] = []
        self.values: dict[int, tuple[StandIn, int]] = {}
        self.steps: list[tuple] = []

    def rng_state(self, *_: Any) -> NoReturn:
        raise Unsteady("the body draws random numbers")

    def warns(self, msg: str) -> NoReturn:
        raise Unsteady(f"the body warns at every call: {msg}")

    def enter(self, tensor: Tensor, wants: bool | None = None) -> StandIn:
        """The stand-in of a new value; of an argument it is known whether a gradient is wanted."""
        made = _stand_in(tensor, wants)
        self.values[id(made)] = made, self.count
        self.count += 1
        return made

    def argument(self, a: Any, seen: dict[int, StandIn]) -> Any:
        """A stand-in for what is, or holds, tensors; the same for one that was `seen`, which has a number of its own each time."""
        if type(a) in (list, tuple):
            return type(a)([self.argument(item, seen) for item in a])
        if type(a) is slice:
            return slice(*[self.argument(part, seen) for part in (a.start, a.stop, a.step)])
        if not isinstance(a, Tensor):
            return a
        self.inputs.append(a)
        if id(a) in seen:
            self.count += 1
        else:
            lay = a._layout
            wants = a.requires_grad if self.recording else None
            seen[id(a)] = self.enter(fake(lay.shape, a.dtype, a.device, lay.strides, lay.offset), wants)
        return seen[id(a)]

    def handle(self, record: Any, args: tuple) -> Any:
        """A call, on the fake tensors behind the stand-ins."""
        if self.opens and record.kind == "operator" and record.derivative is None:
            with dispatch.push_mode(self):
                return record.fn(*args)
        if record.kind == "inplace" or "random" in record.tags or (dispatch.state.grad_enabled and not self.recording):
            raise Unsteady(f"{record.name} is no step")
        with dispatch.fake_mode(), dispatch.grad_enabled(False):
            results = record.run(tuple([_behind(a) for a in args]))
        several = type(results) is tuple
        if several and len(results) > _MOST_RESULTS:
            raise Unsteady("there are too many results")
        self.step(record.eager, getattr(record, "body", record), args, len(results) if several else -1)
        return tuple([self.enter(r) for r in results]) if several else self.enter(results)

    def step(self, eager: Any, call: Callable, args: Sequence[Any], results: int = -1, writes: bool = False) -> None:
        """One more; what is computed while nothing is recorded, is so then too."""
        if len(self.steps) == _MOST_STEPS or len(args) > _MOST_ARGUMENTS:
            raise Unsteady("there are too many steps")
        quiet = self.recording and not dispatch.state.grad_enabled
        self.steps.append((eager, call, tuple([self.part(a) for a in args]), results, quiet, writes))

    def assigned(self, assign: Callable, target: Any, value: Any, anew: bool, changes: bool) -> Any:
        """A write."""
        return self.wrote(assign, target, (value, anew, changes))

    def in_place(self, call: Callable, target: Any, args: tuple) -> Any:
        """An operator that writes: a step of another's body, or after others in its own."""
        if call is self.body and not self.steps:
            raise Unsteady("it is a step by itself")
        return self.wrote(call, target, args)

    def wrote(self, call: Callable, target: Any, args: Sequence[Any]) -> Any:
        """`call(target, *args)`, which writes the target. Where that fails nothing was written, and if nothing was before, the body can
        say why."""
        if dispatch.state.grad_enabled and (self.opens or any(t.requires_grad for t in self.inputs)):
            raise Unsteady("autograd follows the write")
        if may_overlap(*target._layout[:2]):
            raise Unsteady("of elements in one place a kernel undoes nothing that it wrote")
        self.step(None, call, (target, *args), writes=True)
        self.written.append(target)
        self.count += 1
        return target

    def named(self, call: Callable, told: str, result: Any) -> Any:
        """A name on the tape, where there will be one."""
        if self.recording:
            self.step(None, call, (told, result))
            self.count += 1
        return result

    def part(self, a: Any) -> tuple:
        """How an argument or a result is made of values and constants."""
        if isinstance(a, Tensor):
            if id(a) not in self.values:
                raise Unsteady("a tensor comes from outside")
            return _VALUE, self.values[id(a)][1]
        if type(a) is list:
            return _LIST, tuple([self.part(item) for item in a])
        if isinstance(a, tuple) and any(isinstance(item, (Tensor, list)) for item in a):
            parts = tuple([self.part(item) for item in a])
            return (_TUPLE, parts) if type(a) is tuple else (_NAMED, parts, type(a)._make)  # type: ignore[attr-defined]
        return _CONSTANT, a

    def check(self) -> None:
        """Computes it once: a kernel may have put a result elsewhere than the shape rules say, on which the body's next steps hang."""
        stand_ins = {number: made for made, number in self.values.values()}
        values = self.own_copies()
        with dispatch.grad_enabled(False):
            for _, call, parts, count, _, _ in self.steps:
                results = call(*[_filled(part, values) for part in parts])
                values.extend(results if count >= 0 else (results,))
        for number in range(len(self.inputs), len(values)):
            told, found = stand_ins.get(number), values[number]
            if told is not None and (found._layout != told._lay or found.dtype is not told.dtype):
                raise Unsteady(f"a result lies as {found._layout}, not {told._lay}")

    def own_copies(self) -> list[Any]:
        """The inputs; those whose memory the steps write with memory of their own, which is shared among them as before."""
        if not self.written:
            return list(self.inputs)
        numbers = [self.values[id(target)][1] for target in self.written]
        of_inputs = {id(self.inputs[n]._storage) for n in numbers if n < len(self.inputs)}
        everything = any(n >= len(self.inputs) for n in numbers)     # a view, of an input perhaps
        copied = {id(t._storage): t._storage for t in self.inputs if everything or id(t._storage) in of_inputs}
        if sum(s.nbytes for s in copied.values()) > _MOST_COPIED:
            raise Unsteady("the memory is too large to try a write")
        made = {key: Storage(s.buffer.copy(), s.nbytes, s.device) for key, s in copied.items()}
        return [tensor_over(made[id(t._storage)], t.dtype, t._layout) if id(t._storage) in made else t for t in self.inputs]

    def finished(self, result: Any) -> Any:
        """The native steps that end in `result`."""
        end, last, made = self.part(result), {}, len(self.inputs)
        for place, step in enumerate(self.steps):
            last.update(dict.fromkeys(_values_in(step[2]), place))
        ends = [[] for _ in self.steps]     # type: ignore[var-annotated]
        kept = set(_values_in((end,)))
        for place, step in enumerate(self.steps):
            for value in range(made, made := made + abs(step[3])):
                if value not in kept:
                    ends[last.get(value, place)].append(value)
        return _C.Steps(len(self.inputs), tuple([(*step, tuple(over)) for step, over in zip(self.steps, ends)]), end)


def _behind(a: Any) -> Any:
    if isinstance(a, StandIn):
        return a._twin
    return type(a)([_behind(item) for item in a]) if type(a) in (list, tuple) else a


def _filled(part: tuple, values: list) -> Any:
    kind, what, *make = part
    if kind == _CONSTANT:
        return what
    if kind == _VALUE:
        return values[what]
    items = [_filled(item, values) for item in what]
    return make[0](items) if make else items if kind == _LIST else tuple(items)


def _values_in(parts: tuple) -> Iterator[int]:
    for kind, what, *_ in parts:
        if kind == _VALUE:
            yield what
        elif kind != _CONSTANT:
            yield from _values_in(what)


def trace(body: Callable, args: tuple, kwargs: dict) -> Any:
    """The steps that `body(*args, **kwargs)` comes to, `_C.Steps`; None where they hang on more than layouts, dtypes and constants."""
    wanted = dispatch.state.grad_enabled and _C.any_wants_grad((*args, *kwargs.values()), tuple(range(len(args) + len(kwargs))))
    tracer, seen = Tracer(body, wanted), {}   # type: ignore[var-annotated]
    stand_ins = [tracer.argument(a, seen) for a in args]
    named = {key: tracer.argument(a, seen) for key, a in kwargs.items()}
    try:
        with dispatch.push_mode(tracer):
            result = body(*stand_ins, **named)
        tracer.check()
        return tracer.finished(result)
    except Exception as error:
        if hasattr(error, "told_late"):     # an earlier call's
            raise
        return None     # whatever is wrong, the body says it when it runs


def _settings() -> _C.Surroundings:
    """What tells whether all settings are what they are now."""
    return _C.Surroundings(0, 0, None, None, tuple([(owner, ((key, "equal", value),)) for owner, key, value in bound_names()]))


_C.know_constants(dtype, device, layout, memory_format)
_C.know_traced(TABLE, _settings, trace)
