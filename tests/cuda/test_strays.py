"""An index out of range ends in an IndexError at the next synchronisation, in every operator that takes indices."""

from __future__ import annotations

import pytest

import flambeau as fl

F = fl.nn.functional
WORKS = {
    "gather": lambda x, i, y: x.gather(0, i[:, None].expand(-1, 40)),
    "embedding": lambda x, i, y: F.embedding(i, x),
    "index_select": lambda x, i, y: x.index_select(0, i),
    "index": lambda x, i, y: x[i],
    "two indices": lambda x, i, y: x[i, i],
    "scatter": lambda x, i, y: x.scatter(0, i[:, None].expand(-1, 40), y),
    "scatter_add": lambda x, i, y: x.scatter_add(0, i[:, None].expand(-1, 40), y),
    "scatter_reduce": lambda x, i, y: x.scatter_reduce(0, i[:, None].expand(-1, 40), y, "amax"),
    "index_add": lambda x, i, y: x.index_add(0, i, y),
    "index_copy": lambda x, i, y: x.index_copy(0, i, y),
    "index_put": lambda x, i, y: x.index_put((i,), y),
    "accumulate": lambda x, i, y: x.index_put((i,), y, accumulate=True),
    "assignment": lambda x, i, y: _assigned(x.clone(), i, y),
    "cross_entropy": lambda x, i, y: F.cross_entropy(y, i),
    "nll_loss": lambda x, i, y: F.nll_loss(y, i, reduction="sum"),
    "embedding_bag": lambda x, i, y: F.embedding_bag(i[None], x),
    "take_along_dim": lambda x, i, y: x.take_along_dim(i[:, None], 0),
}


def _assigned(x, i, y):
    x[i] = y
    return x


def _tensors(rows: int, stray: int | None) -> tuple:
    x, y = fl.randn(24, 40, device="cuda"), fl.randn(rows, 40, device="cuda")
    i = fl.arange(rows) % 24
    if stray is not None:
        i[rows // 2] = stray
    return x, i.cuda(), y


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("rows", [5, 600])
@pytest.mark.parametrize("name", WORKS)
def test_an_index_out_of_range_is_an_error_and_the_gpu_stays_usable(name, rows, compiled):
    work = fl.compile(WORKS[name]) if compiled else WORKS[name]
    for stray in (40 if "loss" in name or name == "cross_entropy" else 24, -1000, 2**40):
        work(*_tensors(rows, None))
        fl.cuda.synchronize()
        work(*_tensors(rows, stray))
        with pytest.raises(IndexError, match=f"index {stray} is out of bounds for a dimension of size (24|40)"):
            fl.cuda.synchronize()
        fl.cuda.synchronize()
        assert fl.ones(3, device="cuda").sum().item() == 3


@pytest.mark.parametrize("wait", [lambda t: t.sum().item(), lambda t: t.cpu(), lambda t: t.tolist(), lambda t: fl.cuda.synchronize(),
                                  lambda t: fl.cuda.current_stream().synchronize(), lambda t: bool((t > 0).any())])
def test_everything_that_waits_tells(wait):
    x, i, _ = _tensors(600, 24)
    found = x[i]
    with pytest.raises(IndexError, match="index 24"):
        wait(found)


def test_generated_code_writes_nothing_at_a_stray_index():
    x, i, y = _tensors(600, 24)
    found = fl.compile(lambda x, i, y: fl.zeros_like(x).index_add(0, i, y))(x, i, fl.ones_like(y))
    with pytest.raises(IndexError):
        fl.cuda.synchronize()
    counted = fl.bincount(fl.arange(600)[fl.arange(600) != 300] % 24, minlength=24).cuda()
    assert fl.equal(found[:, 0], counted.float())
