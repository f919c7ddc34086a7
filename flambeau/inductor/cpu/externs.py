"""Library calls in generated code: matrix products and convolutions through oneDNN, by handles made at the first call.

A call may end in an *epilogue*, what is done to the result before it is stored: `epilogue` holds `PostOp`s
whose tensors follow the operands among the step's inputs. A first `("add", ...)` of a vector is the bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flambeau.backends.cpu import onednn
from flambeau.core.dtypes import float64
from flambeau.core.expr import Expr, evaluate, free_variables, to_cpp, var
from flambeau.core.scalar import FOLDS, POSTS
from flambeau.core.windows import ROLES, by_role
from flambeau.inductor.cpu.cpp import MEMORY_TYPES, constant_text
from flambeau.inductor.loop.ir import Extern, Program, View
from flambeau.inductor.loop.post_ops import SLOW, PostOp

Pointer = Callable[..., str]
LIKELY_SIZE = 256  # stands for a size that is not known when oneDNN is asked whether it has a kernel


def operand(view: View, layout: str = "given") -> onednn.Operand:
    """The description of a view; its entries may be symbolic, for they become words in order."""
    return onednn.Operand(np.dtype(view.dtype.numpy), tuple(view.shape), tuple(view.strides), layout)  # type: ignore


def call(words: Sequence[Any], views: Sequence[View], pointer: Pointer, result: View) -> list[str]:
    """C++ that makes (once, or for each new size) and runs the operation that `words` describe, if its result has elements."""
    words = [int(w) if isinstance(w, (bool, np.integer)) else w for w in words]
    static = all(isinstance(w, int) for w in words)
    pointers = ", ".join(f"(void*)({pointer(v.buffer, v.offset)})" for v in views)
    make = f"fl::library.create(words, {len(words)})"
    lines = ["{", f"    {'static ' if static else ''}const int64_t words[] = {{{', '.join(map(to_cpp, words))}}};"]
    if static:
        lines += ["    static int64_t op = 0;", f"    if (op == 0 && fl::library.find(rt)) op = {make};"]
    else:
        lines += [f"    const int64_t op = fl::library.find(rt) ? {make} : 0;"]
        if varying := [to_cpp(n) for n in result.shape if isinstance(n, Expr)]:
            lines[0] = f"if ({' && '.join(f'{n} > 0' for n in varying)}) {{"
    lines += [f"    void* const operands[] = {{{pointers}}};",
              "    if (op == 0 || fl::library.run(op, operands) != 0) return fl::library.fail(rt);", "}"]
    return lines


def _epilogue(step: Extern, views: Sequence[View]) -> tuple[View | None, list[onednn.PostOp], list[View]]:
    """The bias, the post-ops and the views that they read."""
    epilogue: list[PostOp] = list(step.epilogue)
    rest = list(views)
    bias = None
    if epilogue and epilogue[0].kind == "add" and epilogue[0].tensor and _is_bias(rest[0], 1 if step.op in ROLES else -1):
        bias = rest.pop(0)
        if step.op in ROLES:
            bias = bias._replace(shape=bias.shape[1:2], strides=bias.strides[1:2])
        epilogue.pop(0)
    posts, read = [], []
    for post in epilogue:
        if post.tensor:
            read.append(rest.pop(0))
            posts.append(onednn.PostOp(post.kind, operand=operand(read[-1])))
        else:
            posts.append(onednn.PostOp(post.kind, post.alpha, post.beta))
    return bias, posts, read


def _is_bias(view: View, axis: int) -> bool:
    """Whether a tensor varies along one axis at most."""
    return all(isinstance(n, int) and n == 1 for d, n in enumerate(view.shape) if d != axis % len(view.shape))


def matmul_words(step: Extern) -> tuple[tuple, list[View]]:
    """The description of a matrix product, and its tensors in oneDNN's order."""
    a, b, *rest = step.inputs
    out = step.outputs[0]
    bias, posts, read = _epilogue(step, rest)
    words = onednn.matmul_words(operand(a), operand(b), operand(out), operand(bias) if bias else None, posts)
    return words, [a, b, out, *([bias] if bias else []), *read]


def _matmul(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    words, views = matmul_words(step)
    return call(words, views, pointer, step.outputs[0])


def _convolution(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    words, views = convolution_words(_keeping(step, program))
    return call(words, views, pointer, step.outputs[0])


def _keeping(step: Extern, program: Program) -> Extern:
    """With a weight that is reordered once and for all, where it may be."""
    image, weight, result = step.layouts
    if program.assumed.frozen and weight == "free" and program.buffers[step.inputs[1].buffer].kind == "constant":
        return replace(step, layouts=(image, "constant", result))
    return step


def convolution_words(step: Extern) -> tuple[tuple[int, ...], list[View]]:
    """The description of a convolution or of one of its gradients, and the tensors in oneDNN's order."""
    *_, stride, padding, dilation, groups = step.args
    bias, posts, read = _epilogue(step, step.inputs[2:])
    views, order = _roles(step), onednn.ORDER[step.op]
    words = onednn.conv_words(step.op, [operand(views[role], step.layouts[role]) for role in order], operand(bias) if bias else None,
                              stride=stride, padding=padding, dilation=dilation, groups=groups, post=posts)
    return words, [*(views[role] for role in order), *([bias] if bias else []), *read]


def choose_layouts(step: Extern) -> bool:
    """Find layouts of the operands (x, w, y) that oneDNN has a fast kernel for; False where there are none."""
    likely = _likely_layouts(step)
    for layouts in (likely, ("given", "free", "given"), ("free", "free", "given"), ("given", "free", "free"), ("free",) * 3):
        step.layouts = layouts
        try:
            words, _ = convolution_words(step)
            onednn._create(_likely(words))
            return True
        except (NotImplementedError, ValueError, RuntimeError):
            continue
    return False


def _likely(words: Sequence[Any]) -> tuple[int, ...]:
    """A description with likely numbers for those that are not known."""
    return tuple(int(evaluate(w, dict.fromkeys(free_variables(w), LIKELY_SIZE))) for w in words)


def _likely_layouts(step: Extern) -> tuple[str, str, str]:
    """Images that lie with their channels innermost stay so; others are better reordered in the call, but for windows of one
    element, which are matrix products, and where each channel is a group of its own and the other image stays."""
    x, w, y = _roles(step)
    lies_last = [image.shape[1] != 1 and image.strides[1] == 1 for image in (x, y)]
    if all(n == 1 for n in w.shape[2:]) or (w.shape[1] == 1 and any(lies_last)):
        return "given", "free", "given"
    first, second = ("free" if image.shape[1] != 1 and not last else "given" for image, last in zip((x, y), lies_last, strict=True))
    return first, "free", second


def _roles(step: Extern) -> list[View]:
    """The image, the weight and the result of a convolution among the operands of it or of its gradient."""
    return by_role(step.op, step.inputs[:2], step.outputs[0])


def runs_fast(step: Extern) -> bool:
    """Whether oneDNN has a fast kernel for the call as it now is, epilogue and all, that is right on every number."""
    if not onednn.split_products_set() and any(post.kind in SLOW for post in step.epilogue):
        return False
    exact = all(POSTS[post.kind].exact for post in step.epilogue)
    if step.op in ROLES:
        *_, read = _epilogue(step, step.inputs[2:])
        by_channel = any(_is_bias(view, 1) for view in read)      # slow beside planes, which is not to be seen from outside
        return exact and not (by_channel and step.outputs[0].strides[1] != 1) and choose_layouts(step)
    words, _ = matmul_words(step)
    sizes = dict.fromkeys(frozenset().union(*map(free_variables, words)), LIKELY_SIZE)
    try:
        op = onednn._create(_likely(words))
    except (NotImplementedError, ValueError, RuntimeError, ZeroDivisionError):     # the last: no such sizes, n // (m // 512) of these
        return False
    return exact or (not sizes and onednn.splits(op))


def _attention(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    """Attention or its gradient; csrc/attention.cpp says what the words mean."""
    *_, is_causal, scale = step.args
    if step.op == "flash_attention":
        (q, k, v), (out, lse) = step.inputs, step.outputs
        rest: list[View] = []
    else:
        g, q, k, v, out, lse = step.inputs
        rest = [_heads_first(view) for view in (g, *step.outputs)]
    views = [q, k, v, _heads_first(out), lse, *rest]
    words = [*q.shape[:2], k.shape[1], q.shape[2], k.shape[2], q.shape[3], int(is_causal), onednn._float_bits(scale)]
    words += [stride for view in views if view is not lse for stride in view.strides[:3]]
    pointers = ", ".join(f"(void*)({pointer(v.buffer, v.offset)})" for v in views)
    return ["{", f"    const int64_t words[] = {{{', '.join(map(to_cpp, words))}}};", f"    void* const operands[] = {{{pointers}}};",
            f"    if (fl::attention(rt, words, operands, {len(views)})) return 1;", "}"]


def _heads_first(view: View) -> View:
    """(batch, rows, heads, E) as (batch, heads, rows, E)."""
    (b, r, h, e), (sb, sr, sh, se) = view.shape, view.strides
    return view._replace(shape=(b, h, r, e), strides=(sb, sh, sr, se))


def _draw(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    """An array of random numbers; csrc/philox.cpp says what the words mean."""
    _, increment, shape, kind = step.args
    words = ", ".join(map(to_cpp, (DRAWS.index(step.op), kind.itemsize, math.prod(shape), increment)))
    state, out = step.inputs[0], step.outputs[0]
    pointers = f"(const int64_t*){pointer(state.buffer, state.offset)}, {pointer(out.buffer, out.offset)}"
    return ["{", f"    const int64_t words[] = {{{words}}};", f"    if (fl::draw(rt, words, {pointers})) return 1;", "}"]


def _running(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    """Running sums or products along a dimension; floats add up in float64, as in eager."""
    x, out = step.inputs[0], step.outputs[0]
    _, dim, *reverse = step.args
    sizes = _around(x, dim)
    memory, fold = MEMORY_TYPES[x.dtype.name], RUNNING[step.op]
    number = "double" if x.dtype.is_floating_point else memory
    given = f"({memory}*){pointer(x.buffer, x.offset)}, ({memory}*){pointer(out.buffer, out.offset)}"
    arguments = f"{', '.join(map(to_cpp, sizes))}, {'true' if any(reverse) else 'false'}, {number}({fold.empty})"
    return [f"fl::run_along(rt, {given}, {arguments}, []({number} a, {number} b) {{ return {fold.combine.cpp.format('a', 'b')}; }});"]


def _order(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    """The first elements along a dimension in order, all of them or `k`, and where they were."""
    x, (values, places) = step.inputs[0], step.outputs
    if step.op == "sort":
        _, dim, descending, _ = step.args
    else:
        _, _, dim, descending, _ = step.args
    outer, n, inner = _around(x, dim)
    memory = MEMORY_TYPES[x.dtype.name]
    given = [f"({kind}*){pointer(view.buffer, view.offset)}" for kind, view in ((memory, x), (memory, values), ("int64_t", places))]
    sizes = map(to_cpp, (outer, n, inner, values.shape[dim] if x.shape else 1))
    return [f"if (fl::order_along(rt, {', '.join((*given, *sizes))}, {'true' if descending else 'false'})) return 1;"]


def _around(x: View, dim: int) -> tuple:
    """The elements before a dimension, in it and after it."""
    return (math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1:])) if x.shape else (1, 1, 1)


def _counts(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    """A histogram."""
    x, out = step.inputs[0], step.outputs[0]
    _, bins, low, high = step.args
    memory = MEMORY_TYPES[x.dtype.name]
    given = ", ".join(f"({memory}*){pointer(view.buffer, view.offset)}" for view in (x, out))
    edges = ", ".join(constant_text(edge, float64) for edge in (low, high))
    return [f"if (fl::count_in_bins(rt, {given}, {to_cpp(math.prod(x.shape))}, {to_cpp(bins)}, {edges})) return 1;"]


def _groups(step: Extern, program: Program, pointer: Pointer) -> list[str]:
    """Products of groups of rows, each with a matrix of its own; what lies behind the last group is zero."""
    a, b, ends = step.inputs
    out, rows = step.outputs[0], var("rows")
    of_group = [a._replace(shape=(rows, a.shape[1])), b._replace(shape=b.shape[1:], strides=b.strides[1:]),
                out._replace(shape=(rows, out.shape[1]))]
    left, right, made = map(operand, of_group)
    words = onednn.matmul_words(left, right, made, None, [])
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


# Products and convolutions, which take epilogues, and below them every call that generated code makes itself.
EXTERNS: dict[str, Callable[[Extern, Program, Pointer], list[str]]] = {
    "mm": _matmul, "bmm": _matmul, **dict.fromkeys(ROLES, _convolution),
}
ATTENTION = ("flash_attention", "flash_attention_backward")
DRAWS = ("philox_uniform", "philox_normal")
RUNNING = {"cumsum": FOLDS["sum"], "cumprod": FOLDS["prod"]}
WHOLE = {"sort": _order, "topk": _order, "histc": _counts, "grouped_mm": _groups}     # over contiguous tensors
CALLS = {**EXTERNS, **dict.fromkeys(ATTENTION, _attention), **dict.fromkeys(DRAWS, _draw), **dict.fromkeys(RUNNING, _running), **WHOLE}



def runs_in_python(node: Any) -> bool:
    """Whether a step, or a node of the schedule, is a call that generated code cannot make."""
    return isinstance(node, Extern) and node.op not in CALLS and node.body is None
