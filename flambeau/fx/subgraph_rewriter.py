"""The place where torch.fx keeps `replace_pattern`, for code that imports it from there."""

from flambeau.fx.rewrite import Match, replace_pattern

__all__ = ["Match", "replace_pattern"]
