"""torch.utils.hooks and torch.utils.dlpack."""

from __future__ import annotations

import warnings
from collections import OrderedDict

import numpy as np
import pytest

import flambeau as fl
from flambeau.utils import dlpack, hooks


def test_handles_that_programs_make() -> None:
    mine: OrderedDict = OrderedDict()
    others: dict = {}
    handle = hooks.RemovableHandle(mine, extra_dict=others)
    assert not mine
    mine[handle.id], others[handle.id] = len, True
    handle.remove()
    assert not mine and not others
    assert isinstance(fl.ones(1, requires_grad=True).register_hook(lambda g: g), hooks.RemovableHandle)
    with hooks.RemovableHandle(mine, extra_dict=[others]) as inner:
        mine[inner.id] = others[inner.id] = len
    assert not mine and not others


def test_warning_about_hooks() -> None:
    for t in (fl.ones(2, requires_grad=True), fl.ones(2, requires_grad=True) * 2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            hooks.warn_if_has_hooks(fl.ones(2))
            t.register_hook(hooks.unserializable_hook(lambda g: g))
            hooks.warn_if_has_hooks(t)
        t.register_hook(lambda g: g)
        with pytest.warns(UserWarning, match="will not be serialized"):
            hooks.warn_if_has_hooks(t)


def test_dlpack() -> None:
    x = fl.arange(4.0)
    y = dlpack.from_dlpack(dlpack.to_dlpack(x))
    y[0] = 7
    assert x[0] == 7 and fl.to_dlpack is dlpack.to_dlpack
    np.testing.assert_array_equal(dlpack.from_dlpack(dlpack.to_dlpack(x.requires_grad_())).numpy(), x.detach().numpy())
    torch = pytest.importorskip("torch")
    assert torch.utils.dlpack.from_dlpack(dlpack.to_dlpack(x)).tolist() == [7, 1, 2, 3]
