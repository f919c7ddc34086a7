"""What goes wrong between processes, in torch's exception types."""

from __future__ import annotations


class DistError(RuntimeError):
    """Something went wrong between the processes of a group."""


class DistBackendError(DistError):
    """A collective failed, or did not end in time."""


class DistNetworkError(DistError):
    """A peer or a store cannot be reached."""


class DistStoreError(DistError):
    """A store does not have what was waited for."""


class QueueEmptyError(DistStoreError):
    """A store's queue holds nothing."""


for _class in (DistError, DistBackendError, DistNetworkError, DistStoreError, QueueEmptyError):
    _class.__module__ = "flambeau.distributed"
