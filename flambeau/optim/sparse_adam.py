"""Adam for sparse gradients."""

from __future__ import annotations

from typing import Any

from ..core.sparse import SparseTensor, sparse_like
from ..core.tensor import Tensor
from ..ops.nn.steps import as_number
from .optimizer import GroupOptimizer, ParamsT, options, zeros


class SparseAdam(GroupOptimizer):
    """Adam that updates moments and parameters only where the sparse gradient has entries; the moments of other rows do not decay."""

    takes_sparse = True

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 maximize: bool = False) -> None:
        super().__init__(params, options(locals()))
        for name, value in (("learning rate", lr), ("epsilon value", eps)):
            if not value > 0:
                raise ValueError(f"Invalid {name}: {value}")
        every = [p for group in self.param_groups for p in group["params"]]
        if any(p.dtype.is_complex for p in every):
            raise ValueError("SparseAdam does not support complex parameters")
        sparse = [i for i, p in enumerate(every) if p.layout.name != "strided"]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")

    def _step_group(self, group: dict[str, Any]) -> None:
        for p in self._with_grad(group):
            if type(p.grad) is not SparseTensor:
                raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        for p in self._with_grad(group):
            state = self.state[p]
            if not state:
                state.update(step=0, exp_avg=zeros(p), exp_avg_sq=zeros(p))
            state["step"] += 1
            _step_rows(p, p.grad, state, group)


def _step_rows(p: Tensor, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
    """One step of the rows that the gradient has."""
    grad = grad.coalesce()
    (beta1, beta2), g = group["betas"], grad.values()
    if not grad._nnz():
        return
    g = -g if group["maximize"] else g
    old, old_square = (state[name].sparse_mask(grad).values() for name in ("exp_avg", "exp_avg_sq"))
    change, change_square = (g - old) * (1 - beta1), (g * g - old_square) * (1 - beta2)
    state["exp_avg"].add_(sparse_like(grad, change))
    state["exp_avg_sq"].add_(sparse_like(grad, change_square))
    spread = (change_square + old_square).sqrt_().add_(group["eps"])
    size = as_number(group["lr"]) * (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
    p.add_(sparse_like(grad, (change + old) / spread), alpha=-size)
