"""Numbers that a program tells of itself, by group and name, to handlers: `put_metric`, and `@prof` for how often and how long."""

from __future__ import annotations

import abc
import functools
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple


class MetricData(NamedTuple):
    """A number: when (seconds since 1970), of which group and name."""

    timestamp: float
    group_name: str
    name: str
    value: float


class MetricsConfig:
    """Parameters of handlers."""

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self.params = params or {}


class MetricHandler(abc.ABC):
    """Who gets the numbers."""

    @abc.abstractmethod
    def emit(self, metric_data: MetricData) -> None:
        """Take a number."""


class ConsoleMetricHandler(MetricHandler):
    """Prints them."""

    def emit(self, metric_data: MetricData) -> None:
        print(f"[{metric_data.timestamp}][{metric_data.group_name}]: {metric_data.name}={metric_data.value}")


class NullMetricHandler(MetricHandler):
    """Leaves them."""

    def emit(self, metric_data: MetricData) -> None:
        del metric_data


class MetricStream:
    """The numbers of a group, to its handler."""

    def __init__(self, group_name: str, handler: MetricHandler) -> None:
        self.group_name, self.handler = group_name, handler

    def add_value(self, metric_name: str, metric_value: float) -> None:
        """Tell a number."""
        self.handler.emit(MetricData(time.time(), self.group_name, metric_name, metric_value))


_handlers: dict[str | None, MetricHandler] = {None: NullMetricHandler()}  # by group; None: of those without one


def configure(handler: MetricHandler, group: str | None = None) -> None:
    """Let `handler` have the numbers of a group; of all others without `group`."""
    _handlers[group] = handler


def initialize_metrics(cfg: MetricsConfig | None = None) -> None:
    """Nothing to begin with: handlers are those of `configure`."""
    del cfg


def getStream(group: str) -> MetricStream:
    """Where the numbers of a group go."""
    return MetricStream(group, _handlers.get(group, _handlers[None]))


def put_metric(metric_name: str, metric_value: float, metric_group: str = "torchelastic") -> None:
    """Tell a number."""
    getStream(metric_group).add_value(metric_name, metric_value)


def publish_metric(metric_group: str, metric_name: str, metric_value: float) -> None:
    """`put_metric` by its older name."""
    warnings.warn("Deprecated, use `put_metric(metric_name, metric_value, metric_group)` instead", FutureWarning, stacklevel=2)
    put_metric(metric_name, metric_value, metric_group)


def get_elapsed_time_ms(start_time_in_seconds: float) -> int:
    """Whole milliseconds since then."""
    return int((time.time() - start_time_in_seconds) * 1000)


def prof(fn: Callable | None = None, group: str = "torchelastic") -> Any:
    """`fn`, each call of which tells `fn.success` or `fn.failure` (1) and `fn.duration.ms`. With or without `group=`."""
    if fn is None:
        return functools.partial(prof, group=group)
    name = fn.__qualname__.removeprefix("<locals>.")

    @functools.wraps(fn)
    def timed(*args: Any, **kwargs: Any) -> Any:
        begun = time.time()
        try:
            result = fn(*args, **kwargs)
        except Exception:
            put_metric(f"{name}.failure", 1, group)
            raise
        else:
            put_metric(f"{name}.success", 1, group)
            return result
        finally:
            put_metric(f"{name}.duration.ms", get_elapsed_time_ms(begun), group)
    return timed


def profile(group: str | None = None) -> Callable:
    """`prof` by its older name."""
    warnings.warn("Deprecated, use `@prof` instead", FutureWarning, stacklevel=2)
    return prof(group=group or "torchelastic")
