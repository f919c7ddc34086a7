"""torch.special: special functions, elementwise unless they say otherwise."""

from __future__ import annotations

from ..ops import OPERATORS as _OPERATORS
from ..ops.polynomials import polynomials as _polynomials

# torch.special's name -> the operator's.
_NAMES = {
    "digamma": "digamma", "psi": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2", "expit": "sigmoid",
    "expm1": "expm1", "gammaln": "lgamma", "gammainc": "igamma", "gammaincc": "igammac", "i0": "i0", "log1p": "log1p",
    "logit": "logit", "logsumexp": "logsumexp", "multigammaln": "mvlgamma", "polygamma": "polygamma", "round": "round",
    "sinc": "sinc",
    "softmax": "softmax", "log_softmax": "log_softmax", "xlogy": "xlogy", "xlog1py": "special_xlog1py", "entr": "special_entr",
    "erfcx": "special_erfcx", "i0e": "special_i0e", "i1": "special_i1", "i1e": "special_i1e", "log_ndtr": "special_log_ndtr",
    "ndtr": "special_ndtr", "ndtri": "special_ndtri", "zeta": "special_zeta", "bessel_j0": "special_bessel_j0",
    "bessel_j1": "special_bessel_j1", "bessel_y0": "special_bessel_y0", "bessel_y1": "special_bessel_y1",
    "modified_bessel_i0": "i0", "modified_bessel_i1": "special_i1", "modified_bessel_k0": "special_bessel_k0",
    "modified_bessel_k1": "special_bessel_k1", "scaled_modified_bessel_k0": "special_bessel_k0e",
    "scaled_modified_bessel_k1": "special_bessel_k1e", "airy_ai": "special_airy_ai",
    "spherical_bessel_j0": "special_spherical_bessel_j0",
} | {name: f"special_{name}" for name in _polynomials}
globals().update({name: _OPERATORS[target] for name, target in _NAMES.items() if target in _OPERATORS})
__all__ = sorted(name for name in _NAMES if _NAMES[name] in _OPERATORS)
