"""The static types of TorchScript's operators: which overload takes arguments of given types, and what it gives.

`VALUES` has the signatures of operators on numbers, texts, lists and dicts, in the notation of `aten_schemas.txt`, with t, K and V for any
type; those of tensors are read from that file, which leaves out what they give: `result_of` tells.
"""

from __future__ import annotations

import inspect
import re
from functools import cache

from ..core.schema import FunctionSchema
from . import return_types
from .aten_schemas import behind, schemas

_NUMBERS_TO_FLOAT = "exp log log2 log10 log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt gamma lgamma erf " \
                    "erfc degrees radians fabs"
_TESTS = "isdigit isalpha isalnum isspace istitle isupper islower isidentifier isnumeric isdecimal isprintable"
_CHANGED = "upper lower title capitalize swapcase"

_TEXT = """
    strip lstrip rstrip(str self, str chars=" ") -> str
    startswith(str self, str substr, int start=0, int end=-1) -> bool
    endswith(str self, str substr, int start=0, int end=-1) -> bool
    find rfind rindex count(str self, str substr, int start=0, int end=-1) -> int
    index(str self, str substr, int start=0, int end=-1) -> int
    replace(str self, str old, str new, int max=-1) -> str
    split rsplit(str self, str? separator=None, int max=-1) -> str[]
    splitlines(str self, bool keepends=False) -> str[]
    partition rpartition(str self, str separator) -> (str,str,str)
    center ljust rjust(str self, int width, str fillchar=" ") -> str
    zfill(str self, int width) -> str
    expandtabs(str self, int tabsize=8) -> str
    join(str self, str[] values) -> str
    append(t[] self, t el) -> t[]
    extend(t[] self, t[] other) -> None
    insert(t[] self, int idx, t el) -> None
    clear reverse(t[] self) -> None
    copy(t[] self) -> t[]
    sort(t[] self, bool reverse=False) -> None
    pop(t[] self, int idx=-1) -> t
    remove(t[] self, t el) -> None
    index count(t[] self, t el) -> int
    clear(Dict(K, V) self) -> None
    copy(Dict(K, V) self) -> Dict(K, V)
    keys(Dict(K, V) self) -> K[]
    values(Dict(K, V) self) -> V[]
    items(Dict(K, V) self) -> (K,V)[]
    get(Dict(K, V) self, K key) -> V?
    get(Dict(K, V) self, K key, V default_value) -> V
    setdefault(Dict(K, V) self, K key, V default_value) -> V
    pop(Dict(K, V) self, K key) -> V
    pop(Dict(K, V) self, K key, V default_value) -> V
    popitem(Dict(K, V) self) -> (K,V)
    update(Dict(K, V) self, Dict(K, V) to_add) -> None
    dict(Dict(K, V) self) -> Dict(K, V)
    _set_item(Dict(K, V) self, K key, V value) -> None
    _set_item(t[] self, int idx, t el) -> t[]
    Delete(Dict(K, V) self, K key) -> None
    Delete(t[] self, int idx) -> None
    __getitem__(t[] self, int idx) -> t
    __getitem__(Dict(K, V) self, K key) -> V
    __getitem__(str self, int idx) -> str
    __contains__(Dict(K, V) self, K key) -> bool
    __contains__(t[] self, t el) -> bool
    __contains__(str self, str el) -> bool
    slice(t[] self, int? start=None, int? end=None, int step=1) -> t[]
    slice(str self, int? start=None, int? end=None, int step=1) -> str
    len(t[] self) -> int
    len(str self) -> int
    len(Dict(K, V) self) -> int
    len(Tensor self) -> int
    list(t[] self) -> t[]
    list(str self) -> str[]
    list(Tensor self) -> Tensor[]
    add(t[] self, t[] other) -> t[]
    add(str self, str other) -> str
    mul(t[] self, int count) -> t[]
    mul(int count, t[] self) -> t[]
    eq ne(t[] self, t[] other) -> bool
    eq ne(str self, str other) -> bool
    eq ne(bool self, bool other) -> bool
    eq ne(Device self, Device other) -> bool
    eq ne(Dict(K, V) self, Dict(K, V) other) -> bool
    eq ne lt le gt ge(int a, int b) -> bool
    eq ne lt le gt ge(number a, number b) -> bool
    lt le gt ge(str a, str b) -> bool
    __and__ __or__ __xor__(bool a, bool b) -> bool
    __and__ __or__ __xor__ __lshift__ __rshift__(int a, int b) -> int
    __and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ixor__(Tensor self, Tensor other) -> Tensor
    __and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ixor__(Tensor self, Scalar other) -> Tensor
    any all(bool[] self) -> bool
    any all(int[] self) -> bool
    any all(float[] self) -> bool
    sum(int[] self) -> int
    sum(bool[] self) -> int
    sum(float[] self) -> float
    sorted(t[] self) -> t[]
    ord(str string) -> int
    chr(int i) -> str
    hex oct bin(int i) -> str
    floor ceil(float a) -> int
    floor ceil(int a) -> int
    round(float a) -> float
    round(int a) -> float
    trunc(float a) -> int
    abs neg(int a) -> int
    abs neg(float a) -> float
    neg(complex a) -> complex
    neg(number a) -> number
    divmod(int a, int b) -> (int,int)
    divmod(float a, float b) -> (float,float)
    isnan isinf isfinite(float a) -> bool
    copysign atan2 fmod(number a, number b) -> float
    mathremainder(number a, number b) -> float
    hypot(number a, number b) -> float
    modf(float a) -> (float,float)
    frexp(float a) -> (float,int)
    ldexp(float a, int i) -> float
    gcd(int a, int b) -> int
    factorial(int a) -> int
    log(number a, number b) -> float
    hash(t value) -> int
    size(Tensor self) -> int[]
    size(Tensor self, int dim) -> int
    stride(Tensor self) -> int[]
    stride(Tensor self, int dim) -> int
    dim numel storage_offset element_size get_device sparse_dim dense_dim(Tensor self) -> int
    is_floating_point is_complex is_signed is_contiguous is_pinned is_conj is_neg is_inference is_coalesced is_leaf(Tensor self) -> bool
    is_contiguous(Tensor self, MemoryFormat memory_format) -> bool
    is_set_to(Tensor self, Tensor tensor) -> bool
    item(Tensor self) -> Scalar
    type_as(Tensor self, Tensor other) -> Tensor
    requires_grad_(Tensor self, bool requires_grad=True) -> Tensor
    detach_ coalesce indices cpu to_dense(Tensor self) -> Tensor
    retain_grad(Tensor self) -> None
    squeeze_(Tensor self) -> Tensor
    squeeze_ unsqueeze_(Tensor self, int dim) -> Tensor
    transpose_(Tensor self, int dim0, int dim1) -> Tensor
    t_(Tensor self) -> Tensor
    resize_(Tensor self, int[] size) -> Tensor
    resize_as_(Tensor self, Tensor the_template) -> Tensor
    sum_to_size(Tensor self, int[] size) -> Tensor
    backward(Tensor self, Tensor? gradient=None, bool? retain_graph=None, bool create_graph=False) -> None
    cuda(Tensor self) -> Tensor
    __contains__(Tensor self, Scalar el) -> bool
    _unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor,Tensor,Tensor)
    unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor,Tensor,Tensor)
    unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor,Tensor,Tensor)
    _pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first) -> (Tensor,Tensor)
    _pad_packed_sequence(Tensor data, Tensor batch_sizes, bool batch_first, Scalar padding_value, int total_length) -> (Tensor,Tensor)
    tensor(t data, *, ScalarType? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor
    to(Tensor self, Device? device, ScalarType? dtype=None, bool non_blocking=False, bool copy=False) -> Tensor
    to(Tensor self, ScalarType? dtype=None, bool non_blocking=False, bool copy=False) -> Tensor
    as_tensor(t[] data, *, ScalarType? dtype=None, Device? device=None) -> Tensor
    is_grad_enabled is_autocast_enabled is_autocast_cpu_enabled() -> bool
    set_grad_enabled(bool val) -> None
    manual_seed(int seed) -> None
    warn(str message, int stacklevel=2) -> None
    rrelu(Tensor self, float lower=0.125, float upper=0.3333333333333333, bool training=False) -> Tensor
    device(str a) -> Device
    Size(int[] sizes) -> int[]
    device(str a, int index) -> Device
    wait(Future(t) self) -> t
    numpy_T mT mH matrix_H(Tensor self) -> Tensor
    values crow_indices col_indices ccol_indices row_indices _values _indices(Tensor self) -> Tensor
    _nnz(Tensor self) -> int
    to_sparse to_sparse_csr to_sparse_csc(Tensor self, *, int? dense_dim=None) -> Tensor
    to_sparse(Tensor self, int sparse_dim) -> Tensor
    to_sparse_bsr to_sparse_bsc(Tensor self, int[2] blocksize, int? dense_dim=None) -> Tensor
    sparse_mask(Tensor self, Tensor mask) -> Tensor
    pin_memory(Tensor self, Device? device=None) -> Tensor
"""

_BAGS = "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, " \
        "Tensor? per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None) -> (Tensor,Tensor,Tensor,Tensor)"
_GRADS = "grad(Tensor[] outputs, Tensor[] inputs, Tensor?[]? grad_outputs=None, bool? retain_graph=None, bool create_graph=False, " \
         "bool allow_unused=False) -> Tensor?[]"
_SPARSE = [f"sparse_{kind}_tensor({parts}, Tensor values, {size}*, ScalarType? dtype=None, Device? device=None, "
           "bool? requires_grad=False) -> Tensor"
           for kind, parts in (("coo", "Tensor indices"), ("csr", "Tensor crow_indices, Tensor col_indices"),
                               ("csc", "Tensor ccol_indices, Tensor row_indices")) for size in ("", "int[] size, ")]
_SEVERAL = {"std_mean": 2, "var_mean": 2, "lstm": 3, "gru": 2, "rnn_tanh": 2, "rnn_relu": 2, "lstm_cell": 2, "embedding_bag": 4,
            **{f"{kind}_max_pool{n}d": 2 for kind in ("adaptive", "fractional") for n in (1, 2, 3)}, "max_pool1d_with_indices": 2,
            "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 2, "_native_batch_norm_legit": 3, "histogramdd": 2}
_LINE = re.compile(r"([\w\s]+)\((.*)\) -> (.*)")
_ONE_WITHOUT_DIM = frozenset(("max", "min", "median", "nanmedian"))


@cache
def values() -> dict[str, list[FunctionSchema]]:
    """The signatures of operators on what is no tensor, and on tensors where ATen's table has none."""
    found: dict[str, list[FunctionSchema]] = {}
    lines = [*_TEXT.strip().splitlines(), *(f"{_TESTS}(str self) -> bool",), f"{_CHANGED}(str self) -> str",
             _BAGS, *_SPARSE, _GRADS, f"{_NUMBERS_TO_FLOAT}(int a) -> float", f"{_NUMBERS_TO_FLOAT}(float a) -> float",
             f"{_NUMBERS_TO_FLOAT}(complex a) -> complex"]
    for line in lines:
        names, arguments, result = _LINE.fullmatch(line.strip()).groups()       # type: ignore[union-attr]
        for name in names.split():
            found.setdefault(name, []).append(FunctionSchema(f"aten::{name}", "", arguments, result))
    return found


def known(name: str) -> list[FunctionSchema]:
    """All signatures of an operator, those of values first."""
    return [*values().get(name, ()), *schemas().get(name, ())]


def fields_of(schema: FunctionSchema) -> tuple[str, ...]:
    """The names of what an overload gives, where torch names them."""
    names = return_types._FIELDS.get(schema.operator, "").split()
    one = schema.operator in _ONE_WITHOUT_DIM and not any(a.name == "dim" for a in schema.arguments)
    return () if one else tuple(names)


@cache
def result_of(schema: FunctionSchema) -> str:
    """What an overload gives, in the notation of signatures."""
    if schema.result:
        kinds = [r.kind for r in schema.returns]
        return kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)})" if kinds else "None"
    if schema.operator == "where" and len(schema.arguments) == 1:
        return "Tensor[]"
    count = len(fields_of(schema)) or _SEVERAL.get(schema.operator, 0)
    if count:
        return f"({','.join(['Tensor'] * count)})"
    fn = behind(schema.operator)
    told = str(inspect.signature(fn).return_annotation) if fn is not None else "Tensor"
    listed = re.fullmatch(r"list\[Tensor\]|tuple\[Tensor, \.\.\.\]", told)
    if listed:
        return "Tensor[]"
    if told.startswith("tuple["):
        return f"({','.join(['Tensor'] * (told.count(',') + 1))})"
    return told if told in ("bool", "int", "float") else "Tensor"
