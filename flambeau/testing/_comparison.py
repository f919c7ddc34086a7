"""What `assert_close` is made of: pairs of things that are compared, which test suites derive their own kinds of pairs from.

A pair takes two inputs or says that it does not (`UnsupportedInputs`), and `compare()` raises `ErrorMeta` where they are not close.
`originate_pairs` walks sequences and mappings side by side down to such pairs; the first kind that takes two inputs has them.
"""

from __future__ import annotations

import abc
import cmath
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ..core.dtypes import bfloat16, complex64, complex128, dtype, float16, float32, float64, int64, promote_types
from ..core.memory_format import strided
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS

# (rtol, atol) by dtype; exact for all others.
TOLERANCES: dict[dtype, tuple[float, float]] = {
    float16: (1e-3, 1e-5),
    bfloat16: (1.6e-2, 1e-5),
    float32: (1.3e-6, 1e-5),
    float64: (1e-7, 1e-7),
    complex64: (1.3e-6, 1e-5),
    complex128: (1e-7, 1e-7),
}

_INDICES = {"sparse_csr": ("crow", "col"), "sparse_bsr": ("crow", "col"), "sparse_csc": ("ccol", "row"), "sparse_bsc": ("ccol", "row")}
"""By layout: what its two tensors of indices are called."""


class ErrorMeta(Exception):
    """An exception that is not raised yet: its type, its message, and the place of the inputs among those that hold them."""

    def __init__(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> None:
        super().__init__(msg)
        self.type, self.msg, self.id = type, msg, id

    def to_error(self, msg: str | Callable[[str], str] | None = None) -> Exception:
        """The exception, with `msg` in the place of the message or made of it."""
        place = f"\n\nThe failure occurred for item {''.join(f'[{item!r}]' for item in self.id)}" if self.id else ""
        made = self.msg + place
        return self.type(made if msg is None else msg(made) if callable(msg) else msg)


class UnsupportedInputs(Exception):
    """Raised by a pair of a kind that does not take these inputs."""


def default_tolerances(*inputs: Tensor | dtype, dtype_precisions: Mapping[dtype, tuple[float, float]] | None = None) -> tuple[float, float]:
    """(rtol, atol): the widest among the dtypes."""
    kinds = [x.dtype if isinstance(x, Tensor) else x for x in inputs]
    pairs = [(dtype_precisions or TOLERANCES).get(kind, (0.0, 0.0)) for kind in kinds]
    return max(r for r, _ in pairs), max(a for _, a in pairs)


def get_tolerances(
    *inputs: Tensor | dtype, rtol: float | None, atol: float | None, id: tuple[Any, ...] = ()
) -> tuple[float, float]:
    """(rtol, atol) as given, or those of the dtypes. ErrorMeta of ValueError where one alone is given."""
    if rtol is None and atol is None:
        return default_tolerances(*inputs)
    if rtol is None or atol is None:
        lacking = "rtol" if rtol is None else "atol"
        raise ErrorMeta(ValueError, f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {lacking}.", id=id)
    return rtol, atol


# -- messages --------------------------------------------------------------------------------------------------------------
def _allowed(tolerance: float, exact: bool) -> str:
    return "" if exact else f" (up to {tolerance} allowed)"


def _head(identifier: str | Callable[[str], str] | None, default: str, rtol: float, atol: float) -> str:
    made = f"{default} are not {'equal' if rtol == atol == 0 else 'close'}!"
    return made if identifier is None else identifier(made) if callable(identifier) else identifier + made.removeprefix(default)


def make_scalar_mismatch_msg(
    actual: Any, expected: Any, *, rtol: float, atol: float, identifier: str | Callable[[str], str] | None = None
) -> str:
    """What is said of two numbers that are not close."""
    exact, absolute = rtol == atol == 0, abs(actual - expected)
    relative = absolute / abs(expected) if expected != 0 else float("inf")
    return (f"{_head(identifier, 'Scalars', rtol, atol)}\n\nExpected {expected} but got {actual}."
            f"\nAbsolute difference: {absolute}{_allowed(atol, exact)}\nRelative difference: {relative}{_allowed(rtol, exact)}")


def make_tensor_mismatch_msg(
    actual: Tensor, expected: Tensor, matches: Tensor, *, rtol: float, atol: float, identifier: str | Callable[[str], str] | None = None
) -> str:
    """What is said of two tensors that are not close where `matches` is false: how many elements, and the greatest differences."""
    wrong, count = int((~matches).sum()), matches.numel()
    if actual.dtype.category < 2:           # differences of narrow or unsigned integers would wrap around
        actual, expected = actual.to(int64), expected.to(int64)
    absolute = OPERATORS["where"](matches, 0, (actual - expected).abs().flatten().reshape(matches.shape))
    relative = OPERATORS["where"](matches, 0, absolute / expected.abs())

    def greatest(kind: str, values: Tensor, tolerance: float) -> str:
        value, flat = (x.item() for x in values.flatten().max(0))
        index = tuple(int(i) for i in np.unravel_index(flat, tuple(matches.shape)))
        return f"\nGreatest {kind} difference: {value} at index {index}{_allowed(tolerance, rtol == atol == 0)}"

    return (f"{_head(identifier, 'Tensor-likes', rtol, atol)}\n\nMismatched elements: {wrong} / {count} ({wrong / count:.1%})"
            + greatest("absolute", absolute, atol) + greatest("relative", relative, rtol))


# -- kinds of pairs --------------------------------------------------------------------------------------------------------
class Pair(abc.ABC):
    """Two inputs that are compared. `id` is their place: keys and indices from the outermost container on."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **unknown_parameters: Any) -> None:
        self.actual, self.expected, self.id = actual, expected, id
        self._unknown_parameters = unknown_parameters

    @staticmethod
    def _inputs_not_supported() -> NoReturn:
        raise UnsupportedInputs

    @staticmethod
    def _check_inputs_isinstance(*inputs: Any, cls: type | tuple[type, ...]) -> None:
        if not all(isinstance(x, cls) for x in inputs):
            Pair._inputs_not_supported()

    def _fail(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> NoReturn:
        raise ErrorMeta(type, msg, id=self.id if not id and hasattr(self, "id") else id)

    @abc.abstractmethod
    def compare(self) -> None:
        """Raise ErrorMeta where the inputs are not close."""

    def extra_repr(self) -> Sequence[str | tuple[str, Any]]:
        """Names of attributes (or pairs of a name and a value) that `repr` shows beside the inputs."""
        return []

    def __repr__(self) -> str:
        rows = [("id", self.id), ("actual", self.actual), ("expected", self.expected)]
        rows += [(extra, getattr(self, extra)) if isinstance(extra, str) else extra for extra in self.extra_repr()]
        return f"{type(self).__name__}(\n" + "".join(f"    {name}={value!s},\n" for name, value in rows) + ")"


class ObjectPair(Pair):
    """Anything, by ==."""

    def compare(self) -> None:
        """Raise where the inputs are not equal, or == raises or answers no truth value."""
        try:
            equal = bool(self.actual == self.expected)
        except Exception as error:
            raise ErrorMeta(ValueError, f"{self.actual} == {self.expected} failed with:\n{error}.", id=self.id) from error
        if not equal:
            self._fail(AssertionError, f"{self.actual} != {self.expected}")


class NonePair(Pair):
    """None and anything."""

    def __init__(self, actual: Any, expected: Any, **other_parameters: Any) -> None:
        if actual is not None and expected is not None:
            self._inputs_not_supported()
        super().__init__(actual, expected, **other_parameters)

    def compare(self) -> None:
        """Raise where one is not None."""
        if self.actual is not self.expected:
            self._fail(AssertionError, f"None mismatch: {self.actual} is not {self.expected}")


class BooleanPair(Pair):
    """Two truth values, of Python or NumPy."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **other_parameters: Any) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id)
        super().__init__(actual, expected, id=id, **other_parameters)

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return bool, np.bool_

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...]) -> Sequence[bool]:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        return [self._to_bool(x, id=id) for x in (actual, expected)]

    def _to_bool(self, bool_like: Any, *, id: tuple[Any, ...]) -> bool:
        if not isinstance(bool_like, self._supported_types):
            raise ErrorMeta(TypeError, f"Unknown boolean type {type(bool_like)}.", id=id)
        return bool(bool_like)

    def compare(self) -> None:
        """Raise where they differ."""
        if self.actual is not self.expected:
            self._fail(AssertionError, f"Booleans mismatch: {self.actual} is not {self.expected}")


class NumberPair(Pair):
    """Two numbers, of Python or NumPy."""

    _TYPE_TO_DTYPE: Mapping[type, dtype] = {int: int64, float: float64, complex: complex128}
    _NUMBER_TYPES = tuple(_TYPE_TO_DTYPE)

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), rtol: float | None = None, atol: float | None = None,
                 equal_nan: bool = False, check_dtype: bool = False, **other_parameters: Any) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id)
        super().__init__(actual, expected, id=id, **other_parameters)
        kinds = [self._TYPE_TO_DTYPE[type(x)] for x in (actual, expected)]
        self.rtol, self.atol = get_tolerances(*kinds, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_dtype = equal_nan, check_dtype

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return *self._NUMBER_TYPES, np.number

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...]) -> Sequence[Any]:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        return [self._to_number(x, id=id) for x in (actual, expected)]

    def _to_number(self, number_like: Any, *, id: tuple[Any, ...]) -> Any:
        if not isinstance(number_like, self._supported_types):
            raise ErrorMeta(TypeError, f"Unknown number type {type(number_like)}.", id=id)
        return number_like.item() if isinstance(number_like, np.number) else number_like

    def compare(self) -> None:
        """Raise where the types differ, if they are checked, or |actual - expected| > atol + rtol * |expected|."""
        actual, expected = self.actual, self.expected
        if self.check_dtype and type(actual) is not type(expected):
            self._fail(AssertionError, f"The (d)types do not match: {type(actual)} != {type(expected)}.")
        if actual == expected or (self.equal_nan and cmath.isnan(actual) and cmath.isnan(expected)):
            return
        difference = abs(actual - expected)
        if not (cmath.isfinite(difference) and difference <= self.atol + self.rtol * abs(expected)):
            self._fail(AssertionError, make_scalar_mismatch_msg(actual, expected, rtol=self.rtol, atol=self.atol))

    def extra_repr(self) -> Sequence[str]:
        """What the comparison hangs on."""
        return ("rtol", "atol", "equal_nan", "check_dtype")


class TensorLikePair(Pair):
    """Two tensors, or what `as_tensor` makes one of and is of one type."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), allow_subclasses: bool = True, rtol: float | None = None,
                 atol: float | None = None, equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True,
                 check_layout: bool = True, check_stride: bool = False, **other_parameters: Any) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id, allow_subclasses=allow_subclasses)
        super().__init__(actual, expected, id=id, **other_parameters)
        self.rtol, self.atol = get_tolerances(actual, expected, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_device, self.check_dtype = equal_nan, check_device, check_dtype
        self.check_layout, self.check_stride = check_layout, check_stride

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...], allow_subclasses: bool) -> tuple[Tensor, Tensor]:
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not related or (not allow_subclasses and type(actual) is not type(expected)):
            self._inputs_not_supported()
        made = self._to_tensor(actual), self._to_tensor(expected)
        for x in made:
            self._check_supported(x, id=id)
        return made

    def _to_tensor(self, tensor_like: Any) -> Tensor:
        if isinstance(tensor_like, Tensor):
            return tensor_like
        try:
            return OPERATORS["as_tensor"](tensor_like)
        except (TypeError, ValueError, RuntimeError):
            self._inputs_not_supported()

    def _check_supported(self, tensor: Tensor, *, id: tuple[Any, ...]) -> None:
        """Raise ErrorMeta of ValueError for a tensor of a layout that cannot be compared; every one can."""

    def compare(self) -> None:
        """Raise where an attribute that is checked differs, or |actual - expected| > atol + rtol * |expected| somewhere."""
        self._compare_attributes(self.actual, self.expected)
        if "meta" not in (self.actual.device.type, self.expected.device.type):
            self._compare_values(*self._equalize_attributes(self.actual, self.expected))

    def _compare_attributes(self, actual: Tensor, expected: Tensor) -> None:
        plain = actual.layout is strided and expected.layout is strided
        rows = [("shape", True, actual.shape, expected.shape), ("layout", self.check_layout, actual.layout, expected.layout),
                ("stride()", self.check_stride and plain, actual.stride() if plain else (), expected.stride() if plain else ()),
                ("device", self.check_device, actual.device, expected.device), ("dtype", self.check_dtype, actual.dtype, expected.dtype)]
        for name, checked, one, other in rows:
            if checked and one != other:
                self._fail(AssertionError, f"The values for attribute '{name}' do not match: {one} != {other}.")

    def _equalize_attributes(self, actual: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
        if actual.device != expected.device:
            actual, expected = actual.cpu(), expected.cpu()
        kind = promote_types(actual.dtype, expected.dtype)
        actual, expected = actual.to(kind), expected.to(kind)
        if actual.layout != expected.layout:
            actual, expected = (x if x.layout is strided else x.to_dense() for x in (actual, expected))
        return actual, expected

    def _compare_values(self, actual: Tensor, expected: Tensor) -> None:
        layout = str(actual.layout).rpartition(".")[2]
        if layout == "sparse_coo":
            self._compare_coo(actual, expected)
        elif layout in _INDICES:
            self._compare_compressed(actual, expected, layout)
        else:
            self._compare_regular_values_close(actual, expected, rtol=self.rtol, atol=self.atol, equal_nan=self.equal_nan)

    def _compare_parts(self, actual: Tensor, expected: Tensor, what: str, exact: bool) -> None:
        if exact:
            self._compare_regular_values_close(actual, expected, rtol=0, atol=0, equal_nan=False, identifier=what)
        else:
            self._compare_regular_values_close(
                actual, expected, rtol=self.rtol, atol=self.atol, equal_nan=self.equal_nan, identifier=what)

    def _compare_coo(self, actual: Tensor, expected: Tensor) -> None:
        if actual._nnz() != expected._nnz():
            self._fail(AssertionError, "The number of specified values in sparse COO tensors does not match: "
                                       f"{actual._nnz()} != {expected._nnz()}")
        self._compare_parts(actual._indices(), expected._indices(), "Sparse COO indices", exact=True)
        self._compare_parts(actual._values(), expected._values(), "Sparse COO values", exact=False)

    def _compare_compressed(self, actual: Tensor, expected: Tensor, layout: str) -> None:
        name = f"Sparse {layout.removeprefix('sparse_').upper()}"
        if actual._nnz() != expected._nnz():
            self._fail(AssertionError, f"The number of specified values in {name.lower().replace(layout[-3:], layout[-3:].upper())} "
                                       f"tensors does not match: {actual._nnz()} != {expected._nnz()}")
        for part in _INDICES[layout]:
            one, other = (getattr(x, f"{part}_indices")() for x in (actual, expected))
            self._compare_parts(one.to(int64), other.to(int64), f"{name} {part}_indices", exact=True)
        self._compare_parts(actual.values(), expected.values(), f"{name} values", exact=False)

    def _compare_regular_values_close(
        self, actual: Tensor, expected: Tensor, *, rtol: float, atol: float, equal_nan: bool,
        identifier: str | Callable[[str], str] | None = None
    ) -> None:
        actual, expected = actual.detach(), expected.detach()
        matches = OPERATORS["isclose"](actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan)
        if bool(matches.all()):
            return
        if actual.ndim == 0:
            msg = make_scalar_mismatch_msg(actual.item(), expected.item(), rtol=rtol, atol=atol, identifier=identifier)
        else:
            msg = make_tensor_mismatch_msg(actual, expected, matches, rtol=rtol, atol=atol, identifier=identifier)
        self._fail(AssertionError, msg)

    def extra_repr(self) -> Sequence[str]:
        """What the comparison hangs on."""
        return ("rtol", "atol", "equal_nan", "check_device", "check_dtype", "check_layout", "check_stride")


# -- walking ---------------------------------------------------------------------------------------------------------------
Kinds = Collection[type[Pair]]
DEFAULT_KINDS: Kinds = (NonePair, BooleanPair, NumberPair, TensorLikePair)


def originate_pairs(
    actual: Any, expected: Any, *, pair_types: Kinds, sequence_types: tuple[type, ...] = (Sequence,),
    mapping_types: tuple[type, ...] = (Mapping,), id: tuple[Any, ...] = (), **options: Any
) -> list[Pair]:
    """The pairs of what two nested sequences and mappings hold. ErrorMeta where they are built otherwise, or no kind takes two inputs."""
    def within(key: Any) -> list[Pair]:
        return originate_pairs(actual[key], expected[key], pair_types=pair_types, sequence_types=sequence_types,
                               mapping_types=mapping_types, id=(*id, key), **options)

    def both(kinds: tuple[type, ...]) -> bool:
        return all(isinstance(x, kinds) and not isinstance(x, (str, bytes)) for x in (actual, expected))

    if both(sequence_types):
        if len(actual) != len(expected):
            raise ErrorMeta(AssertionError, f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", id=id)
        return [pair for index in range(len(actual)) for pair in within(index)]
    if both(mapping_types):
        _same_keys(actual, expected, id)
        return [pair for key in _in_order(actual) for pair in within(key)]
    for kind in pair_types:
        try:
            return [kind(actual, expected, id=id, **options)]
        except UnsupportedInputs:
            continue
    raise ErrorMeta(TypeError, f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.", id=id)


def _same_keys(actual: Mapping[Any, Any], expected: Mapping[Any, Any], id: tuple[Any, ...]) -> None:
    missing, additional = set(expected.keys()) - set(actual.keys()), set(actual.keys()) - set(expected.keys())
    if missing or additional:
        raise ErrorMeta(AssertionError, f"The keys of the mappings do not match:\nMissing keys in the actual mapping: {_in_order(missing)}"
                                        f"\nAdditional keys in the actual mapping: {_in_order(additional)}", id=id)


def _in_order(keys: Any) -> list[Any]:
    try:
        return sorted(keys)
    except TypeError:               # of several types
        return list(keys)


def not_close_error_metas(
    actual: Any, expected: Any, *, pair_types: Kinds = (ObjectPair,), sequence_types: tuple[type, ...] = (Sequence,),
    mapping_types: tuple[type, ...] = (Mapping,), **options: Any
) -> list[ErrorMeta]:
    """What is not close, an entry for each pair. Inputs that cannot be walked raise."""
    try:
        pairs = originate_pairs(
            actual, expected, pair_types=pair_types, sequence_types=sequence_types, mapping_types=mapping_types, **options)
    except ErrorMeta as meta:
        raise meta.to_error() from None
    found = []
    for pair in pairs:
        try:
            pair.compare()
        except ErrorMeta as meta:
            found.append(meta.with_traceback(None))
    return found


def _unwrap_dtensor_for_comparison(actual: Any, expected: Any) -> tuple[Any, Any]:
    """The whole tensors of two distributed ones; anything else as it is."""
    if all(hasattr(x, "full_tensor") for x in (actual, expected)):
        return actual.full_tensor(), expected.full_tensor()
    return actual, expected


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    Tensors, numbers, and sequences and mappings of them. Default tolerances follow the dtype (float32: rtol 1.3e-6, atol 1e-5;
    float64: 1e-7 both; float16: 1e-3, 1e-5; bfloat16: 1.6e-2, 1e-5; exact for integers). `msg` replaces the message, or makes one
    of it.
    """
    found = not_close_error_metas(
        actual, expected, pair_types=DEFAULT_KINDS, allow_subclasses=allow_subclasses, rtol=rtol, atol=atol, equal_nan=equal_nan,
        check_device=check_device, check_dtype=check_dtype, check_layout=check_layout, check_stride=check_stride)
    if found:
        raise found[0].to_error(msg)
