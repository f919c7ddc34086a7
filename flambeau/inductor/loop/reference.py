"""The loop IR executed with NumPy: its definition, the oracle of the code generators, and the path taken without g++."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flambeau.core.dtypes import dtype, dtype_of_numpy
from flambeau.core.expr import evaluate
from flambeau.core.scalar import FOLDS, NUMPY
from flambeau.core.symbolic import SymFloat
from flambeau.inductor.loop.ir import SCATTERS, Access, Compute, Extern, Loop, Program, Value, View, computed_names, walk

ExternKernel = Callable[..., Any]


def run(program: Program, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int],
        externs: Mapping[str, ExternKernel]) -> dict[str, np.ndarray]:
    """Execute `program`: `arrays` are the flat input buffers by name; returns all buffers, flat, by name.

    `externs[op](step, views, sizes)` gets the input views as NumPy arrays and returns the outputs' arrays.
    """
    storage = dict(arrays)
    for buffer in program.buffers.values():
        if buffer.name not in storage:
            storage[buffer.name] = np.empty(evaluate(buffer.numel, sizes), buffer.dtype.numpy)
    with np.errstate(all="ignore"):
        for step in program.steps:
            if isinstance(step, Extern):
                run_extern(step, storage, sizes, externs)
            else:
                run_compute(step, storage, sizes)
    return storage


def view_array(view: View, storage: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> np.ndarray:
    """The strided NumPy array a view denotes."""
    flat = storage[view.buffer]
    shape = [evaluate(n, sizes) for n in view.shape]
    strides = [evaluate(s, sizes) * flat.itemsize for s in view.strides]
    if 0 in shape:
        return np.empty(shape, flat.dtype)
    return np.lib.stride_tricks.as_strided(flat[evaluate(view.offset, sizes):], shape, strides)


def run_extern(step: Extern, storage: Mapping[str, np.ndarray], sizes: Mapping[str, int], externs: Mapping[str, ExternKernel]) -> None:
    """Execute one library call."""
    results = externs[step.op](step, [view_array(v, storage, sizes) for v in step.inputs], sizes)
    for view, result in zip(step.outputs, results, strict=True):
        view_array(view, storage, sizes)[...] = result


def _grid(loops: Sequence[Loop], sizes: Mapping[str, int]) -> tuple[dict[str, Any], list[int]]:
    """Open index arrays for nested loops, and their lengths."""
    lengths = [int(evaluate(size, sizes)) for _, size in loops]
    values: dict[str, Any] = dict(sizes)
    for axis, ((name, _), length) in enumerate(zip(loops, lengths, strict=True)):
        values[name] = np.arange(length).reshape([-1 if a == axis else 1 for a in range(len(loops))])
    return values, lengths


def run_compute(step: Compute, storage: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> None:
    """Execute one loop nest."""
    loops = step.loops + step.reduce_loops
    values, lengths = _grid(loops, sizes)
    roots = [step.body, *step.index_values.values(), *([step.mask] if step.mask is not None else [])]
    got = evaluate_values(roots, values, storage, sizes)
    body = np.broadcast_to(got[step.body.uid], lengths)
    target = storage[step.buffer]
    if step.kind in SCATTERS:
        names = values | {name: got[v.uid] for name, v in step.index_values.items()}
        where = np.broadcast_to(evaluate(step.index, names), lengths)
        keep = np.broadcast_to(True if step.mask is None else got[step.mask.uid], lengths)
        positions, body = where[keep], body[keep].astype(target.dtype)
        if (fold := SCATTERS[step.kind]) is None:
            target[positions] = body
        else:
            fold.ufunc.at(target, positions, body)
        return
    if step.kind != "pointwise":
        body = reduce(step.kind, body, len(step.loops))
    outer = lengths[: len(step.loops)]
    position = evaluate(step.index, {k: _drop(v, len(step.loops)) for k, v in values.items()})
    target[np.broadcast_to(position, outer)] = body.astype(target.dtype, copy=False)


def _drop(value: Any, dims: int) -> Any:
    return value.reshape(value.shape[:dims]) if (isinstance(value, np.ndarray) and value.size == 1) or (
        isinstance(value, np.ndarray) and value.ndim > dims and all(n == 1 for n in value.shape[dims:])) else value


def reduce(kind: str, body: np.ndarray, outer: int) -> np.ndarray:
    """Fold `body` over its axes from `outer` on."""
    flat, fold, elements = body.reshape(*body.shape[:outer], -1), FOLDS[kind], dtype_of_numpy(body.dtype)
    if flat.shape[-1] == 0:
        return np.full(flat.shape[:-1], fold.nothing(elements), body.dtype)
    return fold.ufunc.reduce(flat, axis=-1, dtype=fold.total(elements).numpy).astype(body.dtype, copy=False)


def evaluate_values(roots: Sequence[Value], names: Mapping[str, Any], storage: Mapping[str, np.ndarray],
                    sizes: Mapping[str, int]) -> dict[int, Any]:
    """The arrays that `roots` and everything below them stand for, by uid."""
    got: dict[int, Any] = {}
    for v in walk(roots):
        args = [got[a.uid] for a in v.args]
        if v.op == "load":
            got[v.uid] = _load(v.attr, args, names, storage, v.dtype)
        elif v.op == "constant":
            got[v.uid] = NUMPY.constant(v.attr.value(sizes) if isinstance(v.attr, SymFloat) else v.attr, v.dtype)
        elif v.op == "index":
            given = dict(zip(computed_names(v.attr), args, strict=True))
            got[v.uid] = NUMPY.to_dtype(evaluate(v.attr, {**names, **given}), v.dtype)
        elif v.op == "checked":
            got[v.uid] = _checked(args[0], args[1], int(evaluate(v.attr, sizes)))
        elif v.op == "round_to":
            got[v.uid] = NUMPY.to_dtype(NUMPY.to_dtype(args[0], v.attr), v.dtype)
        elif v.op in ("to_dtype", "bitcast"):
            got[v.uid] = getattr(NUMPY, v.op)(*args, v.dtype)
        else:
            got[v.uid] = getattr(NUMPY, v.op)(*args)
    return got


def _checked(index: Any, given: Any, size: int) -> Any:
    bad = np.asarray(given)[(np.asarray(index) < 0) | (np.asarray(index) >= size)]
    if bad.size:
        raise IndexError(OUT_OF_BOUNDS % (bad.flat[0], size))
    return index


OUT_OF_BOUNDS = "index %d is out of bounds for dimension with size %d"


def _load(access: Access, args: list[Any], names: Mapping[str, Any], storage: Mapping[str, np.ndarray], kind: dtype) -> Any:
    flat = storage[access.buffer]
    given = dict(zip(access.names, args, strict=False))
    position: Any = evaluate(access.index, {**names, **given})
    if not access.masked:
        return flat[position].astype(kind.numpy, copy=False)
    mask = np.asarray(args[-1])
    shape = np.broadcast_shapes(mask.shape, np.shape(position))
    safe = np.where(mask, position, 0)
    if not flat.size:
        return np.zeros(shape, kind.numpy)
    return np.where(mask, flat[safe], 0).astype(kind.numpy, copy=False)
