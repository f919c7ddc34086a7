"""The default backend."""

from ...dynamo.backends import inductor

__all__ = ["inductor"]
