"""torch.nn.attention.flex_attention: attention whose scores a function may change and whose pairs a function may mask.

`score_mod(score, b, h, q, kv)` and `mask_mod(b, h, q, kv)` are written for one element. They are called once, with index tensors
that broadcast to (B, H, Q, KV), so they have to be made of elementwise operators and lookups `table[index]`, as is usual.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

from ... import ops
from ...core.tensor import Tensor

_DEFAULT_SPARSE_BLOCK_SIZE = 128


class AuxRequest(NamedTuple):
    """What `flex_attention(return_aux=...)` is to return beside the result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by an AuxRequest."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


class FlexKernelOptions(TypedDict, total=False):
    """What PyTorch's Triton kernels may be told; attention here is made of operators, which take none of it."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_M1: int
    BLOCK_N1: int
    BLOCK_M2: int
    BLOCK_N2: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    USE_TMA: bool
    kpack: int
    matrix_instr_nonkdim: int
    waves_per_eu: int
    BACKEND: str


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """A mask_mod that keeps every pair."""
    return ops.ones((), dtype=ops.ones(1).bool().dtype, device=batch.device)


def _identity(score: Tensor, batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    return score


def _indices(b: int, h: int, q: int, kv: int, device: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four indices, each along its own dimension."""
    shapes = ((b, 1, 1, 1), (h, 1, 1), (q, 1), (kv,))
    return tuple(ops.arange(s[0], device=device).reshape(s) for s in shapes)


def create_mask(mod_fn: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = "cpu") -> Tensor:
    """The bool tensor (B, H, Q_LEN, KV_LEN) of a mask_mod; B or H None is 1."""
    b, h = B or 1, H or 1
    return mod_fn(*_indices(b, h, Q_LEN, KV_LEN, device)).expand((b, h, Q_LEN, KV_LEN))


class BlockMask:
    """A mask by its function. PyTorch also keeps which blocks are empty, to skip them; here the dense mask is computed."""

    def __init__(self, mask_mod: Callable, shape: tuple[int, int, int, int], block_size: tuple[int, int], device: Any) -> None:
        self.mask_mod, self.shape, self.BLOCK_SIZE, self.device = mask_mod, shape, block_size, device
        self.seq_lengths = shape[2:]

    def to_dense(self) -> Tensor:
        """1 for each block that has an unmasked pair, shape (B, H, blocks of Q, blocks of KV)."""
        b, h, q, kv = self.shape
        mask = create_mask(self.mask_mod, b, h, q, kv, self.device)
        rows, columns = (-(-n // size) for n, size in zip((q, kv), self.BLOCK_SIZE))
        padded = ops.zeros((b, h, rows * self.BLOCK_SIZE[0], columns * self.BLOCK_SIZE[1]), dtype=mask.dtype, device=self.device)
        padded[:, :, :q, :kv] = mask
        return padded.reshape(b, h, rows, self.BLOCK_SIZE[0], columns, self.BLOCK_SIZE[1]).any(-1).any(3).int()

    def sparsity(self) -> float:
        """The share of blocks without an unmasked pair, in per cent."""
        blocks = self.to_dense()
        return 100 * (1 - blocks.sum().item() / blocks.numel())

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, block_size={self.BLOCK_SIZE})"


def create_block_mask(mask_mod: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = "cpu",
                      BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE, _compile: bool = False,
                      separate_full_blocks: bool = True, compute_dq_write_order: bool = False,
                      dq_kv_order: bool = True) -> BlockMask:  # fmt: skip
    """A BlockMask for `flex_attention`; B or H None: the same for all. The last three tune kernels that there are not here."""
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), size, device)  # type: ignore[arg-type]


def _joined(join: Callable, mask_mods: tuple[Callable, ...]) -> Callable:
    def joined(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        result = mask_mods[0](b, h, q, kv)
        for mod in mask_mods[1:]:
            result = join(result, mod(b, h, q, kv))
        return result

    return joined


def and_masks(*mask_mods: Callable) -> Callable:
    """A mask_mod that keeps what all keep."""
    return _joined(operator.and_, mask_mods)


def or_masks(*mask_mods: Callable) -> Callable:
    """A mask_mod that keeps what any keeps."""
    return _joined(operator.or_, mask_mods)


def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: Callable | None = None, block_mask: BlockMask | None = None,
                   scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None,
                   *, return_aux: Any = None) -> Any:  # fmt: skip
    """softmax(score_mod(scale * Q K^T), masked) V for (B, H, Q, E), (B, H', KV, E), (B, H', KV, V); H' divides H under `enable_gqa`.

    A row with every pair masked gives zeros. `return_lse`: also the logsumexp of the scores (natural logarithm);
    `return_aux`: an AuxRequest, answered by an AuxOutput. Raises ValueError for
    shapes that do not fit.
    """
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise ValueError(f"flex_attention: query, key and value must have 4 dimensions, got {query.ndim}, {key.ndim} and {value.ndim}")
    b, h, q, e = query.shape
    if key.shape[1] != h:
        if not enable_gqa or h % key.shape[1]:
            raise ValueError(f"Expect query and key/value to have the same number of heads but got {h} and "
                             f"{key.shape[1]}; pass enable_gqa=True when the first is a multiple of the second")
        repeats = h // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    kv = key.shape[2]
    scores = (query @ key.transpose(-1, -2)) * (1 / math.sqrt(e) if scale is None else scale)
    places = _indices(b, h, q, kv, query.device)
    scores = (score_mod or _identity)(scores, *places)
    if block_mask is not None:
        keep = block_mask.mask_mod(*places).expand(scores.shape)
        scores = scores.masked_fill(~keep, -math.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse == -math.inf, 0).unsqueeze(-1)).exp()
    out = weights.to(value.dtype) @ value
    if return_aux is not None:
        return out, AuxOutput(lse if return_aux.lse else None, scores.amax(-1) if return_aux.max_scores else None)
    return (out, lse) if return_lse else out


__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask",
           "flex_attention", "noop_mask", "or_masks"]
