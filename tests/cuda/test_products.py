"""Products by index on the GPU: positions that repeat, every width of element."""

from __future__ import annotations

import pytest

import flambeau as fl


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.float16, fl.bfloat16, fl.int64, fl.int32, fl.int8, fl.uint8], ids=str)
def test_products_by_index_are_the_cpus(dtype: fl.dtype) -> None:
    fl.manual_seed(0)
    x, index = fl.randint(1, 3, (4, 5)).to(dtype), fl.randint(0, 5, (4, 300))
    src = fl.where(fl.rand(4, 300) < 0.02, 2, 1).to(dtype)
    want = x.scatter_reduce(1, index, src, "prod")
    assert fl.equal(x.cuda().scatter_reduce(1, index.cuda(), src.cuda(), "prod").cpu(), want)
    want = x.T.index_reduce(0, index[0], src.T, "prod")
    assert fl.equal(x.cuda().T.index_reduce(0, index[0].cuda(), src.cuda().T, "prod").cpu(), want)
