"""Products on a GPU that end in a bias, or in a bias and an activation: cuBLASLt does it before it stores the result.

This is done where it saves a kernel: where the one after the product adds the bias, does GELU (in its tanh form) or ReLU perhaps,
and nothing else. Products in 16 bits alone, whose sizes are whole words of 16 bytes. The bias must have the product's dtype, or be
a parameter, which is rounded once (settled.py): rounding it in each call costs what is won (GPT-2 training on an H200: 20.9 ms
with and without).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flambeau.core.expr import Index, substitute
from flambeau.inductor.gpu.products import Product, find_products
from flambeau.inductor.loop.ir import Compute, Extern, Program, Tracer, Value, View, walk
from flambeau.inductor.loop.post_ops import activation
from flambeau.inductor.loop.scheduler import Kernel, Member, Node, kernel_var, new_kernel, rewrite

WORD = 8
ACTIVATIONS = ("relu", "gelu_tanh")


class End(NamedTuple):
    """What a product ends in: the member of a kernel that stores it, the activation ("" for none), the bias."""

    member: Member
    activation: str
    bias: Value


def end_products(program: Program, nodes: Sequence[Node]) -> list[Node]:
    """The nodes with what can move into products moved there."""
    made: list[Node] = list(nodes)
    for call, kernel, product in find_products(program, nodes):
        sizes = (*call.outputs[0].shape, call.inputs[0].shape[1])
        if any(not isinstance(n, int) or n % WORD for n in sizes[1:]) or not all(map(_is_plain, (*call.inputs, *call.outputs))):
            continue
        end = _end(program, made, kernel, product)
        if end is None:
            continue
        at = made.index(call)
        bias = _vector(program, made, at, end, product)
        if bias is None:
            continue
        out = call.outputs[0]
        ended = Extern("mm", (*call.inputs, bias), (View(end.member.step.buffer, out.dtype, out.shape, (out.shape[1], 1)),),
                       call.target, call.args, (*call.origins, *end.member.step.origins), activation=end.activation)
        made[made.index(call)] = ended
        made.remove(kernel)
        program.buffers.pop(out.buffer, None)
    return made


def _is_plain(view: View) -> bool:
    """Whether cuBLASLt takes the matrix as it lies."""
    rows, columns = view.strides
    return isinstance(view.offset, int) and view.offset % WORD == 0 and (
        (columns == 1 and isinstance(rows, int) and rows % WORD == 0) or (rows == 1 and isinstance(columns, int) and columns % WORD == 0))


def _end(program: Program, nodes: Sequence[Node], kernel: Kernel, product: Product) -> End | None:
    """What the product ends in, if that is all that the kernel does."""
    out, members = product.call.outputs[0], product.kernel.members
    others = {v.buffer for v in program.outputs if isinstance(v, View)}
    others |= {name for node in nodes if node is not kernel for name in node.reads}
    stored = [m for m in members if m.step.buffer in others]
    o = Tracer()
    result = o.make("held", (), members[0].step.body.dtype, out.buffer)
    forward = {out.buffer: result}
    for m in members:
        value = rewrite([m.step.body], o, lambda x, m=m: substitute(x, m.subs), None, forward)[m.step.body.uid]  # type: ignore[misc]
        forward[m.step.buffer] = value
        if stored != [m] or not _is_matrix(program, m, product):
            continue
        for inner in walk([value]):
            bias = _bias(inner, result)
            done = "" if inner is _unrounded(value) else activation(value, inner, rounded=True) if bias is not None else None
            if bias is not None and done in ("", *ACTIVATIONS):
                return End(m, done, bias)
    return None


def _is_matrix(program: Program, member: Member, product: Product) -> bool:
    """Whether a member stores a matrix like the product's, row by row, in its dtype."""
    kernel, buffer = product.kernel, program.buffers[member.step.buffer]
    return buffer.dtype is product.call.outputs[0].dtype and _same(substitute(member.step.index, member.subs), _flat(kernel, 0))


def _flat(kernel: Kernel, first: int) -> Index:
    """The position among the kernel's loops from `first` on."""
    place: Index = 0
    for k in range(first, len(kernel.sizes)):
        place = place * kernel.sizes[k] + kernel_var(k, kernel.sizes[k])
    return place


def _same(a: Index, b: Index) -> bool:
    return a is b or a == b


def _unrounded(value: Value) -> Value:
    while value.op == "round_to":
        value = value.args[0]
    return value


def _bias(value: Value, result: Value) -> Value | None:
    """What is added to the result, if nothing else is done to it."""
    if value.op != "add" or result not in value.args:
        return None
    other = next((a for a in value.args if a is not result), None)
    return other if other is not None and all(w is not result for w in walk([other])) else None


def _vector(program: Program, nodes: list[Node], at: int, end: End, product: Product) -> View | None:
    """The bias in memory in the product's dtype: as it lies, or rounded by a kernel of its own before the node `at`."""
    kernel, kind, value = product.kernel, product.call.outputs[0].dtype, end.bias
    load = value.args[0] if value.op == "round_to" and value.attr is kind else value
    columns = product.call.outputs[0].shape[1]
    if load.op != "load" or load.attr.names or load.attr.masked:
        return None
    offset, buffer = load.attr.index - _flat(kernel, kernel.split or 0), program.buffers[load.attr.buffer]
    if not isinstance(offset, int) or any(buffer.name in node.writes for node in nodes[at:]):
        return None
    if buffer.dtype is kind:
        return View(buffer.name, kind, (columns,), (1,), offset) if offset % WORD == 0 else None
    if value is load or buffer.name not in program.parameters:
        return None
    new = type(buffer)(f"{end.member.step.buffer}_bias", kind, (columns,), (1,))
    program.buffers[new.name] = new
    o, i = Tracer(), kernel_var(0, columns)
    body = o.load(buffer.name, i + offset, buffer.dtype)
    step = Compute(new.name, i, (("x0", columns),), body, origins=end.member.step.origins)
    nodes.insert(at, new_kernel(step, program))
    return View(new.name, kind, (columns,), (1,))
