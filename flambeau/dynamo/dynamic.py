"""Which sizes, ints and floats vary: learned from recompilations of a function, or told by the user."""

from __future__ import annotations

import math
from typing import Any

from ..core.size import is_dense
from . import config


class Shapes:
    """What one code object has seen, by source: sizes of tensors and values of ints and floats.

    The first capture is static. A later capture that finds another size marks this dimension as varying. `dynamic=True` lets
    all sizes, and numbers that callers pass, vary from the start; `dynamic=False` none ever.
    """

    def __init__(self, dynamic: bool | None, breaks_allowed: bool = True, changing: frozenset[str] = frozenset(),
                 unknown: frozenset[tuple[str, int]] = frozenset()) -> None:  # fmt: skip
        self.dynamic = dynamic
        self.changing = changing
        """Sources of what a loop gives each of its rounds anew: numbers there vary before they were seen to, but not as sizes."""
        self.unknown = unknown
        """Dimensions of tensors, by source, that another function found to depend on values in tensors: they vary from the start."""
        self.breaks_allowed = breaks_allowed
        """May what needs the value of a float be done between two graphs? Not with fullgraph."""
        self._sizes: dict[str, list[int | None]] = {}
        self._ints: dict[str, float | None] = {}
        self._sizes_among_ints: dict[str, float] = {}
        self.marked: set[str] = set()
        """Sizes that the user says vary in this capture, as `x.shape[0]`."""
        self.begun: set[int] = set()
        """Optimizers whose states this capture has made: by id."""
        self._captures = 0
        self._history: dict[str, dict[int, tuple[int, ...]]] = {}

    def begin(self) -> None:
        """One more capture."""
        self._captures += 1
        self.marked.clear()
        self.begun.clear()

    def seen(self, name: str, dim: int) -> tuple[tuple[int, int], ...]:
        """What was found at a dimension, capture by capture. Sizes of which this differs are not one size, though they may be equal now."""
        return tuple((capture, sizes[dim]) for capture, sizes in self._history[name].items() if len(sizes) > dim)

    def dims(self, name: str, value: Any) -> tuple[bool | None, ...]:
        """For each dimension: False (static), None (varies, may share a symbol) or True (marked by the user)."""
        none: frozenset[int] = frozenset()
        marked, weakly, pinned = (getattr(value, f"_dynamo_{kind}_dims", none) for kind in ("dynamic", "weak_dynamic", "static"))
        self.marked |= {f"{name}.shape[{dim}]" for dim in marked}
        sizes = tuple(int(size) for size in value.shape)
        seen = [None if (name, dim) in self.unknown else size for dim, size in enumerate(self._merge_sizes(name, sizes))]
        self._history.setdefault(name, {})[self._captures] = sizes
        return tuple(
            True if dim in marked else False if dim in pinned else None if dim in weakly else self._dim_varies(seen[dim])
            for dim in range(len(sizes))
        )

    def strides(self, name: str, value: Any) -> list[bool]:
        """Which strides of a view with gaps have changed between captures."""
        learns = self.dynamic is not False and config.dynamic_shapes and config.automatic_dynamic_shapes
        if not learns or is_dense(value.shape, value.stride()):
            return [False] * len(value.shape)
        return [seen is None for seen in self._merge_sizes(f"{name}.stride()", tuple(value.stride()))]

    def _dim_varies(self, seen: int | None) -> bool | None:
        if self.dynamic is False or not config.dynamic_shapes:
            return False
        if self.from_the_start:
            return None
        return None if seen is None and config.automatic_dynamic_shapes else False

    def _merge_sizes(self, name: str, sizes: tuple[int, ...]) -> list[int | None]:
        """The sizes seen so far with those that changed replaced by None."""
        seen = self._sizes.get(name)
        if seen is None or len(seen) != len(sizes):
            self._sizes[name] = list(sizes)
        else:
            self._sizes[name] = [old if old == new else None for old, new in zip(seen, sizes, strict=True)]
        return self._sizes[name]

    @property
    def from_the_start(self) -> bool:
        """Does what may vary do so from the first capture on?"""
        return self.dynamic is not False and config.dynamic_shapes and (self.dynamic is True or not config.assume_static_by_default)

    def varies(self, name: str, value: float, presumed: bool = False) -> bool:
        """Has an int or float changed between captures, or will it? `presumed`: it is taken to, before it was seen to."""
        fixed = config.specialize_float if isinstance(value, float) else config.specialize_int
        if fixed or self.dynamic is False or not config.dynamic_shapes:
            return False
        known = self._ints.setdefault(name, value)
        if known != value:
            self._ints[name] = None
        return presumed or self._ints[name] is None or (self._is_given_anew(name) and name not in self._sizes_among_ints)

    def may_vary(self, name: str) -> bool:
        """Was an int below this source seen to change, or will it?"""
        return name in self.changing or any(known is None and other.startswith(name) for other, known in self._ints.items())

    def least(self, name: str) -> float:
        """What an int is at least that was found to be a size of tensors, or one of which sizes are made; -inf of others."""
        return self._sizes_among_ints.get(name, -math.inf)

    def note_size(self, name: str, least: float) -> None:
        """An int is a size of tensors, or sizes are made of it."""
        self._sizes_among_ints[name] = max(least, self.least(name))

    def _is_given_anew(self, name: str) -> bool:
        """Is this one of what changes with the rounds of a loop, or an element of it?"""
        return name in self.changing or (name.endswith("]") and name.rpartition("[")[0] in self.changing)
