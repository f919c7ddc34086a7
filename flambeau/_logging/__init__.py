"""torch._logging: which log channels speak, and a warning that is given once."""

from __future__ import annotations

import functools
import logging
from typing import Any

from ..dynamo import logs


def set_logs(*, all: int | None = None, modules: dict[str, int] | None = None, **levels: int | bool | None) -> None:
    """Turn log channels on or off by name, as `TORCH_LOGS` does: `set_logs(graph_breaks=True, dynamo=logging.DEBUG)`."""
    unknown = sorted(set(levels) - set(logs.valid_names()))
    if unknown:
        raise TypeError(f"set_logs() got an unexpected keyword argument {unknown[0]!r}; valid are {', '.join(logs.valid_names())}")
    wanted: dict[str, Any] = {**({} if all is None else {"all": all}), **levels, **(modules or {})}
    logs.set_levels({name: logging.ERROR if level is None or level is False else logging.DEBUG if level is True else level
                     for name, level in wanted.items()})


def getArtifactLogger(module_qname: str, artifact_name: str) -> logging.Logger:
    """The logger of a channel."""
    return logging.getLogger(f"flambeau.{artifact_name}")


@functools.lru_cache(None)
def warning_once(logger_obj: logging.Logger, *args: Any, **kwargs: Any) -> None:
    """`logger_obj.warning(...)`, the first time that it is called with these arguments."""
    logger_obj.warning(*args, **kwargs)


def trace_structured(name: str, *args: Any, **kwargs: Any) -> None:
    """Nothing: there is no structured trace."""


__all__ = ["getArtifactLogger", "set_logs", "trace_structured", "warning_once"]
