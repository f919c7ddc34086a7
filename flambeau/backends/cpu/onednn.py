"""oneDNN operations for compiled graphs: described once, then run by an integer handle with pointers only.

    op = matmul(operand(x), operand(w.T), operand(out), bias=operand(b), post=[PostOp("gelu_erf")])
    run(op, x, w.T, out, b)

Generated C++ runs the same handles: it finds `onednn_run(op, pointers)` through `runtime->find` (csrc/onednn_ops.h). The order of
the arrays is that of the parameters below, then the tensors of the post-ops. `available()` tells whether the library is here.
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ... import _C
from ...core.dtypes import DTYPES as _DTYPES
from ...core.settings import READ
from ...core.windows import ROLES, W, X, Y

BFLOAT16 = _DTYPES["bfloat16"].numpy if "bfloat16" in _DTYPES else np.dtype("V2")  # which no tensor has
DTYPES: dict[np.dtype, int] = {np.dtype(np.float16): 1, BFLOAT16: 2, np.dtype(np.float32): 3}
LAYOUTS = {"given": 0, "free": 1, "constant": 2}
KINDS = {"matmul": 0, **{name: number for number, name in enumerate(ROLES, 1)}}


@dataclass(frozen=True)
class Operand:
    """An array's dtype, shape and strides (in elements). `layout`: "given" strides, or "free", where oneDNN picks its own and
    reorders from or to the strides in each run; "constant" is free for an input that never changes, which is reordered once."""

    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    layout: str = "given"

    def words(self) -> tuple[int, ...]:
        return (DTYPES[self.dtype], LAYOUTS[self.layout], len(self.shape), *self.shape, *self.strides)


@dataclass(frozen=True)
class PostOp:
    """What to do to the result before it is stored: one of POSTS (core/scalar.py), some with `operand`, which broadcasts to the result."""

    kind: str
    alpha: float = 0.0
    beta: float = 0.0
    operand: Operand | None = None

    def words(self) -> tuple[int, ...]:
        tensor = () if self.operand is None else self.operand.words()
        return (_C.onednn_post_ops[self.kind], float_bits(self.alpha), float_bits(self.beta), self.operand is not None, *tensor)


def operand(array: np.ndarray, layout: str = "given") -> Operand:
    """The description of `array`."""
    return Operand(array.dtype, array.shape, tuple(s // array.itemsize for s in array.strides), layout)


USUAL_PATH = Path(sys.prefix, "lib", "libdnnl.so.3")  # where pip puts the library of `onednn-cpu-gomp`


@functools.cache
def library_path() -> str | None:
    """Where the wheel `onednn-cpu-gomp` put the library, or None."""
    if USUAL_PATH.exists():
        return str(USUAL_PATH)
    try:
        files = metadata.files("onednn-cpu-gomp") or []
    except metadata.PackageNotFoundError:
        return None
    return next((str(f.locate()) for f in files if f.name == USUAL_PATH.name), None)


if (_path := library_path()) is not None:
    _C.onednn_set_path(_path)  # not opened before somebody needs it


@functools.cache
def available() -> bool:
    """Loads oneDNN at the first call. False where its wheel is missing (then NumPy does the work) or cannot be loaded."""
    path = library_path()
    if path is None:
        return False
    try:
        _C.onednn_load(path)
    except RuntimeError:
        return False
    return True


def matmul_words(a: Operand, b: Operand, out: Operand, bias: Operand | None = None, post: Iterable[PostOp] = ()) -> tuple[int, ...]:
    """The description of a matmul as words, for `onednn_create` in generated code (sizes and strides may be exchanged in it)."""
    return _words("matmul", (a, b, out), bias, (), 1, post)


def matmul(a: Operand, b: Operand, out: Operand, bias: Operand | None = None, post: Iterable[PostOp] = ()) -> int:
    """out = post(a @ b + bias) with a (..., m, k), b (..., k, n), out (..., m, n); batch axes broadcast (also by stride 0), `bias`
    broadcasts to `out`. dtypes f32, bf16, f16 (accumulated in f32); a bf16 or f16 product may be stored as f32.

    Raises NotImplementedError where oneDNN has no fast kernel.
    """
    return _create(matmul_words(a, b, out, bias, post))


def conv_words(kind: str, operands: Sequence[Operand], bias: Operand | None = None, *, stride: Sequence[int],
               padding: Sequence[int], dilation: Sequence[int], groups: int = 1, post: Iterable[PostOp] = ()) -> tuple[int, ...]:
    """As matmul_words, for "convolution" (x, w, out), "convolution_input_grad" (g, w, out) or "convolution_weight_grad" (x, g, out)."""
    x, w, y = (operands[i] for i in ORDER[kind])
    ends = end_padding(x.shape[2:], y.shape[2:], w.shape[2:], stride, padding, dilation)
    return _words(kind, operands, bias, tuple(zip(stride, dilation, padding, ends)), groups, post)


# Which of x, w and y a kind's operands are, in the order that csrc/onednn_ops.h has them in; read backwards it is the same.
ORDER = {**ROLES, "convolution_weight_grad": (X, Y, W)}


def conv(kind: str, operands: Sequence[Operand], bias: Operand | None = None, **options: Any) -> int:
    """"convolution": out (n, o, ...) = post(x (n, c, ...) convolved with w (o, c / groups, ...) + bias (o,)), 1 to 3 spatial axes.
    "convolution_input_grad": its gradient by x, also the transposed convolution. "convolution_weight_grad": by w, and by the bias into `bias`.

    Fast layouts: x and out channels-last (strides of an NHWC array) with w "free". `options` are those of `conv_words`.
    Raises as `matmul`.
    """
    return _create(conv_words(kind, operands, bias, **options))


def split_products(number: int) -> int:
    """How f32 products are made where the processor has bf16 tiles: of 6 products of bf16 parts (the accuracy of f32), 3 or 1;
    with 0 by oneDNN in f32. Returns the number before; always 0 on other processors, where nothing changes."""
    return _C.onednn_split_products(number)


def split_products_set() -> int:
    """What split_products set, without changing it."""
    return _C.onednn_split_products_set()


READ["split products"] = split_products_set


def implementation(op: int) -> str:
    """oneDNN's name of the kernel it chose."""
    return _C.onednn_implementation(op)


def splits(op: int) -> bool:
    """Whether `op` is one of Flambeau's own products, whose post-ops are exact on every number (oneDNN's: POSTS in core/scalar.py)."""
    return implementation(op) == "amx:split_f32"


def run(op: int, *arrays: np.ndarray) -> None:
    """Runs `op`. Raises ValueError for arrays that are not as described."""
    _C.onednn_run(op, *arrays)


def float_bits(value: float) -> int:
    """The bits of a number in float32."""
    return struct.unpack("<I", struct.pack("<f", value))[0]


def _words(kind: str, operands: Sequence[Operand], bias: Operand | None, windows: Sequence[tuple[int, int, int, int]], groups: int,
           post: Iterable[PostOp]) -> tuple[int, ...]:
    operands = (*operands, bias) if bias is not None else operands
    post = tuple(post)
    words = [KINDS[kind], groups, len(operands), *(word for o in operands for word in o.words())]
    words += [len(windows), *(word for window in windows for word in window)]
    return (*words, len(post), *(word for p in post for word in p.words()))


def _create(words: tuple[int, ...]) -> int:
    if not available():
        raise NotImplementedError("oneDNN is not installed: pip install onednn-cpu-gomp, or compute with NumPy")
    op = _C.onednn_create(words)
    if implementation(op).startswith("ref"):
        raise NotImplementedError("oneDNN has only its slow reference loops for these dtypes, strides and post-ops: copy the "
                                  "operands to contiguous arrays, or leave post-ops out")
    return op


def end_padding(sizes: Sequence[int], out_sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
                padding: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Padding at the end that makes the windows fit exactly: below `padding` where a rest is not looked at."""
    return tuple((o - 1) * s + d * (k - 1) + 1 - n - p for n, o, k, s, p, d in zip(sizes, out_sizes, kernel, stride, padding, dilation))
