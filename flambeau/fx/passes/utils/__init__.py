"""Subgraphs as modules."""

from flambeau.fx.passes.utils.fuser_utils import fuse_by_partitions, topo_sort, validate_partition
from flambeau.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["InternalMatch", "SubgraphMatcher", "fuse_by_partitions", "topo_sort", "validate_partition"]
