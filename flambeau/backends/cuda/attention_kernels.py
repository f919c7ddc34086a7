"""Attention without storing the scores: FlashAttention (Dao et al. 2022; Dao 2023) over the online softmax of Milakov and
Gimelshein (2018), as Triton kernels.

Queries (batch, heads, rows, E), keys and values (batch, heads / group, columns, E) may have any strides but the last, which
is 1. Results lie as (batch, rows, heads, E), contiguous, statistics as (batch, heads, rows). Scores are kept in base 2:
`factor` is scale * log2(e). Block sizes: M rows, N columns, D >= E a power of two.
"""

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _tile(base, start, stride, size, E: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    """Rows start .. start + BLOCK of a matrix, zeros beyond its edges."""
    at, e = start + tl.arange(0, BLOCK), tl.arange(0, D)
    where = base + at[:, None].to(tl.int64) * stride + e[None, :]
    if MASKED or D != E:
        return tl.load(where, (at[:, None] < size) & (e[None, :] < E), other=0)
    return tl.load(where)


@triton.jit
def _put(base, tile, start, stride, size, E: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    at, e = start + tl.arange(0, BLOCK), tl.arange(0, D)
    where = base + at[:, None].to(tl.int64) * stride + e[None, :]
    tl.store(where, tile.to(base.dtype.element_ty), (at[:, None] < size) & (e[None, :] < E))


@triton.jit
def _seen(i, j, columns, CAUSAL: tl.constexpr):
    """Which keys j the queries i may look at."""
    return (j < columns) & (j <= i) if CAUSAL else (j < columns) & (i >= 0)


@triton.jit
def _fold(acc, top, total, q, k_at, v_at, row, low, high, k_stride, v_stride, columns, factor, E: tl.constexpr, D: tl.constexpr,
          M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr):
    """The online softmax over the keys low .. high: (weighted values, largest score, sum of weights) so far."""
    for start in range(low, high, N):
        k = _tile(k_at, start, k_stride, columns, E, D, N, MASKED)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * factor
        if MASKED:
            i, j = row + tl.arange(0, M)[:, None], start + tl.arange(0, N)[None, :]
            s = tl.where(_seen(i, j, columns, CAUSAL), s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new_top[:, None])
        old = tl.exp2(top - new_top)
        total = total * old + tl.sum(p, 1)
        v = _tile(v_at, start, v_stride, columns, E, D, N, MASKED)
        acc = tl.dot(p.to(v.dtype), v, acc * old[:, None], input_precision=PRECISION)
        top = new_top
    return acc, top, total


@triton.jit
def forward(q, k, v, out, lse, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, heads, group, rows, columns,
            factor, E: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr):
    """One block of rows of one head: its output and the logarithm of the sum of its weights."""
    blocks = tl.cdiv(rows, M)
    row = (blocks - 1 - tl.program_id(0) % blocks) * M  # under a causal mask the last rows take longest
    both = tl.program_id(0) // blocks
    batch, head = (both // heads).to(tl.int64), (both % heads).to(tl.int64)
    q_at = q + batch * q_batch + head * q_head
    k_at, v_at = k + batch * k_batch + head // group * k_head, v + batch * v_batch + head // group * v_head
    tile = _tile(q_at, row, q_row, rows, E, D, M, True)
    acc = tl.zeros([M, D], tl.float32)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    full = columns // N * N
    high = columns
    if CAUSAL:
        full = tl.minimum(full, row // N * N)
        high = tl.minimum(high, row + M)
    acc, top, total = _fold(acc, top, total, tile, k_at, v_at, row, 0, full, k_row, v_row, columns, factor, E, D, M, N, CAUSAL,
                            False, PRECISION)
    acc, top, total = _fold(acc, top, total, tile, k_at, v_at, row, full, high, k_row, v_row, columns, factor, E, D, M, N, CAUSAL,
                            True, PRECISION)
    _put(out + (batch * rows * heads + head) * E, acc / total[:, None], row, heads * E, rows, E, D, M)
    i = row + tl.arange(0, M)
    tl.store(lse + (batch * heads + head) * rows + i, (top + tl.log2(total)) * LN2, i < rows)


@triton.jit
def products(out, g, delta, g_batch, g_row, g_head, heads, rows, E: tl.constexpr, D: tl.constexpr, M: tl.constexpr):
    """delta[b, h, i] = sum over e of out * g."""
    blocks = tl.cdiv(rows, M)
    row, both = tl.program_id(0) % blocks * M, tl.program_id(0) // blocks
    batch, head = (both // heads).to(tl.int64), (both % heads).to(tl.int64)
    a = _tile(out + (batch * rows * heads + head) * E, row, heads * E, rows, E, D, M, True).to(tl.float32)
    b = _tile(g + batch * g_batch + head * g_head, row, g_row, rows, E, D, M, True).to(tl.float32)
    i = row + tl.arange(0, M)
    tl.store(delta + (batch * heads + head) * rows + i, tl.sum(a * b, 1), i < rows)


@triton.jit
def _keys_fold(gk, gv, k, v, q_at, g_at, lse_at, delta_at, column, low, high, q_row, g_row, rows, columns, factor, E: tl.constexpr,
               D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr):
    """What the rows low .. high add to the gradients of a block of keys and values. Scores here are (keys, queries)."""
    for start in range(low, high, M):
        q = _tile(q_at, start, q_row, rows, E, D, M, MASKED)
        i = start + tl.arange(0, M)
        top = tl.load(lse_at + i, i < rows, other=0) / LN2
        p = tl.exp2(tl.dot(k, tl.trans(q), input_precision=PRECISION) * factor - top[None, :])
        if MASKED:
            j = column + tl.arange(0, N)[:, None]
            p = tl.where(_seen(i[None, :], j, columns, CAUSAL) & (i[None, :] < rows), p, 0.0)
        g = _tile(g_at, start, g_row, rows, E, D, M, MASKED)
        gv = tl.dot(p.to(g.dtype), g, gv, input_precision=PRECISION)
        delta = tl.load(delta_at + i, i < rows, other=0)
        gs = p * (tl.dot(v, tl.trans(g), input_precision=PRECISION) - delta[None, :])
        gk = tl.dot(gs.to(q.dtype), q, gk, input_precision=PRECISION)
    return gk, gv


@triton.jit
def backward_keys(q, k, v, g, lse, delta, gk_out, gv_out, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
                  g_batch, g_row, g_head, heads, group, rows, columns, factor, scale, E: tl.constexpr, D: tl.constexpr,
                  M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr):
    """One block of keys and values of one of their heads: both gradients, summed over the query heads that share it."""
    blocks = tl.cdiv(columns, N)
    column, both = tl.program_id(0) % blocks * N, tl.program_id(0) // blocks
    key_heads = heads // group
    batch, key_head = (both // key_heads).to(tl.int64), (both % key_heads).to(tl.int64)
    k_tile = _tile(k + batch * k_batch + key_head * k_head, column, k_row, columns, E, D, N, True)
    v_tile = _tile(v + batch * v_batch + key_head * v_head, column, v_row, columns, E, D, N, True)
    gk, gv = tl.zeros([N, D], tl.float32), tl.zeros([N, D], tl.float32)
    low, first = 0, 0
    if CAUSAL:  # rows before the block see nothing of it; those up to its end see a part
        low = tl.minimum(column // M * M, tl.cdiv(rows, M) * M)
        first = tl.minimum(tl.cdiv(column + N - 1, M) * M, tl.cdiv(rows, M) * M)
    full = tl.maximum(rows // M * M, first)
    if column + N > columns:  # every block of rows has to look at the edge
        first, full = tl.cdiv(rows, M) * M, tl.cdiv(rows, M) * M
    for member in range(group):
        head = key_head * group + member
        q_at, g_at = q + batch * q_batch + head * q_head, g + batch * g_batch + head * g_head
        l_at, d_at = lse + (batch * heads + head) * rows, delta + (batch * heads + head) * rows
        gk, gv = _keys_fold(gk, gv, k_tile, v_tile, q_at, g_at, l_at, d_at, column, low, first, q_row, g_row, rows, columns, factor,
                            E, D, M, N, CAUSAL, True, PRECISION)
        gk, gv = _keys_fold(gk, gv, k_tile, v_tile, q_at, g_at, l_at, d_at, column, first, full, q_row, g_row, rows, columns, factor,
                            E, D, M, N, CAUSAL, False, PRECISION)
        gk, gv = _keys_fold(gk, gv, k_tile, v_tile, q_at, g_at, l_at, d_at, column, full, rows, q_row, g_row, rows, columns, factor,
                            E, D, M, N, CAUSAL, True, PRECISION)
    place = (batch * columns * key_heads + key_head) * E
    _put(gk_out + place, gk * scale, column, key_heads * E, columns, E, D, N)
    _put(gv_out + place, gv, column, key_heads * E, columns, E, D, N)


@triton.jit
def _rows_fold(gq, q, g, top, delta, k_at, v_at, row, low, high, k_row, v_row, columns, factor, E: tl.constexpr, D: tl.constexpr,
               M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr):
    """What the keys low .. high add to the gradient of a block of rows."""
    for start in range(low, high, N):
        k = _tile(k_at, start, k_row, columns, E, D, N, MASKED)
        v = _tile(v_at, start, v_row, columns, E, D, N, MASKED)
        p = tl.exp2(tl.dot(q, tl.trans(k), input_precision=PRECISION) * factor - top[:, None])
        if MASKED:
            i, j = row + tl.arange(0, M)[:, None], start + tl.arange(0, N)[None, :]
            p = tl.where(_seen(i, j, columns, CAUSAL), p, 0.0)
        gs = p * (tl.dot(g, tl.trans(v), input_precision=PRECISION) - delta[:, None])
        gq = tl.dot(gs.to(k.dtype), k, gq, input_precision=PRECISION)
    return gq


@triton.jit
def backward_rows(q, k, v, g, lse, delta, gq_out, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, g_batch,
                  g_row, g_head, heads, group, rows, columns, factor, scale, E: tl.constexpr, D: tl.constexpr, M: tl.constexpr,
                  N: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr):
    """One block of rows of one head: the gradient of its queries."""
    blocks = tl.cdiv(rows, M)
    row, both = (blocks - 1 - tl.program_id(0) % blocks) * M, tl.program_id(0) // blocks
    batch, head = (both // heads).to(tl.int64), (both % heads).to(tl.int64)
    k_at, v_at = k + batch * k_batch + head // group * k_head, v + batch * v_batch + head // group * v_head
    q_tile = _tile(q + batch * q_batch + head * q_head, row, q_row, rows, E, D, M, True)
    g_tile = _tile(g + batch * g_batch + head * g_head, row, g_row, rows, E, D, M, True)
    i = row + tl.arange(0, M)
    top = tl.load(lse + (batch * heads + head) * rows + i, i < rows, other=0) / LN2
    d = tl.load(delta + (batch * heads + head) * rows + i, i < rows, other=0)
    gq = tl.zeros([M, D], tl.float32)
    full, high = columns // N * N, columns
    if CAUSAL:
        full = tl.minimum(full, row // N * N)
        high = tl.minimum(high, row + M)
    gq = _rows_fold(gq, q_tile, g_tile, top, d, k_at, v_at, row, 0, full, k_row, v_row, columns, factor, E, D, M, N, CAUSAL, False,
                    PRECISION)
    gq = _rows_fold(gq, q_tile, g_tile, top, d, k_at, v_at, row, full, high, k_row, v_row, columns, factor, E, D, M, N, CAUSAL, True,
                    PRECISION)
    _put(gq_out + (batch * rows * heads + head) * E, gq * scale, row, heads * E, rows, E, D, M)
