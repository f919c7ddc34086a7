"""AdamW under the module name that torch gives it."""

from .adam import AdamW

__all__ = ["AdamW"]
