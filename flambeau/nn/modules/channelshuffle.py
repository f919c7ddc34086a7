"""Channels read across groups."""

from __future__ import annotations

from .. import functional as F
from .applied import FunctionModule


class ChannelShuffle(FunctionModule, function=F.channel_shuffle):
    """Channels read across `groups`."""
