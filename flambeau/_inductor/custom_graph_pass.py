"""Passes of the user's over the graphs that inductor compiles: `torch._inductor.config.post_grad_custom_post_pass = MyPass()`."""

from __future__ import annotations

import abc
import hashlib
from pathlib import Path
from typing import Any


class CustomGraphPass(abc.ABC):
    """A pass: called with a `torch.fx.Graph`, which it changes in place."""

    @abc.abstractmethod
    def __call__(self, graph: Any) -> None:
        """Change it."""

    @abc.abstractmethod
    def uuid(self) -> Any:
        """What tells this pass from others that do something else."""


def get_hash_for_files(paths: tuple[str, ...], extra: str = "") -> bytes:
    """A hash of some files' contents, for `uuid`."""
    found = hashlib.sha256(extra.encode())
    for path in paths:
        found.update(Path(path).read_bytes())
    return found.digest()


__all__ = ["CustomGraphPass", "get_hash_for_files"]
