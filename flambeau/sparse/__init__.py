"""torch.sparse: tensors that hold only some of their elements, in the layouts COO, CSR and CSC (docs/sparse.md)."""

from __future__ import annotations

from typing import Any

from .._absent import absent_names
from ..core.dtypes import DTYPES
from . import bridge, construct, convert, elementwise, products, shapes, steps
from .construct import check_sparse_tensor_invariants, spdiags, typed
from .products import addmm, mm, sampled_addmm
from .shapes import log_softmax, softmax
from .shapes import sparse_sum as sum

_TYPED = {"FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16", "BFloat16Tensor": "bfloat16", "LongTensor": "int64",
          "IntTensor": "int32", "ShortTensor": "int16", "CharTensor": "int8", "ByteTensor": "uint8", "BoolTensor": "bool"}
for _name, _kind in _TYPED.items():
    _made = globals()[_name] = typed(DTYPES[_kind])
    _made.__name__ = _made.__qualname__ = _name

_absent = absent_names("torch.sparse", ("to_sparse_semi_structured", "SparseSemiStructuredTensor",
                                         "SparseSemiStructuredTensorCUSPARSELT", "SparseSemiStructuredTensorCUTLASS", "spsolve",
                                         "as_sparse_gradcheck"),
                       "use torch.sparse_coo_tensor or dense tensors")


def __getattr__(name: str) -> Any:
    return _absent(name)


__all__ = ["addmm", "bridge", "check_sparse_tensor_invariants", "construct", "convert", "elementwise", "log_softmax", "mm", "products",
           "sampled_addmm", "shapes", "softmax", "spdiags", "steps", "sum"]
