"""torch.sparse: sparse layouts are not implemented."""

from __future__ import annotations

from ._absent import absent_names

__getattr__ = absent_names("torch.sparse", ("mm", "addmm", "sum", "softmax", "log_softmax", "spdiags"),
                           "use dense tensors, or scipy.sparse on tensor.numpy()")
