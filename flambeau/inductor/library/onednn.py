"""What calls of oneDNN have in common in generated code: handles made at the first call, and what a call ends in.

A call may end in an *epilogue*, what is done to the result before it is stored: `epilogue` holds `PostOp`s
whose tensors follow the operands among the step's inputs. A first `("add", ...)` of a vector is the bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau.backends.cpu import onednn
from flambeau.core.expr import Expr, evaluate, free_variables, to_cpp
from flambeau.core.scalar import POSTS
from flambeau.inductor.library.record import Pointer
from flambeau.inductor.loop.ir import Extern, View
from flambeau.inductor.loop.post_ops import SLOW, PostOp

LIKELY_SIZE = 256  # stands for a size that is not known when oneDNN is asked whether it has a kernel
REFUSED = (NotImplementedError, ValueError, RuntimeError)


def operand(view: View, layout: str = "given") -> onednn.Operand:
    """The description of a view; its entries may be symbolic, for they become words in order."""
    return onednn.Operand(np.dtype(view.dtype.numpy), tuple(view.shape), tuple(view.strides), layout)  # type: ignore


def call(words: Sequence[Any], views: Sequence[View], pointer: Pointer, result: View) -> list[str]:
    """C++ that makes (once, or for each new size) and runs the operation that `words` describe, if its result has elements."""
    words = [int(w) if isinstance(w, (bool, np.integer)) else w for w in words]
    static = all(isinstance(w, int) for w in words)
    make = f"fl::library.create(words, {len(words)})"
    lines = ["{", f"    {'static ' if static else ''}const int64_t words[] = {{{', '.join(map(to_cpp, words))}}};"]
    if static:
        lines += ["    static int64_t op = 0;", f"    if (op == 0 && fl::library.find(rt)) op = {make};"]
    else:
        lines += [f"    const int64_t op = fl::library.find(rt) ? {make} : 0;"]
        if varying := [to_cpp(n) for n in result.shape if isinstance(n, Expr)]:
            lines[0] = f"if ({' && '.join(f'{n} > 0' for n in varying)}) {{"
    lines += [f"    void* const operands[] = {{{addresses(views, pointer)}}};",
              "    if (op == 0 || fl::library.run(op, operands) != 0) return fl::library.fail(rt);", "}"]
    return lines


def addresses(views: Sequence[View], pointer: Pointer) -> str:
    """The addresses of views, as C++."""
    return ", ".join(f"(void*)({pointer(v.buffer, v.offset)})" for v in views)


def ends_of(step: Extern, views: Sequence[View], axis: int) -> tuple[View | None, list[onednn.PostOp], list[View]]:
    """The bias, which goes along an axis of the result, the post-ops and the views that they read."""
    epilogue: list[PostOp] = list(step.epilogue)
    rest = list(views)
    bias = None
    if epilogue and epilogue[0].kind == "add" and epilogue[0].tensor and goes_along(rest[0], axis):
        bias = rest.pop(0)
        epilogue.pop(0)
    posts, read = [], []
    for post in epilogue:
        if post.tensor:
            read.append(rest.pop(0))
            posts.append(onednn.PostOp(post.kind, operand=operand(read[-1])))
        else:
            posts.append(onednn.PostOp(post.kind, post.alpha, post.beta))
    return bias, posts, read


def goes_along(view: View, axis: int) -> bool:
    """Whether a tensor varies along one axis at most."""
    return all(isinstance(n, int) and n == 1 for d, n in enumerate(view.shape) if d != axis % len(view.shape))


def made(words: Sequence[Any]) -> int:
    """The operation of a description, with likely numbers for those that are not known. One of REFUSED where there is no fast kernel."""
    return onednn._create(tuple(int(evaluate(w, dict.fromkeys(free_variables(w), LIKELY_SIZE))) for w in words))


def is_exact(step: Extern) -> bool:
    """Whether what oneDNN does to the result is right on every number."""
    return all(POSTS[post.kind].exact for post in step.epilogue)


def is_slow(step: Extern) -> bool:
    """Whether kernels of our own do sooner what is done to the result."""
    return not onednn.split_products_set() and any(post.kind in SLOW for post in step.epilogue)
