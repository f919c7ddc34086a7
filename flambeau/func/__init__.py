"""torch.func: functions that transform functions: grad, vjp, jvp, jacobians, vmap, and modules as functions of their parameters.

They are built on the tape. A transform differentiates what its function computes from fresh copies of its arguments, recorded with
`create_graph`, so that transforms nest (`grad(grad(f))`, `vmap(grad(f))`).
"""

from __future__ import annotations

from .functional_call import functional_call, replace_all_batch_norm_modules_, stack_module_state
from .rearrange import rearrange
from .transforms import functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from .vmap import debug_unwrap, vmap

__all__ = ["debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp",
           "linearize", "rearrange", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap"]
