"""torch.nested: tensors of rows of different lengths are not implemented."""

from __future__ import annotations

from ._absent import absent_names

__getattr__ = absent_names(
    "torch.nested", ("nested_tensor", "nested_tensor_from_jagged", "as_nested_tensor", "to_padded_tensor", "narrow"),
    "pad the rows to one length (torch.nn.utils.rnn.pad_sequence) and mask")
