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


def test_ends_of_datasets_by_their_old_name():
    joined = fl.utils.data.ConcatDataset([range(2), range(3)])
    with pytest.warns(DeprecationWarning, match="renamed"):
        assert joined.cummulative_sizes == joined.cumulative_sizes == fl.utils.data.ConcatDataset.cumsum([range(2), range(3)]) == [2, 5]


def test_fetchers_make_batches():
    from flambeau.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher
    assert _MapDatasetFetcher(range(9), True, sum, False).fetch([1, 3]) == 4
    stream = _IterableDatasetFetcher(iter(range(3)), True, sum, False)
    assert [stream.fetch([0, 0]), stream.fetch([0, 0])] == [1, 2]
