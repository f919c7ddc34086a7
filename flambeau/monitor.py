"""torch.monitor: events of long-running programs, given to handlers."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any


class Event:
    """Something that happened: a name, when, and facts."""

    def __init__(self, name: str, timestamp: datetime.datetime, data: dict[str, Any]) -> None:
        self.name, self.timestamp, self.data = name, timestamp, dict(data)


class EventHandlerHandle:
    """What register_event_handler gives and unregister_event_handler takes."""

    def __init__(self, callback: Callable[[Event], Any]) -> None:
        self.callback = callback


_handlers: list[EventHandlerHandle] = []


def register_event_handler(callback: Callable[[Event], Any]) -> EventHandlerHandle:
    """Call `callback(event)` for every event from here on."""
    _handlers.append(EventHandlerHandle(callback))
    return _handlers[-1]


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """No longer call it."""
    _handlers.remove(handler)


def log_event(event: Event) -> None:
    """Give an event to all handlers."""
    for handler in _handlers:
        handler.callback(event)


__all__ = ["Event", "EventHandlerHandle", "log_event", "register_event_handler", "unregister_event_handler"]
