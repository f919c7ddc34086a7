"""What a compiled graph without gradients makes of parameters alone is made once, and again when one of them was written.

Weights of convolutions go to channels-last memory, autocast rounds weights to 16 bits, batch norm folds its statistics into a
scale: kernels that read parameters and nothing else. They become a function of their own, `settle`, whose results stay in
memory of their own. Before each call the versions of the parameters and the arrays behind them are compared with those that
were seen last; where one differs the same memory is filled anew, so that recorded CUDA graphs read the new values too.
"""

from __future__ import annotations

import importlib
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau.backends.cuda import cubins
from flambeau.core.locks import lock
from flambeau.core.storage import shared, unseen_writes
from flambeau.core.tensor import Tensor
from flambeau.inductor.loop.ir import Program, View
from flambeau.inductor.loop.scheduler import Kernel

data_of = operator.attrgetter("_data")
store_of = operator.attrgetter("_store")


def settled_steps(program: Program, steps: Sequence[tuple[Any, Any]]) -> set[int]:
    """The numbers of the kernels that read parameters (and what such kernels write) alone; `steps` are (printed, node).

    A kernel whose sizes change, one that makes a result of the graph, or one that writes part of what others write does not count.
    """
    if not program.parameters:
        return set()
    results = {v.buffer for v in program.outputs if isinstance(v, View)}
    found = {k for k, (printed, node) in enumerate(steps) if isinstance(node, Kernel) and not printed.symbols and node.reads
             and not node.writes & results}
    while True:
        others = {name for k, (_, node) in enumerate(steps) if k not in found for name in node.writes}
        made = {name for k in found for name in steps[k][1].writes} - others
        given = made | program.parameters | program.constants.keys()
        kept = {k for k in found if steps[k][1].writes <= made and steps[k][1].reads <= given}
        if kept == found:
            return kept
        found = kept


def kept_buffers(steps: Sequence[tuple[Any, Any]], settled: set[int]) -> list[str]:
    """The buffers that settled kernels write and others read, in order."""
    read = {name for k, (_, node) in enumerate(steps) if k not in settled for name in node.reads}
    return [name for k in sorted(settled) for name in sorted(steps[k][1].writes) if name in read]


class _State(NamedTuple):
    """What was made, of which arrays at which versions; on which stream, and the event after that."""

    arrays: tuple[weakref.ref, ...]
    facts: tuple
    kept: tuple
    stream: int
    filled: Any

    def is_of(self, arrays: tuple) -> bool:
        """Whether these are the arrays."""
        return all(map(operator.is_, arrays, map(operator.call, self.arrays)))


class Settled:
    """A compiled program in two parts: `settle(inputs, kept)` fills the arrays `kept` (makes them where there are none) from the
    tensors at `watched` places among the inputs; `call(inputs, kept)` does the rest. `record` makes a recorded program of that.

    Other arrays (another model's, say) get memory of their own, for what was made before may still be read on another stream.
    """

    def __init__(self, settle: Callable[[list, tuple], Sequence], call: Callable[[list, tuple], list], watched: Sequence[int],
                 record: Callable[[Callable[[list], list]], Callable[[list], list]] | None = None):
        self.settle, self.call, self.record = settle, call, record
        self.pick: Callable[[list], tuple] = (
            operator.itemgetter(*watched) if len(watched) > 1 else lambda inputs: tuple([inputs[k] for k in watched]))
        self.state: _State | None = None
        self.lock = lock()
        self.current, self.cuda = cubins.stream_pointer(), importlib.import_module("cupy").cuda
        self.recorded: tuple[tuple, Callable[[list], list]] = ((), self.call)      # type: ignore[assignment]

    def __call__(self, inputs: list) -> list:
        tensors, stream = self.pick(inputs), self.current()
        if stream and self.cuda.runtime.streamIsCapturing(stream):
            return self.call(inputs, tuple(self.settle(inputs, ())))       # a recording reads the parameters at each replay
        state = self.state
        if state is None or not _is_settled(state, tensors):
            with self.lock:
                state = self.state = self._settled(inputs, tensors, stream)
        elif stream != state.stream:
            self.cuda.runtime.streamWaitEvent(stream, state.filled.ptr)
        if self.record is None:
            return self.call(inputs, state.kept)
        kept = state.kept
        if self.recorded[0] is not kept:
            self.recorded = (kept, self.record(lambda inputs: self.call(inputs, kept)))
        return self.recorded[1](inputs)

    def _settled(self, inputs: list, tensors: tuple, stream: int) -> _State:
        facts, arrays, before = _facts(tensors), tuple(map(data_of, tensors)), self.state
        kept = before.kept if before is not None and before.is_of(arrays) else ()
        made = tuple(self.settle(inputs, kept))
        filled = self.cuda.Event(block=False, disable_timing=True)
        filled.record()
        return _State(tuple([weakref.ref(a, self._forget) for a in arrays]), facts, kept or made, stream, filled)

    def _forget(self, _: weakref.ref) -> None:
        """A parameter's memory is gone: what was made of it goes too."""
        self.state, self.recorded = None, ((), self.call)       # type: ignore[assignment]


def _is_settled(state: _State, tensors: tuple) -> bool:
    return (state.is_of(tuple(map(data_of, tensors))) and state.facts == _facts(tensors)
            and not (shared and any(t._store is not None and t._store.memory in shared for t in tensors)))


def _facts(tensors: Sequence[Tensor]) -> tuple:
    """The counts of writes, and the count of writes that no version tells of."""
    return (unseen_writes[0], *[0 if store is None else store.writes for store in map(store_of, tensors)])
