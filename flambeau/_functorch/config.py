"""Settings of aot autograd: PyTorch's, none of which changes anything here."""

from __future__ import annotations

from typing import Any, Final

from ..core.config_module import accepted_beside, install

ACCEPTED: Final[dict[str, Any]] = accepted_beside(__file__)

install(__name__, ACCEPTED, shown_as="torch._functorch.config")
