"""Library calls in generated code: matrix products and convolutions through oneDNN, by handles made at the first call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau.backends.cpu import onednn
from flambeau.core.expr import Index, to_cpp
from flambeau.inductor.ir import Extern, Program, View

Pointer = Callable[..., str]
_STRIDE = 1 << 40  # stands for symbolic sizes while the words of a call are laid out


class Dims(tuple):
    """A shape or strides that may hold expressions: oneDNN's words are laid out by position, so they pass through."""


def operand(view: View) -> onednn.Operand:
    """The description of a view; entries may be symbolic."""
    return onednn.Operand(np.dtype(view.dtype.numpy), tuple(view.shape), tuple(view.strides))


def call(words: Sequence[Any], views: Sequence[View], pointer: Pointer) -> list[str]:
    """C++ that makes (once, or for each new size) and runs the operation that `words` describe."""
    texts = ", ".join(to_cpp(w) for w in words)
    static = all(isinstance(w, int) for w in words)
    pointers = ", ".join(f"(void*)({pointer(v.buffer, v.offset)})" for v in views)
    make = f"fl::library.create(words, {len(words)})"
    lines = ["{", f"    {'static ' if static else ''}const int64_t words[] = {{{texts}}};"]
    if static:
        lines += ["    static int64_t op = 0;", "    if (op == 0 && fl::library.find(rt)) "
                  f"__atomic_store_n(&op, {make}, __ATOMIC_RELAXED);"]
    else:
        lines += [f"    const int64_t op = fl::library.find(rt) ? {make} : 0;"]
    lines += [f"    void* const operands[] = {{{pointers}}};",
              "    if (op == 0 || fl::library.run(op, operands) != 0) return fl::library.fail(rt);", "}"]
    return lines


def _matmul(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    a, b, *rest = step.inputs
    out = step.outputs[0]
    bias = rest.pop(0) if step.attrs.get("bias") else None
    post = []
    for item in step.attrs.get("post", ()):
        post.append(onednn.PostOp(item[0], *item[1:]) if item[0] not in onednn.BINARY else
                    onednn.PostOp(item[0], operand=operand(rest[len([p for p in post if p.operand])])))
    words = onednn.matmul_words(operand(a), operand(b), operand(out), operand(bias) if bias else None, post)
    return call([_number(w) for w in words], [a, b, out, *([bias] if bias else []), *rest], pointer)


def _number(word: Any) -> Index:
    return int(word) if isinstance(word, (bool, np.integer)) else word


EXTERNS: dict[str, Callable[[Extern, Program, Pointer], list[str]]] = {"mm": _matmul, "bmm": _matmul}

__all__ = ["EXTERNS", "call", "itertools", "operand"]
