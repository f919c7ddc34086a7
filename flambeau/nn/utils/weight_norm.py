"""weight_norm by a forward hook: the older form, whose state_dict keys are weight_g and weight_v."""

from __future__ import annotations

import warnings
from typing import Any

from ...core import dispatch
from ...core.tensor import Tensor
from ...ops.linalg.norms import norm_except_dim
from ..modules.module import Module
from ..parameter import Parameter


class WeightNorm:
    """A forward pre-hook that computes `name` from name_g and name_v."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """g * v / |v|."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except_dim(v, 2, self.dim))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def hook_of(module: Module, kind: Any, name: str) -> int | None:
    """The key of the forward pre-hook of this class for the weight `name`."""
    return next((k for k, h in module._forward_pre_hooks.items() if isinstance(h, kind) and h.name == name), None)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Split a weight into name_g and name_v."""
    warnings.warn("`torch.nn.utils.weight_norm` is deprecated in favor of "
                  "`torch.nn.utils.parametrizations.weight_norm`.", FutureWarning, stacklevel=2)
    if hook_of(module, WeightNorm, name) is not None:
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    hook = WeightNorm(name, dim)
    weight = getattr(module, name)
    del module._parameters[name]
    with dispatch.grad_enabled(False):
        module.register_parameter(name + "_g", Parameter(norm_except_dim(weight, 2, hook.dim)))
    module.register_parameter(name + "_v", Parameter(weight))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def put_back(module: Module, kind: Any, called: str, name: str, suffixes: tuple[str, ...], *how: Any) -> Module:
    """The weight that the hook of class `kind` computes as one parameter, without the hook and what it is computed from."""
    key = hook_of(module, kind, name)
    if key is None:
        raise ValueError(f"{called} of '{name}' not found in {module}")
    with dispatch.grad_enabled(False):
        weight = module._forward_pre_hooks[key].compute_weight(module, *how)
    for suffix in ("", *suffixes):
        delattr(module, name + suffix)
    del module._forward_pre_hooks[key]
    module.register_parameter(name, Parameter(weight))
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Put the weight back as one parameter."""
    return put_back(module, WeightNorm, "weight_norm", name, ("_g", "_v"))
