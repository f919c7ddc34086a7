"""Draws with gradients to the parameters of their distribution, by how the cdf moves (M. Figurnov, S. Mohamed and A. Mnih, "Implicit
reparameterization gradients", 2018): with the rank F(z; a) of a draw held, dz/da = -(dF/da) / (dF/dz)."""

from __future__ import annotations

from collections.abc import Callable

from ..core import dispatch
from ..core.dtypes import finfo, float64
from ..core.tensor import Tensor
from .generators import Generator
from .math import betainc_prim, igamma_prim, igammac_prim
from .promotion import broadcast, cast
from .random import _drawn_gamma
from .registry import operator


def _slope(below: Callable[[Tensor], Tensor], a: Tensor) -> Tensor:
    """The derivative by central differences of the fourth order; the step is a hundredth of what `a` means to the distribution."""
    h = a / (1 + a.sqrt()) * 0.01
    return (8 * (below(a + h) - below(a - h)) - (below(a + 2 * h) - below(a - 2 * h))) / (12 * h)


@operator
def _standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:
    """How draws `output` of rate 1 move with their shapes `input`."""
    a, z = (cast(x, float64) for x in broadcast(input, output))
    z = z.clamp(min=1e-300)
    small = _slope(lambda a: igamma_prim(a, z), a)
    large = -_slope(lambda a: igammac_prim(a, z), a)    # the smaller of the two areas has the digits
    density = (a - 1) * z.log() - z - a.lgamma()
    return cast(-small.where(z < a, large) / density.exp(), input.dtype)


@operator
def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """How each part `x` of a draw moves with its own concentration `alpha`, by the part that is left to the others; `total` is the sum
    of all concentrations."""
    z, a, sum_ = (cast(value, float64) for value in broadcast(x, alpha, total))
    eps = finfo(x.dtype).tiny
    z, b = z.clamp(eps, 1 - finfo(float64).eps), sum_ - a
    small = _slope(lambda a: betainc_prim(a, b, z), a)
    large = -_slope(lambda a: betainc_prim(b, a, 1 - z), a)
    density = (a - 1) * z.log() + (b - 1) * (-z).log1p() + sum_.lgamma() - a.lgamma() - b.lgamma()
    return cast(-small.where(z < a / sum_, large) / (density.exp() * (1 - z)), x.dtype)


def _moves(input: Tensor) -> bool:
    return input.requires_grad and dispatch.state.grad_enabled


@operator(tags=("random", "from_generator"))
def _standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma-distributed numbers of these shapes and rate 1."""
    shape = input.detach()
    drawn = _drawn_gamma(shape, generator)
    return drawn + (input - shape) * _standard_gamma_grad(shape, drawn) if _moves(input) else drawn


@operator(tags=("random", "from_generator"))
def _sample_dirichlet(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Points of the simplex, by gamma-distributed numbers over their sum."""
    alpha = input.detach()
    parts = _drawn_gamma(alpha, generator)
    drawn = (parts / parts.sum(-1, keepdim=True)).clamp(min=finfo(alpha.dtype).tiny)
    if not _moves(input):
        return drawn
    moved = (input - alpha) * _dirichlet_grad(drawn, alpha, alpha.sum(-1, keepdim=True).expand(alpha.shape))
    return drawn + moved - drawn * moved.sum(-1, keepdim=True)


__all__: list[str] = []
