"""Subgraphs as modules."""

from flambeau.fx.passes.utils.fuser_utils import fuse_by_partitions, topo_sort, validate_partition

__all__ = ["fuse_by_partitions", "topo_sort", "validate_partition"]
