"""What libraries find at `torch._C._nn`: the functions of `torch.nn.functional`, a few under other names."""

from __future__ import annotations

from typing import Any

from .nn import functional
from .nn.modules.module import parse_to as _parse_to

col2im, im2col = functional.fold, functional.unfold
cross_entropy_loss, log_sigmoid = functional.cross_entropy, functional.logsigmoid


def __getattr__(name: str) -> Any:
    return getattr(functional, name)


__all__ = ["_parse_to", "col2im", "cross_entropy_loss", "im2col", "log_sigmoid"]
