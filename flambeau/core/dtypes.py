"""Data types, their properties and the promotion lattice.

A `dtype` is a named singleton around a NumPy dtype (bf16 and fp8 through ml_dtypes; without it they are names that no tensor has).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None    # type: ignore[assignment]


class dtype:
    """An element type; compare with `is` or `==`. `numpy` is the NumPy dtype that stores it."""

    __slots__ = ("category", "code", "is_complex", "is_floating_point", "is_signed", "itemsize", "name", "numpy")

    def __init__(self, name: str, numpy_type: Any, category: int, code: str):
        self.name = name
        self.numpy: np.dtype = np.dtype(numpy_type)
        self.itemsize = self.numpy.itemsize
        self.category = category
        self.is_floating_point = category == FLOAT
        self.is_complex = category == COMPLEX
        self.is_signed = name not in ("bool", "uint8", "uint16", "uint32", "uint64")
        self.code = code

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str | tuple:
        return dtype_of_name, (self.name,)

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, memo: dict) -> dtype:
        return self

    def to_complex(self) -> dtype:
        """The complex dtype whose parts have this dtype's precision."""
        return {"float16": complex64, "bfloat16": complex64, "float32": complex64, "complex64": complex64}.get(self.name, complex128)

    def to_real(self) -> dtype:
        """The real dtype of a complex dtype's parts; a real dtype is its own."""
        return {"complex32": float16, "complex64": float32, "complex128": float64}.get(self.name, self)


# Promotion categories, in the order in which they win over each other.
BOOL, INT, FLOAT, COMPLEX = range(4)


def _narrow(name: str) -> Any:
    """The NumPy type of ml_dtypes, or None without it."""
    return getattr(ml_dtypes, name, None)


_ROWS = [
    # name, NumPy type, category, short code
    ("bool", np.bool_, BOOL, "b8"),
    ("uint8", np.uint8, INT, "u8"),
    ("int8", np.int8, INT, "i8"),
    ("int16", np.int16, INT, "i16"),
    ("int32", np.int32, INT, "i32"),
    ("int64", np.int64, INT, "i64"),
    ("uint16", np.uint16, INT, "u16"),
    ("uint32", np.uint32, INT, "u32"),
    ("uint64", np.uint64, INT, "u64"),
    ("float8_e4m3fn", _narrow("float8_e4m3fn"), FLOAT, "f8e4m3"),
    ("float8_e5m2", _narrow("float8_e5m2"), FLOAT, "f8e5m2"),
    ("float16", np.float16, FLOAT, "f16"),
    ("bfloat16", _narrow("bfloat16"), FLOAT, "bf16"),
    ("float32", np.float32, FLOAT, "f32"),
    ("float64", np.float64, FLOAT, "f64"),
    ("complex64", np.complex64, COMPLEX, "c64"),
    ("complex128", np.complex128, COMPLEX, "c128"),
]


class _NamedOnly(dtype):
    """A dtype that exists to be named and compared: no tensor has it."""

    __slots__ = ("instead",)

    def __init__(self, name: str, category: int, itemsize: int, instead: str):
        self.name, self.category, self.itemsize, self.code, self.instead = name, category, itemsize, name, instead
        self.is_floating_point, self.is_complex = category == FLOAT, category == COMPLEX
        self.is_signed = "uint" not in name

    @property
    def numpy(self) -> np.dtype:     # type: ignore[override]
        """Raises NotImplementedError: there is no such storage."""
        raise NotImplementedError(f"tensors of torch.{self.name} are not implemented; {self.instead}")


DTYPES: dict[str, dtype] = {row[0]: dtype(*row) for row in _ROWS if row[1] is not None}
_WITHOUT: dict[str, dtype] = {
    name: _NamedOnly(name, category, 2 if name == "bfloat16" else 1, "pip install ml_dtypes")
    for name, numpy_type, category, _ in _ROWS if numpy_type is None}
_OF_NUMPY: dict[np.dtype, dtype] = {d.numpy: d for d in DTYPES.values()}

bool_ = DTYPES["bool"]
uint8, int8, int16, int32, int64 = (DTYPES[n] for n in ("uint8", "int8", "int16", "int32", "int64"))
uint16, uint32, uint64 = (DTYPES[n] for n in ("uint16", "uint32", "uint64"))
float8_e4m3fn, float8_e5m2, bfloat16 = (DTYPES.get(n) or _WITHOUT[n] for n in ("float8_e4m3fn", "float8_e5m2", "bfloat16"))
float16, float32, float64 = (DTYPES[n] for n in ("float16", "float32", "float64"))
complex64, complex128 = DTYPES["complex64"], DTYPES["complex128"]

# torch's other names for the same types.
ALIASES: dict[str, dtype] = {
    "half": float16,
    "float": float32,
    "double": float64,
    "short": int16,
    "int": int32,
    "long": int64,
    "cfloat": complex64,
    "cdouble": complex128,
}


_BITS = "use torch.int8 or torch.uint8 and pack the bits yourself"
_QUANTIZED = "keep integers in torch.int8 and scales beside them"
NAMED_ONLY: dict[str, dtype] = {
    **_WITHOUT,
    **{f"{kind}{bits}": _NamedOnly(f"{kind}{bits}", INT, 1, _BITS) for kind in ("int", "uint") for bits in range(1, 8)},
    **{name: _NamedOnly(name, INT, size, _BITS) for name, size in (
        ("bits1x8", 1), ("bits2x4", 1), ("bits4x2", 1), ("bits8", 1), ("bits16", 2))},
    **{name: _NamedOnly(name, INT, size, _QUANTIZED) for name, size in (
        ("qint8", 1), ("quint8", 1), ("qint32", 4), ("quint4x2", 1), ("quint2x4", 1))},
    **{name: _NamedOnly(name, FLOAT, 1, "use torch.float8_e4m3fn or torch.float8_e5m2") for name in (
        "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2")},
    "complex32": _NamedOnly("complex32", COMPLEX, 4, "use torch.complex64"),
}
ALIASES["chalf"], ALIASES["bit"] = NAMED_ONLY["complex32"], NAMED_ONLY["uint1"]


def dtype_of_name(name: str) -> dtype:
    """The dtype called `name` ('float32', 'half', ...)."""
    return DTYPES.get(name) or NAMED_ONLY.get(name) or ALIASES[name]


_OF_PYTHON: dict[Any, dtype] = {bool: bool_, int: int64, float: float64, complex: complex128}


def as_dtype(value: Any, asker: str = "") -> dtype:
    """`value` as a dtype: one itself, or Python's bool, int, float or complex; TypeError, naming `asker`, for anything else."""
    if isinstance(value, dtype):
        return value
    try:
        return _OF_PYTHON[value]
    except (KeyError, TypeError):
        said = value.__name__ if isinstance(value, type) else f"{type(value).__name__} ({value!r})"
        raise TypeError(f"{asker + '(): ' if asker else ''}argument 'dtype' must be torch.dtype, not {said}; "
                        f"also taken are bool, int, float and complex") from None


def dtype_of_numpy(numpy_dtype: np.dtype) -> dtype:
    """The dtype stored as `numpy_dtype`; TypeError if there is none."""
    found = _OF_NUMPY.get(numpy_dtype)
    if found is None:
        native = np.dtype(numpy_dtype).newbyteorder("=")
        found = _OF_NUMPY.get(native) if native == numpy_dtype else None
    if found is None:
        names = ", ".join(DTYPES)
        raise TypeError(f"can't convert np.ndarray of type {numpy_dtype}. The supported types are: {names}.")
    return found


_INT_RANK = {int8: 1, int16: 2, int32: 3, int64: 4, uint16: 2, uint32: 3, uint64: 4, uint8: 1}
_FLOAT_RANK = {float8_e4m3fn: 0, float8_e5m2: 0, float16: 1, bfloat16: 1, float32: 2, float64: 3}


def _promote_ints(a: dtype, b: dtype) -> dtype:
    if a.is_signed == b.is_signed:
        return a if _INT_RANK[a] >= _INT_RANK[b] else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    if unsigned is not uint8:
        raise RuntimeError(f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {a} and {b}")
    return signed if _INT_RANK[signed] > _INT_RANK[unsigned] else int16


def _promote_floats(a: dtype, b: dtype) -> dtype:
    if _FLOAT_RANK[a] == _FLOAT_RANK[b]:
        if _FLOAT_RANK[a] == 0:
            raise RuntimeError(f"Promotion for Float8 Types is not supported, attempted to promote {a} and {b}")
        return float32  # f16 with bf16: neither holds the other
    return a if _FLOAT_RANK[a] > _FLOAT_RANK[b] else b


def _promote(a: dtype, b: dtype) -> dtype:
    if a is b:
        return a
    low, high = sorted((a, b), key=lambda d: d.category)
    if low.category != high.category:
        if high.category == COMPLEX and low is float64:
            return complex128
        return high
    if low.category == INT:
        return _promote_ints(a, b)
    return _promote_floats(a, b) if low.category == FLOAT else complex128


_PROMOTED: dict[tuple[dtype, dtype], dtype] = {}


def promote_types(a: dtype, b: dtype) -> dtype:
    """The smallest dtype of not lower size or kind than either `a` or `b` (torch.promote_types)."""
    found = _PROMOTED.get((a, b))
    if found is None:
        found = _PROMOTED[a, b] = _promote(as_dtype(a, "promote_types"), as_dtype(b, "promote_types"))
    return found


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether torch's in-place casting rules let a result of dtype `from_` be written into `to`."""
    return as_dtype(from_, "can_cast").category <= as_dtype(to, "can_cast").category


class _Limits:
    """What is known of a dtype's numbers; of one dtype they are equal."""

    dtype: str

    def __eq__(self, other: Any) -> bool:
        return self.dtype == other.dtype if type(other) is type(self) else NotImplemented

    __hash__ = None     # type: ignore[assignment]


class finfo(_Limits):
    """Machine limits of a floating dtype: eps, max, min, tiny, smallest_normal, resolution, bits."""

    _shown = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")

    def __init__(self, type: dtype | None = None):
        type = float32 if type is None else as_dtype(type, "finfo").to_real()
        if not type.is_floating_point:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type.name}'")
        info = (np if ml_dtypes is None else ml_dtypes).finfo((isinstance(type, _NamedOnly) and _narrow(type.name)) or type.numpy)
        self.dtype, self.bits = type.name, info.bits
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = float(f"1e-{int(info.nmant * math.log10(2))}")    # of the decimal digits that every number keeps

    def __repr__(self) -> str:
        return f"finfo({', '.join(f'{name}={getattr(self, name):g}' for name in self._shown)}, dtype={self.dtype})"


class iinfo(_Limits):
    """Limits of an integer dtype: min, max, bits."""

    def __init__(self, type: dtype):
        type = as_dtype(type, "iinfo")
        if type.category != INT:
            raise TypeError("torch.bool is not supported by torch.iinfo" if type is bool_ else
                            f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type.name}'")
        info = np.iinfo(type.numpy)
        self.dtype, self.bits, self.min, self.max = type.name, info.bits, int(info.min), int(info.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


_SCALAR_TYPE = {
    "bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long", "float16": "Half",
    "bfloat16": "BFloat16", "float32": "Float", "float64": "Double", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}


def scalar_type(kind: dtype) -> str:
    """torch's name of a dtype in error texts: 'Long' for int64."""
    return _SCALAR_TYPE.get(kind.name, kind.name)
