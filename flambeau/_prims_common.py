"""torch._prims_common: facts of dtypes, shapes and strides, as libraries ask for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

from .core.device import device
from .core.dtypes import COMPLEX, FLOAT, as_dtype, bool_, complex64, float32, int64, promote_types
from .core.dtypes import dtype as DType
from .core.memory_format import channels_last, channels_last_3d, contiguous_format
from .core.size import contiguous_strides
from .core.symbolic import SymFloat, SymInt
from .core.tensor import Tensor
from .ops.promotion import default_dtype, result_type
from .ops.registry import OPERATORS

TensorLike = TensorLikeType = Tensor
TensorSequenceType = list[Tensor] | tuple[Tensor, ...]
Number = NumberType = bool | int | float | complex
RealNumberType = bool | int | float
TensorOrNumberLikeType = Tensor | bool | int | float | complex
ShapeType = StrideType = DimsSequenceType = Sequence
Dim = int
DimsType = int | Sequence
DeviceLikeType = str | device | int
IntLike, FloatLike = (int, SymInt), (float, SymFloat)
IntWithoutSymInt, FloatWithoutSymFloat = int, float


class ELEMENTWISE_TYPE_PROMOTION_KIND(Enum):
    """What dtype an elementwise operator computes in and gives."""

    DEFAULT = 0
    NO_OPMATH = 1
    INT_TO_FLOAT = 2
    ALWAYS_BOOL = 3
    COMPLEX_TO_FLOAT = 4
    BOOL_TO_LONG = 5


class REDUCTION_OUTPUT_TYPE_KIND(Enum):
    """What dtype a reduction gives."""

    SAME = 0
    COMPLEX_TO_FLOAT = 1
    KEEP_PROMOTED_TYPE = 2
    ALWAYS_BOOL = 3


# -- dtypes ------------------------------------------------------------------------------------------------------------------------
def is_boolean_dtype(dtype: DType) -> bool:
    """Whether it is torch.bool."""
    return dtype is bool_


def is_integer_dtype(dtype: DType) -> bool:
    """Whether it is an integer dtype (bool is none)."""
    return dtype.category == 1


def is_float_dtype(dtype: DType) -> bool:
    """Whether it is a real floating dtype."""
    return dtype.category == FLOAT


def is_complex_dtype(dtype: DType) -> bool:
    """Whether it is a complex dtype."""
    return dtype.category == COMPLEX


def is_grad_dtype(dtype: DType) -> bool:
    """Whether tensors of it may require gradients."""
    return dtype.category >= FLOAT


def is_low_precision_dtype(dtype: DType) -> bool:
    """Whether it is float16 or bfloat16, which is computed in float32."""
    return dtype.category == FLOAT and dtype.itemsize == 2


def get_computation_dtype(dtype: DType) -> DType:
    """The dtype that elementwise operators compute in."""
    return float32 if dtype.category == FLOAT and dtype.itemsize < 4 else dtype


def corresponding_real_dtype(dtype: DType) -> DType:
    """The dtype of a complex dtype's parts."""
    return dtype.to_real()


def corresponding_complex_dtype(dtype: DType) -> DType:
    """The complex dtype of which this is the parts'."""
    return dtype.to_complex()


def dtype_to_type(dtype: DType) -> type:
    """Python's type for the elements of a dtype."""
    return (bool, int, float, complex)[min(dtype.category, 3)]


def type_to_dtype(typ: type) -> DType:
    """The dtype of tensors made of Python numbers of a type."""
    if typ in (bool, int):
        return bool_ if typ is bool else int64
    if typ in (float, complex):
        made = default_dtype()
        return made if typ is float else made.to_complex() or complex64
    raise ValueError(f"Invalid type {typ}: one of bool, int, float, complex has a dtype")


def number_type(x: Any) -> type:
    """Python's type of a number."""
    return int if isinstance(x, SymInt) else float if isinstance(x, SymFloat) else type(x)


def get_dtype(x: Any) -> DType:
    """The dtype of a tensor, or of tensors made of a number."""
    return x.dtype if isinstance(x, Tensor) else type_to_dtype(number_type(x))


def get_higher_dtype(a: Any, b: Any) -> DType | None:
    """The dtype that both may be promoted to; each a dtype, a tensor, a number or None."""
    kinds = [x if isinstance(x, DType) else get_dtype(x) for x in (a, b) if x is not None]
    return None if not kinds else kinds[0] if len(kinds) == 1 else promote_types(*kinds)


def elementwise_dtypes(*_args: Any, type_promotion_kind: ELEMENTWISE_TYPE_PROMOTION_KIND) -> tuple[DType, DType]:
    """(the dtype to compute in, that of the result) of an elementwise operator on tensors and numbers."""
    kinds, values = ELEMENTWISE_TYPE_PROMOTION_KIND, [a for a in _args if a is not None]
    if not values:
        raise ValueError("elementwise_dtypes() expects at least one tensor or number")
    found, default = result_type(*values), default_dtype()
    if type_promotion_kind is kinds.ALWAYS_BOOL:
        return get_computation_dtype(found), bool_
    if type_promotion_kind is kinds.INT_TO_FLOAT and found.category < FLOAT:
        found = default
    if type_promotion_kind is kinds.BOOL_TO_LONG and found is bool_:
        return int64, int64
    if type_promotion_kind is kinds.NO_OPMATH:
        return found, found
    wide = get_computation_dtype(found)
    return (wide, found.to_real()) if type_promotion_kind is kinds.COMPLEX_TO_FLOAT and found.category == COMPLEX else (wide, found)


def dtype_or_default(dtype: Any) -> DType:
    """The dtype, or the default one."""
    return default_dtype() if dtype is None else as_dtype(dtype, "dtype_or_default")


def device_or_default(where: Any) -> device:
    """The device, or the default one."""
    return OPERATORS["empty"](0).device if where is None else device(where)


# -- dimensions and shapes ---------------------------------------------------------------------------------------------------------
def canonicalize_dim(rank: int, idx: int, wrap_scalar: bool = True) -> int:
    """A dimension counted from the front. A tensor of none takes 0 and -1 if `wrap_scalar`."""
    size = max(rank, 1) if wrap_scalar else rank
    if not -size <= idx < size:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {idx})")
    return idx % size


def canonicalize_dims(rank: int, indices: Any, wrap_scalar: bool = True) -> Any:
    """`canonicalize_dim` of one or several."""
    if isinstance(indices, int):
        return canonicalize_dim(rank, indices, wrap_scalar)
    return tuple([canonicalize_dim(rank, i, wrap_scalar) for i in indices])


def reduction_dims(shape: Sequence, dims: Sequence | None) -> tuple[int, ...]:
    """The dimensions that a reduction goes over: all for None. RuntimeError where one is named twice."""
    if dims is None:
        return tuple(range(len(shape)))
    found: tuple[int, ...] = canonicalize_dims(len(shape), tuple(dims))
    if len(set(found)) != len(found):
        raise RuntimeError(f"duplicate value in the list of dims: {tuple(dims)}")
    return found


def compute_reduction_output_shape(shape: Sequence, dimensions: Sequence) -> tuple:
    """The shape without some dimensions."""
    return tuple([n for d, n in enumerate(shape) if d not in set(dimensions)])


def make_contiguous_strides_for(shape: Sequence, row_major: bool = True) -> tuple:
    """The strides of a tensor in rows; `row_major=False`: of matrices column by column."""
    strides = contiguous_strides(tuple(shape))
    if row_major or len(shape) < 2:
        return strides
    return (*strides[:-2], 1, max(shape[-2], 1))


def make_channels_last_2d_strides_for(shape: Sequence) -> tuple:
    """The strides of images whose channels lie innermost."""
    _, c, h, w = [max(size, 1) for size in shape]
    return (h * w * c, 1, w * c, c)


def is_contiguous_or_false(a: Tensor) -> bool:
    """Whether it lies in rows; False too where sizes do not tell."""
    return a.is_contiguous()


def is_contiguous(a: Tensor) -> bool:
    """Whether a tensor lies in rows."""
    return a.is_contiguous()


def is_same_shape(a: Sequence, b: Sequence) -> bool:
    """Whether two shapes are the same."""
    return tuple(a) == tuple(b)


same_shape = is_same_shape


def is_expandable_to(shape: Sequence, desired: Sequence) -> bool:
    """Whether a shape expands to another."""
    return len(shape) <= len(desired) and all(n in (m, 1) for n, m in zip(reversed(shape), reversed(desired)))


def infer_size(shape: Sequence, numel: int) -> tuple:
    """The shape with its -1 worked out."""
    known = math.prod(n for n in shape if n != -1)
    if -1 not in shape:
        if known != numel:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
        return tuple(shape)
    if not known or numel % known:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    return tuple([numel // known if n == -1 else n for n in shape])


def is_valid_permutation(rank: int, perm: Sequence) -> bool:
    """Whether it names each dimension once."""
    return sorted(perm) == list(range(rank))


def invert_perm(perm: Sequence) -> list[int]:
    """The permutation that undoes one."""
    return [list(perm).index(i) for i in range(len(perm))]


def apply_perm(inp: Sequence, perm: Sequence) -> list:
    """The values in another order."""
    return [inp[p] for p in perm]


def extract_shape_from_varargs(shape: Any, validate: bool = True) -> tuple:
    """A shape given as one sequence or as several numbers."""
    found = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else tuple(shape)
    if validate:
        validate_shape(found)
    return found


def extract_dims_from_varargs(dims: Any) -> tuple:
    """Dimensions given as one sequence or as several numbers."""
    return extract_shape_from_varargs(dims, validate=False)


def validate_shape(shape: Sequence) -> None:
    """RuntimeError for a negative size."""
    for size in shape:
        if size < 0:
            raise RuntimeError(f"Received an invalid dimension length {size} in shape {list(shape)}: sizes are not negative")


# -- checks ------------------------------------------------------------------------------------------------------------------------
def check(b: bool, s: Any, exc_type: type[Exception] = RuntimeError) -> None:
    """Raise `exc_type(s())` unless `b`."""
    if not b:
        raise exc_type(s())


def check_same_shape(*args: Any, allow_cpu_scalar_tensors: bool) -> None:
    """RuntimeError where tensors differ in shape (numbers, and CPU tensors of no dimension if allowed, are not asked)."""
    shapes = [tuple(a.shape) for a in args if isinstance(a, Tensor) and not (allow_cpu_scalar_tensors and is_cpu_scalar_tensor(a))]
    if len(set(shapes)) > 1:
        raise RuntimeError(f"Shapes {', '.join(str(list(s)) for s in shapes)} are not the same")


def check_same_device(*args: Any, allow_cpu_scalar_tensors: bool) -> None:
    """RuntimeError where tensors are on different devices."""
    found = {a.device for a in args if isinstance(a, Tensor) and not (allow_cpu_scalar_tensors and is_cpu_scalar_tensor(a))}
    if len(found) > 1:
        raise RuntimeError(f"Tensors are on different devices: {', '.join(sorted(map(str, found)))}")


def check_same_dtype(*args: Any) -> None:
    """RuntimeError where tensors differ in dtype."""
    found = {a.dtype for a in args if isinstance(a, Tensor)}
    if len(found) > 1:
        raise RuntimeError(f"Tensors are of different dtypes: {', '.join(sorted(map(str, found)))}")


def check_fp_or_complex(dtype: DType, fn_name: str, allow_low_precision_dtypes: bool = True) -> None:
    """RuntimeError for an integer dtype, and for float16 and bfloat16 unless allowed."""
    if not is_grad_dtype(dtype):
        raise RuntimeError(f"{fn_name}: Expected a floating point or complex tensor as input. Got {dtype}")
    if is_low_precision_dtype(dtype) and not allow_low_precision_dtypes:
        raise RuntimeError(f"{fn_name}: Half precision dtypes not supported. Got {dtype}")


def is_cpu_scalar_tensor(a: Any) -> bool:
    """Whether it is a tensor of no dimension on the CPU."""
    return isinstance(a, Tensor) and a.ndim == 0 and a.device.type == "cpu"


def suggest_memory_format(x: Tensor) -> Any:
    """The memory format that a tensor lies in."""
    for dims, memory in ((4, channels_last), (5, channels_last_3d)):
        if x.ndim == dims and x.is_contiguous(memory_format=memory) and not x.is_contiguous():
            return memory
    return contiguous_format


def _maybe_convert_to_dtype(a: Any, dtype: Any) -> Any:
    """A tensor, or several, with that dtype; numbers and None as they are."""
    if isinstance(a, Tensor):
        return a.to(dtype)
    return type(a)(_maybe_convert_to_dtype(x, dtype) for x in a) if isinstance(a, (list, tuple)) else a


__path__: list[str] = []  # torch's is a package; what it keeps there is in `_homes`
