"""A Triton kernel that copies a matrix between rows of different lengths."""

import triton
import triton.language as tl


@triton.jit
def copy_rows(source, target, columns, blocks, source_step, target_step, BLOCK: tl.constexpr):
    """target[row * target_step + column] = source[row * source_step + column]; `blocks` programs share a row."""
    program = tl.program_id(0)
    row, column = (program // blocks).to(tl.int64), program % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    tl.store(target + row * target_step + column, tl.load(source + row * source_step + column, inside), inside)
