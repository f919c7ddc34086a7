"""What libraries look at of loaders: the classes of their iterators; and samplers of nothing."""

import pytest

import flambeau as fl
from flambeau.utils.data import DataLoader, RandomSampler


@pytest.mark.parametrize("workers, name", [(0, "_SingleProcessDataLoaderIter"), (1, "_MultiProcessingDataLoaderIter")])
def test_iterators_have_torchs_names(workers, name):
    found = iter(DataLoader(range(2), num_workers=workers))
    assert type(found).__name__ == name and type(found) is getattr(fl.utils.data.dataloader, name)
    assert sum(int(x) for x in found) == 1


def test_a_sampler_of_nothing_is_refused():
    with pytest.raises(ValueError, match="num_samples"):
        RandomSampler(range(0))
