"""Where programs would report events: nowhere."""

from __future__ import annotations

from typing import Any


def open_source_signpost(subsystem: str, name: str, parameters: Any = None, env_metadata: dict[str, Any] | None = None) -> None:
    """Nothing is reported."""


__all__: list[str] = []
