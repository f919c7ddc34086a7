"""Datasets, samplers and collation."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import distributed
from flambeau.utils import data as D


class Squares(D.Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> int:
        if not 0 <= i < self.count:
            raise IndexError(i)
        return i * i


class Stream(D.IterableDataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


# -- datasets -----------------------------------------------------------------------------------------------------------
def test_tensor_dataset() -> None:
    data = D.TensorDataset(torch.arange(6).reshape(3, 2), torch.tensor([7, 8, 9]))
    row, label = data[1]
    assert len(data) == 3 and row.tolist() == [2, 3] and label.item() == 8
    with pytest.raises(AssertionError, match=r"Size mismatch.*\[\[2\], \[3\]\]"):
        D.TensorDataset(torch.zeros(2), torch.zeros(3))


def test_subset_and_concat() -> None:
    subset = D.Subset(Squares(10), [3, 5])
    both = subset + Squares(2)
    assert [subset[i] for i in range(len(subset))] == [9, 25] and subset.__getitems__([1, 0]) == [25, 9]
    assert [both[i] for i in range(len(both))] == [9, 25, 0, 1] and both[-1] == 1
    with pytest.raises(IndexError):
        both[4]
    assert list(D.ChainDataset([Stream(2), Stream(3)])) == [0, 1, 0, 1, 2]
    stacked = D.StackDataset(a=Squares(3), b=Squares(3))
    assert stacked[2] == {"a": 4, "b": 4} and D.StackDataset(Squares(3), Squares(3))[1] == (1, 1)
    with pytest.raises(ValueError, match="Size mismatch"):
        D.StackDataset(Squares(3), Squares(4))


def test_random_split() -> None:
    parts = D.random_split(Squares(10), [7, 3], generator=torch.Generator().manual_seed(1))
    again = D.random_split(Squares(10), [7, 3], generator=torch.Generator().manual_seed(1))
    assert [len(p) for p in parts] == [7, 3] and parts[0].indices == again[0].indices
    assert sorted(parts[0].indices + parts[1].indices) == list(range(10))
    assert [len(p) for p in D.random_split(Squares(10), [0.5, 0.25, 0.25])] == [6, 2, 2]
    with pytest.raises(ValueError, match="9 and 10"):
        D.random_split(Squares(10), [4, 5])


def test_unfinished_datasets() -> None:
    with pytest.raises(NotImplementedError):
        D.Dataset()[0]
    with pytest.raises(TypeError, match="abstract method __iter__"):
        iter(D.IterableDataset())
    with pytest.raises(NotImplementedError):
        iter(D.Sampler())


# -- samplers -----------------------------------------------------------------------------------------------------------
def test_sequential_and_random() -> None:
    assert list(D.SequentialSampler(range(3))) == [0, 1, 2]
    sampler = D.RandomSampler(range(100), generator=torch.Generator().manual_seed(0))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(100)) and first != second
    assert list(D.RandomSampler(range(100), generator=torch.Generator().manual_seed(0))) == first


def test_the_default_generator_orders() -> None:
    orders = []
    for _ in range(2):
        torch.manual_seed(5)
        orders.append(list(D.RandomSampler(range(20))))
    assert orders[0] == orders[1]


def test_numbers_of_samples() -> None:
    assert len(list(D.RandomSampler(range(4), num_samples=10))) == 10
    drawn = list(D.RandomSampler(range(4), replacement=True, num_samples=100))
    assert len(drawn) == 100 and set(drawn) == {0, 1, 2, 3}
    with pytest.raises(ValueError, match="num_samples=0"):
        D.RandomSampler(range(4), num_samples=0)
    with pytest.raises(TypeError, match="replacement=1"):
        D.RandomSampler(range(4), replacement=1)  # type: ignore[arg-type]


def test_weights() -> None:
    drawn = list(D.WeightedRandomSampler([0.0, 1.0, 3.0], 400, generator=torch.Generator().manual_seed(0)))
    assert drawn.count(0) == 0 and drawn.count(2) > 2 * drawn.count(1)
    assert sorted(D.WeightedRandomSampler([1.0, 1.0], 2, replacement=False)) == [0, 1]
    assert sorted(D.SubsetRandomSampler([4, 6, 9])) == [4, 6, 9]


def test_batches() -> None:
    assert list(D.BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(D.BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert [len(D.BatchSampler(range(5), 2, last)) for last in (False, True)] == [3, 2]
    with pytest.raises(ValueError, match="batch_size=0"):
        D.BatchSampler(range(5), 0, False)


def test_distributed() -> None:
    shares = [list(D.DistributedSampler(range(10), 3, rank)) for rank in range(3)]
    assert [len(share) for share in shares] == [4, 4, 4] and set(itertools.chain(*shares)) == set(range(10))
    sampler = D.DistributedSampler(range(10), 3, 0, drop_last=True)
    before = list(sampler)
    sampler.set_epoch(1)
    assert len(before) == 3 and list(sampler) != before
    assert list(D.DistributedSampler(range(4), 2, 1, shuffle=False)) == [1, 3]
    with pytest.raises(ValueError, match="not been initialized"):
        D.DistributedSampler(range(4))
    distributed.init_process_group("fake", rank=2, world_size=3)
    try:
        assert list(D.DistributedSampler(range(7), shuffle=False)) == [2, 5, 1]
        assert list(D.DistributedSampler(range(4), num_replicas=4, shuffle=False)) == [2]
        with pytest.raises(ValueError, match="Invalid rank 2"):
            D.DistributedSampler(range(7), num_replicas=2)
    finally:
        distributed.destroy_process_group()


# -- collation ----------------------------------------------------------------------------------------------------------
Point = namedtuple("Point", "x y")


def test_collate_kinds() -> None:
    batch = D.default_collate([
        {"t": torch.tensor([1.0]), "n": np.float32([1, 2]), "i": 1, "f": 0.5, "b": True, "s": "a", "p": Point(1, "u")},
        {"t": torch.tensor([2.0]), "n": np.float32([3, 4]), "i": 2, "f": 1.5, "b": False, "s": "b", "p": Point(2, "v")},
    ])  # fmt: skip
    assert batch["t"].tolist() == [[1], [2]] and batch["n"].tolist() == [[1, 2], [3, 4]]
    assert batch["i"].dtype is torch.int64 and batch["f"].dtype is torch.float64 and batch["b"].dtype is torch.bool
    assert batch["s"] == ["a", "b"] and batch["p"].x.tolist() == [1, 2] and batch["p"].y == ("u", "v")
    pair = D.default_collate([(1, "x"), (2, "y")])
    assert type(pair) is list and pair[0].tolist() == [1, 2]


def test_collate_errors() -> None:
    with pytest.raises(RuntimeError, match=r"equal size, got lengths \[1, 2\]"):
        D.default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="found <class 'object'>"):
        D.default_collate([object()])
    with pytest.raises(TypeError, match="<U1"):
        D.default_collate([np.array(["a"])])


def test_convert() -> None:
    converted: Any = D.default_convert({"a": np.ones(2), "b": [np.int64(3), "text"]})
    assert converted["a"].tolist() == [1, 1] and converted["b"][0].item() == 3 and converted["b"][1] == "text"
