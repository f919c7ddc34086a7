"""torch.return_types: the named tuples that operators with several outputs return."""

from __future__ import annotations

from .ops import return_types as _types

globals().update({name: value for name, value in vars(_types).items() if isinstance(value, type) and issubclass(value, tuple)})
