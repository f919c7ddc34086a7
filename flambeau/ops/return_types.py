"""The named tuples that operators with several outputs return (torch.return_types)."""

from __future__ import annotations

import sys
from collections import namedtuple
from typing import Any

_FIELDS = {
    "max": "values indices", "min": "values indices", "sort": "values indices", "topk": "values indices",
    "kthvalue": "values indices", "median": "values indices", "nanmedian": "values indices", "mode": "values indices",
    "cummax": "values indices", "cummin": "values indices", "aminmax": "min max",
    "svd": "U S V", "qr": "Q R", "linalg_svd": "U S Vh", "linalg_qr": "Q R", "linalg_eigh": "eigenvalues eigenvectors",
    "linalg_eig": "eigenvalues eigenvectors", "linalg_slogdet": "sign logabsdet", "slogdet": "sign logabsdet",
    "linalg_lstsq": "solution residuals rank singular_values", "linalg_lu": "P L U", "linalg_cholesky_ex": "L info",
    "histogram": "hist bin_edges", "histogramdd": "hist bin_edges", "linalg_inv_ex": "inverse info",
    "linalg_lu_factor": "LU pivots", "linalg_lu_factor_ex": "LU pivots info", "lu_unpack": "P L U", "linalg_solve_ex": "result info",
    "linalg_ldl_factor": "LD pivots", "linalg_ldl_factor_ex": "LD pivots info", "geqrf": "a tau",
    "triangular_solve": "solution cloned_coefficient", "frexp": "mantissa exponent",
}


def _repr(self: Any) -> str:
    lines = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
    return f"torch.return_types.{type(self).__name__}(\n{lines})"


def _new(cls: Any, *values: Any) -> Any:
    """Of the values, or of one sequence of them (and an empty dictionary, as torch's are pickled)."""
    return cls._make(values[0] if len(values) == 1 or isinstance(values[1], dict) else values)


def _make(name: str, fields: str) -> Any:
    base: Any = namedtuple(name, fields)  # type: ignore[misc]
    return type(name, (base,), {"__new__": _new, "__repr__": _repr, "__slots__": (), "__module__": __name__,
                                "__reduce__": lambda self: (type(self), (tuple(self), {}))})


for _name, _fields in _FIELDS.items():
    setattr(sys.modules[__name__], _name, _make(_name, _fields))


def named(name: str, *values: Any) -> Any:
    """A `return_types.name` of these values."""
    return getattr(sys.modules[__name__], name)(*values)
