"""torch.sparse: tensors that hold only some of their elements, in the layouts COO, CSR and CSC (docs/sparse.md)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._absent import absent_names
from ..core.sparse import SparseTensor
from ..core.tensor import Tensor
from . import bridge, construct, convert, elementwise, products, shapes, steps
from .construct import TYPED_TENSORS, check_sparse_tensor_invariants, spdiags
from .products import addmm, mm, sampled_addmm
from .shapes import log_softmax, softmax
from .shapes import sparse_sum as sum

globals().update(TYPED_TENSORS)

_absent = absent_names("torch.sparse", ("to_sparse_semi_structured", "SparseSemiStructuredTensor",
                                         "SparseSemiStructuredTensorCUSPARSELT", "SparseSemiStructuredTensorCUTLASS", "solve", "spsolve"),
                       "use torch.sparse_coo_tensor or dense tensors")


def __getattr__(name: str) -> Any:
    return _absent(name)


def as_sparse_gradcheck(gradcheck: Callable[..., bool]) -> Callable[..., bool]:
    """`gradcheck` for functions that take or give sparse tensors: each sparse input is checked by its entries (`masked=True`), or by all
    its elements, as a sparse tensor that has an entry for each; sparse results by all elements."""
    @functools.wraps(gradcheck)
    def checked(func: Callable, inputs: Any, **kwargs: Any) -> bool:
        given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        masked = bool(kwargs.get("masked", False))
        made = [_taken_apart(x, masked) if isinstance(x, SparseTensor) and x.requires_grad else (x, lambda x: x) for x in given]

        def dense(*parts: Any) -> Any:
            out = func(*(build(part) for (_, build), part in zip(made, parts)))
            outs = out if isinstance(out, (tuple, list)) else (out,)
            whole = tuple([o.to_dense() if isinstance(o, SparseTensor) else o for o in outs])
            return whole if isinstance(out, (tuple, list)) else whole[0]

        return gradcheck(dense, tuple([part for part, _ in made]), **kwargs)

    return checked


def _taken_apart(x: SparseTensor, masked: bool) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """A dense tensor that a sparse one is checked by, and how to make such a sparse one of it."""
    pattern, layout = x._pattern, x.layout
    if masked:
        return x._entries.detach().clone().requires_grad_(), lambda entries: bridge.assembled(entries, pattern)
    dense: Any = x.detach().to_dense()
    every = dense.new_ones(tuple(dense.shape)).to_sparse(layout=layout)
    return dense.requires_grad_(), lambda dense: dense.sparse_mask(every)


__all__ = [
    "addmm", "as_sparse_gradcheck", "bridge", "check_sparse_tensor_invariants", "construct", "convert", "elementwise", "log_softmax",
    "mm", "products", "sampled_addmm", "shapes", "softmax", "spdiags", "steps", "sum",
]
