"""Activation checkpointing (torch.utils.checkpoint)."""

from __future__ import annotations

from ..autograd.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential"]
