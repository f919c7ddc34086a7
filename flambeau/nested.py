"""torch.nested: tensors of rows of different lengths are not implemented."""

from __future__ import annotations

from ._absent import absent

_INSTEAD = "pad the rows to one length (torch.nn.utils.rnn.pad_sequence) and mask"
nested_tensor = absent("torch.nested.nested_tensor", _INSTEAD)
nested_tensor_from_jagged = absent("torch.nested.nested_tensor_from_jagged", _INSTEAD)
as_nested_tensor = absent("torch.nested.as_nested_tensor", _INSTEAD)
to_padded_tensor = absent("torch.nested.to_padded_tensor", _INSTEAD)
narrow = absent("torch.nested.narrow", _INSTEAD)
