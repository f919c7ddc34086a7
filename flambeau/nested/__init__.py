"""torch.nested: tensors of rows of different lengths, in the layouts jagged and strided (docs/nested.md)."""

from .._lazy import submodules
from . import construct, forms, general, tensor
from .construct import as_nested_tensor, masked_select, narrow, nested_tensor, nested_tensor_from_jagged, to_padded_tensor

__getattr__ = submodules(__name__)

__all__ = ["to_padded_tensor", "as_nested_tensor", "nested_tensor", "nested_tensor_from_jagged", "narrow", "masked_select"]
