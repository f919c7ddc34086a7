"""Optimizer steps whose gradients are sparse: only the rows that have one are written."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..core.sparse import SparseTensor
from ..core.tensor import Tensor
from ..ops.nn.steps import sgd_formula, sgd_step_
from .bridge import form


@form(sgd_step_)
def _sgd_step(params: list, grads: list, buffers: list | None, fresh: list, lr: Any, momentum: float, dampening: float, weight_decay: float,
              nesterov: bool, maximize: bool) -> None:
    """The dense ones together, then each sparse one; a momentum buffer is dense."""
    sparse = [isinstance(g, SparseTensor) for g in grads]

    def chosen(values: list | None, of: bool) -> Any:
        return None if values is None else [v for v, is_sparse in zip(values, sparse) if is_sparse is of]

    if not all(sparse):
        sgd_step_(chosen(params, False), chosen(grads, False), chosen(buffers, False), chosen(fresh, False), lr, momentum, dampening,
                  weight_decay, nesterov, maximize)
    if weight_decay:
        raise RuntimeError("SGD: weight_decay is not compatible with sparse gradients: it would make them dense; use weight_decay=0 for "
                           "these parameters, or sparse=False")
    for i, param in enumerate(params):
        if sparse[i]:
            _sgd(param, grads[i], None if buffers is None else buffers[i], fresh[i], (lr, momentum, dampening, nesterov, maximize))


def _sgd(param: Tensor, grad: SparseTensor, buffer: Tensor | None, fresh: bool, settings: tuple) -> None:
    lr, momentum, dampening, nesterov, maximize = settings
    if buffer is None:
        ops.add_(param, grad, alpha=lr if maximize else -lr)
        return
    dense = grad.to_dense()  # the buffer moves every row
    sgd_formula(param, dense, buffer, fresh, lr, momentum, dampening, 0.0, nesterov, maximize)
