"""`Size`: the tuple that `Tensor.shape` returns; and strides arithmetic."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from flambeau import _C

from .expr import Expr
from .symbolic import is_symbolic, must


def known_zero(n: Any) -> bool:
    """Whether a size is 0; of one that other sizes decide nothing is asked, so nothing is guarded."""
    return type(n) is int and n == 0


def _whole(n: Any, at: int) -> Any:
    if is_symbolic(n) or isinstance(n, Expr) or (isinstance(n, int) and type(n) is not bool):
        return n    # sizes of loops are expressions, those of a recording know where they are from
    try:
        return operator.index(n)
    except (TypeError, RuntimeError):
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {at} is '{type(n).__name__}')") from None


class Size(_C.SizeTuple):
    """A tuple of sizes with `numel()`; slices and sums of one are again a Size."""

    __slots__ = ()

    def __new__(cls, sizes: Iterable = ()) -> Size:
        """Of integers, or what stands for one: a truth value, a tensor of one integer, a symbolic size. TypeError of others."""
        given = tuple(sizes)
        if any(type(n) is not int for n in given):
            given = tuple(_whole(n, at) for at, n in enumerate(given))
        return super().__new__(cls, given)

    def numel(self) -> int:
        """Product of the sizes."""
        return math.prod(self)

    def __add__(self, other: Iterable) -> Size:
        return Size(tuple(self) + tuple(other))

    def __radd__(self, other: Iterable) -> Size:
        return Size(tuple(other) + tuple(self))

    def __mul__(self, n: Any) -> Size:
        return Size(tuple(self) * n)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    def __reduce__(self) -> tuple:
        return Size, (tuple(self),)


_C.know_sizes(Size)


def contiguous_strides(shape: Sequence[Any]) -> tuple:
    """Row-major strides, in elements; a dimension of size 0 counts as 1, as in torch."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        if not (type(size) is int and size <= 1):
            step = step * size
    return tuple(reversed(strides))


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether these strides are row-major without gaps (dimensions of size 1 do not matter, nor any of a tensor of no elements)."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size == 0:
            return True
        if stride != step and size != 1:    # in this order: a symbolic size is asked where its stride doesn't tell
            return 0 in shape
        step = step * size
    return True


def permuted_strides(shape: Sequence[Any], order: Sequence[int]) -> tuple:
    """Dense strides whose dimensions, from the outermost in memory to the innermost, are `order`."""
    inner = contiguous_strides([shape[d] for d in order])
    strides: list = [0] * len(shape)
    for d, stride in zip(order, inner):
        strides[d] = stride
    return tuple(strides)


def column_strides(shape: Sequence[Any]) -> tuple:
    """Dense strides of matrices that lie column by column, as LAPACK's routines leave them."""
    rank = len(shape)
    return permuted_strides(shape, (*range(rank - 2), rank - 1, rank - 2))


_CHANNELS_LAST_ORDER = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}


def channels_last_strides(shape: Sequence[int]) -> tuple:
    """Strides of a 4-D (NHWC) or 5-D (NDHWC) shape in the channels-last memory format."""
    return permuted_strides(shape, _CHANNELS_LAST_ORDER[len(shape)])


def looks_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether strides say that images (n, c, ...) have their channels innermost, gaps allowed: from the channels outwards no dimension
    steps less far than the one inside it reaches. Strides of dimensions of one element speak too, as in torch."""
    least: Any = 0
    if strides[1] == 0:
        return False
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] if shape[d] == 1 else strides[d] * shape[d]
    return True


def may_overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether several elements may be one place in memory: some dimension steps no further than those that step less reach."""
    reach: Any = 0
    if any(map(known_zero, shape)):
        return False
    for step, n in sorted((s, n) for s, n in zip(strides, shape) if n != 1):
        if step <= reach:
            return True
        reach = reach + (n - 1) * step
    return False


def extent(shape: Sequence[Any], strides: Sequence[Any]) -> Any:
    """How many elements of memory lie from the first to the last of a layout, gaps included; 0 where it has none."""
    return 0 if any(map(known_zero, shape)) else sum(((n - 1) * s for n, s in zip(shape, strides, strict=True)), 1)


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether some permutation of the dimensions is contiguous: no gaps, no overlaps."""
    step = 1
    for stride, size in sorted((st, s) for s, st in zip(shape, strides) if s != 1):
        if stride != step:
            return size == 0
        step = step * size
    return True


def memory_order(strides: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Dimensions from the outermost in memory to the innermost (stable for ties and for size-1 dimensions)."""
    if is_contiguous(shape, strides):
        return tuple(range(len(shape)))
    return tuple(sorted(range(len(shape)), key=lambda d: -strides[d]))


def telling(shape: Sequence[Any], operands: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """The strides of those operands that tell something of the order: of symbolic sizes nothing is asked for the sake of one that repeats
    everywhere."""
    if all(type(n) is int for n in shape):
        return operands
    return [strides for strides in operands if any(type(s) is not int or s for s in strides)]


def elementwise_strides(shape: Sequence[Any], operands: Sequence[Sequence[Any]]) -> tuple:
    """Strides of an elementwise result of `shape`, dense, by those of its operands broadcast to it (0 where one repeats).

    Operands that all lie the same way, without gaps, are followed to the letter. Else dimensions are ordered by the first operand
    that tells two of them apart: the larger stride is the outer one, and of two equal strides that of the smaller size. A
    dimension in which an operand repeats tells nothing; where nobody does, the order is row-major.
    """
    operands = telling(shape, operands)
    first = operands[0] if operands else ()
    if all(is_contiguous(shape, strides) for strides in operands):
        return contiguous_strides(shape)
    order = _CHANNELS_LAST_ORDER.get(len(shape))
    if order is not None:
        last = permuted_strides(shape, order)
        if all(all(s == t or n == 1 for s, t, n in zip(strides, last, shape)) for strides in operands):
            return last
    if all(strides == first for strides in operands[1:]) and is_dense(shape, first):
        if all(type(s) is int for s in first):
            return tuple(first)
        told = permuted_strides(shape, memory_order(first, shape))  # the same numbers, by these sizes: `first` may be told by others
        return tuple(s if n == 1 else t for n, s, t in zip(shape, first, told))
    return permuted_strides(shape, elementwise_order(shape, operands))


def copied_strides(shape: Sequence[Any], strides: Sequence[Any]) -> tuple:
    """Strides of a copy: those of a tensor without gaps or of no elements, whatever they are; else `elementwise_strides`."""
    empty = any(type(n) is int and n == 0 for n in shape)
    return tuple(strides) if empty or is_contiguous(shape, strides) else elementwise_strides(shape, [strides])


def elementwise_order(shape: Sequence[Any], operands: Sequence[Sequence[Any]]) -> list[int]:
    """The dimensions of an elementwise result from the outermost in memory to the innermost (see `elementwise_strides`)."""
    def verdict(inner: int, outer: int) -> int:
        """1 where the dimension now further in is to be the outer one, -1 where it is not, 0 where nobody says."""
        for strides in operands:
            a, b = strides[inner], strides[outer]
            if a == 0 or b == 0:
                continue
            if a != b:
                return 1 if a > b else -1
            if shape[inner] > shape[outer]:
                return 1
        return 0

    order = list(range(len(shape) - 1, -1, -1))     # innermost first
    for start in range(1, len(order)):
        at = start
        for i in range(start - 1, -1, -1):
            told = verdict(order[i], order[at])
            if told > 0:
                order[i], order[at] = order[at], order[i]
                at = i
            elif told < 0:
                break
    return order[::-1]


def refuse_wide(number: int) -> None:
    """ValueError for a number that 64 bits don't hold."""
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"Overflow when unpacking long long: {number} takes more than 64 bits")


def canonical_dim(dim: int, rank: int) -> int:
    """`dim` counted from the front; IndexError with torch's text if it is out of range. Rank 0 takes 0 and -1."""
    if type(dim) is not int:
        if isinstance(dim, (bool, np.bool_)):
            raise TypeError(f"a dimension must be int, not {type(dim).__name__}")
        dim = operator.index(dim)  # a symbol that counts dimensions becomes a number
    bound = max(rank, 1)
    if not -bound <= dim < bound:
        refuse_wide(dim)
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {dim})")
    return dim + bound if dim < 0 else dim


def canonical_dims(dims: Any, rank: int) -> tuple[int, ...]:
    """A tuple of distinct dimensions counted from the front; None or () means all."""
    if dims is None or (isinstance(dims, (tuple, list)) and not dims):
        return tuple(range(rank))
    # NumPy's numbers and tensors of one element are numbers too, and in a sequence truth values are
    listed: Any = (dims,) if hasattr(dims, "__index__") else [d if type(d) is int else operator.index(d) for d in dims]
    found = tuple(canonical_dim(d, rank) for d in listed)
    if len(set(found)) != len(found):
        raise RuntimeError(f"dim {max(found, key=found.count)} appears multiple times in the list of dims")
    return found if rank else ()


def plain_numbers(values: Iterable) -> tuple:
    """The values, NumPy's integers among them (also in tuples and lists) as Python's."""
    return tuple(int(v) if isinstance(v, np.integer) else type(v)(plain_numbers(v)) if type(v) in (tuple, list) else v for v in values)


def several(given: Any) -> tuple:
    """One number, or as many as are given, as a tuple; NumPy's integers as Python's. TypeError for a truth value."""
    if isinstance(given, bool):
        raise TypeError("expected int or a tuple of ints, not bool")
    return plain_numbers((given,) if hasattr(given, "__index__") else given)


def _as_shape(given: Any) -> Sequence[int]:
    """What broadcast_shapes takes for a shape: a number stands for one size, None for a shape of no sizes."""
    if given is None or (hasattr(given, "__index__") and not hasattr(given, "dtype")):
        return () if given is None else (given,)
    if not isinstance(given, (tuple, list)) or not all(hasattr(n, "__index__") for n in given):
        raise RuntimeError(f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {given}")
    return given


def broadcast_shapes(*shapes: Sequence[int]) -> Size:
    """The common shape under broadcasting; RuntimeError naming the sizes if there is none (torch.broadcast_shapes)."""
    try:
        rank = max((len(s) for s in shapes), default=0)
        if not all(isinstance(s, (tuple, list)) for s in shapes):
            return broadcast_shapes(*map(_as_shape, shapes))
    except TypeError:
        return broadcast_shapes(*map(_as_shape, shapes))
    result: list = [1] * rank
    for shape in shapes:
        for i in range(1, len(shape) + 1):
            size, so_far = shape[-i], result[-i]
            if type(size) is int and size == 1:
                continue
            if type(size) is int and size < 0:
                raise ValueError(f"Attempting to broadcast a dimension with negative length! ({size} in {list(shape)})")
            if type(so_far) is int and so_far == 1:
                result[-i] = size
            elif size is not so_far and not must(size == so_far):
                if size == 1:
                    continue
                if so_far == 1:
                    result[-i] = size
                    continue
                raise RuntimeError(
                    f"The size of tensor a ({so_far}) must match the size of tensor b ({size}) "
                    f"at non-singleton dimension {rank - i} (shapes {', '.join(str(list(s)) for s in shapes)})"
                )
    return Size(result)
