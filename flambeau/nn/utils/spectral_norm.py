"""spectral_norm by a forward hook: the older form, whose state_dict keys are weight_orig, weight_u and weight_v."""

from __future__ import annotations

from typing import Any

from ...core import dispatch
from ...core.tensor import Tensor
from .. import functional as F
from ..modules.module import Module
from .parametrizations import matrix_of
from .weight_norm import hook_of, put_back


class SpectralNorm:
    """A forward pre-hook that computes `name` as name_orig divided by its largest singular value."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def compute_weight(self, module: Module, iterate: bool) -> Tensor:
        """weight / sigma."""
        weight, u, v = (getattr(module, self.name + suffix) for suffix in ("_orig", "_u", "_v"))
        matrix = matrix_of(weight, self.dim)
        if iterate:
            with dispatch.grad_enabled(False):
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix.mv(v), dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()
        return weight / u.dot(matrix.mv(v))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Module:
    """Divide a weight by its largest singular value, which power iteration follows."""
    if hook_of(module, SpectralNorm, name) is not None:
        raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    if dim is None:
        dim = 1 if "ConvTranspose" in type(module).__name__ else 0
    hook = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module._parameters.get(name)
    if weight is None:
        raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    with dispatch.grad_enabled(False):
        u, v = (F.normalize(weight.new_empty((n,)).normal_(), dim=0, eps=eps) for n in matrix_of(weight, dim).shape)
    delattr(module, name)
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.data)
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Put the weight back as one parameter."""
    return put_back(module, SpectralNorm, "spectral_norm", name, ("_u", "_v", "_orig"), False)


class SpectralNormStateDictHook:
    """What PyTorch's pickled modules have as a hook of `state_dict`: it notes a version there, which nothing reads."""

    fn: SpectralNorm

    def __call__(self, module: Any, state: dict, prefix: str, local_metadata: dict) -> None:
        pass


class SpectralNormLoadStateDictPreHook:
    """What they have as a hook of loading: states that have weight_orig, weight_u and weight_v need nothing."""

    fn: SpectralNorm

    def __call__(self, *state: Any) -> None:
        pass
