"""Streams and maps as chains of steps (torch.utils.data.datapipes)."""

from . import iter, map
from .datapipe import IterDataPipe, MapDataPipe, functional_datapipe

__all__ = ["IterDataPipe", "MapDataPipe", "functional_datapipe", "iter", "map"]
