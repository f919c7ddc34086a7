"""Tensors on their way into the loop IR."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.core.dtypes import dtype
from flambeau.core.expr import Index, bounds
from flambeau.core.scalar import compute_dtype
from flambeau.core.size import contiguous_strides
from flambeau.core.symbolic import SymFloat, SymInt
from flambeau.inductor.loop.ir import Compute, Origin, Value, View

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering

CHEAP = 5   # at most so costly is computed again rather than stored, though more elements read it


class Box:
    """A tensor being lowered: `view` once it lives in a buffer, else `fn` from index to value."""

    def __init__(self, lowering: Lowering, shape: Sequence[Index], kind: dtype, strides: Sequence[Index] | None = None,
                 view: View | None = None, fn: Callable[[Sequence[Index]], Value] | None = None, origins: tuple[Origin, ...] = ()):
        self.lowering, self.shape, self.dtype, self.view, self.fn = lowering, tuple(shape), kind, view, fn
        self.strides = tuple(strides) if strides is not None else tuple(contiguous_strides(shape))
        self.origins = origins
        self.source: tuple[Box, Callable[[View], View | None]] | None = None  # a view: of what, and how its view follows
        self._memo: dict[tuple, Value] = {}

    def __call__(self, idx: Sequence[Index]) -> Value:
        """The value of element `idx`."""
        tracer = self.lowering.tracer
        if self.view is None and self.source is not None and self.source[0].settled():
            self.view = self.source[1](self.source[0].realize())
        if self.view is not None:
            return tracer.load(self.view.buffer, self.view.index(idx), self.dtype)
        key = (tuple(idx), tracer.mask)
        found = self._memo.get(key)
        if found is None:
            assert self.fn is not None
            inlined = self.lowering.inlined
            inlined.append({})
            found = self._memo[key] = tracer.to_dtype(self.fn(idx), compute_dtype(self.dtype))
            self.origins = tuple({**inlined.pop(), **dict.fromkeys(self.origins)})
        self.lowering.inlined[-1].update(dict.fromkeys(self.origins))
        return found

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def settled(self) -> bool:
        """Whether the tensor, or the one that it is a view of, lives in a buffer."""
        return self.view is not None or (self.source is not None and self.source[0].settled())

    def realize(self) -> View:
        """Store the tensor in a buffer of its own (unless it has one) and return the view of it.

        What a view shows the whole of is stored itself, so that all its views share the buffer.
        """
        if self.view is None and self.source is not None:
            self.view = self.source[1](self.source[0].realize())
        if self.view is None:
            idx, loops = self.lowering.iterate(self.shape)
            body = self(idx)
            self.view = self.lowering.new_buffer(self.dtype, self.shape, self.strides)
            self.lowering.add(Compute(self.view.buffer, self.view.index(idx), loops, body, origins=self.origins))
            self.fn = None
            self._memo.clear()
        return self.view

    def copied(self, strides: Sequence[Index]) -> Box:
        """The same elements, to be stored once more with other strides."""
        return Box(self.lowering, self.shape, self.dtype, strides, fn=self, origins=self.origins)


class Place(NamedTuple):
    """A strided look at an operand; `split`: its batch dimension is two, the second of this size."""

    view: View
    split: int = 0


class Slot(int):
    """The position among an eager call's tensors of one of its arguments."""


def index_of(x: Any) -> Any:
    """Sizes and attributes as the IR has them: SymInts become expressions, sequences are walked into."""
    if isinstance(x, (SymInt, SymFloat)):
        return x.guarded
    if isinstance(x, tuple):
        return tuple([index_of(item) for item in x])
    return [index_of(item) for item in x] if isinstance(x, list) else x


def template(args: Sequence[Any]) -> tuple[Any, ...]:
    """`args` with boxes replaced by Slots, numbered in order."""
    count = itertools.count()

    def slots(item: Any) -> Any:
        if isinstance(item, Box):
            return Slot(next(count))
        return type(item)(map(slots, item)) if type(item) in (tuple, list) else item
    return tuple(map(slots, args))


def boxes_in(args: Any) -> list[Box]:
    if isinstance(args, Box):
        return [args]
    if isinstance(args, (tuple, list)):
        return [b for a in args for b in boxes_in(a)]
    return []


def trailing(idx: Sequence[Index], shape: Sequence[Index]) -> list[Index]:
    """The index into a tensor of `shape` broadcast to the rank of `idx`."""
    own = idx[len(idx) - len(shape):]
    return [0 if isinstance(n, int) and n == 1 else i for i, n in zip(own, shape, strict=True)]


def grows(box: Box, source: Box) -> bool:
    """Whether `box` repeats elements of `source` (an expand)."""
    return bounds(math.prod(box.shape) - math.prod(source.shape))[1] > 0


def origin_of(node: Any) -> Origin:
    stack = node.meta.get("stack") or ()
    line = ""
    if stack:
        file, number, _, source = tuple(stack[-1])[:4]
        line = f"{file}:{number} {source}"
    return Origin(node.name, getattr(node.target, "name", str(node.target)), line, node.meta.get("place", -1))
