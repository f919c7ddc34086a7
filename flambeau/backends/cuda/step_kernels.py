"""Triton kernels over many tensors at once: optimizer steps, the norm of all gradients, scaling them.

Each program does one block of one tensor. `blocks` names them, two i32 a program: which tensor, and which block of it. `table`
has a row of 64-bit words for each tensor: its number of elements, the addresses of its parts, then f64 numbers.
`like` is a tensor of the dtype that all have. Narrow floats are computed in f32 and rounded once, when stored.
"""

import triton
import triton.language as tl


@triton.jit
def _number(row, column):
    return tl.load(row + column).to(tl.float64, bitcast=True)


@triton.jit
def _place(row, column, like):
    return tl.load(row + column).to(like.dtype)


@triton.jit
def _block(table, blocks, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The row of this program's tensor, the positions of its elements, and which of them exist."""
    program = tl.program_id(0).to(tl.int64)
    row = table + tl.load(blocks + 2 * program).to(tl.int64) * WIDTH
    at = tl.load(blocks + 2 * program + 1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return row, at, at < tl.load(row)


@triton.jit
def _step(table, blocks, like, kind: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, MAXIMIZE: tl.constexpr):
    """How the step of an optimizer begins: the row, positions, which exist, where the parameter lies, it, and its gradient."""
    row, at, inside = _block(table, blocks, WIDTH, BLOCK)
    p_at = _place(row, 1, like) + at
    p, g = tl.load(p_at, inside, other=0).to(kind), tl.load(_place(row, 2, like) + at, inside, other=0).to(kind)
    if MAXIMIZE:
        g = -g
    return row, at, inside, p_at, p, g


@triton.jit
def adam(table, blocks, like, beta1, beta2, eps, weight_decay, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
         DECAY: tl.constexpr, AMSGRAD: tl.constexpr, MAXIMIZE: tl.constexpr):
    """Parts: param, grad, mean, square, largest square. Numbers: 1 - lr * decay, lr / correction1, sqrt(correction2)."""
    kind: tl.constexpr = tl.float64 if like.dtype.element_ty == tl.float64 else tl.float32
    row, at, inside, p_at, p, g = _step(table, blocks, like, kind, WIDTH, BLOCK, MAXIMIZE)
    m_at, s_at = _place(row, 3, like) + at, _place(row, 4, like) + at
    m, s = tl.load(m_at, inside, other=0).to(kind), tl.load(s_at, inside, other=0).to(kind)
    if DECAY == 1:
        g = g + p * tl.cast(weight_decay, kind)
    if DECAY == 2:
        p = p * _number(row, 6).to(kind)
    m = m + (g - m) * (1 - tl.cast(beta1, kind))
    s = s * tl.cast(beta2, kind) + g * g * (1 - tl.cast(beta2, kind))
    tl.store(m_at, m.to(like.dtype.element_ty), inside)
    tl.store(s_at, s.to(like.dtype.element_ty), inside)
    if AMSGRAD:
        t_at = _place(row, 5, like) + at
        s = tl.maximum(s, tl.load(t_at, inside, other=0).to(kind))
        tl.store(t_at, s.to(like.dtype.element_ty), inside)
    denominator = tl.sqrt(s) / _number(row, 8).to(kind) + tl.cast(eps, kind)
    p = p - m / denominator * _number(row, 7).to(kind)
    tl.store(p_at, p.to(like.dtype.element_ty), inside)


@triton.jit
def sgd(table, blocks, like, lr, momentum, dampening, weight_decay, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
        DECAY: tl.constexpr, BUFFERS: tl.constexpr, NESTEROV: tl.constexpr, MAXIMIZE: tl.constexpr):
    """Parts: param, grad, momentum buffer. Numbers: 1 where the buffer is fresh, else 0."""
    kind: tl.constexpr = tl.float64 if like.dtype.element_ty == tl.float64 else tl.float32
    row, at, inside, p_at, p, g = _step(table, blocks, like, kind, WIDTH, BLOCK, MAXIMIZE)
    if DECAY:
        g = g + p * tl.cast(weight_decay, kind)
    if BUFFERS:
        b_at = _place(row, 3, like) + at
        b = tl.load(b_at, inside, other=0).to(kind)
        b = tl.where(_number(row, 4) != 0, g, b * tl.cast(momentum, kind) + g * (1 - tl.cast(dampening, kind)))
        tl.store(b_at, b.to(like.dtype.element_ty), inside)
        g = g + b * tl.cast(momentum, kind) if NESTEROV else b
    tl.store(p_at, (p - g * tl.cast(lr, kind)).to(like.dtype.element_ty), inside)


@triton.jit
def squares(table, blocks, like, partial, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the squares of each block. Parts: the tensor."""
    row, at, inside = _block(table, blocks, WIDTH, BLOCK)
    x = tl.load(_place(row, 1, like) + at, inside, other=0).to(partial.dtype.element_ty)
    tl.store(partial + tl.program_id(0), tl.sum(x * x, 0))


@triton.jit
def scale(table, blocks, like, factor, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Multiply by `factor`, a pointer to one number. Parts: the tensor."""
    row, at, inside = _block(table, blocks, WIDTH, BLOCK)
    x_at = _place(row, 1, like) + at
    x = tl.load(x_at, inside, other=0)
    by = tl.load(factor)
    tl.store(x_at, (x.to(by.dtype) * by).to(like.dtype.element_ty), inside)


@triton.jit
def copy(table, blocks, like, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Copy words. Parts: target, source."""
    row, at, inside = _block(table, blocks, WIDTH, BLOCK)
    tl.store(_place(row, 1, like) + at, tl.load(_place(row, 2, like) + at, inside, other=0), inside)
