"""torch.sparse: sparse layouts are not implemented."""

from __future__ import annotations

from ._absent import absent

_INSTEAD = "use dense tensors, or scipy.sparse on tensor.numpy()"
mm = absent("torch.sparse.mm", _INSTEAD)
addmm = absent("torch.sparse.addmm", _INSTEAD)
sum = absent("torch.sparse.sum", _INSTEAD)
softmax = absent("torch.sparse.softmax", _INSTEAD)
log_softmax = absent("torch.sparse.log_softmax", _INSTEAD)
spdiags = absent("torch.sparse.spdiags", _INSTEAD)
