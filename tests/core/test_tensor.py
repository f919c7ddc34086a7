"""Storage, layouts, views and versions of Tensor itself."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl


def test_views_share_memory_and_versions():
    x = fl.arange(12).reshape(3, 4)
    v = x.t()[1:, :2]
    v.add_(100)
    assert x[0, 1].item() == 101 and x._version == v._version == 1
    assert v.stride() == (1, 4) and v.storage_offset() == 1


def test_view_error_names_the_layout():
    x = fl.zeros(2, 3).t()
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        x.view(6)
    assert x.reshape(6).shape == (6,)


def test_from_numpy_shares_memory():
    a = np.arange(6.0).reshape(2, 3)
    x = fl.from_numpy(a)
    x[0, 0] = 7
    a[1, 1] = 9
    assert a[0, 0] == 7 and x[1, 1].item() == 9
    strided = fl.from_numpy(a[:, ::2])
    strided[0, 1] = 5
    assert a[0, 2] == 5 and strided.stride() == (3, 2)
    with pytest.raises(ValueError, match="negative"):
        fl.from_numpy(a[::-1]) + fl.from_numpy(a[::-1])[0].view(3)


def test_as_strided_stays_inside():
    x = fl.arange(6)
    assert fl.as_strided(x, (2, 2), (1, 2)).tolist() == [[0, 2], [1, 3]]
    with pytest.raises(RuntimeError, match="storage has 6"):
        fl.as_strided(x, (4, 4), (1, 2))


def test_empty_and_zero_dim():
    assert fl.zeros(0, 3).sum().item() == 0
    assert fl.tensor(3.0).shape == () and fl.tensor(3.0).item() == 3.0
    assert fl.zeros(2, 0).reshape(0, 7).shape == (0, 7)


def test_fake_tensors_follow_the_same_rules():
    from flambeau.core.dispatch import fake_mode
    with fake_mode():
        x, y = fl.zeros(2, 3), fl.zeros(3, 4)
        z = (x @ y).relu().transpose(0, 1)
        assert z.is_fake and z.shape == (4, 2) and z.stride() == (1, 4)
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            y @ x
    with pytest.raises(RuntimeError):
        z.item()


def test_data_sees_the_same_memory_without_history():
    x = fl.ones(2, requires_grad=True)
    x.data.mul_(3)
    assert x.tolist() == [3, 3] and not x.data.requires_grad


def test_requires_grad_needs_floats():
    with pytest.raises(RuntimeError, match="floating point and complex"):
        fl.ones(2, dtype=fl.int64).requires_grad_()


def test_channels_last_survives_elementwise():
    x = fl.zeros(2, 3, 4, 5).to(memory_format=fl.channels_last)
    assert x.stride() == (60, 1, 15, 3)
    assert (x + 1).relu().is_contiguous(memory_format=fl.channels_last)
    assert x.contiguous().stride() == (60, 20, 5, 1)
