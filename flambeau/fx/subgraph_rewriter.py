"""The place where torch.fx keeps `replace_pattern` and its kin, for code that imports it from there."""

from flambeau.fx.rewrite import Match, ReplacedPatterns, replace_pattern, replace_pattern_with_filters

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]
