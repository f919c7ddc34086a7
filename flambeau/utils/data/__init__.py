"""`torch.utils.data`: datasets, samplers, and the loader that makes batches of them."""

# isort: off
from ..._lazy import submodules
from .collate import default_collate, default_convert
from .dataloader import DataLoader, _DatasetKind
from .datapipes.checks import (
    DataChunk, DFIterDataPipe, argument_validation, guaranteed_datapipes_determinism, non_deterministic, runtime_validation,
    runtime_validation_disabled,
)
from .datapipes.datapipe import IterDataPipe, MapDataPipe, functional_datapipe
from .dataset import ChainDataset, ConcatDataset, Dataset, IterableDataset, StackDataset, Subset, TensorDataset, random_split
from .sampler import (
    BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler,
)
from .worker import WorkerInfo, get_worker_info
# isort: on

_SUBMODULES = ("collate", "dataloader", "datapipes", "dataset", "distributed", "sampler", "worker")
__getattr__ = submodules(__name__, *_SUBMODULES)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IterDataPipe", "IterableDataset",
    "MapDataPipe", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset",
    "WeightedRandomSampler", "WorkerInfo", "default_collate", "default_convert", "functional_datapipe", "get_worker_info", "random_split",
    "DFIterDataPipe", "DataChunk", "argument_validation", "guaranteed_datapipes_determinism", "non_deterministic", "runtime_validation",
    "runtime_validation_disabled",
]  # fmt: skip
