"""torch.nested: tensors of rows of different lengths are not implemented."""

from __future__ import annotations

from ._absent import absent_names
from ._lazy import submodules

__path__: list[str] = []  # torch's is a package; what it keeps there is in `_homes`
__getattr__ = submodules(__name__, otherwise=absent_names(
    "torch.nested", ("nested_tensor", "nested_tensor_from_jagged", "as_nested_tensor", "to_padded_tensor", "narrow", "masked_select"),
    "pad the rows to one length (torch.nn.utils.rnn.pad_sequence) and mask"))
