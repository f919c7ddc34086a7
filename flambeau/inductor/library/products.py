"""Matrix products: by oneDNN on a CPU, by cuBLAS on a GPU; operands may be strided, also where a batch dimension stands for two of the
memory's. `grouped_mm` is a product for each group of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flambeau.backends.cpu import onednn
from flambeau.backends.cpu.blas import is_long
from flambeau.backends.cuda.layouts import layout
from flambeau.core.dtypes import bfloat16, dtype, float16, float32
from flambeau.core.expr import Index, free_variables, to_cpp, var
from flambeau.core.size import contiguous_strides
from flambeau.inductor import call as calls
from flambeau.inductor.library.cpp import MEMORY_TYPES
from flambeau.inductor.library.onednn import REFUSED, call, ends_of, is_exact, is_slow, made, operand
from flambeau.inductor.library.record import LibraryCall, Pointer
from flambeau.inductor.loop.boxes import Box, Place, Slot, boxes_in, index_of, origin_of
from flambeau.inductor.loop.ir import Extern, Program, View
from flambeau.inductor.loop.views import is_matrix, split_batch, with_one_matrix
from flambeau.ops import prims

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering

PADDED_FROM = 1 << 20   # elements of a matrix whose rows are worth aligning
BY_ADDRESS = ("float32", "float64", "float16", "bfloat16")


# -- lowering ------------------------------------------------------------------------------------------------
def _for_cpu(lowering: Lowering, node: Any, prim: Any, args: list) -> Box | None:
    """oneDNN's call, if it has a fast one."""
    val = node.meta["val"]
    if val.dtype not in (float32, bfloat16, float16) or not onednn.available():
        return None
    rows, columns = args[0].shape[-2:], args[1].shape[-1]
    if is_long(rows[0], lowering.program.hint(rows[1]), columns, val.dtype.numpy):
        return None
    out = lowering.new_buffer(val.dtype, index_of(tuple(val._layout.shape)), index_of(tuple(val._layout.strides)))
    for step in _ways(lowering, node, args, out):
        if all(map(is_matrix, step.inputs)) and _is_fast(step):
            break
    else:
        step.op = "eager"
        lowering.fallbacks.append(node.target.name)
    return lowering.product(node, step, out)


def _for_gpu(lowering: Lowering, node: Any, prim: Any, args: list) -> Box | None:
    """cuBLAS's call."""
    val = node.meta["val"]
    if not lowering.loops(val, args):
        return None
    shape, strides = index_of(tuple(val._layout.shape)), index_of(tuple(val._layout.strides))
    out = lowering.new_buffer(val.dtype, shape, strides if lowering.is_exact(node) else aligned_strides(shape, strides, val.dtype))
    return lowering.product(node, next(_ways(lowering, node, args, out)), out)


def aligned_strides(shape: Sequence[Index], strides: Sequence[Index], kind: dtype) -> tuple[Index, ...]:
    """Rows padded to 16 bytes where a large matrix's are not: the tensor cores' fast kernels need them so."""
    words = 16 // kind.itemsize
    if len(shape) < 2 or not all(isinstance(n, int) for n in shape) or tuple(strides) != tuple(contiguous_strides(shape)):
        return tuple(strides)
    sizes = [int(n) for n in shape]  # type: ignore[arg-type]
    if kind.itemsize > 2 or sizes[-1] % words == 0 or math.prod(sizes) < PADDED_FROM:
        return tuple(strides)
    return tuple(contiguous_strides((*shape[:-1], -(-shape[-1] // words) * words)))


def _ways(lowering: Lowering, node: Any, args: list[Box], out: View) -> Iterator[Extern]:
    """The calls that make a product, the best first; the last takes operands in row-major order."""
    views, split = _operands(lowering, args)
    if not split and (rows := with_one_matrix(views[0], views[1], out)) is not None:
        yield Extern("mm", rows[:2], rows[2:], prims.mm, (Slot(0), Slot(1)), (origin_of(node),))
    yield _as_asked(node, tuple(views), split_batch(out, split) if split else out)
    yield _as_asked(node, tuple([lowering.contiguous(a) for a in args]), out)


def _as_asked(node: Any, views: tuple[View, ...], out: View) -> Extern:
    return Extern(node.target.name, views, (out,), node.target, (Slot(0), Slot(1)), (origin_of(node),))


def _operands(lowering: Lowering, args: list[Box]) -> tuple[list[View], int]:
    """The operands where they lie, and the size of the second of two batch dimensions if they have these."""
    places = [lowering.where_copied(a) or Place(a.realize()) for a in args]
    split = next((p.split for p in places if p.split), 0)
    if any(p.split not in (0, split) for p in places):
        return [a.realize() for a in args], 0
    return [p.view if p.split == split else split_batch(p.view, split) for p in places], split


# -- calls ---------------------------------------------------------------------------------------------------
def _described(step: Extern) -> tuple[tuple, list[View]]:
    """oneDNN's description of a product, and its tensors in oneDNN's order."""
    a, b, *rest = step.inputs
    out = step.outputs[0]
    bias, posts, read = ends_of(step, rest, -1)
    words = onednn.matmul_words(operand(a), operand(b), operand(out), operand(bias) if bias else None, posts)
    return words, [a, b, out, *([bias] if bias else []), *read]


def _cpp(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    words, views = _described(step)
    return call(words, views, pointer, step.outputs[0])


def _is_fast(step: Extern) -> bool:
    if is_slow(step):
        return False
    words, _ = _described(step)
    try:
        op = made(words)
    except (*REFUSED, ZeroDivisionError):       # the last: no such sizes, n // (m // 512) of these
        return False
    return is_exact(step) or (not any(map(free_variables, words)) and onednn.splits(op))


def _cuda(calling: Any, k: int, step: Extern) -> calls.Step:
    """By addresses where cuBLAS takes the layouts and all sizes are known, else through arrays; cuBLASLt's where it ends in a bias."""
    views = (*step.inputs, *step.outputs)
    a, b, *bias, out = views
    sizes = [n for v in views for n in (*v.shape, *v.strides, v.offset)]
    layouts = [layout(v.shape, v.strides) for v in (a, b, out)] if all(isinstance(n, int) for n in sizes) else [None]  # type: ignore
    if step.activation is not None:
        facts: tuple = (out.dtype.name, *out.shape, a.shape[1], *layouts, step.activation)
        return calls.ByAddress(f"e{k}", "blaslt", facts, calls.places((a, b, out, *bias)))
    known = a.dtype.name in BY_ADDRESS and 0 not in (*out.shape, a.shape[-1])
    if not known or None in layouts or not layouts[2].rows:      # type: ignore[union-attr]
        return calls.ByArrays("product", tuple(map(calling.look, views)))
    return calls.ByAddress(f"g{k}", "blas", (a.dtype.numpy, out.shape, a.shape[-1], *layouts), calls.places(views))


def _wrongs(step: Extern) -> Iterator[str]:
    """Products take strided matrices, of which one dimension is contiguous, and write such a one, in one type."""
    for view in (*step.inputs[:2], *step.outputs):
        if view.dtype is not step.outputs[0].dtype:
            yield f"{view.buffer} is {view.dtype.name}, the result {step.outputs[0].dtype.name}"
        near = [s for s, n in zip(view.strides[-2:], view.shape[-2:]) if s == 1 or n == 1]
        if not near:
            yield f"neither rows nor columns of {view.buffer} are contiguous: strides {list(view.strides)}"


PRODUCT = LibraryCall({"cpu": _for_cpu, "cuda": _for_gpu}, _cpp, _cuda, _wrongs, _is_fast)


# -- groups of rows ------------------------------------------------------------------------------------------
def _groups_for_cpu(lowering: Lowering, node: Any, prim: Any, args: list) -> Any:
    boxes = boxes_in(args)
    if boxes[0].dtype is not float32 or [len(box.shape) for box in boxes] != [2, 3, 1] or not onednn.available():
        return None
    return lowering.call(node, prim.name, args, tuple(map(lowering.contiguous, boxes)), contiguous=True)


def _groups_cpp(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    """Products of groups of rows, each with a matrix of its own; what lies behind the last group is zero."""
    a, b, ends = step.inputs
    out, rows = step.outputs[0], var("rows")
    of_group = [a._replace(shape=(rows, a.shape[1])), b._replace(shape=b.shape[1:], strides=b.strides[1:]),
                out._replace(shape=(rows, out.shape[1]))]
    left, right, result = map(operand, of_group)
    words = onednn.matmul_words(left, right, result, None, [])
    memory = MEMORY_TYPES[a.dtype.name]
    names = [f"({memory}*){pointer(v.buffer, v.offset)}" for v in (a, b, out)]
    places = iter(f"{name} + {at} * {to_cpp(v.strides[0])}" for name, at, v in zip(names, ("start", "group", "start"), (a, b, out)))
    count = to_cpp(a.shape[0])
    return ["{", f"    const int32_t* const ends = (const int32_t*){pointer(ends.buffer, ends.offset)};", "    int64_t start = 0;",
            f"    for (int64_t group = 0; group < {to_cpp(b.shape[0])}; group++) {{",
            "        const int64_t rows = ends[group] - start;",
            f"        if (rows < 0 || ends[group] > {count})",
            '            return rt->fail(rt, "offs must not decrease, nor end behind the %lld that there are; got %lld after %lld", '
            f"(long long){count}, (long long)ends[group], (long long)start);",
            "        if (rows > 0)", *(f"        {line}" for line in call(words, of_group, lambda *_: next(places), of_group[2])),
            "        start = ends[group];", "    }",
            f"    __builtin_memset({names[2]} + start * {to_cpp(out.strides[0])}, 0, sizeof({memory}) * ({count} - start) * "
            f"{to_cpp(out.shape[1])});", "}"]


GROUPED = LibraryCall({"cpu": _groups_for_cpu}, _groups_cpp)
